/* attention_bwd_hopper.cuh - the gradients of attention by the matrix instructions of sm_90a;
 * attention_bwd.cu includes it, whose passes over keys and over queries these are. Own rows lie in
 * shared memory for the whole walk, and the walked tiles come into two buffers. Shared bytes are
 * 1,024 D, and 1 KiB for alignment: 129 KiB at D = 128, one block a multiprocessor. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_BWD_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_BWD_HOPPER_CUH

#include "runtime/kernels/cuda/attention_hopper.cuh"

/* Shared elements: two tiles of own rows, two buffers of two walked tiles, stats of both. */
template <int D> struct hopper_layout {
    static constexpr uint32_t OWN = PL_HOPPER_OWN * D, TILE = PL_HOPPER_WALKED * D;
    static constexpr uint32_t STATS = 2 * OWN + 4 * TILE;
    static constexpr uint32_t KEPT_AT = STATS + 2 * PL_HOPPER_WALKED * 4;
    static constexpr uint32_t BYTES = PL_PANEL_ALIGN + KEPT_AT * 2 + sizeof(struct pl_kept);
};

/* Copies walked rows of two matrices to a buffer. */
template <int D>
static __device__ __forceinline__ void
copy_walked(uint16_t *own, uint32_t buffer, const pl_mat<pl_either> &x, const pl_mat<pl_either> &y,
            const struct pl_tile &t, uint32_t first, uint32_t col, uint32_t dim) {
    typedef hopper_layout<D> layout;
    uint16_t *tile = own + 2 * layout::OWN + buffer * 2 * layout::TILE;
    pl_panel_copy<D, PL_HOPPER_WALKED>(tile, x, t, first, col, dim);
    pl_panel_copy<D, PL_HOPPER_WALKED>(tile + layout::TILE, y, t, first, col, dim);
}

template <int D>
static __device__ __forceinline__ void
copy_queries_hopper(const struct pl_attention &a, const struct pl_tile &t, uint16_t *own,
                    uint32_t buffer, uint32_t head, uint32_t query) {
    float2 *stats = (float2 *)(own + hopper_layout<D>::STATS) + buffer * PL_HOPPER_WALKED;
    copy_walked<D>(own, buffer, a.q, a.go, t, query, head * a.dim, a.dim);
    if (threadIdx.x < PL_HOPPER_WALKED)
        pl_ptx_copy_8(stats + threadIdx.x,
                      a.stats + (uint64_t)head * a.n_tokens + t.row0 + query + threadIdx.x,
                      query + threadIdx.x < t.length);
    pl_ptx_copy_commit();
}

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 1)
    keys_hopper(const struct pl_attention a) {
#if PL_PTX_IS_HOPPER
    typedef hopper_layout<D> layout;
    constexpr uint32_t KEYS = PL_HOPPER_OWN, QUERIES = PL_HOPPER_WALKED;
    PL_SHARED(uint16_t, memory);
    const struct part part = part_of(a);
    const uint32_t kv_col = part.kv_head * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, blockIdx.x / key_slots(a), KEYS, &t)) return;
    const struct pl_range queries = pl_queries_seeing(a, t, KEYS);
    uint16_t *own = pl_panel_align(memory);
    const uint16_t *k = pl_own_rows(own), *v = pl_own_rows(own + layout::OWN);
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    pl_panel_copy<D, KEYS>(own, a.k, t, t.first, kv_col, a.dim);
    pl_panel_copy<D, KEYS>(own + layout::OWN, a.v, t, t.first, kv_col, a.dim);
    const uint32_t key = t.first + pl_warp() * 16;
    const float factor = a.scale * PL_LOG2_E;
    uint32_t head = part.first, query = queries.first, buffer = 0;
    copy_queries_hopper<D>(a, t, own, buffer, head, query);
    for (bool more = true; more;) {
        const uint32_t here = query;
        const uint16_t *q = own + 2 * layout::OWN + buffer * 2 * layout::TILE;
        const uint16_t *go = q + layout::TILE;
        const float2 *stat = (const float2 *)(own + layout::STATS) + buffer * QUERIES;
        float p[1][QUERIES / 8][4], ds[1][QUERIES / 8][4];
        query += QUERIES;
        buffer ^= 1;
        pl_arrive_of_copies(); /* this buffer is here, the other is used */
        if (query >= queries.end) query = queries.first, head++;
        more = head < part.end;
        if (more) copy_queries_hopper<D>(a, t, own, buffer, head, query);
        pl_ptx_wgmma_fence();
        pl_multiply_panels<T, D>(p, k, q);
        pl_multiply_panels<T, D>(ds, v, go);
        pl_end_products();
        weigh_by_key<true>(p, ds, stat, factor, here, key, a.reach);
        const struct pl_panel_weights wv = pl_round_weights<T>(p), wk = pl_round_weights<T>(ds);
        pl_ptx_wgmma_fence();
        pl_add_panels<T, D>(dv, wv, go);
        pl_add_panels<T, D>(dk, wk, q);
        pl_end_products();
    }
    const uint64_t row0 = t.row0 + (uint64_t)part.number * a.n_tokens;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t j = key + pl_lane() / 4 + half * 8;
        if (j >= t.length) continue;
        pl_store_part<D>(a.dk, row0 + j, kv_col, a.dim, dk[0], half, a.scale);
        pl_store_part<D>(a.dv, row0 + j, kv_col, a.dim, dv[0], half, 1.0f);
    }
