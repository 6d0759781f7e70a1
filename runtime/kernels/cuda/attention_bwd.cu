/* attention_bwd.cu - ATTENTION_BWD: scores again from lse, then gradients without atomics.
 *
 * With p = exp(s - lse), delta = rowsum(do * o) and ds = p * (do v^T - delta):
 * dv = p^T do, dk = scale ds^T q, dq = scale ds k (Dao et al., "FlashAttention", 2022, section
 * B.4). dk and dv are sums over queries, dq over keys, and a sum that two blocks share would need
 * atomics, whose order is not fixed. So there are three passes:
 *   stats  delta and lse * log2(e) of every query and head, to the workspace;
 *   keys   a block owns a tile of keys of a kv head and walks heads of the group and all queries
 *          that see the tile: dk and dv;
 *   queries  a block owns a tile of queries of a head and walks their keys: dq.
 * Where tiles and kv heads are too few blocks for a GPU, the plan divides the heads of a group into
 * parts. A block of the keys pass then walks the heads of one, its sums go to the workspace, and a
 * fourth pass adds those of all parts in their order.
 * Scores and do v^T are computed twice, seven products in place of five; nothing of the size of a
 * score is stored, and the bits do not depend on timing. Five would need blocks that add to dq one
 * after another. For 64 queries and keys of 128 columns this spares 2.1 MFLOP and moves 64 KiB of
 * sums: by arithmetic, 0.9 us of a multiprocessor of an H100 and 1.5 us of its share of L2.
 *
 * Tensor kernels: four warps of 16 rows, which is all that two sums of 16 x 128 leave room for. A
 * warp's own rows (k and v, or q and do) stay in registers as fragments, so every product costs
 * shared memory the 256 bytes of one B fragment; own rows and walked tiles take turns in the same
 * shared memory. The walked tiles come by asynchronous copies into two buffers, one barrier a tile.
 * In the keys pass scores are held transposed, [key][query]: p^T and ds^T are then A fragments as
 * they are. At D = 256 dk and dv need a pass each. Shared bytes at D = 128: 34 KiB; at 256: 66 KiB,
 * but 33 in the pass over dv, which needs no rows of v and so has registers for k: two of its
 * blocks run where a multiprocessor has 100 KiB. Registers (nvcc 13.0, sm_80 / sm_90) of keys and
 * queries: D = 64 212 / 216 and 174 / 184, 96 232 / 230 and 174 / 182, 128 255 / 255 and 211 / 220,
 * and over dv at 256 253 / 253, none spilled: two blocks a multiprocessor. */
#include "runtime/kernels/cuda/attention.cuh"

#include "estimator/ops/scratch/workspace_cuda_attention.h"

#include <math.h>

/* ---- stats ---- */

enum { STATS_THREADS = 256 };

/* `lanes` (a power of two) threads serve a head of a row. */
template <typename T, int V>
static __global__ void __launch_bounds__(STATS_THREADS)
    stats(const struct pl_attention a, const pl_mat<T> o, const pl_mat<T> go, unsigned lanes) {
    const uint64_t at = ((uint64_t)blockIdx.x * STATS_THREADS + threadIdx.x) / lanes;
    const uint64_t row = at / a.heads;
    const uint32_t head = (uint32_t)(at % a.heads), col = head * a.dim;
    float sum = 0.0f;
    if (row < a.n_tokens)
        for (uint32_t d = threadIdx.x % lanes * V; d < a.dim; d += lanes * V) {
            float x[V], y[V];
            pl_floats(pl_load<T, V>(o, row, col + d, col + a.dim), x);
            pl_floats(pl_load<T, V>(go, row, col + d, col + a.dim), y);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum = fmaf(x[i], y[i], sum);
        }
    sum = pl_warp_reduce<pl_add>(sum, lanes);
    if (row < a.n_tokens && threadIdx.x % lanes == 0)
        a.stats[(uint64_t)head * a.n_tokens + row] =
            make_float2(a.lse[row * a.lse_ld + head] * PL_LOG2_E, sum);
}

