/* An attempt places unit after unit, never lower than the one before: next comes a unit whose
 * lowest free offset is the lowest, of several the hardest. Whatever is not placed yet has to fit
 * between that offset and the capacity, so an attempt that cannot succeed is mostly found to be so
 * soon, and takes back as many units as it must. */
#include "estimator/plan/repack.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/conflicts.h"

#include <stdlib.h>
#include <string.h>

#define PLACED UINT64_MAX /* as the lowest offset of a unit */
#define NONE   UINT32_MAX /* as a moment */

/* Heights that are tried, as shares of what is alive above it, and how often each. */
static const struct height {
    uint32_t one_in; /* 0: none */
    uint32_t attempts;
} heights[] = {{0, 4}, {500, 8}, {100, 64}, {50, 200}, {25, 4}, {12, 4}, {6, 4}, {3, 4}, {1, 4}};
enum { HEIGHTS = sizeof heights / sizeof *heights };

#define MOST_UNITS  14000     /* more have no place in the table of who meets whom */
#define MOST_EFFORT 250000000 /* placed units times units, in all attempts: some 0.2 s */

struct raised { /* a unit that another one has pushed upwards */
    uint32_t unit;
    uint64_t was;
};

struct step {
    uint32_t unit;
    uint32_t n_raised; /* by the steps before */
    uint64_t at;
};

struct wish { /* a unit that is to be ranked */
    double hardness;
    const struct pl_interval *first; /* of its intervals */
    uint32_t unit;
};

/* The known state of several neighbours, most of which a step leaves as they are. */
enum { BLOCK = 32 };
struct block {      /* of units */
    uint64_t top;   /* the lowest at which one that is not placed may end */
    uint32_t first; /* to be placed; NONE: all are */
    bool stale;
};
struct moments {
    uint64_t latest; /* the least of all */
    bool stale;
};

struct search {
    const struct pl_units *units;
    struct pl_conflicts meet;
    uint64_t capacity;
    uint64_t effort;         /* that is left */
    uint64_t *bytes, *low;   /* [n] low: the lowest offset that is free, PLACED */
    uint32_t *rank;          /* [n] 0 = the hardest */
    struct block *blocks;    /* of n units */
    struct moments *moments; /* blocks of them */
    uint64_t *waiting;       /* [moments] bytes of the units that are not placed */
    uint64_t *all;           /* [moments] bytes of all units that are alive */
    uint64_t most;           /* of these */
    uint32_t *watched;       /* [moments] a unit that was low enough when it was looked at last */
    uint32_t *watchers;      /* [n] moments that watch it */
    struct step *steps;      /* [n] */
    struct raised *raised;
    uint32_t n_raised;
    uint32_t *like; /* [n] the first unit that is like it */
    double *weight; /* [n] of that: how often one like it was among those that did not fit */
    struct wish *wishes;
};

static uint32_t list_length(const struct pl_lists *l, uint32_t i) {
    return l->begin[i + 1] - l->begin[i];
}

/* --- units that are alike --------------------------------------------------------------------- */

struct life { /* of a unit */
    uint64_t bytes;
    uint32_t moments, meets, unit;
};

static int compare_lives(const struct life *x, const struct life *y) {
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->moments != y->moments) return x->moments < y->moments ? -1 : 1;
    return (x->meets > y->meets) - (x->meets < y->meets);
}

static int by_life(const void *a, const void *b) {
    const struct life *x = a, *y = b;
    const int order = compare_lives(x, y);
    return order ? order : (x->unit > y->unit) - (x->unit < y->unit);
}

/* Units of equal layers share their weight, so what is learnt of one layer need not be learnt again
 * of each. */
