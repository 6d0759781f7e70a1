/* workspace_cuda.c - the scratch of the CUDA kernels. */
#include "estimator/ops/scratch/workspace_cuda.h"

#define MIB (UINT64_C(1) << 20)

/* Returns the workspace that cuBLASLt may use; NVIDIA's documentation of cublasSetWorkspace()
 * recommends 32 MiB on Hopper and later, 4 MiB before. */
uint64_t pl_ws_cuda_product(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                            uint64_t cols) {
    (void)attr, (void)rows, (void)cols;
    return t->sm >= 90 ? 32 * MIB : 4 * MIB;
}
