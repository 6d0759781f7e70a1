/* grouped_tensor.cuh - grouped products on tensor cores.
 *
 * A block of four warps computes M*32 rows by 128 columns of C at a time; a warp M*16 rows by 64
 * columns. Steps of 32 along the inner dimension are copied to shared memory while earlier ones are
 * multiplied. Both operands are of one type T of 16 bits, begin on 16 bytes and stride by whole 16
 * bytes, and their sizes are multiples of 8 along their rows; so are the columns of C, whose
 * elements are stored two at a time.
 *   S1  a row of a tile in shared memory is an odd number of 16-byte units long, so the eight rows
 *       of an ldmatrix lie in different banks
 *   S2  what lies past the sizes of a part is zero in shared memory, and is not read
 * Needs: grouped_tiles.cuh (parts), ptx.cuh (tensor cores, asynchronous copies). */
#ifndef PL_RUNTIME_KERNELS_CUDA_GROUPED_TENSOR_CUH
#define PL_RUNTIME_KERNELS_CUDA_GROUPED_TENSOR_CUH

#include "estimator/card/cards.h"
#include "runtime/kernels/cuda/grouped_tiles.cuh"
#include "runtime/kernels/cuda/ptx.cuh"

static constexpr uint32_t PL_GROUPED_THREADS = 128, PL_GROUPED_COLS = 128;
static constexpr uint32_t PL_GROUPED_DEPTH = 32; /* of a step */
static constexpr uint32_t PL_GROUPED_STEPS = 3;  /* in shared memory */

/* A tile of an operand in shared memory: SIDE rows of PL_GROUPED_DEPTH, or PL_GROUPED_DEPTH rows of
 * SIDE. */
template <bool K_FIRST, uint32_t SIDE> struct pl_grouped_tile {
    static constexpr uint32_t ROWS = K_FIRST ? PL_GROUPED_DEPTH : SIDE;
    static constexpr uint32_t COLS = K_FIRST ? SIDE : PL_GROUPED_DEPTH;
    static constexpr uint32_t PITCH = COLS + 8; /* S1 */
    static constexpr uint32_t SIZE = ROWS * PITCH;
    static constexpr uint32_t PER_ROW = COLS / 8; /* pieces of 16 bytes */
    static constexpr uint32_t STEP = PL_GROUPED_THREADS / PER_ROW;
};

/* The piece of a tile that a thread copies, and those STEP rows further each. */
template <bool K_FIRST, uint32_t SIDE> struct pl_grouped_source {
    typedef pl_grouped_tile<K_FIRST, SIDE> tile;
    const uint16_t *src;
    uint64_t ld;
    uint32_t sides;

    __device__ __forceinline__ void begin(const pl_mat<pl_either> &m, uint64_t row, uint64_t col,
                                          uint64_t all_sides) {
        src = (const uint16_t *)m.p + (row + threadIdx.x / tile::PER_ROW) * m.ld + col +
              threadIdx.x % tile::PER_ROW * 8;
        ld = m.ld;
        sides = (uint32_t)all_sides;
    }

    /* Starts copying the next step, of which `depth` elements are there. */
    __device__ __forceinline__ void copy(uint16_t *to, uint64_t depth) {
        const uint32_t row = threadIdx.x / tile::PER_ROW, col = threadIdx.x % tile::PER_ROW * 8;
        const uint32_t rows = K_FIRST ? (uint32_t)pl_least(depth, PL_GROUPED_DEPTH) : sides;
        const uint64_t cols = K_FIRST ? sides : depth;
        to += row * tile::PITCH + col;
#pragma unroll
        for (uint32_t r = 0; r < tile::ROWS; r += tile::STEP)
            pl_ptx_copy_16(to + r * tile::PITCH, src + r * ld, row + r < rows && col < cols);
        src += K_FIRST ? PL_GROUPED_DEPTH * ld : PL_GROUPED_DEPTH;
    }
};

