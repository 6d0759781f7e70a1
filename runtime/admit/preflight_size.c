/* preflight_size.c - the plan of a job, and whether it fits: before the data where the micro-batch
 * is given, and for as much as is certain without them where it is not. */
#include "runtime/admit/preflight_size.h"

#include "estimator/autobatch/decide.h"
#include "estimator/autobatch/sharding.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/graphs.h"
#include "runtime/admit/record.h"
#include "runtime/admit/speed.h"
#include "runtime/data/epoch_steps.h"
#include "runtime/device/available.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#define DEFAULT_WARMUP_RATIO 0.03
#define ROWS_MAX             9007199254740992.0 /* 2^53: a double counts them one by one */

const struct pl_planned *pl_preflight_planned(const struct pl_preflight *pf) {
    return pf->estimate.planned.plan ? &pf->estimate.planned : &pf->first;
}

/* --- what a checkpoint decides --------------------------------------------------------------- */

/* What `gradient_dtype: auto` became when the run began: by its first micro-batch, which recovery
 * and other settings may have made smaller. */
static void keep_gradients(struct pl_job *job, const json_t *then) {
    const char *type = pl_record_get(then, "gradient_dtype");
    if (job->gradient_dtype != PL_GRADIENT_AUTO || !type) return;
    if (strcmp(type, "bf16") == 0) job->gradient_dtype = PL_GRADIENT_BF16;
    if (strcmp(type, "fp32") == 0) job->gradient_dtype = PL_GRADIENT_FP32;
}

/* Recovery has made the micro-batch smaller, not the step: what it holds, and the type of its
 * gradients, stay what the configuration asks for. */
static void keep_step_size(struct pl_job *job, const struct pl_run_state *s) {
    bool open = job->batch_size == PL_AUTO, together = job->global_batch_size != PL_UNSET_U32;
    uint64_t accumulation = pl_job_accumulation(job, job->batch_size);
    uint64_t product = open ? s->global_batch : job->batch_size * accumulation * pl_job_ranks(job);
    if (job->gradient_dtype == PL_GRADIENT_AUTO && job->dtype == PL_JOB_DTYPE_BF16 &&
        job->mode == PL_MODE_FULL && !(open && together)) /* of a version that did not record it */
        job->gradient_dtype = accumulation > 1 ? PL_GRADIENT_FP32 : PL_GRADIENT_BF16;
    pl_job_cut_step(job, s->batch_size, together ? job->global_batch_size : product);
}

/* Of a version that had none, it stays open. */
static void keep_open(struct pl_job *job, enum pl_key_id id, const json_t *then) {
    uint32_t n;
    const char *key = pl_key_table(&n)[id].key, *decided = pl_record_get(then, key);
    const bool given = job->given[id];
    if (!decided) return;
    (void)pl_job_set(job, key, decided, NULL); /* open, where it is not one */
    job->given[id] = given;
}

/* A run that is resumed keeps the micro-batch, the chunks and the panels that it had: the last bits
 * of a step's sums depend on them, on panels where a library chooses products by their shape. */
static void keep_batch(struct pl_job *job, const struct pl_run_state *s, const json_t *then) {
    keep_gradients(job, then);
    if (job->mlp_chunk_tokens == PL_AUTO) keep_open(job, PL_KEY_mlp_chunk_tokens, then);
    if (job->unpack_buffer == PL_AUTO_BYTES) keep_open(job, PL_KEY_unpack_buffer, then);
    if (s->oom_recoveries) keep_step_size(job, s);
    if (pl_job_has_open_step(job)) { /* what it holds was decided when the run began */
        job->global_batch_size = (uint32_t)pl_u64_min(s->global_batch, PL_UNSET_U32 - 1);
        job->gradient_accumulation_steps = PL_UNSET_U32;
    }
    if (job->batch_size == PL_AUTO) job->batch_size = s->batch_size;
    if (job->loss_chunk_tokens == PL_AUTO && s->loss_chunk_tokens)
        job->loss_chunk_tokens = s->loss_chunk_tokens;
}

/* --- whose plan ------------------------------------------------------------------------------ */

/* What is open is decided for the last rank, which has as many blocks of every tensor as any
 * (shard.h), by every rank and where there is only one as yet: so all decide the same, and as
 * `estimate-vram` does. */
static void stand_as_last(struct pl_preflight *pf) {
    pf->job->rank = pl_job_ranks(pf->job) - 1;
}

static void stand_as_own(struct pl_preflight *pf) {
    pf->job->rank = pf->world.rank;
}

/* --- the verdict ----------------------------------------------------------------------------- */

