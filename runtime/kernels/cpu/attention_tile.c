/* attention_tile.c - small products and packing of tiles of attention.
 *
 * The product is a register-blocked outer product: a group of rows times a few vectors of columns
 * stays in registers while k runs. 6 x 4 vectors of AVX-512 (24 of 32 registers) or 6 x 2 of the
 * 16-register levels hide the latency of two fused multiply-adds per cycle. */
#include "runtime/kernels/cpu/attention.h"
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/vec.h"

#include <string.h>

#if defined(__AVX512F__)
#define TILE_VECTORS 4
#else
#define TILE_VECTORS 2
#endif
#define TILE_ROWS 6

typedef float vec4 __attribute__((vector_size(16)));
typedef float vec4_unaligned __attribute__((vector_size(16), aligned(sizeof(float)), may_alias));

struct panel { /* one group of rows by one group of vectors */
    const float *a, *b;
    float *c;
    size_t rs, ks, ldb, ldc, k;
    bool add;
};

/* rows and vectors are constants wherever this is expanded, so `sum` lives in registers. */
static inline __attribute__((always_inline)) void
multiply_panel(const struct panel *p, const int rows, const int vectors) {
    pl_vec sum[TILE_ROWS][TILE_VECTORS] = {0};
    const float *a = p->a, *b = p->b;
    const size_t rs = p->rs, ks = p->ks, ldb = p->ldb;
    for (size_t k = p->k; k > 0; k--, a += ks, b += ldb) {
        pl_vec column[TILE_VECTORS];
        for (int v = 0; v < vectors; v++)
            column[v] = *(const pl_vec_unaligned *)(b + v * PL_LANES);
        for (int r = 0; r < rows; r++) {
            const float x = a[(size_t)r * rs];
            for (int v = 0; v < vectors; v++)
                sum[r][v] += x * column[v];
        }
    }
    if (p->add)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                *(pl_vec_unaligned *)(p->c + (size_t)r * p->ldc + v * PL_LANES) += sum[r][v];
    else
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                *(pl_vec_unaligned *)(p->c + (size_t)r * p->ldc + v * PL_LANES) = sum[r][v];
}

#define PANEL_NAME(rows, vectors) multiply_##rows##x##vectors
#define PANEL(rows, vectors)                                                                       \
    static void PANEL_NAME(rows, vectors)(const struct panel *p) {                                 \
        multiply_panel(p, rows, vectors);                                                          \
    }
#if TILE_VECTORS == 4
#define PANEL_ROW(X, rows) X(rows, 1) X(rows, 2) X(rows, 3) X(rows, 4)
#define PANEL_ENTRIES(rows)                                                                        \
    { PANEL_NAME(rows, 1), PANEL_NAME(rows, 2), PANEL_NAME(rows, 3), PANEL_NAME(rows, 4) }
#else
#define PANEL_ROW(X, rows) X(rows, 1) X(rows, 2)
#define PANEL_ENTRIES(rows)                                                                        \
    { PANEL_NAME(rows, 1), PANEL_NAME(rows, 2) }
#endif
PANEL_ROW(PANEL, 1)
PANEL_ROW(PANEL, 2)
PANEL_ROW(PANEL, 3)
PANEL_ROW(PANEL, 4)
PANEL_ROW(PANEL, 5)
PANEL_ROW(PANEL, 6)
static void (*const panels[TILE_ROWS][TILE_VECTORS])(const struct panel *p) = {
    PANEL_ENTRIES(1), PANEL_ENTRIES(2), PANEL_ENTRIES(3),
    PANEL_ENTRIES(4), PANEL_ENTRIES(5), PANEL_ENTRIES(6)};

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
    for (uint32_t row = 0; row < t->m; row += TILE_ROWS) {
        const uint32_t rows = t->m - row < TILE_ROWS ? t->m - row : TILE_ROWS;
        const struct extent e = extent_of(t, row, rows);
        for (uint32_t col = e.column; col < t->n;) {
            uint32_t vectors = (t->n - col) / PL_LANES;
            if (vectors > TILE_VECTORS) vectors = TILE_VECTORS;
            const struct panel p = {.a = t->a + row * t->rs + e.first * t->ks,
                                    .b = t->b + e.first * t->ldb + col,
                                    .c = t->c + row * t->ldc + col,
                                    .rs = t->rs,
                                    .ks = t->ks,
                                    .ldb = t->ldb,
                                    .ldc = t->ldc,
                                    .k = e.end > e.first ? e.end - e.first : 0,
                                    .add = t->add};
            panels[rows - 1][vectors - 1](&p);
            col += vectors * PL_LANES;
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
