#include "runtime/train/score.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "runtime/session/agree.h"
#include "runtime/session/inputs.h"
#include "runtime/session/load.h"
#include "runtime/train/micro_batch.h"
#include "runtime/train/run_ops.h"

#include <math.h>
#include <stdlib.h>

static pl_err reserve_scores(struct pl_run *r, struct pl_diag *d) {
    struct pl_scores *s = &r->scores;
    const uint64_t n = r->batch.n, targets = r->s.micro.cap_tokens;
    if (!s->logp) s->logp = pl_calloc((size_t)targets + 1, sizeof *s->logp);
    if (!s->logp) return pl_host_oom(d, "log-probabilities");
    if (n <= s->cap) return PL_ERR_OK;
    if (n > SIZE_MAX / sizeof *s->of) return pl_host_oom(d, "the scores of a step");
    struct pl_score *of = pl_realloc(s->of, (size_t)n * sizeof *of);
    if (of) s->of = of;
    uint32_t *rank = of ? pl_realloc(s->rank, (size_t)n * sizeof *rank) : NULL;
    if (!rank) return pl_host_oom(d, "the scores of a step");
    s->rank = rank;
    s->cap = n;
    return PL_ERR_OK;
}

void pl_scores_finish(struct pl_scores *s) {
    free(s->of);
    free(s->rank);
    free(s->logp);
    *s = (struct pl_scores){0};
}

/* Sums up the targets of a sample, in their order (L1); the tail of an answer counts less. */
static void add_up(const struct pl_step_batch *b, uint64_t i, const double *logp,
                   struct pl_score *out) {
    const struct pl_sample *s = &b->samples[i];
    const struct pl_target_weights *w = &b->weights[i];
    const uint64_t first = pl_u64_max(b->members[i].answer, 1);
    out->answer = out->all = 0;
    for (uint64_t t = 1; t < s->n; t++) {
        if (!pl_label_is_target(s->labels[t])) continue;
        out->all += *logp;
        if (t >= first) out->answer += (t - first < w->tail ? 1 : w->tail_factor) * *logp;
        logp++;
    }
}

/* The log-probabilities of the micro-batch at hand, to the scores of its samples. */
static pl_err take_scores(struct pl_run *r, enum pl_phase phase, struct pl_diag *d) {
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    const struct pl_micro_batch *mb = &r->s.micro;
    const uint32_t id = pl_run_rung(r)->logp[phase];
    const double *logp = r->scores.logp;
    pl_err err = PL_ERR_OK;
    (void)pl_exec_lend(exec, id);
    if (mb->n_targets)
        err = pl_exec_download(exec, id, r->scores.logp, mb->n_targets * sizeof *logp);
    if (err != PL_ERR_OK) return pl_diag_set(d, err, "the scores could not be copied");
    for (uint64_t k = 0; k < mb->n_seqs; k++) {
        const uint64_t i = mb->samples[k];
        struct pl_score score;
        add_up(&r->batch, i, logp, &score);
        logp += r->batch.members[i].targets;
        if (phase == PL_PHASE_REFERENCE || r->scores.refers)
            r->scores.of[i].reference = score.answer;
        else
            score.reference = r->scores.of[i].reference, r->scores.of[i] = score;
    }
    return PL_ERR_OK;
}

/* Scores the samples that are this rank's by a phase (C1); `before` is the outcome of what came
 * before it, as in pl_run_ops(). */
static pl_err score_by(struct pl_run *r, pl_err before, enum pl_phase phase, struct pl_diag *d) {
    const struct pl_phase_range *ops = &pl_run_rung(r)->planned.program->phases[phase];
    pl_err err = before;
    for (r->round = 0; r->round < r->batch.slots; r->round += pl_run_round_slots(r)) {
        if (err == PL_ERR_OK) err = pl_run_prepare(r, phase, d);
        err = pl_run_ops(r, err, ops, d);
        if (err == PL_ERR_OK) err = take_scores(r, phase, d);
        if (err != PL_ERR_OK && !r->s.comm) break;
    }
    return err;
}

/* Ranks score the micro-batches of a step in turn, as they compute them; then every rank has all
 * scores, and comes to the same weights. */
static pl_err share_scores(struct pl_run *r, pl_err mine, struct pl_diag *d) {
    struct pl_scores *s = &r->scores;
    pl_err err = pl_session_agree(&r->s, (struct pl_outcome){.err = mine}, d).err;
    if (err != PL_ERR_OK) return err;
    for (uint64_t i = 0; i < r->batch.n; i++)
        s->rank[i] = (uint32_t)(r->batch.slot[i] / pl_run_slots(r) % pl_run_ranks(r));
    return pl_session_share_rows(&r->s, s->of, sizeof *s->of, s->rank, r->batch.n, d);
}

/* --- the reference ---------------------------------------------------------------------------- */

