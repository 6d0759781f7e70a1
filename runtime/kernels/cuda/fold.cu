/* fold.cu - FOLD: the parts of the ranks, added one after another.
 *
 * How many ranks have a micro-batch, and which ones these are of the step, is read from the facts
 * in device memory, so that what was captured for one micro-batch can be replayed for another. */
#include "runtime/kernels/between.h"
#include "runtime/kernels/cuda/common.cuh"
#include "runtime/kernels/cuda/table.h"
#include "runtime/kernels/cuda/update.cuh"

#define BLOCK 256

static __device__ __forceinline__ double widened(double x) {
    return x;
}
template <typename T> static __device__ __forceinline__ float widened(T x) {
    return pl_get(&x);
}
static __device__ __forceinline__ void store(double *to, double x) {
    *to = x;
}
template <typename T> static __device__ __forceinline__ void store(T *to, float x) {
    pl_put(to, x);
}

template <typename T>
static __device__ T part_at(const T *parts, const T *own, uint64_t rank, uint64_t part,
                            uint64_t size, uint64_t i) {
    if (own && part == rank) return own[i];
    return parts[(part - (own && part > rank)) * size + i];
}

/* g[size] = (adds ? g : 0) + x[n][size], rounded after each; n: `there`, or of the facts. x are the
 * parts, with `own` as number `rank` among them unless it is NULL. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK)
    fold(const T *__restrict__ parts, const T *__restrict__ own, uint64_t rank, T *__restrict__ g,
         uint64_t size, uint64_t there, const struct pl_facts *facts, bool adds) {
    const uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x;
    const uint64_t n = facts && facts->contributors < there ? facts->contributors : there;
    if (i >= size || n == 0) return;
    T sum = adds ? g[i] : part_at(parts, own, rank, 0, size, i);
    for (uint64_t part = adds ? 0 : 1; part < n; part++)
        store(&sum, widened(sum) + widened(part_at(parts, own, rank, part, size, i)));
    g[i] = sum;
}

template <typename T> static pl_err launch(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *parts = &c->in[PL_FOLD_PARTS], *own = &c->in[PL_FOLD_OWN];
    const struct pl_view *g = &c->out[PL_FOLD_OUT_G];
    const uint64_t size = g->rows * g->cols, grid = (size + BLOCK - 1) / BLOCK;
    if (grid > INT32_MAX) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(fold<T>, dim3((unsigned)grid), dim3(BLOCK), 0, pl_cuda_of(dev)->stream,
              (const T *)parts->p, (const T *)own->p, (uint64_t)c->attr->rank, (T *)g->p, size,
              parts->rows / g->rows + (own->p != NULL), c->attr->all_ranks ? NULL : c->batch->facts,
              pl_call_adds(c));
    return pl_cuda_launched();
}

struct sums { /* of elements [first, first + size) of a tensor */
    uint64_t size, first, there, seed;
    uint32_t site, rank;
    bool adds, all, apart; /* apart: the part of `rank` stands alone */
    const struct pl_facts *facts;
};

/* g[size] = (adds ? g : 0) + x[n][size], added in fp32 and rounded stochastically after each part,
 * by the numbers of its micro-batch. x are the parts, with `own` as number `rank` among them where
 * that one stands alone. */
template <typename P, typename T, int V>
static __global__ void __launch_bounds__(BLOCK)
    fold_rounded(pl_mat<P> parts, pl_mat<P> own, pl_mat<T> g, struct sums s) {
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * V;
    const uint64_t n = !s.all && s.facts->contributors < s.there ? s.facts->contributors : s.there;
    if (i >= s.size || n == 0) return;
    float sum[V] = {}, x[V];
    if (s.adds) pl_floats(pl_load<T, V>(g, 0, i, s.size), sum);
    for (uint64_t part = 0; part < n; part++) {
        const uint32_t micro_batch = s.facts->micro_batch + (uint32_t)part;
        if (s.apart && part == s.rank)
            pl_floats(pl_load<P, V>(own, 0, i, s.size), x);
        else
            pl_floats(pl_load<P, V>(parts, part - (s.apart && part > s.rank), i, s.size), x);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] = part || s.adds ? sum[k] + x[k] : x[k];
        pl_round_by(pl_rng_init(s.seed, s.facts->step, pl_rng_sum_site(s.site, micro_batch)),
                    s.first + i, sum);
    }
    pl_store(g, 0, i, s.size, pl_packed(g, sum));
}

