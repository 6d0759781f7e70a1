/* autobatch.c - gallop and bisect over plans. */
#include "estimator/autobatch/autobatch.h"

#include "estimator/base/checked.h"

/* The plan that out->planned promises. Keeping the best so far as well costs more than the one plan
 * that it saves: two large ones at a time, in pages that are touched for the first time. */
static bool is_wanted(const struct pl_job *job, uint32_t batch, bool fits) {
    if (job->batch_size != PL_AUTO) return batch == job->batch_size;
    return batch == 1 && !fits;
}

/* Records batch as the answer so far, or its bytes as the first that do not fit. */
static pl_err try_batch(const struct pl_question *q, uint32_t batch, struct pl_autobatch *out,
                        bool *fits, struct pl_diag *d) {
    struct pl_question at = *q;
    struct pl_planned planned;
    at.batch_size = batch;
    PL_TRY(pl_question_plan(&at, NULL, &planned, d));
    uint64_t bytes = planned.plan->arena_bytes;
    out->plans++;
    *fits = bytes <= pl_budget_usable(&q->budget);
    if (is_wanted(q->job, batch, *fits)) {
        pl_planned_finish(&out->planned);
        out->planned = planned;
    } else {
        pl_planned_finish(&planned);
    }
    if (*fits) {
        out->batch_size = batch;
        out->arena_bytes = bytes;
    } else {
        out->next_bytes = bytes;
    }
    return PL_ERR_OK;
}

static uint32_t token_limit(const struct pl_question *q) {
    return (uint32_t)pl_u64_max(1, pl_question_most_tokens(q) / q->job->max_seq_length);
}

/* `low` fits, 0 stands for no batch; `high` does not, limit + 1 stands for more than is wanted. */
static pl_err narrow(const struct pl_question *q, uint32_t low, uint32_t high, uint32_t limit,
                     struct pl_autobatch *out, struct pl_diag *d) {
    bool galloping = true, fits;
    while (high - low > 1) {
        uint32_t next = low + (high - low) / 2;
        if (galloping && high > limit) next = limit;
        if (galloping && 2 * low < next) next = low ? 2 * low : 1;
        PL_TRY(try_batch(q, next, out, &fits, d));
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

pl_err pl_autobatch_solve(const struct pl_question *q, uint32_t limit, struct pl_autobatch *out,
                          struct pl_diag *d) {
    const uint32_t own = q->job->batch_size; /* PL_AUTO is above every limit */
    *out = (struct pl_autobatch){0};
    if (limit > token_limit(q)) limit = token_limit(q);
    if (own > limit) return narrow(q, 0, limit + 1, limit, out, d);
    bool fits;
    PL_TRY(try_batch(q, own, out, &fits, d));
    return fits ? narrow(q, own, limit + 1, limit, out, d) : narrow(q, 0, own, limit, out, d);
}

void pl_autobatch_finish(struct pl_autobatch *a) {
    pl_planned_finish(&a->planned);
}
