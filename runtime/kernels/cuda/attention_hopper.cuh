/* attention_hopper.cuh - what both directions of attention by the matrix instructions of sm_90a
 * share: tiles in panels of shared memory (hopper.cuh, W2), loads and products of them.
 *
 * Two warpgroups of a block own 64 rows each and share the walked tiles, which have 64 rows. One
 * thread starts the loads, and products read tiles by themselves: no element of them passes through
 * a register, so that a warpgroup holds its sums and the 64 x 64 scores alone. The walk, the masks
 * and the bits are those of the tensor kernels (attention.cuh). A load does not end where its
 * sequence does, so pl_panel_clear makes A2 true of the walked rows that weights multiply; other
 * rows past the end are hidden by the mask, or are own rows and not stored.
 *
 * No GPU has run these kernels yet: `-Dhopper=true` alone compiles them. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "runtime/kernels/cuda/attention.cuh"
#include "runtime/kernels/cuda/hopper.cuh"

enum { PL_HOPPER_THREADS = 2 * PL_WARPGROUP, PL_HOPPER_OWN = 128, PL_HOPPER_WALKED = 64 };

/* The matrices of a call as tensors {head size, heads, rows}, in boxes of PL_HOPPER_WALKED rows. */
struct pl_attention_maps {
    CUtensorMap q, k, v, go; /* go: backward */
};

/* The rows of the warpgroup in a tile of PL_HOPPER_OWN. */
static __device__ __forceinline__ uint16_t *pl_own_rows(uint16_t *tile) {
    return tile + threadIdx.x / PL_WARPGROUP * 64 * PL_PANEL_COLS;
}

#if PL_PTX_IS_HOPPER

/* Starts to load ROWS rows of a head from row `row` of the batch on. The barrier expects
 * pl_panel_bytes of it from elsewhere. One thread calls it. */
template <int D, uint32_t ROWS>
static __device__ __forceinline__ void pl_panel_load(uint16_t *dst, const CUtensorMap *map,
                                                     uint32_t head, uint32_t row,
                                                     struct pl_barrier *comes) {
#pragma unroll
    for (uint32_t col = 0; col < D; col += PL_PANEL_COLS)
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r += PL_HOPPER_WALKED)
            pl_ptx_load_box(dst + col * ROWS + r * PL_PANEL_COLS, map, col, head, row + r, comes);
}

template <int D> static __device__ __forceinline__ uint32_t pl_panel_bytes(uint32_t rows) {
    return rows * D * sizeof(uint16_t);
}

/* Makes the barriers of two tiles that are walked. One thread calls it. */
static __device__ __forceinline__ void pl_make_barriers(struct pl_barrier *two) {
    pl_ptx_barrier_make(two, 1);
    pl_ptx_barrier_make(two + 1, 1);
    pl_ptx_proxy_fence();
}

/* Makes zeros of the rows of a walked tile from `first` on, as A2 has it: a load brings rows of the
 * next sequence there, or of none, which hold anything. All threads call it. */
template <int D>
static __device__ __forceinline__ void pl_panel_clear(uint16_t *walked, uint32_t first) {
    constexpr uint32_t UNITS = PL_PANEL_COLS / 8;
    for (uint32_t i = first * UNITS + threadIdx.x; i < PL_HOPPER_WALKED * UNITS;
         i += PL_HOPPER_THREADS)
#pragma unroll
        for (uint32_t panel = 0; panel < D / PL_PANEL_COLS; panel++)
            pl_ptx_clear_16(walked + (panel * PL_HOPPER_WALKED * UNITS + i) * 8);
}

/* Ends the clearing of tiles, for all threads and for products (W3). */
static __device__ __forceinline__ void pl_end_clearing(void) {
    pl_ptx_proxy_fence();
    __syncthreads();
}

/* Begins c[64, 64] = own[64, D] walked[64, D]^T. */
template <typename T, int D>
static __device__ __forceinline__ void pl_multiply_panels(float (&c)[1][PL_HOPPER_WALKED / 8][4],
                                                          const uint16_t *own,
                                                          const uint16_t *walked) {
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const int panel = i / 4 * PL_PANEL_COLS, col = i % 4 * 16;
        pl_ptx_wgmma_tiles<T>(c[0], pl_panel(own + panel * PL_HOPPER_OWN + col, 0),
                              pl_panel(walked + panel * PL_HOPPER_WALKED + col, 0), i > 0);
    }
}

/* The weights of a product, rounded to T: its first operand, in registers. */
struct pl_panel_weights {
    uint32_t a[PL_HOPPER_WALKED / 16][4];
};