static pl_err find_alike(struct search *s, struct pl_diag *d) {
    const uint32_t n = s->units->n;
    struct life *lives = pl_malloc(n * sizeof *lives);
    if (!lives) return pl_host_oom(d, "the plan");
    for (uint32_t u = 0; u < n; u++)
        lives[u] = (struct life){s->bytes[u], list_length(&s->meet.moments, u),
                                 list_length(&s->meet.meets, u), u};
    qsort(lives, n, sizeof *lives, by_life);
    for (uint32_t i = 0, first = 0; i < n; i++) {
        if (compare_lives(&lives[i], &lives[first])) first = i;
        s->like[lives[i].unit] = lives[first].unit;
    }
    free(lives);
    return PL_ERR_OK;
}

/* --- who comes first -------------------------------------------------------------------------- */

/* The hardest first; then by what a unit is (R3). */
static int compare_wishes(const void *a, const void *b) {
    const struct wish *x = a, *y = b;
    if (x->hardness != y->hardness) return x->hardness > y->hardness ? -1 : 1;
    if (x->first->first != y->first->first) return x->first->first < y->first->first ? -1 : 1;
    if (x->first->last != y->first->last) return x->first->last < y->first->last ? -1 : 1;
    if (x->first->bytes != y->first->bytes) return x->first->bytes > y->first->bytes ? -1 : 1;
    return (x->unit > y->unit) - (x->unit < y->unit);
}

/* Hard is what meets many others, up to three times as hard what was often in the way. What was so
 * long ago counts less. */
static void rank_units(struct search *s) {
    double heaviest = 1;
    for (uint32_t u = 0; u < s->units->n; u++)
        if (s->weight[u] > heaviest) heaviest = s->weight[u];
    for (uint32_t u = 0; u < s->units->n; u++) {
        const double meets = list_length(&s->meet.meets, u);
        s->wishes[u] = (struct wish){meets * (1 + 2 * s->weight[s->like[u]] / heaviest),
                                     &s->units->rows[pl_unit_begin(s->units, u)], u};
    }
    for (uint32_t u = 0; u < s->units->n; u++)
        s->weight[u] /= 2;
    qsort(s->wishes, s->units->n, sizeof *s->wishes, compare_wishes);
    for (uint32_t i = 0; i < s->units->n; i++)
        s->rank[s->wishes[i].unit] = i;
}

/* --- a step ----------------------------------------------------------------------------------- */

static bool is_before(const struct search *s, uint64_t low, uint32_t rank, uint32_t unit) {
    return low < s->low[unit] || (low == s->low[unit] && rank < s->rank[unit]);
}

/* The first unit of a block from (at, rank) on; NONE. */
static uint32_t first_of(const struct search *s, uint32_t block, uint64_t at, uint32_t rank) {
    const uint32_t end = (uint32_t)pl_u64_min((block + 1) * BLOCK, s->units->n);
    uint32_t first = NONE;
    for (uint32_t u = block * BLOCK; u < end; u++) {
        if (s->low[u] == PLACED || (s->low[u] == at ? s->rank[u] < rank : s->low[u] < at)) continue;
        if (first == NONE || is_before(s, s->low[u], s->rank[u], first)) first = u;
    }
    return first;
}

static void look_at(struct search *s, uint32_t block) {
    struct block *b = &s->blocks[block];
    const uint32_t end = (uint32_t)pl_u64_min((block + 1) * BLOCK, s->units->n);
    *b = (struct block){.top = PLACED, .first = first_of(s, block, 0, 0)};
    for (uint32_t u = block * BLOCK; u < end; u++)
        if (s->low[u] != PLACED) b->top = pl_u64_min(b->top, s->low[u] + s->bytes[u]);
}

static void set_low(struct search *s, uint32_t unit, uint64_t low) {
    s->low[unit] = low;
    s->blocks[unit / BLOCK].stale = true;
}

