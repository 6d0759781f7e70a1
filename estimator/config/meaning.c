/* meaning.c - the conditions under which keys have a meaning, one row each. */
#include "estimator/config/meaning.h"

#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/key_types.h"

#include <string.h>

/* `key` has a meaning only while the choice `on` has one of these values, of a list whether it is
 * given; the first is the one a hint names. INFERENCE: and wherever nothing is trained, since all
 * weights are frozen there. IGNORED: elsewhere the key is dropped with a warning. REFUSED: whoever
 * gives it expects something else to be trained, or saved, than what the other keys say. */
#define VALUE(v)     (1u << (v))
#define ADAPTERS     (VALUE(PL_MODE_LORA) | VALUE(PL_MODE_QLORA))
#define INFERENCE    VALUE(31) /* above the choices of every key */
#define ADAMS        (VALUE(PL_OPTIMIZER_ADAMW) | VALUE(PL_OPTIMIZER_ADAMW_8BIT))
#define WITH_MOMENTS (ADAMS | VALUE(PL_OPTIMIZER_LION))
#define ON_PAIRS     (VALUE(PL_STAGE_DPO) | VALUE(PL_STAGE_ORPO) | VALUE(PL_STAGE_SIMPO))
#define WITH_SFT     (VALUE(PL_STAGE_DPO) | VALUE(PL_STAGE_SIMPO))
#define REFERRING    (VALUE(PL_STAGE_DPO) | VALUE(PL_STAGE_KTO))
enum elsewhere { IGNORED, REFUSED };
static const struct {
    enum pl_key_id key, on;
    uint32_t values; /* VALUE()s, INFERENCE */
    enum elsewhere elsewhere;
} conditions[] = {
    {PL_KEY_model_config, PL_KEY_init, VALUE(PL_INIT_RANDOM), REFUSED},
    {PL_KEY_preference_loss, PL_KEY_stage, VALUE(PL_STAGE_DPO), REFUSED},
    {PL_KEY_beta, PL_KEY_stage, ON_PAIRS | VALUE(PL_STAGE_KTO), REFUSED},
    {PL_KEY_label_smoothing, PL_KEY_stage, WITH_SFT, REFUSED},
    {PL_KEY_sft_weight, PL_KEY_stage, WITH_SFT, REFUSED},
    {PL_KEY_ld_alpha, PL_KEY_stage, VALUE(PL_STAGE_DPO), REFUSED},
    {PL_KEY_simpo_gamma, PL_KEY_stage, VALUE(PL_STAGE_SIMPO), REFUSED},
    {PL_KEY_desirable_weight, PL_KEY_stage, VALUE(PL_STAGE_KTO), REFUSED},
    {PL_KEY_undesirable_weight, PL_KEY_stage, VALUE(PL_STAGE_KTO), REFUSED},
    {PL_KEY_reference, PL_KEY_stage, REFERRING, REFUSED},
    {PL_KEY_precompute_reference, PL_KEY_stage, REFERRING, REFUSED},
    {PL_KEY_keep_first_pass, PL_KEY_stage, ON_PAIRS | VALUE(PL_STAGE_KTO), IGNORED},
    {PL_KEY_truncation, PL_KEY_stage, VALUE(PL_STAGE_DPO), REFUSED},
    {PL_KEY_train_on, PL_KEY_stage, VALUE(PL_STAGE_SFT), REFUSED},
    {PL_KEY_row_weights, PL_KEY_stage, VALUE(PL_STAGE_SFT), REFUSED},
    {PL_KEY_adapter_dtype, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_base_dtype, PL_KEY_mode, ADAPTERS | INFERENCE, IGNORED},
    {PL_KEY_lora_r, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_lora_alpha, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_lora_dropout, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_lora_target_modules, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_lora_target_parameters, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_lora_exclude_modules, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_layers_to_transform, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_layers_pattern, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_layers_pattern, PL_KEY_layers_to_transform, VALUE(true), IGNORED},
    {PL_KEY_lora_modules_to_save, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_use_rslora, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_adapter_path, PL_KEY_mode, ADAPTERS, REFUSED},
    {PL_KEY_save_merged, PL_KEY_mode, ADAPTERS, IGNORED},
    {PL_KEY_save_merged, PL_KEY_init, VALUE(PL_INIT_PRETRAINED), REFUSED},
    {PL_KEY_quant_type, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_double_quant, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_quantize_head, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_quantize_embedding, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_unpack_buffer, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_keep_unpacked, PL_KEY_mode, VALUE(PL_MODE_QLORA), IGNORED},
    {PL_KEY_full_ft_offload, PL_KEY_mode, VALUE(PL_MODE_FULL), IGNORED},
    {PL_KEY_full_ft_ceiling_billions, PL_KEY_mode, VALUE(PL_MODE_FULL), IGNORED},
    {PL_KEY_optimizer_in_backward, PL_KEY_mode, VALUE(PL_MODE_FULL), IGNORED},
    {PL_KEY_optimizer_in_backward, PL_KEY_offload_update,
     VALUE(PL_UPDATE_AUTO) | VALUE(PL_UPDATE_DEVICE), IGNORED},
    {PL_KEY_moment_dtype, PL_KEY_optimizer, WITH_MOMENTS, IGNORED},
    {PL_KEY_adam_beta1, PL_KEY_optimizer, WITH_MOMENTS, IGNORED},
    {PL_KEY_adam_beta2, PL_KEY_optimizer, WITH_MOMENTS, IGNORED},
    {PL_KEY_adam_epsilon, PL_KEY_optimizer, ADAMS, IGNORED},
    {PL_KEY_oom_max_retries, PL_KEY_oom_recovery, VALUE(true), IGNORED},
    {PL_KEY_sample_max_new_tokens, PL_KEY_sample_prompts, VALUE(true), IGNORED},
    {PL_KEY_sample_temperature, PL_KEY_sample_prompts, VALUE(true), IGNORED},
    {PL_KEY_sample_top_p, PL_KEY_sample_prompts, VALUE(true), IGNORED},
    {PL_KEY_min_lr_ratio, PL_KEY_lr_scheduler, VALUE(PL_SCHEDULE_COSINE_WITH_MIN_LR), REFUSED},
};
#define N_CONDITIONS (sizeof conditions / sizeof *conditions)

