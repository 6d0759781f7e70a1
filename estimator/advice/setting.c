/* setting.c - changing a job and planning what comes out. */
#include "estimator/advice/setting.h"

#include "estimator/autobatch/autobatch.h"
#include "estimator/program/cost.h"

#include <stdio.h>

struct pl_setting pl_setting_of(const struct pl_advice_question *q, uint32_t batch_size) {
    return (struct pl_setting){.job = *q->job, .batch_size = batch_size};
}

pl_err pl_setting_put(struct pl_setting *s, enum pl_key_id key, uint32_t value, struct pl_diag *d) {
    char text[16];
    uint32_t n;
    snprintf(text, sizeof text, "%u", value);
    PL_TRY(pl_job_set(&s->job, pl_key_table(&n)[key].key, text, d));
    if (key == PL_KEY_batch_size) s->batch_size = value;
    /* the planner indexes tokens with 31 bits */
    const uint64_t tokens = (uint64_t)s->batch_size * s->job.max_seq_length;
    if (tokens <= INT32_MAX) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_OVERFLOW, "%llu tokens in one micro-batch are too many",
                       (unsigned long long)tokens);
}

uint32_t pl_setting_get(const struct pl_setting *s, enum pl_key_id key) {
    if (key == PL_KEY_batch_size) return s->batch_size;
    return key == PL_KEY_lora_r ? s->job.lora_r : s->job.max_seq_length;
}

static double flops_per_token(const struct pl_program *p) {
    const struct pl_phase_range *r = &p->phases[PL_PHASE_MICRO];
    double sum = 0;
    for (uint32_t op = r->first_op; op < r->first_op + r->n_ops; op++)
        sum += p->ops[op].flops;
    return sum / (double)p->tokens;
}

struct pl_price pl_setting_price_of(const struct pl_program *p, const struct pl_verdict *v) {
    const struct pl_speed speed = pl_speed_nominal(&p->traits);
    return (struct pl_price){.needed_bytes = v->needed_bytes,
                             .flops_per_token = flops_per_token(p),
                             .seconds_per_token = pl_program_seconds_per_token(p, &speed),
                             .verdict = v->kind};
}

uint32_t pl_setting_micro_batch(uint32_t largest, uint32_t samples) {
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

pl_err pl_setting_price(const struct pl_advice_question *q, const struct pl_setting *s,
                        struct pl_price *out, struct pl_diag *d) {
    struct pl_planned planned;
    PL_TRY(pl_planned_init(&planned, &s->job, q->model, q->traits, s->batch_size, d));
    struct pl_verdict v = pl_gate_judge(planned.plan, &s->job, q->model, q->budget);
    *out = pl_setting_price_of(planned.program, &v);
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

pl_err pl_setting_largest_batch(const struct pl_advice_question *q, const struct pl_setting *s,
                                uint32_t *out, struct pl_diag *d) {
    struct pl_autobatch search;
    struct pl_price one;
    struct pl_setting first = *s;
    *out = 0;
    if (!q->budget->known) return PL_ERR_OK;
    first.batch_size = 1;
    PL_TRY(pl_setting_price(q, &first, &one, d)); /* the ceiling of a full fine-tune included */
    if (one.verdict != PL_VERDICT_FITS) return PL_ERR_OK;
    pl_err err =
        pl_autobatch_solve(&s->job, q->model, q->traits, q->budget, PL_BATCH_LIMIT, &search, d);
    *out = search.batch_size;
    pl_autobatch_finish(&search);
    return err;
}
