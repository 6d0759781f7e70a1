/* expand.h - the intervals of a whole phase, from a brief program that leaves layers out.
 *
 * In: tensors of a phase of a brief program.  Out: one interval for each tensor of the whole
 * program's phase.
 * Needs: program, plan, pack. No I/O.
 * Equal layers run equal ops, so the life of a tensor of a layer that was left out is that of the
 * layer which stands for it, moved by as many ops as lie between the two: upwards in the forward
 * pass, downwards in the backward pass.
 *   E1  first, last and bytes are those of the whole program's plan
 * Use: pl_expand(&t, &whole, &d); pl_pack(whole.rows, ...); free(whole.rows); */
#ifndef PL_ESTIMATOR_PLAN_EXPAND_H
#define PL_ESTIMATOR_PLAN_EXPAND_H

#include "estimator/plan/pack.h"
#include "estimator/plan/place.h"

struct pl_expansion {
    struct pl_interval *rows; /* owned */
    uint32_t n, n_ops;
};

pl_err pl_expand(const struct pl_phase_tensors *t, struct pl_expansion *out, struct pl_diag *d);

#endif
