/* gemm.c - products: blocks of both operands are packed (gemm_pack.h) and multiplied tile by tile
 * (tile.h).
 *
 * A task owns a part of C and walks k in blocks of PL_GEMM_DEPTH. Within a block the columns go by
 * in panels that stay in the nearest caches while the rows of A pass over them (the order of Goto
 * and van de Geijn, 2008, with its two inner loops alone: parts are made small instead). Tiles add
 * to C itself where it is fp32 and its rows are whole vectors; else to fp32 sums in the scratch,
 * which are rounded once, in the registers of the last tile where C is bf16.
 * Where both operands are bf16 and the level multiplies pairs of them, k goes by in pairs.
 *   G1  an element is one chain of fused additions along k in blocks of a depth that k alone
 *       decides, so its bits depend neither on the cut into parts nor on threads */
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/gemm_pack.h"

_Static_assert(PL_TILE_COLS <= PL_GEMM_PANEL, "a panel is as wide as the widest tile");
_Static_assert(PL_GEMM_UNIT % PL_TILE_COLS == 0 && PL_GEMM_UNIT % PL_TILE_MAX_ROWS == 0,
               "parts are whole tiles");
_Static_assert(PL_GEMM_ROWS % PL_GEMM_UNIT == 0 && PL_GEMM_COLS % PL_GEMM_UNIT == 0,
               "the largest part is whole tiles");

struct product {
    const struct pl_gemm *g;
    uint64_t m, n, k;
    uint64_t part_m, part_n; /* of one task */
    uint64_t parts_n;        /* tasks along n */
    uint64_t depth;          /* of a block, in elements */
    struct pl_gemm_room room;
    bool turned;  /* computes the transpose of C */
    bool direct;  /* tiles write to C */
    bool rounds;  /* tiles round to C, which is bf16 */
    bool streams; /* whole lines of C past the caches */
    bool pairs;   /* of bf16 */
    bool copied;  /* rows of A are, wherever they lie */
};

/* Rows and columns of one task: C[m0:m0+rows, n0:n0+cols]. */
struct part {
    uint64_t m0, rows, n0, cols;
};

static struct part part_of(const struct product *p, uint32_t task) {
    struct part t = {.m0 = task / p->parts_n * p->part_m, .n0 = task % p->parts_n * p->part_n};
    t.rows = pl_u64_min(p->part_m, p->m - t.m0);
    t.cols = pl_u64_min(p->part_n, p->n - t.n0);
    return t;
}

/* Columns of the next tile when `left` are left. */
static uint64_t tile_cols(const struct product *p, uint64_t left) {
    return p->streams ? pl_u64_min(PL_TILE_LINE * PL_LANES, left) : pl_tile_cols(left);
}

/* ---- the cut into parts ---- */

/* Columns of a part are whole tiles and whole lines of bf16. */
enum { STREAMED_UNIT = 2 * PL_GEMM_UNIT };

/* Below this many multiply-adds waking a thread costs more than it brings. */
#define SERIAL_PRODUCT (UINT64_C(1) << 17)
#define PARTS_A_THREAD 8

/* The cost of packing an element, in multiply-adds. */
enum { COPIED = 3, TURNED = 10 };

struct limits {
    uint64_t rows, cols;            /* of a part */
    uint64_t left_cost, right_cost; /* per row and per column of it */
};

/* The time of the busiest thread plus an eighth of the time of a part: with smaller parts the other
 * threads can take over from one that is held up. */
static double time_of(const struct product *p, const struct limits *l, uint32_t threads) {
    const uint64_t parts = pl_u64_div_up(p->m, p->part_m) * pl_u64_div_up(p->n, p->part_n);
    const uint64_t rows = pl_u64_min(p->part_m, p->m), cols = pl_u64_min(p->part_n, p->n);
    const double part = (double)(rows * cols + rows * l->left_cost + cols * l->right_cost);
    return part * ((double)pl_u64_div_up(parts, threads) + 0.125);
}

