/* fold.cu - FOLD: the parts of the ranks, added one after another.
 *
 * How many ranks have a micro-batch is read from the facts in device memory, so that what was
 * captured with one number can be replayed with another. */
#include "runtime/kernels/between.h"
#include "runtime/kernels/cuda/common.cuh"
#include "runtime/kernels/cuda/table.h"

#define BLOCK 256

static __device__ __forceinline__ float widened(float x) {
    return x;
}
static __device__ __forceinline__ double widened(double x) {
    return x;
}
static __device__ __forceinline__ float widened(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
static __device__ __forceinline__ void store(float *to, float x) {
    *to = x;
}
static __device__ __forceinline__ void store(double *to, double x) {
    *to = x;
}
static __device__ __forceinline__ void store(__nv_bfloat16 *to, float x) {
    *to = __float2bfloat16(x);
}

/* g[size] = (adds ? g : 0) + parts[n][size], rounded after each part; n: `there`, or of the facts.
 */
template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    fold(const T *__restrict__ parts, T *__restrict__ g, uint64_t size, uint64_t there,
         const struct pl_facts *facts, bool adds) {
    const uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    const uint64_t n = facts && facts->contributors < there ? facts->contributors : there;
    if (i >= size || n == 0) return;
    T sum = adds ? g[i] : parts[i];
    for (uint64_t part = adds ? 0 : 1; part < n; part++)
        store(&sum, widened(sum) + widened(parts[part * size + i]));
    g[i] = sum;
}

template <typename T> static pl_err launch(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *parts = &c->in[PL_FOLD_PARTS], *g = &c->out[PL_FOLD_OUT_G];
    const uint64_t size = g->rows * g->cols, grid = (size + BLOCK - 1) / BLOCK;
    if (grid > INT32_MAX) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(fold<T>, dim3((unsigned)grid), dim3(BLOCK), 0, pl_cuda_of(dev)->stream,
              (const T *)parts->p, (T *)g->p, size, parts->rows / g->rows,
              c->attr->all_ranks ? NULL : c->batch->facts, pl_call_adds(c));
    return pl_cuda_launched();
}

/* in: parts[ranks*O,K], g[O,K]; out: g[O,K]. */
extern "C" pl_err pl_cuda_fold(struct pl_device *dev, const struct pl_call *c) {
    if (!pl_fold_fits(c)) return PL_ERR_PLAN_BROKEN;
    switch (c->out[PL_FOLD_OUT_G].dtype) {
    case PL_DTYPE_F64:
        return launch<double>(dev, c);
    case PL_DTYPE_F32:
        return launch<float>(dev, c);
    default:
        return launch<__nv_bfloat16>(dev, c);
    }
}

PL_CUDA_PRELOAD(fold) = {PL_CUDA_KERNEL(fold<float>), PL_CUDA_KERNEL(fold<double>),
                         PL_CUDA_KERNEL(fold<__nv_bfloat16>), NULL};
