/* preflight.c - everything that is decided before a device is opened. */
#include "estimator/base/alloc.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/device/available.h"
#include "runtime/train/adapter_job.h"
#include "runtime/train/disk.h"
#include "runtime/train/generate.h"
#include "runtime/train/graphs.h"
#include "runtime/train/record.h"

#include "estimator/find/find.h"
#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_WARMUP_RATIO 0.03
#define ROWS_MAX             9007199254740992.0 /* 2^53: a double counts them one by one */

/* Before any file of a model is read. */
static pl_err settle(const struct pl_model_ref *ref, struct pl_diag *d) {
    return ref->weights_dir ? pl_save_set_settle(ref->weights_dir, d) : PL_ERR_OK;
}

/* The config.json to read, and the directory of the weights when there are weights to read. */
static pl_err find_model(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    struct pl_model_ref config = {0}, weights = {0};
    pl_err err = PL_ERR_OK;
    PL_TRY_GOTO(pl_find_model(job, job->model_config ? job->model_config : job->model, &pf->notes,
                              &config, d),
                out);
    PL_TRY_GOTO(settle(&config, d), out);
    pf->config_path = config.config;
    config.config = NULL;
    if (job->init == PL_INIT_PRETRAINED) {
        struct pl_model_ref *from = job->model_config ? &weights : &config;
        if (job->model_config)
            PL_TRY_GOTO(pl_find_model(job, job->model, &pf->notes, &weights, d), out);
        PL_TRY_GOTO(settle(from, d), out);
        pf->model_dir = from->weights_dir;
        from->weights_dir = NULL;
    }
    err = pl_model_read(pf->config_path, &pf->model, d);
out:
    pl_model_ref_finish(&config);
    pl_model_ref_finish(&weights);
    return err;
}

/* The choice of `auto` changes no bit, so nothing may be rounded by it. */
static pl_err check_base(const struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_program *p = pf->estimate.planned.program;
    if (!pf->base_was_auto || !p->shape.base_bf16 || pf->job->device == PL_DEVICE_NULL)
        return PL_ERR_OK;
    return pl_model_check_exact(p, pf->model_dir, d);
}

/* Only of a job that was admitted: a refused one opens no weights. Files that cannot be read are
 * refused by what reads them. */
static void note_surplus(struct pl_preflight *pf) {
    const struct pl_program *p = pf->estimate.planned.program;
    if (pf->model_dir) (void)pl_model_note_surplus(p, pf->model_dir, &pf->notes, NULL);
}

pl_err pl_preflight_require_weights(const struct pl_preflight *pf, struct pl_diag *d) {
    if (pf->job->init != PL_INIT_PRETRAINED) return PL_ERR_OK;
    if (pf->model_dir) return check_base(pf, d);
    pl_diag_set(d, PL_ERR_MODEL_WEIGHTS, "the weights of `%s` are not on this machine",
                pf->job->model);
    if (!pf->job->inference)
        pl_diag_hint(d, "download them into the hub cache or a directory; `--dry-run`, or `init: "
                        "random` with `model_config`, needs none");
    return PL_ERR_MODEL_WEIGHTS;
}

/* A file that is named to be trained on, and whose rows are all held out. */
static void note_untrained_files(struct pl_preflight *pf) {
    for (uint32_t i = 0; i < pl_data_files(pf->data); i++) {
        const struct pl_data_file *f = pl_data_file(pf->data, i);
        uint64_t held =
            pl_holdout_below(&pf->held, f->first + f->rows) - pl_holdout_below(&pf->held, f->first);
        if (!f->rows || held < f->rows) continue;
        pl_text_addf(&pf->notes,
                     "%s: no row of it is trained on: `val_set_size` holds out all of its %llu "
                     "rows; `split: eval` names rows for evaluation\n",
                     f->path, (unsigned long long)f->rows);
    }
}