/* Each of these is decided by more than one choice. A value that does nothing anyway needs no
 * warning, so it counts as applying. */
static bool warms_up(const struct pl_job *job) {
    return job->lr_scheduler != PL_SCHEDULE_CONSTANT;
}

static bool warmup_steps_apply(const struct pl_job *job) {
    return warms_up(job) || job->warmup_steps == 0 || job->warmup_steps == PL_UNSET_U32;
}

static bool warmup_ratio_applies(const struct pl_job *job) {
    return warms_up(job) || !(job->warmup_ratio > 0);
}

static bool counts_epochs(const struct pl_job *job) {
    return job->max_steps == 0;
}

static bool has_ranks(const struct pl_job *job) {
    return job->devices == PL_AUTO || job->devices > 1;
}

static bool sharding_applies(const struct pl_job *job) {
    return has_ranks(job) || job->sharding == PL_SHARDING_AUTO || job->sharding == PL_SHARDING_NONE;
}

static bool evaluates(const struct pl_job *job) {
    const bool has_data = job->dataset || job->datasets.n;
    bool any = !has_data || job->val_set_size > 0 || job->eval_datasets.n > 0;
    for (uint32_t i = 0; i < job->datasets.n; i++)
        any |= job->datasets.items[i].split == PL_SPLIT_EVAL;
    return any;
}

static bool eval_steps_apply(const struct pl_job *job) {
    return evaluates(job) || pl_job_samples(job) || job->eval_steps == 0;
}

