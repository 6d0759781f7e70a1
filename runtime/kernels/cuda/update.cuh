/* update.cuh - what the optimizers share: matrices as one row, and stochastic rounding.
 *
 *   U1  element e of a tensor gets the same random bits whatever the pack it is stored in */
#ifndef PL_RUNTIME_KERNELS_CUDA_UPDATE_CUH
#define PL_RUNTIME_KERNELS_CUDA_UPDATE_CUH

#include "runtime/kernels/cuda/common.cuh"

#include "runtime/kernels/rng.h"

/* Elements of a block of random numbers, and of a thread where a tensor is updated in packs. */
#define PL_UPDATE_PACK 8

static inline bool pl_is_whole(const struct pl_view *v) {
    return !v->p || v->rows <= 1 || v->ld == v->cols;
}

/* A matrix in one piece as a single row. */
static inline struct pl_view pl_flat(const struct pl_view *v) {
    struct pl_view f = *v;
    if (!pl_is_whole(v)) return f;
    f.cols = v->rows * v->cols;
    f.ld = f.cols;
    f.rows = f.cols ? 1 : 0;
    return f;
}

/* Random low bits added before truncation: E[stored] = x (Gupta et al., 2015, section 3). Infinity
 * and NaN have no neighbour to round to. */
__device__ __forceinline__ float pl_round_stochastically(float x, uint32_t random) {
    const uint32_t u = pl_bits_of_f32(x);
    const bool is_finite = (u & 0x7F800000u) != 0x7F800000u;
    return is_finite ? pl_f32_of_bits((u + random) & 0xFFFF0000u) : x;
}

/* Element e of the tensor always gets the same bits: half e % 8 of block e / 8. A pack of eight is
 * a whole block. */
template <int V>
__device__ __forceinline__ void pl_round_elements(const struct pl_rng &rng, uint64_t e,
                                                  float (&p)[V]) {
    uint32_t x[4];
    pl_rng_block(&rng, e / PL_UPDATE_PACK, x);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const uint32_t half = V == PL_UPDATE_PACK ? i : (uint32_t)(e + i) % PL_UPDATE_PACK;
        const uint32_t low = half & 2 ? x[1] : x[0], high = half & 2 ? x[3] : x[2];
        p[i] = pl_round_stochastically(p[i], (half & 4 ? high : low) >> (half % 2 * 16) & 0xFFFFu);
    }
}

#endif
