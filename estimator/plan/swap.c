/* swap.c - see swap.h. */
#include "estimator/plan/swap.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TRIES      120    /* from the given order on */
#define STARTS     16     /* with other random numbers */
#define MOST_UNITS 2000   /* with more a try takes too long */
#define EFFORT     480000 /* tries times units, at most */

struct swapper {
    const struct pl_units *units;
    struct pl_swap_goals goals;
    uint32_t *begin, *meets; /* [n + 1], of each unit: those that are alive at a common op, by
                              * their offsets as they were when it was placed last */
    uint32_t *order, *was_order, *position;
    uint64_t *bytes, *at, *was_at; /* [n]; the latter are offsets */
    uint32_t tries;                /* that are left */
    uint64_t random;
};

/* --- who meets whom --------------------------------------------------------------------------- */

/* Rows of a unit ascend. */
static bool meet(const struct pl_units *u, uint32_t a, uint32_t b) {
    uint32_t i = pl_unit_begin(u, a), j = pl_unit_begin(u, b);
    while (i < u->ends[a] && j < u->ends[b]) {
        const struct pl_interval *x = &u->rows[i], *y = &u->rows[j];
        if (x->first <= y->last && y->first <= x->last) return true;
        if (x->last < y->last)
            i++;
        else
            j++;
    }
    return false;
}

static pl_err find_meetings(struct swapper *s, struct pl_diag *d) {
    const uint32_t n = s->units->n;
    uint32_t cap = 64 * n;
    s->meets = pl_malloc(cap * sizeof *s->meets);
    if (!s->meets) return pl_host_oom(d, "the plan");
    s->begin[0] = 0;
    for (uint32_t a = 0, out = 0; a < n; a++) {
        if (out + n > cap) {
            cap = 2 * cap + n;
            uint32_t *more = pl_realloc(s->meets, cap * sizeof *more);
            if (!more) return pl_host_oom(d, "the plan");
            s->meets = more;
        }
        for (uint32_t b = 0; b < n; b++)
            if (a != b && meet(s->units, a, b)) s->meets[out++] = b;
        s->begin[a + 1] = out;
    }
    return PL_ERR_OK;
}

/* --- placing ---------------------------------------------------------------------------------- */

/* Those that a unit meets, by their offsets; few of these have changed since the last time. */
static void sort_meetings(struct swapper *s, uint32_t unit) {
    uint32_t *list = s->meets + s->begin[unit];
    const uint32_t n = s->begin[unit + 1] - s->begin[unit];
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t other = list[i];
        uint32_t k = i;
        for (; k > 0 && s->at[list[k - 1]] > s->at[other]; k--)
            list[k] = list[k - 1];
        list[k] = other;
    }
}

/* The lowest offset that is free of all that were placed before. */
static uint64_t lowest_free(struct swapper *s, uint32_t unit, uint64_t bytes) {
    uint64_t at = 0;
    sort_meetings(s, unit);
    for (uint32_t i = s->begin[unit]; i < s->begin[unit + 1]; i++) {
        const uint32_t other = s->meets[i];
        if (s->position[other] > s->position[unit]) continue;
        if (s->at[other] >= at + bytes) break;
        at = pl_u64_max(at, s->at[other] + s->bytes[other]);
    }
    return at;
}

/* Places all from a position of the order on, as long as they stay within a height. */
static bool place_from(struct swapper *s, uint32_t first, uint64_t height) {
    for (uint32_t i = first; i < s->units->n; i++)
        s->position[s->order[i]] = i;
    for (uint32_t i = first; i < s->units->n; i++) {
        const uint32_t unit = s->order[i];
        const uint64_t bytes = s->bytes[unit];
        s->at[unit] = lowest_free(s, unit, bytes);
        if (s->at[unit] + bytes > height) return false;
    }
    return true;
}

static uint64_t height_of(const struct swapper *s) {
    uint64_t height = 0;
    for (uint32_t u = 0; u < s->units->n; u++)
        height = pl_u64_max(height, s->at[u] + s->bytes[u]);
    return height;
}

static void take(const struct swapper *s, uint64_t height, struct pl_packing *out) {
    out->bytes = height;
    for (uint32_t u = 0; u < s->units->n; u++)
        pl_unit_put(s->units, u, s->at[u]);
}