/* The reference of the samples of the batch, which were computed before. */
static pl_err look_up(struct pl_run *r, struct pl_diag *d) {
    for (uint64_t i = 0; i < r->batch.n; i++) {
        double *value = &r->scores.of[i].reference;
        if (!r->batch.samples[i].n) continue;
        if (!pl_reference_get(&r->reference, pl_reference_key(&r->batch, i), value))
            return pl_diag_set(d, PL_ERR_PLAN_BROKEN,
                               "a sample of step %llu has no reference, which was computed before "
                               "the first step",
                               (unsigned long long)(r->state.step + 1));
    }
    return PL_ERR_OK;
}

static bool lacks_any(const struct pl_run *r) {
    double ignored;
    for (uint64_t i = 0; i < r->batch.n; i++)
        if (r->batch.samples[i].n &&
            !pl_reference_get(&r->reference, pl_reference_key(&r->batch, i), &ignored))
            return true;
    return false;
}

/* Keeps the reference of the batch at hand, by the weights as they are or the base without the
 * adapter. */
static pl_err refer_to(struct pl_run *r, struct pl_diag *d) {
    const bool to_start = pl_job_refers_to_start(r->s.job);
    PL_TRY(reserve_scores(r, d));
    pl_losses_begin(r->s.job, &r->batch);
    if (!lacks_any(r)) return PL_ERR_OK;
    r->scores.refers = true;
    pl_err err = score_by(r, PL_ERR_OK, to_start ? PL_PHASE_EVAL : PL_PHASE_REFERENCE, d);
    r->scores.refers = false;
    PL_TRY(share_scores(r, err, d));
    for (uint64_t i = 0; i < r->batch.n; i++)
        if (r->batch.samples[i].n)
            PL_TRY(pl_reference_put(&r->reference, pl_reference_key(&r->batch, i),
                                    r->scores.of[i].reference, d));
    return PL_ERR_OK;
}

static pl_err refer_to_training_rows(struct pl_run *r, struct pl_diag *d) {
    const struct pl_preflight *pf = r->s.pf;
    uint64_t position = 0;
    for (uint64_t step = 0; step < pf->total_steps; step++) {
        PL_TRY(pl_step_batch_load(&r->batch, &pf->data.source, position, pf->global_batch, d));
        PL_TRY(refer_to(r, d));
        position += r->batch.rows;
    }
    return PL_ERR_OK;
}

/* Evaluation rows from `at` on: as many units (L2) as there are ranks. A circle of KTO never leaves
 * its unit. */
static pl_err load_eval_rows(struct pl_run *r, uint64_t at, struct pl_diag *d) {
    return pl_step_batch_load(&r->batch, &r->s.pf->data.eval_source, at,
                              (uint64_t)r->unit * pl_run_ranks(r), d);
}

static pl_err refer_to_eval_rows(struct pl_run *r, struct pl_diag *d) {
    const struct pl_preflight *pf = r->s.pf;
    for (uint64_t at = 0; at < pf->data.n_eval; at += r->batch.rows) {
        PL_TRY(load_eval_rows(r, at, d));
        PL_TRY(refer_to(r, d));
    }
    return PL_ERR_OK;
}

pl_err pl_run_refer(struct pl_run *r, struct pl_diag *d) {
    const struct pl_step_batch held = r->batch;
    if (!pl_job_precomputes(r->s.job) || r->reference.whole || !pl_session_has_memory(&r->s))
        return PL_ERR_OK;
    const bool probes = r->opt->probe_only || r->s.job->probe_steps;
    r->batch = (struct pl_step_batch){0};
    /* A probe makes groups of rows that no step of the run makes. */
    pl_err err = probes ? pl_run_load_longest(r, d) : PL_ERR_OK;
    if (err == PL_ERR_OK && probes) err = refer_to(r, d);
    if (err == PL_ERR_OK && !r->opt->probe_only) err = refer_to_training_rows(r, d);
    if (err == PL_ERR_OK && !r->opt->probe_only) err = refer_to_eval_rows(r, d);
    pl_step_batch_finish(&r->batch);
    r->batch = held;
    r->reference.whole = err == PL_ERR_OK;
    return err;
}

void pl_run_drop_reference(struct pl_run *r) {
    if (!r->s.pf->files.resume_path) pl_reference_finish(&r->reference);
}

/* --- steps ------------------------------------------------------------------------------------ */

static pl_err begin_scores(struct pl_run *r, struct pl_diag *d) {
    PL_TRY(reserve_scores(r, d));
    pl_losses_begin(r->s.job, &r->batch);
    for (uint64_t i = 0; i < r->batch.n; i++)
        r->scores.of[i] = (struct pl_score){0};
    return PL_ERR_OK;
}

