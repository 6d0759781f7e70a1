/* attention_fwd.cu - ATTENTION: causal, variable length, no [S,S] buffer; ATTENTION_CACHED: the
 * same kernels over the rows of a KV cache.
 *
 * A block owns a tile of queries of one head and walks the blocks of keys they see, from the
 * diagonal back, with a running maximum and sum per query (Milakov and Gimelshein, "Online
 * normalizer calculation for softmax", 2018; Dao, "FlashAttention-2", 2023). Scores carry a factor
 * log2(e), so that the exponential is a power of two. Blocks are numbered so that the last tiles of
 * a sequence, which see most keys, start first.
 *
 * The tensor kernel has four warps of 16 M queries. While scores are multiplied the block of values
 * is on its way, while values are added the next block of keys is. The arithmetic that chose the
 * tiles, for a thread: 16 M x D sums take M D / 2 registers, scores M KEYS / 2. M = 2 reads every
 * fragment of keys and values once for 32 queries, 128 bytes of shared memory a product, which is
 * what lets tensor cores and not shared memory decide the speed; at D = 256 the sums leave room for
 * M = 1 only. Shared bytes are (64 M + 2 KEYS) (2 D + 16): 68 KiB at D = 128 and 66 at 256, so two
 * blocks fit a multiprocessor of 164 KiB, one of 100. There D = 128 has M = 1 with its queries in
 * registers (199 on sm_86, 201 on sm_120), which leaves 34 KiB and so two blocks: while the warps
 * of one wait or compute exponentials, those of the other multiply, and these GPUs need no more
 * than half of their shared memory's bandwidth for it. The bits are the same. Registers (nvcc 13.0,
 * sm_80 / sm_90): D = 32 152 / 153, 64 213 / 206, 96 243 / 253, 128 255 / 255, 256 232 / 240; only
 * D = 128 on sm_90 spills, 13 words, and the 256 products of a block of keys hide 13 loads; two
 * blocks of 128 threads have 256 each.
 *
 * Over a cache the queries of a tile stand at positions of their own, and the keys lie in the rows
 * of the cache that their sequence owns. A sequence that brings a single token makes a tile of the
 * query heads that share a head of keys, so that keys and values are read once for all of them.
 *
 * Sinks are taken in after the keys: before them they would be spilled on Hopper, and with the last
 * division on Blackwell. */
#include "runtime/kernels/cuda/attention.cuh"

#include <math.h>

struct online {
    float max, sum; /* of scores times log2(e); of the exponentials this thread holds */
};

/* Lowers what was summed to a new maximum; the factor for what was summed with it. A query that has
 * seen nothing keeps -infinity, and 0 is subtracted in its place. */
static __device__ __forceinline__ float raise_maximum(struct online *o, float max, float *base) {
    const float old = o->max;
    o->max = fmaxf(old, max);
    *base = o->max == -INFINITY ? 0.0f : o->max;
    const float keep = pl_ptx_exp2(old - *base);
    o->sum *= keep;
    return keep;
}

/* The work of a block: a tile of queries, and the rows of keys they look at. In `keys`, first is
 * the position of the first query and length one more than that of the last. A level tile holds the
 * heads of one token: rows of q and o are heads, and all are at the same position. */
struct work {
    pl_mat<pl_either> q, o;
    struct pl_tile queries, keys;
    uint32_t col, kv_col;
    bool is_level;
};

static __device__ __forceinline__ pl_mat<pl_either> heads_of_row(pl_mat<pl_either> m, uint32_t row,
                                                                 uint32_t col, uint32_t dim) {
    const uint64_t at = (uint64_t)row * m.ld + col;
    m.p = (char *)m.p + at * pl_bytes_as(m.dtype);
    m.ld = dim;
    return m;
}

/* Moves a tile of the run to the positions of the cache; false = nothing to do for this head, or
 * the positions leave the cache. */
