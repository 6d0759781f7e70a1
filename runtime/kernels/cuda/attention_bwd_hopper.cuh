/* attention_bwd_hopper.cuh - the gradients of attention by the matrix instructions of sm_90a;
 * attention_bwd.cu includes it, whose passes over keys and over queries these are. Own rows lie in
 * shared memory for the whole walk, and the walked tiles come into two buffers. Shared bytes are
 * 1,024 D, and 2 KiB for stats and alignment: 130 KiB at D = 128, one block a multiprocessor.
 * Registers (nvcc 13.0) of keys and queries: D = 64 160 and 122, 128 226 and 156, none spilled. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_BWD_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_BWD_HOPPER_CUH

#include "runtime/kernels/cuda/attention_hopper.cuh"

/* Shared elements: two tiles of own rows, two buffers of two walked tiles, stats of both, barriers
 * of both. */
template <int D> struct hopper_layout {
    static constexpr uint32_t OWN = PL_HOPPER_OWN * D, TILE = PL_HOPPER_WALKED * D;
    static constexpr uint32_t STATS = 2 * OWN + 4 * TILE;
    static constexpr uint32_t BARRIERS = STATS + 2 * PL_HOPPER_WALKED * 4;
    static constexpr uint32_t BYTES = PL_PANEL_ALIGN + BARRIERS * 2 + 2 * sizeof(struct pl_barrier);
};

#if PL_PTX_IS_HOPPER

/* Turns of the walk use the buffers in turn: the first of the two walked tiles, the barrier they
 * come to, and the parity of its phase. */
template <int D> static __device__ __forceinline__ uint16_t *tile_of(uint16_t *own, uint32_t turn) {
    return own + 2 * hopper_layout<D>::OWN + turn % 2 * 2 * hopper_layout<D>::TILE;
}
template <int D>
static __device__ __forceinline__ struct pl_barrier *barrier_of(uint16_t *own, uint32_t turn) {
    return (struct pl_barrier *)(own + hopper_layout<D>::BARRIERS) + turn % 2;
}
template <int D> static __device__ __forceinline__ void wait_for(uint16_t *own, uint32_t turn) {
    pl_ptx_barrier_wait(barrier_of<D>(own, turn), turn / 2 % 2);
}

/* Starts to load the walked rows of two matrices; `own_rows` of two come to the same barrier. One
 * thread calls it. */
template <int D>
static __device__ __forceinline__ void load_walked(uint16_t *own, uint32_t turn, uint32_t own_rows,
                                                   const CUtensorMap *x, const CUtensorMap *y,
                                                   uint32_t head, uint32_t row) {
    uint16_t *tile = tile_of<D>(own, turn);
    struct pl_barrier *comes = barrier_of<D>(own, turn);
    pl_ptx_barrier_expect(comes, pl_panel_bytes<D>(2 * (own_rows + PL_HOPPER_WALKED)));
    pl_panel_load<D, PL_HOPPER_WALKED>(tile, x, head, row, comes);
    pl_panel_load<D, PL_HOPPER_WALKED>(tile + hopper_layout<D>::TILE, y, head, row, comes);
}

/* Starts to load own rows of two matrices, to the barrier of the first turn. One thread calls
 * it. */
template <int D>
static __device__ __forceinline__ void load_own(uint16_t *own, const CUtensorMap *x,
                                                const CUtensorMap *y, uint32_t head, uint32_t row) {
    struct pl_barrier *comes = barrier_of<D>(own, 0);
    pl_panel_load<D, PL_HOPPER_OWN>(own, x, head, row, comes);
    pl_panel_load<D, PL_HOPPER_OWN>(own + hopper_layout<D>::OWN, y, head, row, comes);
}

/* Starts to load the queries of a turn and their gradients, and to copy their stats. */
template <int D>
static __device__ __forceinline__ void
load_queries(const struct pl_attention &a, const struct pl_attention_maps &maps,
             const struct pl_tile &t, uint16_t *own, uint32_t turn, uint32_t own_rows,
             uint32_t head, uint32_t query) {
    float2 *stats = (float2 *)(own + hopper_layout<D>::STATS) + turn % 2 * PL_HOPPER_WALKED;
    if (threadIdx.x == 0)
        load_walked<D>(own, turn, own_rows, &maps.q, &maps.go, head, t.row0 + query);
    if (threadIdx.x < PL_HOPPER_WALKED)
        pl_ptx_copy_8(stats + threadIdx.x,
                      a.stats + (uint64_t)head * a.n_tokens + t.row0 + query + threadIdx.x,
                      query + threadIdx.x < t.length);
    pl_ptx_copy_commit();
}