/* The first choice from (at, rank) on. None is worth it that leaves room for another unit below. */
static bool choose(struct search *s, uint64_t at, uint32_t rank, struct step *out) {
    uint64_t top = PLACED;
    uint32_t found = NONE;
    for (uint32_t i = 0; i * BLOCK < s->units->n; i++) {
        struct block *b = &s->blocks[i];
        if (b->stale) look_at(s, i);
        if (b->first == NONE) continue;
        top = pl_u64_min(top, b->top);
        const bool late = s->low[b->first] == at ? s->rank[b->first] < rank : s->low[b->first] < at;
        const uint32_t u = late ? first_of(s, i, at, rank) : b->first;
        if (u != NONE && (found == NONE || is_before(s, s->low[u], s->rank[u], found))) found = u;
    }
    if (found == NONE || s->low[found] >= top) return false;
    *out = (struct step){.unit = found, .at = s->low[found]};
    return true;
}

/* The highest offset that the next unit of a moment may have, so that all fit; UINT64_MAX: none
 * waits. */
static uint64_t latest_of(const struct search *s, uint32_t moment) {
    return s->waiting[moment] ? s->capacity - s->waiting[moment] : UINT64_MAX;
}

static void set_waiting(struct search *s, uint32_t moment, uint64_t bytes) {
    s->waiting[moment] = bytes;
    s->moments[moment / BLOCK].stale = true;
}

static void watch(struct search *s, uint32_t moment, uint32_t unit) {
    s->watchers[s->watched[moment]]--;
    s->watchers[unit]++;
    s->watched[moment] = unit;
}

static void place(struct search *s, struct step *step) {
    const struct pl_lists *meets = &s->meet.meets, *moments = &s->meet.moments;
    const uint64_t bytes = s->bytes[step->unit], top = step->at + bytes;
    step->n_raised = s->n_raised;
    for (uint32_t i = meets->begin[step->unit]; i < meets->begin[step->unit + 1]; i++) {
        const uint32_t other = meets->items[i];
        if (s->low[other] >= top) continue;
        s->raised[s->n_raised++] = (struct raised){other, s->low[other]};
        set_low(s, other, top);
    }
    set_low(s, step->unit, PLACED);
    for (uint32_t i = moments->begin[step->unit]; i < moments->begin[step->unit + 1]; i++)
        set_waiting(s, moments->items[i], s->waiting[moments->items[i]] - bytes);
}

/* A unit that waits again is watched if it is low enough, since the one that was found later need
 * not have been so before. */
static void take_back(struct search *s, const struct step *step) {
    const struct pl_lists *moments = &s->meet.moments;
    for (; s->n_raised > step->n_raised; s->n_raised--)
        set_low(s, s->raised[s->n_raised - 1].unit, s->raised[s->n_raised - 1].was);
    set_low(s, step->unit, step->at);
    for (uint32_t i = moments->begin[step->unit]; i < moments->begin[step->unit + 1]; i++) {
        const uint32_t m = moments->items[i];
        set_waiting(s, m, s->waiting[m] + s->bytes[step->unit]);
        if (step->at <= latest_of(s, m)) watch(s, m, step->unit);
    }
}

/* True if a unit that waits at a moment may lie as low as one of them has to. */
static bool one_is_low(struct search *s, uint32_t moment) {
    const struct pl_lists *alive = &s->meet.alive;
    const uint64_t most = latest_of(s, moment);
    if (most == UINT64_MAX) return true;
    if (s->low[s->watched[moment]] <= most) return true;
    for (uint32_t i = alive->begin[moment + 1]; i-- > alive->begin[moment];)
        if (s->low[alive->items[i]] <= most) {
            watch(s, moment, alive->items[i]);
            return true;
        }
    return false;
}

/* The first moment of which a unit has to lie below `at`; NONE. */
static uint32_t first_late(struct search *s, uint64_t at) {
    for (uint32_t i = 0; i * BLOCK < s->meet.n_moments; i++) {
        const uint32_t end = (uint32_t)pl_u64_min((i + 1) * BLOCK, s->meet.n_moments);
        struct moments *b = &s->moments[i];
        if (b->stale) {
            *b = (struct moments){.latest = UINT64_MAX};
            for (uint32_t m = i * BLOCK; m < end; m++)
                b->latest = pl_u64_min(b->latest, latest_of(s, m));
        }
        for (uint32_t m = i * BLOCK; m < end && b->latest < at; m++)
            if (latest_of(s, m) < at) return m;
    }
    return NONE;
}