static __device__ __forceinline__ bool place_in_cache(const struct pl_attention &a, uint32_t head,
                                                      uint32_t rows, struct work *w) {
    struct pl_tile *q = &w->queries;
    const uint32_t position = (uint32_t)a.positions[q->row0];
    if (q->length > a.context || position > a.context - q->length) return false;
    w->keys.row0 = q->seq * a.context;
    w->keys.first = q->first + position;
    w->keys.length = q->length + position;
    w->is_level = q->length == 1;
    if (!w->is_level) {
        *q = {q->row0 - position, w->keys.first, w->keys.length, q->seq};
        return true;
    }
    const uint32_t in_group = head % a.group;
    if (in_group % rows) return false;
    w->q = heads_of_row(a.q, q->row0, w->col, a.dim);
    w->o = heads_of_row(a.o, q->row0, w->col, a.dim);
    w->col = 0;
    *q = {0, 0, a.group - in_group, q->seq};
    return true;
}

template <bool CACHED>
static __device__ __forceinline__ bool find_work(const struct pl_attention &a, uint32_t rows,
                                                 struct work *w) {
    const uint32_t head = blockIdx.x % a.heads;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, rows, &w->queries)) return false;
    w->q = a.q;
    w->o = a.o;
    w->col = head * a.dim;
    w->kv_col = head / a.group * a.dim;
    w->keys = w->queries;
    w->is_level = false;
    return !CACHED || place_in_cache(a, head, rows, w);
}

/* Fills what a block needs once a step, of a walk that ends at key `first`. */
static __device__ __forceinline__ void keep_walk(pl_kept_place *kept, const struct pl_attention &a,
                                                 const struct work &w, uint32_t first) {
    kept->row0 = w.keys.row0;
    kept->length = w.keys.length;
    kept->first = first;
    kept->own = w.keys.first;
    kept->col = w.kv_col;
    kept->factor = a.scale * PL_LOG2_E;
}

/* Takes the sink of the head of row i, a score without a value, into what the row has seen; returns
 * the factor for what was summed with it. One lane of a row holds its exponential. */
static __device__ __forceinline__ float take_sink(const struct pl_attention &a, uint32_t i,
                                                  bool is_level, bool holds, struct online *o) {
    const uint32_t head = blockIdx.x % a.heads + (is_level ? i : 0);
    const float sink = a.sinks.get(0, head < a.heads ? head : 0) * PL_LOG2_E;
    float base;
    const float keep = raise_maximum(o, sink, &base);
    if (holds) o->sum += pl_ptx_exp2(sink - base);
    return keep;
}

/* ---- tensor cores ---- */

/* Queries are `step` positions apart. */
template <int M, int KEYS>
static __device__ __forceinline__ void hide(float (&s)[M][KEYS / 8][4], uint32_t query,
                                            uint32_t step, uint32_t key, uint32_t reach) {
    query += pl_lane() / 4 * step;
    key += pl_lane() % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!pl_sees(query + (m * 16 + i / 2 * 8) * step, key + n * 8 + i % 2, reach))
                    s[m][n][i] = -INFINITY;
}

/* Scores become exponentials; the sums so far are scaled to the new maximum. The four lanes of a
 * quad hold a row between them. `factor` = attr.scale * log2(e). */
template <int D, int M, int KEYS>
static __device__ __forceinline__ void soften(float (&s)[M][KEYS / 8][4],
                                              float (&sums)[M][D / 8][4],
                                              struct online (&state)[M][2], float factor) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float max = -INFINITY, base, sum = 0.0f;
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
                max = fmaxf(max, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            max = pl_warp_reduce<pl_max>(max, 4) * factor;
            const float keep = raise_maximum(&state[m][half], max, &base);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                sums[m][n][2 * half] *= keep;
                sums[m][n][2 * half + 1] *= keep;
            }
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = pl_ptx_exp2(fmaf(s[m][n][i], factor, -base));
                    sum += s[m][n][i];
                }
            state[m][half].sum += sum;
        }
}

template <int D, int M>
static __device__ __forceinline__ void take_sinks(const struct pl_attention &a, bool is_level,
                                                  float (&sums)[M][D / 8][4],
                                                  struct online (&state)[M][2]) {
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t row = (pl_warp() * M + m) * 16 + pl_lane() / 4 + half * 8;
            const float keep = take_sink(a, row, is_level, pl_lane() % 4 == 0, &state[m][half]);
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                sums[m][n][2 * half] *= keep;
                sums[m][n][2 * half + 1] *= keep;
            }
        }
}

