/* tile.c - one function per size of a tile, so that its sums are registers. */
#include "runtime/kernels/cpu/tile.h"

/* Sums are registers only if every loop over them is unrolled. */
#define UNROLLED _Pragma("GCC unroll 16")

/* rows and vectors are constants wherever this is expanded. The product is rounded before it is
 * added: a compiler that fused the two in some tiles only would let the cut into tiles show. */
static inline __attribute__((always_inline)) void
store(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int rows, const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
    const bool add = t->add;
    float *row = t->c;
    UNROLLED for (int r = 0; r < rows; r++, row += t->ldc) {
        pl_vec_unaligned *c = (pl_vec_unaligned *)row;
        if (add)
            UNROLLED for (int v = 0; v < vectors; v++) c[v] += pl_vec_rounded(alpha * sum[r][v]);
        else
            UNROLLED for (int v = 0; v < vectors; v++) c[v] = alpha * sum[r][v];
    }
}

/* The tile below is the next one: its part of C is prefetched while this one is computed. A
 * prefetch after the last row does no harm. */
static inline __attribute__((always_inline)) void multiply(const struct pl_tile *t, const int rows,
                                                           const int vectors) {
    pl_vec sum[PL_TILE_MAX_ROWS][PL_TILE_VECTORS];
    const float *a = t->a, *b = t->b;
    const size_t rs = t->rs, ks = t->ks, ldb = t->ldb;
    UNROLLED for (int r = 0; r < rows; r++) {
        UNROLLED for (int v = 0; v < vectors; v++) {
            sum[r][v] = (pl_vec){0};
            __builtin_prefetch(t->c + (size_t)(r + rows) * t->ldc + v * PL_LANES, 1);
        }
    }
    for (size_t k = t->k; k > 0; k--, a += ks, b += ldb) {
        pl_vec column[PL_TILE_VECTORS];
        UNROLLED for (int v = 0; v < vectors; v++) column[v] = pl_vec_load(b + v * PL_LANES);
        UNROLLED for (int r = 0; r < rows; r++) {
            const float x = a[(size_t)r * rs];
            UNROLLED for (int v = 0; v < vectors; v++) sum[r][v] += x * column[v];
        }
    }
    store(t, sum, rows, vectors);
}

#define TILE_NAME(rows, vectors) multiply_##rows##x##vectors
#define TILE(rows, vectors)                                                                        \
    static void TILE_NAME(rows, vectors)(const struct pl_tile *t) {                                \
        multiply(t, rows, vectors);                                                                \
    }
#define NARROW(rows) TILE(rows, 1)
#define NARROW_ENTRY(rows)                                                                         \
    { TILE_NAME(rows, 1) }
#if PL_TILE_VECTORS == 3
#define WIDE(rows) TILE(rows, 1) TILE(rows, 2) TILE(rows, 3)
#define WIDE_ENTRY(rows)                                                                           \
    { TILE_NAME(rows, 1), TILE_NAME(rows, 2), TILE_NAME(rows, 3) }
#else
#define WIDE(rows) TILE(rows, 1) TILE(rows, 2)
#define WIDE_ENTRY(rows)                                                                           \
    { TILE_NAME(rows, 1), TILE_NAME(rows, 2) }
#endif
WIDE(1)
WIDE(2)
WIDE(3)
WIDE(4)
WIDE(5)
WIDE(6)
#if PL_TILE_ROWS == 8
WIDE(7)
WIDE(8)
NARROW(13)
NARROW(14)
NARROW(15)
NARROW(16)
#else
NARROW(7)
NARROW(8)
#endif
NARROW(9)
NARROW(10)
NARROW(11)
NARROW(12)

static void (*const tiles[PL_TILE_MAX_ROWS][PL_TILE_VECTORS])(const struct pl_tile *t) = {
    WIDE_ENTRY(1),    WIDE_ENTRY(2),    WIDE_ENTRY(3),    WIDE_ENTRY(4),    WIDE_ENTRY(5),
    WIDE_ENTRY(6),
#if PL_TILE_ROWS == 8
    WIDE_ENTRY(7),    WIDE_ENTRY(8),    NARROW_ENTRY(9),  NARROW_ENTRY(10), NARROW_ENTRY(11),
    NARROW_ENTRY(12), NARROW_ENTRY(13), NARROW_ENTRY(14), NARROW_ENTRY(15), NARROW_ENTRY(16),
#else
    NARROW_ENTRY(7),  NARROW_ENTRY(8),  NARROW_ENTRY(9),
    NARROW_ENTRY(10), NARROW_ENTRY(11), NARROW_ENTRY(12),
#endif
};

void PL_LEVEL_NAME(pl_tile_run)(const struct pl_tile *t, uint32_t rows, uint32_t vectors) {
    tiles[rows - 1][vectors - 1](t);
}