static void split(struct product *p, const struct limits *l, uint32_t threads) {
    const uint64_t most = threads == 1 ? 1 : (uint64_t)threads * PARTS_A_THREAD;
    const uint64_t least_m = pl_u64_div_up(p->m, l->rows), least_n = pl_u64_div_up(p->n, l->cols);
    const uint64_t unit = p->streams ? STREAMED_UNIT : PL_GEMM_UNIT;
    struct product best = *p;
    double best_time = INFINITY;
    for (uint64_t parts_m = least_m; parts_m <= most || parts_m == least_m; parts_m *= 2) {
        p->part_m = pl_u64_round_up(pl_u64_div_up(p->m, parts_m), PL_TILE_MAX_ROWS);
        for (uint64_t parts_n = least_n; parts_m * parts_n <= most || parts_n == least_n;
             parts_n++) {
            p->part_n = pl_u64_round_up(pl_u64_div_up(p->n, parts_n), unit);
            const double time = time_of(p, l, threads);
            if (time >= best_time) continue;
            best_time = time;
            best = *p;
        }
    }
    *p = best;
}

/* ---- one part ---- */

struct scratch { /* of a worker */
    float *left, *right, *sums;
};

static struct scratch scratch_of(const struct product *p, uint32_t worker) {
    struct scratch s;
    s.left = (float *)((char *)p->g->ws.p + worker * pl_gemm_worker_bytes(&p->room));
    s.right = s.left + p->room.left;
    s.sums = s.right + p->room.right;
    return s;
}

/* C = bias, or C += bias: the product then adds to it. */
static void begin_with_bias(const struct pl_gemm *g, const struct part *t) {
    float bias[PL_GEMM_COLS];
    for (uint64_t col = 0, n; col < t->cols; col += n) {
        n = pl_u64_min(PL_GEMM_COLS, t->cols - col);
        pl_widen(bias, pl_vector_at(&g->bias, t->n0 + col), g->bias.dtype, n);
        for (uint64_t i = 0; i < t->rows; i++) {
            float *restrict c = pl_at(&g->c, t->m0 + i, t->n0 + col);
            for (uint64_t j = 0; j < n; j++)
                c[j] = g->adds ? c[j] + bias[j] : bias[j];
        }
    }
}

