#include "estimator/plan/conflicts.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

#define SAME UINT32_MAX /* as a moment that is numbered */

struct moment {
    uint64_t key;    /* of the units that are alive */
    uint32_t place;  /* in the order of time */
    uint32_t number; /* SAME: of another one */
};

struct life { /* of a unit */
    uint32_t moments, unit;
};

struct finder {
    const struct pl_units *units;
    uint32_t *before; /* [n_ops + 1] moments before an op */
    struct moment *moments;
    uint32_t n_moments; /* with equal ones */
    struct life *lives; /* [units], the longest first */
    struct pl_conflicts *out;
};

/* --- moments ---------------------------------------------------------------------------------- */

enum { BEGINS = 1, ENDS = 2 };

/* Numbers the ops at which something ends. */
static pl_err find_moments(struct finder *f, struct pl_diag *d) {
    const struct pl_units *u = f->units;
    uint8_t *at = pl_calloc((size_t)u->n_ops + 1, sizeof *at);
    if (!at) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < pl_units_rows(u); i++) {
        at[u->rows[i].first] |= BEGINS;
        at[u->rows[i].last] |= ENDS;
    }
    bool grown = false;
    for (uint32_t op = 0; op < u->n_ops; op++) {
        f->before[op] = f->n_moments;
        grown |= at[op] & BEGINS;
        if (!grown || !(at[op] & ENDS)) continue;
        f->n_moments++;
        grown = false;
    }
    f->before[u->n_ops] = f->n_moments;
    free(at);
    return PL_ERR_OK;
}

