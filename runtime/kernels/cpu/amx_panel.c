/* amx_panel.c - parts of a panel that are no units: those at the edges of the matrix. */
#include "runtime/kernels/cpu/amx_panel.h"

enum { COLS = PL_AMX_COLS };

static uint64_t whole_depth(const struct pl_amx_source *s) {
    return pl_u64_round_up(s->depth, PL_AMX_STEP);
}

/* Rows of pairs after the last whole ones: of a row that has no second one, and zeros. */
static void join_rest(const struct pl_amx_source *s, uint64_t col, __mmask32 columns, float *to) {
    const uint64_t pairs = whole_depth(s) / 2;
    uint64_t done = s->depth / 2;
    if (s->depth % 2) {
        const uint16_t *last = pl_bf16_at(s->v, s->k0 + s->depth - 1, col);
        pl_amx_join(_mm512_maskz_loadu_epi16(columns, last), _mm512_setzero_si512(),
                    to + done * COLS);
        done++;
    }
    memset(to + done * COLS, 0, (pairs - done) * COLS * sizeof *to);
}

/* Fewer than 32 columns, or pairs that are no units: from copies next to zeros. */
static void turn_copies(const struct pl_amx_source *s, uint64_t col, uint32_t cols, float *to) {
    uint16_t rows[COLS][PL_AMX_DEPTH];
    const uint64_t depth = whole_depth(s);
    for (uint32_t i = 0; i < cols; i++)
        pl_amx_copy_row(s, col + i, rows[i]);
    for (uint32_t i = cols; i < COLS; i++)
        memset(rows[i], 0, depth * sizeof *rows[i]);
    if (cols <= PL_LANES) {
        for (uint64_t k = 0; k < depth; k += PL_AMX_TURNED)
            pl_amx_turn(rows[0] + k, PL_AMX_DEPTH, to + k / 2 * PL_LANES, PL_LANES);
        return;
    }
    for (uint64_t k = 0; k < depth; k += PL_AMX_TURNED) {
        pl_amx_turn(rows[0] + k, 2 * PL_AMX_DEPTH, to + k / 2 * COLS, COLS);
        pl_amx_turn(rows[1] + k, 2 * PL_AMX_DEPTH, to + k / 2 * COLS + PL_LANES, COLS);
    }
}

static struct pl_amx_layout begin_turning(const struct pl_amx_source *s, uint64_t col,
                                          uint32_t cols, float *to) {
    struct pl_amx_layout l = {.to = to, .ld = s->v->ld};
    const uint64_t rest = whole_depth(s) - s->depth;
    if (cols < COLS || s->depth % PL_AMX_TURNED) {
        turn_copies(s, col, cols, to);
        return l;
    }
    memset(to + s->depth / 2 * COLS, 0, rest / 2 * COLS * sizeof *to);
    l.from = pl_bf16_at(s->v, col, s->k0);
    l.units = pl_amx_units(s);
    l.work = PL_AMX_TURNS;
    return l;
}

static struct pl_amx_layout begin_joining(const struct pl_amx_source *s, uint64_t col,
                                          uint32_t cols, float *to) {
    struct pl_amx_layout l = {.to = to, .ld = s->v->ld};
    const __mmask32 columns = cols < COLS ? (__mmask32)((1u << cols) - 1) : UINT32_MAX;
    if (cols <= PL_LANES) {
        for (uint64_t k = 0; k < whole_depth(s); k += 2)
            _mm512_storeu_si512(to + k / 2 * PL_LANES, pl_amx_pairs(s, k, col, (__mmask16)columns));
        return l;
    }
    join_rest(s, col, columns, to);
    l.from = pl_bf16_at(s->v, s->k0, col);
    if (cols == COLS) {
        l.units = pl_amx_units(s);
        l.work = PL_AMX_JOINS;
        return l;
    }
    for (uint64_t k = 0; k + 1 < s->depth; k += 2, l.from += 2 * l.ld)
        pl_amx_join(_mm512_maskz_loadu_epi16(columns, l.from),
                    _mm512_maskz_loadu_epi16(columns, l.from + l.ld), to + k / 2 * COLS);
    return l;
}

struct pl_amx_layout PL_LEVEL_NAME(pl_amx_begin_panel)(const struct pl_amx_source *s, uint64_t col,
                                                       uint32_t cols, float *to) {
    return s->turns ? begin_turning(s, col, cols, to) : begin_joining(s, col, cols, to);
}
