/* gemm_blocks.c - a part of a product by vectors: blocks of both operands are packed (gemm_pack.h)
 * and multiplied tile by tile (tile.h).
 *
 * Within a block of k the columns go by in panels that stay in the nearest caches while the rows of
 * A pass over them (the order of Goto and van de Geijn, 2008, with its two inner loops alone: parts
 * are made small instead). Sums of the last block are rounded in the registers of the tile where C
 * is bf16. Where both operands are bf16 and the level multiplies pairs of them, k goes by in
 * pairs. */
#include "runtime/kernels/cpu/gemm_pack.h"
#include "runtime/kernels/cpu/gemm_part.h"

_Static_assert(PL_TILE_COLS <= PL_GEMM_PANEL, "a panel is as wide as the widest tile");

/* Columns of the next tile when `left` are left. */
static uint64_t tile_cols(const struct pl_product *p, uint64_t left) {
    return p->streams ? pl_u64_min(PL_TILE_LINE * PL_LANES, left) : pl_tile_cols(left);
}

/* A block of k of a part: rows of A by panels of columns of B.
 *
 * Memory is slower than the tiles, so a tile prefetches what will be packed after it: rows of A
 * while they pass for the first time, and a piece of the next panels. */
struct pass {
    const struct pl_product *p;
    const struct pl_part *t;
    struct pl_block rows; /* of A */
    struct pl_left left;
    const struct pl_gemm_scratch *s;
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

/* True if tiles can lay out the panels of a stretch on their way: rows of B that are whole vectors
 * of pairs, and whole pairs of rows. */
static bool is_carried(const struct pass *b, const struct stretch *n) {
    return b->p->pairs && !b->p->g->trans_b && n->columns.side % PL_LANES == 0 &&
           n->columns.depth % 2 == 0;
}

/* Returns a piece of such a stretch for a tile that has `steps` steps. */
static struct pl_carry carry_of(const struct pass *b, const struct stretch *n,
                                const struct pl_block *piece, size_t steps) {
    const struct pl_view *v = &b->p->g->b;
    const uint64_t row = (piece->k0 - n->columns.k0) / 2;
    const size_t row_bytes = v->ld * sizeof(uint16_t);
    struct pl_carry c = {.from = pl_at(v, piece->k0, piece->side0),
                         .to = n->panels + row * n->all,
                         .rows = piece->depth / 2,
                         .row_bytes = 2 * row_bytes,
                         .second = row_bytes,
                         .pitch = n->all,
                         .vectors = (uint32_t)(piece->side / PL_LANES)};
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
        PL_LEVEL_NAME(pl_gemm_finish_row)
    (b->p->g, b->t->m0 + row + i, columns->side0, columns->side, tile->c + i * tile->ldc);
}

/* Returns a tile without the work that is done on the way. */
static struct pl_tile product_alone(const struct pl_tile *t) {
    struct pl_tile alone = *t;
    alone.ahead[0].rows = alone.ahead[1].rows = alone.carry.rows = 0;
    return alone;
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
    const struct pl_product *p = b->p;
    const uint64_t cols = columns->side / panels, rest = cols % PL_LANES;
    const uint32_t vectors = (uint32_t)pl_u64_div_up(cols, PL_LANES);
    const uint32_t most = pl_tile_rows(vectors);
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
        PL_LEVEL_NAME(pl_tile_run)(&tile, (uint32_t)n, vectors);
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
        passes * pl_u64_div_up(b->rows.side, pl_tile_rows(now->width / PL_LANES));
    const uint64_t all = b->p->g->trans_b ? next->columns.side : next->columns.depth;
    next->piece = pl_u64_round_up(pl_u64_div_up(all, tiles), 2);
}

/* Adds the terms of a block of k to C or to the sums. */
static void add_block(struct pass *b) {
    const struct pl_product *p = b->p;
    const struct pl_gemm *g = p->g;
    const struct pl_part *t = b->t;
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

void PL_LEVEL_NAME(pl_gemm_blocks)(const struct pl_product *p, const struct pl_part *t,
                                   const struct pl_gemm_scratch *s) {
    for (uint64_t k0 = 0; k0 < p->k; k0 += p->depth) {
        const uint64_t depth = pl_u64_min(p->depth, p->k - k0);
        struct pass b = {.p = p,
                         .t = t,
                         .rows = {t->m0, t->rows, k0, depth, p->pairs, p->copied},
                         .s = s,
                         .is_first = k0 == 0,
                         .is_last = k0 + depth == p->k};
        add_block(&b);
    }
}
