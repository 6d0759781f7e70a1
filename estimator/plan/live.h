/* live.h - which tensors are alive at an op of a plan.
 *
 * In: struct pl_plan.  Out: tensor ids.  Needs: program, plan. No allocation, no globals. */
#ifndef PL_ESTIMATOR_PLAN_LIVE_H
#define PL_ESTIMATOR_PLAN_LIVE_H

#include "estimator/plan/plan.h"

/* True if tensor `id` of the batch arena holds bytes while op `op` (index in the whole list) runs.
 * Tensors of the job arena are always alive and give false, those in host memory too. */
bool pl_plan_is_live(const struct pl_plan *plan, uint32_t id, uint32_t op);
/* The up to `n` largest tensors of the batch arena alive at `op`, largest first, ties in id order.
 * Returns how many were written to ids. */
uint32_t pl_plan_largest_live(const struct pl_plan *plan, uint32_t op, uint32_t n, uint32_t *ids);

#endif