static pl_err split_rows(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    uint64_t rows = pl_data_rows(pf->data);
    PL_TRY(pl_data_open_split(job, &pf->model, PL_SPLIT_EVAL, &pf->notes, &pf->eval_data, d));
    if (pf->eval_data) pf->eval_rows = pl_data_rows(pf->eval_data);
    if (pf->eval_data || job->val_set_size <= 0) return PL_ERR_OK;
    uint64_t held = job->val_set_size < 1 ? (uint64_t)ceil((double)rows * job->val_set_size)
                                          : (uint64_t)job->val_set_size;
    if (held >= rows)
        return pl_job_error(job, PL_KEY_val_set_size, PL_ERR_CONFIG_RANGE, d,
                            "val_set_size holds out %llu of %llu rows, none is left to train on",
                            (unsigned long long)held, (unsigned long long)rows);
    PL_TRY(pl_holdout_draw(&pf->held, pf->data, held, job->seed, d));
    pf->eval_rows = held;
    pf->eval_data = pf->data;
    note_untrained_files(pf);
    return PL_ERR_OK;
}

/* The day that chats were rendered on: written back before other data is opened, so that it shows
 * the same, on a run over midnight as well. */
static pl_err record_chat(struct pl_job *job, const struct pl_data *data, struct pl_diag *d) {
    char day[PL_DAY_TEXT];
    if (job->chat_date || !pl_data_chat_date(data, day)[0]) return PL_ERR_OK;
    job->chat_date = pl_strdup(day);
    return job->chat_date ? PL_ERR_OK : pl_host_oom(d, "the day of chats");
}

static pl_err open_data(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    PL_TRY(pl_job_require_training(job, d));
    PL_TRY(pl_data_open_split(job, &pf->model, PL_SPLIT_TRAIN, &pf->notes, &pf->data, d));
    PL_TRY(record_chat(job, pf->data, d));
    PL_TRY(split_rows(pf, d));
    if (pf->eval_data) PL_TRY(record_chat(job, pf->eval_data, d));
    uint64_t pack_tokens = job->packing ? job->max_seq_length : 0;
    if (pf->held.n)
        pl_walk_held(&pf->eval_walk, &pf->held);
    else
        pl_walk_init(&pf->eval_walk, 0, pf->eval_rows, false, 0);
    pf->source = (struct pl_batch_source){pf->data, &pf->walk, pack_tokens};
    pf->eval_source = (struct pl_batch_source){pf->eval_data, &pf->eval_walk, pack_tokens};
    return pl_walk_mix(&pf->walk, pf->data, &pf->held, job->shuffle, job->seed, d);
}

static uint32_t batch_limit(const struct pl_preflight *pf) {
    return (uint32_t)pl_u64_min(pl_autobatch_limit(pf->job), pl_u64_max(pf->walk.epoch_rows, 1));
}

/* The walk is a function of the position and the rows, so with other rows it is another walk. A
 * checkpoint that records its job is compared by the data's content. */
static void compare_data(struct pl_preflight *pf) {
    const struct pl_run_state *then = &pf->resume_state;
    uint64_t rows = pf->walk.epoch_rows, tokens = pl_data_stats(pf->data)->tokens;
    if (pf->resume_job || !then->epoch_rows ||
        (then->epoch_rows == rows && then->data_tokens == tokens))
        return;
    pl_text_addf(&pf->notes,
                 "%s was saved over other data: an epoch had %llu rows, the files %llu tokens; now "
                 "%llu and %llu. Rows may be seen twice, or not at all, in this epoch\n",
                 pf->resume_path, (unsigned long long)then->epoch_rows,
                 (unsigned long long)then->data_tokens, (unsigned long long)rows,
                 (unsigned long long)tokens);
}