/* Fragments (ptx.cuh) of 16 x 16 of A from row `side` and of B from column `side` on. */
template <bool K_FIRST, uint32_t SIDE>
static __device__ __forceinline__ void pl_grouped_fragment(uint32_t (&r)[4], const uint16_t *tile,
                                                           uint32_t side, uint32_t k, bool is_a) {
    constexpr uint32_t PITCH = pl_grouped_tile<K_FIRST, SIDE>::PITCH;
    const uint32_t lane = threadIdx.x % PL_WARP, row = lane % 16, col = lane / 16 * 8;
    uint32_t x[4];
    if (K_FIRST)
        pl_ptx_ldmatrix_x4_trans(x, tile + (k + row) * PITCH + side + col);
    else
        pl_ptx_ldmatrix_x4(x, tile + (side + row) * PITCH + k + col);
    /* The two in the middle are side before k, or k before side, as the operand is stored. */
    const bool swap = K_FIRST == is_a;
    r[0] = x[0], r[1] = swap ? x[2] : x[1], r[2] = swap ? x[1] : x[2], r[3] = x[3];
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST, int M>
static __device__ __forceinline__ void pl_grouped_multiply(float (&sum)[M][8][4], const uint16_t *a,
                                                           const uint16_t *b) {
    const uint32_t warp = threadIdx.x / PL_WARP;
    const uint32_t row = warp / 2 * M * 16, col = warp % 2 * 64;
#pragma unroll
    for (uint32_t k = 0; k < PL_GROUPED_DEPTH; k += 16) {
        uint32_t x[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            pl_grouped_fragment<A_K_FIRST, M * 32>(x[m], a, row + m * 16, k, true);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            uint32_t y[4];
            pl_grouped_fragment<B_K_FIRST, PL_GROUPED_COLS>(y, b, col + n * 16, k, false);
#pragma unroll
            for (int m = 0; m < M; m++) {
                pl_ptx_mma<T>(sum[m][2 * n], x[m], y);
                pl_ptx_mma<T>(sum[m][2 * n + 1], x[m], y + 2);
            }
        }
    }
}

static __device__ __forceinline__ void pl_grouped_get_pair(const float *p, float (&x)[2]) {
    const float2 pair = *(const float2 *)p;
    x[0] = pair.x, x[1] = pair.y;
}
template <typename S>
static __device__ __forceinline__ void pl_grouped_get_pair(const S *p, float (&x)[2]) {
    pl_halves<S>::unpack(*(const uint32_t *)p, &x[0], &x[1]);
}
static __device__ __forceinline__ void pl_grouped_put_pair(float *p, float a, float b) {
    *(float2 *)p = make_float2(a, b);
}
template <typename S>
static __device__ __forceinline__ void pl_grouped_put_pair(S *p, float a, float b) {
    *(uint32_t *)p = pl_halves<S>::pack(a, b);
}

/* Stores a thread's part of C: two columns of rows g and g + 8 of every 16 x 8 (ptx.cuh). */
template <typename S, int M>
static __device__ __forceinline__ void pl_grouped_store(const pl_grouped &g, const pl_part &p,
                                                        const float (&sum)[M][8][4]) {
    const uint32_t warp = threadIdx.x / PL_WARP, lane = threadIdx.x % PL_WARP;
    const uint32_t row0 = warp / 2 * M * 16 + lane / 4, col0 = warp % 2 * 64 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const uint32_t row = row0 + i * 8;
        if (row >= p.rows) continue;
        S *c = (S *)g.c.p + (p.c_row + row) * g.c.ld + p.c_col;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const uint32_t col = col0 + n * 8;
            float old[2] = {0.0f, 0.0f};
            if (col >= p.cols) continue;
            if (g.adds) pl_grouped_get_pair(c + col, old);
            const float *x = &sum[i / 2][n][i % 2 * 2];
            pl_grouped_put_pair(c + col, pl_finished(g, p, col, x[0], old[0]),
                                pl_finished(g, p, col + 1, x[1], old[1]));
        }
    }
}