#else
    (void)a;
    __trap();
#endif
}

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 1)
    queries_hopper(const struct pl_attention a) {
#if PL_PTX_IS_HOPPER
    typedef hopper_layout<D> layout;
    constexpr uint32_t QUERIES = PL_HOPPER_OWN, KEYS = PL_HOPPER_WALKED;
    PL_SHARED(uint16_t, memory);
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_col = head / a.group * a.dim;
    struct pl_tile t;
    if (!pl_tile_find(a, (gridDim.x - 1 - blockIdx.x) / a.heads, QUERIES, &t)) return;
    const struct pl_range keys = pl_keys_seen(a, t, QUERIES, KEYS);
    const uint32_t query = t.first + pl_warp() * 16;
    const float factor = a.scale * PL_LOG2_E;
    uint16_t *own = pl_panel_align(memory);
    const uint16_t *q = pl_own_rows(own), *go = pl_own_rows(own + layout::OWN);
    float dq[1][D / 8][4] = {};
    float2 stat[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t i = query + pl_lane() / 4 + half * 8;
        stat[half] = i < t.length ? a.stats[(uint64_t)head * a.n_tokens + t.row0 + i]
                                  : make_float2(0.0f, 0.0f);
    }
    pl_panel_copy<D, QUERIES>(own, a.q, t, t.first, col, a.dim);
    pl_panel_copy<D, QUERIES>(own + layout::OWN, a.go, t, t.first, col, a.dim);
    copy_walked<D>(own, 0, a.k, a.v, t, keys.first, kv_col, a.dim);
    pl_ptx_copy_commit();
    uint32_t buffer = 0;
    for (uint32_t key = keys.first; key < keys.end; key += KEYS, buffer ^= 1) {
        const uint16_t *k = own + 2 * layout::OWN + buffer * 2 * layout::TILE;
        float p[1][KEYS / 8][4], ds[1][KEYS / 8][4];
        pl_arrive_of_copies(); /* this buffer is here, the other is used */
        if (key + KEYS < keys.end)
            copy_walked<D>(own, buffer ^ 1, a.k, a.v, t, key + KEYS, kv_col, a.dim);
        pl_ptx_copy_commit();
        pl_ptx_wgmma_fence();
        pl_multiply_panels<T, D>(p, q, k);
        pl_multiply_panels<T, D>(ds, go, k + layout::TILE);
        pl_end_products();
        weigh_by_query(p, ds, stat, factor, query, key, a.reach);
        const struct pl_panel_weights w = pl_round_weights<T>(ds);
        pl_ptx_wgmma_fence();
        pl_add_panels<T, D>(dq, w, k);
        pl_end_products();
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t i = query + pl_lane() / 4 + half * 8;
        if (i < t.length) pl_store_part<D>(a.dq, t.row0 + i, col, a.dim, dq[0], half, a.scale);
    }
#else
    (void)a;
    __trap();
#endif
}

#define HOPPER(kernel, T, D)                                                                       \
    { kernel##_hopper<T, D>, D, PL_HOPPER_OWN, PL_HOPPER_THREADS, hopper_layout<D>::BYTES }
#define HOPPERS(T)                                                                                 \
    static const struct pl_attention_instance dkv_hopper_##T[] = {                                 \
        HOPPER(keys, pl_stored_##T, 64), HOPPER(keys, pl_stored_##T, 128), {}};                    \
    static const struct pl_attention_instance dq_hopper_##T[] = {                                  \
        HOPPER(queries, pl_stored_##T, 64), HOPPER(queries, pl_stored_##T, 128), {}};
PL_NARROW_MAP(HOPPERS)

#define HOPPER_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(keys_hopper<pl_stored_##T, 64>),                                                \
        PL_CUDA_KERNEL(keys_hopper<pl_stored_##T, 128>),                                           \
        PL_CUDA_KERNEL(queries_hopper<pl_stored_##T, 64>),                                         \
        PL_CUDA_KERNEL(queries_hopper<pl_stored_##T, 128>),

/* Sets the instances of a call that these kernels take; returns false for others. */
static bool pick_hopper(struct pl_device *dev, enum pl_dtype t, uint32_t dim,
                        const struct pl_attention_instance **dkv,
                        const struct pl_attention_instance **dq) {
    const struct pl_attention_instance *keys = NULL, *queries = NULL;
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        keys = pl_hopper_pick(dev, dkv_hopper_##T, dim);                                           \
        queries = pl_hopper_pick(dev, dq_hopper_##T, dim);                                         \
        break;
    switch (t) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        break;
    }
#undef OF_TYPE
    if (!keys || !queries) return false;
    *dkv = keys;
    *dq = queries;
    return true;
}

#endif