/* C[row, col:col+n] = sums (+ C) (+ bias), rounded once. */
static void finish_row(const struct pl_gemm *g, uint64_t row, uint64_t col, uint64_t n,
                       float *sums) {
    float buf[PL_GEMM_COLS];
    void *c = pl_at(&g->c, row, col);
    if (g->adds) {
        pl_widen(buf, c, g->c.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sums[j] += buf[j];
    }
    if (g->bias.p) {
        pl_widen(buf, pl_vector_at(&g->bias, col), g->bias.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sums[j] += buf[j];
    }
    pl_narrow(c, g->c.dtype, sums, n);
}

/* A block of k of a part: rows of A by panels of columns of B.
 *
 * Memory is slower than the tiles, so a tile prefetches what will be packed after it: rows of A
 * while they pass for the first time, and a piece of the next panels. */
struct pass {
    const struct product *p;
    const struct part *t;
    struct pl_block rows; /* of A */
    struct pl_left left;
    const struct scratch *s;
    bool is_first, is_last; /* block of the part */
};

/* Panels of B that are packed together, as they are needed or while the ones before are used. */
struct stretch {
    struct pl_block columns;
    float *panels;
    uint32_t width, all;  /* of a panel, and of all side by side */
    uint64_t piece, done; /* along k where B is stored so, else along the columns */
};

/* Rows of A that lie with k along them are copied a group at a time, before they are used first. */
static bool copies_groups(const struct pass *b) {
    const struct pl_gemm *g = b->p->g;
    return !g->trans_a && (b->rows.copied || pl_left_is_copied(&g->a, false, b->rows.pairs));
}

static struct pl_block rows_from(const struct pass *b, uint64_t row, uint64_t n) {
    struct pl_block at = b->rows;
    row = pl_u64_min(row, at.side);
    at.side0 += row;
    at.side = pl_u64_min(n, at.side - row);
    return at;
}

static void lay_out_rows(struct pass *b) {
    const struct pl_block at = copies_groups(b) ? rows_from(b, 0, PL_TILE_MAX_ROWS) : b->rows;
    b->left = pl_block_left(&b->p->g->a, b->p->g->trans_a, &at, b->s->left);
}

static void lay_out_group(const struct pass *b, uint64_t row) {
    const struct pl_block at = rows_from(b, row, PL_TILE_MAX_ROWS);
    pl_block_left(&b->p->g->a, false, &at, b->s->left + row / PL_TILE_MAX_ROWS * b->left.group);
}

static struct pl_block piece_of(const struct pass *b, const struct stretch *n) {
    struct pl_block at = n->columns;
    if (b->p->g->trans_b) {
        at.side0 += n->done;
        at.side = pl_u64_min(n->piece, at.side - n->done);
    } else {
        at.k0 += n->done;
        at.depth = pl_u64_min(n->piece, at.depth - n->done);
    }
    return at;
}

/* All of a stretch, or a piece along k. */
static void pack(const struct pass *b, const struct stretch *n, const struct pl_block *at) {
    const uint64_t before = at->k0 - n->columns.k0;
    pl_block_right(&b->p->g->b, !b->p->g->trans_b, at, n->all,
                   n->panels + (at->pairs ? before / 2 : before) * n->all);
}

/* True if tiles can lay out the panels of a stretch on their way: rows of B that are whole vectors,
 * and whole pairs of rows. */
static bool is_carried(const struct pass *b, const struct stretch *n) {
    return !b->p->g->trans_b && n->columns.side % PL_LANES == 0 &&
           (!n->columns.pairs || n->columns.depth % 2 == 0);
}

/* Returns a piece of such a stretch for a tile that has `steps` steps. */
static struct pl_carry carry_of(const struct pass *b, const struct stretch *n,
                                const struct pl_block *piece, size_t steps) {
    const struct pl_view *v = &b->p->g->b;
    const uint64_t together = piece->pairs ? 2 : 1, row = (piece->k0 - n->columns.k0) / together;
    const size_t row_bytes = v->ld * pl_float_bytes(v->dtype);
    struct pl_carry c = {.from = pl_at(v, piece->k0, piece->side0),
                         .to = n->panels + row * n->all,
                         .rows = piece->depth / together,
                         .row_bytes = row_bytes * together,
                         .second = row_bytes,
                         .pitch = n->all,
                         .vectors = (uint32_t)(piece->side / PL_LANES),
                         .dtype = v->dtype};
    c.each = (uint32_t)pl_u64_div_up(c.rows * c.vectors, pl_u64_div_up(steps, PL_TILE_STEPS));
    return c;
}

/* Returns the piece that a tile asks for: the next one that is laid out, or at the end of a stretch
 * the first piece of the one that follows. */
static struct pl_block piece_after(const struct pass *b, const struct stretch *n) {
    struct pl_block at = piece_of(b, n);
    if (at.depth > 0) return at;
    const uint64_t end = n->columns.side0 + n->columns.side;
    const uint64_t left = b->t->n0 + b->t->cols - end;
    at = n->columns;
    at.side0 = end;
    at.side = pl_u64_min(left, at.side);
    at.depth = pl_u64_min(n->piece, at.depth);
    return at;
}

static void finish_tile(const struct pass *b, const struct pl_tile *tile, uint64_t row,
                        uint64_t rows, const struct pl_block *columns) {
    for (uint64_t i = 0; i < rows; i++)
        finish_row(b->p->g, b->t->m0 + row + i, columns->side0, columns->side,
                   tile->c + i * tile->ldc);
}

/* True if whole groups of rows are multiplied by AMX. */
static bool takes_amx(const struct pass *b) {
    return PL_HAS_AMX && b->p->pairs && !b->p->streams && b->left.ks == 1;
}

/* The rows of a call of a tile. */
static uint32_t rows_of_tile(const struct pass *b, uint64_t vectors) {
    return takes_amx(b) ? PL_TILE_MAX_ROWS : pl_tile_rows((uint32_t)vectors);
}

/* Returns a tile without the work that is done on the way. */
static struct pl_tile product_alone(const struct pl_tile *t) {
    struct pl_tile alone = *t;
    alone.ahead[0].rows = alone.ahead[1].rows = alone.carry.rows = 0;
    return alone;
}

static void run_tile(const struct pass *b, const struct pl_tile *tile, uint32_t rows,
                     uint32_t vectors) {
#if PL_HAS_AMX
    if (rows == PL_TILE_MAX_ROWS && takes_amx(b)) {
        PL_LEVEL_NAME(pl_tile_run_amx)(tile, vectors);
        return;
    }
    const uint32_t most = pl_tile_rows(vectors);
    if (rows > most) {
        struct pl_tile below = product_alone(tile);
        PL_LEVEL_NAME(pl_tile_run)(tile, most, vectors);
        below.a += most * below.rs;
        below.c += most * below.ldc;
        if (below.end) below.end += most * below.ldend;
        PL_LEVEL_NAME(pl_tile_run)(&below, rows - most, vectors);
        return;
    }
#endif
    (void)b;
    PL_LEVEL_NAME(pl_tile_run)(tile, rows, vectors);
}

/* Multiplies the rows of a tile by the panels after it. */
static void multiply_panels_after(const struct pl_tile *first, uint32_t rows, uint32_t vectors,
                                  uint64_t panels) {
    struct pl_tile tile = product_alone(first);
    for (; panels > 0; panels--) {
        tile.b += vectors * PL_LANES;
        tile.end += vectors * PL_LANES;
        PL_LEVEL_NAME(pl_tile_run)(&tile, rows, vectors);
    }
}

/* All rows pass over one panel, or over several where lines are written, so that a row of C gets
 * them one after the other. columns: those of B. tile: set up for the first row. */
static void multiply_panels(const struct pass *b, struct pl_tile tile,
                            const struct pl_block *columns, uint64_t panels, struct stretch *next,
                            bool has_place) {
    const struct product *p = b->p;
    const uint64_t cols = columns->side / panels, rest = cols % PL_LANES;
    const uint32_t vectors = (uint32_t)pl_u64_div_up(cols, PL_LANES);
    const uint32_t most = rows_of_tile(b, vectors);
    const bool is_first = columns->side0 == b->t->n0;
    const bool carries = has_place && is_carried(b, next);
    const bool finishes = b->is_last && !p->direct && !p->turned, rounds = finishes && p->rounds;
    const bool keeps = !b->is_first || !b->is_last || !finishes;
    tile.half = rest > 0 && rest <= PL_LANES / 2;
    for (uint64_t i = 0; i < b->rows.side; i += most) {
        const struct pl_block piece = piece_of(b, next);
        const bool is_left = piece.side > 0 && piece.depth > 0;
        const uint64_t n = pl_u64_min(most, b->rows.side - i);
        if (is_first && i && i % PL_TILE_MAX_ROWS == 0 && copies_groups(b)) lay_out_group(b, i);
        tile.a = pl_left_at(&b->left, i);
        if (is_first && !p->g->trans_a) {
            const struct pl_block below = rows_from(b, i + PL_TILE_MAX_ROWS, most);
            pl_look_ahead(&tile.ahead[0], &p->g->a, false, &below);
        }
        next->done += p->g->trans_b ? piece.side : piece.depth;
        const struct pl_block asked = carries ? piece_after(b, next) : piece;
        pl_look_ahead(&tile.ahead[1], &p->g->b, !p->g->trans_b, &asked);
        tile.carry = carries && is_left ? carry_of(b, next, &piece, tile.k) : (struct pl_carry){0};
        if (rounds) tile.end = pl_at(&p->g->c, b->t->m0 + i, columns->side0);
        run_tile(b, &tile, (uint32_t)n, vectors);
        if (panels > 1) multiply_panels_after(&tile, (uint32_t)n, vectors, panels - 1);
        if (has_place && is_left && !carries) pack(b, next, &piece);
        if (finishes && !rounds) finish_tile(b, &tile, i, n, columns);
        if (keeps) tile.c += most * tile.ldc;
    }
}

/* The places of panels: the room for one, or `panels` at a time, twice, in what the rows of the
 * part leave of their room, so that the next ones can be packed while tiles use the others. */
struct places {
    float *at[2];
    uint64_t panels;
};

#define MOST_PANELS 4 /* packed together: pieces of rows of B that are long enough for caches */

static struct places places_of(const struct pass *b) {
    const struct pl_gemm_room *room = &b->p->room;
    const uint64_t depth = pl_u64_div_up(b->rows.depth, b->rows.pairs ? 2 : 1);
    const uint64_t whole = pl_u64_round_up(depth, PL_GEMM_LINE);
    const uint64_t panel = PL_GEMM_PANEL * whole;
    const bool has_rows = b->p->g->trans_a || copies_groups(b);
    const uint64_t rows =
        !has_rows ? 0 : pl_u64_round_up(b->rows.side, PL_TILE_MAX_ROWS) * (whole + PL_GEMM_PAD);
    const uint64_t free = room->left + room->right - pl_u64_min(rows, room->left);
    if (b->p->g->trans_b || free < 2 * panel)
        return (struct places){.at = {b->s->right, b->s->right}, .panels = 1};
    const uint64_t panels = pl_u64_min(free / (2 * panel), MOST_PANELS);
    float *first = b->s->left + rows;
    return (struct places){{first, first + panels * panel}, panels};
}

/* The panels of one width from a column of the part on. */
static struct stretch stretch_from(const struct pass *b, const struct places *at, uint64_t col,
                                   int place) {
    const uint64_t most = col ? at->panels : 1;
    struct stretch n = {.columns = b->rows, .panels = at->at[place]};
    const uint64_t left = b->t->cols - col, width = tile_cols(b->p, left);
    uint64_t panels = 1;
    while (panels < most && tile_cols(b->p, left - panels * width) == width)
        panels++;
    n.columns.side0 = b->t->n0 + col;
    n.columns.side = panels * width;
    n.width = (uint32_t)pl_u64_round_up(width, PL_LANES);
    n.all = (uint32_t)panels * n.width;
    return n;
}

/* The panels of a stretch that rows pass over together. */
static uint64_t panels_together(const struct pass *b, const struct stretch *n) {
    return b->p->streams ? n->all / n->width : 1;
}

/* Cuts the packing of the next panels into as many pieces as there are groups of rows that pass
 * before. */
static void cut(const struct pass *b, const struct stretch *now, struct stretch *next) {
    const uint64_t passes = now->all / now->width / panels_together(b, now);
    const uint64_t tiles =
        passes * pl_u64_div_up(b->rows.side, rows_of_tile(b, now->width / PL_LANES));
    const uint64_t all = b->p->g->trans_b ? next->columns.side : next->columns.depth;
    next->piece = pl_u64_round_up(pl_u64_div_up(all, tiles), 2);
}

/* Adds the terms of a block of k to C or to the sums. */
static void add_block(struct pass *b) {
    const struct product *p = b->p;
    const struct pl_gemm *g = p->g;
    const struct part *t = b->t;
    const struct places at = places_of(b);
    const bool has_place = at.at[0] != at.at[1];
    lay_out_rows(b);
    struct pl_tile tile = {.rs = b->left.rs,
                           .ks = b->left.ks,
                           .k = p->pairs ? pl_u64_div_up(b->rows.depth, 2) : b->rows.depth,
                           .alpha = g->alpha,
                           .pairs = p->pairs,
                           .ldc = p->direct ? g->c.ld : p->part_n,
                           .ldend = g->c.ld,
                           .end_adds = g->adds,
                           .streams = p->streams,
                           .add = b->rows.k0 || (p->direct && (g->adds || g->bias.p))};
    struct stretch now = stretch_from(b, &at, 0, 0);
    int place = 0;
    for (pack(b, &now, &now.columns); now.columns.side > 0;) {
        struct stretch next =
            stretch_from(b, &at, now.columns.side0 + now.columns.side - t->n0, place ^= 1);
        cut(b, &now, &next);
        tile.ldb = now.all;
        tile.b = now.panels;
        const uint64_t panels = panels_together(b, &now), width = panels * now.width;
        for (uint64_t done = 0; done < now.columns.side; done += width, tile.b += width) {
            struct pl_block columns = now.columns;
            columns.side0 += done;
            columns.side = pl_u64_min(width, now.columns.side - done);
            const uint64_t col = columns.side0 - t->n0;
            tile.c = p->direct ? pl_at(&g->c, t->m0, t->n0 + col) : b->s->sums + col;
            multiply_panels(b, tile, &columns, panels, &next, has_place);
        }
        if (!has_place && next.columns.side > 0) pack(b, &next, &next.columns);
        now = next;
    }
}

/* The sums are those of C^T: a column of them is a piece of a row of C. */
static void finish_turned(const struct product *p, const struct part *t, const float *sums) {
    float row[PL_GEMM_COLS];
    for (uint64_t j = 0; j < t->cols; j++) {
        for (uint64_t i = 0; i < t->rows; i++)
            row[i] = sums[i * p->part_n + j];
        finish_row(p->g, t->n0 + j, t->m0, t->rows, row);
    }
}

static void run_part(void *arg, uint32_t task, uint32_t worker) {
    const struct product *p = arg;
    const struct part t = part_of(p, task);
    const struct scratch s = scratch_of(p, worker);
    if (p->direct && p->g->bias.p) begin_with_bias(p->g, &t);
#if PL_HAS_AMX
    PL_LEVEL_NAME(pl_tiles_begin)();
#endif
    for (uint64_t k0 = 0; k0 < p->k; k0 += p->depth) {
        const uint64_t depth = pl_u64_min(p->depth, p->k - k0);
        struct pass b = {.p = p,
                         .t = &t,
                         .rows = {t.m0, t.rows, k0, depth, p->pairs, p->copied},
                         .s = &s,
                         .is_first = k0 == 0,
                         .is_last = k0 + depth == p->k};
        add_block(&b);
    }
    if (p->turned) finish_turned(p, &t, s.sums);
    if (p->streams) pl_tile_drain();
#if PL_HAS_AMX
    PL_LEVEL_NAME(pl_tiles_end)();
#endif
}

/* ---- the whole ---- */

/* No terms to sum: C = bias, or C stays. */
static void no_depth(const struct pl_gemm *g) {
    float sums[PL_GEMM_COLS];
    if (!g->adds && !g->bias.p) {
        for (uint64_t i = 0; i < g->c.rows; i++)
            memset(pl_at(&g->c, i, 0), 0, g->c.cols * pl_float_bytes(g->c.dtype));
        return;
    }
    for (uint64_t col = 0; col < g->c.cols; col += PL_GEMM_COLS) {
        const uint64_t n = pl_u64_min(PL_GEMM_COLS, g->c.cols - col);
        for (uint64_t i = 0; i < g->c.rows; i++) {
            memset(sums, 0, sizeof sums);
            finish_row(g, i, col, n, sums);
        }
    }
}

/* A narrow C is computed as its transpose where its rows would be the columns that tiles want, or
 * where the other operand is the smaller one to turn. */
static bool is_turned(const struct pl_gemm *g) {
    if (g->trans_a) return g->c.cols <= PL_GEMM_NARROW_COLS && g->c.rows > g->c.cols;
    return g->trans_b && g->c.rows <= PL_GEMM_FEW_ROWS && g->c.cols > g->c.rows;
}

/* C^T = op(B)^T op(A)^T. */
static struct pl_gemm turn(const struct pl_gemm *g) {
    struct pl_gemm t = *g;
    t.a = g->b;
    t.b = g->a;
    t.trans_a = !g->trans_b;
    t.trans_b = !g->trans_a;
    return t;
}

/* The whole product decides, so that parts have no say in how an element is rounded. */
static bool goes_to_c(const struct product *p) {
    return p->g->c.dtype == PL_DTYPE_F32 && !p->turned && p->n % PL_GEMM_LINE == 0;
}

/* True if tiles write whole lines of C, once and for all. */
static bool writes_lines(const struct product *p) {
    const struct pl_view *c = &p->g->c;
    const uint64_t line = PL_CACHE_LINE / sizeof(uint16_t);
    return PL_TILE_LINE && p->g->streams && p->pairs && p->rounds && !p->g->adds &&
           p->g->alpha == 1 && p->depth >= p->k && p->n % line == 0 && c->ld % line == 0 &&
           (uintptr_t)c->p % PL_CACHE_LINE == 0;
}

static struct limits limits_of(const struct product *p) {
    const struct pl_gemm *g = p->g;
    const bool copied = pl_left_is_copied(&g->a, g->trans_a, p->pairs);
    return (struct limits){.rows = copied || !p->direct ? PL_GEMM_ROWS : UINT64_MAX / 2,
                           .cols = p->direct || (p->rounds && p->depth >= p->k) ? UINT64_MAX / 2
                                                                                : PL_GEMM_COLS,
                           .left_cost = !copied      ? 0
                                        : g->trans_a ? TURNED
                                                     : COPIED,
                           .right_cost = g->trans_b ? TURNED : COPIED};
}

/* The depth of even blocks: multiples of 16 numbers or pairs keep all but the last on whole
 * vectors. */
static uint64_t depth_of(uint64_t k, bool pairs) {
    const uint64_t most = pairs ? 2 * PL_GEMM_DEPTH : PL_GEMM_DEPTH;
    const uint64_t line = pairs ? 2 * PL_GEMM_LINE : PL_GEMM_LINE;
    return pl_u64_round_up(pl_u64_div_up(k, pl_u64_div_up(k, most)), line);
}

static struct pl_gemm_room room_of(const struct pl_gemm *g, uint64_t k) {
    const struct pl_gemm_shape s = {.m = g->c.rows,
                                    .n = g->c.cols,
                                    .k = k,
                                    .trans_a = g->trans_a,
                                    .trans_b = g->trans_b,
                                    .a_fp32 = g->a.dtype == PL_DTYPE_F32,
                                    .b_fp32 = g->b.dtype == PL_DTYPE_F32,
                                    .c_fp32 = g->c.dtype == PL_DTYPE_F32};
    return pl_gemm_room(&s);
}

/* C has elements and there are terms to sum. *transpose: place for the product of the transpose. */
static struct product plan(const struct pl_gemm *g, uint32_t threads, struct pl_gemm *transpose) {
    struct product p = {.g = g, .turned = is_turned(g)};
    *transpose = turn(g);
    if (p.turned) p.g = transpose;
    p.m = p.turned ? g->c.cols : g->c.rows;
    p.n = p.turned ? g->c.rows : g->c.cols;
    p.k = g->trans_a ? g->a.rows : g->a.cols;
    p.room = room_of(g, p.k);
    p.direct = goes_to_c(&p);
    p.rounds = g->c.dtype == PL_DTYPE_BF16 && !g->bias.p && !p.turned && p.n % PL_GEMM_LINE == 0;
    p.pairs = PL_HAS_PAIRS && g->a.dtype == PL_DTYPE_BF16 && g->b.dtype == PL_DTYPE_BF16;
    /* Tiles of one vector have the most rows, which often lie in one set of the first cache. */
    p.copied = p.turned && p.n <= PL_LANES && p.room.left;
    p.depth = depth_of(p.k, p.pairs);
    p.streams = writes_lines(&p);
    const struct limits limits = limits_of(&p);
    split(&p, &limits, p.m * p.n < SERIAL_PRODUCT / (p.k + 1) ? 1 : threads);
    p.parts_n = pl_u64_div_up(p.n, p.part_n);
    return p;
}

static uint32_t parts_of(const struct product *p) {
    return (uint32_t)(pl_u64_div_up(p->m, p->part_m) * p->parts_n);
}

static bool is_empty(const struct pl_gemm *g) {
    return g->c.rows == 0 || g->c.cols == 0;
}

static bool has_no_depth(const struct pl_gemm *g) {
    return (g->trans_a ? g->a.rows : g->a.cols) == 0;
}

pl_err PL_LEVEL_NAME(pl_cpu_gemm)(struct pl_device *dev, const struct pl_gemm *g) {
    struct pl_pool *pool = pl_cpu_of(dev)->pool;
    const uint32_t threads = pl_pool_threads(pool);
    struct pl_gemm transpose;
    if (is_empty(g)) return PL_ERR_OK;
    if (has_no_depth(g)) {
        no_depth(g);
        return PL_ERR_OK;
    }
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        PL_LEVEL_NAME(pl_cpu_few_rows)(dev, g);
        return PL_ERR_OK;
    }
    struct product p = plan(g, threads, &transpose);
    if (!pl_ws_holds(&g->ws, threads * pl_gemm_worker_bytes(&p.room))) return PL_ERR_PLAN_BROKEN;
    pl_pool_run(pool, parts_of(&p), run_part, &p);
    return PL_ERR_OK;
}

/* ---- parts of a product that is not alone ---- */

/* Columns of a part of a few rows. */
static uint64_t few_columns(const struct pl_gemm *g, uint32_t threads) {
    return pl_u64_round_up(pl_u64_div_up(g->c.cols, threads), PL_GEMM_LINE);
}

uint32_t PL_LEVEL_NAME(pl_cpu_gemm_parts)(const struct pl_gemm *g, uint32_t threads) {
    struct pl_gemm transpose;
    if (is_empty(g)) return 0;
    if (has_no_depth(g)) return 1;
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g))
        return (uint32_t)pl_u64_div_up(g->c.cols, few_columns(g, threads));
    const struct product p = plan(g, threads, &transpose);
    return parts_of(&p);
}

void PL_LEVEL_NAME(pl_cpu_gemm_part)(const struct pl_gemm *g, uint32_t threads, uint32_t part) {
    struct pl_gemm transpose;
    if (has_no_depth(g)) {
        no_depth(g);
        return;
    }
    if (PL_LEVEL_NAME(pl_cpu_has_few_rows)(g)) {
        const uint64_t wide = few_columns(g, threads), col = part * wide;
        PL_LEVEL_NAME(pl_cpu_few_rows_part)(g, col, pl_u64_min(col + wide, g->c.cols));
        return;
    }
    struct product p = plan(g, threads, &transpose);
    run_part(&p, part, 0);
}
