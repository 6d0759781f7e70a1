/* attention_tile.c - small products and packing of tiles of attention. */
#include "runtime/kernels/cpu/attention.h"

static uint32_t clamp_to(int64_t v, uint32_t limit) {
    return v < 0 ? 0 : v > limit ? limit : (uint32_t)v;
}

/* The part that the triangle leaves of the rows [row, row+rows): first column, first and last+1
 * k. */
struct extent {
    uint32_t column, first, end;
};
static struct extent extent_of(const struct pl_tile_product *t, uint32_t row, uint32_t rows) {
    struct extent e = {0, 0, t->k};
    if (t->triangle == PL_TRIANGLE_KEYS_BY_QUERIES)
        e.column = clamp_to(row + t->diag, t->n) / PL_LANES * PL_LANES;
    else if (t->triangle == PL_TRIANGLE_SUM_QUERIES)
        e.first = clamp_to(row + t->diag, t->k);
    else if (t->triangle == PL_TRIANGLE_SUM_KEYS)
        e.end = clamp_to((int64_t)row + rows - t->diag, t->k);
    return e;
}

void PL_LEVEL_NAME(pl_tile_multiply)(const struct pl_tile_product *t) {
    for (uint32_t row = 0; row < t->m; row += PL_TILE_ROWS) {
        const uint32_t rows = t->m - row < PL_TILE_ROWS ? t->m - row : PL_TILE_ROWS;
        const struct extent e = extent_of(t, row, rows);
        for (uint32_t col = e.column; col < t->n;) {
            const uint32_t cols = (uint32_t)pl_tile_cols(t->n - col);
            const struct pl_tile tile = {.a = t->a + row * t->rs + e.first * t->ks,
                                         .b = t->b + e.first * t->ldb + col,
                                         .c = t->c + row * t->ldc + col,
                                         .rs = t->rs,
                                         .ks = t->ks,
                                         .ldb = t->ldb,
                                         .ldc = t->ldc,
                                         .k = e.end > e.first ? e.end - e.first : 0,
                                         .alpha = t->alpha,
                                         .add = t->add,
                                         .pairs = t->pairs};
            PL_LEVEL_NAME(pl_tile_run)(&tile, rows, cols / PL_LANES);
            col += cols;
        }
    }
}

void PL_LEVEL_NAME(pl_tile_pack)(const struct pl_head_rows *h, uint32_t ld, float *dst) {
    const struct pl_block at = {.side0 = h->col, .side = h->dim, .k0 = h->row, .depth = h->n};
    pl_block_right(h->view, true, &at, ld, dst);
}

void PL_LEVEL_NAME(pl_tile_turn)(const struct pl_head_rows *h, uint32_t ld, bool pairs,
                                 float *dst) {
    struct pl_block at = {.side0 = h->row, .side = h->n, .pairs = pairs};
    for (uint64_t d = 0; d < h->dim; d += at.depth, dst += at.depth / (pairs ? 2 : 1) * ld) {
        at.k0 = h->col + d;
        at.depth = pl_u64_min(h->dim - d, PL_GEMM_DEPTH);
        pl_block_right(h->view, false, &at, ld, dst);
    }
}
