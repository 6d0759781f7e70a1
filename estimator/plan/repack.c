#include "estimator/plan/repack.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_UNITS    14000 /* more have no place in the table of who meets whom */
#define MOST_ATTEMPTS 16
#define MOST_EFFORT   250000000 /* placed units times units, in all attempts: some 0.2 s */

enum { WORD = 64 };

struct unit {
    uint64_t bytes;
    uint64_t low;  /* the lowest offset that is free, then the one that it has */
    uint64_t best; /* its offset in the lowest packing */
    uint64_t hardness;
    bool placed;
};

struct search {
    const struct pl_units *units;
    struct unit *all;    /* [n] */
    struct unit **order; /* [n] units, of which the first are still to be placed */
    uint32_t words;      /* of a row of bits */
    uint64_t *meets;     /* [n * words] bits of the units that a unit meets */
    uint64_t *alive;     /* [words] bits of the units that are alive at an op */
    uint32_t *unit_of;   /* [rows] */
    uint32_t *begin;     /* [n_ops + 1] starts in by_first; then, of ends, in by_last */
    uint32_t *end;       /* [n_ops + 1] */
    uint32_t *by_first;  /* [rows] */
    uint32_t *by_last;   /* [rows] */
};

/* --- who meets whom --------------------------------------------------------------------------- */

/* The later of two units that meet gets the mark. */
static void mark_later(struct search *s) {
    for (uint32_t op = 0; op < s->units->n_ops; op++) {
        for (uint32_t i = s->begin[op]; i < s->begin[op + 1]; i++) {
            const uint32_t unit = s->unit_of[s->by_first[i]];
            uint64_t *bits = s->meets + (size_t)unit * s->words;
            for (uint32_t w = 0; w < s->words; w++)
                bits[w] |= s->alive[w];
            s->alive[unit / WORD] |= UINT64_C(1) << unit % WORD;
        }
        for (uint32_t i = s->end[op]; i < s->end[op + 1]; i++) {
            const uint32_t unit = s->unit_of[s->by_last[i]];
            s->alive[unit / WORD] &= ~(UINT64_C(1) << unit % WORD);
        }
    }
}

/* Calls for each unit that one meets. */
static void each_met(struct search *s, uint32_t unit,
                     void (*call)(struct search *s, uint32_t unit, uint32_t other)) {
    for (uint32_t w = 0; w < s->words; w++)
        for (uint64_t left = s->meets[(size_t)unit * s->words + w]; left; left &= left - 1)
            call(s, unit, w * WORD + (uint32_t)__builtin_ctzll(left));
}

static void mark_back(struct search *s, uint32_t unit, uint32_t other) {
    s->meets[(size_t)other * s->words + unit / WORD] |= UINT64_C(1) << unit % WORD;
}

static void count_met(struct search *s, uint32_t unit, uint32_t other) {
    (void)other;
    s->all[unit].hardness++;
}

static void find_meetings(struct search *s) {
    const struct pl_units *u = s->units;
    const uint32_t rows = pl_units_rows(u);
    for (uint32_t unit = 0; unit < u->n; unit++) {
        s->all[unit].bytes = u->rows[pl_unit_begin(u, unit)].bytes;
        for (uint32_t i = pl_unit_begin(u, unit); i < u->ends[unit]; i++)
            s->unit_of[i] = unit;
    }
    pl_pack_by_op(u->rows, rows, u->n_ops, true, s->begin, s->by_first);
    pl_pack_by_op(u->rows, rows, u->n_ops, false, s->end, s->by_last);
    mark_later(s);
    for (uint32_t unit = 0; unit < u->n; unit++)
        each_met(s, unit, mark_back);
    for (uint32_t unit = 0; unit < u->n; unit++)
        each_met(s, unit, count_met);
}

/* --- an attempt ------------------------------------------------------------------------------- */

/* The hardest first, then the largest, then the first in the order of units (R3). */
static int by_hardness(const void *a, const void *b) {
    const struct unit *x = *(struct unit *const *)a, *y = *(struct unit *const *)b;
    if (x->hardness != y->hardness) return x->hardness > y->hardness ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return (x > y) - (x < y);
}

