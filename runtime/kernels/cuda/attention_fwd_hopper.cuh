/* attention_fwd_hopper.cuh - the forward pass of attention by the matrix instructions of sm_90a;
 * attention_fwd.cu includes it. Exponentials stay in registers, as the first operand of the second
 * product. Shared bytes are 512 D and 1 KiB for alignment: 65 KiB at D = 128, so two blocks are on
 * a multiprocessor, and while one computes exponentials the other multiplies. Registers (nvcc
 * 13.0): D = 64 93, 128 128 with 2 words spilled. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_FWD_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_FWD_HOPPER_CUH

#include "runtime/kernels/cuda/attention_hopper.cuh"

/* Shared elements: a tile of queries and one each of keys and values; barriers of these two, and
 * pl_kept. */
template <int D> struct forward_layout {
    static constexpr uint32_t K = PL_HOPPER_OWN * D, V = K + PL_HOPPER_WALKED * D;
    static constexpr uint32_t BARRIERS = V + PL_HOPPER_WALKED * D;
    static constexpr uint32_t KEPT_AT = BARRIERS + 2 * sizeof(struct pl_barrier) / 2;
    static constexpr uint32_t BYTES = PL_PANEL_ALIGN + KEPT_AT * 2 + sizeof(struct pl_kept);
};

#if PL_PTX_IS_HOPPER

/* Starts to load keys or values from `row` of the batch on. One thread calls it. */
template <int D>
static __device__ __forceinline__ void load_walked(uint16_t *tile, const CUtensorMap *map,
                                                   uint32_t kv_head, uint32_t row,
                                                   struct pl_barrier *comes) {
    pl_ptx_barrier_expect(comes, pl_panel_bytes<D>(PL_HOPPER_WALKED));
    pl_panel_load<D, PL_HOPPER_WALKED>(tile, map, kv_head, row, comes);
}

#endif

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 2)
    forward_hopper(const struct pl_attention a,
                   const __grid_constant__ struct pl_attention_maps maps) {
#if PL_PTX_IS_HOPPER
    typedef forward_layout<D> layout;
    constexpr uint32_t QUERIES = PL_HOPPER_OWN, KEYS = PL_HOPPER_WALKED;
    PL_SHARED(uint16_t, memory);
    uint16_t *q = pl_panel_align(memory), *k = q + layout::K, *v = q + layout::V;
    struct pl_barrier *keys_come = (struct pl_barrier *)(q + layout::BARRIERS);
    struct pl_barrier *values_come = keys_come + 1;
    struct work w;
    if (!find_work<false>(a, QUERIES, &w)) return;
    const struct pl_range keys = pl_keys_seen(a, w.keys, QUERIES, KEYS);
    struct pl_kept own;
    bool writes;
    pl_kept_place *kept = pl_keep(q + layout::KEPT_AT, &own, &writes);
    uint32_t key = (keys.end - 1) / KEYS * KEYS;
    if (writes) {
        const uint32_t head = blockIdx.x % a.heads;
        keep_walk(kept, a, w, keys.first);
        kept->col = head / a.group; /* boxes are of a head */
        pl_make_barriers(keys_come);
        pl_ptx_barrier_expect(keys_come, pl_panel_bytes<D>(QUERIES + KEYS));
        pl_panel_load<D, QUERIES>(q, &maps.q, head, w.queries.row0 + w.queries.first, keys_come);
        pl_panel_load<D, KEYS>(k, &maps.k, kept->col, kept->row0 + key, keys_come);
    }
    float sums[1][D / 8][4] = {};
    struct online state[1][2] = {{{-INFINITY, 0.0f}, {-INFINITY, 0.0f}}};
    q = pl_own_rows(q);
    for (uint32_t parity = 0;; key -= KEYS, parity ^= 1) {
        float s[1][KEYS / 8][4];
        __syncthreads(); /* the barriers are made, the values before these are used */
        if (threadIdx.x == 0) load_walked<D>(v, &maps.v, kept->col, kept->row0 + key, values_come);
        pl_ptx_barrier_wait(keys_come, parity);
        pl_ptx_wgmma_fence();
        pl_multiply_panels<T, D>(s, q, k);
        pl_end_products();
        const uint32_t query = kept->own + pl_warp() * 16;
        if (!pl_all_see(query, 16, key, KEYS, a.reach)) hide<1, KEYS>(s, query, 1, key, a.reach);
        __syncthreads(); /* the keys are used */
        if (key > kept->first && threadIdx.x == 0)
            load_walked<D>(k, &maps.k, kept->col, kept->row0 + key - KEYS, keys_come);
        soften<D, 1, KEYS>(s, sums, state, kept->factor);
        const struct pl_panel_weights p = pl_round_weights<T>(s);
        pl_ptx_barrier_wait(values_come, parity);
        if (key + KEYS > kept->length) {
            pl_panel_clear<D>(v, kept->length - key);
            pl_end_clearing();
        }
        pl_ptx_wgmma_fence();
        pl_add_panels<T, D>(sums, p, v);
        pl_end_products();
        if (key <= kept->first) break;
    }
    if (a.sinks.p) take_sinks<D, 1>(a, false, sums, state);
    if (find_work<false>(a, QUERIES, &w)) finish<D, 1>(a, w, blockIdx.x % a.heads, sums, state);
#else
    (void)a, (void)maps;
    __trap();
#endif
}

#define HOPPER(T, D)                                                                               \
    { forward_hopper<T, D>, D, forward_layout<D>::BYTES }
#define HOPPERS(T)                                                                                 \
    static const struct pl_hopper_instance hopper_##T[] = {HOPPER(pl_stored_##T, 64),              \
                                                           HOPPER(pl_stored_##T, 128)};
PL_NARROW_MAP(HOPPERS)

#define HOPPER_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(forward_hopper<pl_stored_##T, 64>),                                             \
        PL_CUDA_KERNEL(forward_hopper<pl_stored_##T, 128>),

/* Returns the instance for a call that tensor cores take, and makes its maps; NULL: these kernels
 * do not take it. */
static const struct pl_hopper_instance *pick_hopper(struct pl_device *dev, const struct pl_call *c,
                                                    const struct pl_attention *a,
                                                    struct pl_attention_maps *maps) {
    const struct pl_hopper_instance *of = NULL;
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        of = pl_hopper_pick(dev, hopper_##T, a->dim);                                              \
        break;
    switch (c->in[PL_ATTENTION_Q].dtype) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        break;
    }
#undef OF_TYPE
    return of && pl_make_maps(pl_find_map_encoder(), c, a, maps) ? of : NULL;
}

#endif
