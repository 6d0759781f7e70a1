/* gemm_amx.c - a part of a product of bf16 by AMX (amx.h).
 *
 * Within a block of k the columns of B go by in groups of panels of 32, which stay in the second
 * cache. Over each group 32 rows of A pass at a time, from where they lie if they can be, which
 * stay in the first cache: panels are loaded past it. So a row of C is written some lines at a
 * time. Four registers of operands feed four multiplications, which take twice as long as the
 * loads. The next group is laid out between multiplications, a unit at a time; groups grow, so that
 * only the first panel is waited for.
 *   A1  an element is one chain: of each step of 32 numbers along k, AMX adds the sum of the even
 *       ones and that of the odd ones to each other and then to the chain; where C is added to
 *       directly, a chain ends with a block */
#include "runtime/kernels/cpu/amx.h"
#include "runtime/kernels/cpu/amx_panel.h"
#include "runtime/kernels/cpu/tile_store.h"

enum {
    STEP = PL_AMX_STEP,
    COLS = PL_AMX_COLS,
    MOST_GROUPS = 4, /* of 16 rows, over a panel of one vector */
};

_Static_assert(PL_LANES == PL_AMX_SIDE && STEP == 2 * PL_AMX_SIDE,
               "a vector is a row of a register");
_Static_assert(COLS == 2 * PL_LANES && PL_AMX_ROWS == 2 * PL_AMX_SIDE, "the shapes of tiles");

/* A block of k of a part. */
struct pass {
    const struct pl_product *p;
    const struct pl_part *t;
    float *sums;                      /* of the part, p->part_n apart */
    struct pl_amx_source left, right; /* op(A) and op(B) */
    uint64_t steps;
    uint64_t panel;       /* numbers of one */
    bool is_first;        /* block of the part */
    bool continues, ends; /* it begins with the sums of the last one; its sums are finished */
    const uint16_t *a;    /* its rows, lda apart, whole steps */
    size_t lda;
    uint16_t *rows;  /* room for copies of them */
    float *room[2];  /* for a group of panels, and the next one */
    uint64_t panels; /* of a group, at most */
};

/* ---- rows of A ---- */

/* 16 rows of op(A), which are columns of A: pairs are joined, then turned. */
static void turn_rows(const struct pass *b, uint64_t row, uint32_t rows, uint16_t *to) {
    const __mmask16 lanes = (__mmask16)((1u << rows) - 1);
    _Alignas(PL_CACHE_LINE) uint32_t pairs[PL_AMX_SIDE][PL_LANES];
    for (uint64_t k = 0; k < b->steps * STEP; k += STEP, to += STEP) {
        for (uint64_t i = 0; i < PL_AMX_SIDE; i++)
            _mm512_store_si512(pairs[i], pl_amx_pairs(&b->left, k + 2 * i, row, lanes));
        /* Four pairs of all rows at a time: a row of pairs is a column here. */
        for (int i = 0; i < PL_LANES; i += 4)
            pl_amx_turn((const uint16_t *)&pairs[0][i], 2 * PL_LANES,
                        (float *)(void *)(to + (size_t)i * b->lda), b->lda / 2);
    }
}

static void lay_out_rows(struct pass *b) {
    const struct pl_amx_source *s = &b->left;
    if (!pl_amx_copies(b->p)) {
        b->a = pl_bf16_at(s->v, b->t->m0, s->k0);
        b->lda = s->v->ld;
        return;
    }
    b->a = b->rows;
    b->lda = 2 * pl_amx_row_size(s->depth);
    if (!s->turns) {
        for (uint64_t i = 0; i < b->t->rows; i++)
            pl_amx_copy_row(s, b->t->m0 + i, b->rows + i * b->lda);
        return;
    }
    for (uint64_t i = 0; i < b->t->rows; i += PL_AMX_SIDE) {
        const uint64_t n = pl_u64_min(PL_AMX_SIDE, b->t->rows - i);
        turn_rows(b, b->t->m0 + i, (uint32_t)n, b->rows + i * b->lda);
    }
}

