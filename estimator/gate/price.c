/* price.c - changing a question and planning what comes out. */
#include "estimator/gate/price.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"

#include <math.h>
#include <string.h>

/* Passes that score a micro-batch before it is learned from are part of it. */
static double flops_per_token(const struct pl_program *p) {
    double sum = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        const bool scores = pl_phase_is_forward(op->phase);
        if (!scores && op->phase != PL_PHASE_MICRO) continue;
        sum += op->flops * pl_op_copies(p, op) * (scores ? pl_op_runs(p, op, 1) : 1);
    }
    return sum / (double)p->tokens;
}

struct pl_price pl_price_held(const struct pl_question *q, const struct pl_planned *held) {
    const struct pl_program *p = held->program;
    const struct pl_speed speed = pl_speed_nominal(&p->traits);
    const struct pl_verdict v = pl_gate_judge(held->plan, q);
    return (struct pl_price){.needed_bytes = v.needed_bytes,
                             .host_bytes = pl_plan_host_placed(held->plan),
                             .flops_per_token = flops_per_token(p),
                             .seconds_per_token = pl_program_seconds_per_token(p, &speed),
                             .update_seconds = pl_program_update_seconds(p, &speed),
                             .verdict = v.kind};
}

pl_err pl_price_measure(const struct pl_question *q, uint64_t limit, struct pl_trials *t,
                        struct pl_price *out, struct pl_diag *d) {
    PL_TRY(pl_question_measure_within(q, limit, &t->held, d));
    *out = pl_price_held(q, &t->held);
    return PL_ERR_OK;
}

pl_err pl_price_decide(struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                       struct pl_diag *d) {
    PL_TRY(pl_decide_again(q, 0, t, d));
    *out = pl_price_held(q, &t->held);
    return PL_ERR_OK;
}

pl_err pl_price_of(const struct pl_question *q, struct pl_trials *t, struct pl_price *out,
                   struct pl_diag *d) {
    struct pl_question again = *q;
    return pl_price_decide(&again, t, out, d);
}

uint32_t pl_price_micro_batch(uint32_t largest, uint32_t samples) {
    uint32_t b = largest;
    if (samples) {
        while (b && samples % b)
            b--;
        return b;
    }
    for (b = 1; b <= largest / 2; b *= 2)
        continue;
    return largest ? b : 0;
}

/* The ceiling of a full fine-tune is passed or not whatever the batch. */
static pl_err zero_above_ceiling(const struct pl_question *q, struct pl_trials *t, uint32_t *batch,
                                 struct pl_diag *d) {
    if (q->job->mode != PL_MODE_FULL) return PL_ERR_OK;
    PL_TRY(pl_question_sketch(q, &t->held, d));
    if (pl_gate_over_ceiling(t->held.program, q->job)) *batch = 0;
    return PL_ERR_OK;
}

/* With the batch open, and what else the job leaves open not decided. */
static void open_batch(struct pl_variant *v, const struct pl_question *q) {
    pl_variant_of(v, q);
    if (!pl_job_has_open_step(q->job)) v->job.auto_samples = PL_UNSET_U32;
    v->job.batch_size = PL_AUTO;
    pl_question_open(&v->q, &v->job, q->model);
}

pl_err pl_price_auto_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                           struct pl_diag *d) {
    struct pl_autobatch search;
    struct pl_variant v;
    *out = 0;
    if (!q->budget.known) return PL_ERR_OK;
    open_batch(&v, q);
    PL_TRY(pl_decide_levels(&v.q, pl_autobatch_limit(&v.job), t, NULL, d));
    search.batch_size = t->found.batch_size;
    if (!t->found.next_bytes) PL_TRY(pl_autobatch_find(&v.q, PL_BATCH_LIMIT, &t->held, &search, d));
    *out = search.batch_size;
    return zero_above_ceiling(&v.q, t, out, d);
}