template <typename T, int V>
static pl_err launch_stats(struct pl_device *dev, const struct pl_attention *a,
                           const struct pl_view *o, const struct pl_view *go) {
    const unsigned lanes = pl_team_threads((a->dim + V - 1) / V, 1, PL_WARP);
    const uint64_t threads = (uint64_t)a->n_tokens * a->heads * lanes;
    const uint64_t blocks = (threads + STATS_THREADS - 1) / STATS_THREADS;
    if (blocks > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((stats<T, V>), dim3((unsigned)blocks), dim3(STATS_THREADS), 0,
              pl_cuda_of(dev)->stream, *a, pl_mat_of<T>(*o), pl_mat_of<T>(*go), lanes);
    return pl_cuda_launched();
}

/* ---- parts of a group ---- */

/* The query heads [first, end) of a kv head that a block of the keys pass walks. With one part they
 * are all of the group, and its sums are dk and dv themselves. */
struct part {
    uint32_t kv_head, number, first, end;
};

static __device__ __forceinline__ uint32_t key_slots(const struct pl_attention &a) {
    return a.kv_heads * a.parts;
}

static __device__ __forceinline__ struct part part_of(const struct pl_attention &a) {
    const uint32_t slot = blockIdx.x % key_slots(a);
    struct part p = {slot / a.parts, slot % a.parts, 0, 0};
    const uint32_t end = (p.number + 1) * a.part_heads;
    p.first = p.kv_head * a.group + p.number * a.part_heads;
    p.end = p.kv_head * a.group + (end < a.group ? end : a.group);
    return p;
}

/* The storage of the sums of parts where a matrix of this storage is written. */
template <typename T> struct summed { typedef float type; };
template <> struct summed<pl_either> { typedef pl_either type; };

enum { SUM_THREADS = 128 };

/* Adds the sums of a row of all parts, those of dk and, in the second line of blocks, those of dv.
 * Rows after the last sequence are left as they are, as the keys pass leaves them. */
template <typename T, int V>
static __global__ void __launch_bounds__(SUM_THREADS)
    add_parts(const struct pl_attention a, const pl_mat<typename summed<T>::type> dk_sums,
              const pl_mat<typename summed<T>::type> dv_sums, const pl_mat<T> dk,
              const pl_mat<T> dv) {
    typedef typename summed<T>::type S;
    const pl_mat<S> sums = blockIdx.y ? dv_sums : dk_sums;
    const pl_mat<T> out = blockIdx.y ? dv : dk;
    const uint32_t row = blockIdx.x, cols = a.kv_heads * a.dim;
    if (row >= (uint32_t)a.offsets[a.n_seqs]) return;
    for (uint32_t col = threadIdx.x * V; col < cols; col += SUM_THREADS * V) {
        float sum[V], x[V];
        pl_floats(pl_load<S, V>(sums, row, col, cols), sum);
        for (uint32_t p = 1; p < a.parts; p++) {
            pl_floats(pl_load<S, V>(sums, (uint64_t)p * a.n_tokens + row, col, cols), x);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += x[i];
        }
        pl_store(out, row, col, cols, pl_packed(out, sum));
    }
}

template <typename T, int V>
static pl_err launch_add_parts(struct pl_device *dev, const struct pl_attention *a,
                               const struct pl_view *dk, const struct pl_view *dv) {
    typedef typename summed<T>::type S;
    const uint64_t rows = (uint64_t)a->parts * a->n_tokens;
    const struct pl_view dk_sums = {a->dk.p, rows, a->dk.ld, a->dk.ld, PL_DTYPE_F32};
    const struct pl_view dv_sums = {a->dv.p, rows, a->dv.ld, a->dv.ld, PL_DTYPE_F32};
    PL_LAUNCH((add_parts<T, V>), dim3(a->n_tokens, 2), dim3(SUM_THREADS), 0,
              pl_cuda_of(dev)->stream, *a, pl_mat_of<S>(dk_sums), pl_mat_of<S>(dv_sums),
              pl_mat_of<T>(*dk), pl_mat_of<T>(*dv));
    return pl_cuda_launched();
}

/* ---- tensor cores ---- */

/* True if the query and the key of element i of block n see each other; QUERY_IS_ROW tells whether
 * rows are queries or keys. */
template <bool QUERY_IS_ROW>
static __device__ __forceinline__ bool element_sees(uint32_t query, uint32_t key, int n, int i,
                                                    uint32_t reach) {
    const uint32_t row = pl_lane() / 4 + i / 2 * 8, col = n * 8 + pl_lane() % 4 * 2 + i % 2;
    return QUERY_IS_ROW ? pl_sees(query + row, key + col, reach)
                        : pl_sees(query + col, key + row, reach);
}

/* Turns scores [key][query] into p, and do v^T into ds where DK; stat has the stats of the queries
 * from `query` on. */
template <bool DK, int N>
static __device__ __forceinline__ void
weigh_by_key(float (&p)[1][N][4], float (&ds)[1][N][4], const float2 *stat, float factor,
             uint32_t query, uint32_t key, uint32_t reach) {
    const bool all = pl_all_see(query, N * 8, key, 16, reach);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 s = stat[n * 8 + pl_lane() % 4 * 2 + i % 2];
            const bool sees = all || element_sees<false>(query, key, n, i, reach);
            p[0][n][i] = sees ? pl_ptx_exp2(fmaf(p[0][n][i], factor, -s.x)) : 0.0f;
            if (DK) ds[0][n][i] = sees ? p[0][n][i] * (ds[0][n][i] - s.y) : 0.0f;
        }
}

/* Turns do v^T [query][key] into ds; stat has the stats of the two queries of a thread. */
template <int N>
static __device__ __forceinline__ void
weigh_by_query(const float (&p)[1][N][4], float (&ds)[1][N][4], const float2 (&stat)[2],
               float factor, uint32_t query, uint32_t key, uint32_t reach) {
    const bool all = pl_all_see(query, 16, key, N * 8, reach);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const bool sees = all || element_sees<true>(query, key, n, i, reach);
            const float e = pl_ptx_exp2(fmaf(p[0][n][i], factor, -stat[i / 2].x));
            ds[0][n][i] = sees ? e * (ds[0][n][i] - stat[i / 2].y) : 0.0f;
        }
}

/* Shared elements of the keys kernel: own rows first pass through the buffers, so the larger
 * counts. Without dk no row of v is needed, which leaves registers for k at D = 256, too. Stats of
 * both buffers follow, and pl_kept. */