/* The scores by the reference, whatever gives them; `before` is the outcome of the policy's. */
static pl_err add_reference(struct pl_run *r, pl_err before, struct pl_diag *d) {
    const struct pl_job *job = r->s.job;
    pl_err err = before;
    if (pl_job_refers(job) && !pl_job_precomputes(job))
        err = score_by(r, err, PL_PHASE_REFERENCE, d);
    PL_TRY(share_scores(r, err, d));
    return pl_job_precomputes(job) ? look_up(r, d) : PL_ERR_OK;
}

/* The scores of the batch at hand, by the policy and by the reference; a step has dropout (C4), an
 * evaluation has none. */
static pl_err score(struct pl_run *r, enum pl_phase policy, struct pl_diag *d) {
    PL_TRY(begin_scores(r, d));
    return add_reference(r, score_by(r, PL_ERR_OK, policy, d), d);
}

static enum pl_phase scoring_phase(struct pl_run *r) {
    return pl_shape_scoring_phase(&pl_run_rung(r)->planned.program->shape);
}

/* Computes the scores that micro-batches lack which score themselves: those of partners, and of the
 * reference. */
static pl_err score_others(struct pl_run *r, struct pl_diag *d) {
    pl_err err = begin_scores(r, d);
    if (err == PL_ERR_OK && pl_run_rung(r)->planned.program->shape.has_partners) {
        r->scores.members = PL_MEMBERS_PARTNERS;
        err = score_by(r, PL_ERR_OK, scoring_phase(r), d);
        r->scores.members = PL_MEMBERS_ALL;
    }
    return add_reference(r, err, d);
}

bool pl_run_keeps_first_pass(struct pl_run *r) {
    return pl_run_rung(r)->planned.program->shape.keeps_first_pass;
}

pl_err pl_run_score(struct pl_run *r, struct pl_diag *d) {
    if (pl_run_keeps_first_pass(r)) return score_others(r, d);
    PL_TRY(score(r, scoring_phase(r), d));
    pl_losses_of_step(r->s.job, r->unit, &r->batch, r->scores.of, &r->measures);
    return PL_ERR_OK;
}

pl_err pl_run_weigh_targets(struct pl_run *r, struct pl_diag *d) {
    struct pl_micro_batch *mb = &r->s.micro;
    const uint32_t role = PL_ROLE_WEIGHTS_OF_TARGETS - PL_ROLE_IDS;
    const uint32_t weights = pl_run_rung(r)->inputs[PL_PHASE_MICRO][role];
    if (!mb->n_seqs) return PL_ERR_OK;
    PL_TRY(take_scores(r, PL_PHASE_MICRO, d));
    pl_losses_of_samples(r->s.job, r->unit, &r->batch, mb->samples[0],
                         mb->samples[mb->n_seqs - 1] + 1, r->scores.of);
    pl_micro_batch_weigh(mb, &r->batch);
    return pl_session_upload(&r->s, weights, mb->weights, mb->n_targets * sizeof *mb->weights);
}

pl_err pl_run_end_scores(struct pl_run *r, pl_err before, struct pl_diag *d) {
    PL_TRY(share_scores(r, before, d));
    pl_losses_of_step(r->s.job, r->unit, &r->batch, r->scores.of, &r->measures);
    return PL_ERR_OK;
}

/* Sums of measures, each weighed by the rows that have it. */
struct weighed {
    struct pl_measures sums;
    double rows[PL_MEASURE_COUNT];
};

/* Samples [at, end) of the batch at hand, which are those of a unit. */
static void weigh_unit(struct pl_run *r, uint64_t at, uint64_t end, struct weighed *out) {
    const struct pl_job *job = r->s.job;
    const double rows = (double)((end - at) / pl_job_group(job));
    struct pl_step_batch unit = r->batch;
    struct pl_measures m;
    unit.samples += at;
    unit.members += at;
    unit.weights += at;
    unit.n = end - at;
    pl_losses_of_step(job, r->unit, &unit, r->scores.of + at, &m);
    for (int i = 0; i < PL_MEASURE_COUNT; i++) {
        if (isnan(m.of[i])) continue;
        out->sums.of[i] += m.of[i] * rows;
        out->rows[i] += rows;
    }
}

/* Evaluation counts every pair once; what is a mean of a unit, by its rows. */
pl_err pl_run_eval_preferences(struct pl_run *r, struct pl_measures *out, struct pl_diag *d) {
    const uint64_t unit = (uint64_t)r->unit * pl_job_group(r->s.job);
    struct weighed all = {0};
    for (uint64_t row = 0; row < r->s.pf->data.n_eval; row += r->batch.rows) {
        PL_TRY(load_eval_rows(r, row, d));
        PL_TRY(score(r, PL_PHASE_EVAL, d));
        for (uint64_t at = 0; at < r->batch.n; at += unit)
            weigh_unit(r, at, pl_u64_min(at + unit, r->batch.n), &all);
    }
    for (int i = 0; i < PL_MEASURE_COUNT; i++)
        out->of[i] = all.rows[i] > 0 ? all.sums.of[i] / all.rows[i] : NAN;
    return PL_ERR_OK;
}
