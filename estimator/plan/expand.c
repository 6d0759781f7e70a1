/* expand.c - see expand.h. */
#include "estimator/plan/expand.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

/* Ops of the layers that a run repeats, in one direction. */
struct pass {
    uint32_t first, n;
};
struct run {
    uint32_t first, end; /* layers that stand for others */
    uint32_t copies;     /* of them that were left out */
    struct pass up, down;
};
struct runs {
    const struct pl_program *p;
    const struct pl_place_row *places;
    struct run *list; /* ascending layers */
    uint32_t n;
};

/* --- what repeats ---------------------------------------------------------------------------- */

static uint32_t find_first(const struct pl_program *p, enum pl_phase phase, bool backward,
                           uint64_t layer) {
    const struct pl_phase_range *range = &p->phases[phase];
    for (uint32_t i = range->first_op; i < range->first_op + range->n_ops; i++)
        if (p->ops[i].layer == layer && p->ops[i].backward == backward) return i;
    return PL_NONE;
}

/* From the first of the run's layers, in the order of the pass, to the first layer after it. */
static struct pass pass_between(const struct pl_program *p, enum pl_phase phase, bool backward,
                                uint64_t from, uint64_t to) {
    const uint32_t first = find_first(p, phase, backward, from);
    const uint32_t end = find_first(p, phase, backward, to);
    if (first == PL_NONE || end == PL_NONE) return (struct pass){PL_NONE, 0};
    return (struct pass){first, end - first};
}

static struct run run_at(const struct pl_program *p, enum pl_phase phase, uint32_t layer) {
    const uint32_t *left_out = p->layers_left_out;
    struct run r = {.first = layer, .end = layer, .copies = left_out[layer]};
    while (left_out[r.end] == r.copies)
        r.end++;
    const uint32_t next = r.end + (r.end - r.first) * r.copies;
    r.up = pass_between(p, phase, false, r.first, next);
    r.down = pass_between(p, phase, true, r.end - 1, r.first - 1);
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

/* Ops that a run adds before op `op` as a tensor of `layer` sees it: a layer above the run is above
 * all of its copies, one below is below them, and what is of no layer goes by the op itself. */
static uint32_t added(const struct run *r, uint32_t layer, uint32_t copy, uint32_t op, bool down) {
    const uint32_t up = r->copies * r->up.n, back = r->copies * r->down.n;
    if (layer == PL_NONE)
        return (r->up.n && op >= r->up.first + r->up.n ? up : 0) +
               (r->down.n && op >= r->down.first ? back : 0);
    if (layer >= r->end) return up + (r->down.n && op >= r->down.first + r->down.n ? back : 0);
    if (layer < r->first) return down ? up + back : 0;
    return down ? up + (r->copies - copy) * r->down.n : copy * r->up.n;
}

static uint32_t whole_op(const struct runs *runs, uint32_t layer, uint32_t copy, uint32_t op) {
    const bool down = runs->p->ops[op].backward;
    uint32_t at = op;
    for (uint32_t i = 0; i < runs->n; i++)
        at += added(&runs->list[i], layer, copy, op, down);
    return at;
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
        out->n_ops += runs.list[i].copies * (runs.list[i].up.n + runs.list[i].down.n);
    out->rows = pl_malloc(((size_t)out->n + 1) * sizeof *out->rows);
    if (out->rows) fill(&runs, range->first_op, ids, n, out->rows);
    free(runs.list);
    return out->rows ? PL_ERR_OK : pl_host_oom(d, "the plan");
}