/* A choice other than the smallest may fit where that one does not, by a gap that it fills. Steps
 * double while they fit and halve after the first that does not, until one more sample does not. */
static pl_err raise_past(const struct pl_question *q, struct pl_trials *t, uint32_t *batch,
                         struct pl_diag *d) {
    const uint32_t most = (uint32_t)pl_u64_min(PL_BATCH_LIMIT, pl_question_most_samples(q));
    bool has_failed = false;
    for (uint64_t step = 1; *batch < most;) {
        struct pl_question next = *q;
        struct pl_price price;
        next.batch_size = (uint32_t)pl_u64_min(*batch + step, most);
        PL_TRY(pl_price_decide(&next, t, &price, d));
        const bool fits = pl_price_fits(&price);
        if (!fits && next.batch_size == *batch + 1) return PL_ERR_OK;
        if (fits) *batch = next.batch_size;
        has_failed |= !fits;
        step = has_failed ? pl_u64_max(step / 2, 1) : 2 * step;
    }
    return PL_ERR_OK;
}

void pl_price_settle(const struct pl_question *q, struct pl_job *job) {
    pl_question_settle(q, job);
    job->given[PL_KEY_gradient_checkpointing] = true;
    job->given[PL_KEY_loss_chunk_tokens] |= job->loss_chunk_tokens != PL_AUTO;
    job->given[PL_KEY_mlp_chunk_tokens] |= job->mlp_chunk_tokens != PL_AUTO;
    job->given[PL_KEY_unpack_buffer] |= job->unpack_buffer != PL_AUTO_BYTES;
    job->given[PL_KEY_keep_unpacked] |= job->keep_unpacked != PL_TRI_AUTO;
}

/* Finds the largest batch of a question whose batch is open, with the least of what else is. */
static pl_err find_largest(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                           struct pl_diag *d) {
    struct pl_autobatch search;
    struct pl_question smallest = *q;
    PL_TRY(pl_autolevel_smallest(&smallest, t, d));
    PL_TRY(pl_autobatch_find(&smallest, PL_BATCH_LIMIT, &t->held, &search, d));
    *out = search.batch_size;
    const bool choice = memcmp(&smallest.decided, &q->decided, sizeof q->decided) != 0;
    if (choice) PL_TRY(raise_past(q, t, out, d));
    return *out ? zero_above_ceiling(&smallest, t, out, d) : PL_ERR_OK;
}

/* As `auto` decides, updates in the backward pass are for jobs that do not fit without them. */
pl_err pl_price_largest_batch(const struct pl_question *q, struct pl_trials *t, uint32_t *out,
                              struct pl_diag *d) {
    struct pl_variant v;
    *out = 0;
    if (!q->budget.known) return PL_ERR_OK;
    open_batch(&v, q);
    pl_variant_smallest_level(&v);
    v.q.batch_size = q->batch_size;
    const bool open = v.job.optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(&v.q);
    if (open) v.job.optimizer_in_backward = PL_TRI_FALSE;
    PL_TRY(find_largest(&v.q, t, out, d));
    if (!open || *out) return PL_ERR_OK;
    v.job.optimizer_in_backward = PL_TRI_TRUE;
    return find_largest(&v.q, t, out, d);
}

void pl_price_raise_ceiling(const struct pl_program *p, struct pl_job *job) {
    if (job->given[PL_KEY_full_ft_ceiling_billions] || !pl_gate_over_ceiling(p, job)) return;
    job->full_ft_ceiling_billions =
        ceil((double)pl_gate_trained(p) / 1e9 / pl_gate_ceiling_devices(p));
    job->given[PL_KEY_full_ft_ceiling_billions] = true;
}

void pl_price_report(const struct pl_price *p, struct pl_report *r) {
    pl_report_bytes(r, "needed_bytes", p->needed_bytes);
    pl_report_real(r, "flops_per_token", p->flops_per_token);
    pl_report_word(r, "verdict", pl_verdict_name(p->verdict));
}