/* ---- tiles ---- */

/* Rows of A by a panel. */
struct tile {
    const uint16_t *a;
    const float *b;
    float *sums;    /* of the part, where they continue or are left */
    uint64_t units; /* of the next group, done meanwhile */
    uint32_t rows, cols;
};

/* Sums as they are stored: rows of `vectors` vectors. */
struct sums {
    _Alignas(PL_CACHE_LINE) float at[MOST_GROUPS * PL_AMX_SIDE * PL_LANES];
};

/* The registers: sums are 0 to 3, rows of A 4 and 5, vectors of B 6 and 7. Sums of one vector are
 * 0, 2, 1 and 3, else group g has 2g and 2g+1. */
#define FOR_SUMS(X, groups, vectors, at, ld)                                                       \
    do {                                                                                           \
        const size_t sums_ld = (ld), group = PL_AMX_SIDE * sums_ld;                                \
        X(0, (at), sums_ld);                                                                       \
        if ((vectors) > 1) X(1, (at) + PL_LANES, sums_ld);                                         \
        if ((groups) > 1) X(2, (at) + group, sums_ld);                                             \
        if ((groups) > 1 && (vectors) > 1) X(3, (at) + group + PL_LANES, sums_ld);                 \
        if ((groups) > 2) X(1, (at) + 2 * group, sums_ld);                                         \
        if ((groups) > 3) X(3, (at) + 3 * group, sums_ld);                                         \
    } while (0)
#define LOAD_SUM(tile, at, ld)  PL_AMX_LOAD(tile, at, (ld) * sizeof(float))
#define STORE_SUM(tile, at, ld) PL_AMX_STORE(tile, at, (ld) * sizeof(float))

static inline __attribute__((always_inline)) void
step(const uint16_t *a, size_t lda, const float *b, const int groups, const int vectors) {
    const size_t a_bytes = lda * sizeof *a, b_bytes = (size_t)vectors * PL_AMX_BYTES;
    const size_t group = PL_AMX_SIDE * lda;
    PL_AMX_LOAD(4, a, a_bytes);
    PL_AMX_LOAD_ONCE(6, b, b_bytes);
    PL_AMX_ADD(0, 4, 6);
    if (vectors > 1) {
        PL_AMX_LOAD_ONCE(7, b + PL_LANES, b_bytes);
        PL_AMX_ADD(1, 4, 7);
    }
    if (groups > 1) {
        PL_AMX_LOAD(5, a + group, a_bytes);
        PL_AMX_ADD(2, 5, 6);
        if (vectors > 1) PL_AMX_ADD(3, 5, 7);
    }
    if (groups > 2) {
        PL_AMX_LOAD(4, a + 2 * group, a_bytes);
        PL_AMX_ADD(1, 4, 6);
    }
    if (groups > 3) {
        PL_AMX_LOAD(5, a + 3 * group, a_bytes);
        PL_AMX_ADD(3, 5, 6);
    }
}

/* The sums of a tile to s, or where they are left. Of the panel that is laid out, `each` units are
 * done in a step. */
static inline __attribute__((always_inline)) void sum_up(const struct pass *b, const struct tile *t,
                                                         struct pl_amx_layout *next, struct sums *s,
                                                         const int groups, const int vectors,
                                                         const enum pl_amx_work work) {
    const uint16_t *a = t->a;
    const float *panel = t->b;
    const uint64_t each = pl_u64_div_up(t->units, b->steps);
    struct pl_amx_layout l = *next;
    uint64_t left = t->units;
    PL_AMX_ZERO(0);
    PL_AMX_ZERO(1);
    PL_AMX_ZERO(2);
    PL_AMX_ZERO(3);
    if (b->continues) FOR_SUMS(LOAD_SUM, groups, vectors, t->sums, b->p->part_n);
    for (uint64_t k = 0; k < b->steps; k++) {
        step(a, b->lda, panel, groups, vectors);
        a += STEP;
        panel += PL_AMX_SIDE * vectors * PL_LANES;
        if (work != PL_AMX_NOTHING)
            for (uint64_t i = 0; i < each && left > 0; i++, left--)
                pl_amx_unit(&l, work);
    }
    *next = l;
    if (b->ends)
        FOR_SUMS(STORE_SUM, groups, vectors, s->at, (size_t)vectors * PL_LANES);
    else
        FOR_SUMS(STORE_SUM, groups, vectors, t->sums, b->p->part_n);
}