static uint64_t mix(uint64_t z) { /* splitmix64 */
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int by_key(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* N2. Moments of one key are the same: the first of them stays. */
static void number_moments(struct finder *f) {
    const struct pl_units *u = f->units;
    for (uint32_t unit = 0; unit < u->n; unit++) {
        const uint64_t key = mix(unit);
        for (uint32_t i = pl_unit_begin(u, unit); i < u->ends[unit]; i++) {
            f->moments[f->before[u->rows[i].first]].key += key;
            f->moments[f->before[u->rows[i].last + 1]].key -= key; /* modulo 2^64 */
        }
    }
    for (uint32_t m = 0; m < f->n_moments; m++) {
        f->moments[m].place = m;
        if (m) f->moments[m].key += f->moments[m - 1].key;
    }
    qsort(f->moments, f->n_moments, sizeof *f->moments, by_key);
    for (uint32_t m = 0; m < f->n_moments; m++) {
        const bool first = !m || f->moments[m].key != f->moments[m - 1].key;
        f->moments[m].number = first ? f->out->n_moments++ : SAME;
    }
    qsort(f->moments, f->n_moments, sizeof *f->moments, by_place);
}

/* --- lists ------------------------------------------------------------------------------------ */

/* Lists of lengths that begin[i + 1] has; then begin[i + 1] is where the next item of list i goes.
 * Once all are there it is where list i + 1 begins. */
static pl_err allocate_items(struct pl_lists *l, uint32_t n, struct pl_diag *d) {
    uint32_t sum = 0;
    for (uint32_t i = 1; i <= n; i++) {
        const uint32_t length = l->begin[i];
        l->begin[i] = sum;
        sum += length;
    }
    l->items = pl_malloc(((size_t)sum + 1) * sizeof *l->items);
    return l->items ? PL_ERR_OK : pl_host_oom(d, "the plan");
}

static pl_err lists_init(struct pl_lists *l, uint32_t n, struct pl_diag *d) {
    l->begin = pl_calloc((size_t)n + 1, sizeof *l->begin);
    return l->begin ? PL_ERR_OK : pl_host_oom(d, "the plan");
}

static void list_add(struct pl_lists *l, uint32_t i, uint32_t item) {
    l->items[l->begin[i + 1]++] = item;
}

static void lists_finish(struct pl_lists *l) {
    free(l->begin);
    free(l->items);
}

/* Calls for each moment that a unit is alive at. */
static void each_moment(const struct finder *f, uint32_t unit,
                        void (*call)(struct pl_conflicts *c, uint32_t unit, uint32_t moment)) {
    const struct pl_units *u = f->units;
    for (uint32_t i = pl_unit_begin(u, unit); i < u->ends[unit]; i++)
        for (uint32_t m = f->before[u->rows[i].first]; m < f->before[u->rows[i].last + 1]; m++)
            if (f->moments[m].number != SAME) call(f->out, unit, f->moments[m].number);
}

static void count_alive(struct pl_conflicts *c, uint32_t unit, uint32_t moment) {
    c->alive.begin[moment + 1]++;
    c->moments.begin[unit + 1]++;
}

static void add_alive(struct pl_conflicts *c, uint32_t unit, uint32_t moment) {
    list_add(&c->alive, moment, unit);
}

static int by_length(const void *a, const void *b) {
    const struct life *x = a, *y = b;
    if (x->moments != y->moments) return x->moments > y->moments ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Units that are alive at many moments are first at each of them. */
static void sort_lives(struct finder *f) {
    const struct pl_units *u = f->units;
    for (uint32_t unit = 0; unit < u->n; unit++)
        f->lives[unit] = (struct life){f->out->moments.begin[unit + 1], unit};
    qsort(f->lives, u->n, sizeof *f->lives, by_length);
}

static pl_err list_alive(struct finder *f, struct pl_diag *d) {
    struct pl_conflicts *c = f->out;
    PL_TRY(lists_init(&c->alive, c->n_moments, d));
    PL_TRY(lists_init(&c->moments, f->units->n, d));
    for (uint32_t unit = 0; unit < f->units->n; unit++)
        each_moment(f, unit, count_alive);
    sort_lives(f);
    PL_TRY(allocate_items(&c->alive, c->n_moments, d));
    PL_TRY(allocate_items(&c->moments, f->units->n, d));
    for (uint32_t i = 0; i < f->units->n; i++)
        each_moment(f, f->lives[i].unit, add_alive);
    for (uint32_t m = 0; m < c->n_moments; m++)
        for (uint32_t i = c->alive.begin[m]; i < c->alive.begin[m + 1]; i++)
            list_add(&c->moments, c->alive.items[i], m);
    return PL_ERR_OK;
}

/* --- who meets whom --------------------------------------------------------------------------- */

enum { WORD = 64 };

struct marker {
    uint32_t words;               /* of all units */
    uint64_t *bits;               /* [n * words] those that a unit meets */
    uint64_t *alive;              /* [words] */
    struct pl_lists begins, ends; /* units, of each moment in the order of time */
};

static void mark(struct marker *k, uint32_t unit) {
    uint64_t *bits = k->bits + (size_t)unit * k->words;
    for (uint32_t w = 0; w < k->words; w++)
        bits[w] |= k->alive[w];
}

static pl_err list_changes(const struct finder *f, struct marker *k, struct pl_diag *d) {
    const struct pl_units *u = f->units;
    const uint32_t n = f->n_moments + 1;
    PL_TRY(lists_init(&k->begins, n, d));
    PL_TRY(lists_init(&k->ends, n, d));
    for (uint32_t i = 0; i < pl_units_rows(u); i++) {
        k->begins.begin[f->before[u->rows[i].first] + 1]++;
        k->ends.begin[f->before[u->rows[i].last + 1] + 1]++;
    }
    PL_TRY(allocate_items(&k->begins, n, d));
    PL_TRY(allocate_items(&k->ends, n, d));
    for (uint32_t unit = 0; unit < u->n; unit++)
        for (uint32_t i = pl_unit_begin(u, unit); i < u->ends[unit]; i++) {
            list_add(&k->begins, f->before[u->rows[i].first], unit);
            list_add(&k->ends, f->before[u->rows[i].last + 1], unit);
        }
    return PL_ERR_OK;
}

/* The later of two that meet gets the mark, then the other one as well. */
static void mark_meetings(const struct finder *f, struct marker *k) {
    for (uint32_t m = 0; m < f->n_moments; m++) {
        for (uint32_t i = k->ends.begin[m]; i < k->ends.begin[m + 1]; i++)
            k->alive[k->ends.items[i] / WORD] &= ~(UINT64_C(1) << k->ends.items[i] % WORD);
        for (uint32_t i = k->begins.begin[m]; i < k->begins.begin[m + 1]; i++) {
            const uint32_t unit = k->begins.items[i];
            mark(k, unit);
            k->alive[unit / WORD] |= UINT64_C(1) << unit % WORD;
        }
    }
    for (uint32_t unit = 0; unit < f->units->n; unit++)
        for (uint32_t w = 0; w < k->words; w++)
            for (uint64_t left = k->bits[(size_t)unit * k->words + w]; left; left &= left - 1) {
                const uint32_t other = w * WORD + (uint32_t)__builtin_ctzll(left);
                k->bits[(size_t)other * k->words + unit / WORD] |= UINT64_C(1) << unit % WORD;
            }
}

/* How many a unit meets, or a list of them. */
static uint32_t read_meetings(const struct marker *k, uint32_t unit, uint32_t *out) {
    uint32_t n = 0;
    for (uint32_t w = 0; w < k->words; w++)
        for (uint64_t left = k->bits[(size_t)unit * k->words + w]; left; left &= left - 1, n++)
            if (out) out[n] = w * WORD + (uint32_t)__builtin_ctzll(left);
    return n;
}

static pl_err list_meetings_marked(struct finder *f, struct marker *k, struct pl_diag *d) {
    const uint32_t n = f->units->n;
    struct pl_lists *meets = &f->out->meets;
    k->words = (n + WORD - 1) / WORD;
    k->alive = pl_calloc(k->words, sizeof *k->alive);
    k->bits = pl_calloc((size_t)n * k->words, sizeof *k->bits);
    if (!k->alive || !k->bits) return pl_host_oom(d, "the plan");
    PL_TRY(list_changes(f, k, d));
    mark_meetings(f, k);
    PL_TRY(lists_init(meets, n, d));
    for (uint32_t unit = 0; unit < n; unit++)
        meets->begin[unit + 1] = read_meetings(k, unit, NULL);
    PL_TRY(allocate_items(meets, n, d));
    for (uint32_t unit = 0; unit < n; unit++)
        meets->begin[unit + 1] += read_meetings(k, unit, meets->items + meets->begin[unit + 1]);
    return PL_ERR_OK;
}

static pl_err list_meetings(struct finder *f, struct pl_diag *d) {
    struct marker k = {0};
    pl_err err = list_meetings_marked(f, &k, d);
    free(k.bits);
    free(k.alive);
    lists_finish(&k.begins);
    lists_finish(&k.ends);
    return err;
}

/* --- all of it -------------------------------------------------------------------------------- */

static pl_err find(struct finder *f, struct pl_diag *d) {
    const size_t ops = (size_t)f->units->n_ops + 2;
    f->before = pl_malloc(ops * sizeof *f->before);
    f->moments = pl_calloc(ops, sizeof *f->moments);
    f->lives = pl_malloc((size_t)f->units->n * sizeof *f->lives);
    if (!f->before || !f->moments || !f->lives) return pl_host_oom(d, "the plan");
    PL_TRY(find_moments(f, d));
    number_moments(f);
    PL_TRY(list_alive(f, d));
    return list_meetings(f, d);
}

pl_err pl_conflicts_find(struct pl_conflicts *c, const struct pl_units *units, struct pl_diag *d) {
    struct finder f = {.units = units, .out = c};
    *c = (struct pl_conflicts){0};
    pl_err err = find(&f, d);
    free(f.before);
    free(f.moments);
    free(f.lives);
    return err;
}

void pl_conflicts_finish(struct pl_conflicts *c) {
    lists_finish(&c->meets);
    lists_finish(&c->moments);
    lists_finish(&c->alive);
    *c = (struct pl_conflicts){0};
}