static bool metric_applies(const struct pl_job *job) {
    return job->load_best_model_at_end || job->early_stopping_patience > 0 ||
           job->metric_for_best_model == PL_METRIC_LOSS;
}

static bool threshold_applies(const struct pl_job *job) {
    return job->early_stopping_patience > 0 || !(job->early_stopping_threshold > 0);
}

/* True if a row of the data may be a conversation, as far as the entries say. */
static bool may_chat(const struct pl_job *job) {
    bool any = job->dataset != NULL || job->datasets.n == 0;
    for (uint32_t i = 0; i < job->datasets.n; i++) {
        const uint32_t format = job->datasets.items[i].format;
        any |= format != PL_FORMAT_TEXT && format != PL_FORMAT_TOKENS;
    }
    return any;
}

/* Under `auto` the device decides. */
static bool may_scale_loss(const struct pl_job *job) {
    return job->dtype == PL_DTYPE_F16 || job->dtype == PL_DTYPE_AUTO;
}

/* A base in 4 bits is dequantised to it. Else it can only keep the CPU from multiplying the numbers
 * of a bf16 job as they are. */
static bool compute_dtype_applies(const struct pl_job *job) {
    const enum pl_dtype type = job->compute_dtype;
    const bool may_be_bf16 = job->dtype == PL_DTYPE_BF16 || job->dtype == PL_DTYPE_AUTO;
    if (job->mode == PL_MODE_QLORA || type == PL_DTYPE_AUTO || type == job->dtype) return true;
    return may_be_bf16 && type != PL_DTYPE_F16 && !pl_device_is_cuda(job->device);
}

static const struct {
    enum pl_key_id key;
    bool (*applies)(const struct pl_job *job);
    const char *elsewhere; /* ends "`key` has no meaning ..." */
} circumstances[] = {
    {PL_KEY_warmup_steps, warmup_steps_apply, "with `lr_scheduler: constant`"},
    {PL_KEY_warmup_ratio, warmup_ratio_applies, "with `lr_scheduler: constant`"},
    {PL_KEY_compute_dtype, compute_dtype_applies,
     "but with `mode: qlora`, or for a job of `dtype: bf16` on the CPU"},
    {PL_KEY_loss_scale, may_scale_loss, "without `dtype: fp16`"},
    {PL_KEY_loss_scale_window, may_scale_loss, "without `dtype: fp16`"},
    {PL_KEY_num_epochs, counts_epochs, "with `max_steps`"},
    {PL_KEY_sharding, sharding_applies, "with `devices: 1`"},
    {PL_KEY_comm_timeout_seconds, has_ranks, "with `devices: 1`"},
    {PL_KEY_eval_steps, eval_steps_apply, "without evaluation data and `sample_prompts`"},
    {PL_KEY_metric_for_best_model, metric_applies,
     "without `load_best_model_at_end` and `early_stopping_patience`"},
    {PL_KEY_early_stopping_threshold, threshold_applies, "without `early_stopping_patience`"},
    {PL_KEY_chat_template, may_chat, "with data of `format: text` or `format: tokens` alone"},
    {PL_KEY_chat_date, may_chat, "with data of `format: text` or `format: tokens` alone"},
    {PL_KEY_train_on, may_chat, "with data of `format: text` or `format: tokens` alone"},
};
#define N_CIRCUMSTANCES (sizeof circumstances / sizeof *circumstances)

static uint32_t choice_of(const struct pl_job *job, enum pl_key_id key) {
    const char *field = (const char *)job + pl_key_fields[key].offset;
    bool set;
    uint32_t v;
    if (pl_key_fields[key].type == PL_TYPE_LIST) return pl_key_types[PL_TYPE_LIST].is_set(field);
    memcpy(&set, field, sizeof set);
    if (pl_key_fields[key].type == PL_TYPE_BOOL) return set;
    memcpy(&v, field, sizeof v);
    return v;
}

