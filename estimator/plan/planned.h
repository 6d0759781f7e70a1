/* planned.h - a program and its plan as one thing, made from a job: what gate, auto-batch and the
 * trainer re-plan with. */
#ifndef PL_ESTIMATOR_PLAN_PLANNED_H
#define PL_ESTIMATOR_PLAN_PLANNED_H

#include "estimator/plan/plan.h"

struct pl_planned {
    struct pl_program *program;
    struct pl_plan *plan;
};

/* Plans `job` at this micro-batch. The model is borrowed and must outlive the result. */
pl_err pl_planned_init(struct pl_planned *out, const struct pl_job *job, const struct pl_model *m,
                       const struct pl_traits *traits, uint32_t batch_size, struct pl_diag *d);
/* The same from a shape that was decided before (recovery keeps everything but the batch). */
pl_err pl_planned_init_shape(struct pl_planned *out, const struct pl_job_shape *shape,
                             const struct pl_model *m, const struct pl_traits *traits,
                             struct pl_diag *d);
/* The same as pl_planned_init, from *made where that is the plan in question: it is then taken and
 * not made again. *made is {0} afterwards in any case. */
pl_err pl_planned_init_from(struct pl_planned *out, struct pl_planned *made,
                            const struct pl_job *job, const struct pl_model *m,
                            const struct pl_traits *traits, uint32_t batch_size,
                            struct pl_diag *d);
void pl_planned_finish(struct pl_planned *p); /* leaves {0} */

#endif
