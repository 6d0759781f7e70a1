#include "estimator/plan/fold.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/kinds.h"
#include "estimator/plan/layer_runs.h"

#include <stdlib.h>

/* A kind in all layers of a run that are at the same place of their period. */
struct slot {
    uint32_t shared[2]; /* unit of what layers need for themselves, of even and of odd periods */
    uint32_t kept;      /* unit of what the copies, and the period that stands for them, keep */
    uint64_t bytes;
};

struct run_slots {
    uint32_t first;  /* of its slots */
    uint32_t lowest; /* layer of the run that is looked at */
    uint32_t period;
};

/* Rows in the order in which they were found. */
struct found {
    struct pl_interval *rows;
    uint32_t *unit_of; /* [n] */
    uint32_t n, n_units;
};

struct folder {
    const struct pl_phase_tensors *t;
    struct pl_kinds kinds;
    struct pl_layer_runs runs;
    struct run_slots *of_run; /* [runs.n] */
    struct slot *slots;
    uint32_t *alone; /* [kinds] unit of one that no other layer is like; PL_NONE: none yet */
    struct found made;
    bool unlike;
    struct pl_fold *out;
};

/* --- time ------------------------------------------------------------------------------------ */

/* Ops of a run's copies, in a pass, that are before op `op` of pass `at` as a tensor of `layer`,
 * which is no copy, sees it (expand.c has the same of a brief program). */
static uint32_t ops_of_copies(const struct pl_layer_run *r, enum pl_pass pass, enum pl_pass at,
                              uint32_t layer, uint32_t op) {
    const struct pl_stretch *s = &r->pass[pass];
    const uint32_t all = s->n * r->copies;
    const bool up = pass == PL_PASS_UP;
    if (!s->n || at < pass) return 0;
    if (at > pass) return all;
    if (layer == PL_NONE) return op >= s->first + (up ? s->n + all : 0) ? all : 0;
    if (layer >= r->end) return up || op >= s->first + s->n ? all : 0;
    return up ? 0 : all;
}

/* True if the time of the units is that of the program: of a brief one, and of updates. */
static bool keeps_time(const struct folder *f) {
    return f->t->p->layers_left_out || f->t->phase == PL_PHASE_OPTIMIZER;
}