template <int D, uint32_t QUERIES, bool DK> struct keys_layout {
    static constexpr uint32_t TILE = QUERIES * pl_pitch<D>::N; /* q or do of one buffer */
    static constexpr uint32_t OWN = 64 * pl_pitch<D>::N;       /* k or v */
    static constexpr uint32_t PASSED = DK ? 2 * OWN : OWN;     /* own rows */
    static constexpr bool KEPT = D <= 128 || !DK;              /* k in registers, too */
    static constexpr uint32_t WALKED = KEPT ? 0 : OWN;         /* where walked tiles start */
    static constexpr uint32_t STATS = WALKED + 4 * TILE > PASSED ? WALKED + 4 * TILE : PASSED;
    static constexpr uint32_t KEPT_AT = STATS + 2 * QUERIES * 4;
    static constexpr uint32_t BYTES = KEPT_AT * 2 + sizeof(struct pl_kept);
};

template <int D, uint32_t QUERIES, bool DK>
static __device__ __forceinline__ void
copy_queries(const struct pl_attention &a, const struct pl_tile &t, uint16_t *memory,
             uint32_t buffer, uint32_t head, uint32_t query) {
    typedef keys_layout<D, QUERIES, DK> layout;
    uint16_t *q = memory + layout::WALKED + buffer * 2 * layout::TILE;
    float2 *stats = (float2 *)(memory + layout::STATS) + buffer * QUERIES;
    pl_tile_copy<D, QUERIES>(q, a.q, t, query, head * a.dim, a.dim);
    pl_tile_copy<D, QUERIES>(q + layout::TILE, a.go, t, query, head * a.dim, a.dim);
    if (threadIdx.x < QUERIES)
        pl_ptx_copy_8(stats + threadIdx.x,
                      a.stats + (uint64_t)head * a.n_tokens + t.row0 + query + threadIdx.x,
                      query + threadIdx.x < t.length);
    pl_ptx_copy_commit();
}

template <typename T, int D, uint32_t QUERIES, bool DV, bool DK>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS, 2)
    keys_tensor(const struct pl_attention a) {
    typedef keys_layout<D, QUERIES, DK> layout;
    constexpr uint32_t KEYS = 64;
    PL_SHARED(uint16_t, memory);
    const struct part part = part_of(a);
    const uint32_t kv_col = part.kv_head * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, blockIdx.x / key_slots(a), KEYS, &t)) return;
    const struct pl_range queries = pl_queries_seeing(a, t, KEYS);

    pl_rows_a<D, layout::KEPT> k[1];
    pl_rows_a<D, true> v[1];
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    pl_tile_copy<D, KEYS>(memory, a.k, t, t.first, kv_col, a.dim);
    if (DK) pl_tile_copy<D, KEYS>(memory + layout::OWN, a.v, t, t.first, kv_col, a.dim);
    pl_ptx_copy_commit();
    pl_ptx_copy_wait<0>();
    __syncthreads();
    k[0].take(memory + pl_warp() * 16 * pl_pitch<D>::N);
    if (DK) v[0].take(memory + layout::OWN + pl_warp() * 16 * pl_pitch<D>::N);
    __syncthreads();

    uint32_t head = part.first, query = queries.first, buffer = 0;
    struct pl_kept own;
    bool writes;
    pl_kept_place *kept = pl_keep(memory + layout::KEPT_AT, &own, &writes);
    if (writes) {
        kept->row0 = t.row0;
        kept->length = t.length;
        kept->first = queries.first;
        kept->end = queries.end;
        kept->own = t.first;
        kept->heads_end = part.end;
        kept->factor = a.scale * PL_LOG2_E;
    }
    copy_queries<D, QUERIES, DK>(a, t, memory, buffer, head, query);
    for (;;) {
        const uint32_t here = query;
        const uint16_t *q = memory + layout::WALKED + buffer * 2 * layout::TILE;
        const uint16_t *go = q + layout::TILE;
        const float2 *stat = (const float2 *)(memory + layout::STATS) + buffer * QUERIES;
        float p[1][QUERIES / 8][4], ds[1][QUERIES / 8][4];
        query += QUERIES;
        buffer ^= 1;
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* this buffer is here, the other is used */
        if (query >= kept->end) query = kept->first, head++;
        const bool more = head < kept->heads_end;
        if (more) copy_queries<D, QUERIES, DK>(a, kept->walked(), memory, buffer, head, query);

        pl_multiply_rows<T, D, 1, QUERIES>(p, k, q);
        if (DK) pl_multiply_rows<T, D, 1, QUERIES>(ds, v, go);
        const uint32_t key = kept->own + pl_warp() * 16;
        const float factor = kept->factor;
        weigh_by_key<DK>(p, ds, stat, factor, here, key, a.reach);
        if (DV) pl_add_weighted<T, D, 1, QUERIES>(dv, p, go);
        if (DK) pl_add_weighted<T, D, 1, QUERIES>(dk, ds, q);
        if (!more) break;
    }
    const struct part own_part = part_of(a);
    const uint64_t row0 = kept->row0 + (uint64_t)own_part.number * a.n_tokens;
    const uint32_t length = kept->length, col = own_part.kv_head * a.dim;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t j = kept->own + pl_warp() * 16 + pl_lane() / 4 + half * 8;
        if (j >= length) continue;
        if (DK) pl_store_part<D>(a.dk, row0 + j, col, a.dim, dk[0], half, a.scale);
        if (DV) pl_store_part<D>(a.dv, row0 + j, col, a.dim, dv[0], half, 1.0f);
    }
}