static void lift(struct search *s, uint32_t unit, uint32_t other) {
    const uint64_t top = s->all[unit].low + s->all[unit].bytes;
    if (!s->all[other].placed && s->all[other].low < top) s->all[other].low = top;
}

/* Takes the next unit out of the `left` ones that are to be placed. */
static struct unit *take_lowest(struct search *s, uint32_t left) {
    uint32_t found = 0;
    for (uint32_t i = 1; i < left; i++)
        if (s->order[i]->low < s->order[found]->low) found = i;
    struct unit *unit = s->order[found];
    memmove(s->order + found, s->order + found + 1, (left - found - 1) * sizeof(struct unit *));
    unit->placed = true;
    return unit;
}

/* Returns the height. */
static uint64_t place_all(struct search *s) {
    const uint32_t n = s->units->n;
    uint64_t height = 0;
    for (uint32_t i = 0; i < n; i++) {
        s->order[i] = &s->all[i];
        s->all[i].low = 0;
        s->all[i].placed = false;
    }
    qsort(s->order, n, sizeof(struct unit *), by_hardness);
    for (uint32_t left = n; left > 0; left--) {
        const struct unit *unit = take_lowest(s, left);
        height = pl_u64_max(height, unit->low + unit->bytes);
        each_met(s, (uint32_t)(unit - s->all), lift);
    }
    return height;
}

/* --- all attempts ----------------------------------------------------------------------------- */

static void try_again(struct search *s, uint64_t goal, uint64_t enough, struct pl_packing *out) {
    const uint64_t effort = (uint64_t)s->units->n * s->units->n, was = out->bytes;
    for (int i = 0; i < MOST_ATTEMPTS && i * effort < MOST_EFFORT; i++) {
        const uint64_t height = place_all(s);
        if (height < out->bytes) {
            out->bytes = height;
            for (uint32_t k = 0; k < s->units->n; k++)
                s->all[k].best = s->all[k].low;
        }
        if (out->bytes <= pl_u64_max(goal, enough)) break;
        for (uint32_t k = 0; k < s->units->n; k++)
            if (s->all[k].low + s->all[k].bytes > goal) s->all[k].hardness *= 2;
    }
    for (uint32_t i = 0; i < s->units->n && out->bytes < was; i++)
        pl_unit_put(s->units, i, s->all[i].best);
}

static pl_err search_init(struct search *s, struct pl_diag *d) {
    const size_t n = s->units->n, rows = pl_units_rows(s->units), ops = (size_t)s->units->n_ops + 1;
    s->words = (uint32_t)((n + WORD - 1) / WORD);
    s->all = pl_calloc(n, sizeof *s->all);
    s->order = pl_malloc(n * sizeof(struct unit *));
    s->meets = pl_calloc(n * s->words, sizeof *s->meets);
    s->alive = pl_calloc(s->words, sizeof *s->alive);
    s->unit_of = pl_malloc(rows * sizeof *s->unit_of);
    s->begin = pl_malloc(ops * sizeof *s->begin);
    s->end = pl_malloc(ops * sizeof *s->end);
    s->by_first = pl_malloc(rows * sizeof *s->by_first);
    s->by_last = pl_malloc(rows * sizeof *s->by_last);
    if (!s->all || !s->order || !s->meets || !s->alive || !s->unit_of || !s->begin || !s->end ||
        !s->by_first || !s->by_last)
        return pl_host_oom(d, "the plan");
    find_meetings(s);
    return PL_ERR_OK;
}

static void search_finish(struct search *s) {
    free(s->all);
    free(s->order);
    free(s->meets);
    free(s->alive);
    free(s->unit_of);
    free(s->begin);
    free(s->end);
    free(s->by_first);
    free(s->by_last);
}

pl_err pl_repack(const struct pl_units *units, uint64_t goal, uint64_t enough,
                 struct pl_packing *packing, struct pl_diag *d) {
    struct search s = {.units = units};
    if (packing->bytes <= pl_u64_max(goal, enough)) return PL_ERR_OK;
    if (units->n == 0 || units->n > MOST_UNITS) return PL_ERR_OK;
    pl_err err = search_init(&s, d);
    if (err == PL_ERR_OK) try_again(&s, goal, enough, packing);
    search_finish(&s);
    return err;
}
