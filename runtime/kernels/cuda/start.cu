/* start.cu - START: starting values, made in the memory where they stay, with the bits of
 * cpu/start.c.
 *
 * A thread makes the values of one store of 16 bytes; windows off 16 bytes go value by value. */
#include "runtime/kernels/cuda/values.cuh"

#include "estimator/base/checked.h"
#include "runtime/kernels/quant_call.h"

namespace {

#define BLOCK 256

/* Values of a thread. */
template <typename T> struct lanes { static constexpr int N = pl_lanes<T>::N; };
template <> struct lanes<pl_either> { static constexpr int N = PL_START_BLOCK; };

template <typename T, int V>
__device__ __forceinline__ void store(const pl_mat<T> &w, uint64_t i, uint64_t n,
                                      const float (&f)[V]) {
    pl_store(w, 0, i, n, pl_packed(w, f));
}

template <int V>
__device__ __forceinline__ void store(const pl_mat<pl_either> &w, uint64_t i, uint64_t n,
                                      const float (&f)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++)
        if (i + k < n) w.put(0, i + k, f[k]);
}

/* w: one row of n elements, the first of them value `first` of the rule. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    fill(const pl_mat<T> w, uint64_t n, uint64_t first, const struct pl_start_rule rule) {
    constexpr int V = lanes<T>::N;
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * V;
    float f[V];
    if (i >= n) return;
    pl_values_fill<V>(rule, first + i, f);
    store(w, i, n, f);
}

template <typename T> pl_err launch(const struct pl_call *c, cudaStream_t stream) {
    const uint64_t n = pl_quant_elements(&c->out[PL_START_OUT_W]);
    const uint64_t blocks = pl_u64_div_up(n, (uint64_t)BLOCK * lanes<T>::N);
    const struct pl_start_rule rule = pl_start_rule_of(c->attr, c->batch->seed);
    if (blocks > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    if (blocks)
        PL_LAUNCH((fill<T>), dim3((unsigned)blocks), dim3(BLOCK), 0, stream,
                  pl_mat_of<T>(c->out[PL_START_OUT_W]), n, c->attr->first_element, rule);
    return pl_cuda_launched();
}

} // namespace

/* out: w[..]. */
extern "C" pl_err pl_cuda_start(struct pl_device *dev, const struct pl_call *c) {
    static pl_err (*const by_form[PL_FORMS])(const struct pl_call *, cudaStream_t) =
        PL_TYPE_TABLE(launch);
    struct pl_view run = c->out[PL_START_OUT_W];
    if (!pl_start_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    run.rows = 1;
    const struct pl_view *const views[] = {&run};
    return by_form[pl_form_of(views, 1)](c, pl_cuda_of(dev)->stream);
}

PL_CUDA_PRELOAD(start) = {PL_TYPE_KERNELS(fill), NULL};
