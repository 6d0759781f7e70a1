/* values.cuh - the values of runtime/kernels/start.h, some of them to a thread.
 *
 * In: a rule, and which values. Out: fp32, the bits of pl_start_values(). */
#ifndef PL_RUNTIME_KERNELS_CUDA_VALUES_CUH
#define PL_RUNTIME_KERNELS_CUDA_VALUES_CUH

#include "runtime/kernels/cuda/common.cuh"

#include "runtime/kernels/normal.h"
#include "runtime/kernels/start.h"

/* The four values of random block `index`. */
__device__ __forceinline__ void pl_values_block(const struct pl_start_rule &rule, uint64_t index,
                                                float *f) {
    const float spread = (float)rule.spread;
    uint32_t x[PL_START_BLOCK];
    if (rule.kind != PL_START_CONSTANT) pl_rng_block(&rule.rng, index, x);
    if (rule.kind == PL_START_NORMAL) {
        pl_normal_pair(x[0], x[1], &f[0], &f[1]);
        pl_normal_pair(x[2], x[3], &f[2], &f[3]);
    }
#pragma unroll
    for (int k = 0; k < PL_START_BLOCK; k++)
        f[k] = rule.kind == PL_START_NORMAL    ? f[k] * spread
               : rule.kind == PL_START_UNIFORM ? pl_start_uniform(x[k], rule.spread)
                                               : spread;
}

/* Values [first, first + N), first being a multiple of PL_START_BLOCK. */
template <int N>
__device__ __forceinline__ void pl_values_fill(const struct pl_start_rule &rule, uint64_t first,
                                               float (&f)[N]) {
    static_assert(N % PL_START_BLOCK == 0, "random blocks are whole");
#pragma unroll
    for (int b = 0; b < N / PL_START_BLOCK; b++)
        pl_values_block(rule, first / PL_START_BLOCK + b, f + b * PL_START_BLOCK);
}

#endif
