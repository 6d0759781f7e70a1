/* expand.h - the intervals of a whole phase, from a brief program that leaves layers out.
 *
 * In: a brief program and the lifetimes of its plan.  Out: one interval for each tensor of the
 * whole program's phase.
 * Needs: program, plan, pack. No I/O.
 * Equal layers run equal ops, so the life of a tensor of a layer that was left out is that of the
 * layer which stands for it, moved by as many ops as lie between the two: upwards in the forward
 * pass, downwards in the backward pass.
 *   E1  first, last and bytes are those of the whole program's plan
 * Use: pl_expand(p, places, phase, ids, n, &whole, &d); pl_pack(whole.rows, ...);
 *      free(whole.rows); */
#ifndef PL_ESTIMATOR_PLAN_EXPAND_H
#define PL_ESTIMATOR_PLAN_EXPAND_H

#include "estimator/plan/pack.h"
#include "estimator/plan/place.h"
#include "estimator/program/program.h"

struct pl_expansion {
    struct pl_interval *rows; /* owned */
    uint32_t n, n_ops;
};

/* Of the tensors `ids` of a phase, all of which are used; places: of every tensor of the program.
 */
pl_err pl_expand(const struct pl_program *p, const struct pl_place_row *places, enum pl_phase phase,
                 const uint32_t *ids, uint32_t n, struct pl_expansion *out, struct pl_diag *d);

#endif
