/* planned.c - program and plan together. */
#include "estimator/search/planned.h"

pl_err pl_planned_init_shape(struct pl_planned *out, const struct pl_job_shape *shape,
                             const struct pl_model *m, const struct pl_traits *traits,
                             struct pl_diag *d) {
    *out = (struct pl_planned){0};
    PL_TRY(pl_program_create(m, shape, traits, &out->program, d));
    pl_err err = pl_plan_create(out->program, &out->plan, d);
    if (err != PL_ERR_OK) pl_planned_finish(out);
    return err;
}

void pl_planned_finish(struct pl_planned *p) {
    pl_plan_destroy(&p->plan);
    pl_program_destroy(&p->program);
    p->is_stale = false;
}
