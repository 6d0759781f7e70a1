/* autobatch.c - gallop and bisect over plans. */
#include "estimator/autobatch/autobatch.h"

#include "estimator/base/checked.h"

struct search {
    const struct pl_question *q;
    struct pl_planned made; /* owned; {0}: there is none, or it was taken */
    struct pl_autobatch *out;
    struct pl_diag *d;
};

/* The plan that out->planned promises. */
static bool is_wanted(const struct pl_job *job, uint32_t batch, bool fits) {
    if (job->batch_size != PL_AUTO) return batch == job->batch_size;
    return fits || batch == 1;
}

static pl_err plan(struct search *s, uint32_t batch, struct pl_planned *out) {
    struct pl_question at = *s->q;
    const bool is_made = s->made.program && s->made.program->shape.batch_size == batch;
    at.batch_size = batch;
    return pl_question_plan(&at, is_made ? &s->made : NULL, out, s->d);
}

/* Records batch as the answer so far, or its bytes as the first that do not fit. */
static pl_err try_batch(struct search *s, uint32_t batch, bool *fits) {
    struct pl_autobatch *out = s->out;
    struct pl_planned planned;
    PL_TRY(plan(s, batch, &planned));
    const uint64_t bytes = planned.plan->arena_bytes;
    *fits = bytes <= pl_budget_usable(&s->q->budget);
    if (is_wanted(s->q->job, batch, *fits)) {
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

static pl_err search(struct search *s, uint32_t limit) {
    const uint32_t own = s->q->job->batch_size; /* PL_AUTO is above every limit */
    bool fits;
    limit = (uint32_t)pl_u64_min(limit, pl_question_most_samples(s->q));
    if (own > limit) return narrow(s, 0, limit + 1, limit);
    PL_TRY(try_batch(s, own, &fits));
    return fits ? narrow(s, own, limit + 1, limit) : narrow(s, 0, own, limit);
}

pl_err pl_autobatch_solve(const struct pl_question *q, uint32_t limit, struct pl_planned *made,
                          struct pl_autobatch *out, struct pl_diag *d) {
    struct search s = {q, made ? *made : (struct pl_planned){0}, out, d};
    if (made) *made = (struct pl_planned){0};
    *out = (struct pl_autobatch){0};
    pl_err err = search(&s, limit);
    if (out->planned.plan)
        pl_planned_finish(&s.made);
    else
        out->planned = s.made;
    return err;
}

void pl_autobatch_finish(struct pl_autobatch *a) {
    pl_planned_finish(&a->planned);
}
