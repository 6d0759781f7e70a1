#include "estimator/autobatch/sharding.h"

#include "estimator/autobatch/decide.h"
#include "estimator/config/job_values.h"

static pl_err decide_sharding(const struct pl_question *q, struct pl_trials *t, uint32_t *sharding,
                              struct pl_diag *d) {
    struct pl_variant v;
    bool fits;
    pl_variant_of(&v, q);
    *sharding = v.job.sharding = PL_SHARDING_GRADIENTS;
    PL_TRY(pl_question_fits(&v.q, 0, &t->held, &fits, d));
    if (fits) return PL_ERR_OK;
    v.job.sharding = PL_SHARDING_WEIGHTS;
    PL_TRY(pl_question_fits(&v.q, 0, &t->held, &fits, d));
    if (!fits) { /* with all that is open decided for it */
        struct pl_question trial = v.q;
        PL_TRY(pl_decide_levels(&trial, 1, t, NULL, d));
        trial.batch_size = v.q.batch_size;
        PL_TRY(pl_question_fits(&trial, 0, &t->held, &fits, d));
    }
    if (fits) *sharding = PL_SHARDING_WEIGHTS;
    return PL_ERR_OK;
}

pl_err pl_sharding_decide(const struct pl_question *q, uint32_t *sharding, struct pl_text *notes,
                          struct pl_diag *d) {
    const struct pl_job *job = q->job;
    struct pl_trials t = {0};
    *sharding = job->sharding;
    if (*sharding != PL_SHARDING_AUTO || pl_job_ranks(job) == 1 || job->inference ||
        !q->budget.known)
        return PL_ERR_OK;
    if (!pl_job_orders_ranks(job)) { /* a gradient that waits for the update is whole */
        *sharding = PL_SHARDING_OPTIMIZER;
        return PL_ERR_OK;
    }
    pl_err err = decide_sharding(q, &t, sharding, d);
    if (err == PL_ERR_OK && *sharding == PL_SHARDING_WEIGHTS && notes)
        pl_text_add(notes, "sharding: auto is `weights`: parts of gradients and states alone "
                           "do not fit\n");
    pl_trials_finish(&t);
    return err;
}
