/* price.c - changing a question and planning what comes out. */
#include "estimator/advice/price.h"

#include "estimator/autobatch/autobatch.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "estimator/program/cost.h"

#include <stdio.h>

void pl_price_variant(struct pl_variant *v, const struct pl_question *q, uint32_t batch_size) {
    pl_variant_of(v, q);
    v->q.batch_size = batch_size;
}

pl_err pl_price_put(struct pl_variant *v, enum pl_key_id key, uint32_t value, struct pl_diag *d) {
    char text[16];
    uint32_t n;
    snprintf(text, sizeof text, "%u", value);
    PL_TRY(pl_job_set(&v->job, pl_key_table(&n)[key].key, text, d));
    if (key == PL_KEY_batch_size) v->q.batch_size = value;
    const uint64_t tokens = (uint64_t)v->q.batch_size * v->job.max_seq_length;
    if (tokens <= pl_question_most_tokens(&v->q)) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_OVERFLOW, "%llu tokens in one micro-batch are too many",
                       (unsigned long long)tokens);
}

uint32_t pl_price_get(const struct pl_question *q, enum pl_key_id key) {
    if (key == PL_KEY_batch_size) return q->batch_size;
    return key == PL_KEY_lora_r ? q->job->lora_r : q->job->max_seq_length;
}

static double flops_per_token(const struct pl_program *p) {
    const struct pl_phase_range *r = &p->phases[PL_PHASE_MICRO];
    double sum = 0;
    for (uint32_t op = r->first_op; op < r->first_op + r->n_ops; op++)
        sum += p->ops[op].flops * (1.0 + p->ops[op].left_out);
    return sum / (double)p->tokens;
}

struct pl_price pl_price_of_program(const struct pl_program *p, const struct pl_verdict *v) {
    const struct pl_speed speed = pl_speed_nominal(&p->traits);
    return (struct pl_price){.needed_bytes = v->needed_bytes,
                             .flops_per_token = flops_per_token(p),
                             .seconds_per_token = pl_program_seconds_per_token(p, &speed),
                             .verdict = v->kind};
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

pl_err pl_price_of(const struct pl_question *q, struct pl_price *out, struct pl_diag *d) {
    struct pl_planned planned;
    PL_TRY(pl_question_plan(q, NULL, &planned, d));
    struct pl_verdict v = pl_gate_judge(planned.plan, q);
    *out = pl_price_of_program(planned.program, &v);
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

pl_err pl_price_largest_batch(const struct pl_question *q, uint32_t *out, struct pl_diag *d) {
    struct pl_autobatch search;
    struct pl_price one;
    struct pl_question first = *q;
    *out = 0;
    if (!q->budget.known) return PL_ERR_OK;
    first.batch_size = 1;
    PL_TRY(pl_price_of(&first, &one, d)); /* the ceiling of a full fine-tune included */
    if (one.verdict != PL_VERDICT_FITS) return PL_ERR_OK;
    pl_err err = pl_autobatch_solve(q, PL_BATCH_LIMIT, NULL, &search, d);
    *out = search.batch_size;
    pl_autobatch_finish(&search);
    return err;
}
