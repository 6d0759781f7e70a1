/* tile_store.h - how the sums of a tile go to memory: as fp32, or rounded to bf16.
 *
 * Numbers of rows and vectors are constants wherever these are expanded, so that sums are
 * registers.
 * Needs: tile.h. */
#ifndef PL_RUNTIME_KERNELS_CPU_TILE_STORE_H
#define PL_RUNTIME_KERNELS_CPU_TILE_STORE_H

#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/cpu/tile.h"

/* Sums are registers only if every loop over them is unrolled. */
#define PL_UNROLLED _Pragma("GCC unroll 16")

/* The kinds of elements that A and B may have. */
enum { PL_TILE_NUMBERS, PL_TILE_PAIRS };

#if PL_HAS_PAIRS
/* Rounds sums of pairs as they are. The instruction takes denormals for zeros, and no such sum is
 * a denormal. */
static inline __attribute__((always_inline)) void round_pairs(const struct pl_tile *t,
                                                              pl_vec (*sum)[PL_TILE_VECTORS],
                                                              const int rows, const int vectors) {
    uint16_t *row = t->end;
    PL_UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        PL_UNROLLED for (int v = 0; v < vectors; v++) {
            const __m256i x = (__m256i)_mm512_cvtneps_pbh((__m512)sum[r][v]);
            _mm256_storeu_si256((void *)(row + v * PL_LANES), x);
        }
    }
}

/* Does the same for rows of whole lines, which go past the caches. */
static inline __attribute__((always_inline)) void
stream_pairs(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int rows) {
    uint16_t *row = t->end;
    PL_UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        const __m512bh line = _mm512_cvtne2ps_pbh((__m512)sum[r][1], (__m512)sum[r][0]);
        _mm512_stream_si512((void *)row, (__m512i)line);
    }
}
#endif

/* Does what pl_tile_store() does, and rounds to bf16 at once: the sums are not written and read
 * again. */
static inline __attribute__((always_inline)) void
pl_tile_round_off(const struct pl_tile *t, pl_vec (*sum)[PL_TILE_VECTORS], const int elements,
                  const int rows, const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
#if PL_HAS_PAIRS
    if (elements == PL_TILE_PAIRS && vectors == PL_TILE_LINE && t->streams) {
        stream_pairs(t, sum, rows);
        return;
    }
    if (elements == PL_TILE_PAIRS && t->alpha == 1 && !t->add && !t->end_adds) {
        round_pairs(t, sum, rows, vectors);
        return;
    }
#endif
    (void)elements;
    uint16_t *row = t->end;
    PL_UNROLLED for (int r = 0; r < rows; r++, row += t->ldend) {
        PL_UNROLLED for (int v = 0; v < vectors; v++) {
            pl_vec x = pl_vec_rounded(alpha * sum[r][v]);
            if (t->add) x += pl_vec_load(t->c + (size_t)r * t->ldc + v * PL_LANES);
            if (t->end_adds) x += pl_vec_get_BF16(row + v * PL_LANES);
            pl_vec_put_BF16(row + v * PL_LANES, x);
        }
    }
}

/* rows and vectors are constants wherever this is expanded. The product is rounded before it is
 * added: a compiler that fused the two in some tiles only would let the cut into tiles show. */
static inline __attribute__((always_inline)) void pl_tile_store(const struct pl_tile *t,
                                                                pl_vec (*sum)[PL_TILE_VECTORS],
                                                                const int rows, const int vectors) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
    const bool add = t->add;
    float *row = t->c;
    PL_UNROLLED for (int r = 0; r < rows; r++, row += t->ldc) {
        pl_vec_unaligned *c = (pl_vec_unaligned *)row;
        if (add)
            PL_UNROLLED for (int v = 0; v < vectors; v++) c[v] += pl_vec_rounded(alpha * sum[r][v]);
        else
            PL_UNROLLED for (int v = 0; v < vectors; v++) c[v] = alpha * sum[r][v];
    }
}

#endif
