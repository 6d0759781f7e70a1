/* preflight_size.c - the plan of a job, and whether it fits: before the data where the micro-batch
 * is given, and for as much as is certain without them where it is not. */
#include "runtime/admit/preflight_size.h"

#include "estimator/autobatch/decide.h"
#include "estimator/autobatch/sharding.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/config/job_values.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/graphs.h"
#include "runtime/admit/reference_passes.h"
#include "runtime/admit/speed.h"
#include "runtime/data/epoch_steps.h"
#include "runtime/device/available.h"

#include <math.h>
#include <string.h>

#define DEFAULT_WARMUP_RATIO 0.03
#define ROWS_MAX             9007199254740992.0 /* 2^53: a double counts them one by one */

const struct pl_planned *pl_preflight_planned(const struct pl_preflight *pf) {
    return pf->estimate.planned.plan ? &pf->estimate.planned : &pf->first;
}

/* --- the verdict ----------------------------------------------------------------------------- */

static pl_err judge_plan(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    char need[PL_BYTES_TEXT];
    if (job->preflight == PL_PREFLIGHT_OFF) return PL_ERR_OK;
    struct pl_diag refusal = {0};
    pl_err err = pl_gate_error(&pf->estimate.verdict, &pf->q, &refusal);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    if (job->preflight == PL_PREFLIGHT_ENFORCE) return pl_diag_set(d, err, "%s", refusal.message);
    pl_text_addf(&pf->notes, "preflight: warn - %s; planned %s\n", refusal.message,
                 pl_bytes_text(pf->estimate.verdict.needed_bytes, need));
    return PL_ERR_OK;
}

/* Host memory has no budget of its own: it is what the machine has left. */
static pl_err judge_host_bytes(struct pl_preflight *pf, uint64_t needed, struct pl_diag *d) {
    char need[PL_BYTES_TEXT], have[PL_BYTES_TEXT];
    const uint64_t available = pl_cpu_available().bytes;
    if (needed <= available) return PL_ERR_OK;
    pl_bytes_text(needed, need);
    pl_bytes_text(available, have);
    if (pf->job->preflight == PL_PREFLIGHT_WARN) {
        pl_text_addf(&pf->notes,
                     "preflight: warn - the job needs %s of host memory, %s is available\n", need,
                     have);
        return PL_ERR_OK;
    }
    pl_diag_set(d, PL_ERR_HOST_OOM,
                "the job needs %s (%llu bytes) of host memory, %s available (%llu bytes)", need,
                (unsigned long long)needed, have, (unsigned long long)available);
    pl_diag_hint(d, "offload less, or choose a smaller model; `offload` and `full_ft_offload` move "
                    "bytes from the device to the host");
    return PL_ERR_HOST_OOM;
}

/* arenas: those of the CPU are of the same memory. */
static pl_err judge_host(struct pl_preflight *pf, const struct pl_plan *plan, bool arenas,
                         struct pl_diag *d) {
    uint64_t needed = pl_plan_host_total(plan);
    bool plans_host = needed > pf->q.traits.pinned_bytes;
    if (!plans_host || pf->job->device == PL_DEVICE_NULL || pf->job->preflight == PL_PREFLIGHT_OFF)
        return PL_ERR_OK;
    if (arenas && !pl_device_is_cuda(pf->job->device)) needed += plan->arena_bytes;
    return judge_host_bytes(pf, needed, d);
}

pl_err pl_preflight_plan(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    if (!job->inference)
        pf->global_batch = job->global_batch_size != PL_UNSET_U32
                               ? job->global_batch_size
                               : (uint64_t)job->batch_size *
                                     pl_job_accumulation(job, job->batch_size) * pl_job_ranks(job);
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_graphs_grant(pf);
    pl_err err = judge_plan(pf, d);
    if (err == PL_ERR_OK) err = judge_host(pf, pf->estimate.planned.plan, true, d);
    pf->too_large = err != PL_ERR_OK;
    return err;
}

/* --- before the data ------------------------------------------------------------------------- */

/* The largest micro-batch that fits, where that of the job is planned; graphs take what is left. */
static pl_err recommend(struct pl_preflight *pf, uint32_t limit, struct pl_diag *d) {
    struct pl_question q = pf->q;
    struct pl_planned held = {0};
    q.budget.context_bytes -= pf->graph_bytes;
    if (!q.budget.known) return PL_ERR_OK;
    pl_err err = pl_autobatch_solve(&q, limit, &pf->estimate.planned, &pf->search, d);
    pf->estimate.planned = pf->search.planned;
    pf->search.planned = (struct pl_planned){0};
    q.recommended = pf->search.batch_size;
    if (err == PL_ERR_OK) err = pl_decide_recommended(&q, limit, &held, d);
    pl_planned_finish(&held);
    pf->q.recommended = q.recommended;
    pf->q.recommended_level = q.recommended_level;
    return err;
}

void pl_preflight_take_decided(struct pl_preflight *pf, const struct pl_question *q) {
    pf->spec.facts.decided = pl_question_decided(q);
    pl_resolve(&pf->spec);
    pf->q = *q;
    pf->q.job = pf->job;
    pf->q.rank = pf->world.rank;
}

