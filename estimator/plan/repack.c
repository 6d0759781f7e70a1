/* repack.c - see repack.h.
 *
 * What lives at the same time is found through blocks of ops: a block lists the intervals that
 * begin in it and those that were alive before it, both in the order of their offsets. Most
 * intervals of a step live within a block or two. */
#include "estimator/plan/repack.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/swap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BLOCKS 128
#define ROUNDS      12 /* of each manner */
/* The more live at the same time the longer a round takes, so their number times the rounds is
 * bounded, to some 10 ms in all. Nothing here counts ops or intervals of the whole phase: equal
 * pieces of work that a brief program leaves out must not change the outcome. */
#define MOST_EFFORT 800
#define MOST_FOLDED 500 /* the same of folded units, of which swaps gain more than further rounds */
#define MOST_ALIVE  900
#define PATIENCE    4 /* rounds without any gain over the walks, after which none is expected */

/* How much harder an interval above the goal is in the next round. Where one manner goes round in
 * circles another seldom does. */
static const double manners[] = {4, 1.3, 2, 16, 1.1, 1.6};
enum { MANNERS = sizeof manners / sizeof *manners };

struct wish { /* a unit that is to be placed */
    double hardness;
    uint32_t first, last; /* of its first interval */
    uint64_t bytes;
    uint32_t unit;
};

struct placed {
    uint64_t from, to; /* bytes */
    uint64_t reach;    /* in a list: the highest `to` up to here */
    uint32_t first, last;
};

struct list {             /* of intervals that are placed, ascending offsets */
    struct placed *items; /* room for all that may come */
    uint32_t n;
};

struct block {
    struct list begun, alive; /* those that begin here; those that began before */
};

struct repacker {
    const struct pl_units *units;
    uint32_t ops_of_block, n_blocks;
    struct wish *wishes;   /* [units->n] in order */
    struct wish *largest;  /* the same as they are first */
    struct wish *room;     /* for a new order */
    uint64_t *at;          /* [units->n] offsets of this round */
    struct placed *placed; /* what the lists of the blocks share */
    struct block blocks[MOST_BLOCKS];
    uint32_t *best;        /* [units->n] the order that led to the lowest height */
    uint64_t lowest;       /* of all rounds */
    uint64_t goal, enough; /* bytes */
    uint32_t rounds;       /* that are left */
    uint32_t vain;         /* rounds so far, until one is lower than the walks */
    bool gained;
};

/* --- blocks ---------------------------------------------------------------------------------- */

static uint32_t block_of(const struct repacker *r, uint32_t op) {
    return op / r->ops_of_block;
}

/* How many intervals each list may get, by their n; their sum. */
static uint64_t count_places(struct repacker *r) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < pl_units_rows(r->units); i++) {
        const struct pl_interval *row = &r->units->rows[i];
        const uint32_t first = block_of(r, row->first), last = block_of(r, row->last);
        r->blocks[first].begun.n++;
        for (uint32_t b = first + 1; b <= last; b++)
            r->blocks[b].alive.n++;
        sum += 1 + last - first;
    }
    return sum;
}

static void share_places(struct repacker *r) {
    struct placed *next = r->placed;
    for (uint32_t b = 0; b < r->n_blocks; b++) {
        struct list *lists[] = {&r->blocks[b].begun, &r->blocks[b].alive};
        for (int i = 0; i < 2; i++) {
            lists[i]->items = next;
            next += lists[i]->n;
        }
    }
}

static void empty_blocks(struct repacker *r) {
    for (uint32_t b = 0; b < r->n_blocks; b++)
        r->blocks[b].begun.n = r->blocks[b].alive.n = 0;
}

static void list_add(struct list *l, const struct placed *p) {
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        const uint32_t mid = (lo + hi) / 2;
        if (l->items[mid].from < p->from)
            lo = mid + 1;
        else
            hi = mid;
    }
    memmove(&l->items[lo + 1], &l->items[lo], (l->n - lo) * sizeof *l->items);
    l->items[lo] = *p;
    l->items[lo].reach = lo ? pl_u64_max(l->items[lo - 1].reach, p->to) : p->to;
    l->n++;
    for (uint32_t i = lo + 1; i < l->n && l->items[i].reach < p->to; i++)
        l->items[i].reach = p->to;
}

