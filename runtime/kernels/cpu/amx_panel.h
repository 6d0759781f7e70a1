/* amx_panel.h - panels of 32 columns of the right matrix of a product, as AMX multiplies them.
 *
 * A row of a panel has a pair of neighbours along k of every column: those of the even columns,
 * then those of the odd ones, which is how two rows are joined without moving numbers to other
 * lanes. A panel of at most 16 columns has them in order. Zeros complete columns to whole vectors
 * and k to whole steps.
 *
 * Needs: gemm_part.h, and the instruction set of level x86-64-v4+amx. */
#ifndef PL_RUNTIME_KERNELS_CPU_AMX_PANEL_H
#define PL_RUNTIME_KERNELS_CPU_AMX_PANEL_H

#include "runtime/kernels/cpu/gemm_part.h"

/* The source of panels: numbers [k0, k0+depth) along k of a matrix in bf16. */
struct pl_amx_source {
    const struct pl_view *v;
    bool turns; /* k runs along the rows of the matrix, so they are turned; else they are joined */
    uint64_t k0, depth;
};

/* Work that is done a unit at a time: two rows are joined, or eight numbers of 32 rows turned. */
enum pl_amx_work { PL_AMX_NOTHING, PL_AMX_JOINS, PL_AMX_TURNS };
enum { PL_AMX_JOINED = 2, PL_AMX_TURNED = 8 };

/* The layout of a panel of 32 columns. */
struct pl_amx_layout {
    const uint16_t *from;
    size_t ld;
    float *to;
    uint64_t units, done; /* still to do, and those that are done */
    enum pl_amx_work work;
};

static inline const uint16_t *pl_bf16_at(const struct pl_view *v, uint64_t row, uint64_t col) {
    return pl_at(v, row, col);
}

/* Copies a row of the matrix, along which k runs, and completes it to whole steps. */
static inline void pl_amx_copy_row(const struct pl_amx_source *s, uint64_t row, uint16_t *to) {
    const uint64_t whole = pl_u64_round_up(s->depth, PL_AMX_STEP);
    memcpy(to, pl_bf16_at(s->v, row, s->k0), s->depth * sizeof *to);
    memset(to + s->depth, 0, (whole - s->depth) * sizeof *to);
}

#if PL_HAS_AMX
/* Two rows of pairs from two rows of 32 columns. */
static inline void pl_amx_join(__m512i first, __m512i second, float *to) {
    const __mmask32 upper = 0xAAAAAAAA;
    const __m512i even = _mm512_mask_blend_epi16(upper, first, _mm512_slli_epi32(second, 16));
    const __m512i odd = _mm512_mask_blend_epi16(upper, _mm512_srli_epi32(first, 16), second);
    _mm512_storeu_si512(to, even);
    _mm512_storeu_si512(to + PL_LANES, odd);
}

/* Pairs of the numbers of two rows of the source in up to 16 columns, in order. Rows after the last
 * are zeros. */
static inline __m512i pl_amx_pairs(const struct pl_amx_source *s, uint64_t k, uint64_t col,
                                   __mmask16 columns) {
    __m512i row[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (uint64_t i = 0; i < 2 && k + i < s->depth; i++)
        row[i] = _mm512_cvtepu16_epi32(
            _mm256_maskz_loadu_epi16(columns, pl_bf16_at(s->v, s->k0 + k + i, col)));
    return _mm512_or_si512(row[0], _mm512_slli_epi32(row[1], 16));
}

static inline __m512i pl_amx_lanes(const uint16_t *from, size_t four) {
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)from));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(from + four)), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(from + 2 * four)), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(from + 3 * four)), 3);
}

/* Four pairs of each of 16 rows become as many rows of 16 pairs, `pitch` apart: shuffles turn 4 x 4
 * pairs in each quarter of a register. */
static inline void pl_amx_turn(const uint16_t *from, size_t ld, float *to, size_t pitch) {
    const __m512i r0 = pl_amx_lanes(from, 4 * ld), r1 = pl_amx_lanes(from + ld, 4 * ld);
    const __m512i r2 = pl_amx_lanes(from + 2 * ld, 4 * ld);
    const __m512i r3 = pl_amx_lanes(from + 3 * ld, 4 * ld);
    const __m512i p = _mm512_unpacklo_epi32(r0, r1), q = _mm512_unpacklo_epi32(r2, r3);
    const __m512i s = _mm512_unpackhi_epi32(r0, r1), t = _mm512_unpackhi_epi32(r2, r3);
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(p, q));
    _mm512_storeu_si512(to + pitch, _mm512_unpackhi_epi64(p, q));
    _mm512_storeu_si512(to + 2 * pitch, _mm512_unpacklo_epi64(s, t));
    _mm512_storeu_si512(to + 3 * pitch, _mm512_unpackhi_epi64(s, t));
}

/* The panel to the right is prefetched meanwhile: its part of the same rows, or a line of a quarter
 * of its rows. */
static inline __attribute__((always_inline)) void pl_amx_unit(struct pl_amx_layout *l,
                                                              const enum pl_amx_work work) {
    enum { QUARTER = PL_AMX_COLS / 4 };
    const uint16_t *from = l->from;
    if (work == PL_AMX_JOINS) {
        pl_amx_join(_mm512_loadu_si512(from), _mm512_loadu_si512(from + l->ld), l->to);
        __builtin_prefetch(from + PL_AMX_COLS, 0, 2);
        __builtin_prefetch(from + PL_AMX_COLS + l->ld, 0, 2);
        l->from += PL_AMX_JOINED * l->ld;
        l->to += PL_AMX_COLS;
    } else {
        const uint16_t *next = from + (PL_AMX_COLS + l->done % 4 * QUARTER) * l->ld;
        pl_amx_turn(from, 2 * l->ld, l->to, PL_AMX_COLS);
        pl_amx_turn(from + l->ld, 2 * l->ld, l->to + PL_LANES, PL_AMX_COLS);
        for (int i = 0; i < QUARTER; i++)
            __builtin_prefetch(next + i * l->ld, 0, 2);
        l->from += PL_AMX_TURNED;
        l->to += PL_AMX_TURNED / 2 * PL_AMX_COLS;
    }
    l->done++;
    l->units--;
}

#endif

/* The units of a panel of 32 columns. */
static inline uint64_t pl_amx_units(const struct pl_amx_source *s) {
    return s->depth / (s->turns ? PL_AMX_TURNED : PL_AMX_JOINED);
}

/* Begins with a panel and does all that is no unit; those that are left are those of the result. */
struct pl_amx_layout PL_LEVEL_NAME(pl_amx_begin_panel)(const struct pl_amx_source *s, uint64_t col,
                                                       uint32_t cols, float *to);

#endif
