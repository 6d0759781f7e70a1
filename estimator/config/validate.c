/* validate.c - combinations of keys that cannot run together, refused by name (J2 of job.h). */
#include "estimator/config/validate.h"

#include "estimator/config/debug_fault.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/key_types.h"
#include "estimator/config/meaning.h"
#include "estimator/config/scalar.h"

#include <string.h>

static pl_err conflict(const struct pl_job *job, enum pl_key_id key, struct pl_diag *d,
                       const char *message, const char *hint) {
    pl_job_error(job, key, PL_ERR_CONFIG_CONFLICT, d, "%s", message);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err check_precision(const struct pl_job *job, struct pl_diag *d) {
    if (job->dtype != PL_DTYPE_F32 && job->base_dtype == PL_DTYPE_F32)
        return conflict(job, PL_KEY_base_dtype, d,
                        "`base_dtype: fp32` with `dtype: bf16`: values in bf16 need no wider base",
                        "remove `base_dtype`, or set `dtype: fp32`");
    if (job->dtype != PL_DTYPE_F32) return PL_ERR_OK;
    if (job->master_weights == PL_TRI_TRUE)
        return conflict(job, PL_KEY_master_weights, d,
                        "`master_weights: true` has no meaning with `dtype: fp32`",
                        "fp32 weights are their own master: remove `master_weights`");
    if (pl_dtype_is_narrow(job->gradient_dtype))
        return conflict(job, PL_KEY_gradient_dtype, d,
                        "`gradient_dtype: bf16` has no meaning with `dtype: fp32`",
                        "remove `gradient_dtype`, or set `dtype: bf16`");
    return PL_ERR_OK;
}

static pl_err check_loss_scale(const struct pl_job *job, struct pl_diag *d) {
    const uint32_t scale = job->loss_scale;
    if (scale == PL_AUTO || !(scale & (scale - 1))) return PL_ERR_OK;
    uint32_t below = 1;
    while (below <= scale / 2)
        below *= 2;
    pl_job_error(job, PL_KEY_loss_scale, PL_ERR_CONFIG_RANGE, d,
                 "`loss_scale: %u` is no power of two, so that dividing by it would round", scale);
    pl_diag_hint(d, "%u and %u are the nearest", below, 2 * below);
    return PL_ERR_CONFIG_RANGE;
}

/* global_batch_size is the promise; the other two may be given together with it only if they keep
 * it. */
static pl_err check_batch(const struct pl_job *job, struct pl_diag *d) {
    uint32_t n = job->batch_size, a = job->gradient_accumulation_steps, g = job->global_batch_size;
    if (g == PL_UNSET_U32 || a == PL_UNSET_U32) return PL_ERR_OK;
    if (n == PL_AUTO)
        return conflict(job, PL_KEY_gradient_accumulation_steps, d,
                        "`global_batch_size` and `gradient_accumulation_steps` leave "
                        "`batch_size: auto` nothing to choose",
                        "remove `gradient_accumulation_steps`: it follows from the batch size");
    if ((uint64_t)n * a == g) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_global_batch_size, PL_ERR_CONFIG_CONFLICT, d,
                 "`global_batch_size` is %u, but `batch_size` x `gradient_accumulation_steps` is "
                 "%u x %u = %llu",
                 g, n, a, (unsigned long long)n * a);
    pl_diag_hint(d, "remove `gradient_accumulation_steps`: it follows from the other two");
    return PL_ERR_CONFIG_CONFLICT;
}

/* A gradient that waits for other micro-batches has to be kept. */
static pl_err check_in_backward(const struct pl_job *job, struct pl_diag *d) {
    const bool open = pl_job_may_cut_step(job);
    if (job->optimizer_in_backward != PL_TRI_TRUE || job->mode != PL_MODE_FULL) return PL_ERR_OK;
    if (!open && pl_job_accumulation(job, job->batch_size) <= 1) return PL_ERR_OK;
    return conflict(job, PL_KEY_optimizer_in_backward, d,
                    open ? "`optimizer_in_backward` with `global_batch_size`, but `batch_size: "
                           "auto` may cut a step into several micro-batches"
                         : "`optimizer_in_backward` with more than one micro-batch a step: their "
                           "gradients have to be kept until they are added up",
                    open ? "remove `global_batch_size`, or set `batch_size` to the same number"
                         : "remove `optimizer_in_backward`, or set `batch_size` to the samples of "
                           "a step and remove `gradient_accumulation_steps`");
}

