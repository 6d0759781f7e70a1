/* nccl_stub.c - stands in for NCCL in a build without the CUDA toolkit or nccl.h. */
#include "runtime/comm/engines.h"

static pl_err stub_open(struct pl_comm *c, struct pl_diag *d) {
    (void)c;
    pl_err err = pl_diag_set(d, PL_ERR_COMM_INIT, "this plimsoll was built without NCCL");
    pl_diag_hint(d, "build on a machine with the CUDA toolkit and nccl.h (libnccl-dev), or train "
                    "with `device: cpu`");
    return err;
}

/* Only open() is ever called: no engine comes of it. */
const struct pl_comm_ops pl_comm_nccl = {.name = "nccl", .open = stub_open};