template <typename T>
static __device__ __forceinline__ struct pl_panel_weights
pl_round_weights(const float (&w)[1][PL_HOPPER_WALKED / 8][4]) {
    struct pl_panel_weights out;
#pragma unroll
    for (int k = 0; k < PL_HOPPER_WALKED / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out.a[k][i] = pl_halves<T>::pack(w[0][2 * k + i / 2][i % 2 * 2],
                                             w[0][2 * k + i / 2][i % 2 * 2 + 1]);
    return out;
}

/* Begins sums[64, D] += w[64, 64] walked[64, D]. */
template <typename T, int D>
static __device__ __forceinline__ void pl_add_panels(float (&sums)[1][D / 8][4],
                                                     const struct pl_panel_weights &w,
                                                     const uint16_t *walked) {
    constexpr uint32_t PANEL_BYTES = PL_HOPPER_WALKED * PL_PANEL_COLS * sizeof *walked;
#pragma unroll
    for (int k = 0; k < PL_HOPPER_WALKED / 16; k++)
        pl_ptx_wgmma_rows<T>(sums[0], w.a[k],
                             pl_panel(walked + k * 16 * PL_PANEL_COLS, PANEL_BYTES));
}

/* Ends the products that were begun since pl_ptx_wgmma_fence. */
static __device__ __forceinline__ void pl_end_products(void) {
    pl_ptx_wgmma_commit();
    pl_ptx_wgmma_wait();
}

#endif

/* ---- the call ---- */

typedef void (*pl_hopper_kernel)(struct pl_attention, struct pl_attention_maps);

/* One instance of a kernel; blocks of all have PL_HOPPER_THREADS and own PL_HOPPER_OWN rows. */
struct pl_hopper_instance {
    pl_hopper_kernel kernel;
    uint32_t dim, shared_bytes; /* as in pl_attention_instance */
};

/* Returns the first of two instances that takes the head size; NULL: neither does, or the GPU is of
 * another kind. */
static inline const struct pl_hopper_instance *
pl_hopper_pick(struct pl_device *dev, const struct pl_hopper_instance (&two)[2], uint32_t dim) {
    if (pl_cuda_of(dev)->sm != 90) return NULL;
    for (int i = 0; i < 2; i++)
        if (dim <= two[i].dim && two[i].shared_bytes <= pl_cuda_of(dev)->shared_max) return &two[i];
    return NULL;
}

/* Returns the function of the driver that makes tensor maps; NULL: the driver has none. */
static inline PFN_cuTensorMapEncodeTiled_v12000 pl_find_map_encoder(void) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                           12000, cudaEnableDefault, &found);
#else
    const cudaError_t e =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    if (e != cudaSuccess) (void)cudaGetLastError();
    const bool is_there = e == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_there ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function) : NULL;
}

/* Makes the map of a matrix of heads; false: it has none, since its rows are not multiples of 16
 * bytes apart or the driver makes none. A launch makes its own maps: this takes no device and about
 * a microsecond of the host, and launches that a graph repeats have theirs. */
static inline bool pl_make_map(PFN_cuTensorMapEncodeTiled_v12000 encode, const struct pl_view *v,
                               uint32_t heads, uint32_t dim, CUtensorMap *out) {
    const cuuint64_t sizes[] = {dim, heads, v->rows};
    const cuuint64_t strides[] = {dim * sizeof(uint16_t), v->ld * sizeof(uint16_t)};
    const cuuint32_t box[] = {PL_PANEL_COLS, 1, PL_HOPPER_WALKED}, steps[] = {1, 1, 1};
    const CUtensorMapDataType type = v->dtype == PL_DTYPE_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                              : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return encode &&
           encode(out, type, 3, v->p, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

/* Makes the maps that both directions need. */
static inline bool pl_make_maps(PFN_cuTensorMapEncodeTiled_v12000 encode, const struct pl_call *c,
                                const struct pl_attention *a, struct pl_attention_maps *out) {
    return pl_make_map(encode, &c->in[PL_ATTENTION_Q], a->heads, a->dim, &out->q) &&
           pl_make_map(encode, &c->in[PL_ATTENTION_K], a->kv_heads, a->dim, &out->k) &&
           pl_make_map(encode, &c->in[PL_ATTENTION_V], a->kv_heads, a->dim, &out->v);
}

static inline pl_err pl_hopper_launch(struct pl_device *dev, const struct pl_attention *a,
                                      const struct pl_attention_maps *maps,
                                      const struct pl_hopper_instance *of, uint32_t heads) {
    const uint64_t blocks = pl_tile_count(a, PL_HOPPER_OWN) * heads;
    if (blocks > PL_GRID_MAX) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(of->kernel, dim3((unsigned)blocks), dim3(PL_HOPPER_THREADS), of->shared_bytes,
              pl_cuda_of(dev)->stream, *a, *maps);
    return pl_cuda_launched();
}

#endif
