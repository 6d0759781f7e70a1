/* gemm_pack.h - blocks of the operands of a product, laid out for its tiles.
 *
 * The right operand is copied into panels of at most PL_TILE_COLS columns, so that a tile reads it
 * front to back; the left one is used where it lies when it is fp32 with k along its rows, since a
 * tile asks for single elements of it. Narrow types are widened on the way: a product of them costs
 * what one of fp32 does. Columns of a panel after the last are zeros, up to a whole vector.
 *   P1  an element of a block is the stored number: packing rounds nothing
 * Needs: simd.h, tile.h. */
#ifndef PL_RUNTIME_KERNELS_CPU_GEMM_PACK_H
#define PL_RUNTIME_KERNELS_CPU_GEMM_PACK_H

#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/tile.h"

/* A part of an operand: `side` rows of op(A) or columns of op(B) from side0, and k.
 * pairs: of operands in bf16, at a level that multiplies pairs. Blocks and panels then have a pair
 * of neighbours along k in the place of every fp32 number, k0 is even, and an odd depth is made
 * even by zeros. gemm_pairs.c packs them. */
struct pl_block {
    uint64_t side0, side, k0, depth;
    bool pairs;
    bool copied; /* rows of op(A) are, even if they could be used in place */
};

/* Rows of op(A) in fp32: element (r,k) is p[r/G*group + r%G*rs + k*ks], G = PL_TILE_MAX_ROWS. */
struct pl_left {
    const float *p;
    size_t rs, ks, group;
};
/* True if pairs along the rows of a matrix in bf16 can be read where they lie. */
static inline bool pl_view_is_paired(const struct pl_view *v) {
    return v->cols % 2 == 0 && v->ld % 2 == 0 && (uintptr_t)v->p % sizeof(float) == 0;
}
/* True if such rows are copied. k_first: A is stored [k][rows]. */
static inline bool pl_left_is_copied(const struct pl_view *a, bool k_first, bool pairs) {
    return k_first || (pairs ? !pl_view_is_paired(a) : a->dtype != PL_DTYPE_F32);
}
/* panel: pl_gemm_room().left where rows are copied; then side <= pl_gemm_rows(). */
struct pl_left PL_LEVEL_NAME(pl_gemm_left)(const struct pl_view *a, bool k_first,
                                           const struct pl_block *at, float *panel);

static inline const float *pl_left_at(const struct pl_left *l, uint64_t row) {
    return l->p + row / PL_TILE_MAX_ROWS * l->group + row % PL_TILE_MAX_ROWS * l->rs;
}

/* panel[depth][width] = columns of op(B); width = whole vectors.
 * k_first: B is stored [k][columns]; else at most PL_TILE_COLS columns. */
void PL_LEVEL_NAME(pl_gemm_right)(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                  uint32_t width, float *panel);

#if PL_HAS_PAIRS
/* gemm_pairs.c: both for blocks of pairs. */
struct pl_left PL_LEVEL_NAME(pl_pairs_left)(const struct pl_view *a, bool k_first,
                                            const struct pl_block *at, float *panel);
void PL_LEVEL_NAME(pl_pairs_right)(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                   uint32_t width, float *panel);
#endif

/* Either of both, as the block asks. */
static inline struct pl_left pl_block_left(const struct pl_view *a, bool k_first,
                                           const struct pl_block *at, float *panel) {
#if PL_HAS_PAIRS
    if (at->pairs) return PL_LEVEL_NAME(pl_pairs_left)(a, k_first, at, panel);
#endif
    return PL_LEVEL_NAME(pl_gemm_left)(a, k_first, at, panel);
}
static inline void pl_block_right(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                  uint32_t width, float *panel) {
#if PL_HAS_PAIRS
    if (at->pairs) {
        PL_LEVEL_NAME(pl_pairs_right)(b, k_first, at, width, panel);
        return;
    }
#endif
    PL_LEVEL_NAME(pl_gemm_right)(b, k_first, at, width, panel);
}

/* ahead = the memory of a block of a matrix. */
static inline void pl_look_ahead(struct pl_ahead *ahead, const struct pl_view *v, bool k_first,
                                 const struct pl_block *at) {
    const uint64_t element = pl_float_bytes(v->dtype);
    ahead->p = pl_at(v, k_first ? at->k0 : at->side0, k_first ? at->side0 : at->k0);
    ahead->rows = at->side == 0 ? 0 : k_first ? at->depth : at->side;
    ahead->row_bytes = v->ld * element;
    ahead->bytes = (k_first ? at->side : at->depth) * element;
    ahead->at = 0;
}

#endif
