/* autobatch.c - gallop and bisect over plans. */
#include "estimator/autobatch/autobatch.h"

#include "estimator/base/checked.h"

struct search {
    const struct pl_job *job;
    const struct pl_model *m;
    const struct pl_traits *traits;
    uint64_t usable;
    struct pl_autobatch *out;
    struct pl_diag *d;
};

static pl_err arena_at(struct search *s, uint32_t batch, uint64_t *bytes) {
    struct pl_planned planned;
    PL_TRY(pl_planned_init(&planned, s->job, s->m, s->traits, batch, s->d));
    *bytes = planned.plan->arena_bytes;
    s->out->plans++;
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

/* Records batch as the answer so far, or its bytes as the first that do not fit. */
static pl_err try_batch(struct search *s, uint32_t batch, bool *fits) {
    uint64_t bytes;
    PL_TRY(arena_at(s, batch, &bytes));
    *fits = bytes <= s->usable;
    if (*fits) {
        s->out->batch_size = batch;
        s->out->arena_bytes = bytes;
    } else {
        s->out->next_bytes = bytes;
    }
    return PL_ERR_OK;
}

static uint32_t token_limit(const struct pl_job *job) {
    return (uint32_t)pl_u64_max(1, (uint64_t)INT32_MAX / job->max_seq_length);
}

pl_err pl_autobatch_solve(const struct pl_job *job, const struct pl_model *m,
                          const struct pl_traits *traits, const struct pl_budget *budget,
                          uint32_t limit, struct pl_autobatch *out, struct pl_diag *d) {
    *out = (struct pl_autobatch){0};
    struct search s = {job, m, traits, pl_budget_usable(budget), out, d};
    if (limit > token_limit(job)) limit = token_limit(job);
    uint32_t low = 0, high = 1;
    bool fits = true;
    while (fits) {
        PL_TRY(try_batch(&s, high, &fits));
        if (!fits) break;
        low = high;
        if (high == limit) return PL_ERR_OK;
        high = high > limit / 2 ? limit : high * 2;
    }
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        PL_TRY(try_batch(&s, mid, &fits));
        if (fits)
            low = mid;
        else
            high = mid;
    }
    return PL_ERR_OK;
}