/* An adapter fits any base of the same shapes, and means something on one of them. */
static void compare_base(struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    const char *now = job->model ? job->model : job->model_config;
    struct pl_adapter_config c;
    if (!pl_mode_adapts(job->mode) ||
        pl_adapter_config_read(&c, pf->resume_path, NULL) != PL_ERR_OK)
        return; /* loading it will say what is wrong */
    const char *then = json_string_value(json_object_get(c.root, "base_model_name_or_path"));
    if (then && now && strcmp(then, now) != 0)
        pl_text_addf(&pf->notes, "the adapter of %s was trained on `%s` and continues on `%s`\n",
                     pf->resume_path, then, now);
    pl_adapter_config_finish(&c);
}

/* Chats of a run that goes on show the day that they showed when it began. */
static pl_err keep_chat_day(struct pl_job *job, uint32_t day, struct pl_diag *d) {
    if (!day || job->chat_date) return PL_ERR_OK;
    if (pl_asprintf(&job->chat_date, "%04u-%02u-%02u", day / 10000, day / 100 % 100, day % 100) >=
        0)
        return PL_ERR_OK;
    job->chat_date = NULL;
    return pl_host_oom(d, "the day of chats");
}

static pl_err read_resumed(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_run_record r;
    PL_TRY(pl_run_record_read(&r, pf->resume_path, d));
    pf->resume_state = r.state;
    pf->resume_job = r.job ? json_incref(r.job) : NULL;
    if (!r.files)
        pl_text_addf(&pf->notes,
                     "%s is of an earlier version: it has no digests, and does not record the job "
                     "and data that it was trained with\n",
                     pf->resume_path);
    pl_run_record_finish(&r);
    return PL_ERR_OK;
}

static pl_err find_resume(struct pl_preflight *pf, struct pl_diag *d) {
    const char *resume = pf->job->resume;
    if (strcmp(resume, "never") == 0) return PL_ERR_OK;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "force") == 0)
        PL_TRY(pl_checkpoint_find(pf->job->output_dir, &pf->resume_path, &pf->notes, d));
    else if (!(pf->resume_path = pl_strdup(resume)))
        return pl_host_oom(d, "a path");
    if (!pf->resume_path) return PL_ERR_OK;
    PL_TRY(read_resumed(pf, d));
    return keep_chat_day(pf->job, pf->resume_state.chat_day, d);
}

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
    uint64_t product = open ? s->global_batch : job->batch_size * accumulation;
    if (job->gradient_dtype == PL_GRADIENT_AUTO && job->dtype == PL_JOB_DTYPE_BF16 &&
        job->mode == PL_MODE_FULL && !(open && together)) /* of a version that did not record it */
        job->gradient_dtype = accumulation > 1 ? PL_GRADIENT_FP32 : PL_GRADIENT_BF16;
    if (together) return;
    job->global_batch_size = (uint32_t)pl_u64_min(product, PL_UNSET_U32 - 1);
    job->gradient_accumulation_steps = PL_UNSET_U32;
}

/* A run that goes on keeps the micro-batch and the chunk it had: the sums of a step depend on them
 * in their last bits. */
static void keep_batch(struct pl_job *job, const struct pl_run_state *s, const json_t *then) {
    keep_gradients(job, then);
    if (s->oom_recoveries) keep_step_size(job, s);
    if (job->batch_size == PL_AUTO || s->oom_recoveries) job->batch_size = s->batch_size;
    if (job->loss_chunk_tokens == PL_AUTO && s->loss_chunk_tokens)
        job->loss_chunk_tokens = s->loss_chunk_tokens;
}

/* batch_size: auto becomes the largest that fits beside the level and the chunk, or 1 so that the
 * refusal shows a ledger. */
static pl_err decide_batch(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    if (pf->resume_path) keep_batch(job, &pf->resume_state, pf->resume_job);
    pf->batch_was_auto = job->batch_size == PL_AUTO;
    pl_question_open(&pf->q, job, &pf->model);
    PL_TRY(pl_decide(&pf->q, batch_limit(pf), &pf->search, &pf->notes, d));
    pl_question_settle(&pf->q, job);
    return PL_ERR_OK;
}

