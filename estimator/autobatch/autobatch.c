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

/* The plan that out->planned promises. Keeping the best so far as well costs more than the one plan
 * that it saves: two large ones at a time, in pages that are touched for the first time. */
static bool is_wanted(const struct search *s, uint32_t batch, bool fits) {
    if (s->job->batch_size != PL_AUTO) return batch == s->job->batch_size;
    return batch == 1 && !fits;
}

/* Records batch as the answer so far, or its bytes as the first that do not fit. */
static pl_err try_batch(struct search *s, uint32_t batch, bool *fits) {
    struct pl_planned planned;
    PL_TRY(pl_planned_init(&planned, s->job, s->m, s->traits, batch, s->d));
    uint64_t bytes = planned.plan->arena_bytes;
    s->out->plans++;
    *fits = bytes <= s->usable;
    if (is_wanted(s, batch, *fits)) {
        pl_planned_finish(&s->out->planned);
        s->out->planned = planned;
    } else {
        pl_planned_finish(&planned);
    }
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

/* `low` fits, 0 stands for no batch; `high` does not, limit + 1 stands for more than is wanted. */
static pl_err narrow(struct search *s, uint32_t low, uint32_t high, uint32_t limit) {
    bool galloping = true, fits;
    while (high - low > 1) {
        uint32_t next = low + (high - low) / 2;
        if (galloping && high > limit) next = limit;
        if (galloping && 2 * low < next) next = low ? 2 * low : 1;
        PL_TRY(try_batch(s, next, &fits));
        if (fits)
            low = next;
        else
            high = next;
        galloping &= fits;
    }
    return PL_ERR_OK;
}

uint32_t pl_autobatch_limit(const struct pl_job *job) {
    bool given = job->global_batch_size != PL_UNSET_U32;
    return given ? job->global_batch_size : PL_BATCH_LIMIT;
}

pl_err pl_autobatch_solve(const struct pl_job *job, const struct pl_model *m,
                          const struct pl_traits *traits, const struct pl_budget *budget,
                          uint32_t limit, struct pl_autobatch *out, struct pl_diag *d) {
    *out = (struct pl_autobatch){0};
    struct search s = {job, m, traits, pl_budget_usable(budget), out, d};
    if (limit > token_limit(job)) limit = token_limit(job);
    if (job->batch_size > limit) return narrow(&s, 0, limit + 1, limit); /* PL_AUTO among them */
    bool fits;
    PL_TRY(try_batch(&s, job->batch_size, &fits));
    return fits ? narrow(&s, job->batch_size, limit + 1, limit)
                : narrow(&s, 0, job->batch_size, limit);
}

void pl_autobatch_finish(struct pl_autobatch *a) {
    pl_planned_finish(&a->planned);
}
