/* grouped_tiles.cuh - a product for the rows of every expert with the matrix of that expert, as its
 * kernels see it, and the tiles that it is cut into.
 *
 * Which rows are an expert's is known on the device alone. So a launch has as many tiles as any
 * split of the rows can have, in a grid that depends on shapes and the GPU alone, and a block finds
 * in a copy of the offsets which rows its tiles have, if any. Blocks stay and take one tile after
 * another.
 *   E1  every tile is computed by one block, and an element is one chain of additions along the
 *       inner dimension, so no order of blocks and no grid changes a bit
 *   E2  what lies past the rows of an expert is not read, and not written
 * Needs: common.cuh. */
#ifndef PL_RUNTIME_KERNELS_CUDA_GROUPED_TILES_CUH
#define PL_RUNTIME_KERNELS_CUDA_GROUPED_TILES_CUH

#include "runtime/kernels/cuda/common.cuh"

/* C[i,j] (=|+=) alpha * sum over k of A[i,k] B[k,j] + bias[j], for every expert. */
struct pl_grouped {
    pl_mat<pl_either> a, b, c, bias; /* bias.p NULL = none */
    const int32_t *offsets;          /* of the experts of the call, n + 1 */
    uint32_t n;
    uint64_t own; /* rows of W (or of its gradient) that an expert has */
    /* The rows of C in an expert, where they are not those of `offsets`, its columns, and the inner
     * size, where that is not the rows. */
    uint64_t rows, cols, depth;
    uint64_t row_tiles, col_tiles; /* row_tiles: of the call, or of an expert, as rows is */
    float alpha;
    bool adds;
};

/* The part of C that a block computes at a time, and where its operands begin. */
struct pl_part {
    uint32_t expert;
    uint64_t a_row, a_col, b_row, b_col, c_row, c_col;
    uint64_t rows, cols, depth;
};

/* K_FIRST: an operand is stored [k][side], else [side][k]. A is only in the gradient of W, where the
 * rows of an expert are what is summed over. */
template <bool A_K_FIRST, bool B_K_FIRST>
static __device__ __forceinline__ void pl_part_place(const struct pl_grouped &g, uint64_t first,
                                                     uint64_t in_expert, struct pl_part *p) {
    const uint64_t matrix = p->expert * g.own;
    p->a_row = A_K_FIRST ? first : first + in_expert;
    p->a_col = A_K_FIRST ? in_expert : 0;
    p->b_row = A_K_FIRST ? first : B_K_FIRST ? matrix : matrix + p->c_col;
    p->b_col = B_K_FIRST ? p->c_col : 0;
    p->c_row = A_K_FIRST ? matrix + in_expert : first + in_expert;
}

static __device__ __forceinline__ uint64_t pl_least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Expert e owns the row tiles from (offsets[e] - offsets[0]) / ROWS + e to that of e + 1: at least
 * as many as it has, at most one more. Returns false if there is no tile of this number. */
template <bool A_K_FIRST, bool B_K_FIRST, uint32_t ROWS, uint32_t COLS>
static __device__ __forceinline__ bool pl_part_find(const struct pl_grouped &g,
                                                    const int32_t *offsets, uint64_t number,
                                                    struct pl_part *p) {
    const uint64_t tile = number / g.col_tiles;
    uint64_t in_expert, rows;
    if (A_K_FIRST) {
        p->expert = (uint32_t)(tile / g.row_tiles);
        in_expert = tile % g.row_tiles * ROWS;
        rows = g.rows;
    } else {
        uint32_t low = 0, high = g.n; /* the expert lies in [low, high) */
        while (high - low > 1) {
            const uint32_t middle = (low + high) / 2;
            if ((uint32_t)(offsets[middle] - offsets[0]) / ROWS + middle <= tile)
                low = middle;
            else
                high = middle;
        }
        p->expert = low;
        in_expert = (tile - ((uint32_t)(offsets[low] - offsets[0]) / ROWS + low)) * ROWS;
        rows = (uint64_t)(offsets[low + 1] - offsets[low]);
    }
    if (in_expert >= rows) return false;
    p->c_col = number % g.col_tiles * COLS;
    p->rows = pl_least(ROWS, rows - in_expert);
    p->cols = pl_least(COLS, g.cols - p->c_col);
    p->depth = A_K_FIRST ? (uint64_t)(offsets[p->expert + 1] - offsets[p->expert]) : g.depth;
    pl_part_place<A_K_FIRST, B_K_FIRST>(g, (uint64_t)offsets[p->expert], in_expert, p);
    return true;
}

/* Copies the offsets for all threads of a block. */
static __device__ __forceinline__ void pl_share_offsets(const struct pl_grouped &g, int32_t *to) {
    for (uint32_t i = threadIdx.x; i <= g.n; i += blockDim.x)
        to[i] = g.offsets[i];
    __syncthreads();
}

/* The element of C that a sum becomes. */
static __device__ __forceinline__ float pl_finished(const struct pl_grouped &g,
                                                    const struct pl_part &p, uint64_t col,
                                                    float sum, float old) {
    float x = g.alpha * sum;
    if (g.adds) x += old;
    if (g.bias.p) x += g.bias.get(0, p.expert * g.cols + p.c_col + col);
    return x;
}

#endif