static bool holds(const struct pl_job *job, size_t condition) {
    uint32_t v = choice_of(job, conditions[condition].on), values = conditions[condition].values;
    if (job->inference && (values & INFERENCE)) return true;
    return v == PL_UNSET_U32 || (values >> v & 1);
}

bool pl_job_key_applies(const struct pl_job *job, enum pl_key_id key) {
    for (size_t i = 0; i < N_CONDITIONS; i++)
        if (conditions[i].key == key && !holds(job, i)) return false;
    for (size_t i = 0; i < N_CIRCUMSTANCES; i++)
        if (circumstances[i].key == key && !circumstances[i].applies(job)) return false;
    return true;
}

/* "`lora_r` has no meaning with `mode: full`", or "without `layers_to_transform`". */
static void explain(const struct pl_job *job, size_t condition, struct pl_text *out) {
    char is[PL_CHOICE_BYTES] = "";
    uint32_t n;
    const struct pl_key_info *infos = pl_key_table(&n);
    const enum pl_key_id on = conditions[condition].on;
    pl_text_addf(out, "`%s` has no meaning ", infos[conditions[condition].key].key);
    if (pl_key_fields[on].type == PL_TYPE_LIST) {
        pl_text_addf(out, "without `%s`", infos[on].key);
        return;
    }
    const char *choices = pl_key_fields[on].type == PL_TYPE_BOOL ? "false|true" : infos[on].choices;
    pl_key_choice(choices, choice_of(job, on), is);
    pl_text_addf(out, "with `%s: %s`", infos[on].key, is);
}

bool pl_job_key_is_of_other_stage(const struct pl_job *job, enum pl_key_id key,
                                  struct pl_text *why) {
    for (size_t i = 0; job->given[key] && i < N_CONDITIONS; i++) {
        if (conditions[i].key != key || conditions[i].on != PL_KEY_stage || holds(job, i)) continue;
        explain(job, i, why);
        return true;
    }
    return false;
}

bool pl_job_key_is_useless(const struct pl_job *job, enum pl_key_id key, struct pl_text *why) {
    uint32_t n;
    for (size_t i = 0; job->given[key] && i < N_CONDITIONS; i++) {
        if (conditions[i].key != key || conditions[i].elsewhere != IGNORED || holds(job, i))
            continue;
        if (job->unread[conditions[i].on]) continue;
        explain(job, i, why);
        return true;
    }
    for (size_t i = 0; job->given[key] && i < N_CIRCUMSTANCES; i++) {
        if (circumstances[i].key != key || circumstances[i].applies(job)) continue;
        pl_text_addf(why, "`%s` has no meaning %s", pl_key_table(&n)[key].key,
                     circumstances[i].elsewhere);
        return true;
    }
    return false;
}

static pl_err refuse_condition(const struct pl_job *job, size_t i, struct pl_diag *d) {
    char room[256], wanted[PL_CHOICE_BYTES] = "";
    struct pl_text why = PL_TEXT_FIXED(room);
    uint32_t n;
    const struct pl_key_info *infos = pl_key_table(&n);
    const enum pl_key_id key = conditions[i].key, on = conditions[i].on;
    pl_key_choice(infos[on].choices, (uint32_t)__builtin_ctz(conditions[i].values), wanted);
    explain(job, i, &why);
    pl_job_error(job, key, PL_ERR_CONFIG_CONFLICT, d, "%s", pl_text_str(&why));
    pl_diag_hint(d, "remove `%s`, or set `%s: %s`", infos[key].key, infos[on].key, wanted);
    return PL_ERR_CONFIG_CONFLICT;
}

pl_err pl_job_check_meaning(const struct pl_job *job, struct pl_diag *d) {
    for (size_t i = 0; i < N_CONDITIONS; i++) {
        const bool known = !job->unread[conditions[i].on];
        if (conditions[i].elsewhere == REFUSED && job->given[conditions[i].key] && known &&
            !holds(job, i))
            PL_TRY(pl_diag_keep(d, refuse_condition(job, i, d)));
    }
    return PL_ERR_OK;
}