static pl_err judge(struct pl_preflight *pf, struct pl_diag *d) {
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

static pl_err judge_all(struct pl_preflight *pf, struct pl_diag *d) {
    pl_graphs_grant(pf);
    PL_TRY(judge(pf, d));
    return judge_host(pf, pf->estimate.planned.plan, true, d);
}

pl_err pl_preflight_plan(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    if (!job->inference)
        pf->global_batch = job->global_batch_size != PL_UNSET_U32
                               ? job->global_batch_size
                               : (uint64_t)job->batch_size *
                                     pl_job_accumulation(job, job->batch_size) * pl_job_ranks(job);
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_err err = judge_all(pf, d);
    pf->too_large = err != PL_ERR_OK;
    return err;
}

/* --- before the data ------------------------------------------------------------------------- */

/* The largest micro-batch that fits, where that of the job is planned; graphs take what is left. */
static pl_err recommend(struct pl_preflight *pf, uint32_t limit, struct pl_diag *d) {
    struct pl_question q = pf->q;
    q.budget.context_bytes -= pf->graph_bytes;
    if (!q.budget.known) return PL_ERR_OK;
    pl_err err = pl_autobatch_solve(&q, limit, &pf->estimate.planned, &pf->search, d);
    pf->estimate.planned = pf->search.planned;
    pf->search.planned = (struct pl_planned){0};
    pf->q.recommended = pf->search.batch_size;
    return err;
}

/* Nothing of the data changes this plan: it is the one that runs. */
static pl_err plan_given(struct pl_preflight *pf, struct pl_diag *d) {
    const uint32_t limit = pl_autobatch_limit(pf->job);
    PL_TRY(pl_decide_levels(&pf->q, limit, NULL, &pf->notes, d));
    PL_TRY(pl_agreed_decision(pf, d));
    pl_question_settle(&pf->q, pf->job);
    stand_as_own(pf);
    pl_err err = pl_preflight_plan(pf, d);
    if (pf->too_large) (void)recommend(pf, limit, NULL);
    return err;
}

/* A micro-batch of one sample, at the level and the chunk that make the smallest plan. */
static pl_err refuse_smallest(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_question one = pf->q;
    struct pl_text notes = {0};
    stand_as_last(pf);
    pl_err err = pl_decide(&one, 1, &pf->search, &notes, d);
    stand_as_own(pf);
    if (err == PL_ERR_OK && pl_gate_judge(pf->search.planned.plan, &one).kind == PL_VERDICT_NO) {
        pf->q = one;
        pl_question_settle(&pf->q, pf->job);
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
    stand_as_own(pf);
    PL_TRY(pl_question_plan(&pf->q, NULL, &pf->first, d));
    if (pf->job->preflight != PL_PREFLIGHT_ENFORCE) return PL_ERR_OK;
    if (pl_gate_judge(pf->first.plan, &pf->q).kind == PL_VERDICT_NO) PL_TRY(refuse_smallest(pf, d));
    pl_err err = judge_host(pf, pf->first.plan, false, d);
    pf->too_large = err != PL_ERR_OK;
    return err;
}

pl_err pl_preflight_size(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    if (pf->resume_path) keep_batch(job, &pf->resume_state, pf->resume_job);
    pf->asked = *job;
    pf->batch_was_auto = job->batch_size == PL_AUTO;
    pl_question_open(&pf->q, job, &pf->model);
    stand_as_last(pf);
    const bool open = job->sharding == PL_SHARDING_AUTO;
    PL_TRY(pl_sharding_decide(&pf->q, &job->sharding, &pf->notes, d));
    PL_TRY(pl_agreed_sharding(pf, open, d));
    return pf->batch_was_auto ? plan_smallest(pf, d) : plan_given(pf, d);
}

/* --- after the data -------------------------------------------------------------------------- */

/* Steps of so many samples that the run has. */
static pl_err count_steps(struct pl_preflight *pf, uint64_t samples, uint64_t *steps,
                          struct pl_diag *d) {
    const double rows = pf->job->num_epochs * (double)pf->walk.epoch_rows;
    *steps = pf->job->max_steps;
    if (*steps) return PL_ERR_OK;
    if (!(rows < ROWS_MAX))
        return pl_job_error(pf->job, PL_KEY_num_epochs, PL_ERR_OVERFLOW, d,
                            "num_epochs asks for %g rows, more than can be counted", rows);
    return pl_steps_of_epochs(&pf->source, samples, pf->job->num_epochs, steps, d);
}

/* A step that no key sizes has no more samples than an epoch, and is halved while the epochs that
 * are asked for would make too few updates. */
static pl_err bound_step(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    const uint64_t least = pl_job_least_samples(job);
    uint64_t samples = pl_u64_max(PL_STEP_SAMPLES, least), steps;
    if (!pl_job_has_open_step(job)) return PL_ERR_OK;
    samples = pl_u64_min(samples, pl_u64_max(pf->walk.epoch_rows, least));
    PL_TRY(count_steps(pf, samples, &steps, d));
    while (!job->max_steps && steps < PL_FEW_UPDATES && samples > least) {
        samples = pl_u64_max(samples / 2, least);
        PL_TRY(count_steps(pf, samples, &steps, d));
    }
    job->auto_samples = (uint32_t)samples;
    if (samples < PL_STEP_SAMPLES)
        pl_text_addf(&pf->notes,
                     "samples a step: %llu instead of %u, since the data are few; "
                     "`global_batch_size` sets another number\n",
                     (unsigned long long)samples, PL_STEP_SAMPLES);
    return PL_ERR_OK;
}

static uint32_t batch_limit(const struct pl_preflight *pf) {
    return (uint32_t)pl_u64_min(pl_autobatch_limit(pf->job), pl_u64_max(pf->walk.epoch_rows, 1));
}

/* batch_size: auto becomes the largest that fits with the level and the chunk, or 1 so that the
 * refusal shows a ledger. */
static pl_err decide_batch(struct pl_preflight *pf, struct pl_diag *d) {
    const uint32_t limit = batch_limit(pf);
    if (!pf->batch_was_auto) return recommend(pf, limit, d);
    pl_planned_finish(&pf->first);
    stand_as_last(pf);
    PL_TRY(pl_decide(&pf->q, limit, &pf->search, &pf->notes, d));
    PL_TRY(pl_agreed_decision(pf, d));
    pl_question_settle(&pf->q, pf->job);
    stand_as_own(pf);
    return pl_preflight_plan(pf, d);
}

/* Nobody asked for this warm-up: it is less than the run. */
static uint64_t default_warmup(const struct pl_preflight *pf) {
    const uint64_t steps = (uint64_t)ceil(DEFAULT_WARMUP_RATIO * (double)pf->total_steps);
    return pl_u64_min(steps, pf->total_steps - 1);
}

static void decide_warmup(struct pl_preflight *pf) {
    struct pl_job *job = pf->job;
    pf->warmup_ratio = NAN;
    if (job->lr_scheduler == PL_SCHEDULE_CONSTANT) {
        pf->warmup_steps = 0;
    } else if (job->warmup_steps != PL_UNSET_U32) {
        pf->warmup_steps = job->warmup_steps;
    } else if (isnan(job->warmup_ratio)) {
        pf->warmup_ratio = DEFAULT_WARMUP_RATIO;
        pf->warmup_steps = default_warmup(pf);
    } else {
        pf->warmup_ratio = job->warmup_ratio;
        pf->warmup_steps = (uint64_t)ceil(pf->warmup_ratio * (double)pf->total_steps);
    }
    job->warmup_steps = (uint32_t)pf->warmup_steps;
    job->warmup_ratio = NAN;
}

/* What would train nothing, or little, is said before the first step. The rate of the first step of
 * a warm-up is 0. */
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

static pl_err decide_steps(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(count_steps(pf, pf->global_batch, &pf->total_steps, d));
    decide_warmup(pf);
    warn_of_schedule(pf);
    return PL_ERR_OK;
}

void pl_preflight_write_decisions(struct pl_job *job, const struct pl_program *p) {
    job->learning_rate = pl_job_learning_rate(job);
    if (job->global_batch_size == PL_UNSET_U32)
        job->gradient_accumulation_steps = pl_job_accumulation(job, job->batch_size);
    if (job->loss_chunk_tokens == PL_AUTO) job->loss_chunk_tokens = (uint32_t)p->chunk_tokens;
    if (job->mlp_chunk_tokens == PL_AUTO)
        job->mlp_chunk_tokens = (uint32_t)p->shape.mlp_chunk_tokens;
    if (job->unpack_buffer == PL_AUTO_BYTES && job->mode == PL_MODE_QLORA)
        job->unpack_buffer = p->shape.unpack_bytes;
    bool full = job->mode == PL_MODE_FULL, bf16 = job->dtype == PL_JOB_DTYPE_BF16;
    if (bf16 && full) job->master_weights = p->shape.master_weights ? PL_TRI_TRUE : PL_TRI_FALSE;
    if (bf16 && (full || p->shape.lora_targets.whole))
        job->gradient_dtype =
            p->shape.gradient_dtype == PL_DTYPE_BF16 ? PL_GRADIENT_BF16 : PL_GRADIENT_FP32;
    if (!pl_mode_adapts(job->mode)) return;
    job->base_dtype =
        p->shape.base_bf16 || p->shape.dtype == PL_DTYPE_BF16 ? PL_BASE_BF16 : PL_BASE_FP32;
    if (isnan(job->lora_alpha)) job->lora_alpha = 2.0 * job->lora_r;
}

pl_err pl_preflight_settle(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(bound_step(pf, d));
    PL_TRY(decide_batch(pf, d));
    PL_TRY(decide_steps(pf, d));
    pl_preflight_write_decisions(pf->job, pf->estimate.planned.program);
    pl_forecast_init(&pf->forecast, pf, &pf->notes);
    pf->settled = true;
    return PL_ERR_OK;
}