/* Eight elements of a thread share a block of random numbers where they begin with one, and are two
 * words of 16 bytes of a part and one of g. */
static bool fits_packs(const struct pl_call *c, const struct sums *s) {
    const uintptr_t parts = (uintptr_t)c->in[PL_FOLD_PARTS].p;
    const uintptr_t own = (uintptr_t)c->in[PL_FOLD_OWN].p;
    return s->first % PL_UPDATE_PACK == 0 && (s->there == 1 || s->size % PL_UPDATE_PACK == 0) &&
           (parts | own | (uintptr_t)c->out[PL_FOLD_OUT_G].p) % 16 == 0;
}

static pl_err launch_rounded(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *g = &c->out[PL_FOLD_OUT_G];
    struct sums s = {};
    struct pl_view parts = c->in[PL_FOLD_PARTS], own = c->in[PL_FOLD_OWN];
    s.apart = own.p != NULL, s.rank = c->attr->rank;
    s.size = g->rows * g->cols, s.first = c->attr->first_element;
    s.there = parts.rows / g->rows + s.apart, s.seed = c->batch->seed;
    s.site = c->attr->site, s.adds = pl_call_adds(c), s.all = c->attr->all_ranks;
    s.facts = c->batch->facts;
    parts.ld = own.ld = s.size; /* a part is a row */
    const bool packs = fits_packs(c, &s);
    const uint64_t per_block = BLOCK * (packs ? PL_UPDATE_PACK : 1);
    const uint64_t grid = (s.size + per_block - 1) / per_block;
    if (grid > INT32_MAX) return PL_ERR_PLAN_BROKEN;
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (packs)
        PL_LAUNCH((fold_rounded<float, __nv_bfloat16, PL_UPDATE_PACK>), dim3((unsigned)grid),
                  dim3(BLOCK), 0, stream, pl_mat_of<float>(parts), pl_mat_of<float>(own),
                  pl_mat_of<__nv_bfloat16>(*g), s);
    else
        PL_LAUNCH((fold_rounded<pl_either, pl_either, 1>), dim3((unsigned)grid), dim3(BLOCK), 0,
                  stream, pl_mat_of<pl_either>(parts), pl_mat_of<pl_either>(own),
                  pl_mat_of<pl_either>(*g), s);
    return pl_cuda_launched();
}

/* in: parts[ranks*O,K], g[O,K], own[O,K] of one of them; out: g[O,K]. */
extern "C" pl_err pl_cuda_fold(struct pl_device *dev, const struct pl_call *c) {
    if (!pl_fold_fits(c)) return PL_ERR_PLAN_BROKEN;
    if (pl_fold_rounds(c)) return launch_rounded(dev, c);
#define FOLD(T)                                                                                    \
    case PL_DTYPE_##T:                                                                             \
        return launch<pl_stored_##T>(dev, c);
    switch (c->out[PL_FOLD_OUT_G].dtype) {
        PL_FLOAT_MAP(FOLD)
    case PL_DTYPE_F64:
        return launch<double>(dev, c);
    default:
        return PL_ERR_PLAN_BROKEN;
    }
}

PL_CUDA_PRELOAD(fold) = {PL_FLOAT_LIST(PL_TYPE_KERNEL, fold) PL_CUDA_KERNEL(fold<double>),
                         PL_CUDA_KERNEL(fold_rounded<float, __nv_bfloat16, PL_UPDATE_PACK>),
                         PL_CUDA_KERNEL(fold_rounded<pl_either, pl_either, 1>), NULL};
