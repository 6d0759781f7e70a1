/* fold.cu - FOLD: the parts of the ranks, added one after another.
 *
 * How many ranks have a micro-batch, and which ones these are of the step, is read from the facts
 * in device memory, so that what was captured for one micro-batch can be replayed for another. */
#include "runtime/kernels/between.h"
#include "runtime/kernels/cuda/common.cuh"
#include "runtime/kernels/cuda/table.h"
#include "runtime/kernels/cuda/update.cuh"

#define BLOCK 256

struct sums { /* of elements [first, first + size) of a tensor */
    uint64_t size, first, there, seed;
    uint32_t site, rank;
    bool adds, all, apart; /* apart: the part of `rank` stands alone */
    const struct pl_facts *facts;
};

static __device__ __forceinline__ uint64_t parts_added(const struct sums &s) {
    return !s.all && s.facts && s.facts->contributors < s.there ? s.facts->contributors : s.there;
}

static __device__ __forceinline__ bool is_own(const struct sums &s, uint64_t part) {
    return s.apart && part == s.rank;
}

/* The row of `parts` that has a part, `own` not being it. */
static __device__ __forceinline__ uint64_t row_of(const struct sums &s, uint64_t part) {
    return part - (s.apart && part > s.rank);
}

template <typename T, int V>
static __device__ __forceinline__ pl_pack<T, V> part_at(const pl_mat<T> &parts,
                                                        const pl_mat<T> &own, const struct sums &s,
                                                        uint64_t part, uint64_t i) {
    if (is_own(s, part)) return pl_load<T, V>(own, 0, i, s.size);
    return pl_load<T, V>(parts, row_of(s, part), i, s.size);
}

/* g[size] = (adds ? g : 0) + x[n][size], rounded after each. x are the parts, with `own` as number
 * `rank` among them where that one stands alone. */
template <typename T, int V>
static __global__ void __launch_bounds__(BLOCK)
    fold(pl_mat<T> parts, pl_mat<T> own, pl_mat<T> g, struct sums s) {
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * V, n = parts_added(s);
    if (i >= s.size || n == 0) return;
    pl_pack<T, V> sum =
        s.adds ? pl_load<T, V>(g, 0, i, s.size) : part_at<T, V>(parts, own, s, 0, i);
    for (uint64_t part = s.adds ? 0 : 1; part < n; part++) {
        float f[V], x[V];
        pl_floats(part_at<T, V>(parts, own, s, part, i), x);
        pl_floats(sum, f);
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] += x[k];
        sum = pl_packed(g, f);
    }
    pl_store(g, 0, i, s.size, sum);
}

/* The same of doubles, which are few. */
static __global__ void __launch_bounds__(BLOCK)
    fold_doubles(pl_mat<double> parts, pl_mat<double> own, pl_mat<double> g, struct sums s) {
    const uint64_t i = (uint64_t)blockIdx.x * BLOCK + threadIdx.x, n = parts_added(s);
    if (i >= s.size) return;
    double sum = *g.at(0, i);
    for (uint64_t part = 0; part < n; part++) {
        const double x = *(is_own(s, part) ? own.at(0, i) : parts.at(row_of(s, part), i));
        sum = part || s.adds ? sum + x : x;
    }
    *g.at(0, i) = sum;
}

/* Sums as those of `fold`, in fp32 and rounded stochastically after each part, by the numbers of
 * its micro-batch. */
template <typename P, typename T, int V>
static __global__ void __launch_bounds__(BLOCK)
    fold_rounded(pl_mat<P> parts, pl_mat<P> own, pl_mat<T> g, struct sums s) {
    const uint64_t i = ((uint64_t)blockIdx.x * BLOCK + threadIdx.x) * V, n = parts_added(s);
    if (i >= s.size || n == 0) return;
    float sum[V] = {}, x[V];
    if (s.adds) pl_floats(pl_load<T, V>(g, 0, i, s.size), sum);
    for (uint64_t part = 0; part < n; part++) {
        const uint32_t micro_batch = s.facts->micro_batch + (uint32_t)part;
        pl_floats(part_at<P, V>(parts, own, s, part, i), x);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] = part || s.adds ? sum[k] + x[k] : x[k];
        pl_round_by(pl_rng_init(s.seed, s.facts->step, pl_rng_sum_site(s.site, micro_batch)),
                    s.first + i, sum);
    }
    pl_store(g, 0, i, s.size, pl_packed(g, sum));
}

/* ---- launching ---- */

