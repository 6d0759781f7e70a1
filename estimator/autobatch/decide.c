/* decide.c - see decide.h. */
#include "estimator/autobatch/decide.h"

#include "estimator/base/checked.h"

pl_err pl_decide(struct pl_question *q, uint32_t limit, struct pl_autobatch *search,
                 struct pl_text *notes, struct pl_diag *d) {
    const uint32_t useful = (uint32_t)pl_u64_min(limit, pl_autobatch_limit(q->job));
    *search = (struct pl_autobatch){0};
    struct pl_trials trials = {0};
    pl_err err = pl_autolevel_decide(q, useful, &trials, notes, d);
    const struct pl_found *found = &trials.found;
    if (err == PL_ERR_OK && found->next_bytes) {
        *search = (struct pl_autobatch){found->batch_size, found->bytes, found->next_bytes, {0}};
        err = pl_question_plan(q, &trials.held, &search->planned, d);
    } else if (err == PL_ERR_OK && q->budget.known) {
        err = pl_autobatch_solve(q, limit, &trials.held, search, d);
    }
    pl_trials_finish(&trials);
    PL_TRY(err);
    q->recommended = search->batch_size;
    q->batch_size = q->job->batch_size;
    if (q->batch_size == PL_AUTO)
        q->batch_size = (uint32_t)pl_u64_min(q->recommended ? q->recommended : 1, useful);
    return PL_ERR_OK;
}

pl_err pl_decide_again(struct pl_question *q, struct pl_trials *trials, struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    v.job.batch_size = q->batch_size;
    v.q.recompute = PL_RECOMPUTE_AUTO;
    v.q.loss_chunk_tokens = PL_AUTO;
    v.q.in_backward = PL_TRI_AUTO;
    PL_TRY(pl_autolevel_decide(&v.q, q->batch_size, trials, NULL, d));
    q->recompute = v.q.recompute;
    q->loss_chunk_tokens = v.q.loss_chunk_tokens;
    q->in_backward = v.q.in_backward;
    return pl_question_measure(q, &trials->held, d);
}
