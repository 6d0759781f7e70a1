/* planned.c - program and plan together. */
#include "estimator/plan/planned.h"

#include <string.h>

pl_err pl_planned_init_shape(struct pl_planned *out, const struct pl_job_shape *shape,
                             const struct pl_model *m, const struct pl_traits *traits,
                             struct pl_diag *d) {
    *out = (struct pl_planned){0};
    PL_TRY(pl_program_create(m, shape, traits, &out->program, d));
    pl_err err = pl_plan_create(out->program, &out->plan, d);
    if (err != PL_ERR_OK) pl_planned_finish(out);
    return err;
}

pl_err pl_planned_init(struct pl_planned *out, const struct pl_job *job, const struct pl_model *m,
                       const struct pl_traits *traits, uint32_t batch_size, struct pl_diag *d) {
    struct pl_job_shape shape;
    *out = (struct pl_planned){0};
    PL_TRY(pl_job_shape_init(job, m, traits, batch_size, &shape, d));
    return pl_planned_init_shape(out, &shape, m, traits, d);
}

static bool same_traits(const struct pl_traits *a, const struct pl_traits *b) {
    return a->backend == b->backend && a->align_bytes == b->align_bytes &&
           a->threads == b->threads && a->sm == b->sm && a->pinned_bytes == b->pinned_bytes;
}

/* pl_job_shape_init leaves no byte of a shape to chance; one that differed without meaning would
 * cost a plan and change nothing. */
static bool answers(const struct pl_planned *made, const struct pl_job_shape *shape,
                    const struct pl_model *m, const struct pl_traits *traits) {
    const struct pl_program *p = made->program;
    return p && p->model == m && memcmp(&p->shape, shape, sizeof *shape) == 0 &&
           same_traits(&p->traits, traits);
}

pl_err pl_planned_init_from(struct pl_planned *out, struct pl_planned *made,
                            const struct pl_job *job, const struct pl_model *m,
                            const struct pl_traits *traits, uint32_t batch_size,
                            struct pl_diag *d) {
    struct pl_job_shape shape;
    struct pl_planned ready = *made;
    *made = *out = (struct pl_planned){0};
    pl_err err = pl_job_shape_init(job, m, traits, batch_size, &shape, d);
    if (err == PL_ERR_OK && answers(&ready, &shape, m, traits)) {
        *out = ready;
        return PL_ERR_OK;
    }
    pl_planned_finish(&ready);
    return err == PL_ERR_OK ? pl_planned_init_shape(out, &shape, m, traits, d) : err;
}

void pl_planned_finish(struct pl_planned *p) {
    pl_plan_destroy(&p->plan);
    pl_program_destroy(&p->program);
}