/* Nothing of the data changes this plan: it is the one that runs. */
static pl_err plan_given(struct pl_preflight *pf, struct pl_diag *d) {
    const uint32_t limit = pl_autobatch_limit(pf->job);
    struct pl_question last = pl_question_of_last(&pf->q);
    PL_TRY(pl_decide_levels(&last, limit, NULL, &pf->notes, d));
    PL_TRY(pl_agreed_decision(pf, &last, d));
    pl_preflight_take_decided(pf, &last);
    pl_err err = pl_preflight_plan(pf, d);
    if (pf->too_large) (void)recommend(pf, limit, NULL);
    return err;
}

/* A micro-batch of one sample, at the level and the chunk that make the smallest plan. */
static pl_err refuse_smallest(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_question one = pl_question_of_last(&pf->q);
    struct pl_text notes = {0};
    pl_err err = pl_decide(&one, 1, &pf->search, &notes, d);
    if (err == PL_ERR_OK && pl_gate_judge(pf->search.planned.plan, &one).kind == PL_VERDICT_NO) {
        pl_preflight_take_decided(pf, &one);
        pl_text_add(&pf->notes, pl_text_str(&notes));
        err = pl_preflight_plan(pf, d);
    }
    pl_autobatch_finish(&pf->search);
    pl_text_finish(&notes);
    return err;
}

/* `batch_size: auto`: rows can only make the micro-batch smaller, so a job that does not fit with
 * one sample is refused before they are read. What rebuilds every layer is the smallest plan in all
 * but a few cases, which the search knows. */
static pl_err plan_smallest(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(pl_question_plan(&pf->q, NULL, &pf->first, d));
    if (pf->job->preflight != PL_PREFLIGHT_ENFORCE) return PL_ERR_OK;
    if (pl_gate_judge(pf->first.plan, &pf->q).kind == PL_VERDICT_NO) PL_TRY(refuse_smallest(pf, d));
    pl_err err = judge_host(pf, pf->first.plan, false, d);
    pf->too_large = err != PL_ERR_OK;
    return err;
}

pl_err pl_preflight_shard(struct pl_preflight *pf, struct pl_spec *spec,
                          const struct pl_question *last, struct pl_text *notes,
                          struct pl_diag *d) {
    const bool open = spec->job.sharding == PL_SHARDING_AUTO;
    uint32_t sharding;
    PL_TRY(pl_sharding_decide(last, &sharding, notes, d));
    PL_TRY(pl_agreed_sharding(pf, open, &sharding, d));
    spec->facts.sharding = sharding;
    pl_resolve(spec);
    return PL_ERR_OK;
}

pl_err pl_preflight_size(struct pl_preflight *pf, struct pl_diag *d) {
    pf->batch_was_auto = pf->job->batch_size == PL_AUTO;
    pl_question_open(&pf->q, pf->job, &pf->model);
    pl_question_note_dtype(&pf->q, &pf->notes);
    pf->q.rank = pf->world.rank;
    const struct pl_question last = pl_question_of_last(&pf->q);
    PL_TRY(pl_preflight_shard(pf, &pf->spec, &last, &pf->notes, d));
    return pf->batch_was_auto ? plan_smallest(pf, d) : plan_given(pf, d);
}

/* --- after the data -------------------------------------------------------------------------- */

/* Steps of so many samples that the run has. */
static pl_err count_steps(struct pl_preflight *pf, uint64_t samples, uint64_t *steps,
                          struct pl_diag *d) {
    const double rows = pf->job->num_epochs * (double)pf->data.walk.epoch_rows;
    *steps = pf->job->max_steps;
    if (*steps) return PL_ERR_OK;
    if (!(rows < ROWS_MAX))
        return pl_job_error(pf->job, PL_KEY_num_epochs, PL_ERR_OVERFLOW, d,
                            "num_epochs asks for %g rows, more than can be counted", rows);
    return pl_steps_of_epochs(&pf->data.source, samples, pf->job->num_epochs, steps, d);
}

/* A step that no key sizes has no more samples than an epoch, and is halved while the epochs that
 * are asked for would make too few updates. */
static pl_err bound_step(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    const uint64_t least = pl_job_least_samples(job);
    uint64_t samples = pl_u64_max(PL_STEP_SAMPLES, least), steps;
    if (!pl_job_has_open_step(job)) return PL_ERR_OK;
    samples = pl_u64_min(samples, pl_u64_max(pf->data.walk.epoch_rows, least));
    PL_TRY(count_steps(pf, samples, &steps, d));
    while (!job->max_steps && steps < PL_FEW_UPDATES && samples > least) {
        samples = pl_u64_max(samples / 2, least);
        PL_TRY(count_steps(pf, samples, &steps, d));
    }
    pf->spec.facts.samples = (uint32_t)samples;
    pl_resolve(&pf->spec);
    if (samples < PL_STEP_SAMPLES)
        pl_text_addf(&pf->notes,
                     "samples a step: %llu instead of %u, since the data are few; "
                     "`global_batch_size` sets another number\n",
                     (unsigned long long)samples, PL_STEP_SAMPLES);
    return PL_ERR_OK;
}