/* The same for the queries kernel. */
template <int D, uint32_t KEYS> struct queries_layout {
    static constexpr uint32_t TILE = KEYS * pl_pitch<D>::N; /* k or v of one buffer */
    static constexpr uint32_t OWN = 64 * pl_pitch<D>::N;    /* do or q */
    static constexpr bool KEPT = D <= 128;                  /* do in registers, too */
    static constexpr uint32_t WALKED = KEPT ? 0 : OWN;
    static constexpr uint32_t ALL = WALKED + 4 * TILE > 2 * OWN ? WALKED + 4 * TILE : 2 * OWN;
    static constexpr uint32_t BYTES = ALL * 2;
};

template <int D, uint32_t KEYS>
static __device__ __forceinline__ void copy_keys(const struct pl_attention &a,
                                                 const struct pl_tile &t, uint16_t *memory,
                                                 uint32_t buffer, uint32_t kv_col, uint32_t key) {
    typedef queries_layout<D, KEYS> layout;
    uint16_t *k = memory + layout::WALKED + buffer * 2 * layout::TILE;
    pl_tile_copy<D, KEYS>(k, a.k, t, key, kv_col, a.dim);
    pl_tile_copy<D, KEYS>(k + layout::TILE, a.v, t, key, kv_col, a.dim);
    pl_ptx_copy_commit();
}

template <typename T, int D, uint32_t KEYS>
static __global__ void __launch_bounds__(PL_TENSOR_THREADS, 2)
    queries_tensor(const struct pl_attention a) {
    typedef queries_layout<D, KEYS> layout;
    constexpr uint32_t QUERIES = 64;
    PL_SHARED(uint16_t, memory);
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_col = head / a.group * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, QUERIES, &t)) return;
    const struct pl_range keys = pl_keys_seen(a, t, QUERIES, KEYS);
    const uint32_t query = t.first + pl_warp() * 16;
    const float factor = a.scale * PL_LOG2_E;

    pl_rows_a<D, true> q[1];
    pl_rows_a<D, layout::KEPT> go[1];
    float dq[1][D / 8][4] = {};
    float2 stat[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t i = query + pl_lane() / 4 + half * 8;
        stat[half] = i < t.length ? a.stats[(uint64_t)head * a.n_tokens + t.row0 + i]
                                  : make_float2(0.0f, 0.0f);
    }
    pl_tile_copy<D, QUERIES>(memory, a.go, t, t.first, col, a.dim);
    pl_tile_copy<D, QUERIES>(memory + layout::OWN, a.q, t, t.first, col, a.dim);
    pl_ptx_copy_commit();
    pl_ptx_copy_wait<0>();
    __syncthreads();
    go[0].take(memory + pl_warp() * 16 * pl_pitch<D>::N);
    q[0].take(memory + layout::OWN + pl_warp() * 16 * pl_pitch<D>::N);
    __syncthreads();

    copy_keys<D, KEYS>(a, t, memory, 0, kv_col, keys.first);
    uint32_t buffer = 0;
    for (uint32_t key = keys.first; key < keys.end; key += KEYS, buffer ^= 1) {
        const uint16_t *k = memory + layout::WALKED + buffer * 2 * layout::TILE;
        float p[1][KEYS / 8][4], ds[1][KEYS / 8][4];
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* this buffer is here, the other is used */
        if (key + KEYS < keys.end) copy_keys<D, KEYS>(a, t, memory, buffer ^ 1, kv_col, key + KEYS);

        pl_multiply_rows<T, D, 1, KEYS>(p, q, k);
        pl_multiply_rows<T, D, 1, KEYS>(ds, go, k + layout::TILE);
        weigh_by_query(p, ds, stat, factor, query, key, a.reach);
        pl_add_weighted<T, D, 1, KEYS>(dq, ds, k);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t i = query + pl_lane() / 4 + half * 8;
        if (i < t.length) pl_store_part<D>(a.dq, t.row0 + i, col, a.dim, dq[0], half, a.scale);
    }
}

#ifdef PL_HOPPER
#include "runtime/kernels/cuda/attention_bwd_hopper.cuh"
#else
#define HOPPER_KERNELS(T)
#endif

#define KEYS_TENSOR(T, D, QUERIES, DV, DK)                                                         \
    {                                                                                              \
        keys_tensor<T, D, QUERIES, DV, DK>, D, 64, PL_TENSOR_THREADS,                              \
            keys_layout<D, QUERIES, DK>::BYTES                                                     \
    }
#define QUERIES_TENSOR(T, D, KEYS)                                                                 \
    { queries_tensor<T, D, KEYS>, D, 64, PL_TENSOR_THREADS, queries_layout<D, KEYS>::BYTES }

/* A multiprocessor of 100 KiB has two blocks of the pass over dv; each takes 1 KiB more. */
static_assert(2 * (keys_layout<256, 16, false>::BYTES + 1024) <= 100 * 1024,
              "two blocks of the pass over dv");

