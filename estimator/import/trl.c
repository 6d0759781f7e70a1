/* trl.c - the configurations of TRL and of the alignment handbook, of Unsloth, and of accelerate.
 * Defaults of TRL are those of trl/trainer/sft_config.py, base_config.py and model_config.py of
 * 2026-07, and of transformers' TrainingArguments beneath them; preferences.c has the others.
 * Defaults of Unsloth are those of unsloth_cli/config.py of 2026, and of its notebooks, which give
 * all that matters. */
#include "estimator/import/dialect.h"

#include "estimator/config/job_values.h"

#include <string.h>

/* ---- TRL ---- */

static PL_MAP(map_strategy) {
    const char *text = pl_node_text(t->value);
    (void)row;
    if (strcmp(text, "wrapped") == 0)
        pl_import_miss(im, t, "samples are cut at the end of a block there; here they stay whole");
    else
        pl_import_inert(im, t, "whole samples, best fit, where `packing` is on");
}

static PL_MAP(map_mode) {
    const bool on = pl_node_is_on(t->value);
    (void)row;
    pl_import_set(im, PL_KEY_mode, on ? "lora" : "full", t, NULL);
}

static const struct pl_import_row trl_rows[] = {
    {"use_peft", PL_KEY_mode, map_mode, NULL, "full"},
    {"lora_r", PL_KEY_lora_r, pl_map_same, NULL, NULL},
    {"lora_alpha", PL_KEY_lora_alpha, pl_map_same, NULL, "32"},
    {"lora_dropout", PL_KEY_lora_dropout, pl_map_same, NULL, "0.05"},
    {"lora_target_modules", PL_KEY_lora_target_modules, pl_map_list, NULL, "[q_proj, v_proj]"},
    {"lora_modules_to_save", PL_KEY_lora_modules_to_save, pl_map_list, NULL, NULL},
    {"lora_task_type", PL_KEY_COUNT, pl_map_only, "CAUSAL_LM|another task", NULL},
    {"bnb_4bit_quant_type", PL_KEY_quant_type, pl_map_same, NULL, NULL},
    {"use_bnb_nested_quant|bnb_4bit_use_double_quant", PL_KEY_double_quant, pl_map_flag, NULL,
     "false"},
    {"bnb_4bit_compute_dtype", PL_KEY_compute_dtype, pl_map_word,
     (const struct pl_word[]){{"bfloat16", "bf16", NULL},
                              {"float16", "fp16", NULL},
                              {"float32", "fp32", NULL},
                              PL_WORDS_END},
     NULL},
    {"bnb_4bit_quant_storage", PL_KEY_COUNT, pl_map_inert, "there is nothing to set here", NULL},
    {"load_in_8bit", PL_KEY_COUNT, pl_map_off, "a base in 8 bits, which is in 16 bits here", NULL},
    {"per_device_train_batch_size", PL_KEY_batch_size, pl_map_same, NULL, "8"},
    {"gradient_accumulation_steps", PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, "1"},
    {"auto_find_batch_size", PL_KEY_COUNT, pl_map_inert, "write `batch_size: auto`", NULL},
    {"learning_rate", PL_KEY_learning_rate, pl_map_same, NULL, NULL},
    {"num_train_epochs", PL_KEY_num_epochs, pl_map_same, NULL, "3"},
    {"logging_steps", PL_KEY_logging_steps, pl_map_steps, NULL, "10"},
    {"gradient_checkpointing", PL_KEY_gradient_checkpointing, pl_map_word,
     (const struct pl_word[]){{"true", "full", NULL}, {"false", "none", NULL}, PL_WORDS_END},
     "full"},
    {"max_length|max_seq_length", PL_KEY_max_seq_length, pl_map_same, NULL, "1024"},
    {"packing", PL_KEY_packing, pl_map_flag, NULL, NULL},
    {"packing_strategy", PL_KEY_COUNT, map_strategy, NULL, NULL},
    {"eval_packing", PL_KEY_COUNT, pl_map_inert, "`packing` is for both", NULL},
    {"chat_template|chat_template_path", PL_KEY_chat_template, pl_map_template,
     "a template in the configuration, or of another model", NULL},
    {"eos_token|pad_token", PL_KEY_COUNT, pl_map_off,
     "special tokens are the model's own; another one", NULL},
    {"shuffle_dataset", PL_KEY_COUNT, pl_map_inert, "`shuffle` is on", NULL},
    {"num_generations|use_vllm|reward_funcs|reward_weights|temperature", PL_KEY_COUNT, pl_map_off,
     "training on rewards", NULL},
    {"dataset_kwargs", PL_KEY_COUNT, pl_map_inert, "special tokens are those of the template",
     NULL},
    {"dataset_streaming|dataset_text_field_only", PL_KEY_COUNT, pl_map_inert,
     "files are read row by row", NULL},
    {"model_init_kwargs", PL_KEY_COUNT, pl_map_off, "arguments of the model", NULL},
    {"router_aux_loss_coef", PL_KEY_COUNT, pl_map_inert, "of models with experts", NULL},
    {"config|system_prompt", PL_KEY_COUNT, pl_map_off, "a system prompt before each row", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

static void rule_base(struct pl_import *im) {
    struct pl_taken t;
    if (!pl_import_take(im, "load_in_4bit", &t)) return;
    if (pl_node_is_on(t.value) && im->job.mode == PL_MODE_LORA)
        pl_import_set(im, PL_KEY_mode, "qlora", &t, "the base is held in 4 bits");
    else if (pl_node_is_on(t.value))
        pl_import_miss(im, &t, "a base in 4 bits without an adapter: not supported");
    else
        pl_import_inert(im, &t, "off, as it is here");
}

/* bf16 is on unless fp16 is. Weights that are read in fp32, the default, stay so beneath it; those
 * that are read in bf16 have no copy in fp32. */
static void rule_precision(struct pl_import *im) {
    struct pl_taken b, f, w;
    const bool has_b = pl_import_take(im, "bf16", &b), has_f = pl_import_take(im, "fp16", &f);
    const bool has_w = pl_import_take(im, "torch_dtype|dtype", &w);
    const bool half = has_f && pl_node_is_on(f.value);
    const bool on = has_b ? pl_node_is_on(b.value) : !half;
    const char *word = has_w ? pl_node_text(w.value) : "float32";
    const bool narrow = strcmp(word, "bfloat16") == 0;
    if (half) {
        pl_import_set(im, PL_KEY_dtype, "fp16", &f, NULL);
    } else if (narrow) {
        pl_import_pure_bf16(im, &w);
    } else if (on) {
        pl_import_set(im, PL_KEY_dtype, "bf16", has_b ? &b : NULL, NULL);
        if (im->job.mode == PL_MODE_FULL && strcmp(word, "auto") != 0)
            pl_import_set(im, PL_KEY_master_weights, "true", has_w ? &w : NULL,
                          "weights are in fp32 there");
    } else {
        pl_import_set(im, PL_KEY_dtype, "fp32", &b, NULL);
    }
    if (has_w && !narrow && !pl_import_has(im, PL_KEY_master_weights))
        pl_import_inert(im, &w, "`dtype` says it");
    if (has_b && (half || narrow)) pl_import_inert(im, &b, "`dtype` says it");
    if (has_f && !half) pl_import_inert(im, &f, "off, as it is here");
}

static void rule_schedule(struct pl_import *im) {
    if (!pl_import_has(im, PL_KEY_lr_scheduler))
        pl_import_set(im, PL_KEY_lr_scheduler, "linear", NULL, NULL);
}

/* A step on preferences is smaller by default. */
static void rule_rate(struct pl_import *im) {
    if (!pl_import_said(im, PL_KEY_learning_rate))
        pl_import_set(im, PL_KEY_learning_rate, pl_job_prefers(&im->job) ? "1e-6" : "2e-5", NULL,
                      NULL);
}

/* Conversations are trained on as a whole, and pairs of prompt and completion on the completion. */
static void rule_answers(struct pl_import *im) {
    struct pl_taken t;
    bool flag = false, set = false;
    if (pl_import_take(im, "assistant_only_loss", &t) && pl_node_flag(t.value, &flag) && flag)
        set = pl_import_set(im, PL_KEY_train_on, "responses", &t, NULL);
    if (pl_import_take(im, "completion_only_loss", &t) && !set && pl_node_flag(t.value, &flag))
        set = pl_import_set(im, PL_KEY_train_on, flag ? "responses" : "all", &t, NULL);
    if (!set)
        pl_import_set(im, PL_KEY_train_on, "all", NULL,
                      "rows with `prompt` and `completion` need `responses`");
}

/* An entry of a mixture: id or path, columns, weight. */
static void read_entry(struct pl_import *im, const struct pl_node *entry,
                       const struct pl_taken *t) {
    const struct pl_node *id = pl_import_in(im, entry, "id");
    const struct pl_node *path = pl_import_in(im, entry, "path");
    const struct pl_node *name = pl_import_in(im, entry, "config");
    const struct pl_node *part = pl_import_in(im, entry, "split");
    const struct pl_node *share = pl_import_in(im, entry, "weight");
    if (!name) name = pl_import_in(im, entry, "name");
    if (!share) share = pl_import_in(im, entry, "fraction");
    pl_data_begin(im, t, pl_node_text(id ? id : path));
    if (share) pl_data_weight(im, share);
    if (name)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t, "its configuration `%.60s`: name that file",
                             pl_node_text(name));
    if (part) pl_data_split(im, t, NULL, pl_node_text(part));
    pl_data_prefers(im);
    pl_data_end(im);
}

static void rule_mixture(struct pl_import *im) {
    struct pl_taken t, size;
    uint32_t i = 0;
    if (pl_import_take(im, "dataset_mixture.datasets|datasets", &t))
        for (const struct pl_node *item; (item = pl_import_next(im, t.value, &i));) {
            const struct pl_taken one = {t.path, item, item};
            if (item->kind == PL_NODE_MAPPING) read_entry(im, item, &one);
        }
    if (pl_import_take(im, "dataset_mixture.test_split_size|test_split_size", &size))
        pl_import_set(im, PL_KEY_val_set_size, pl_node_text(size.value), &size, NULL);
    if (pl_import_take(im, "dataset_mixture.seed", &t))
        pl_import_inert(im, &t, "`seed` fixes the order");
    if (!pl_import_take(im, "dataset_mixer", &t)) return;
    if (t.value->kind != PL_NODE_MAPPING) pl_import_miss(im, &t, "no section of data sets");
    i = 0;
    for (const struct pl_node *key, *share; (key = pl_import_pair(im, t.value, &i, &share));) {
        const struct pl_taken one = {t.path, key, share};
        pl_data_begin(im, &one, pl_node_text(key));
        pl_data_weight(im, share);
        pl_data_prefers(im);
        pl_data_end(im);
    }
}

static void rule_data(struct pl_import *im) {
    struct pl_taken t, part;
    rule_mixture(im);
    const bool has_text = pl_import_take(im, "dataset_text_field", &part);
    const char *text = has_text ? pl_node_text(part.value) : "text";
    if (has_text) pl_import_inert(im, &part, "rows with that column are read as `format: text`");
    if (pl_import_take(im, "dataset_name|dataset|data.dataset|train_file", &t)) {
        pl_data_begin(im, &t, pl_node_text(t.value));
        if (!pl_data_prefers(im) && strcmp(text, "text") != 0) {
            pl_data_word(im, "format", "text");
            pl_data_word(im, "field_text", text);
        }
        if (pl_import_take(im, "dataset_config", &part))
            pl_import_note_entry(im, PL_IMPORT_MAPPED, &part,
                                 "name the file of that configuration");
        if (pl_import_take(im, "dataset_train_split", &part)) {
            pl_data_split(im, &part, NULL, pl_node_text(part.value));
            if (!strchr(pl_node_text(part.value), '['))
                pl_import_inert(im, &part, "`path` says which rows are read");
        }
        pl_data_end(im);
    }
    if (pl_import_take(im, "dataset_test_split", &part))
        pl_import_inert(im, &part, "evaluation: name its file with `split: eval`");
    if (pl_import_take(im, "dataset_splits|dataset_configs", &part))
        pl_import_inert(im, &part, "name the files of these splits in `path`");
}

const struct pl_dialect pl_dialect_trl = {
    .tables = (const struct pl_import_row *const[]){trl_rows, pl_rows_of_preferences,
                                                    pl_rows_of_trainer, NULL},
    .rules = (void (*const[])(struct pl_import *)){rule_base, rule_precision, pl_rule_trl_stage,
                                                   rule_rate, rule_data, rule_answers,
                                                   pl_rule_warmup, pl_rule_schedule, rule_schedule,
                                                   pl_rule_checkpoints, pl_rule_evaluation,
                                                   pl_rule_reports, pl_rule_devices, NULL},
};

/* ---- Unsloth ---- */

static const struct pl_word unsloth_levels[] = {
    {"unsloth", "offload", NULL}, {"true", "full", NULL}, {"false", "none", NULL},
    {"none", "none", NULL},       PL_WORDS_END,
};

static const struct pl_word formats[] = {
    {"lora", "lora", NULL}, {"full", "full", NULL}, PL_WORDS_END};

static const struct pl_import_row unsloth_rows[] = {
    {"model_name|model|model.model_name|model.name|model_name_or_path", PL_KEY_model, pl_map_same,
     NULL, NULL},
    {"training.training_type", PL_KEY_mode, pl_map_word, formats, "lora"},
    {"max_seq_length|training.max_seq_length|model.max_seq_length|max_length",
     PL_KEY_max_seq_length, pl_map_same, NULL, NULL},
    {"r|lora_r|lora.lora_r|lora.r|lora.rank|lora_rank", PL_KEY_lora_r, pl_map_same, NULL, NULL},
    {"lora_alpha|lora.lora_alpha|lora.alpha", PL_KEY_lora_alpha, pl_map_same, NULL, "16"},
    {"lora_dropout|lora.lora_dropout|lora.dropout", PL_KEY_lora_dropout, pl_map_same, NULL, NULL},
    {"target_modules|lora.target_modules|lora_target_modules", PL_KEY_lora_target_modules,
     pl_map_list, NULL, NULL},
    {"modules_to_save|lora.modules_to_save", PL_KEY_lora_modules_to_save, pl_map_list, NULL, NULL},
    {"use_rslora|lora.use_rslora", PL_KEY_use_rslora, pl_map_flag, NULL, NULL},
    {"use_dora|lora.use_dora", PL_KEY_COUNT, pl_map_off, "DoRA", NULL},
    {"bias|lora.bias", PL_KEY_COUNT, pl_map_only, "none|training of biases", NULL},
    {"loftq_config|use_loftq|lora.use_loftq|init_lora_weights", PL_KEY_COUNT, pl_map_off,
     "another start of the adapter (LoftQ)", NULL},
    {"random_state|random_seed|training.random_seed|lora.random_state|seed|training.seed",
     PL_KEY_seed, pl_map_same, NULL, "3407"},
    {"load_in_8bit|model.load_in_8bit", PL_KEY_COUNT, pl_map_off,
     "a base in 8 bits, which is in 16 bits here", NULL},
    {"use_gradient_checkpointing|training.gradient_checkpointing|lora.use_gradient_checkpointing",
     PL_KEY_gradient_checkpointing, pl_map_word, unsloth_levels, "offload"},
    {"batch_size|training.batch_size|per_device_train_batch_size|"
     "training.per_device_train_batch_size",
     PL_KEY_batch_size, pl_map_same, NULL, "2"},
    {"gradient_accumulation_steps|training.gradient_accumulation_steps",
     PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, "4"},
    {"warmup_steps|training.warmup_steps", PL_KEY_warmup_steps, pl_map_steps, NULL, NULL},
    {"warmup_ratio|training.warmup_ratio", PL_KEY_warmup_ratio, pl_map_same, NULL, NULL},
    {"num_epochs|training.num_epochs|num_train_epochs|training.num_train_epochs", PL_KEY_num_epochs,
     pl_map_same, NULL, "3"},
    {"max_steps|training.max_steps", PL_KEY_max_steps, pl_map_steps, NULL, NULL},
    {"learning_rate|training.learning_rate", PL_KEY_learning_rate, pl_map_same, NULL, "2e-4"},
    {"weight_decay|training.weight_decay", PL_KEY_weight_decay, pl_map_same, NULL, "0.01"},
    {"optim|training.optim", PL_KEY_optimizer, pl_map_word, pl_words_optimizer, "adamw_8bit"},
    {"lr_scheduler_type|training.lr_scheduler_type", PL_KEY_lr_scheduler, pl_map_same, NULL,
     "linear"},
    {"save_steps|training.save_steps", PL_KEY_save_steps, pl_map_steps, NULL, NULL},
    {"logging_steps|training.logging_steps", PL_KEY_logging_steps, pl_map_steps, NULL, NULL},
    {"output_dir|training.output_dir", PL_KEY_output_dir, pl_map_same, NULL, NULL},
    {"packing|training.packing", PL_KEY_packing, pl_map_flag, NULL, NULL},
    {"train_on_completions|training.train_on_completions|train_on_responses_only", PL_KEY_train_on,
     pl_map_word,
     (const struct pl_word[]){{"true", "responses", NULL}, {"false", "all", NULL}, PL_WORDS_END},
     "all"},
    {"dtype|model.dtype|torch_dtype", PL_KEY_dtype, pl_map_word,
     (const struct pl_word[]){{"bfloat16", "bf16", NULL},
                              {"float16", "fp16", NULL},
                              {"float32", "fp32", NULL},
                              {"auto", "auto", NULL},
                              PL_WORDS_END},
     NULL},
    {"bf16|training.bf16|fp16|training.fp16", PL_KEY_COUNT, pl_map_inert,
     "`dtype: auto` is bf16 where the GPU has it, else fp16", NULL},
    {"inference", PL_KEY_COUNT, pl_map_inert, "of generation, not of training", NULL},
    {"finetune_vision_layers|lora.finetune_vision_layers|finetune_language_layers|"
     "lora.finetune_language_layers|finetune_attention_modules|lora.finetune_attention_modules|"
     "finetune_mlp_modules|lora.finetune_mlp_modules|lora.vision_all_linear",
     PL_KEY_COUNT, pl_map_inert, "lora_target_modules says it", NULL},
    {"token|hf_token|logging|save_method|save_model|save_path|quantization|push_model|hub_path|"
     "hub_token",
     PL_KEY_COUNT, pl_map_inert, "nothing is fetched or sent", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

/* 4 bits are the default of its loader, and all 7 modules have adapters. */
static void rule_unsloth_mode(struct pl_import *im) {
    struct pl_taken t, full;
    const bool whole = pl_import_take(im, "full_finetuning|model.full_finetuning", &full) &&
                       pl_node_is_on(full.value);
    const bool has =
        pl_import_take(im, "load_in_4bit|training.load_in_4bit|model.load_in_4bit", &t);
    if (whole) pl_import_set(im, PL_KEY_mode, "full", &full, NULL);
    if (im->job.mode == PL_MODE_FULL) {
        if (has) pl_import_inert(im, &t, "`mode: full` has no 4-bit base");
        return;
    }
    if (!has || pl_node_is_on(t.value))
        pl_import_set(im, PL_KEY_mode, "qlora", has ? &t : NULL, NULL);
    else
        pl_import_set(im, PL_KEY_mode, "lora", &t, NULL);
    if (!pl_import_has(im, PL_KEY_lora_r)) pl_import_set(im, PL_KEY_lora_r, "16", NULL, NULL);
}

/* Its trainers of preferences have defaults of their own (unsloth/models/rl.py). */
static void rule_unsloth_preferences(struct pl_import *im) {
    static const struct {
        enum pl_key_id key;
        const char *value;
    } presets[] = {{PL_KEY_learning_rate, "5e-5"},
                   {PL_KEY_batch_size, "4"},
                   {PL_KEY_gradient_accumulation_steps, "2"},
                   {PL_KEY_weight_decay, "0.001"}};
    if (!pl_job_prefers(&im->job)) return;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (!pl_import_said(im, presets[i].key))
            pl_import_set(im, presets[i].key, presets[i].value, NULL, NULL);
    if (!pl_import_has(im, PL_KEY_warmup_steps) && !pl_import_has(im, PL_KEY_warmup_ratio))
        pl_import_set(im, PL_KEY_warmup_ratio, "0.1", NULL, NULL);
}

static void rule_unsloth_warmup(struct pl_import *im) {
    if (!pl_import_has(im, PL_KEY_warmup_steps) && !pl_import_has(im, PL_KEY_warmup_ratio))
        pl_import_set(im, PL_KEY_warmup_steps, "5", NULL, NULL);
}

static void rule_unsloth_data(struct pl_import *im) {
    struct pl_taken t, form;
    uint32_t i = 0;
    const bool has = pl_import_take(im, "data.format_type|format_type", &form);
    const char *word = has ? pl_node_text(form.value) : "auto";
    const char *format = strcmp(word, "alpaca") == 0     ? "alpaca"
                         : strcmp(word, "sharegpt") == 0 ? "sharegpt"
                         : strcmp(word, "raw") == 0      ? "text"
                         : strcmp(word, "chatml") == 0   ? "messages"
                                                         : NULL;
    if (has && strcmp(word, "conversational") == 0) format = "messages";
    if (pl_import_take(im, "data.local_dataset|local_dataset", &t))
        for (const struct pl_node *f; (f = pl_import_next(im, t.value, &i));) {
            pl_data_begin(im, &t, pl_node_text(f));
            if (!pl_data_prefers(im) && format) pl_data_word(im, "format", format);
            pl_data_end(im);
        }
    if (pl_import_take(im, "data.dataset|dataset|dataset_name", &t)) {
        pl_data_begin(im, &t, pl_node_text(t.value));
        if (!pl_data_prefers(im) && format) pl_data_word(im, "format", format);
        pl_data_end(im);
    }
    if (has) pl_import_inert(im, &form, "`format` of the data says it");
    rule_data(im);
}

const struct pl_dialect pl_dialect_unsloth = {
    .tables = (const struct pl_import_row *const[]){unsloth_rows, pl_rows_of_preferences,
                                                    pl_rows_of_trainer, NULL},
    .rules = (void (*const[])(
        struct pl_import *)){rule_unsloth_mode, pl_rule_trl_stage, rule_unsloth_preferences,
                             rule_unsloth_warmup, rule_unsloth_data, pl_rule_schedule,
                             pl_rule_checkpoints, pl_rule_evaluation, pl_rule_reports, NULL},
};

/* ---- accelerate ---- */

static const struct pl_import_row accelerate_rows[] = {
    {"num_processes", PL_KEY_devices, pl_map_same, NULL, NULL},
    {"mixed_precision", PL_KEY_dtype, pl_map_word,
     (const struct pl_word[]){{"bf16", "bf16", NULL},
                              {"fp16", "fp16", NULL},
                              {"false", "fp32", NULL},
                              {"fp8", NULL, "products in FP8: not supported"},
                              PL_WORDS_END},
     NULL},
    {"gradient_accumulation_steps", PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, NULL},
    {"use_cpu", PL_KEY_device, pl_map_word,
     (const struct pl_word[]){{"true", "cpu", NULL}, {"false", "", NULL}, PL_WORDS_END}, NULL},
    {"num_machines", PL_KEY_COUNT, pl_map_only, "1|several machines: see docs/several-devices.md",
     NULL},
    {"compute_environment|distributed_type|downcast_bf16|machine_rank|main_training_function|"
     "rdzv_backend|same_network|tpu_env|tpu_use_cluster|tpu_use_sudo|gpu_ids|enable_cpu_affinity|"
     "main_process_ip|main_process_port|parallelism_config|dynamo_config|megatron_lm_config",
     PL_KEY_COUNT, pl_map_inert, "`plimsoll train` starts the processes", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

static void rule_processes(struct pl_import *im) {
    struct pl_taken t;
    pl_rule_devices(im);
    if (pl_import_peek(im, "num_processes", &t))
        pl_import_set(im, PL_KEY_devices, pl_node_text(t.value), &t, NULL);
}

const struct pl_dialect pl_dialect_accelerate = {
    .tables = (const struct pl_import_row *const[]){accelerate_rows, NULL},
    .rules = (void (*const[])(struct pl_import *)){rule_processes, NULL},
};