/* Steps of num_epochs: packed ones are counted by packing them. */
static pl_err steps_of_epochs(struct pl_preflight *pf, struct pl_diag *d) {
    double rows = ceil(pf->job->num_epochs * (double)pf->walk.epoch_rows);
    if (!(rows < ROWS_MAX))
        return pl_job_error(pf->job, PL_KEY_num_epochs, PL_ERR_OVERFLOW, d,
                            "num_epochs asks for %g rows, more than can be counted", rows);
    pf->total_steps = pl_u64_div_up((uint64_t)rows, pf->global_batch);
    if (pf->source.pack_tokens)
        PL_TRY(pl_packing_steps(pf->data, &pf->walk, (uint64_t)rows, pf->global_batch,
                                pf->source.pack_tokens, &pf->total_steps, d));
    pf->total_steps = pl_u64_max(pf->total_steps, 1);
    return PL_ERR_OK;
}

static pl_err decide_steps(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    pf->global_batch = job->global_batch_size != PL_UNSET_U32
                           ? job->global_batch_size
                           : (uint64_t)job->batch_size * pl_job_accumulation(job, job->batch_size);
    pf->total_steps = job->max_steps;
    if (!job->max_steps) PL_TRY(steps_of_epochs(pf, d));
    pf->warmup_ratio = NAN;
    if (job->lr_scheduler == PL_SCHEDULE_CONSTANT) {
        pf->warmup_steps = 0;
    } else if (job->warmup_steps != PL_UNSET_U32) {
        pf->warmup_steps = job->warmup_steps;
    } else {
        pf->warmup_ratio = isnan(job->warmup_ratio) ? DEFAULT_WARMUP_RATIO : job->warmup_ratio;
        pf->warmup_steps = (uint64_t)ceil(pf->warmup_ratio * (double)pf->total_steps);
    }
    return PL_ERR_OK;
}

/* Writes the decisions back, so that config.resolved.yaml repeats the run. */
static void record_decisions(struct pl_preflight *pf) {
    struct pl_job *job = pf->job;
    const struct pl_program *p = pf->estimate.planned.program;
    job->learning_rate = pl_job_learning_rate(job);
    job->warmup_steps = (uint32_t)pf->warmup_steps;
    job->warmup_ratio = NAN;
    if (job->global_batch_size == PL_UNSET_U32)
        job->gradient_accumulation_steps = pl_job_accumulation(job, job->batch_size);
    if (job->loss_chunk_tokens == PL_AUTO) job->loss_chunk_tokens = (uint32_t)p->chunk_tokens;
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

/* Host memory has no budget of its own: it is what the machine has left, arenas of the CPU
 * included. */
static pl_err judge_host(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_plan *plan = pf->estimate.planned.plan;
    char need[PL_BYTES_TEXT], have[PL_BYTES_TEXT];
    uint64_t needed = pl_plan_host_total(plan), available;
    bool plans_host = needed > pf->q.traits.pinned_bytes;
    if (!plans_host || pf->job->device == PL_DEVICE_NULL || pf->job->preflight == PL_PREFLIGHT_OFF)
        return PL_ERR_OK;
    if (!pl_device_is_cuda(pf->job->device)) needed += plan->arena_bytes;
    available = pl_cpu_available().bytes;
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

pl_err pl_preflight_read_data(struct pl_preflight *pf, struct pl_job *job, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job};
    PL_TRY(find_model(pf, d));
    return open_data(pf, d);
}

/* What the end of the run would find impossible. */
static pl_err check_merging(const struct pl_preflight *pf, struct pl_diag *d) {
    if (!pf->job->save_merged || pf->model.codes == PL_CODES_NONE) return PL_ERR_OK;
    pl_err err = pl_job_error(pf->job, PL_KEY_save_merged, PL_ERR_CONFIG_CONFLICT, d,
                              "nothing can be merged into this model: its weights are 4-bit codes");
    pl_diag_hint(d, "merge the adapter into the unquantised model of the same name");
    return err;
}

/* The faults of a device are armed when it opens; memory of the host is asked for before that. */
static void arm_host_fault(struct pl_preflight *pf) {
    struct pl_fault f;
    for (uint32_t i = 0; i < pf->job->debug_inject.n; i++) {
        if (!pl_fault_parse(pf->job->debug_inject.items[i], &f)) continue;
        if (f.kind != PL_FAULT_HOST_OOM_ALLOC) continue;
        pl_alloc_fail(f.at, f.count);
        pf->host_fault = true;
    }
}

pl_err pl_preflight_init(struct pl_preflight *pf, struct pl_job *job, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job, .base_was_auto = job->base_dtype == PL_BASE_AUTO};
    arm_host_fault(pf);
    PL_TRY(find_model(pf, d));
    PL_TRY(check_merging(pf, d));
    PL_TRY(pl_device_decide(job, &pf->gpu, d));
    pl_device_budget(job, &pf->gpu, &pf->q.traits, &pf->q.budget, &pf->context);
    PL_TRY(find_resume(pf, d));
    PL_TRY(open_data(pf, d));
    if (pf->resume_path) {
        compare_data(pf);
        compare_base(pf);
    }
    PL_TRY(decide_batch(pf, d));
    PL_TRY(decide_steps(pf, d));
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_graphs_grant(pf);
    record_decisions(pf);
    pl_forecast_init(&pf->forecast, pf, &pf->notes);
    PL_TRY(judge(pf, d));
    PL_TRY(judge_host(pf, d));
    note_surplus(pf);
    PL_TRY(pl_record_make(pf, &pf->record, d));
    PL_TRY(pl_record_check_resumed(pf, &pf->notes, d));
    return pl_disk_note(pf, d);
}