/* Gradients that ranks exchange outlive the backward pass. */
static pl_err check_ranks_in_backward(const struct pl_job *job, struct pl_diag *d) {
    if (job->optimizer_in_backward != PL_TRI_TRUE || job->mode != PL_MODE_FULL ||
        !pl_job_is_of_ranks(job))
        return PL_ERR_OK;
    return conflict(job, PL_KEY_optimizer_in_backward, d,
                    "`optimizer_in_backward` on several devices, or with `rank_order`, is not "
                    "supported",
                    "remove `optimizer_in_backward`: `sharding` divides gradients among devices");
}

static pl_err check_offload(const struct pl_job *job, struct pl_diag *d) {
    if (!job->given[PL_KEY_offload_update] || job->offload_update == PL_UPDATE_AUTO ||
        pl_job_offload(job) != PL_OFFLOAD_NONE)
        return PL_ERR_OK;
    return conflict(job, PL_KEY_offload_update, d,
                    "`offload_update` has no meaning without offloaded optimizer states",
                    "remove `offload_update`, or set `offload: optimizer`");
}

/* Tensors in host memory belong to one rank, and so do rows that ranks share. */
static pl_err check_ranks(const struct pl_job *job, struct pl_diag *d) {
    const bool several = pl_job_ranks(job) > 1;
    if (!pl_job_offloads(job) || !pl_job_is_of_ranks(job)) return PL_ERR_OK;
    return conflict(job, several ? PL_KEY_devices : PL_KEY_rank_order, d,
                    several ? "ranks hold nothing in host memory"
                            : "`rank_order` with tensors in host memory",
                    several ? "remove `offload`, `full_ft_offload` and `embedding_device`; "
                              "`sharding: weights` spreads what they would move"
                            : "remove `rank_order`, or what is offloaded");
}

/* A rank that adds up its own gradients until the update holds them whole. */
static pl_err check_sharding(const struct pl_job *job, struct pl_diag *d) {
    if (pl_job_ranks(job) == 1 || pl_job_orders_ranks(job) || job->sharding < PL_SHARDING_GRADIENTS)
        return PL_ERR_OK;
    return conflict(job, PL_KEY_sharding, d,
                    "`sharding: gradients` and `sharding: weights` exchange gradients with every "
                    "micro-batch, and `rank_order: false` once a step",
                    "remove `rank_order`, or set `sharding: optimizer`, which is what `auto` means "
                    "with `rank_order: false`");
}

pl_err pl_job_check_comm(const struct pl_job *job, struct pl_diag *d) {
    const bool gpu = pl_device_is_cuda(job->device);
    if (job->device == PL_DEVICE_AUTO) return PL_ERR_OK;
    if (job->comm == PL_JOB_COMM_NCCL && !gpu)
        return conflict(job, PL_KEY_comm, d,
                        "`comm: nccl` moves memory of GPUs, and the device is the CPU",
                        "remove `comm`, or train on GPUs");
    if (job->comm == PL_JOB_COMM_MPI && gpu)
        return conflict(job, PL_KEY_comm, d,
                        "`comm: mpi` moves memory of the host, and the device is a GPU",
                        "remove `comm`, or set `device: cpu`");
    return PL_ERR_OK;
}

static pl_err check_schedule(const struct pl_job *job, struct pl_diag *d) {
    if (job->given[PL_KEY_warmup_steps] && job->given[PL_KEY_warmup_ratio])
        return conflict(job, PL_KEY_warmup_ratio, d,
                        "`warmup_steps` and `warmup_ratio` are both given", "keep one of the two");
    return PL_ERR_OK;
}

static bool has_no_beta(const struct pl_job *job) {
    return !(job->beta > 0);
}
static bool packs(const struct pl_job *job) {
    return job->packing;
}
static bool lets_go(const struct pl_job *job) {
    return job->mode == PL_MODE_FULL && job->optimizer_in_backward == PL_TRI_TRUE;
}
static bool turns_whole(const struct pl_job *job) {
    return pl_mode_adapts(job->mode) && job->lora_modules_to_save.n && pl_job_refers(job) &&
           !pl_job_refers_to_start(job);
}
static bool lacks_smoothing(const struct pl_job *job) {
    return job->stage == PL_STAGE_DPO && job->preference_loss == PL_DPO_LOSS_EXO_PAIR &&
           !(job->label_smoothing > 0);
}
static bool cannot_follow(const struct pl_job *job) {
    return pl_job_refers_to_start(job) && job->precompute_reference == PL_TRI_FALSE;
}

