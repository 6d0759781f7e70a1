/* table.c - the CUDA kernels by op kind, and loading them before the first step. */
#include "runtime/kernels/cuda/table.h"

#include "runtime/device/cuda/cuda.h"

/* An op without a kernel is work of the checkpoint room. */
const pl_kernel_fn pl_cuda_kernels[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_KERNEL_##RUNS([PL_OP_##KIND] = pl_cuda_##name, )
#include "estimator/ops/op_rows.h"
};

const pl_group_fn pl_cuda_groups[PL_OP_COUNT] = {
#define PL_OP(KIND, name, COST, RUNS, what, INPUTS, OUTPUTS)                                       \
    PL_WITH_GROUP_##RUNS([PL_OP_##KIND] = pl_cuda_##name##_group, )
#include "estimator/ops/op_rows.h"
};

static const struct {
    const char *name;
    const void *const *kernels;
} files[] = {
#define X(file) {#file, pl_cuda_preload_##file},
    PL_CUDA_FILES(X)
#undef X
};

/* Asking for its attributes loads a kernel (CUDA C++ Programming Guide, "Lazy Loading"). The shared
 * memory a block may opt into is a permission, not a reservation, so every kernel gets all of it.
 */
static cudaError_t load(const void *kernel, uint32_t shared_max) {
    struct cudaFuncAttributes a;
    cudaError_t e = cudaFuncGetAttributes(&a, kernel);
    if (e != cudaSuccess) return e;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)(shared_max - a.sharedSizeBytes));
}

pl_err pl_cuda_preload(const struct pl_cuda *cuda, struct pl_diag *d) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        for (const void *const *k = files[i].kernels; *k; k++) {
            cudaError_t e = load(*k, cuda->shared_max);
            if (e == cudaSuccess) continue;
            pl_err err = pl_cuda_error(e);
            return pl_diag_set(d, err, "loading the kernels of %s: %s (CUDA error %d)",
                               files[i].name, cudaGetErrorString(e), (int)e);
        }
    return PL_ERR_OK;
}