/* The first item from `lo` on that may end above `from`. */
static uint32_t list_find(const struct list *l, uint32_t lo, uint64_t from) {
    uint32_t hi = l->n;
    if (lo < hi && l->items[lo].reach > from) return lo;
    while (lo < hi) {
        const uint32_t mid = (lo + hi) / 2;
        if (l->items[mid].reach <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Moves *p upwards past what is in its way; whether anything was. *next: the first item that it has
 * not passed yet; those before it cannot be in its way any more. */
static bool list_pass(const struct list *l, uint32_t *next, struct placed *p) {
    const uint64_t bytes = p->to - p->from;
    bool moved = false;
    uint32_t i = list_find(l, *next, p->from);
    for (; i < l->n && l->items[i].from < p->to; i++) {
        const struct placed *q = &l->items[i];
        if (q->to <= p->from || q->first > p->last || q->last < p->first) continue;
        p->from = q->to;
        p->to = p->from + bytes;
        moved = true;
    }
    *next = i;
    return moved;
}

/* --- one round ------------------------------------------------------------------------------- */

/* Moves *p upwards to where nothing is that lives at the same time; whether it had to. Each move
 * passes something that is in the way of every offset in between. It is found once every list was
 * passed without a move since the last one. */
static bool fit(const struct repacker *r, struct placed *p) {
    const uint32_t first = block_of(r, p->first), last = block_of(r, p->last);
    const uint32_t lists = last - first + 2; /* the block's alive, and each block's begun */
    const uint64_t from = p->from;
    uint32_t next[MOST_BLOCKS + 1];
    memset(next, 0, lists * sizeof *next);
    for (uint32_t at = 0, still = 0; still < lists; at = at + 1 < lists ? at + 1 : 0) {
        const struct list *l = at ? &r->blocks[first + at - 1].begun : &r->blocks[first].alive;
        still = list_pass(l, &next[at], p) ? 1 : still + 1;
    }
    return p->from != from;
}

static void put(struct repacker *r, const struct placed *p) {
    const uint32_t first = block_of(r, p->first), last = block_of(r, p->last);
    list_add(&r->blocks[first].begun, p);
    for (uint32_t b = first + 1; b <= last; b++)
        list_add(&r->blocks[b].alive, p);
}

/* The lowest offset that suits all intervals of a unit. */
static void place(struct repacker *r, const struct wish *w) {
    const struct pl_interval *rows = r->units->rows;
    const uint32_t begin = pl_unit_begin(r->units, w->unit), end = r->units->ends[w->unit];
    struct placed p = {.to = w->bytes};
    for (uint32_t i = begin, still = 0; still < end - begin; i = i + 1 < end ? i + 1 : begin) {
        p.first = rows[i].first;
        p.last = rows[i].last;
        still = fit(r, &p) ? 1 : still + 1;
    }
    for (uint32_t i = begin; i < end; i++) {
        p.first = rows[i].first;
        p.last = rows[i].last;
        put(r, &p);
    }
    r->at[w->unit] = p.from;
}

/* The height. */
static uint64_t place_all(struct repacker *r) {
    uint64_t height = 0;
    empty_blocks(r);
    for (uint32_t i = 0; i < r->units->n; i++) {
        place(r, &r->wishes[i]);
        height = pl_u64_max(height, r->at[r->wishes[i].unit] + r->wishes[i].bytes);
    }
    return height;
}

/* The hardest first; then by what a unit is, never by its number (R3). */
static int compare_wishes(const void *a, const void *b) {
    const struct wish *x = a, *y = b;
    if (x->hardness != y->hardness) return x->hardness > y->hardness ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last < y->last ? -1 : 1;
    return x->bytes == y->bytes ? 0 : x->bytes > y->bytes ? -1 : 1;
}

/* --- all rounds ------------------------------------------------------------------------------ */

static void wish_all(struct repacker *r) {
    for (uint32_t i = 0; i < r->units->n; i++) {
        const struct pl_interval *v = &r->units->rows[pl_unit_begin(r->units, i)];
        r->largest[i] = (struct wish){(double)v->bytes, v->first, v->last, v->bytes, i};
    }
    qsort(r->largest, r->units->n, sizeof *r->largest, compare_wishes);
}

/* Those that end above the goal become harder by one factor, so they stay in order among themselves
 * as the others do: the two are merged. */
static void raise_those_above(struct repacker *r, uint64_t goal, double by) {
    uint32_t raised = 0, kept = 0, out = 0;
    for (uint32_t i = 0; i < r->units->n; i++) {
        struct wish w = r->wishes[i];
        const bool above = r->at[w.unit] + w.bytes > goal;
        if (above) w.hardness *= by;
        if (above)
            r->room[raised++] = w;
        else
            r->wishes[kept++] = w;
    }
    /* from the end, since the front of `wishes` holds those that were kept */
    for (out = r->units->n; raised > 0;) {
        const bool later =
            kept > 0 && compare_wishes(&r->wishes[kept - 1], &r->room[raised - 1]) > 0;
        r->wishes[--out] = later ? r->wishes[--kept] : r->room[--raised];
    }
}

static void take(struct repacker *r, uint64_t height, struct pl_packing *out) {
    r->gained = true;
    out->bytes = height;
    for (uint32_t unit = 0; unit < r->units->n; unit++)
        pl_unit_put(r->units, unit, r->at[unit]);
}

static uint64_t run_round(struct repacker *r, struct pl_packing *out) {
    const uint64_t height = place_all(r);
    if (height < r->lowest) {
        r->lowest = height;
        for (uint32_t i = 0; i < r->units->n; i++)
            r->best[i] = r->wishes[i].unit;
    }
    if (height < out->bytes) take(r, height, out);
    return height;
}

static bool is_done(const struct repacker *r, const struct pl_packing *out) {
    return out->bytes <= r->goal || out->bytes <= r->enough;
}

static void run_rounds(struct repacker *r, double raised, struct pl_packing *out) {
    memcpy(r->wishes, r->largest, r->units->n * sizeof *r->wishes);
    for (int i = 0; i < ROUNDS && !is_done(r, out) && r->rounds > 0; i++, r->rounds--) {
        run_round(r, out);
        if (!r->gained && ++r->vain == PATIENCE) return;
        raise_those_above(r, r->goal, raised);
    }
}

/* Intervals that are alive at one op, at most. */
static pl_err count_alive(const struct pl_units *u, uint32_t *out, struct pl_diag *d) {
    uint32_t alive = 0;
    uint32_t *change = pl_calloc((size_t)u->n_ops + 1, sizeof *change);
    if (!change) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < pl_units_rows(u); i++) {
        change[u->rows[i].first]++;
        change[u->rows[i].last + 1]--; /* modulo 2^32, as the sums are */
    }
    for (uint32_t op = 0; op < u->n_ops; op++) {
        alive += change[op];
        if (alive > *out) *out = alive;
    }
    free(change);
    return PL_ERR_OK;
}

static pl_err repacker_init(struct repacker *r, struct pl_diag *d) {
    r->ops_of_block = r->units->n_ops / MOST_BLOCKS + 1;
    r->n_blocks = (r->units->n_ops - 1) / r->ops_of_block + 1;
    const uint64_t places = count_places(r);
    r->wishes = pl_malloc(3 * (size_t)r->units->n * sizeof *r->wishes);
    r->at = pl_malloc(r->units->n * sizeof *r->at);
    r->best = pl_malloc(r->units->n * sizeof *r->best);
    r->placed = pl_malloc((size_t)places * sizeof *r->placed);
    if (!r->wishes || !r->at || !r->best || !r->placed) return pl_host_oom(d, "the plan");
    r->largest = r->wishes + r->units->n;
    r->room = r->largest + r->units->n;
    share_places(r);
    return PL_ERR_OK;
}

static pl_err repack(struct repacker *r, struct pl_packing *out, struct pl_diag *d) {
    const struct pl_swap_goals goals = {r->goal, out->live_bytes + out->live_bytes / PL_STILL_LOOSE,
                                        r->enough};
    wish_all(r);
    for (int i = 0; i < MANNERS && (r->gained || r->vain < PATIENCE); i++)
        run_rounds(r, manners[i], out);
    if (!r->units->folded || out->bytes <= goals.loose || is_done(r, out)) return PL_ERR_OK;
    return pl_swap_units(r->units, r->best, &goals, out, d);
}

pl_err pl_repack(const struct pl_units *units, uint64_t goal, uint64_t enough,
                 struct pl_packing *packing, struct pl_diag *d) {
    struct repacker r = {.units = units,
                         .goal = pl_u64_max(goal, packing->live_bytes),
                         .enough = enough,
                         .lowest = UINT64_MAX};
    uint32_t alive = 0;
    if (units->n == 0 || units->n_ops == 0) return PL_ERR_OK;
    PL_TRY(count_alive(units, &alive, d));
    if (alive > MOST_ALIVE) return PL_ERR_OK;
    r.rounds = 1 + (units->folded ? MOST_FOLDED : MOST_EFFORT) / (1 + alive);
    pl_err err = repacker_init(&r, d);
    if (err == PL_ERR_OK) err = repack(&r, packing, d);
    free(r.wishes);
    free(r.at);
    free(r.best);
    free(r.placed);
    return err;
}
