/* attention_fwd_hopper.cuh - the forward pass of attention by the matrix instructions of sm_90a;
 * attention_fwd.cu includes it. Exponentials stay in registers, as the first operand of the second
 * product. Shared bytes are 512 D and 1 KiB for alignment: 65 KiB at D = 128, so two blocks are on a
 * multiprocessor, and while one computes exponentials the other multiplies. Registers (nvcc 13.0):
 * D = 64 111, 128 128. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_FWD_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_FWD_HOPPER_CUH

#include "runtime/kernels/cuda/attention_hopper.cuh"

template <typename T, int D>
static __global__ void __launch_bounds__(PL_HOPPER_THREADS, 2)
    forward_hopper(const struct pl_attention a) {
#if PL_PTX_IS_HOPPER
    constexpr uint32_t QUERIES = PL_HOPPER_OWN, KEYS = PL_HOPPER_WALKED;
    PL_SHARED(uint16_t, memory);
    uint16_t *q = pl_panel_align(memory), *k = q + QUERIES * D, *v = k + KEYS * D;
    struct work w;
    if (!find_work<false>(a, QUERIES, &w)) return;
    const struct pl_range keys = pl_keys_seen(a, w.keys, QUERIES, KEYS);
    struct pl_kept own;
    bool writes;
    pl_kept_place *kept = pl_keep(v + KEYS * D, &own, &writes);
    if (writes) keep_walk(kept, a, w, keys.first);
    float sums[1][D / 8][4] = {};
    struct online state[1][2] = {{{-INFINITY, 0.0f}, {-INFINITY, 0.0f}}};
    uint32_t key = (keys.end - 1) / KEYS * KEYS;
    pl_panel_copy<D, QUERIES>(q, w.q, w.queries, w.queries.first, w.col, a.dim);
    pl_panel_copy<D, KEYS>(k, a.k, w.keys, key, w.kv_col, a.dim);
    pl_ptx_copy_commit();
    q = pl_own_rows(q);
    for (;; key -= KEYS) {
        float s[1][KEYS / 8][4];
        pl_arrive_of_copies(); /* keys are here, the values before them are used */
        pl_panel_copy<D, KEYS>(v, a.v, kept->walked(), key, kept->col, a.dim);
        pl_ptx_copy_commit();
        pl_ptx_wgmma_fence();
        pl_multiply_panels<T, D>(s, q, k);
        pl_end_products();
        const uint32_t query = kept->own + pl_warp() * 16;
        if (!pl_all_see(query, 16, key, KEYS, a.reach)) hide<1, KEYS>(s, query, 1, key, a.reach);
        pl_arrive_of_copies(); /* values are here, the keys are used */
        const bool more = key > kept->first;
        if (more) pl_panel_copy<D, KEYS>(k, a.k, kept->walked(), key - KEYS, kept->col, a.dim);
        pl_ptx_copy_commit();
        soften<D, 1, KEYS>(s, sums, state, kept->factor);
        const struct pl_panel_weights p = pl_round_weights<T>(s);
        pl_ptx_wgmma_fence();
        pl_add_panels<T, D>(sums, p, v);
        pl_end_products();
        if (key <= kept->first) break;
    }
    if (a.sinks.p) take_sinks<D, 1>(a, false, sums, state);
    if (find_work<false>(a, QUERIES, &w)) finish<D, 1>(a, w, blockIdx.x % a.heads, sums, state);
#else
    (void)a;
    __trap();
#endif
}

#define HOPPER(T, D)                                                                               \
    {                                                                                              \
        forward_hopper<T, D>, D, PL_HOPPER_OWN, PL_HOPPER_THREADS,                                 \
            PL_PANEL_ALIGN + (PL_HOPPER_OWN + 2 * PL_HOPPER_WALKED) * D * sizeof(uint16_t) +       \
                sizeof(struct pl_kept)                                                             \
    }
#define HOPPERS(T)                                                                                 \
    static const struct pl_attention_instance hopper_##T[] = {                                     \
        HOPPER(pl_stored_##T, 64), HOPPER(pl_stored_##T, 128), {}};
PL_NARROW_MAP(HOPPERS)

#define HOPPER_KERNELS(T)                                                                          \
    PL_CUDA_KERNEL(forward_hopper<pl_stored_##T, 64>),                                             \
        PL_CUDA_KERNEL(forward_hopper<pl_stored_##T, 128>),

static const struct pl_attention_instance *pick_hopper(struct pl_device *dev, enum pl_dtype t,
                                                       uint32_t dim) {
#define OF_TYPE(T)                                                                                 \
    case PL_DTYPE_##T:                                                                             \
        return pl_hopper_pick(dev, hopper_##T, dim);
    switch (t) {
        PL_NARROW_MAP(OF_TYPE)
    default:
        return NULL;
    }
#undef OF_TYPE
}

#endif