static bool lacks_base(const struct pl_job *job) {
    return pl_job_refers(job) && !pl_mode_adapts(job->mode) && job->reference == PL_REFERENCE_BASE;
}

/* A preference stage refuses what it does not do: nothing is left out in silence. */
static const struct {
    enum pl_key_id key;
    bool (*holds)(const struct pl_job *job);
    const char *message, *hint;
} without_preference[] = {
    {PL_KEY_beta, has_no_beta, "`beta: 0` leaves nothing to learn from",
     "0.1 is the default; `stage: sft` learns the answers alone"},
    {PL_KEY_packing, packs, "`packing` with a preference stage is not supported",
     "remove `packing`"},
    {PL_KEY_optimizer_in_backward, lets_go,
     "`optimizer_in_backward` with a preference stage: each row makes two samples, so a step has "
     "several micro-batches, whose gradients have to be kept until they are added up",
     "remove `optimizer_in_backward`"},
    {PL_KEY_lora_modules_to_save, turns_whole,
     "`lora_modules_to_save` with the base model as reference: what is trained whole has no base "
     "any more",
     "set `reference: initial`, or remove `lora_modules_to_save`"},
    {PL_KEY_reference, lacks_base,
     "`reference: base` with `mode: full`: there is no adapter to switch off, and the base changes",
     "remove `reference`: it is what the run starts with"},
    {PL_KEY_label_smoothing, lacks_smoothing,
     "`preference_loss: exo_pair` needs `label_smoothing` above 0", "0.001 is its usual value"},
    {PL_KEY_precompute_reference, cannot_follow,
     "`precompute_reference: false`, but the reference is what the run starts with, and a second "
     "copy of it is never held",
     "remove `precompute_reference`"},
};

static pl_err check_preference(const struct pl_job *job, struct pl_diag *d) {
    if (!pl_job_prefers(job)) return PL_ERR_OK;
    for (size_t i = 0; i < sizeof without_preference / sizeof *without_preference; i++)
        if (!job->unread[without_preference[i].key] && without_preference[i].holds(job))
            PL_TRY(pl_diag_keep(d, conflict(job, without_preference[i].key, d,
                                            without_preference[i].message,
                                            without_preference[i].hint)));
    return PL_ERR_OK;
}