static void take_stored_dtype(struct pl_preflight *pf) {
    if (pf->job->given[PL_KEY_dtype]) return;
    bool wide = strcmp(pf->model.torch_dtype, "float32") == 0;
    pf->job->dtype = wide ? PL_JOB_DTYPE_FP32 : PL_JOB_DTYPE_BF16;
}

static pl_err take_adapter(struct pl_preflight *pf, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_adapter(pf->job, &path, d));
    pl_err err = path ? pl_adapter_job_fill(pf->job, &pf->model, path, d) : PL_ERR_OK;
    free(path);
    return err;
}

pl_err pl_preflight_init_generate(struct pl_preflight *pf, struct pl_job *job, struct pl_diag *d) {
    *pf = (struct pl_preflight){.job = job, .base_was_auto = job->base_dtype == PL_BASE_AUTO};
    arm_host_fault(pf);
    job->inference = true;
    job->oom_recovery = false; /* there is no smaller batch of the same prompts */
    pf->global_batch = job->batch_size;
    PL_TRY(find_model(pf, d));
    take_stored_dtype(pf);
    PL_TRY(take_adapter(pf, d));
    PL_TRY(pl_device_decide(job, &pf->gpu, d));
    pl_device_budget(job, &pf->gpu, &pf->q.traits, &pf->q.budget, &pf->context);
    pl_question_open(&pf->q, job, &pf->model);
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_graphs_grant(pf);
    return judge(pf, d);
}

void pl_preflight_finish(struct pl_preflight *pf) {
    pl_estimate_finish(&pf->estimate);
    pl_autobatch_finish(&pf->search);
    if (pf->eval_data != pf->data) pl_data_close(&pf->eval_data);
    pl_data_close(&pf->data);
    pl_walk_finish(&pf->walk);
    pl_holdout_finish(&pf->held);
    pl_text_finish(&pf->notes);
    free(pf->model_dir);
    free(pf->config_path);
    free(pf->resume_path);
    json_decref(pf->resume_job);
    json_decref(pf->record);
    if (pf->host_fault) pl_alloc_fail(0, 0);
    *pf = (struct pl_preflight){0};
}
