#include "estimator/plan/layer_runs.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>

static uint32_t find_first(const struct pl_program *p, enum pl_phase phase, enum pl_pass pass,
                           uint64_t layer) {
    const struct pl_phase_range *range = &p->phases[phase];
    for (uint32_t i = range->first_op; i < range->first_op + range->n_ops; i++)
        if (p->ops[i].layer == layer && pl_program_pass(p, i) == pass) return i;
    return PL_NONE;
}

/* From the first of the run's layers, in the order of the pass, to the first layer after it. */
static struct pl_stretch stretch_between(const struct pl_program *p, enum pl_phase phase,
                                         enum pl_pass pass, uint64_t from, uint64_t to) {
    const uint32_t first = find_first(p, phase, pass, from);
    const uint32_t end = find_first(p, phase, pass, to);
    if (first == PL_NONE || end == PL_NONE) return (struct pl_stretch){PL_NONE, 0};
    return (struct pl_stretch){first, end - first};
}

static struct pl_layer_run run_at(const struct pl_program *p, enum pl_phase phase, uint32_t layer) {
    const uint32_t *equal = p->layers_equal;
    struct pl_layer_run r = {.first = layer, .end = layer, .copies = equal[layer]};
    while (equal[r.end] == r.copies)
        r.end++;
    const uint32_t above = p->layers_left_out ? pl_layer_run_next(&r) : r.end;
    r.pass[PL_PASS_UP] = stretch_between(p, phase, PL_PASS_UP, r.first, above);
    for (int down = PL_PASS_DOWN; down < PL_PASS_COUNT; down++)
        r.pass[down] = stretch_between(p, phase, (enum pl_pass)down, r.end - 1, r.first - 1);
    return r;
}

pl_err pl_layer_runs_find(const struct pl_program *p, enum pl_phase phase,
                          struct pl_layer_runs *out, struct pl_diag *d) {
    *out = (struct pl_layer_runs){.list = pl_malloc(p->model->layers * sizeof *out->list)};
    if (!out->list) return pl_host_oom(d, "the plan");
    for (uint32_t l = 0; p->layers_equal && l < p->model->layers; l++) {
        if (!p->layers_equal[l] || p->layers_equal[l] == PL_LAYER_LEFT_OUT) continue;
        out->list[out->n++] = run_at(p, phase, l);
        l = out->list[out->n - 1].end - 1;
    }
    return PL_ERR_OK;
}

void pl_layer_runs_finish(struct pl_layer_runs *r) {
    free(r->list);
    *r = (struct pl_layer_runs){0};
}