/* The instances of a pass over dk and dv, or over each by itself, and over dq. */
struct tensor_passes {
    struct pl_attention_instance dkv[5], dv[2], dk[2], dq[6];
};

/* Each narrow type has these. At D = 256 none fits a block of Turing. */
#define TENSORS(T)                                                                                 \
    static const struct tensor_passes tensor_##T = {                                               \
        {KEYS_TENSOR(pl_stored_##T, 32, 64, true, true),                                           \
         KEYS_TENSOR(pl_stored_##T, 64, 64, true, true),                                           \
         KEYS_TENSOR(pl_stored_##T, 96, 32, true, true),                                           \
         KEYS_TENSOR(pl_stored_##T, 128, 32, true, true),                                          \
         {}},                                                                                      \
        {KEYS_TENSOR(pl_stored_##T, 256, 16, true, false), {}},                                    \
        {KEYS_TENSOR(pl_stored_##T, 256, 16, false, true), {}},                                    \
        {QUERIES_TENSOR(pl_stored_##T, 32, 64),                                                    \
         QUERIES_TENSOR(pl_stored_##T, 64, 64),                                                    \
         QUERIES_TENSOR(pl_stored_##T, 96, 32),                                                    \
         QUERIES_TENSOR(pl_stored_##T, 128, 32),                                                   \
         QUERIES_TENSOR(pl_stored_##T, 256, 16),                                                   \
         {}}};
PL_NARROW_MAP(TENSORS)

/* ---- fp32 ---- */

/* The shared memory of a plain keys kernel whose warps own rows of k and v. ONE_TILE: walked rows
 * of q and of do take turns in one tile, for blocks of 64 KiB at D = 256; the bits are the same. */
template <int CHUNKS, int N_WARPS, bool ONE_TILE> struct plain_keys {
    static constexpr int KEYS = N_WARPS * pl_plain<CHUNKS>::OWN;
    static constexpr int WALKED = (ONE_TILE ? 1 : 2) * PL_PLAIN_TILE;
    static constexpr int BYTES =
        ((2 * KEYS + WALKED) * pl_plain<CHUNKS>::PITCH + 2 * KEYS * PL_PLAIN_TILE) * 4;
};

/* Loads the walked rows of a head, from `query` on. */
template <int CHUNKS>
static __device__ __forceinline__ void walk(float *tile, const pl_mat<pl_either> &m,
                                            const struct pl_attention &a, const struct pl_tile &t,
                                            uint32_t query, uint32_t head) {
    pl_plain_load<CHUNKS>(tile, m, t, query, PL_PLAIN_TILE, head * a.dim, a.dim);
}

/* The same where the tile still holds rows that other warps read. */
template <int CHUNKS>
static __device__ __forceinline__ void
walk_again(float *tile, const pl_mat<pl_either> &m, const struct pl_attention &a,
           const struct pl_tile &t, uint32_t query, uint32_t head) {
    __syncthreads();
    walk<CHUNKS>(tile, m, a, t, query, head);
    __syncthreads();
}

template <int CHUNKS, int N_WARPS, bool ONE_TILE>
static __global__ void __launch_bounds__(N_WARPS *PL_WARP) keys_plain(const struct pl_attention a) {
    typedef plain_keys<CHUNKS, N_WARPS, ONE_TILE> layout;
    constexpr int OWN = pl_plain<CHUNKS>::OWN, PITCH = pl_plain<CHUNKS>::PITCH;
    constexpr uint32_t KEYS = layout::KEYS;
    PL_SHARED(float, memory);
    float *k = memory, *v = k + KEYS * PITCH, *q = v + KEYS * PITCH;
    float *go = ONE_TILE ? q : q + PL_PLAIN_TILE * PITCH;
    float *p = q + layout::WALKED * PITCH + pl_warp() * 2 * OWN * PL_PLAIN_TILE;
    float *ds = p + OWN * PL_PLAIN_TILE;
    const struct part part = part_of(a);
    const uint32_t kv_col = part.kv_head * a.dim, dim4 = (a.dim + 3) / 4 * 4;
    struct pl_tile t;
    if (!pl_tile_find(a, blockIdx.x / key_slots(a), KEYS, &t)) return;
    const struct pl_range queries = pl_queries_seeing(a, t, KEYS);
    const uint32_t key = t.first + pl_warp() * OWN;

    float dk[OWN][CHUNKS] = {}, dv[OWN][CHUNKS] = {}, s[OWN], dp[OWN];
    pl_plain_load<CHUNKS>(k, a.k, t, t.first, KEYS, kv_col, a.dim);
    pl_plain_load<CHUNKS>(v, a.v, t, t.first, KEYS, kv_col, a.dim);
    for (uint32_t head = part.first; head < part.end; head++)
        for (uint32_t query = queries.first; query < queries.end; query += PL_PLAIN_TILE) {
            const uint32_t i = query + pl_lane();
            __syncthreads();
            walk<CHUNKS>(q, a.q, a, t, query, head);
            if (!ONE_TILE) walk<CHUNKS>(go, a.go, a, t, query, head);
            const float2 stat = i < t.length ? a.stats[(uint64_t)head * a.n_tokens + t.row0 + i]
                                             : make_float2(0.0f, 0.0f);
            __syncthreads();
            pl_plain_dot<CHUNKS>(s, k + pl_warp() * OWN * PITCH, q, dim4);
            if (ONE_TILE) walk_again<CHUNKS>(go, a.go, a, t, query, head);
            pl_plain_dot<CHUNKS>(dp, v + pl_warp() * OWN * PITCH, go, dim4);
#pragma unroll
            for (int r = 0; r < OWN; r++) {
                const float e = exp2f(fmaf(s[r], a.scale * PL_LOG2_E, -stat.x));
                const bool sees = i < t.length && pl_sees(i, key + r, a.reach);
                p[r * PL_PLAIN_TILE + pl_lane()] = sees ? e : 0.0f;
                ds[r * PL_PLAIN_TILE + pl_lane()] = sees ? e * (dp[r] - stat.y) : 0.0f;
            }
            __syncwarp();
            pl_plain_add_weighted<CHUNKS>(dv, p, go);
            if (ONE_TILE) walk_again<CHUNKS>(q, a.q, a, t, query, head);
            pl_plain_add_weighted<CHUNKS>(dk, ds, q);
        }
    const uint64_t row0 = t.row0 + (uint64_t)part.number * a.n_tokens;
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        if (key + r >= t.length) break;
        pl_plain_store<CHUNKS>(a.dk, row0 + key + r, kv_col, a.dim, dk[r], a.scale);
        pl_plain_store<CHUNKS>(a.dv, row0 + key + r, kv_col, a.dim, dv[r], 1.0f);
    }
}

/* One tile serves values first and keys then. */
template <int CHUNKS, int N_WARPS> struct plain_queries {
    static constexpr int QUERIES = N_WARPS * pl_plain<CHUNKS>::OWN;
    static constexpr int BYTES =
        ((2 * QUERIES + PL_PLAIN_TILE) * pl_plain<CHUNKS>::PITCH + QUERIES * PL_PLAIN_TILE) * 4;
};

template <int CHUNKS, int N_WARPS>
static __global__ void __launch_bounds__(N_WARPS *PL_WARP)
    queries_plain(const struct pl_attention a) {
    constexpr int OWN = pl_plain<CHUNKS>::OWN, PITCH = pl_plain<CHUNKS>::PITCH;
    constexpr uint32_t QUERIES = plain_queries<CHUNKS, N_WARPS>::QUERIES;
    PL_SHARED(float, memory);
    float *q = memory, *go = q + QUERIES * PITCH, *kv = go + QUERIES * PITCH;
    float *ds = kv + PL_PLAIN_TILE * PITCH + pl_warp() * OWN * PL_PLAIN_TILE;
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_col = head / a.group * a.dim;
    const uint32_t dim4 = (a.dim + 3) / 4 * 4;
    struct pl_tile t;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, QUERIES, &t)) return;
    const struct pl_range keys = pl_keys_seen(a, t, QUERIES, PL_PLAIN_TILE);
    const uint32_t query = t.first + pl_warp() * OWN;

    float dq[OWN][CHUNKS] = {}, s[OWN], dp[OWN];
    float2 stat[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++)
        stat[r] = query + r < t.length ? a.stats[(uint64_t)head * a.n_tokens + t.row0 + query + r]
                                       : make_float2(0.0f, 0.0f);
    pl_plain_load<CHUNKS>(q, a.q, t, t.first, QUERIES, col, a.dim);
    pl_plain_load<CHUNKS>(go, a.go, t, t.first, QUERIES, col, a.dim);
    for (uint32_t key = keys.first; key < keys.end; key += PL_PLAIN_TILE) {
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.v, t, key, PL_PLAIN_TILE, kv_col, a.dim);
        __syncthreads();
        pl_plain_dot<CHUNKS>(dp, go + pl_warp() * OWN * PITCH, kv, dim4);
        __syncthreads();
        pl_plain_load<CHUNKS>(kv, a.k, t, key, PL_PLAIN_TILE, kv_col, a.dim);
        __syncthreads();
        pl_plain_dot<CHUNKS>(s, q + pl_warp() * OWN * PITCH, kv, dim4);
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            const float e = exp2f(fmaf(s[r], a.scale * PL_LOG2_E, -stat[r].x));
            ds[r * PL_PLAIN_TILE + pl_lane()] =
                pl_sees(query + r, key + pl_lane(), a.reach) ? e * (dp[r] - stat[r].y) : 0.0f;
        }
        __syncwarp();
        pl_plain_add_weighted<CHUNKS>(dq, ds, kv);
    }
#pragma unroll
    for (int r = 0; r < OWN; r++)
        if (query + r < t.length)
            pl_plain_store<CHUNKS>(a.dq, t.row0 + query + r, col, a.dim, dq[r], a.scale);
}

#define KEYS_PLAIN(CHUNKS, N_WARPS, ONE_TILE)                                                      \
    {                                                                                              \
        keys_plain<CHUNKS, N_WARPS, ONE_TILE>, CHUNKS *PL_WARP,                                    \
            plain_keys<CHUNKS, N_WARPS, ONE_TILE>::KEYS, N_WARPS *PL_WARP,                         \
            plain_keys<CHUNKS, N_WARPS, ONE_TILE>::BYTES                                           \
    }
#define QUERIES_PLAIN(CHUNKS, N_WARPS)                                                             \
    {                                                                                              \
        queries_plain<CHUNKS, N_WARPS>, CHUNKS *PL_WARP, plain_queries<CHUNKS, N_WARPS>::QUERIES,  \
            N_WARPS *PL_WARP, plain_queries<CHUNKS, N_WARPS>::BYTES                                \
    }

/* The second of a head size is for the 64 KiB of Turing, which has none for 512. */
static const struct pl_attention_instance dkv_plain[] = {KEYS_PLAIN(1, 4, false),
                                                         KEYS_PLAIN(2, 4, false),
                                                         KEYS_PLAIN(4, 4, false),
                                                         KEYS_PLAIN(4, 2, false),
                                                         KEYS_PLAIN(8, 2, false),
                                                         KEYS_PLAIN(8, 2, true),
                                                         KEYS_PLAIN(16, 2, true),
                                                         {}};
static const struct pl_attention_instance dq_plain[] = {QUERIES_PLAIN(1, 4), QUERIES_PLAIN(2, 4),
                                                        QUERIES_PLAIN(4, 4), QUERIES_PLAIN(8, 4),
                                                        QUERIES_PLAIN(8, 2),
                                                        QUERIES_PLAIN(16, 2),
                                                        {}};

/* ---- the op ---- */

static pl_err run_stats(struct pl_device *dev, const struct pl_attention *a,
                        const struct pl_view *o, const struct pl_view *go) {
    static pl_err (*const launch[PL_FORMS])(struct pl_device *, const struct pl_attention *,
                                            const struct pl_view *, const struct pl_view *) =
        PL_FORM_TABLE(launch_stats);
    const struct pl_view *const views[] = {o, go};
    return launch[a->dim % 8 ? PL_FORM_EITHER : pl_form_of(views, 2)](dev, a, o, go);
}

/* Divides the heads of a group as the plan says, and lets the keys pass write to the workspace.
 * False: the plan contradicts itself. */
static bool divide_group(struct pl_attention *a, const struct pl_attr *attr,
                         const struct pl_view *ws) {
    a->parts = attr->key_parts ? attr->key_parts : 1;
    a->part_heads = pl_attention_part_heads(a->group, a->parts);
    if (attr->key_parts == 0) return true;
    if (a->parts > a->group || (a->parts - 1) * a->part_heads >= a->group) return false;
    const uint64_t cols = (uint64_t)a->kv_heads * a->dim;
    float *sums = (float *)((unsigned char *)ws->p + pl_attention_sums_at(a->n_tokens, a->heads));
    a->dk = pl_mat<pl_either>{sums, cols, PL_DTYPE_F32};
    a->dv = pl_mat<pl_either>{sums + cols * a->parts * a->n_tokens, cols, PL_DTYPE_F32};
    return true;
}

static pl_err run_add_parts(struct pl_device *dev, const struct pl_attention *a,
                            const struct pl_view *dk, const struct pl_view *dv) {
    static pl_err (*const launch[PL_FORMS])(struct pl_device *, const struct pl_attention *,
                                            const struct pl_view *, const struct pl_view *) =
        PL_FORM_TABLE(launch_add_parts);
    const struct pl_view *const views[] = {dk, dv};
    return launch[a->dim % 8 ? PL_FORM_EITHER : pl_form_of(views, 2)](dev, a, dk, dv);
}

static const struct tensor_passes *passes_of(enum pl_dtype t) {
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        return &tensor_##T;
    switch (t) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        return NULL;
    }
#undef OF_TYPE
}

/* The instances of a call: dkv, or dv and dk, and dq. */
struct picked {
    const struct pl_attention_instance *dkv, *dv, *dk, *dq;
};

/* True if tensor cores take the call. */
static bool tensor_takes(struct pl_device *dev, const struct pl_call *c,
                         const struct pl_attention *a) {
    const struct pl_view *in = c->in;
    const enum pl_dtype t = in[0].dtype;
    return passes_of(t) && pl_cuda_multiplies(dev, t) && a->dim % 8 == 0 &&
           pl_tensor_reads(&in[0], t) && pl_tensor_reads(&in[1], t) && pl_tensor_reads(&in[2], t) &&
           pl_tensor_reads(&in[5], t) && pl_tensor_writes(&c->out[0]) &&
           pl_tensor_writes(&c->out[1]) && pl_tensor_writes(&c->out[2]);
}

/* False: no instance has room for the head size. */
static bool pick_tensor(struct pl_device *dev, enum pl_dtype t, uint32_t dim, struct picked *out) {
    const struct tensor_passes *of = passes_of(t);
    out->dkv = pl_attention_pick(dev, of->dkv, dim);
    out->dv = pl_attention_pick(dev, of->dv, dim);
    out->dk = pl_attention_pick(dev, of->dk, dim);
    out->dq = pl_attention_pick(dev, of->dq, dim);
    return (out->dkv || (out->dv && out->dk)) && out->dq;
}

static pl_err run_picked(struct pl_device *dev, const struct pl_attention *a,
                         const struct picked *p) {
    const uint32_t slots = a->kv_heads * a->parts;
    if (p->dkv) {
        PL_TRY(pl_attention_launch(dev, a, p->dkv, slots));
    } else {
        PL_TRY(pl_attention_launch(dev, a, p->dv, slots));
        PL_TRY(pl_attention_launch(dev, a, p->dk, slots));
    }
    return pl_attention_launch(dev, a, p->dq, a->heads);
}

/* Runs the passes over keys and over queries. */
static pl_err run_passes(struct pl_device *dev, const struct pl_call *c,
                         const struct pl_attention *a) {
    const bool is_tensor = tensor_takes(dev, c, a);
    struct picked p = {};
#ifdef PL_HOPPER
    struct hopper_passes hopper = {};
    if (is_tensor && pick_hopper(dev, c, a, &hopper)) return run_hopper(dev, a, &hopper);
#endif
    if (!is_tensor || !pick_tensor(dev, c->in[0].dtype, a->dim, &p)) {
        p.dkv = pl_attention_pick(dev, dkv_plain, a->dim);
        p.dq = pl_attention_pick(dev, dq_plain, a->dim);
    }
    return run_picked(dev, a, &p);
}

/* True if every view is a float matrix of the rows of the first. */
static bool all_matrices(const struct pl_view *const *views, int n) {
    for (int i = 0; i < n; i++)
        if (!pl_is_float(views[i]) || views[i]->rows != views[0]->rows) return false;
    return true;
}

/* in: q[N,H*D] k[N,G*D] v[N,G*D] o[N,H*D] lse[N,H]f32 do[N,H*D] offsets[B+1]i32 ws;
 * out: dq[N,H*D] dk[N,G*D] dv[N,G*D]. */
extern "C" pl_err pl_cuda_attention_bwd(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *in = c->in, *out = c->out, *o = &in[3], *go = &in[5];
    const struct pl_view *const matrices[] = {&in[0], o, go, &out[0], &out[1], &out[2]};
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_ATTENTION_BWD, c->attr, in[0].rows, in[0].cols);
    struct pl_attention a = {};
    if (!pl_attention_of(c, &in[4], &in[6], &a) || !all_matrices(matrices, 6) ||
        !pl_ws_holds(&in[7], need))
        return PL_ERR_PLAN_BROKEN;
    if (!a.n_tokens || !a.n_seqs) return PL_ERR_OK;
    a.go = pl_mat_of<pl_either>(*go);
    a.dq = pl_mat_of<pl_either>(out[0]);
    a.dk = pl_mat_of<pl_either>(out[1]);
    a.dv = pl_mat_of<pl_either>(out[2]);
    a.stats = (float2 *)in[7].p;
    if (!divide_group(&a, c->attr, &in[7])) return PL_ERR_PLAN_BROKEN;
    PL_TRY(run_stats(dev, &a, o, go));
    PL_TRY(run_passes(dev, c, &a));
    return c->attr->key_parts ? run_add_parts(dev, &a, &out[1], &out[2]) : PL_ERR_OK;
}

#define TENSOR_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 32, 64, true, true>),                                \
        PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 64, 64, true, true>),                            \
        PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 96, 32, true, true>),                            \
        PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 128, 32, true, true>),                           \
        PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 256, 16, true, false>),                          \
        PL_CUDA_KERNEL(keys_tensor<pl_stored_##T, 256, 16, false, true>),                          \
        PL_CUDA_KERNEL(queries_tensor<pl_stored_##T, 32, 64>),                                     \
        PL_CUDA_KERNEL(queries_tensor<pl_stored_##T, 64, 64>),                                     \
        PL_CUDA_KERNEL(queries_tensor<pl_stored_##T, 96, 32>),                                     \
        PL_CUDA_KERNEL(queries_tensor<pl_stored_##T, 128, 32>),                                    \
        PL_CUDA_KERNEL(queries_tensor<pl_stored_##T, 256, 16>),

PL_CUDA_PRELOAD(attention_bwd) = {PL_FORM_KERNELS(stats),
                                  PL_FORM_KERNELS(add_parts),
                                  PL_NARROW_MAP(TENSOR_KERNELS)
                                      PL_NARROW_MAP(HOPPER_KERNELS)
                                      PL_CUDA_KERNEL(keys_plain<1, 4, false>),
                                  PL_CUDA_KERNEL(keys_plain<2, 4, false>),
                                  PL_CUDA_KERNEL(keys_plain<4, 4, false>),
                                  PL_CUDA_KERNEL(keys_plain<4, 2, false>),
                                  PL_CUDA_KERNEL(keys_plain<8, 2, false>),
                                  PL_CUDA_KERNEL(keys_plain<8, 2, true>),
                                  PL_CUDA_KERNEL(queries_plain<1, 4>),
                                  PL_CUDA_KERNEL(queries_plain<2, 4>),
                                  PL_CUDA_KERNEL(queries_plain<4, 4>),
                                  PL_CUDA_KERNEL(queries_plain<8, 4>),
                                  PL_CUDA_KERNEL(queries_plain<8, 2>),
                                  PL_CUDA_KERNEL(keys_plain<16, 2, true>),
                                  PL_CUDA_KERNEL(queries_plain<16, 2>),
                                  NULL};