static pl_err entry_conflict(const struct pl_job *job, const struct pl_dataset *ds,
                             struct pl_diag *d, const char *message, const char *hint) {
    pl_diag_at(d, PL_ERR_CONFIG_CONFLICT, job->path, ds->line, ds->column, "%s", message);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

/* Rows of preferences are of no use to `stage: sft`, and other rows to no other stage. */
static pl_err check_formats(const struct pl_job *job, const struct pl_dataset_list *list,
                            struct pl_diag *d) {
    const bool prefers = pl_job_prefers(job);
    for (uint32_t i = 0; i < list->n; i++) {
        const uint32_t format = list->items[i].format;
        const bool of_preferences = format == PL_FORMAT_PREFERENCE;
        if (format == PL_FORMAT_AUTO || format == PL_FORMAT_TOKENS || of_preferences == prefers)
            continue;
        if (prefers)
            return entry_conflict(job, &list->items[i], d,
                                  "a preference stage with rows that prefer nothing",
                                  "write `format: preference` or `format: tokens`, or set "
                                  "`stage: sft`");
        return entry_conflict(job, &list->items[i], d, "`format: preference` with `stage: sft`",
                              "set `stage: dpo`, `orpo`, `simpo` or `kto`");
    }
    return PL_ERR_OK;
}

/* Entries of `datasets` with `split: eval` are evaluation data like `eval_datasets`. */
static pl_err check_splits(const struct pl_job *job, struct pl_diag *d) {
    const struct pl_dataset *eval = pl_job_find_split(&job->datasets, PL_SPLIT_EVAL);
    if (eval && job->eval_datasets.n)
        return entry_conflict(job, eval, d, "`split: eval` and `eval_datasets` are both given",
                              "name all evaluation files in one of the two places");
    if (eval && job->val_set_size > 0)
        return entry_conflict(job, eval, d, "`split: eval` and `val_set_size` are both given",
                              "evaluate on separate files, or on held-out rows: keep one");
    for (uint32_t i = 0; i < job->eval_datasets.n; i++)
        if (job->eval_datasets.items[i].weight != 1)
            return entry_conflict(job, &job->eval_datasets.items[i], d,
                                  "`weight` has no meaning in `eval_datasets`",
                                  "every row is evaluated once: remove `weight`");
    for (uint32_t i = 0; i < job->datasets.n; i++)
        if (job->datasets.items[i].split == PL_SPLIT_EVAL && job->datasets.items[i].weight != 1)
            return entry_conflict(job, &job->datasets.items[i], d,
                                  "`weight` has no meaning with `split: eval`",
                                  "every row is evaluated once: remove `weight`");
    return PL_ERR_OK;
}

static pl_err check_data(const struct pl_job *job, struct pl_diag *d) {
    if (job->dataset && job->datasets.n)
        return conflict(job, PL_KEY_dataset, d, "`dataset` and `datasets` are both given",
                        "name every file under `datasets`");
    if (job->eval_datasets.n && job->val_set_size > 0)
        return conflict(job, PL_KEY_val_set_size, d,
                        "`eval_datasets` and `val_set_size` are both given",
                        "evaluate on separate files, or on held-out rows: keep one");
    PL_TRY(check_formats(job, &job->datasets, d));
    PL_TRY(check_formats(job, &job->eval_datasets, d));
    return check_splits(job, d);
}

static enum pl_key_id comparing_key(const struct pl_job *job) {
    if (job->load_best_model_at_end) return PL_KEY_load_best_model_at_end;
    return job->early_stopping_patience ? PL_KEY_early_stopping_patience : PL_KEY_COUNT;
}

/* "`load_best_model_at_end` needs ..." */
static pl_err needs(const struct pl_job *job, enum pl_key_id key, struct pl_diag *d,
                    const char *what, const char *hint) {
    uint32_t n;
    pl_job_error(job, key, PL_ERR_CONFIG_CONFLICT, d, "`%s` needs %s", pl_key_table(&n)[key].key,
                 what);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

/* A job without any data is asked about, not trained. */
static pl_err check_compared_data(const struct pl_job *job, struct pl_diag *d) {
    const enum pl_key_id key = comparing_key(job);
    const bool has_data = job->dataset || job->datasets.n;
    if (key == PL_KEY_COUNT || !has_data || pl_job_evaluates(job)) return PL_ERR_OK;
    return needs(job, key, d, "evaluation data",
                 "add `val_set_size: 0.05`, or name files under `eval_datasets`");
}

/* The rule of transformers: each checkpoint is of a step that is evaluated. */
static pl_err check_compared_steps(const struct pl_job *job, struct pl_diag *d) {
    const enum pl_key_id key = comparing_key(job);
    const uint32_t eval = job->eval_steps, save = job->save_steps;
    if (key == PL_KEY_COUNT) return PL_ERR_OK;
    if (!eval)
        return needs(job, key, d, "`eval_steps` above 0: there is one evaluation otherwise",
                     "add `eval_steps: N`");
    if (!job->load_best_model_at_end || (save && save % eval == 0)) return PL_ERR_OK;
    pl_job_error(
        job, PL_KEY_save_steps, PL_ERR_CONFIG_CONFLICT, d,
        "`load_best_model_at_end` needs `save_steps` to be a multiple of `eval_steps`, and "
        "%u is none of %u",
        save, eval);
    pl_diag_hint(d, "write `save_steps: %llu`",
                 (unsigned long long)eval * (save ? save / eval + 1 : 1));
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err wrong_report(const struct pl_job *job, const char *name, struct pl_diag *d) {
    static const char *const choices[] = {"jsonl", "tensorboard", "none"};
    char buf[PL_EXCERPT_BYTES];
    pl_job_error(job, PL_KEY_report_to, PL_ERR_CONFIG_RANGE, d,
                 "`report_to: %s` is not among the choices: jsonl, tensorboard, none",
                 pl_scalar_excerpt(name, buf));
    const char *near = pl_text_nearest(name, choices, sizeof choices / sizeof *choices);
    if (strcmp(name, "wandb") == 0 || strcmp(name, "mlflow") == 0)
        pl_diag_hint(
            d,
            "nothing is sent during a run; `python -m plimsoll.export %s --to %s` brings it "
            "there afterwards",
            job->output_dir, name);
    else if (near)
        pl_diag_hint(d, "did you mean `%s`?", near);
    else
        pl_diag_hint(d, "choose from: jsonl, tensorboard, none");
    return PL_ERR_CONFIG_RANGE;
}

static pl_err check_reports(const struct pl_job *job, struct pl_diag *d) {
    for (uint32_t i = 0; i < job->report_to.n; i++) {
        const char *name = job->report_to.items[i];
        bool none = strcmp(name, "none") == 0;
        if (!none && strcmp(name, "jsonl") != 0 && strcmp(name, "tensorboard") != 0)
            PL_TRY(pl_diag_keep(d, wrong_report(job, name, d)));
        if (none && job->report_to.n > 1)
            return conflict(job, PL_KEY_report_to, d,
                            "`report_to` holds `none` together with others",
                            "remove `none`, or the others");
    }
    return PL_ERR_OK;
}

static pl_err wrong_fault(const struct pl_job *job, const char *text, struct pl_diag *d) {
    char buf[PL_EXCERPT_BYTES];
    pl_job_error(job, PL_KEY_debug_inject, PL_ERR_CONFIG_RANGE, d,
                 "`debug_inject: %s` is not of the form kind@unit=N[,count=K|,forever]",
                 pl_scalar_excerpt(text, buf));
    pl_diag_hint(d, "kinds: device_oom@alloc=N, device_oom@step=N, device_oom@op=N, "
                    "pinned_oom@alloc=N, disk_full@write=N, host_oom@alloc=N; between brackets an "
                    "entry with a comma needs quotes");
    return PL_ERR_CONFIG_RANGE;
}

static pl_err check_faults(const struct pl_job *job, struct pl_diag *d) {
    struct pl_fault fault;
    for (uint32_t i = 0; i < job->debug_inject.n; i++)
        if (!pl_fault_parse(job->debug_inject.items[i], &fault))
            PL_TRY(pl_diag_keep(d, wrong_fault(job, job->debug_inject.items[i], d)));
    return PL_ERR_OK;
}

static pl_err check_resume(const struct pl_job *job, struct pl_diag *d) {
    bool ignored;
    uint32_t n;
    if (!pl_scalar_bool(job->resume, &ignored)) return PL_ERR_OK;
    pl_err err =
        pl_job_error(job, PL_KEY_resume, PL_ERR_CONFIG_TYPE, d, "`resume` is `%s`; it takes %s",
                     job->resume, pl_key_table(&n)[PL_KEY_resume].help);
    pl_diag_hint(d, PL_RESUME_HINT);
    return err;
}

/* The keys whose values a rule compares: where one of them could not be read, the rule has nothing
 * to say. */
#define KEYS_OF_A_RULE 4
static const struct {
    pl_err (*check)(const struct pl_job *job, struct pl_diag *d);
    enum pl_key_id reads[KEYS_OF_A_RULE]; /* ends with PL_KEY_COUNT, or is full */
} rules[] = {
    {pl_job_check_meaning, {PL_KEY_COUNT}}, /* looks for itself */
    {check_precision,
     {PL_KEY_dtype, PL_KEY_base_dtype, PL_KEY_master_weights, PL_KEY_gradient_dtype}},
    {check_loss_scale, {PL_KEY_loss_scale, PL_KEY_COUNT}},
    {check_batch,
     {PL_KEY_batch_size, PL_KEY_gradient_accumulation_steps, PL_KEY_global_batch_size,
      PL_KEY_COUNT}},
    {check_in_backward,
     {PL_KEY_optimizer_in_backward, PL_KEY_batch_size, PL_KEY_gradient_accumulation_steps,
      PL_KEY_global_batch_size}},
    {check_ranks_in_backward,
     {PL_KEY_optimizer_in_backward, PL_KEY_devices, PL_KEY_rank_order, PL_KEY_mode}},
    {check_offload, {PL_KEY_offload_update, PL_KEY_offload, PL_KEY_full_ft_offload, PL_KEY_mode}},
    {check_ranks, {PL_KEY_devices, PL_KEY_rank_order, PL_KEY_offload, PL_KEY_embedding_device}},
    {check_sharding, {PL_KEY_devices, PL_KEY_rank_order, PL_KEY_sharding, PL_KEY_COUNT}},
    {pl_job_check_comm, {PL_KEY_comm, PL_KEY_device, PL_KEY_COUNT}},
    {check_schedule, {PL_KEY_warmup_steps, PL_KEY_warmup_ratio, PL_KEY_COUNT}},
    {check_preference, {PL_KEY_stage, PL_KEY_mode, PL_KEY_COUNT}},
    {check_data, {PL_KEY_dataset, PL_KEY_datasets, PL_KEY_eval_datasets, PL_KEY_val_set_size}},
    {check_compared_data,
     {PL_KEY_datasets, PL_KEY_eval_datasets, PL_KEY_val_set_size, PL_KEY_COUNT}},
    {check_compared_steps,
     {PL_KEY_load_best_model_at_end, PL_KEY_early_stopping_patience, PL_KEY_eval_steps,
      PL_KEY_save_steps}},
    {check_reports, {PL_KEY_report_to, PL_KEY_COUNT}},
    {check_faults, {PL_KEY_debug_inject, PL_KEY_COUNT}},
    {check_resume, {PL_KEY_resume, PL_KEY_COUNT}},
};

static bool can_judge(const struct pl_job *job, size_t rule) {
    for (int i = 0; i < KEYS_OF_A_RULE && rules[rule].reads[i] != PL_KEY_COUNT; i++)
        if (job->unread[rules[rule].reads[i]]) return false;
    return true;
}

pl_err pl_job_validate(const struct pl_job *job, struct pl_diag *d) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (can_judge(job, i)) PL_TRY(pl_diag_keep(d, rules[i].check(job, d)));
    return PL_ERR_OK;
}

static pl_err require_model(const struct pl_job *job, struct pl_diag *d) {
    if (job->model || (job->init == PL_INIT_RANDOM && job->model_config)) return PL_ERR_OK;
    if (job->unread[PL_KEY_model] || job->unread[PL_KEY_init] || job->unread[PL_KEY_model_config])
        return PL_ERR_OK;
    if (job->init == PL_INIT_RANDOM) {
        pl_job_error(job, PL_KEY_model_config, PL_ERR_CONFIG_MISSING, d,
                     "`init: random` needs `model_config`");
        pl_diag_hint(d, "add `model_config: PATH` of a config.json");
        return PL_ERR_CONFIG_MISSING;
    }
    pl_job_error(job, PL_KEY_model, PL_ERR_CONFIG_MISSING, d, "`model` is not given");
    pl_diag_hint(d, job->model_config ? "`model_config` alone goes with `init: random`"
                                      : "add `model: DIR` with config.json and safetensors");
    return PL_ERR_CONFIG_MISSING;
}

static pl_err require_mode(const struct pl_job *job, struct pl_diag *d) {
    if (job->mode != PL_UNSET_U32 || job->unread[PL_KEY_mode]) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_mode, PL_ERR_CONFIG_MISSING, d, "`mode` is not given");
    pl_diag_hint(d, "add `mode: lora`, `mode: qlora` or `mode: full`");
    return PL_ERR_CONFIG_MISSING;
}

pl_err pl_job_require_keys(const struct pl_job *job, bool mode, struct pl_diag *d) {
    if (mode) PL_TRY(pl_diag_keep(d, require_mode(job, d)));
    return pl_diag_keep(d, require_model(job, d));
}

static pl_err require_data(const struct pl_job *job, struct pl_diag *d) {
    if (job->dataset || pl_job_find_split(&job->datasets, PL_SPLIT_TRAIN)) return PL_ERR_OK;
    if (job->unread[PL_KEY_dataset] || job->unread[PL_KEY_datasets]) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_datasets, PL_ERR_CONFIG_MISSING, d,
                 job->datasets.n ? "every entry of `datasets` is for evaluation"
                                 : "`datasets` is not given");
    pl_diag_hint(d, "add `dataset: FILE`, or a list under `datasets`");
    return PL_ERR_CONFIG_MISSING;
}

static pl_err require_steps(const struct pl_job *job, struct pl_diag *d) {
    if (job->max_steps || job->num_epochs > 0) return PL_ERR_OK;
    if (job->unread[PL_KEY_max_steps] || job->unread[PL_KEY_num_epochs]) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_num_epochs, PL_ERR_CONFIG_RANGE, d,
                 "`num_epochs` and `max_steps` are both 0: there is no step to train");
    pl_diag_hint(d, "set one of the two above 0");
    return PL_ERR_CONFIG_RANGE;
}

pl_err pl_job_require_training(const struct pl_job *job, struct pl_diag *d) {
    PL_TRY(pl_diag_keep(d, require_data(job, d)));
    return pl_diag_keep(d, require_steps(job, d));
}
