/* pack.c - placing intervals outwards from a pivot op.
 *
 * Everything alive at the pivot is laid side by side without a gap. Then time runs away from the
 * pivot in both directions: an interval that ends gives its bytes back, one that begins takes the
 * smallest gap that holds it (best fit), longer-lived ones first. With the pivot at the peak the
 * packing is tight where it matters, and both walks only ever see demand below the peak; pivots at
 * the two ends are the classical forward and backward passes. The order in which the pivot's own
 * intervals are laid decides which gaps become neighbours: those that began first, or those that
 * end last; and among those that begin together the largest may come first instead. The best of a
 * few starts is kept. */
#include "estimator/plan/pack.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>

struct gap {
    uint64_t offset, bytes;
};

struct space { /* free bytes below `top`, sorted by offset, never adjacent */
    struct gap *gaps;
    uint32_t n;
    uint64_t top;
};

struct lists {             /* intervals by first and by last op, each list long-lived first */
    uint32_t *begin, *end; /* [n_ops+1] starts into the arrays below */
    uint32_t *by_first, *by_last; /* [n] */
};

struct packer {
    struct pl_interval *rows;
    uint32_t n, n_ops;
    struct lists l;
    struct space space, at_pivot;
    uint64_t *best; /* [n] offsets of the best attempt */
    uint32_t *room; /* [n] for sorting */
};

static void space_remove(struct space *s, uint32_t i) {
    memmove(&s->gaps[i], &s->gaps[i + 1], (s->n - i - 1) * sizeof *s->gaps);
    s->n--;
}

static uint64_t space_take(struct space *s, uint64_t bytes) {
    uint32_t best = UINT32_MAX;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        const bool better = s->gaps[i].bytes >= bytes && s->gaps[i].bytes < least;
        best = better ? i : best;
        least = better ? s->gaps[i].bytes : least;
    }
    uint64_t offset;
    if (best != UINT32_MAX) {
        struct gap *g = &s->gaps[best];
        offset = g->offset;
        g->offset += bytes;
        g->bytes -= bytes;
        if (g->bytes == 0) space_remove(s, best);
        return offset;
    }
    offset = s->top;
    if (s->n && s->gaps[s->n - 1].offset + s->gaps[s->n - 1].bytes == s->top)
        offset = s->gaps[--s->n].offset;
    s->top = offset + bytes;
    return offset;
}

static void space_give(struct space *s, uint64_t offset, uint64_t bytes) {
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->gaps[mid].offset < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    bool left = lo > 0 && s->gaps[lo - 1].offset + s->gaps[lo - 1].bytes == offset;
    bool right = lo < s->n && offset + bytes == s->gaps[lo].offset;
    if (left && right) {
        s->gaps[lo - 1].bytes += bytes + s->gaps[lo].bytes;
        space_remove(s, lo);
    } else if (left) {
        s->gaps[lo - 1].bytes += bytes;
    } else if (right) {
        s->gaps[lo].offset = offset;
        s->gaps[lo].bytes += bytes;
    } else {
        memmove(&s->gaps[lo + 1], &s->gaps[lo], (s->n - lo) * sizeof *s->gaps);
        s->gaps[lo] = (struct gap){offset, bytes};
        s->n++;
    }
}

static void space_copy(struct space *to, const struct space *from) {
    memcpy(to->gaps, from->gaps, from->n * sizeof *to->gaps);
    to->n = from->n;
    to->top = from->top;
}

void pl_pack_by_op(const struct pl_interval *rows, uint32_t n, uint32_t n_ops, bool by_first,
                   uint32_t *starts, uint32_t *out) {
    memset(starts, 0, (n_ops + 1) * sizeof *starts);
    for (uint32_t i = 0; i < n; i++)
        starts[(by_first ? rows[i].first : rows[i].last) + 1]++;
    for (uint32_t op = 0; op < n_ops; op++)
        starts[op + 1] += starts[op];
    for (uint32_t i = 0; i < n; i++)
        out[starts[by_first ? rows[i].first : rows[i].last]++] = i;
    memmove(starts + 1, starts, n_ops * sizeof *starts);
    starts[0] = 0;
}

static bool before(const struct pl_interval *a, const struct pl_interval *b, bool largest_first) {
    uint32_t la = a->last - a->first, lb = b->last - b->first;
    if (largest_first) return a->bytes != b->bytes ? a->bytes > b->bytes : la > lb;
    return la != lb ? la > lb : a->bytes > b->bytes;
}

#define SHORT_LIST 12