/* In the time of a brief program. */
static uint32_t brief_op(const struct folder *f, uint32_t layer, uint32_t op) {
    const enum pl_pass at = pl_program_pass(f->t->p, op);
    uint32_t brief = op;
    if (keeps_time(f)) return op;
    for (uint32_t i = 0; i < f->runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            brief -= ops_of_copies(&f->runs.list[i], (enum pl_pass)pass, at, layer, op);
    return brief;
}

static uint32_t count_ops(const struct folder *f) {
    uint32_t n = f->t->p->phases[f->t->phase].n_ops;
    if (keeps_time(f)) return n;
    for (uint32_t i = 0; i < f->runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            n -= f->runs.list[i].pass[pass].n * f->runs.list[i].copies;
    return n;
}

/* --- layers that are alike -------------------------------------------------------------------- */

static uint32_t layer_of(const struct folder *f, uint32_t id) {
    return pl_kinds_layer(&f->t->p->tensors[id]);
}

static bool is_copy(const struct folder *f, uint32_t layer) {
    return f->runs.n && layer != PL_NONE && f->t->p->layers_equal[layer] == PL_LAYER_LEFT_OUT;
}

/* The run whose period a layer has, as far as those are looked at; NULL: none. */
static const struct pl_layer_run *run_of(const struct folder *f, uint32_t layer) {
    for (uint32_t i = 0; i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const uint32_t end = pl_layer_run_next(r) + f->t->p->periods_kept * f->of_run[i].period;
        if (layer >= f->of_run[i].lowest && layer < end) return r;
    }
    return NULL;
}

static struct slot *slot_of(const struct folder *f, const struct pl_layer_run *r, uint32_t layer,
                            uint32_t ordinal) {
    const struct run_slots *s = &f->of_run[r - f->runs.list];
    return &f->slots[s->first + (layer - s->lowest) % s->period * f->kinds.most + ordinal];
}

/* Neighbours alternate; with an even period they do so within it. */
static uint32_t parity_of(const struct folder *f, const struct pl_layer_run *r, uint32_t layer) {
    const struct run_slots *s = &f->of_run[r - f->runs.list];
    return s->period % 2 ? (layer - s->lowest) / s->period % 2 : 0;
}

/* --- units ------------------------------------------------------------------------------------ */

static uint32_t new_unit(struct folder *f) {
    return f->made.n_units++;
}

static void add_row(struct folder *f, uint32_t unit, uint64_t bytes, uint32_t first,
                    uint32_t last) {
    const uint32_t first_op = f->t->p->phases[f->t->phase].first_op;
    f->made.unit_of[f->made.n] = unit;
    f->made.rows[f->made.n++] =
        (struct pl_interval){.bytes = bytes, .first = first - first_op, .last = last - first_op};
}

static uint64_t aligned(const struct folder *f, uint32_t id) {
    return pl_u64_round_up(f->t->p->tensors[id].bytes, f->t->p->traits.align_bytes);
}

/* Adds the unit of what the copies and the period that stands for them keep. It lives as long as
 * that period: the period's ops tell where those of the copies find room. */
static void add_kept(struct folder *f, const struct pl_layer_run *r, struct slot *slot, uint32_t id,
                     uint32_t layer) {
    const struct pl_place_row *row = &f->t->places[id];
    slot->kept = new_unit(f);
    slot->bytes = aligned(f, id);
    if (f->t->phase == PL_PHASE_OPTIMIZER) {
        add_row(f, slot->kept, slot->bytes * (1 + (uint64_t)r->copies), row->first_op,
                row->last_op);
        return;
    }
    const struct pl_stretch *from = &r->pass[pl_program_pass(f->t->p, row->first_op)];
    const struct pl_stretch *to = &r->pass[pl_program_pass(f->t->p, row->last_op)];
    f->unlike |= !from->n || !to->n;
    add_row(f, slot->kept, slot->bytes * (1 + (uint64_t)r->copies), brief_op(f, layer, from->first),
            brief_op(f, layer, to->first + to->n - 1));
}

/* The last op of a tensor that is kept from below a run, which layers of the run use on the way
 * down: it is there for the copies of all of their ops, so it is for all ops of those that stand
 * for them. */
static uint32_t last_of_kept(const struct folder *f, uint32_t layer, uint32_t op) {
    const uint32_t last = brief_op(f, layer, op);
    for (uint32_t i = 0; f->t->phase != PL_PHASE_OPTIMIZER && i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const struct pl_stretch *s = &r->pass[pl_program_pass(f->t->p, op)];
        if (!s->n || (layer != PL_NONE && layer >= r->first)) continue;
        const uint32_t first = brief_op(f, r->first, s->first);
        if (last >= first && last < first + s->n) return first + s->n - 1;
    }
    return last;
}

static void add_tensor(struct folder *f, uint32_t i) {
    const uint32_t id = f->t->ids[i], layer = layer_of(f, id);
    const struct pl_layer_run *r = run_of(f, layer);
    const struct pl_place_row *row = &f->t->places[id];
    const uint32_t kind = f->kinds.of[i];
    struct slot *slot = r ? slot_of(f, r, layer, f->kinds.list[kind].ordinal) : NULL;
    const bool kept = pl_kinds_keeps(f->t, id), stands = r && layer >= r->first && layer < r->end;
    uint32_t *unit = !slot || (kept && !stands) ? &f->alone[kind]
                     : kept                     ? &slot->kept
                                                : &slot->shared[parity_of(f, r, layer)];
    if (kept && stands) {
        add_kept(f, r, slot, id, layer);
    } else {
        if (*unit == PL_NONE) *unit = new_unit(f);
        add_row(f, *unit, aligned(f, id), brief_op(f, layer, row->first_op),
                kept ? last_of_kept(f, layer, row->last_op) : brief_op(f, layer, row->last_op));
    }
    f->out->unit[i] = *unit;
}

/* Finds the unit of a tensor of a layer that other layers stand for. */
static void find_copy(struct folder *f, uint32_t i) {
    const uint32_t id = f->t->ids[i], layer = layer_of(f, id);
    const struct pl_layer_run *r = run_of(f, layer);
    const struct slot *slot = slot_of(f, r, layer, f->kinds.list[f->kinds.of[i]].ordinal);
    const bool kept = pl_kinds_keeps(f->t, id);
    f->out->unit[i] = kept ? slot->kept : slot->shared[parity_of(f, r, layer)];
    if (kept) f->out->above[i] = (layer - r->first) / (r->end - r->first) * slot->bytes;
    f->unlike |= f->out->unit[i] == PL_NONE;
    if (f->t->phase == PL_PHASE_OPTIMIZER && !kept && !f->unlike)
        add_row(f, f->out->unit[i], aligned(f, id), f->t->places[id].first_op,
                f->t->places[id].last_op);
}

/* Rows in the order of their units. */
static void sort_rows(const struct found *made, struct pl_interval *rows, uint32_t *ends) {
    const uint32_t n = made->n_units;
    for (uint32_t i = 0; i < made->n; i++)
        ends[made->unit_of[i]]++;
    for (uint32_t u = 1; u < n; u++)
        ends[u] += ends[u - 1];
    for (uint32_t i = made->n; i-- > 0;)
        rows[--ends[made->unit_of[i]]] = made->rows[i];
    for (uint32_t u = 0; u + 1 < n; u++) /* each is the start of its unit now */
        ends[u] = ends[u + 1];
    if (n) ends[n - 1] = made->n;
}

static int by_first(const void *a, const void *b) {
    const struct pl_interval *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* True if the rows of each unit are of equal bytes and take turns; they are put in the order of
 * time. */
static bool take_turns(struct pl_interval *rows, const uint32_t *ends, uint32_t n) {
    for (uint32_t u = 0, i = 0; u < n; u++) {
        qsort(rows + i, ends[u] - i, sizeof *rows, by_first);
        for (i++; i < ends[u]; i++)
            if (rows[i].bytes != rows[i - 1].bytes || rows[i].first <= rows[i - 1].last)
                return false;
    }
    return true;
}

/* --- all of it -------------------------------------------------------------------------------- */

static pl_err init_slots(struct folder *f, struct pl_diag *d) {
    uint32_t n = 0;
    f->of_run = pl_malloc((f->runs.n + 1) * sizeof *f->of_run);
    if (!f->of_run) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const uint32_t period = r->end - r->first;
        f->of_run[i] = (struct run_slots){n, r->first - f->t->p->periods_kept * period, period};
        n += period * f->kinds.most;
    }
    f->slots = pl_malloc(((size_t)n + 1) * sizeof *f->slots);
    if (!f->slots) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < n; i++)
        f->slots[i] = (struct slot){{PL_NONE, PL_NONE}, PL_NONE, 0};
    return PL_ERR_OK;
}

static pl_err allocate(struct folder *f, struct pl_diag *d) {
    const size_t n = (size_t)f->t->n + 1;
    struct pl_fold *out = f->out;
    f->alone = pl_malloc(n * sizeof *f->alone);
    f->made.rows = pl_malloc(n * sizeof *f->made.rows);
    f->made.unit_of = pl_malloc(n * sizeof *f->made.unit_of);
    out->rows = pl_malloc(n * sizeof *out->rows);
    out->ends = pl_calloc(n, sizeof *out->ends);
    out->unit = pl_malloc(n * sizeof *out->unit);
    out->above = pl_calloc(n, sizeof *out->above);
    return f->alone && f->made.rows && f->made.unit_of && out->rows && out->ends && out->unit &&
                   out->above
               ? PL_ERR_OK
               : pl_host_oom(d, "the plan");
}

static void fold_all(struct folder *f) {
    struct pl_fold *out = f->out;
    for (uint32_t k = 0; k < f->kinds.n; k++)
        f->alone[k] = PL_NONE;
    for (uint32_t i = 0; i < f->t->n; i++)
        if (!is_copy(f, layer_of(f, f->t->ids[i]))) add_tensor(f, i);
    for (uint32_t i = 0; i < f->t->n; i++)
        if (is_copy(f, layer_of(f, f->t->ids[i]))) find_copy(f, i);
    sort_rows(&f->made, out->rows, out->ends);
    if (f->unlike || !take_turns(out->rows, out->ends, f->made.n_units)) return;
    out->units = (struct pl_units){out->rows, out->ends, f->made.n_units, count_ops(f)};
}

pl_err pl_fold_init(struct pl_fold *f, const struct pl_phase_tensors *t, struct pl_diag *d) {
    struct folder w = {.t = t, .out = f};
    *f = (struct pl_fold){0};
    pl_err err = allocate(&w, d);
    if (err == PL_ERR_OK) err = pl_layer_runs_find(t->p, t->phase, &w.runs, d);
    if (err == PL_ERR_OK) err = pl_kinds_find(t, &w.kinds, d);
    if (err == PL_ERR_OK) err = init_slots(&w, d);
    if (err == PL_ERR_OK) fold_all(&w);
    pl_layer_runs_finish(&w.runs);
    pl_kinds_finish(&w.kinds);
    free(w.of_run);
    free(w.slots);
    free(w.alone);
    free(w.made.rows);
    free(w.made.unit_of);
    return err;
}

void pl_fold_finish(struct pl_fold *f) {
    free(f->rows);
    free(f->ends);
    free(f->unit);
    free(f->above);
    *f = (struct pl_fold){0};
}