/* --- exchanging ------------------------------------------------------------------------------- */

static uint32_t draw(struct swapper *s, uint32_t below) { /* splitmix64 */
    uint64_t z = (s->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

/* Position of a unit that ends above the goal, and of an earlier one that it meets; false: there
 * is no such pair. */
static bool draw_pair(struct swapper *s, uint32_t *earlier, uint32_t *later) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->units->n; i++)
        if (s->at[s->order[i]] + s->bytes[s->order[i]] > s->goals.goal && draw(s, ++n) == 0)
            *later = i;
    if (!n) return false;
    const uint32_t unit = s->order[*later];
    n = 0;
    for (uint32_t i = s->begin[unit]; i < s->begin[unit + 1]; i++) {
        const uint32_t at = s->position[s->meets[i]];
        if (at < *later && draw(s, ++n) == 0) *earlier = at;
    }
    return n > 0;
}

/* The two change places or, every other time, the later one goes before the other. */
static void change(struct swapper *s, uint32_t earlier, uint32_t later) {
    const uint32_t unit = s->order[later];
    if (draw(s, 2))
        s->order[later] = s->order[earlier];
    else
        memmove(&s->order[earlier + 1], &s->order[earlier], (later - earlier) * sizeof *s->order);
    s->order[earlier] = unit;
}

static void try_change(struct swapper *s, uint32_t earlier, uint32_t later, uint64_t *height,
                       struct pl_packing *out) {
    const uint32_t n = s->units->n;
    memcpy(s->was_order, s->order, n * sizeof *s->order);
    memcpy(s->was_at, s->at, n * sizeof *s->at);
    change(s, earlier, later);
    if (place_from(s, earlier, *height)) {
        *height = height_of(s);
        if (*height < out->bytes) take(s, *height, out);
        return;
    }
    memcpy(s->order, s->was_order, n * sizeof *s->order);
    memcpy(s->at, s->was_at, n * sizeof *s->at);
    for (uint32_t i = earlier; i <= later; i++)
        s->position[s->order[i]] = i;
}

static void search(struct swapper *s, const uint32_t *order, uint64_t goal,
                   struct pl_packing *out) {
    uint32_t earlier = 0, later = 0;
    memcpy(s->order, order, s->units->n * sizeof *s->order);
    (void)place_from(s, 0, UINT64_MAX);
    uint64_t height = height_of(s);
    if (height < out->bytes) take(s, height, out);
    for (int i = 0; i < TRIES && s->tries > 0; i++, s->tries--) {
        if (out->bytes <= goal || out->bytes <= s->goals.enough) return;
        if (draw_pair(s, &earlier, &later)) try_change(s, earlier, later, &height, out);
    }
}

static pl_err swapper_init(struct swapper *s, struct pl_diag *d) {
    const size_t n = s->units->n;
    s->begin = pl_malloc((4 * n + 1) * sizeof *s->begin);
    s->at = pl_calloc(3 * n, sizeof *s->at);
    if (!s->begin || !s->at) return pl_host_oom(d, "the plan");
    s->order = s->begin + n + 1;
    s->was_order = s->order + n;
    s->position = s->was_order + n;
    s->was_at = s->at + n;
    s->bytes = s->was_at + n;
    for (uint32_t u = 0; u < n; u++)
        s->bytes[u] = s->units->rows[pl_unit_begin(s->units, u)].bytes;
    return find_meetings(s, d);
}

pl_err pl_swap_units(const struct pl_units *units, const uint32_t *order,
                     const struct pl_swap_goals *goals, struct pl_packing *packing,
                     struct pl_diag *d) {
    struct swapper s = {.units = units, .goals = *goals};
    if (!units->n || units->n > MOST_UNITS) return PL_ERR_OK;
    s.tries = EFFORT / units->n;
    pl_err err = swapper_init(&s, d);
    for (int i = 0; i < STARTS && err == PL_ERR_OK; i++)
        search(&s, order, i ? pl_u64_max(goals->goal, goals->loose) : goals->goal, packing);
    free(s.begin);
    free(s.meets);
    free(s.at);
    return err;
}