#endif

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 1)
    keys_hopper(const struct pl_attention a,
                const __grid_constant__ struct pl_attention_maps maps) {
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
    const uint32_t key = t.first + pl_warp() * 16;
    const float factor = a.scale * PL_LOG2_E;
    uint32_t head = part.first, query = queries.first, turn = 0;
    if (threadIdx.x == 0) pl_make_barriers(barrier_of<D>(own, 0));
    load_queries<D>(a, maps, t, own, turn, KEYS, head, query);
    if (threadIdx.x == 0) load_own<D>(own, &maps.k, &maps.v, part.kv_head, t.row0 + t.first);
    for (bool more = true; more; turn++) {
        const uint32_t here = query;
        uint16_t *q = tile_of<D>(own, turn), *go = q + layout::TILE;
        const float2 *stat = (const float2 *)(own + layout::STATS) + turn % 2 * QUERIES;
        float p[1][QUERIES / 8][4], ds[1][QUERIES / 8][4];
        query += QUERIES;
        pl_ptx_copy_wait<0>();
        __syncthreads(); /* barriers are made, stats are here, the other buffer is used */
        if (query >= queries.end) query = queries.first, head++;
        more = head < part.end;
        if (more) load_queries<D>(a, maps, t, own, turn + 1, 0, head, query);
        wait_for<D>(own, turn);
        if (here + QUERIES > t.length) {
            pl_panel_clear<D>(q, t.length - here);
            pl_panel_clear<D>(go, t.length - here);
            pl_end_clearing();
        }
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
    (void)a, (void)maps;
    __trap();
#endif
}

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 1)
    queries_hopper(const struct pl_attention a,
                   const __grid_constant__ struct pl_attention_maps maps) {
#if PL_PTX_IS_HOPPER
    typedef hopper_layout<D> layout;
    constexpr uint32_t QUERIES = PL_HOPPER_OWN, KEYS = PL_HOPPER_WALKED;
    PL_SHARED(uint16_t, memory);
    const uint32_t head = blockIdx.x % a.heads;
    const uint32_t col = head * a.dim, kv_head = head / a.group;
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
    if (threadIdx.x == 0) {
        pl_make_barriers(barrier_of<D>(own, 0));
        load_walked<D>(own, 0, QUERIES, &maps.k, &maps.v, kv_head, t.row0 + keys.first);
        load_own<D>(own, &maps.q, &maps.go, head, t.row0 + t.first);
    }
    uint32_t turn = 0;
    for (uint32_t key = keys.first; key < keys.end; key += KEYS, turn++) {
        uint16_t *k = tile_of<D>(own, turn);
        float p[1][KEYS / 8][4], ds[1][KEYS / 8][4];
        __syncthreads(); /* barriers are made, the other buffer is used */
        if (key + KEYS < keys.end && threadIdx.x == 0)
            load_walked<D>(own, turn + 1, 0, &maps.k, &maps.v, kv_head, t.row0 + key + KEYS);
        wait_for<D>(own, turn);
        if (key + KEYS > t.length) {
            pl_panel_clear<D>(k, t.length - key);
            pl_end_clearing();
        }
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
    (void)a, (void)maps;
    __trap();
#endif
}

#define HOPPER(kernel, T, D)                                                                       \
    { kernel##_hopper<T, D>, D, hopper_layout<D>::BYTES }
#define HOPPERS(T)                                                                                 \
    static const struct pl_hopper_instance dkv_hopper_##T[] = {HOPPER(keys, pl_stored_##T, 64),    \
                                                               HOPPER(keys, pl_stored_##T, 128)};  \
    static const struct pl_hopper_instance dq_hopper_##T[] = {                                     \
        HOPPER(queries, pl_stored_##T, 64), HOPPER(queries, pl_stored_##T, 128)};
PL_NARROW_MAP(HOPPERS)

#define HOPPER_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(keys_hopper<pl_stored_##T, 64>),                                                \
        PL_CUDA_KERNEL(keys_hopper<pl_stored_##T, 128>),                                           \
        PL_CUDA_KERNEL(queries_hopper<pl_stored_##T, 64>),                                         \
        PL_CUDA_KERNEL(queries_hopper<pl_stored_##T, 128>),

/* The instances of a call and its maps. */
struct hopper_passes {
    const struct pl_hopper_instance *dkv, *dq;
    struct pl_attention_maps maps;
};

/* False: these kernels do not take the call, which tensor cores take. */
static bool pick_hopper(struct pl_device *dev, const struct pl_call *c,
                        const struct pl_attention *a, struct hopper_passes *out) {
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        out->dkv = pl_hopper_pick(dev, dkv_hopper_##T, a->dim);                                    \
        out->dq = pl_hopper_pick(dev, dq_hopper_##T, a->dim);                                      \
        break;
    switch (c->in[0].dtype) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        break;
    }
#undef OF_TYPE
    const PFN_cuTensorMapEncodeTiled_v12000 encode =
        out->dkv && out->dq ? pl_find_map_encoder() : NULL;
    return pl_make_maps(encode, c, a, &out->maps) &&
           pl_make_map(encode, &c->in[5], a->heads, a->dim, &out->maps.go);
}

static pl_err run_hopper(struct pl_device *dev, const struct pl_attention *a,
                         const struct hopper_passes *p) {
    PL_TRY(pl_hopper_launch(dev, a, &p->maps, p->dkv, a->kv_heads * a->parts));
    return pl_hopper_launch(dev, a, &p->maps, p->dq, a->heads);
}

#endif
