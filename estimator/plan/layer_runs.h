/* layer_runs.h - where the ops of equal layers are, of a whole program and of a brief one.
 *
 * In: a program.  Out: the runs of layers that repeat, and their ops in each pass over the layers.
 * Needs: program. No I/O.
 * A run has kept layers on either side (brief.h).
 *   L2  the copies of a run are next to it: after it in a pass upwards, before it in one downwards.
 *       A brief program has none of their ops
 * Use: pl_layer_runs_find(p, phase, &runs, &d); ... pl_layer_runs_finish(&runs); */
#ifndef PL_ESTIMATOR_PLAN_LAYER_RUNS_H
#define PL_ESTIMATOR_PLAN_LAYER_RUNS_H

#include "estimator/program/program.h"

/* Ops of the layers that a run repeats, in one pass; n 0: the pass does not reach them. */
struct pl_stretch {
    uint32_t first, n;
};
struct pl_layer_run {
    uint32_t first, end; /* layers that stand for others: a period */
    uint32_t copies;     /* of them */
    struct pl_stretch pass[PL_PASS_COUNT];
};
struct pl_layer_runs {
    struct pl_layer_run *list; /* owned, ascending layers */
    uint32_t n;
};

/* The first layer after the copies. */
static inline uint32_t pl_layer_run_next(const struct pl_layer_run *r) {
    return r->end + (r->end - r->first) * r->copies;
}

pl_err pl_layer_runs_find(const struct pl_program *p, enum pl_phase phase,
                          struct pl_layer_runs *out, struct pl_diag *d);
void pl_layer_runs_finish(struct pl_layer_runs *r); /* leaves {0} */

#endif
