/* tile.h - the product of a few rows by a few vectors of columns that stays in registers.
 *
 * A product is a register-blocked outer product: sums of a group of rows times a group of vectors
 * live in registers while k runs, and every step multiplies a broadcast element of each row by the
 * vectors of one row of B (Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication", 2008, section 4). Many sums hide the latency of two fused multiply-adds a cycle.
 * A tile of pairs is the same with two bf16 numbers, neighbours along k, in the place of each fp32
 * number (level x86-64-v4+bf16).
 *   T1  an element of a product is one chain of additions in the order of k; its bits do not depend
 *       on the rows and columns that were computed with it
 * Needs: vec.h. Use: pl_tile_run(&tile, rows, vectors), rows <= pl_tile_rows(vectors). */
#ifndef PL_RUNTIME_KERNELS_CPU_TILE_H
#define PL_RUNTIME_KERNELS_CPU_TILE_H

#include "estimator/base/checked.h"
#include "runtime/kernels/cpu/level.h"
#include "runtime/kernels/cpu/vec.h"

#include <stddef.h>

/* The widest tile: 24 of the 32 registers of AVX-512 or 12 of the 16 of older levels are sums. A
 * tile of one vector may have more rows, for as many sums. */
#if defined(__AVX512F__)
#define PL_TILE_VECTORS  3
#define PL_TILE_ROWS     8
#define PL_TILE_MAX_ROWS 16
#else
#define PL_TILE_VECTORS  2
#define PL_TILE_ROWS     6
#define PL_TILE_MAX_ROWS 12
#endif
#define PL_TILE_COLS (PL_TILE_VECTORS * PL_LANES)

/* A tile with so many vectors has rows of one cache line in bf16, which it can write past the
 * caches; 0 at levels that do not multiply bf16. */
#if PL_HAS_PAIRS || PL_HAS_AMX
#define PL_TILE_LINE 2
#else
#define PL_TILE_LINE 0
#endif

/* Steps of k between pieces of other work. */
enum { PL_TILE_STEPS = 2 };

/* Rows of memory that something will be copied or read from soon, so that they can be in the second
 * cache by then. */
struct pl_ahead {
    const char *p;
    uint64_t rows, row_bytes, bytes; /* rows left, from one to the next, of each */
    uint64_t at;                     /* bytes of the first row that were asked for */
};

/* Vectors of a panel of pairs that are laid out while a tile is computed: between its
 * multiplications, memory is waited for at no cost. A row of a panel is two of the source. Numbers
 * are copied between tiles instead: their tiles have fewer registers and multiplications to spare,
 * and ran 3 % (512 bits) to 16 % (256 bits) slower with this work in them. */
struct pl_carry {
    const char *from; /* a vector of the source, in bf16 */
    float *to;
    uint64_t rows;                   /* of the panel, still to do */
    size_t row_bytes, second, pitch; /* to the next row of both; from the first row to the second */
    uint32_t vectors, at;            /* of a row, and those of the first row that are done */
    uint32_t each;                   /* every PL_TILE_STEPS of k */
};

/* C[rows, vectors*PL_LANES] = alpha * A B (+ C). Element (r,k) of A is a[r*rs + k*ks];
 * B and C are row-major with ldb and ldc. */
struct pl_tile {
    const float *a, *b;
    float *c;
    size_t rs, ks, ldb, ldc, k;
    float alpha;
    bool add;
    bool pairs; /* elements of A and B are pairs of bf16, and k counts pairs: PL_HAS_PAIRS */
    struct pl_ahead ahead[2]; /* prefetched on the way, a little at a time */
    struct pl_carry carry;    /* of a tile of pairs: done by the end */
    /* If `end` is set, the sum (+ C) is rounded to bf16 in it, after what it holds has been
     * added if `end_adds` is; C is only read. */
    uint16_t *end;
    size_t ldend;
    bool end_adds;
    /* Rows of `end` are whole lines that are written past the caches: pairs, PL_TILE_LINE vectors,
     * an alpha of 1, no C, nothing to add. Others may read them after pl_tile_drain(). */
    bool streams;
    /* No column after the first half of the last vector is wanted: a level of 512 bits may leave
     * zeros there, since half a vector costs half as much on processors that take two turns for a
     * whole one. */
    bool half;
};
void PL_LEVEL_NAME(pl_tile_run)(const struct pl_tile *t, uint32_t rows, uint32_t vectors);
/* Waits until what this thread wrote past the caches can be seen by others. */
static inline void pl_tile_drain(void) {
#if PL_TILE_LINE
    _mm_sfence();
#endif
}

/* The most rows of a tile. */
static inline uint32_t pl_tile_rows(uint32_t vectors) {
    return vectors == 1 ? PL_TILE_MAX_ROWS : PL_TILE_ROWS;
}

/* Columns of the next tile when `left` are left, as evenly as they can be cut into whole vectors:
 * a narrow tile at the end would be a slow one. */
static inline uint64_t pl_tile_cols(uint64_t left) {
    const uint64_t vectors = pl_u64_div_up(left, PL_LANES);
    const uint64_t tiles = pl_u64_max(pl_u64_div_up(vectors, PL_TILE_VECTORS), 1);
    return pl_u64_min(pl_u64_div_up(vectors, tiles) * PL_LANES, left);
}

#endif
