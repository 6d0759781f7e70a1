/* attention_tile.c - small products and packing of tiles of attention. */
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/tile.h"

#include <string.h>

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

static uint32_t clamp_to(int64_t v, uint32_t limit) {
    return v < 0 ? 0 : v > limit ? limit : (uint32_t)v;
}

/* What the triangle leaves of the rows [row, row+rows): first column, first and last+1 k. */
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
                                         .alpha = 1.0f,
                                         .add = t->add};
            PL_LEVEL_NAME(pl_tile_run)(&tile, rows, cols / PL_LANES);
            col += cols;
        }
    }
}

void PL_LEVEL_NAME(pl_tile_pack)(const struct pl_head_rows *h, uint32_t ld, float *dst) {
    for (uint32_t r = 0; r < h->n; r++, dst += ld) {
        pl_widen(dst, pl_at(h->view, h->row + r, h->col), h->view->dtype, h->dim);
        for (uint32_t d = h->dim; d < ld; d++)
            dst[d] = 0.0f;
    }
}

/* Four rows by four columns at a time: the shuffles of every level handle that in registers. */
static void transpose_4x4(const float *src, size_t ld, float scale, float *dst) {
    vec4 r0 = *(const vec4_unaligned *)src, r1 = *(const vec4_unaligned *)(src + ld);
    vec4 r2 = *(const vec4_unaligned *)(src + 2 * ld), r3 = *(const vec4_unaligned *)(src + 3 * ld);
    vec4 a = __builtin_shufflevector(r0, r1, 0, 4, 1, 5) * scale;
    vec4 b = __builtin_shufflevector(r2, r3, 0, 4, 1, 5) * scale;
    vec4 c = __builtin_shufflevector(r0, r1, 2, 6, 3, 7) * scale;
    vec4 d = __builtin_shufflevector(r2, r3, 2, 6, 3, 7) * scale;
    *(vec4_unaligned *)dst = __builtin_shufflevector(a, b, 0, 1, 4, 5);
    *(vec4_unaligned *)(dst + PL_ATTENTION_Q) = __builtin_shufflevector(a, b, 2, 3, 6, 7);
    *(vec4_unaligned *)(dst + 2 * PL_ATTENTION_Q) = __builtin_shufflevector(c, d, 0, 1, 4, 5);
    *(vec4_unaligned *)(dst + 3 * PL_ATTENTION_Q) = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}

void PL_LEVEL_NAME(pl_tile_transpose)(const float *src, uint32_t n, uint32_t ld, float scale,
                                      float *dst) {
    const uint32_t whole = n / 4 * 4;
    for (uint32_t d = 0; d < ld; d += 4)
        for (uint32_t r = 0; r < whole; r += 4)
            transpose_4x4(src + (size_t)r * ld + d, ld, scale, dst + d * PL_ATTENTION_Q + r);
    for (uint32_t d = 0; d < ld; d++) {
        float *row = dst + d * PL_ATTENTION_Q;
        for (uint32_t r = whole; r < n; r++)
            row[r] = scale * src[(size_t)r * ld + d];
        for (uint32_t r = n; r < PL_ATTENTION_Q; r++)
            row[r] = 0.0f;
    }
}
