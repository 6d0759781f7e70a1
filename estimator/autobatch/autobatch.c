/* autobatch.c - the search over plans. */
#include "estimator/autobatch/autobatch.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "estimator/search/secant.h"

double pl_autobatch_slope(const struct pl_plan *plan, uint64_t batch) {
    return (double)plan->ledger[PL_CATEGORY_ACTIVATIONS] / (double)batch;
}

uint32_t pl_autobatch_limit(const struct pl_job *job) {
    const uint32_t samples = pl_job_step_samples(job);
    if (pl_job_has_open_step(job))
        return samples             ? samples / pl_job_least_samples(job)
               : job->auto_samples ? job->auto_samples
                                   : PL_STEP_SAMPLES;
    return samples ? (uint32_t)pl_u64_div_up(samples, pl_job_ranks(job)) : PL_BATCH_LIMIT;
}

/* made (nullable): a plan that may be it. limit: as for pl_question_measure_within(). */
static pl_err plan_at(const struct pl_question *q, uint32_t batch, uint64_t limit,
                      const struct pl_planned *made, struct pl_planned *held,
                      const struct pl_plan **out, struct pl_diag *d) {
    struct pl_question at = *q;
    at.batch_size = batch;
    const bool is_made = made && pl_question_has_plan(&at, made, true);
    if (!is_made) PL_TRY(pl_question_measure_within(&at, limit, held, d));
    *out = is_made ? made->plan : held->plan;
    return PL_ERR_OK;
}

static pl_err search(const struct pl_question *q, uint32_t limit, const struct pl_planned *made,
                     struct pl_planned *held, struct pl_autobatch *out, struct pl_diag *d) {
    struct pl_secant s = pl_secant_between(0, limit + 1, pl_budget_usable(&q->budget));
    uint32_t n = (uint32_t)pl_u64_max(pl_u64_min(q->batch_size, limit), 1);
    const struct pl_plan *plan;
    for (; !pl_secant_done(&s); n = pl_secant_next(&s)) {
        PL_TRY(plan_at(q, n, s.usable, made, held, &plan, d));
        const uint64_t bytes = plan->arena_bytes;
        pl_secant_tell(&s, n, bytes, bytes <= s.usable, pl_autobatch_slope(plan, n));
    }
    out->batch_size = s.low.n;
    if (s.high.n <= limit) {
        PL_TRY(plan_at(q, s.high.n, 0, made, held, &plan, d));
        out->next_bytes = plan->arena_bytes;
    }
    if (!s.low.n) return PL_ERR_OK;
    PL_TRY(plan_at(q, s.low.n, 0, made, held, &plan, d));
    out->arena_bytes = plan->arena_bytes;
    return PL_ERR_OK;
}

pl_err pl_autobatch_find(const struct pl_question *q, uint32_t limit, struct pl_planned *held,
                         struct pl_autobatch *out, struct pl_diag *d) {
    *out = (struct pl_autobatch){0};
    limit = (uint32_t)pl_u64_min(limit, pl_question_most_samples(q));
    return search(q, limit, NULL, held, out, d);
}

pl_err pl_autobatch_solve(const struct pl_question *q, uint32_t limit, struct pl_planned *made,
                          struct pl_autobatch *out, struct pl_diag *d) {
    struct pl_planned given = made ? *made : (struct pl_planned){0}, held = {0};
    struct pl_question at = *q;
    if (made) *made = (struct pl_planned){0};
    *out = (struct pl_autobatch){0};
    limit = (uint32_t)pl_u64_min(limit, pl_question_most_samples(q));
    if (given.program && given.program->brief) { /* it can be resized in place */
        held = given;
        given = (struct pl_planned){0};
    }
    pl_err err = search(q, limit, &given, &held, out, d);
    if (q->job->batch_size == PL_AUTO)
        at.batch_size = out->batch_size ? out->batch_size : 1;
    else /* 0: none that the search may choose */
        at.batch_size = q->job->batch_size <= limit ? q->job->batch_size : 0;
    if (err == PL_ERR_OK && at.batch_size && !pl_question_has_plan(&at, &given, false)) {
        pl_planned_finish(&given);
        err = pl_question_plan(&at, &held, &given, d);
    }
    pl_planned_finish(&held);
    out->planned = given;
    return err;
}

void pl_autobatch_finish(struct pl_autobatch *a) {
    pl_planned_finish(&a->planned);
}
