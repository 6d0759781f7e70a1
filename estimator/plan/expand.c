#include "estimator/plan/expand.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/layer_runs.h"

#include <stdlib.h>

struct layers {
    const struct pl_phase_tensors *t;
    struct pl_layer_runs runs;
};

/* --- where an op is -------------------------------------------------------------------------- */

/* How many copies of a run's stretch lie before op `op`, which is in pass `at`, as a tensor of
 * `layer` sees it: a layer above the run is above all of its copies, one below is below them, and
 * what is of no layer goes by the op itself. */
static uint32_t copies_before(const struct pl_layer_run *r, enum pl_pass pass, enum pl_pass at,
                              uint32_t layer, uint32_t copy, uint32_t op) {
    const struct pl_stretch *s = &r->pass[pass];
    if (!s->n) return 0;
    if (layer == PL_NONE) return op >= s->first + (pass == PL_PASS_UP ? s->n : 0) ? r->copies : 0;
    if (at != pass) return at > pass ? r->copies : 0;
    if (layer >= r->end) return pass == PL_PASS_UP || op >= s->first + s->n ? r->copies : 0;
    if (layer < r->first) return pass == PL_PASS_UP ? 0 : r->copies;
    return pass == PL_PASS_UP ? copy : r->copies - copy;
}

static uint32_t whole_op(const struct layers *l, uint32_t layer, uint32_t copy, uint32_t op) {
    const enum pl_pass at = pl_program_pass(l->t->p, op);
    uint32_t whole = op;
    for (uint32_t i = 0; i < l->runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            whole += l->runs.list[i].pass[pass].n *
                     copies_before(&l->runs.list[i], (enum pl_pass)pass, at, layer, copy, op);
    return whole;
}

/* --- all of it ------------------------------------------------------------------------------- */

static pl_err count(const struct pl_phase_tensors *t, uint32_t *rows, struct pl_diag *d) {
    uint64_t sum = t->n;
    for (uint32_t i = 0; i < t->n; i++)
        sum += pl_tensor_left_out(t->p, &t->p->tensors[t->ids[i]]);
    *rows = (uint32_t)sum;
    return sum < UINT32_MAX ? PL_ERR_OK
                            : pl_diag_set(d, PL_ERR_OVERFLOW, "a step has too many tensors");
}

/* From one copy to the next there are as many ops as from the first to the second (whole_op() is
 * linear in the copy), in a pass from the top downwards as many less. */
static void fill_copies(const struct layers *l, const struct pl_tensor *t,
                        const struct pl_place_row *row, struct pl_interval *out) {
    const uint32_t copies = pl_tensor_left_out(l->t->p, t);
    if (!copies) return;
    const uint32_t first_step =
        whole_op(l, t->layer, 1, row->first_op) - whole_op(l, t->layer, 0, row->first_op);
    const uint32_t last_step =
        whole_op(l, t->layer, 1, row->last_op) - whole_op(l, t->layer, 0, row->last_op);
    for (uint32_t copy = 1; copy <= copies; copy++) {
        out[copy] = *out;
        out[copy].first += copy * first_step;
        out[copy].last += copy * last_step;
    }
}

static void fill(const struct layers *l, struct pl_interval *out) {
    const struct pl_phase_tensors *tensors = l->t;
    const struct pl_program *p = tensors->p;
    const uint32_t first_op = p->phases[tensors->phase].first_op;
    for (uint32_t i = 0; i < tensors->n; i++) {
        const struct pl_tensor *t = &p->tensors[tensors->ids[i]];
        const struct pl_place_row *row = &tensors->places[tensors->ids[i]];
        *out = (struct pl_interval){.bytes = pl_u64_round_up(t->bytes, p->traits.align_bytes),
                                    .first = whole_op(l, t->layer, 0, row->first_op) - first_op,
                                    .last = whole_op(l, t->layer, 0, row->last_op) - first_op};
        fill_copies(l, t, row, out);
        out += 1 + pl_tensor_left_out(p, t);
    }
}

pl_err pl_expand(const struct pl_phase_tensors *t, struct pl_expansion *out, struct pl_diag *d) {
    struct layers l = {.t = t};
    *out = (struct pl_expansion){.n_ops = t->p->phases[t->phase].n_ops};
    PL_TRY(count(t, &out->n, d));
    if (t->p->layers_left_out) PL_TRY(pl_layer_runs_find(t->p, t->phase, &l.runs, d));
    for (uint32_t i = 0; i < l.runs.n; i++)
        for (int pass = 0; pass < PL_PASS_COUNT; pass++)
            out->n_ops += l.runs.list[i].copies * l.runs.list[i].pass[pass].n;
    out->rows = pl_malloc(((size_t)out->n + 1) * sizeof *out->rows);
    if (out->rows) fill(&l, out->rows);
    pl_layer_runs_finish(&l.runs);
    return out->rows ? PL_ERR_OK : pl_host_oom(d, "the plan");
}
