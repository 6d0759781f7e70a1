/* micro_batch.c - the inputs of a micro-batch, and the facts that its ops read. */
#include "runtime/train/micro_batch.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "runtime/session/arenas.h"
#include "runtime/session/inputs.h"
#include "runtime/session/load.h"

#include <math.h>

pl_err pl_run_clear_loss(struct pl_run *r) {
    static const double zero[2];
    return pl_session_upload(&r->s, pl_run_rung(r)->planned.program->loss, zero, sizeof zero);
}

pl_err pl_run_load_longest(struct pl_run *r, struct pl_diag *d) {
    const struct pl_longest *l = pl_data_longest(r->s.pf->data.rows);
    return pl_step_batch_load_rows(&r->batch, &r->s.pf->data.source, r->s.pf->global_batch, l->row,
                                   l->n, d);
}

/* Ranks that have a micro-batch in the round at hand of a step. */
static uint32_t contributors(const struct pl_run *r) {
    const uint64_t left = r->batch.slots - pl_u64_min(r->round, r->batch.slots);
    return (uint32_t)pl_u64_min(pl_run_ranks(r), pl_u64_div_up(left, pl_run_slots(r)));
}

/* Number in the step of the first micro-batch that is added with this rank's: of the round's, or
 * its own where every rank adds up its own. */
static uint32_t first_micro_batch(struct pl_run *r) {
    const struct pl_job_shape *s = &pl_run_rung(r)->planned.program->shape;
    const uint32_t number = (uint32_t)(r->round / pl_run_slots(r));
    return number + (pl_shape_exchanges_once(s) ? s->rank : 0);
}

/* Returns e where the scale of the loss is 2^e; 0 without one. */
static int loss_exponent(const struct pl_run *r) {
    int exponent = 0;
    while (r->state.loss_scale >> exponent > 1)
        exponent++;
    return exponent;
}

double pl_run_learning_rate(const struct pl_run *r) {
    return pl_schedule_rate(&r->schedule, r->state.step + 1 - r->state.skipped_steps);
}

/* The auxiliary loss of a step is the mean of those of its micro-batches. */
static float aux_scale(const struct pl_run *r) {
    const uint64_t n = pl_u64_div_up(r->batch.slots, pl_run_slots(r));
    return n ? ldexpf(1.0f / (float)n, loss_exponent(r)) : 0.0f;
}

/* overflow@step=N strikes in every attempt of its step. */
static float loss_scale(const struct pl_run *r, uint64_t targets) {
    const struct pl_debug_fault *f = &r->overflow;
    const uint64_t step = r->state.step + 1;
    if (!targets) return 0.0f;
    if (pl_job_prefers(r->s.job)) targets = 1; /* their weights hold all of it */
    if (f->at && step >= f->at && step - f->at < f->count) return INFINITY;
    return ldexpf((float)(1.0 / (double)targets), loss_exponent(r));
}

pl_err pl_run_describe(struct pl_run *r, uint32_t contributors, bool first, uint64_t targets,
                       struct pl_diag *d) {
    struct pl_batch b = pl_session_counts(&r->s);
    b.contributors = contributors;
    b.micro_batch = first_micro_batch(r);
    b.first = first;
    b.loss_scale = loss_scale(r, targets);
    b.aux_scale = aux_scale(r);
    b.loss_exponent = loss_exponent(r);
    b.seed = r->s.job->seed;
    b.step = r->state.step + 1;
    b.skipped = r->state.skipped_steps;
    b.learning_rate = pl_run_learning_rate(r);
    b.weight_decay = r->s.job->weight_decay;
    b.beta1 = r->s.job->adam_beta1;
    b.beta2 = r->s.job->adam_beta2;
    b.epsilon = r->s.job->adam_epsilon;
    return pl_exec_describe(&pl_run_rung(r)->exec, &b, d);
}

pl_err pl_run_prepare(struct pl_run *r, enum pl_phase phase, struct pl_diag *d) {
    const uint64_t size = pl_run_slots(r);
    const bool learns = phase == PL_PHASE_MICRO;
    if (r->round == 0) PL_TRY(pl_run_clear_loss(r));
    r->s.micro.members = learns ? PL_MEMBERS_LEARNED : r->scores.members;
    PL_TRY(pl_session_fill(&r->s, &r->batch, r->round + r->s.pf->world.rank * size, size, d));
    PL_TRY(pl_run_describe(r, contributors(r), r->round == 0, learns ? r->batch.targets : 0, d));
    PL_TRY(pl_session_follow_length(&r->s, d));
    return pl_session_upload_inputs(&r->s, phase);
}