static void insert_sort(const struct pl_interval *rows, uint32_t *ids, uint32_t n,
                        bool largest_first) {
    for (uint32_t i = 1; i < n; i++) {
        uint32_t v = ids[i], j = i;
        for (; j > 0 && before(&rows[v], &rows[ids[j - 1]], largest_first); j--)
            ids[j] = ids[j - 1];
        ids[j] = v;
    }
}

/* Stable. Most lists are a handful long; what runs as one with a thousand others is not. room: for
 * half of the list. */
static void sort_list(const struct pl_interval *rows, uint32_t *ids, uint32_t n, uint32_t *room,
                      bool largest_first) {
    if (n <= SHORT_LIST) {
        insert_sort(rows, ids, n, largest_first);
        return;
    }
    const uint32_t half = n / 2;
    uint32_t left = 0, right = half, out = 0;
    sort_list(rows, ids, half, room, largest_first);
    sort_list(rows, ids + half, n - half, room, largest_first);
    if (!before(&rows[ids[half]], &rows[ids[half - 1]], largest_first)) return;
    memcpy(room, ids, half * sizeof *ids);
    while (left < half && right < n) {
        const bool second = before(&rows[ids[right]], &rows[room[left]], largest_first);
        ids[out++] = second ? ids[right++] : room[left++];
    }
    memcpy(ids + out, room + left, (half - left) * sizeof *ids);
}

static void sort_lists(struct packer *p, const uint32_t *starts, uint32_t *ids,
                       bool largest_first) {
    for (uint32_t op = 0; op < p->n_ops; op++)
        sort_list(p->rows, ids + starts[op], starts[op + 1] - starts[op], p->room, largest_first);
}

/* One step away from the pivot: `enter` lists begin here, `leave` lists ended one op nearer. */
static void walk_op(struct packer *p, const uint32_t *leave_at, const uint32_t *leave,
                    uint32_t leave_op, const uint32_t *enter_at, const uint32_t *enter,
                    uint32_t enter_op) {
    for (uint32_t i = leave_at[leave_op]; i < leave_at[leave_op + 1]; i++)
        space_give(&p->space, p->rows[leave[i]].offset, p->rows[leave[i]].bytes);
    for (uint32_t i = enter_at[enter_op]; i < enter_at[enter_op + 1]; i++)
        p->rows[enter[i]].offset = space_take(&p->space, p->rows[enter[i]].bytes);
}

struct start {
    uint32_t pivot;
    bool ends_last; /* lay the pivot's intervals from the last to end on, else from the oldest */
    bool largest_first;
};

/* The height, or one that is not below `limit`: then it does not matter what it is. */
static uint64_t pack_from(struct packer *p, struct start start, uint64_t limit) {
    const uint32_t pivot = start.pivot;
    p->at_pivot.n = 0;
    p->at_pivot.top = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t id = start.ends_last ? p->l.by_last[p->n - 1 - i] : p->l.by_first[i];
        struct pl_interval *r = &p->rows[id];
        if (r->first > pivot || r->last < pivot) continue;
        r->offset = p->at_pivot.top;
        p->at_pivot.top += r->bytes;
    }
    space_copy(&p->space, &p->at_pivot);
    for (uint32_t op = pivot + 1; op < p->n_ops && p->space.top < limit; op++)
        walk_op(p, p->l.end, p->l.by_last, op - 1, p->l.begin, p->l.by_first, op);
    uint64_t top = p->space.top;
    if (top >= limit) return top;
    space_copy(&p->space, &p->at_pivot);
    p->space.top = top; /* what the other walk already needs is free here */
    if (top > p->at_pivot.top) space_give(&p->space, p->at_pivot.top, top - p->at_pivot.top);
    for (uint32_t op = pivot; op-- > 0 && p->space.top < limit;)
        walk_op(p, p->l.begin, p->l.by_first, op + 1, p->l.end, p->l.by_last, op);
    return p->space.top;
}

static void lower_bound(const struct packer *p, struct pl_packing *out) {
    uint64_t live = 0;
    *out = (struct pl_packing){0};
    for (uint32_t op = 0; op < p->n_ops; op++) {
        for (uint32_t i = p->l.begin[op]; i < p->l.begin[op + 1]; i++)
            live += p->rows[p->l.by_first[i]].bytes;
        if (live > out->live_bytes) {
            out->live_bytes = live;
            out->peak_op = op;
        }
        for (uint32_t i = p->l.end[op]; i < p->l.end[op + 1]; i++)
            live -= p->rows[p->l.by_last[i]].bytes;
    }
}