template <bool A_K_FIRST, bool B_K_FIRST, int M> struct pl_grouped_shared {
    static constexpr uint32_t A = pl_grouped_tile<A_K_FIRST, M * 32>::SIZE;
    static constexpr uint32_t STEP = A + pl_grouped_tile<B_K_FIRST, PL_GROUPED_COLS>::SIZE;
    static constexpr uint32_t BYTES = PL_GROUPED_STEPS * STEP * sizeof(uint16_t);
};

/* The sums of one part. */
template <typename T, bool A_K_FIRST, bool B_K_FIRST, int M>
static __device__ __forceinline__ void pl_grouped_part(const pl_grouped &g, const pl_part &p,
                                                       uint16_t *steps, float (&sum)[M][8][4]) {
    typedef pl_grouped_shared<A_K_FIRST, B_K_FIRST, M> shared;
    pl_grouped_source<A_K_FIRST, M * 32> a;
    pl_grouped_source<B_K_FIRST, PL_GROUPED_COLS> b;
    a.begin(g.a, p.a_row, p.a_col, p.rows);
    b.begin(g.b, p.b_row, p.b_col, p.cols);
    const uint32_t n = (uint32_t)((p.depth + PL_GROUPED_DEPTH - 1) / PL_GROUPED_DEPTH);
    uint32_t copied = 0, to = 0, from = 0;
    __syncthreads(); /* the steps of the part before are read */
#pragma unroll
    for (uint32_t i = 0; i < PL_GROUPED_STEPS - 1; i++, copied++, to++) {
        if (copied < n) {
            a.copy(steps + to * shared::STEP, p.depth - copied * PL_GROUPED_DEPTH);
            b.copy(steps + to * shared::STEP + shared::A, p.depth - copied * PL_GROUPED_DEPTH);
        }
        pl_ptx_copy_commit();
    }
    for (uint32_t i = 0; i < n; i++, copied++) {
        pl_ptx_copy_wait<PL_GROUPED_STEPS - 2>();
        __syncthreads(); /* step i is there, and that before it is read */
        if (copied < n) {
            a.copy(steps + to * shared::STEP, p.depth - copied * PL_GROUPED_DEPTH);
            b.copy(steps + to * shared::STEP + shared::A, p.depth - copied * PL_GROUPED_DEPTH);
        }
        pl_ptx_copy_commit();
        to = to + 1 < PL_GROUPED_STEPS ? to + 1 : 0;
        pl_grouped_multiply<T, A_K_FIRST, B_K_FIRST>(sum, steps + from * shared::STEP,
                                                     steps + from * shared::STEP + shared::A);
        from = from + 1 < PL_GROUPED_STEPS ? from + 1 : 0;
    }
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST, int M>
static __global__ void __launch_bounds__(PL_GROUPED_THREADS)
    pl_grouped_tensor(const pl_grouped g, uint64_t tiles) {
    typedef pl_grouped_shared<A_K_FIRST, B_K_FIRST, M> shared;
    PL_SHARED(uint16_t, steps); /* the steps, then the offsets */
    int32_t *offsets = (int32_t *)((char *)steps + shared::BYTES);
    pl_share_offsets(g, offsets);
    for (uint64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
        pl_part p;
        float sum[M][8][4] = {};
        if (!pl_part_find<A_K_FIRST, B_K_FIRST, M * 32, PL_GROUPED_COLS>(g, offsets, number, &p))
            continue;
        pl_grouped_part<T, A_K_FIRST, B_K_FIRST, M>(g, p, steps, sum);
#define STORE(S)                                                                                   \
    case PL_DTYPE_##S:                                                                             \
        pl_grouped_store<pl_stored_##S>(g, p, sum);                                                \
        break;
        switch (g.c.dtype) {
            PL_FLOAT_MAP(STORE)
        default:
            break;
        }
#undef STORE
    }
}

#endif
