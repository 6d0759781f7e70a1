/* sharding.c - see sharding.h. */
#include "estimator/autobatch/sharding.h"

#include "estimator/config/job_values.h"

pl_err pl_sharding_decide(const struct pl_question *q, uint32_t *sharding, struct pl_text *notes,
                          struct pl_diag *d) {
    const struct pl_job *job = q->job;
    struct pl_planned held = {0};
    struct pl_variant v;
    *sharding = job->sharding;
    if (*sharding != PL_SHARDING_AUTO || pl_job_ranks(job) == 1 || job->inference ||
        !q->budget.known)
        return PL_ERR_OK;
    if (!pl_job_orders_ranks(job)) { /* a gradient that waits for the update is whole */
        *sharding = PL_SHARDING_OPTIMIZER;
        return PL_ERR_OK;
    }
    pl_variant_of(&v, q);
    v.job.sharding = PL_SHARDING_GRADIENTS;
    pl_err err = pl_question_measure(&v.q, &held, d);
    if (err == PL_ERR_OK) {
        const bool fits = held.plan->arena_bytes <= pl_budget_usable(&q->budget);
        *sharding = fits ? PL_SHARDING_GRADIENTS : PL_SHARDING_WEIGHTS;
        if (!fits && notes)
            pl_text_add(notes, "sharding: auto is `weights`: parts of gradients and states alone "
                               "do not fit\n");
    }
    pl_planned_finish(&held);
    return err;
}