/* True if no other start is needed: none is better, or the height is one that is enough. */
static bool attempt(struct packer *p, struct start start, uint64_t enough, struct pl_packing *out) {
    const uint64_t limit = out->bytes ? out->bytes : UINT64_MAX;
    const uint64_t bytes = pack_from(p, start, limit);
    if (bytes >= limit) return false;
    out->bytes = bytes;
    for (uint32_t i = 0; i < p->n; i++)
        p->best[i] = p->rows[i].offset;
    return bytes == out->live_bytes || bytes <= enough;
}

static pl_err packer_init(struct packer *p, struct pl_diag *d) {
    size_t ops = (size_t)p->n_ops + 2, n = (size_t)p->n + 2;
    p->l.begin = pl_malloc(ops * sizeof(uint32_t));
    p->l.end = pl_malloc(ops * sizeof(uint32_t));
    p->l.by_first = pl_malloc(n * sizeof(uint32_t));
    p->l.by_last = pl_malloc(n * sizeof(uint32_t));
    p->space.gaps = pl_malloc(n * sizeof(struct gap));
    p->at_pivot.gaps = pl_malloc(n * sizeof(struct gap));
    p->best = pl_malloc(n * sizeof(uint64_t));
    p->room = pl_malloc(n * sizeof(uint32_t));
    if (!p->l.begin || !p->l.end || !p->l.by_first || !p->l.by_last || !p->space.gaps ||
        !p->at_pivot.gaps || !p->best || !p->room)
        return pl_host_oom(d, "the plan");
    return PL_ERR_OK;
}

static void packer_finish(struct packer *p) {
    free(p->l.begin);
    free(p->l.end);
    free(p->l.by_first);
    free(p->l.by_last);
    free(p->space.gaps);
    free(p->at_pivot.gaps);
    free(p->best);
    free(p->room);
}

/* More than this share above the lower bound is worth one more start. */
#define WORTH_MORE 100

/* Ordered by how often each wins; the last two need the lists sorted again. */
static void try_starts(struct packer *p, uint64_t enough, struct pl_packing *out) {
    const struct start starts[] = {{out->peak_op, false, false}, {0, false, false},
                                   {p->n_ops - 1, false, false}, {out->peak_op, true, false},
                                   {out->peak_op, true, true},   {p->n_ops - 1, false, true}};
    enum { LAST = sizeof starts / sizeof *starts - 1 };
    for (size_t i = 0; i <= LAST; i++) {
        if (i == LAST && out->bytes - out->live_bytes <= out->live_bytes / WORTH_MORE) return;
        if (i == 0 || starts[i].largest_first != starts[i - 1].largest_first) {
            sort_lists(p, p->l.begin, p->l.by_first, starts[i].largest_first);
            sort_lists(p, p->l.end, p->l.by_last, starts[i].largest_first);
        }
        if (attempt(p, starts[i], enough, out)) return;
    }
}

pl_err pl_pack(struct pl_interval *rows, uint32_t n, uint32_t n_ops, struct pl_packing *out,
               struct pl_diag *d) {
    return pl_pack_within(rows, n, n_ops, 0, out, d);
}

pl_err pl_pack_within(struct pl_interval *rows, uint32_t n, uint32_t n_ops, uint64_t enough,
                      struct pl_packing *out, struct pl_diag *d) {
    *out = (struct pl_packing){0};
    if (n == 0 || n_ops == 0) return PL_ERR_OK;
    struct packer p = {.rows = rows, .n = n, .n_ops = n_ops};
    pl_err err = packer_init(&p, d);
    if (err == PL_ERR_OK) {
        pl_pack_by_op(rows, n, n_ops, true, p.l.begin, p.l.by_first);
        pl_pack_by_op(rows, n, n_ops, false, p.l.end, p.l.by_last);
        lower_bound(&p, out);
        try_starts(&p, enough, out);
        for (uint32_t i = 0; i < n; i++)
            rows[i].offset = p.best[i];
    }
    packer_finish(&p);
    return err;
}

pl_err pl_pack_bound(const struct pl_interval *rows, uint32_t n, uint32_t n_ops,
                     struct pl_packing *out, struct pl_diag *d) {
    *out = (struct pl_packing){0};
    uint64_t *live = pl_calloc((size_t)n_ops + 1, sizeof *live);
    if (!live) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < n; i++) {
        live[rows[i].first] += rows[i].bytes;
        live[rows[i].last + 1] -= rows[i].bytes; /* modulo 2^64, as the sums are */
    }
    for (uint32_t op = 0; op < n_ops; op++) {
        if (op) live[op] += live[op - 1];
        if (live[op] <= out->live_bytes) continue;
        out->live_bytes = live[op];
        out->peak_op = op;
    }
    free(live);
    return PL_ERR_OK;
}
