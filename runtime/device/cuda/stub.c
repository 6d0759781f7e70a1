/* stub.c - stands in for the CUDA back-end in a build without the toolkit. */
#include "runtime/device/device.h"

static pl_err stub_open(struct pl_device *dev, struct pl_diag *d) {
    pl_err err = pl_diag_set(d, PL_ERR_NO_DEVICE, "%s", dev->ops->missing);
    pl_diag_hint(d, "build on a machine with the CUDA toolkit (meson setup -Dcuda=enabled), or "
                    "train with `device: cpu`");
    return err;
}

static void stub_close(struct pl_device *dev) {
    (void)dev;
}

/* Only open() and close() are ever called: no device comes of it. */
const struct pl_device_ops pl_device_cuda = {
    .name = "cuda",
    .missing = "this plimsoll was built without CUDA",
    .open = stub_open,
    .close = stub_close,
};