/* Two rows of sums in the order of columns. */
static inline void in_order(pl_vec even, pl_vec odd, pl_vec *first, pl_vec *second) {
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i high =
        _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
    *first = (pl_vec)_mm512_permutex2var_ps((__m512)even, low, (__m512)odd);
    *second = (pl_vec)_mm512_permutex2var_ps((__m512)even, high, (__m512)odd);
}

/* A row of 32 sums rounded to bf16, in the order of columns. */
static inline __m512i rounded_line(pl_vec even, pl_vec odd) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even));
}

/* Rows of lines in bf16. The instruction that rounds takes denormals for zeros, as AMX does. */
static void finish_lines(const struct pl_tile *t, const struct sums *s, uint32_t rows) {
    const pl_vec alpha = t->alpha - (pl_vec){0};
    uint16_t *to = t->end;
    const float *at = s->at;
    for (; rows > 0; rows--, at += COLS, to += t->ldend) {
        pl_vec even = pl_vec_rounded(alpha * pl_vec_load(at));
        pl_vec odd = pl_vec_rounded(alpha * pl_vec_load(at + PL_LANES));
        if (t->end_adds) {
            pl_vec old[2];
            pl_vec_load_bf16(to, &old[0], &old[1]);
            even += old[0];
            odd += old[1];
        }
        const __m512i line = rounded_line(even, odd);
        if (t->streams)
            _mm512_stream_si512((void *)to, line);
        else
            _mm512_storeu_si512(to, line);
    }
}

static inline __attribute__((always_inline)) void
finish_rows(struct pl_tile t, const struct sums *s, uint32_t rows, const int vectors) {
    pl_vec sum[1][PL_TILE_VECTORS];
    const float *at = s->at;
    for (; rows > 0; rows--, at += vectors * PL_LANES) {
        if (vectors == 1)
            sum[0][0] = pl_vec_load(at);
        else
            in_order(pl_vec_load(at), pl_vec_load(at + PL_LANES), &sum[0][0], &sum[0][1]);
        if (t.end) {
            pl_tile_round_off(&t, sum, PL_TILE_NUMBERS, 1, vectors);
            t.end += t.ldend;
        } else {
            pl_tile_store(&t, sum, 1, vectors);
            t.c += t.ldc;
        }
    }
}

/* The sums of a tile go to C, or to those of the part, from which rows are finished. */
static void finish(const struct pass *b, const struct tile *t, const struct sums *s, uint64_t row,
                   uint64_t col) {
    const struct pl_product *p = b->p;
    const struct pl_view *c = &p->g->c;
    struct pl_tile out = {.alpha = p->g->alpha, .streams = p->streams};
    if (p->direct) {
        out.c = pl_at(c, b->t->m0 + row, col);
        out.ldc = c->ld;
        out.add = !b->is_first || p->g->adds || p->g->bias.p;
    } else if (p->rounds) {
        out.end = pl_at(c, b->t->m0 + row, col);
        out.ldend = c->ld;
        out.end_adds = p->g->adds;
    } else {
        out.c = t->sums;
        out.ldc = p->part_n;
    }
    if (out.end && t->cols == COLS)
        finish_lines(&out, s, t->rows);
    else if (t->cols > PL_LANES)
        finish_rows(out, s, t->rows, 2);
    else
        finish_rows(out, s, t->rows, 1);
    if (p->direct || p->rounds || p->turned) return;
    for (uint32_t i = 0; i < t->rows; i++)
        PL_LEVEL_NAME(pl_gemm_finish_row)
    (p->g, b->t->m0 + row + i, col, t->cols, t->sums + i * p->part_n);
}

