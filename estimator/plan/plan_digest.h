/* plan_digest.h - what a program is, and what a plan of it is, as digests.
 *
 * In: a program or its plan.  Out: added to a digest.  Needs: plan, digest. No I/O.
 *   D1  a program is every tensor and operation by name, size, attribute and operand; a plan is its
 *       program and every offset and lifetime. What is equal adds the same bytes in every process
 * Use: pl_digest_init(&h, 0); pl_digest_add_plan(&h, plan); v = pl_digest_value(&h); */
#ifndef PL_ESTIMATOR_PLAN_PLAN_DIGEST_H
#define PL_ESTIMATOR_PLAN_PLAN_DIGEST_H

#include "estimator/base/digest.h"
#include "estimator/plan/plan.h"

void pl_digest_add_program(struct pl_digest *h, const struct pl_program *p);
void pl_digest_add_plan(struct pl_digest *h, const struct pl_plan *plan);

#endif
