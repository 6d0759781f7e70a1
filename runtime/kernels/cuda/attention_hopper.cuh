/* attention_hopper.cuh - what both directions of attention by the matrix instructions of sm_90a
 * share: tiles in panels of shared memory (hopper.cuh, W2), and products of them.
 *
 * Two warpgroups of a block own 64 rows each and share the walked tiles, which have 64 rows. Products
 * read tiles by themselves: no fragment of them passes through a register, so that a warpgroup holds
 * its sums and the 64 x 64 scores alone. The walk, the masks and the bits are those of the tensor
 * kernels (attention.cuh).
 *
 * No GPU has run these kernels yet: `-Dhopper=true` alone compiles them. */
#ifndef PL_RUNTIME_KERNELS_CUDA_ATTENTION_HOPPER_CUH
#define PL_RUNTIME_KERNELS_CUDA_ATTENTION_HOPPER_CUH

#include "runtime/kernels/cuda/attention.cuh"
#include "runtime/kernels/cuda/hopper.cuh"

enum { PL_HOPPER_THREADS = 2 * PL_WARPGROUP, PL_HOPPER_OWN = 128, PL_HOPPER_WALKED = 64 };

/* Does what pl_tile_copy does, into panels. */
template <int D, uint32_t ROWS>
static __device__ __forceinline__ void pl_panel_copy(uint16_t *dst, const pl_mat<pl_either> &m,
                                                     const struct pl_tile &t, uint32_t first,
                                                     uint32_t col, uint32_t dim) {
    constexpr uint32_t UNITS = D / 8, STEP = PL_HOPPER_THREADS / UNITS;
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "a thread's rows have one place in a group");
    const uint32_t row = threadIdx.x / UNITS, unit = threadIdx.x % UNITS;
    const uint16_t *src =
        (const uint16_t *)m.p + (uint64_t)(t.row0 + first + row) * m.ld + col + unit * 8;
    const uint32_t rows = unit * 8 < dim ? t.length - first : 0;
    dst += pl_panel_at(ROWS, row, unit);
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r += STEP) {
        pl_ptx_copy_16(dst + r * PL_PANEL_COLS, src, r + row < rows);
        src += STEP * m.ld;
    }
}

/* The rows of the warpgroup in a tile of PL_HOPPER_OWN. */
static __device__ __forceinline__ uint16_t *pl_own_rows(uint16_t *tile) {
    return tile + threadIdx.x / PL_WARPGROUP * 64 * PL_PANEL_COLS;
}

#if PL_PTX_IS_HOPPER

/* Waits until what was copied is there, for all threads and for products (W3). */
static __device__ __forceinline__ void pl_arrive_of_copies(void) {
    pl_ptx_copy_wait<0>();
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

/* Instances by head size, for the narrow type of a call; NULL: the GPU is of another kind. */
static inline const struct pl_attention_instance *
pl_hopper_pick(struct pl_device *dev, const struct pl_attention_instance *instances, uint32_t dim) {
    return pl_cuda_of(dev)->sm == 90 ? pl_attention_pick(dev, instances, dim) : NULL;
}

#endif