/* The first moment before `end` at which no unit that waits is low enough any more, of those that
 * watched one which was placed or pushed upwards; else `end`. */
static uint32_t first_stuck_of(struct search *s, uint32_t unit, uint32_t end) {
    const struct pl_lists *moments = &s->meet.moments;
    if (!s->watchers[unit]) return end;
    for (uint32_t i = moments->begin[unit]; i < moments->begin[unit + 1]; i++) {
        const uint32_t m = moments->items[i];
        if (m >= end) return end;
        if (s->watched[m] == unit && !one_is_low(s, m)) return m;
    }
    return end;
}

static uint32_t first_stuck(struct search *s, const struct step *last) {
    uint32_t found = first_stuck_of(s, last->unit, NONE);
    for (uint32_t i = last->n_raised; i < s->n_raised; i++)
        found = first_stuck_of(s, s->raised[i].unit, found);
    return found;
}

/* A moment at which what waits cannot lie between the last step and the capacity; NONE. */
static uint32_t find_full(struct search *s, const struct step *last) {
    const struct pl_lists *moments = &s->meet.moments;
    const uint64_t top = last->at + s->bytes[last->unit];
    for (uint32_t i = moments->begin[last->unit]; i < moments->begin[last->unit + 1]; i++)
        if (top + s->waiting[moments->items[i]] > s->capacity) return moments->items[i];
    const uint32_t late = first_late(s, last->at), stuck = first_stuck(s, last);
    return late < stuck ? late : stuck;
}

/* --- an attempt ------------------------------------------------------------------------------- */

static void begin(struct search *s) {
    rank_units(s);
    for (uint32_t u = 0; u < s->units->n; u++)
        set_low(s, u, 0);
    for (uint32_t m = 0; m < s->meet.n_moments; m++) {
        set_waiting(s, m, s->all[m]);
        watch(s, m, s->meet.alive.items[s->meet.alive.begin[m + 1] - 1]);
    }
    s->n_raised = 0;
}

/* Adds weight to the units that wait at a moment that is full, and to the one that filled it. */
static void add_weight(struct search *s, uint32_t moment, uint32_t last) {
    const struct pl_lists *alive = &s->meet.alive;
    for (uint32_t i = alive->begin[moment]; i < alive->begin[moment + 1]; i++)
        if (s->low[alive->items[i]] != PLACED || alive->items[i] == last)
            s->weight[s->like[alive->items[i]]]++;
}

/* True if all units are within the capacity, after some `nodes` steps at most. */
static bool attempt(struct search *s, uint64_t nodes) {
    uint64_t at = 0;
    uint32_t depth = 0, rank = 0;
    begin(s);
    for (; depth < s->units->n && nodes > 0; nodes--) {
        struct step *step = &s->steps[depth];
        if (choose(s, at, rank, step)) {
            place(s, step);
            const uint32_t full = find_full(s, step);
            if (full == NONE) {
                depth++;
            } else {
                add_weight(s, full, step->unit);
                take_back(s, step);
            }
        } else {
            if (depth == 0) break;
            step = &s->steps[--depth];
            take_back(s, step);
        }
        at = step->at;
        rank = s->rank[step->unit] + 1;
    }
    return depth == s->units->n;
}

static void take(const struct search *s, struct pl_packing *out) {
    uint64_t height = 0;
    for (uint32_t i = 0; i < s->units->n; i++) {
        const struct step *step = &s->steps[i];
        pl_unit_put(s->units, step->unit, step->at);
        height = pl_u64_max(height, step->at + s->bytes[step->unit]);
    }
    out->bytes = height;
}