/* batch_size: auto becomes the largest that fits with the level and the chunk, or 1 so that the
 * refusal shows a ledger. */
static pl_err decide_batch(struct pl_preflight *pf, struct pl_diag *d) {
    const uint32_t limit =
        (uint32_t)pl_u64_min(pl_autobatch_limit(pf->job), pl_u64_max(pf->data.walk.epoch_rows, 1));
    if (!pf->batch_was_auto) return recommend(pf, limit, d);
    pl_planned_finish(&pf->first);
    struct pl_question last = pl_question_of_last(&pf->q);
    PL_TRY(pl_decide(&last, limit, &pf->search, &pf->notes, d));
    PL_TRY(pl_agreed_decision(pf, &last, d));
    pl_preflight_take_decided(pf, &last);
    return pl_preflight_plan(pf, d);
}

static void decide_warmup(struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    pf->warmup_ratio = NAN;
    if (job->lr_scheduler == PL_SCHEDULE_CONSTANT) {
        pf->warmup_steps = 0;
    } else if (job->warmup_steps != PL_UNSET_U32) {
        pf->warmup_steps = job->warmup_steps;
    } else if (isnan(job->warmup_ratio)) {
        pf->warmup_ratio = DEFAULT_WARMUP_RATIO;
        pf->warmup_steps = (uint64_t)ceil(pf->warmup_ratio * (double)pf->total_steps);
        /* Nobody asked for this warm-up: it is less than the run. */
        pf->warmup_steps = pl_u64_min(pf->warmup_steps, pf->total_steps - 1);
    } else {
        pf->warmup_ratio = job->warmup_ratio;
        pf->warmup_steps = (uint64_t)ceil(pf->warmup_ratio * (double)pf->total_steps);
    }
    pf->spec.facts.has_warmup = true;
    pf->spec.facts.warmup_steps = (uint32_t)pf->warmup_steps;
    pl_resolve(&pf->spec);
}

/* A job that would train nothing, or little, is warned of before the first step. The rate of the
 * first step of a warm-up is 0. */
static void warn_of_schedule(struct pl_preflight *pf) {
    const unsigned long long steps = pf->total_steps, warmup = pf->warmup_steps;
    const bool never = pl_job_learning_rate(pf->job) == 0 || (warmup && steps == 1);
    if (never)
        pl_text_addf(&pf->notes,
                     "warning: the learning rate of every step is 0, and nothing will be trained: "
                     "%llu step%s, `learning_rate: %g`, `warmup_steps: %llu`\n",
                     steps, steps == 1 ? "" : "s", pl_job_learning_rate(pf->job), warmup);
    else if (warmup >= steps)
        pl_text_addf(&pf->notes,
                     "warning: the warm-up of %llu steps outlasts the run of %llu: its learning "
                     "rate is not reached; `warmup_steps: %llu` ends it in time\n",
                     warmup, steps, steps / 10);
    if (!pf->job->max_steps && steps < PL_FEW_UPDATES)
        pl_text_addf(&pf->notes,
                     "the run ends after %llu step%s: more of them come of a larger `num_epochs` "
                     "or of fewer samples a step\n",
                     steps, steps == 1 ? "" : "s");
}

void pl_preflight_take_built(struct pl_spec *spec, const struct pl_program *p) {
    const struct pl_job_shape *s = &p->shape;
    spec->facts.built = (struct pl_built){
        .is = true,
        .has_masters = s->master_weights,
        .adapts_whole = s->lora_targets.whole != 0,
        .dtype = s->dtype,
        .gradient_dtype = s->gradient_dtype,
        .base_dtype = pl_shape_base_dtype(s),
        .loss_chunk_tokens = (uint32_t)pl_program_chunk_of_any(p),
        .mlp_chunk_tokens = (uint32_t)s->mlp_chunk_tokens,
        .unpack_bytes = s->unpack_bytes,
    };
    pl_resolve(spec);
}

/* A given micro-batch was planned before the rows were read, and without their weights. */
static pl_err plan_weights(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_planned *planned = &pf->estimate.planned;
    const bool weighs = pl_job_weighs_rows(pf->job);
    if (pf->batch_was_auto || weighs == planned->program->shape.weighs_rows) return PL_ERR_OK;
    pl_estimate_finish(&pf->estimate);
    return pl_preflight_plan(pf, d);
}

pl_err pl_preflight_settle(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(plan_weights(pf, d));
    PL_TRY(bound_step(pf, d));
    PL_TRY(decide_batch(pf, d));
    PL_TRY(count_steps(pf, pf->global_batch, &pf->total_steps, d));
    decide_warmup(pf);
    pl_preflight_decide_reference(pf);
    warn_of_schedule(pf);
    pl_preflight_take_built(&pf->spec, pf->estimate.planned.program);
    pl_forecast_init(&pf->forecast, pf, &pf->notes);
    pf->settled = true;
    return PL_ERR_OK;
}