template <int D, int M>
static __device__ __forceinline__ void finish(const struct pl_attention &a, const struct work &w,
                                              uint32_t head, const float (&sums)[M][D / 8][4],
                                              const struct online (&state)[M][2]) {
    const struct pl_tile &t = w.queries;
    const uint32_t query = t.first + pl_warp() * 16 * M + pl_lane() / 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float sum = pl_warp_reduce<pl_add>(state[m][half].sum, 4);
            const uint32_t i = query + m * 16 + half * 8;
            if (i >= t.length) continue;
            pl_store_part<D>(w.o, t.row0 + i, w.col, a.dim, sums[m], half, 1.0f / sum);
            if (a.lse && pl_lane() % 4 == 0)
                a.lse[(t.row0 + i) * a.lse_ld + head] = state[m][half].max * PL_LN_2 + logf(sum);
        }
}

/* KEPT: queries are in registers, and in the place of the first values on their way there. */
template <typename T, int D, int M, int KEYS, bool CACHED, bool KEPT>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS, 2)
    forward_tensor(const struct pl_attention a) {
    constexpr uint32_t QUERIES = 64 * M;
    static_assert(!KEPT || QUERIES <= KEYS, "queries have the place of values");
    PL_SHARED(uint16_t, memory);
    uint16_t *k = memory + (KEPT ? 0 : QUERIES * pl_pitch<D>::N), *v = k + KEYS * pl_pitch<D>::N;
    uint16_t *q = KEPT ? v : memory;
    struct work w;
    if (!find_work<CACHED>(a, QUERIES, &w)) return;
    const struct pl_range keys = pl_keys_seen(a, w.keys, QUERIES, KEYS);
    const uint32_t step = CACHED && w.is_level ? 0 : 1;
    struct pl_kept own;
    bool writes;
    pl_kept_place *kept = pl_keep(v + KEYS * pl_pitch<D>::N, &own, &writes);
    if (writes) keep_walk(kept, a, w, keys.first);

    pl_rows_a<D, KEPT> rows[M];
    float sums[M][D / 8][4] = {};
    struct online state[M][2];
    uint32_t key = (keys.end - 1) / KEYS * KEYS;
    pl_tile_copy<D, QUERIES>(q, w.q, w.queries, w.queries.first, w.col, a.dim);
    pl_tile_copy<D, KEYS>(k, a.k, w.keys, key, w.kv_col, a.dim);
    pl_ptx_copy_commit();
    if (KEPT) {
        pl_ptx_copy_wait<0>();
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        rows[m].take(q + (pl_warp() * M + m) * 16 * pl_pitch<D>::N);
        state[m][0] = state[m][1] = {-INFINITY, 0.0f};
    }
    for (;; key -= KEYS) {
        float s[M][KEYS / 8][4];
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* keys are here, the values before them, or queries, are used */
        pl_tile_copy<D, KEYS>(v, a.v, kept->walked(), key, kept->col, a.dim);
        pl_ptx_copy_commit();
        pl_multiply_rows<T, D, M, KEYS>(s, rows, k);
        const uint32_t query = kept->own + pl_warp() * 16 * M * step;
        if (!pl_all_see(query, step ? 16 * M : 1, key, KEYS, a.reach))
            hide<M, KEYS>(s, query, step, key, a.reach);
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* values are here, the keys are used */
        const bool more = key > kept->first;
        if (more) pl_tile_copy<D, KEYS>(k, a.k, kept->walked(), key - KEYS, kept->col, a.dim);
        pl_ptx_copy_commit();
        soften<D, M, KEYS>(s, sums, state, kept->factor);
        pl_add_weighted<T, D, M, KEYS>(sums, s, v);
        if (key <= kept->first) break;
    }
    if (a.sinks.p) take_sinks<D, M>(a, !step, sums, state);
    /* Found again rather than kept: the sums of D = 128 leave no room for it. */
    if (find_work<CACHED>(a, QUERIES, &w)) finish<D, M>(a, w, blockIdx.x % a.heads, sums, state);
}

#define TENSOR(T, D, M, KEYS, CACHED, KEPT)                                                        \
    {                                                                                              \
        forward_tensor<T, D, M, KEYS, CACHED, KEPT>, D, 64 * M, PL_TENSOR_THREADS,                 \
            ((KEPT ? 0 : 64 * M) + 2 * KEYS) * pl_pitch<D>::N * sizeof(uint16_t) +                 \
                sizeof(struct pl_kept)                                                             \
    }

#ifdef PL_HOPPER
#include "runtime/kernels/cuda/attention_fwd_hopper.cuh"
#else
#define HOPPER_KERNELS(T)
#endif

