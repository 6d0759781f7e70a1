/* expand.c - see expand.h. */
#include "estimator/plan/expand.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

/* Ops of the layers that a run repeats, in one pass; n 0: the pass does not reach them. */
struct stretch {
    uint32_t first, n;
};
struct run {
    uint32_t first, end; /* layers that stand for others */
    uint32_t copies;     /* of them that were left out */
    struct stretch pass[PL_PASS_COUNT];
};
struct runs {
    const struct pl_program *p;
    const struct pl_place_row *places;
    struct run *list; /* ascending layers */
    uint32_t n;
};

/* --- what repeats ---------------------------------------------------------------------------- */

static uint32_t find_first(const struct pl_program *p, enum pl_phase phase, enum pl_pass pass,
                           uint64_t layer) {
    const struct pl_phase_range *range = &p->phases[phase];
    for (uint32_t i = range->first_op; i < range->first_op + range->n_ops; i++)
        if (p->ops[i].layer == layer && pl_program_pass(p, i) == pass) return i;
    return PL_NONE;
}

/* From the first of the run's layers, in the order of the pass, to the first layer after it. */
static struct stretch stretch_between(const struct pl_program *p, enum pl_phase phase,
                                      enum pl_pass pass, uint64_t from, uint64_t to) {
    const uint32_t first = find_first(p, phase, pass, from);
    const uint32_t end = find_first(p, phase, pass, to);
    if (first == PL_NONE || end == PL_NONE) return (struct stretch){PL_NONE, 0};
    return (struct stretch){first, end - first};
}

static struct run run_at(const struct pl_program *p, enum pl_phase phase, uint32_t layer) {
    const uint32_t *left_out = p->layers_left_out;
    struct run r = {.first = layer, .end = layer, .copies = left_out[layer]};
    while (left_out[r.end] == r.copies)
        r.end++;
    const uint32_t next = r.end + (r.end - r.first) * r.copies;
    r.pass[PL_PASS_UP] = stretch_between(p, phase, PL_PASS_UP, r.first, next);
    for (int down = PL_PASS_DOWN; down < PL_PASS_COUNT; down++)
        r.pass[down] = stretch_between(p, phase, (enum pl_pass)down, r.end - 1, r.first - 1);
    return r;
}

/* A run has kept layers on either side (brief.h). */
static pl_err find_runs(const struct pl_program *p, enum pl_phase phase, struct runs *out,
                        struct pl_diag *d) {
    out->list = pl_malloc(p->model->layers * sizeof *out->list);
    if (!out->list) return pl_host_oom(d, "the plan");
    for (uint32_t l = 0; p->layers_left_out && l < p->model->layers; l++) {
        if (!p->layers_left_out[l] || pl_program_skips(p, l)) continue;
        out->list[out->n++] = run_at(p, phase, l);
        l = out->list[out->n - 1].end - 1;
    }
    return PL_ERR_OK;
}

/* --- where an op is -------------------------------------------------------------------------- */

/* How many copies of a run's stretch lie before op `op`, which is in pass `at`, as a tensor of
 * `layer` sees it: a layer above the run is above all of its copies, one below is below them, and
 * what is of no layer goes by the op itself. */
static uint32_t copies_before(const struct run *r, enum pl_pass pass, enum pl_pass at,
                              uint32_t layer, uint32_t copy, uint32_t op) {
    const struct stretch *s = &r->pass[pass];
    if (!s->n) return 0;
    if (layer == PL_NONE) return op >= s->first + (pass == PL_PASS_UP ? s->n : 0) ? r->copies : 0;
    if (at != pass) return at > pass ? r->copies : 0;
    if (layer >= r->end) return pass == PL_PASS_UP || op >= s->first + s->n ? r->copies : 0;
    if (layer < r->first) return pass == PL_PASS_UP ? 0 : r->copies;
    return pass == PL_PASS_UP ? copy : r->copies - copy;
}

static uint32_t whole_op(const struct runs *runs, uint32_t layer, uint32_t copy, uint32_t op) {
    const enum pl_pass at = pl_program_pass(runs->p, op);
    uint32_t whole = op;
    for (uint32_t i = 0; i < runs->n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            whole += runs->list[i].pass[pass].n *
                     copies_before(&runs->list[i], (enum pl_pass)pass, at, layer, copy, op);
    return whole;
}

/* --- all of it ------------------------------------------------------------------------------- */

static pl_err count(const struct pl_program *p, const uint32_t *ids, uint32_t n, uint32_t *rows,
                    struct pl_diag *d) {
    uint64_t sum = n;
    for (uint32_t i = 0; i < n; i++)
        sum += pl_tensor_left_out(p, &p->tensors[ids[i]]);
    *rows = (uint32_t)sum;
    return sum < UINT32_MAX ? PL_ERR_OK
                            : pl_diag_set(d, PL_ERR_OVERFLOW, "a step has too many tensors");
}

/* From one copy to the next there are as many ops as from the first to the second (whole_op() is
 * linear in the copy), in a pass from the top downwards as many less. */
static void fill_copies(const struct runs *runs, const struct pl_tensor *t,
                        const struct pl_place_row *row, struct pl_interval *out) {
    const uint32_t copies = pl_tensor_left_out(runs->p, t);
    if (!copies) return;
    const uint32_t first_step =
        whole_op(runs, t->layer, 1, row->first_op) - whole_op(runs, t->layer, 0, row->first_op);
    const uint32_t last_step =
        whole_op(runs, t->layer, 1, row->last_op) - whole_op(runs, t->layer, 0, row->last_op);
    for (uint32_t copy = 1; copy <= copies; copy++) {
        out[copy] = *out;
        out[copy].first += copy * first_step;
        out[copy].last += copy * last_step;
    }
}

static void fill(const struct runs *runs, uint32_t first_op, const uint32_t *ids, uint32_t n,
                 struct pl_interval *out) {
    const struct pl_program *p = runs->p;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_tensor *t = &p->tensors[ids[i]];
        const struct pl_place_row *row = &runs->places[ids[i]];
        *out = (struct pl_interval){.bytes = pl_u64_round_up(t->bytes, p->traits.align_bytes),
                                    .first = whole_op(runs, t->layer, 0, row->first_op) - first_op,
                                    .last = whole_op(runs, t->layer, 0, row->last_op) - first_op};
        fill_copies(runs, t, row, out);
        out += 1 + pl_tensor_left_out(p, t);
    }
}

pl_err pl_expand(const struct pl_program *p, const struct pl_place_row *places, enum pl_phase phase,
                 const uint32_t *ids, uint32_t n, struct pl_expansion *out, struct pl_diag *d) {
    const struct pl_phase_range *range = &p->phases[phase];
    struct runs runs = {.p = p, .places = places};
    *out = (struct pl_expansion){.n_ops = range->n_ops};
    PL_TRY(count(p, ids, n, &out->n, d));
    PL_TRY(find_runs(p, phase, &runs, d));
    for (uint32_t i = 0; i < runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            out->n_ops += runs.list[i].copies * runs.list[i].pass[pass].n;
    out->rows = pl_malloc(((size_t)out->n + 1) * sizeof *out->rows);
    if (out->rows) fill(&runs, range->first_op, ids, n, out->rows);
    free(runs.list);
    return out->rows ? PL_ERR_OK : pl_host_oom(d, "the plan");
}