struct fold_call {
    struct pl_view parts, own, g; /* a part is a row */
    struct sums s;
};

static struct fold_call fold_call_of(const struct pl_call *c) {
    struct fold_call f = {c->in[PL_FOLD_PARTS], c->in[PL_FOLD_OWN], c->out[PL_FOLD_OUT_G], {}};
    struct sums *s = &f.s;
    s->apart = f.own.p != NULL, s->rank = c->attr->rank;
    s->size = f.g.rows * f.g.cols, s->first = c->attr->first_element;
    s->there = f.parts.rows / f.g.rows + s->apart, s->seed = c->batch->seed;
    s->site = c->attr->site, s->adds = pl_call_adds(c), s->all = c->attr->all_ranks;
    s->facts = c->batch->facts;
    f.parts.ld = f.own.ld = s->size;
    return f;
}

/* True if every part and g can be read in packs of so many elements, words of 16 bytes. */
static bool fits_packs(const struct fold_call *f, uint64_t elements) {
    const uintptr_t all = (uintptr_t)f->parts.p | (uintptr_t)f->own.p | (uintptr_t)f->g.p;
    return all % 16 == 0 && (f->s.there - f->s.apart <= 1 || f->s.size % elements == 0);
}

/* False: more blocks than a grid has. */
static bool grid_of(const struct fold_call *f, uint64_t elements, dim3 *grid) {
    const uint64_t blocks = pl_u64_div_up(f->s.size, BLOCK * elements);
    *grid = dim3((unsigned)blocks);
    return blocks <= PL_GRID_MAX;
}

template <typename T, int V> static pl_err launch(const struct fold_call *f, cudaStream_t stream) {
    dim3 grid;
    if (!grid_of(f, V, &grid)) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((fold<T, V>), grid, dim3(BLOCK), 0, stream, pl_mat_of<T>(f->parts),
              pl_mat_of<T>(f->own), pl_mat_of<T>(f->g), f->s);
    return pl_cuda_launched();
}

static pl_err launch_doubles(const struct fold_call *f, cudaStream_t stream) {
    dim3 grid;
    if (!grid_of(f, 1, &grid)) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(fold_doubles, grid, dim3(BLOCK), 0, stream, pl_mat_of<double>(f->parts),
              pl_mat_of<double>(f->own), pl_mat_of<double>(f->g), f->s);
    return pl_cuda_launched();
}

template <typename P, typename T, int V>
static pl_err launch_rounded(const struct fold_call *f, cudaStream_t stream) {
    dim3 grid;
    if (!grid_of(f, V, &grid)) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((fold_rounded<P, T, V>), grid, dim3(BLOCK), 0, stream, pl_mat_of<P>(f->parts),
              pl_mat_of<P>(f->own), pl_mat_of<T>(f->g), f->s);
    return pl_cuda_launched();
}

/* Eight elements of a thread share a block of random numbers where they begin with one. */
/* in: parts[ranks*O,K], g[O,K], own[O,K] of one of them; out: g[O,K]. */
extern "C" pl_err pl_cuda_fold(struct pl_device *dev, const struct pl_call *c) {
    static pl_err (*const by_form[PL_FORMS])(const struct fold_call *, cudaStream_t) =
        PL_FORM_TABLE(launch);
    if (!pl_fold_fits(c)) return PL_ERR_PLAN_BROKEN;
    const struct fold_call f = fold_call_of(c);
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (pl_fold_rounds(c))
        return f.s.first % PL_UPDATE_PACK == 0 && fits_packs(&f, PL_UPDATE_PACK)
                   ? launch_rounded<float, __nv_bfloat16, PL_UPDATE_PACK>(&f, stream)
                   : launch_rounded<pl_either, pl_either, 1>(&f, stream);
    if (f.g.dtype == PL_DTYPE_F64) return launch_doubles(&f, stream);
    if (!pl_is_float(&f.g)) return PL_ERR_PLAN_BROKEN;
    const int form = pl_form_of_type(f.g.dtype);
    return by_form[fits_packs(&f, pl_form_lanes(form)) ? form : PL_FORM_EITHER](&f, stream);
}

PL_CUDA_PRELOAD(fold) = {PL_FORM_KERNELS(fold), PL_CUDA_KERNEL(fold_doubles),
                         PL_CUDA_KERNEL(fold_rounded<float, __nv_bfloat16, PL_UPDATE_PACK>),
                         PL_CUDA_KERNEL(fold_rounded<pl_either, pl_either, 1>), NULL};
