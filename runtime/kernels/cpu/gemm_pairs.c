/* gemm_pairs.c - blocks of operands in bf16 as pairs of neighbours along k, which one instruction
 * multiplies (tile.h). Only levels that have it compile this file.
 *
 * Where k runs along the rows of a matrix, pairs lie in it already: it is read as a matrix of fp32
 * with half as many columns, of which nothing but the place matters. Else two rows are joined. */
#include "runtime/kernels/cpu/gemm_pack.h"

_Static_assert(PL_TILE_MAX_ROWS == PL_LANES, "a group of rows is one vector of pairs");

/* Elements of a row of a matrix in bf16. */
static const uint16_t *row_at(const struct pl_view *v, uint64_t row, uint64_t col) {
    return pl_at(v, row, col);
}

/* `depth` bf16 of a row, completed to whole pairs. */
static void copy_row(const uint16_t *src, uint64_t depth, float *to) {
    uint16_t *end = (uint16_t *)to + depth;
    memcpy(to, src, depth * sizeof *src);
    if (depth % 2) *end = 0;
}

/* Vectors of pairs from columns of a matrix that is stored [k][side]: those of pair p and columns i
 * stand at panel[p * pitch + i / PL_LANES * step]. Columns after the last are zeros, up to a whole
 * vector, and so is the row after the last. */
static void join_rows(const struct pl_view *v, const struct pl_block *at, size_t pitch, size_t step,
                      float *panel) {
    for (uint64_t k = 0; k < at->depth; k += 2, panel += pitch) {
        const uint16_t *first = row_at(v, at->k0 + k, at->side0);
        const bool has_second = k + 1 < at->depth;
        const uint16_t *second = has_second ? first + v->ld : first;
        float *to = panel;
        for (uint64_t i = 0; i < at->side; i += PL_LANES, to += step) {
            const uint64_t left = at->side - i;
            const __mmask16 lanes = (__mmask16)(left < PL_LANES ? (1u << left) - 1 : 0xFFFF);
            const __mmask16 others = has_second ? lanes : 0;
            *(pl_vec_unaligned *)to = pl_vec_join(_mm256_maskz_loadu_epi16(lanes, first + i),
                                                  _mm256_maskz_loadu_epi16(others, second + i));
        }
    }
}

struct pl_left PL_LEVEL_NAME(pl_pairs_left)(const struct pl_view *a, bool k_first,
                                            const struct pl_block *at, float *panel) {
    const size_t ld = pl_u64_div_up(at->depth, 2) + PL_GEMM_PAD, group = PL_TILE_MAX_ROWS * ld;
    if (k_first) {
        join_rows(a, at, PL_TILE_MAX_ROWS, group, panel);
        return (struct pl_left){.p = panel, .rs = 1, .ks = PL_TILE_MAX_ROWS, .group = group};
    }
    if (!at->copied && !pl_left_is_copied(a, k_first, true))
        return (struct pl_left){.p = pl_at(a, at->side0, at->k0),
                                .rs = a->ld / 2,
                                .ks = 1,
                                .group = PL_TILE_MAX_ROWS * (a->ld / 2)};
    for (uint64_t i = 0; i < at->side; i++)
        copy_row(row_at(a, at->side0 + i, at->k0), at->depth, panel + i * ld);
    return (struct pl_left){.p = panel, .rs = ld, .ks = 1, .group = group};
}

void PL_LEVEL_NAME(pl_pairs_right)(const struct pl_view *b, bool k_first, const struct pl_block *at,
                                   uint32_t width, float *panel) {
    float rows[PL_GEMM_PANEL][PL_GEMM_DEPTH];
    const uint64_t depth = pl_u64_div_up(at->depth, 2);
    struct pl_view pairs = {.p = b->p, .ld = b->ld / 2, .dtype = PL_DTYPE_F32};
    struct pl_block block = {at->side0, at->side, at->k0 / 2, depth, false, false};
    if (k_first) {
        join_rows(b, at, width, PL_LANES, panel);
        return;
    }
    if (!pl_view_is_paired(b)) {
        for (uint64_t i = 0; i < at->side; i++)
            copy_row(row_at(b, at->side0 + i, at->k0), at->depth, rows[i]);
        pairs.p = rows;
        pairs.ld = PL_GEMM_DEPTH;
        block.side0 = block.k0 = 0;
    }
    PL_LEVEL_NAME(pl_gemm_right)(&pairs, k_first, &block, width, panel);
}