typedef void (*shape_fn)(const struct pass *b, const struct tile *t, struct pl_amx_layout *next,
                         struct sums *s);
#define SHAPE(groups, vectors, work)                                                               \
    static void multiply_##groups##x##vectors##_##work(                                            \
        const struct pass *b, const struct tile *t, struct pl_amx_layout *next, struct sums *s) {  \
        sum_up(b, t, next, s, groups, vectors, PL_AMX_##work);                                     \
    }
#define WIDE(groups) SHAPE(groups, 2, NOTHING) SHAPE(groups, 2, JOINS) SHAPE(groups, 2, TURNS)
#define WIDE_ROW(groups)                                                                           \
    { multiply_##groups##x2_NOTHING, multiply_##groups##x2_JOINS, multiply_##groups##x2_TURNS }
SHAPE(1, 1, NOTHING)
SHAPE(2, 1, NOTHING)
SHAPE(3, 1, NOTHING)
SHAPE(4, 1, NOTHING)
WIDE(1)
WIDE(2)
#undef SHAPE

static const shape_fn narrow[] = {multiply_1x1_NOTHING, multiply_2x1_NOTHING, multiply_3x1_NOTHING,
                                  multiply_4x1_NOTHING};
static const shape_fn wide[][3] = {WIDE_ROW(1), WIDE_ROW(2)};

static void run_tile(const struct pass *b, const struct tile *t, struct pl_amx_layout *next,
                     struct sums *s) {
    const bool is_ragged = t->rows % PL_AMX_SIDE != 0;
    const uint64_t groups = pl_u64_div_up(t->rows, PL_AMX_SIDE);
    if (is_ragged) PL_AMX_BEGIN(t->rows);
    if (t->cols > PL_LANES)
        wide[groups - 1][t->units > 0 ? next->work : PL_AMX_NOTHING](b, t, next, s);
    else
        narrow[groups - 1](b, t, next, s);
    if (is_ragged) PL_AMX_BEGIN(PL_AMX_SIDE);
}

/* ---- groups of panels ---- */

struct group {
    uint64_t col, end; /* its columns */
    const float *panels;
};

/* The panels of a group, while they are laid out. */
struct coming {
    uint64_t col, end; /* columns of panels that are not begun */
    float *to;
    struct pl_amx_layout l;
    uint64_t tiles; /* until they are wanted */
};

static uint32_t cols_from(uint64_t col, uint64_t end) {
    return (uint32_t)pl_u64_min(COLS, end - col);
}

/* Begins with panels until one has units. */
static void begin_panels(const struct pass *b, struct coming *c) {
    while (c->l.units == 0 && c->col < c->end) {
        c->l =
            PL_LEVEL_NAME(pl_amx_begin_panel)(&b->right, c->col, cols_from(c->col, c->end), c->to);
        c->col += COLS;
        c->to += b->panel;
    }
}

/* Returns the units that the next tile is to do, so that all are done by the last one. */
static uint64_t share(const struct pass *b, struct coming *c) {
    if (c->tiles == 0) return 0;
    const uint64_t panels = c->col < c->end ? pl_u64_div_up(c->end - c->col, COLS) : 0;
    const uint64_t all = c->l.units + panels * pl_amx_units(&b->right);
    return pl_u64_min(c->l.units, pl_u64_div_up(all, c->tiles--));
}

static void finish_panels(const struct pass *b, struct coming *c) {
    for (begin_panels(b, c); c->l.units > 0; begin_panels(b, c))
        while (c->l.units > 0)
            if (c->l.work == PL_AMX_JOINS)
                pl_amx_unit(&c->l, PL_AMX_JOINS);
            else
                pl_amx_unit(&c->l, PL_AMX_TURNS);
}

/* The rows of the next tile: whole groups of 16, or a part of one. */
static uint32_t rows_of(uint64_t left, uint64_t most) {
    const uint64_t n = pl_u64_min(left, most);
    return (uint32_t)(n > PL_AMX_SIDE ? n / PL_AMX_SIDE * PL_AMX_SIDE : n);
}

/* Some rows pass over the panels of a group. */
static void multiply_rows(const struct pass *b, const struct group *g, uint64_t row, uint32_t rows,
                          struct coming *next) {
    const struct pl_product *p = b->p;
    struct sums s;
    struct tile t = {.a = b->a + row * b->lda, .b = g->panels, .rows = rows};
    for (uint64_t col = g->col; col < g->end; col += COLS, t.b += b->panel) {
        begin_panels(b, next);
        t.cols = cols_from(col, g->end);
        t.units = t.cols > PL_LANES ? share(b, next) : 0;
        t.sums = b->sums + row * p->part_n + (col - b->t->n0);
        run_tile(b, &t, &next->l, &s);
        if (b->ends) finish(b, &t, &s, row, col);
    }
}

/* All rows pass over a group, while the next one is laid out. */
static void multiply_group(const struct pass *b, const struct group *g, struct coming *next) {
    const uint64_t most = g->end - g->col > PL_LANES ? PL_AMX_ROWS : MOST_GROUPS * PL_AMX_SIDE;
    next->tiles = pl_u64_div_up(b->t->rows, most) * pl_u64_div_up(g->end - g->col, COLS);
    for (uint64_t row = 0, n; row < b->t->rows; row += n) {
        n = rows_of(b->t->rows - row, most);
        multiply_rows(b, g, row, (uint32_t)n, next);
    }
    finish_panels(b, next);
}

/* Every group has twice the panels of the one before, up to the most. */
static void multiply_block(struct pass *b) {
    const uint64_t end = b->t->n0 + b->t->cols;
    uint64_t panels = 1;
    int place = 0;
    lay_out_rows(b);
    struct group g = {b->t->n0, pl_u64_min(end, b->t->n0 + COLS), b->room[0]};
    struct coming next = {.col = g.col, .end = g.end, .to = b->room[0]};
    finish_panels(b, &next);
    while (g.col < end) {
        panels = pl_u64_min(2 * panels, b->panels);
        place ^= 1;
        next = (struct coming){
            .col = g.end, .end = pl_u64_min(end, g.end + panels * COLS), .to = b->room[place]};
        const struct group after = {next.col, next.end, next.to};
        multiply_group(b, &g, &next);
        g = after;
    }
}

void PL_LEVEL_NAME(pl_gemm_amx)(const struct pl_product *p, const struct pl_part *t,
                                const struct pl_gemm_scratch *s) {
    const uint64_t panel = pl_amx_panel_size(p->depth);
    const uint64_t rows = pl_amx_copies(p) ? pl_u64_round_up(t->rows, PL_AMX_SIDE) : 0;
    const uint64_t room = p->room.left + p->room.right - rows * pl_amx_row_size(p->depth);
    const uint64_t panels = pl_u64_min(room / (2 * panel), PL_AMX_PANELS);
    PL_AMX_BEGIN(PL_AMX_SIDE);
    for (uint64_t k0 = 0; k0 < p->k; k0 += p->depth) {
        const uint64_t depth = pl_u64_min(p->depth, p->k - k0);
        struct pass b = {.p = p,
                         .t = t,
                         .sums = s->sums,
                         .left = {&p->g->a, p->g->trans_a, k0, depth},
                         .right = {&p->g->b, p->g->trans_b, k0, depth},
                         .steps = pl_u64_div_up(depth, STEP),
                         .panel = panel,
                         .is_first = k0 == 0,
                         .continues = k0 > 0 && !p->direct,
                         .ends = p->direct || k0 + depth == p->k,
                         .rows = (uint16_t *)(void *)(s->left + 2 * panels * panel),
                         .room = {s->left, s->left + panels * panel},
                         .panels = panels};
        multiply_block(&b);
    }
    PL_AMX_END();
}
