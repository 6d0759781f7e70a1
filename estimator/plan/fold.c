/* fold.c - see fold.h. */
#include "estimator/plan/fold.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/layer_runs.h"

#include <stdlib.h>
#include <string.h>

/* Equal tensors of a layer, or of none, that take turns: one for each equal piece of work. */
struct kind {
    uint32_t id;      /* of the first */
    uint32_t last_op; /* of the latest */
    uint32_t ordinal; /* of the kind in its layer */
    uint32_t unit;    /* where no other layer is like it; PL_NONE: none yet */
    uint32_t next;    /* kind of the layer; PL_NONE: none */
};

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

struct folder {
    const struct pl_program *p;
    const struct pl_place_row *places;
    enum pl_phase phase;
    const uint32_t *ids;
    uint32_t n;
    struct pl_layer_runs runs;
    struct run_slots *of_run; /* [runs.n] */
    struct slot *slots;
    uint32_t *kind_of; /* [n] */
    struct kind *kinds;
    uint32_t n_kinds, most; /* in all; in one layer */
    struct pl_interval *made;
    uint32_t *unit_of; /* of each that was made */
    uint32_t n_made;
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

/* Whether the time of the units is that of the program: of a brief one, and of updates. */
static bool keeps_time(const struct folder *f) {
    return f->p->layers_left_out || f->phase == PL_PHASE_OPTIMIZER;
}

/* In the time of a brief program. */
static uint32_t brief_op(const struct folder *f, uint32_t layer, uint32_t op) {
    const enum pl_pass at = pl_program_pass(f->p, op);
    uint32_t brief = op;
    if (keeps_time(f)) return op;
    for (uint32_t i = 0; i < f->runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            brief -= ops_of_copies(&f->runs.list[i], (enum pl_pass)pass, at, layer, op);
    return brief;
}

static uint32_t count_ops(const struct folder *f) {
    uint32_t n = f->p->phases[f->phase].n_ops;
    if (keeps_time(f)) return n;
    for (uint32_t i = 0; i < f->runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            n -= f->runs.list[i].pass[pass].n * f->runs.list[i].copies;
    return n;
}

/* --- which tensor is like which --------------------------------------------------------------- */

static uint32_t layer_of(const struct pl_tensor *t) {
    return t->role == PL_ROLE_ROPE ? PL_NONE : t->layer;
}

static enum pl_pass pass_of(const struct folder *f, uint32_t op) {
    return f->phase == PL_PHASE_OPTIMIZER ? PL_PASS_UP : pl_program_pass(f->p, op);
}

/* Scratch of updates that run as one is there for all of them. */
static bool keeps(const struct folder *f, uint32_t id) {
    const struct pl_place_row *at = &f->places[id];
    if (f->phase == PL_PHASE_OPTIMIZER)
        return f->p->tensors[id].category == PL_CATEGORY_WORKSPACE && at->last_op > at->first_op;
    return pass_of(f, at->first_op) != pass_of(f, at->last_op);
}

static bool is_copy(const struct folder *f, uint32_t layer) {
    return f->runs.n && layer != PL_NONE && f->p->layers_equal[layer] == PL_LAYER_LEFT_OUT;
}

/* Of one layer, and in one pass. */
static bool are_alike(const struct folder *f, uint32_t a, uint32_t b) {
    const struct pl_tensor *x = &f->p->tensors[a], *y = &f->p->tensors[b];
    return x->bytes == y->bytes && x->role == y->role && x->slot == y->slot && x->row == y->row &&
           x->of == y->of && x->category == y->category && strcmp(x->name, y->name) == 0 &&
           pass_of(f, f->places[a].first_op) == pass_of(f, f->places[b].first_op);
}

/* The kind that a tensor joins, among those of its layer; PL_NONE: none. */
static uint32_t find_kind(const struct folder *f, uint32_t first, uint32_t id) {
    if (!f->p->tensors[id].of_piece || keeps(f, id)) return PL_NONE;
    for (uint32_t k = first; k != PL_NONE; k = f->kinds[k].next) {
        const struct kind *kind = &f->kinds[k];
        if (f->places[id].first_op > kind->last_op && !keeps(f, kind->id) &&
            are_alike(f, kind->id, id))
            return k;
    }
    return PL_NONE;
}

struct layer_kinds {
    uint32_t first, last, n;
};

static uint32_t add_kind(struct folder *f, struct layer_kinds *l, uint32_t id) {
    const uint32_t k = f->n_kinds++;
    f->kinds[k] = (struct kind){.id = id,
                                .last_op = f->places[id].last_op,
                                .ordinal = l->n++,
                                .unit = PL_NONE,
                                .next = PL_NONE};
    if (l->first == PL_NONE)
        l->first = k;
    else
        f->kinds[l->last].next = k;
    l->last = k;
    if (l->n > f->most) f->most = l->n;
    return k;
}

static pl_err find_kinds(struct folder *f, struct pl_diag *d) {
    const uint32_t layers = (uint32_t)f->p->model->layers;
    struct layer_kinds *of_layer = pl_malloc((layers + 1) * sizeof *of_layer);
    if (!of_layer) return pl_host_oom(d, "the plan");
    for (uint32_t l = 0; l <= layers; l++)
        of_layer[l] = (struct layer_kinds){PL_NONE, PL_NONE, 0};
    for (uint32_t i = 0; i < f->n; i++) {
        const uint32_t id = f->ids[i], layer = layer_of(&f->p->tensors[id]);
        struct layer_kinds *l = &of_layer[layer == PL_NONE ? layers : layer];
        uint32_t k = find_kind(f, l->first, id);
        if (k == PL_NONE) k = add_kind(f, l, id);
        f->kinds[k].last_op = f->places[id].last_op;
        f->kind_of[i] = k;
    }
    free(of_layer);
    return PL_ERR_OK;
}

/* The run whose period a layer has, as far as those are looked at; NULL: none. */
static const struct pl_layer_run *run_of(const struct folder *f, uint32_t layer) {
    for (uint32_t i = 0; layer != PL_NONE && i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const uint32_t end = pl_layer_run_next(r) + f->p->periods_kept * f->of_run[i].period;
        if (layer >= f->of_run[i].lowest && layer < end) return r;
    }
    return NULL;
}

static struct slot *slot_of(const struct folder *f, const struct pl_layer_run *r, uint32_t layer,
                            uint32_t ordinal) {
    const struct run_slots *s = &f->of_run[r - f->runs.list];
    return &f->slots[s->first + (layer - s->lowest) % s->period * f->most + ordinal];
}

/* Neighbours alternate; with an even period they do so within it. */
static uint32_t parity_of(const struct folder *f, const struct pl_layer_run *r, uint32_t layer) {
    const struct run_slots *s = &f->of_run[r - f->runs.list];
    return s->period % 2 ? (layer - s->lowest) / s->period % 2 : 0;
}

/* --- units ------------------------------------------------------------------------------------ */

static uint32_t new_unit(struct folder *f) {
    return f->out->units.n++;
}

static void add_row(struct folder *f, uint32_t unit, uint64_t bytes, uint32_t first,
                    uint32_t last) {
    const uint32_t first_op = f->p->phases[f->phase].first_op;
    f->unit_of[f->n_made] = unit;
    f->made[f->n_made++] =
        (struct pl_interval){.bytes = bytes, .first = first - first_op, .last = last - first_op};
}

static uint64_t aligned(const struct folder *f, uint32_t id) {
    return pl_u64_round_up(f->p->tensors[id].bytes, f->p->traits.align_bytes);
}

/* What the copies keep, and the period that stands for them, as long as that period takes: its ops
 * tell where theirs find room. */
static void add_kept(struct folder *f, const struct pl_layer_run *r, struct slot *slot, uint32_t id,
                     uint32_t layer) {
    const struct pl_place_row *row = &f->places[id];
    slot->kept = new_unit(f);
    slot->bytes = aligned(f, id);
    if (f->phase == PL_PHASE_OPTIMIZER) {
        add_row(f, slot->kept, slot->bytes * (1 + (uint64_t)r->copies), row->first_op,
                row->last_op);
        return;
    }
    const struct pl_stretch *from = &r->pass[pl_program_pass(f->p, row->first_op)];
    const struct pl_stretch *to = &r->pass[pl_program_pass(f->p, row->last_op)];
    f->unlike |= !from->n || !to->n;
    add_row(f, slot->kept, slot->bytes * (1 + (uint64_t)r->copies), brief_op(f, layer, from->first),
            brief_op(f, layer, to->first + to->n - 1));
}

/* The last op of a tensor that is kept from below a run, which layers of the run use on the way
 * down: it is there for the copies of all of their ops, so it is for all ops of those that stand
 * for them. */
static uint32_t last_of_kept(const struct folder *f, uint32_t layer, uint32_t op) {
    const uint32_t last = brief_op(f, layer, op);
    for (uint32_t i = 0; f->phase != PL_PHASE_OPTIMIZER && i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const struct pl_stretch *s = &r->pass[pl_program_pass(f->p, op)];
        if (!s->n || (layer != PL_NONE && layer >= r->first)) continue;
        const uint32_t first = brief_op(f, r->first, s->first);
        if (last >= first && last < first + s->n) return first + s->n - 1;
    }
    return last;
}

static void add_tensor(struct folder *f, uint32_t i) {
    const uint32_t id = f->ids[i], layer = layer_of(&f->p->tensors[id]);
    const struct pl_layer_run *r = run_of(f, layer);
    const struct pl_place_row *row = &f->places[id];
    struct kind *kind = &f->kinds[f->kind_of[i]];
    struct slot *slot = r ? slot_of(f, r, layer, kind->ordinal) : NULL;
    const bool kept = keeps(f, id), stands = r && layer >= r->first && layer < r->end;
    uint32_t *unit = !slot || (kept && !stands) ? &kind->unit
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

/* Of a layer that others stand for. */
static void find_copy(struct folder *f, uint32_t i) {
    const uint32_t id = f->ids[i], layer = layer_of(&f->p->tensors[id]);
    const struct pl_layer_run *r = run_of(f, layer);
    const struct slot *slot = slot_of(f, r, layer, f->kinds[f->kind_of[i]].ordinal);
    const bool kept = keeps(f, id);
    f->out->unit[i] = kept ? slot->kept : slot->shared[parity_of(f, r, layer)];
    if (kept) f->out->above[i] = (layer - r->first) / (r->end - r->first) * slot->bytes;
    f->unlike |= f->out->unit[i] == PL_NONE;
    if (f->phase == PL_PHASE_OPTIMIZER && !kept && !f->unlike)
        add_row(f, f->out->unit[i], aligned(f, id), f->places[id].first_op, f->places[id].last_op);
}

static int by_first(const void *a, const void *b) {
    const struct pl_interval *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Whether the rows of each unit are of equal bytes and take turns; they are put in the order of
 * time. */
static bool take_turns(const struct pl_fold *f) {
    for (uint32_t u = 0, i = 0; u < f->units.n; u++) {
        qsort(f->rows + i, f->ends[u] - i, sizeof *f->rows, by_first);
        for (i++; i < f->ends[u]; i++)
            if (f->rows[i].bytes != f->rows[i - 1].bytes || f->rows[i].first <= f->rows[i - 1].last)
                return false;
    }
    return true;
}

/* Rows in the order of their units. */
static void sort_rows(const struct folder *f) {
    struct pl_fold *out = f->out;
    const uint32_t n = out->units.n;
    for (uint32_t i = 0; i < f->n_made; i++)
        out->ends[f->unit_of[i]]++;
    for (uint32_t u = 1; u < n; u++)
        out->ends[u] += out->ends[u - 1];
    for (uint32_t i = f->n_made; i-- > 0;)
        out->rows[--out->ends[f->unit_of[i]]] = f->made[i];
    for (uint32_t u = 0; u + 1 < n; u++) /* each is the start of its unit now */
        out->ends[u] = out->ends[u + 1];
    if (n) out->ends[n - 1] = f->n_made;
    out->units.rows = out->rows;
    out->units.ends = out->ends;
}

/* --- all of it -------------------------------------------------------------------------------- */

static pl_err init_slots(struct folder *f, struct pl_diag *d) {
    uint32_t n = 0;
    f->of_run = pl_malloc((f->runs.n + 1) * sizeof *f->of_run);
    if (!f->of_run) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < f->runs.n; i++) {
        const struct pl_layer_run *r = &f->runs.list[i];
        const uint32_t period = r->end - r->first;
        f->of_run[i] = (struct run_slots){n, r->first - f->p->periods_kept * period, period};
        n += period * f->most;
    }
    f->slots = pl_malloc(((size_t)n + 1) * sizeof *f->slots);
    if (!f->slots) return pl_host_oom(d, "the plan");
    for (uint32_t i = 0; i < n; i++)
        f->slots[i] = (struct slot){{PL_NONE, PL_NONE}, PL_NONE, 0};
    return PL_ERR_OK;
}

static pl_err allocate(struct folder *f, struct pl_diag *d) {
    const size_t n = (size_t)f->n + 1;
    struct pl_fold *out = f->out;
    f->kind_of = pl_malloc(n * sizeof *f->kind_of);
    f->kinds = pl_malloc(n * sizeof *f->kinds);
    f->unit_of = pl_malloc(n * sizeof *f->unit_of);
    f->made = pl_malloc(n * sizeof *f->made);
    out->rows = pl_malloc(n * sizeof *out->rows);
    out->ends = pl_calloc(n, sizeof *out->ends);
    out->unit = pl_malloc(n * sizeof *out->unit);
    out->above = pl_calloc(n, sizeof *out->above);
    return f->kind_of && f->kinds && f->unit_of && f->made && out->rows && out->ends && out->unit &&
                   out->above
               ? PL_ERR_OK
               : pl_host_oom(d, "the plan");
}

static void fold_all(struct folder *f) {
    for (uint32_t i = 0; i < f->n; i++)
        if (!is_copy(f, layer_of(&f->p->tensors[f->ids[i]]))) add_tensor(f, i);
    for (uint32_t i = 0; i < f->n; i++)
        if (is_copy(f, layer_of(&f->p->tensors[f->ids[i]]))) find_copy(f, i);
    f->out->units.n_ops = count_ops(f);
    sort_rows(f);
    f->out->units.folded = true;
    if (f->unlike || !take_turns(f->out)) f->out->units.n = 0;
}

pl_err pl_fold_init(struct pl_fold *f, const struct pl_program *p,
                    const struct pl_place_row *places, enum pl_phase phase, const uint32_t *ids,
                    uint32_t n, struct pl_diag *d) {
    struct folder w = {.p = p, .places = places, .phase = phase, .ids = ids, .n = n, .out = f};
    *f = (struct pl_fold){0};
    pl_err err = allocate(&w, d);
    if (err == PL_ERR_OK) err = pl_layer_runs_find(p, phase, &w.runs, d);
    if (err == PL_ERR_OK) err = find_kinds(&w, d);
    if (err == PL_ERR_OK) err = init_slots(&w, d);
    if (err == PL_ERR_OK) fold_all(&w);
    pl_layer_runs_finish(&w.runs);
    free(w.of_run);
    free(w.slots);
    free(w.kind_of);
    free(w.kinds);
    free(w.unit_of);
    free(w.made);
    return err;
}

void pl_fold_finish(struct pl_fold *f) {
    free(f->rows);
    free(f->ends);
    free(f->unit);
    free(f->above);
    *f = (struct pl_fold){0};
}