/* --- all attempts ----------------------------------------------------------------------------- */

static pl_err search_init(struct search *s, struct pl_diag *d) {
    PL_TRY(pl_conflicts_find(&s->meet, s->units, d));
    const size_t n = s->units->n, moments = s->meet.n_moments;
    s->bytes = pl_malloc(2 * n * sizeof *s->bytes);
    s->waiting = pl_calloc(2 * moments, sizeof *s->waiting);
    s->watched = pl_calloc(moments, sizeof *s->watched);
    s->watchers = pl_calloc(n, sizeof *s->watchers);
    s->rank = pl_malloc(n * sizeof *s->rank);
    s->blocks = pl_malloc((n / BLOCK + 1) * sizeof *s->blocks);
    s->moments = pl_malloc((moments / BLOCK + 1) * sizeof *s->moments);
    s->steps = pl_malloc(n * sizeof *s->steps);
    s->like = pl_malloc(n * sizeof *s->like);
    s->weight = pl_calloc(n, sizeof *s->weight);
    s->wishes = pl_malloc(n * sizeof *s->wishes);
    /* of two that meet, one is placed before the other and raises it once */
    s->raised = pl_malloc((s->meet.meets.begin[n] / 2 + 1) * sizeof *s->raised);
    if (!s->bytes || !s->waiting || !s->watched || !s->watchers || !s->rank || !s->blocks ||
        !s->moments || !s->steps || !s->like || !s->weight || !s->wishes || !s->raised)
        return pl_host_oom(d, "the plan");
    s->low = s->bytes + n;
    s->watchers[0] = (uint32_t)moments;
    s->all = s->waiting + moments;
    for (uint32_t u = 0; u < n; u++) {
        s->bytes[u] = s->units->rows[pl_unit_begin(s->units, u)].bytes;
        for (uint32_t i = s->meet.moments.begin[u]; i < s->meet.moments.begin[u + 1]; i++)
            s->all[s->meet.moments.items[i]] += s->bytes[u];
    }
    for (uint32_t m = 0; m < moments; m++)
        s->most = pl_u64_max(s->most, s->all[m]);
    return find_alike(s, d);
}

static void search_finish(struct search *s) {
    pl_conflicts_finish(&s->meet);
    free(s->bytes);
    free(s->waiting);
    free(s->watched);
    free(s->watchers);
    free(s->rank);
    free(s->blocks);
    free(s->moments);
    free(s->steps);
    free(s->like);
    free(s->weight);
    free(s->wishes);
    free(s->raised);
}

/* True if a packing within the capacity was found. */
static bool try_height(struct search *s, uint32_t attempts) {
    const uint64_t n = s->units->n;
    for (uint32_t i = 0; i < attempts; i++) {
        const uint64_t nodes = n + n / 4;
        if (nodes * n > s->effort) return false;
        s->effort -= nodes * n;
        if (attempt(s, nodes)) return true;
    }
    return false;
}

static void try_heights(struct search *s, uint64_t least, struct pl_packing *out) {
    for (int i = 0; i < HEIGHTS; i++) {
        s->capacity = least + (heights[i].one_in ? least / heights[i].one_in : 0);
        if (s->capacity >= out->bytes) return;
        if (!try_height(s, heights[i].attempts)) continue;
        take(s, out);
        return;
    }
}

pl_err pl_repack(const struct pl_units *units, uint64_t goal, uint64_t enough,
                 struct pl_packing *packing, struct pl_diag *d) {
    struct search s = {.units = units, .effort = MOST_EFFORT};
    if (packing->bytes <= pl_u64_max(goal, enough)) return PL_ERR_OK;
    if (units->n == 0 || units->n > MOST_UNITS) return PL_ERR_OK;
    pl_err err = search_init(&s, d);
    if (err == PL_ERR_OK) try_heights(&s, pl_u64_max(goal, s.most), packing);
    search_finish(&s);
    return err;
}
