/* planned.h - a program and its plan as one thing. */
#ifndef PL_ESTIMATOR_SEARCH_PLANNED_H
#define PL_ESTIMATOR_SEARCH_PLANNED_H

#include "estimator/plan/plan.h"

struct pl_planned {
    struct pl_program *program;
    struct pl_plan *plan;
    bool is_stale; /* of a sketch (question.h): the program was resized after it was planned */
};

/* The model is borrowed and must outlive the result. */
pl_err pl_planned_init_shape(struct pl_planned *out, const struct pl_job_shape *shape,
                             const struct pl_model *m, const struct pl_traits *traits,
                             struct pl_diag *d);
void pl_planned_finish(struct pl_planned *p); /* leaves {0} */

#endif
