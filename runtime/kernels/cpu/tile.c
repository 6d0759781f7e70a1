/* tile.c - one function per size of a tile, so that its sums are registers. */
#include "runtime/kernels/cpu/tile.h"

/* Sums are registers only if every loop over them is unrolled. */
#define UNROLLED _Pragma("GCC unroll 12")

/* rows and vectors are constants wherever this is expanded. */
static inline __attribute__((always_inline)) void
store(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int rows, const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
    UNROLLED for (int r = 0; r < rows; r++) {
        pl_vec_unaligned *c = (pl_vec_unaligned *)(t->c + (size_t)r * t->ldc);
        if (t->add)
            UNROLLED for (int v = 0; v < vectors; v++) c[v] += alpha * sum[r][v];
        else
            UNROLLED for (int v = 0; v < vectors; v++) c[v] = alpha * sum[r][v];
    }
}

/* The tile below is the next one: its part of C is asked for while this one is computed. A prefetch
 * behind the last row does no harm. */
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
#if PL_TILE_VECTORS == 4
#define SIZES(X, rows)        X(rows, 1) X(rows, 2) X(rows, 3) X(rows, 4)
#define NARROW_SIZES(X, rows) X(rows, 1) X(rows, 2)
#define ENTRIES(rows)                                                                              \
    { TILE_NAME(rows, 1), TILE_NAME(rows, 2), TILE_NAME(rows, 3), TILE_NAME(rows, 4) }
#define NARROW_ENTRIES(rows)                                                                       \
    { TILE_NAME(rows, 1), TILE_NAME(rows, 2) }
#else
#define SIZES(X, rows)        X(rows, 1) X(rows, 2)
#define NARROW_SIZES(X, rows) X(rows, 1)
#define ENTRIES(rows)                                                                              \
    { TILE_NAME(rows, 1), TILE_NAME(rows, 2) }
#define NARROW_ENTRIES(rows)                                                                       \
    { TILE_NAME(rows, 1) }
#endif
SIZES(TILE, 1)
SIZES(TILE, 2)
SIZES(TILE, 3)
SIZES(TILE, 4)
SIZES(TILE, 5)
SIZES(TILE, 6)
NARROW_SIZES(TILE, 7)
NARROW_SIZES(TILE, 8)
NARROW_SIZES(TILE, 9)
NARROW_SIZES(TILE, 10)
NARROW_SIZES(TILE, 11)
NARROW_SIZES(TILE, 12)

static void (*const tiles[PL_TILE_MAX_ROWS][PL_TILE_VECTORS])(const struct pl_tile *t) = {
    ENTRIES(1),        ENTRIES(2),         ENTRIES(3),         ENTRIES(4),
    ENTRIES(5),        ENTRIES(6),         NARROW_ENTRIES(7),  NARROW_ENTRIES(8),
    NARROW_ENTRIES(9), NARROW_ENTRIES(10), NARROW_ENTRIES(11), NARROW_ENTRIES(12),
};

void PL_LEVEL_NAME(pl_tile_run)(const struct pl_tile *t, uint32_t rows, uint32_t vectors) {
    tiles[rows - 1][vectors - 1](t);
}
