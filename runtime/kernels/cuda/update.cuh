/* update.cuh - what the optimizers share: many tensors to a launch, matrices as one row, and
 * stochastic rounding.
 *
 *   U1  element e of a tensor gets the same random bits whatever the pack it is stored in
 *   U2  the bits of a tensor do not depend on the tensors that share its launch */
#ifndef PL_RUNTIME_KERNELS_CUDA_UPDATE_CUH
#define PL_RUNTIME_KERNELS_CUDA_UPDATE_CUH

#include "runtime/kernels/cuda/common.cuh"

#include "runtime/kernels/rng.h"

/* Elements of a block of random numbers, and of a thread where a tensor is updated in packs. */
#define PL_UPDATE_PACK 8

/* The tensors of a launch are described in its arguments, which hold 32,764 bytes (CUDA C++
 * Programming Guide, "Function Parameters"), so no table in memory has to be planned, filled, and
 * updated when arenas move. One launch more costs a few microseconds, so a larger number would save
 * nothing that can be measured. */
#define PL_PARTS 128

/* Blocks, or other units of work, [begin[i], begin[i + 1]) are those of part i of n. */
template <typename Part, int MOST = PL_PARTS> struct pl_parts {
    uint32_t n, begin[MOST + 1];
    Part part[MOST];
};

template <typename Part, int MOST>
static inline void pl_parts_clear(struct pl_parts<Part, MOST> *p) {
    p->n = p->begin[0] = 0;
}

/* false: more units than a grid has. */
template <typename Part, int MOST>
static inline bool pl_parts_add(struct pl_parts<Part, MOST> *p, const Part &part, uint64_t units) {
    const uint32_t before = p->begin[p->n];
    if (units > PL_GRID_MAX - before) return false;
    p->part[p->n++] = part;
    p->begin[p->n] = before + (uint32_t)units;
    return true;
}

template <typename Part, int MOST>
static inline unsigned pl_parts_units(const struct pl_parts<Part, MOST> *p) {
    return p->begin[p->n];
}

/* The part that owns a unit; of several that begin with it all but the last are empty. */
template <typename Part, int MOST>
__device__ __forceinline__ uint32_t pl_part_of(const struct pl_parts<Part, MOST> &p,
                                               uint32_t unit) {
    uint32_t low = 0, high = p.n; /* it lies in [low, high) */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (p.begin[middle] <= unit)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* A function of at most PL_PARTS calls for any number of them. */
static inline pl_err pl_in_parts(pl_group_fn some, struct pl_device *dev,
                                 const struct pl_call *calls, uint32_t n) {
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0, k; i < n && err == PL_ERR_OK; i += k) {
        k = n - i < PL_PARTS ? n - i : PL_PARTS;
        err = some(dev, calls + i, k);
    }
    return err;
}

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

/* The types of weights and their gradients for which updates are made in packs: X(w, g, arg) */
#define PL_UPDATE_LIST(X, arg)                                                                     \
    X(F32, F32, arg) X(F32, BF16, arg) X(BF16, F32, arg) X(BF16, BF16, arg) X(F16, F32, arg)

/* The random bits that round a tensor: those of (seed, step, site). */
struct pl_rounding {
    bool is_on;
    uint32_t site;
    uint64_t seed;
};

static inline struct pl_rounding pl_rounding_of(const struct pl_call *c,
                                                const struct pl_view *master) {
    struct pl_rounding r = {};
    r.is_on = !master->p && pl_dtype_is_upper_half(c->in[0].dtype);
    r.site = c->attr->site;
    r.seed = c->batch->seed;
    return r;
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
__device__ __forceinline__ void pl_round_by(const struct pl_rng &rng, uint64_t e, float (&p)[V]) {
    uint32_t x[4];
    pl_rng_block(&rng, e / PL_UPDATE_PACK, x);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const uint32_t half = V == PL_UPDATE_PACK ? i : (uint32_t)(e + i) % PL_UPDATE_PACK;
        const uint32_t low = half & 2 ? x[1] : x[0], high = half & 2 ? x[3] : x[2];
        p[i] = pl_round_stochastically(p[i], (half & 4 ? high : low) >> (half % 2 * 16) & 0xFFFFu);
    }
}

__device__ __forceinline__ struct pl_rng pl_rounding_stream(const struct pl_rounding &r,
                                                            uint64_t step) {
    return pl_rng_init(r.seed, step, r.site);
}

template <int V>
__device__ __forceinline__ void pl_round_elements(const struct pl_rounding &r, uint64_t step,
                                                  uint64_t e, float (&p)[V]) {
    pl_round_by(pl_rounding_stream(r, step), e, p);
}

#endif