/* Each narrow type has these. Where two blocks of 128 queries do not fit a multiprocessor, D = 128
 * takes half the queries. Over a cache a token fills few rows of its tile: the smaller one. */
#define TENSORS(T)                                                                                 \
    static const struct pl_attention_instance tensor_##T[] = {                                     \
        TENSOR(pl_stored_##T, 32, 2, 64, false, false),                                            \
        TENSOR(pl_stored_##T, 64, 2, 64, false, false),                                            \
        TENSOR(pl_stored_##T, 96, 2, 64, false, false),                                            \
        TENSOR(pl_stored_##T, 128, 2, 64, false, false),                                           \
        TENSOR(pl_stored_##T, 128, 1, 64, false, true),                                            \
        TENSOR(pl_stored_##T, 256, 1, 32, false, false),                                           \
        {}};                                                                                       \
    static const struct pl_attention_instance cached_tensor_##T[] = {                              \
        TENSOR(pl_stored_##T, 32, 1, 64, true, false),                                             \
        TENSOR(pl_stored_##T, 64, 1, 64, true, false),                                             \
        TENSOR(pl_stored_##T, 96, 1, 64, true, false),                                             \
        TENSOR(pl_stored_##T, 128, 1, 64, true, false),                                            \
        TENSOR(pl_stored_##T, 256, 1, 32, true, false),                                            \
        {}};
PL_NARROW_MAP(TENSORS)

/* ---- fp32 ---- */

/* A lane holds the score of one key with each query of its warp; exponentials pass through `p` to
 * where a lane holds columns. */
template <int CHUNKS>
static __device__ __forceinline__ void
soften_plain(float (&s)[pl_plain<CHUNKS>::OWN], float (&sums)[pl_plain<CHUNKS>::OWN][CHUNKS],
             struct online (&state)[pl_plain<CHUNKS>::OWN], float *p) {
#pragma unroll
    for (int r = 0; r < pl_plain<CHUNKS>::OWN; r++) {
        float base;
        const float keep = raise_maximum(&state[r], pl_warp_reduce<pl_max>(s[r]), &base);
#pragma unroll
        for (int c = 0; c < CHUNKS; c++)
            sums[r][c] *= keep;
        s[r] = exp2f(s[r] - base);
        state[r].sum += s[r];
        p[r * PL_PLAIN_TILE + pl_lane()] = s[r];
    }
}

template <int CHUNKS, bool CACHED>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS)
    forward_plain(const struct pl_attention a) {
    constexpr int OWN = pl_plain<CHUNKS>::OWN, PITCH = pl_plain<CHUNKS>::PITCH;
    constexpr uint32_t QUERIES = PL_TENSOR_WARPS * OWN;
    PL_SHARED(float, memory);
    float *q = memory, *kv = q + QUERIES * PITCH;
    float *p = kv + PL_PLAIN_TILE * PITCH + pl_warp() * OWN * PL_PLAIN_TILE;
    struct work w;
    if (!find_work<CACHED>(a, QUERIES, &w)) return;
    const struct pl_tile &t = w.queries;
    const struct pl_range keys = pl_keys_seen(a, w.keys, QUERIES, PL_PLAIN_TILE);
    const uint32_t query = t.first + pl_warp() * OWN;
    const uint32_t step = CACHED && w.is_level ? 0 : 1;
    const uint32_t position = w.keys.first + pl_warp() * OWN * step;

    float sums[OWN][CHUNKS] = {}, s[OWN];
    struct online state[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++)
        state[r] = {-INFINITY, 0.0f};
    pl_plain_load<CHUNKS>(q, w.q, t, t.first, QUERIES, w.col, a.dim);
    for (uint32_t key = keys.first; key < keys.end; key += PL_PLAIN_TILE) {
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.k, w.keys, key, PL_PLAIN_TILE, w.kv_col, a.dim);
        __syncthreads();
        pl_plain_dot<CHUNKS>(s, q + pl_warp() * OWN * PITCH, kv, (a.dim + 3) / 4 * 4);
#pragma unroll
        for (int r = 0; r < OWN; r++)
            s[r] = pl_sees(position + r * step, key + pl_lane(), a.reach)
                       ? s[r] * (a.scale * PL_LOG2_E)
                       : -INFINITY;
        soften_plain<CHUNKS>(s, sums, state, p);
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.v, w.keys, key, PL_PLAIN_TILE, w.kv_col, a.dim);
        __syncthreads();
        pl_plain_add_weighted<CHUNKS>(sums, p, kv);
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const float keep =
            a.sinks.p ? take_sink(a, pl_warp() * OWN + r, !step, pl_lane() == 0, &state[r]) : 1.0f;
        const float sum = pl_warp_reduce<pl_add>(state[r].sum);
        if (query + r >= t.length) continue;
        const uint64_t row = t.row0 + query + r;
        pl_plain_store<CHUNKS>(w.o, row, w.col, a.dim, sums[r], keep / sum);
        if (a.lse && pl_lane() == 0)
            a.lse[row * a.lse_ld + blockIdx.x % a.heads] = state[r].max * PL_LN_2 + logf(sum);
    }
}

#define PLAIN(CHUNKS, CACHED)                                                                      \
    {                                                                                              \
        forward_plain<CHUNKS, CACHED>, CHUNKS *PL_WARP, PL_TENSOR_WARPS *pl_plain<CHUNKS>::OWN,    \
            PL_TENSOR_THREADS,                                                                     \
            ((PL_TENSOR_WARPS * pl_plain<CHUNKS>::OWN + PL_PLAIN_TILE) * pl_plain<CHUNKS>::PITCH + \
             PL_TENSOR_WARPS * pl_plain<CHUNKS>::OWN * PL_PLAIN_TILE) *                            \
                sizeof(float)                                                                      \
    }

/* At D = 512 a block takes 99 KiB, which Turing does not have. */
static const struct pl_attention_instance plain[] = {
    PLAIN(1, false), PLAIN(2, false), PLAIN(4, false), PLAIN(8, false), PLAIN(16, false), {}};
static const struct pl_attention_instance cached_plain[] = {
    PLAIN(1, true), PLAIN(2, true), PLAIN(4, true), PLAIN(8, true), PLAIN(16, true), {}};

static const struct pl_attention_instance *instances_of(enum pl_dtype t, bool is_cached) {
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        return is_cached ? cached_tensor_##T : tensor_##T;
    switch (t) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        return NULL;
    }
#undef OF_TYPE
}

/* True if two blocks are on a multiprocessor at a time. It has what a block may take and 1 KiB, and
 * CUDA takes 1 KiB for each block (CUDA C++ Programming Guide, "Compute Capabilities"). */
static bool fits_twice(struct pl_device *dev, const struct pl_attention_instance *of) {
    return 2 * (of->shared_bytes + 1024) <= pl_cuda_of(dev)->shared_max + 1024;
}

/* Returns the first instance of the head size that fits, or a later one of the same head size that
 * has room for a second block where the first has not. */
static const struct pl_attention_instance *
pick_for_two(struct pl_device *dev, const struct pl_attention_instance *instances, uint32_t dim) {
    const struct pl_attention_instance *first = pl_attention_pick(dev, instances, dim), *of = first;
    if (!first) return NULL;
    while (of->dim == first->dim && !fits_twice(dev, of))
        of++;
    return of->dim == first->dim ? of : first;
}

/* True if tensor cores take the call. */
static bool tensor_takes(struct pl_device *dev, const struct pl_call *c,
                         const struct pl_attention *a) {
    const enum pl_dtype t = c->in[PL_ATTENTION_Q].dtype;
    return instances_of(t, a->context != 0) && pl_cuda_multiplies(dev, t) && a->dim % 8 == 0 &&
           pl_tensor_reads(&c->in[PL_ATTENTION_Q], t) &&
           pl_tensor_reads(&c->in[PL_ATTENTION_K], t) &&
           pl_tensor_reads(&c->in[PL_ATTENTION_V], t) &&
           pl_tensor_writes(&c->out[PL_ATTENTION_OUT_O]);
}

/* Launches the kernel for the call, of those that every GPU has. */
static pl_err launch_picked(struct pl_device *dev, const struct pl_call *c,
                            const struct pl_attention *a, bool is_tensor) {
    const struct pl_attention_instance *of = NULL;
    if (is_tensor)
        of = pick_for_two(dev, instances_of(c->in[PL_ATTENTION_Q].dtype, a->context != 0), a->dim);
    if (!of) of = pl_attention_pick(dev, a->context ? cached_plain : plain, a->dim);
    return pl_attention_launch(dev, a, of, a->heads);
}

static pl_err launch(struct pl_device *dev, const struct pl_call *c, const struct pl_view *sinks,
                     struct pl_attention *a) {
    if (sinks->p && (sinks->rows != a->heads || !pl_is_float(sinks))) return PL_ERR_PLAN_BROKEN;
    a->sinks = pl_mat_of<pl_either>(*sinks);
    if (!a->n_tokens || !a->n_seqs) return PL_ERR_OK;
    a->o = pl_mat_of<pl_either>(c->out[PL_ATTENTION_OUT_O]);
    const bool is_tensor = tensor_takes(dev, c, a);
#ifdef PL_HOPPER
    struct pl_attention_maps maps = {};
    const struct pl_hopper_instance *hopper =
        is_tensor && !a->context ? pick_hopper(dev, c, a, &maps) : NULL;
    if (hopper) return pl_hopper_launch(dev, a, &maps, hopper, a->heads);
#endif
    return launch_picked(dev, c, a, is_tensor);
}

/* in: q[N,H*D] k[N,G*D] v[N,G*D] offsets[B+1]i32 ws? sinks[H]?; out: o[N,H*D] lse[N,H]f32. */
extern "C" pl_err pl_cuda_attention(struct pl_device *dev, const struct pl_call *c) {
    struct pl_attention a = {};
    if (!pl_attention_of(c, &c->out[PL_ATTENTION_OUT_LSE], &c->in[PL_ATTENTION_OFFSETS], &a) ||
        !pl_is_float(&c->out[PL_ATTENTION_OUT_O]))
        return PL_ERR_PLAN_BROKEN;
    return launch(dev, c, &c->in[PL_ATTENTION_SINKS], &a);
}

/* in: q[N,H*D] kc[R,G*D] vc[R,G*D] pos[N]i32 offsets[B+1]i32 ws? sinks[H]?; out:
 * o[N,H*D]. */
extern "C" pl_err pl_cuda_attention_cached(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *pos = &c->in[PL_ATTENTION_CACHED_POS];
    struct pl_attention a = {};
    struct pl_view none = {};
    none.dtype = PL_DTYPE_F32;
    a.context = c->attr->context;
    if (!pl_attention_of(c, &none, &c->in[PL_ATTENTION_CACHED_OFFSETS], &a) ||
        !pl_is_float(&c->out[PL_ATTENTION_CACHED_OUT_O]) || pos->dtype != PL_DTYPE_I32 ||
        pos->rows < c->in[PL_ATTENTION_CACHED_Q].rows ||
        c->in[PL_ATTENTION_CACHED_KC].rows > INT32_MAX ||
        c->batch->n_seqs * a.context > c->in[PL_ATTENTION_CACHED_KC].rows)
        return PL_ERR_PLAN_BROKEN;
    a.positions = (const int32_t *)pos->p;
    return launch(dev, c, &c->in[PL_ATTENTION_CACHED_SINKS], &a);
}

#define TENSOR_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 32, 2, 64, false, false>),                        \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 64, 2, 64, false, false>),                    \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 96, 2, 64, false, false>),                    \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 128, 2, 64, false, false>),                   \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 128, 1, 64, false, true>),                    \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 256, 1, 32, false, false>),                   \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 32, 1, 64, true, false>),                     \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 64, 1, 64, true, false>),                     \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 96, 1, 64, true, false>),                     \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 128, 1, 64, true, false>),                    \
        PL_CUDA_KERNEL(forward_tensor<pl_stored_##T, 256, 1, 32, true, false>),
#define PLAIN_KERNELS(CACHED)                                                                      \
    PL_CUDA_KERNEL(forward_plain<1, CACHED>), PL_CUDA_KERNEL(forward_plain<2, CACHED>),            \
        PL_CUDA_KERNEL(forward_plain<4, CACHED>), PL_CUDA_KERNEL(forward_plain<8, CACHED>),        \
        PL_CUDA_KERNEL(forward_plain<16, CACHED>)

PL_CUDA_PRELOAD(attention_fwd) = {PL_NARROW_MAP(TENSOR_KERNELS) PL_NARROW_MAP(HOPPER_KERNELS)
                                      PLAIN_KERNELS(false),
                                  PLAIN_KERNELS(true), NULL};
