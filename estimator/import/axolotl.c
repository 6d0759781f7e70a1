/* axolotl.c - axolotl's configuration. Defaults are those of src/axolotl/utils/schemas (config.py,
 * training.py, peft.py) and src/axolotl/core/builders (base.py, rl.py) of 2026-07. */
#include "estimator/import/dialect.h"

#include "estimator/config/job_values.h"

#include <string.h>

static const struct pl_word adapters[] = {
    {"lora", "lora", NULL},
    {"qlora", "qlora", NULL},
    {"llama-adapter", NULL, "LLaMA-Adapter: not supported"},
    {"none", "full", NULL},
    {"", "full", NULL},
    PL_WORDS_END,
};

static const struct pl_word templates[] = {
    {"tokenizer_default", "auto", NULL},
    {"tokenizer_default_fallback_chatml", "auto", "chatml where the model has none"},
    {"chatml", "chatml", NULL},
    {"llama3", "llama3", NULL},
    {"qwen_25", "qwen25", NULL},
    {"qwen3", "qwen3", NULL},
    {"alpaca", "alpaca", NULL},
    {"mistral_v2v3", "mistral", NULL},
    {"phi_4", NULL, "this template is not known here: `auto` is the model's own"},
    {"jinja", "", "chat_template_jinja has it"},
    PL_WORDS_END,
};

static const struct pl_word lengths[] = {
    {"drop", "drop", NULL}, {"truncate", "truncate", NULL}, {"raise", "error", NULL}, PL_WORDS_END};

static PL_MAP(map_named_template) {
    struct pl_import_row known = *row;
    const struct pl_word *w = templates;
    const char *text = pl_node_text(t->value);
    known.arg = templates;
    while (w->word && strcmp(w->word, text) != 0)
        w++;
    if (w->word)
        pl_map_word(im, &known, t);
    else
        pl_import_miss(im, t, "this template is not known here: `auto` is the model's own");
}

/* Two kinds of RL are one stage here. */
static PL_MAP(map_rl) {
    static const struct pl_word kinds[] = {
        {"dpo", "dpo", NULL},
        {"ipo", "dpo", NULL},
        {"orpo", "orpo", NULL},
        {"kto", "kto", NULL},
        {"simpo", "simpo", NULL},
        {"grpo", NULL, "training on rewards (GRPO): not supported"},
        {"gdpo", NULL, "training on rewards (GDPO): not supported"},
        {"ebft", NULL, "training on rewards (EBFT): not supported"},
        PL_WORDS_END,
    };
    struct pl_import_row known = *row;
    known.arg = kinds;
    pl_map_word(im, &known, t);
    if (strcmp(pl_node_text(t->value), "ipo") == 0)
        pl_import_set(im, PL_KEY_preference_loss, "ipo", t, NULL);
}

/* Other kinds of RL do not read it. */
static PL_MAP(map_smoothing) {
    struct pl_taken rl;
    if (pl_import_peek(im, "rl", &rl) && strcmp(pl_node_text(rl.value), "dpo") == 0)
        pl_map_same(im, row, t);
    else
        pl_import_inert(im, t, "it is read under `rl: dpo`");
}

/* The first one wins there: trl.beta, rl_beta, orpo_alpha. */
static PL_MAP(map_beta) {
    if (pl_import_has(im, PL_KEY_beta))
        pl_import_inert(im, t, "another line gives beta, too, and wins there");
    else
        pl_map_same(im, row, t);
}

static PL_MAP(map_supervised) {
    if (im->job.stage == PL_STAGE_SIMPO)
        pl_map_same(im, row, t);
    else
        pl_import_inert(im, t, "it is read under `rl: simpo`");
}

/* A weight of 0 is 1 there. */
static PL_MAP(map_weight) {
    if (pl_node_is_on(t->value))
        pl_map_same(im, row, t);
    else
        pl_import_inert(im, t, "0 is 1 there");
}

/* Plug-ins that only say how fast and in how much memory the same is computed. */
static PL_MAP(map_plugins) {
    static const char *const same[] = {"cut_cross_entropy", "liger", "kernels", "spectrum_off"};
    uint32_t i = 0;
    bool all = true;
    (void)row;
    for (const struct pl_node *item; (item = pl_import_next(im, t->value, &i));) {
        bool known = false;
        for (size_t k = 0; k < sizeof same / sizeof *same; k++)
            known |= strstr(pl_node_text(item), same[k]) != NULL;
        all &= known;
        if (!known) pl_import_miss(im, t, "the plug-in %.100s: not supported", pl_node_text(item));
    }
    if (all) pl_import_inert(im, t, "they compute the same in another way");
}

static PL_MAP(map_special_tokens) {
    uint32_t i = 0;
    (void)row;
    if (t->value->kind != PL_NODE_MAPPING) pl_import_miss(im, t, "no section of tokens");
    for (const struct pl_node *key, *value; (key = pl_import_pair(im, t->value, &i, &value));) {
        const struct pl_taken one = {key->text, key, value};
        if (strcmp(key->text, "pad_token") == 0 || pl_node_is_null(value))
            pl_import_inert(im, &one, "padding is no part of a sample");
        else if (strcmp(key->text, "unk_token") == 0)
            pl_import_inert(im, &one, "the tokenizers of these models have a token for every byte");
        else
            pl_import_miss(im, &one,
                           "special tokens are the model's own; nothing is lost where "
                           "this is the one it has");
    }
}

static PL_MAP(map_roles) {
    const struct pl_node *item = t->value;
    uint32_t i = 0;
    (void)row;
    if (item->kind == PL_NODE_SEQUENCE) item = pl_import_next(im, t->value, &i);
    const char *role = pl_node_text(item);
    if (t->value->n <= 1 && (strcmp(role, "assistant") == 0 || strcmp(role, "gpt") == 0))
        pl_import_inert(im, t, "the answers are trained on, as here");
    else
        pl_import_miss(im, t, "other roles than the assistant's are not trained on");
}

static const struct pl_import_row rows[] = {
    {"base_model", PL_KEY_model, pl_map_same, NULL, NULL},
    {"revision_of_model", PL_KEY_COUNT, pl_map_only,
     "main|the weights of another revision; fetch them with `hf download MODEL --revision NAME "
     "--local-dir DIR`, and write that directory as `model`",
     NULL},
    {"adapter", PL_KEY_mode, pl_map_word, adapters, "full"},
    {"rl", PL_KEY_stage, map_rl, NULL, NULL},
    {"trl.beta", PL_KEY_beta, pl_map_same, NULL, NULL},
    {"rl_beta", PL_KEY_beta, map_beta, NULL, NULL},
    {"orpo_alpha", PL_KEY_beta, map_beta, NULL, NULL},
    {"dpo_label_smoothing", PL_KEY_label_smoothing, map_smoothing, NULL, NULL},
    {"dpo_use_weighting", PL_KEY_COUNT, pl_map_off, "weights of pairs by their probability (WPO)",
     NULL},
    {"dpo_norm_loss", PL_KEY_COUNT, pl_map_off, "a loss that is divided by lengths", NULL},
    {"dpo_padding_free|dpo_use_liger_kernel|dpo_use_logits_to_keep|dpo_generate_during_eval",
     PL_KEY_COUNT, pl_map_inert, "it computes the same in another way", NULL},
    {"rpo_alpha", PL_KEY_sft_weight, pl_map_same, NULL, NULL},
    {"cpo_alpha", PL_KEY_sft_weight, map_supervised, NULL, NULL},
    {"simpo_gamma", PL_KEY_simpo_gamma, pl_map_same, NULL, NULL},
    {"kto_desirable_weight", PL_KEY_desirable_weight, map_weight, NULL, NULL},
    {"kto_undesirable_weight", PL_KEY_undesirable_weight, map_weight, NULL, NULL},
    {"precompute_ref_log_probs", PL_KEY_precompute_reference, pl_map_word, pl_words_precompute,
     NULL},
    {"rl_adapter_ref_model", PL_KEY_COUNT, pl_map_off,
     "a reference that is loaded as a second model", NULL},
    {"max_prompt_len", PL_KEY_COUNT, pl_map_inert, "these trainers do not read it", NULL},
    {"base_model_config", PL_KEY_COUNT, pl_map_inert, "config.json is that of the model", NULL},
    {"tokenizer_config", PL_KEY_tokenizer, pl_map_same, NULL, NULL},
    {"lora_model_dir", PL_KEY_adapter_path, pl_map_same, NULL, NULL},
    {"lora_r", PL_KEY_lora_r, pl_map_same, NULL, NULL},
    {"lora_target_modules", PL_KEY_lora_target_modules, pl_map_list, NULL, "[q_proj, v_proj]"},
    {"lora_modules_to_save", PL_KEY_lora_modules_to_save, pl_map_list, NULL, NULL},
    {"peft_layers_to_transform", PL_KEY_layers_to_transform, pl_map_list, NULL, NULL},
    {"peft_layers_pattern", PL_KEY_layers_pattern, pl_map_list, NULL, NULL},
    {"lora_fan_in_fan_out", PL_KEY_COUNT, pl_map_off, "weights that lie transposed", NULL},
    {"lora_target_parameters", PL_KEY_lora_target_parameters, pl_map_list, NULL, NULL},
    {"unfrozen_parameters", PL_KEY_COUNT, pl_map_off, "training of chosen parameters alone", NULL},
    {"load_in_8bit", PL_KEY_COUNT, pl_map_off, "a base in 8 bits, which is in 16 bits here", NULL},
    {"gptq", PL_KEY_COUNT, pl_map_off, "a base that GPTQ has quantised", NULL},
    {"reinit_weights", PL_KEY_init, pl_map_word,
     (const struct pl_word[]){{"true", "random", "write `model_config`, too"},
                              {"false", "pretrained", NULL},
                              PL_WORDS_END},
     NULL},
    {"sequence_len", PL_KEY_max_seq_length, pl_map_same, NULL, "512"},
    {"excess_length_strategy", PL_KEY_overlength, pl_map_word, lengths, "drop"},
    {"sample_packing", PL_KEY_packing, pl_map_flag, NULL, NULL},
    {"eval_sample_packing", PL_KEY_COUNT, pl_map_inert, "`packing` is for both", NULL},
    {"micro_batch_size", PL_KEY_batch_size, pl_map_same, NULL, "1"},
    {"batch_size", PL_KEY_global_batch_size, pl_map_same, NULL, NULL},
    {"gradient_accumulation_steps", PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, NULL},
    {"auto_find_batch_size", PL_KEY_COUNT, pl_map_inert, "write `batch_size: auto`", NULL},
    {"num_epochs", PL_KEY_num_epochs, pl_map_same, NULL, NULL},
    {"val_set_size", PL_KEY_val_set_size, pl_map_same, NULL, NULL},
    {"dataset_prepared_path", PL_KEY_COUNT, pl_map_inert, "`dataset_cache` keeps tokens", NULL},
    {"shuffle_merged_datasets", PL_KEY_shuffle, pl_map_flag, NULL, NULL},
    {"chat_template", PL_KEY_chat_template, map_named_template, NULL, NULL},
    {"chat_template_jinja", PL_KEY_chat_template, pl_map_template,
     "a template in the configuration", NULL},
    {"train_on_inputs", PL_KEY_train_on, pl_map_word,
     (const struct pl_word[]){{"true", "all", NULL}, {"false", "responses", NULL}, PL_WORDS_END},
     NULL},
    {"roles_to_train", PL_KEY_COUNT, map_roles, NULL, NULL},
    {"train_on_eos", PL_KEY_COUNT, pl_map_only, "turn|other ends than those of answers", NULL},
    {"eot_tokens", PL_KEY_COUNT, pl_map_inert, "the template's own ends of turns are trained on",
     NULL},
    {"special_tokens", PL_KEY_COUNT, map_special_tokens, NULL, NULL},
    {"tokens|added_tokens_overrides", PL_KEY_COUNT, pl_map_off, "new tokens in the vocabulary",
     NULL},
    {"resize_token_embeddings_to_32x", PL_KEY_COUNT, pl_map_inert, "rows without a token", NULL},
    {"plugins", PL_KEY_COUNT, map_plugins, NULL, NULL},
    {"lr_quadratic_warmup", PL_KEY_COUNT, pl_map_off, "a warm-up that is not linear", NULL},
    {"cosine_constant_lr_ratio", PL_KEY_COUNT, pl_map_off, "a constant end of the cosine", NULL},
    {"eta_min", PL_KEY_COUNT, pl_map_off, "a lowest rate of this optimizer", NULL},
    {"embedding_lr", PL_KEY_COUNT, pl_map_off, "a rate of its own for the embedding", NULL},
    {"save_first_step", PL_KEY_COUNT, pl_map_inert, "write `save_steps: N`", NULL},
    {"saves_per_epoch", PL_KEY_COUNT, pl_map_inert,
     "checkpoints by epochs: write `save_steps: N`; nothing that is learned depends on it", NULL},
    {"evals_per_epoch", PL_KEY_COUNT, pl_map_inert,
     "evaluations by epochs: write `eval_steps: N`; nothing that is learned depends on it", NULL},
    {"gpu_memory_limit", PL_KEY_vram_budget, pl_map_same, NULL, NULL},
    {"model_type|tokenizer_type|is_llama_derived_model|is_mistral_derived_model|"
     "is_qwen_derived_model",
     PL_KEY_COUNT, pl_map_inert, "config.json says it", NULL},
    {"tokenizer_type", PL_KEY_COUNT, pl_map_inert, "tokenizer.json says it", NULL},
    {"tokenizer_use_fast", PL_KEY_COUNT, pl_map_inert, "the tokens are those of tokenizer.json",
     NULL},
    {"tokenizer_legacy", PL_KEY_COUNT, pl_map_inert, "the tokens are those of tokenizer.json",
     NULL},
    {"tokenizer_use_mistral_common", PL_KEY_COUNT, pl_map_off, "the tokenizer of mistral-common",
     NULL},
    {"streaming", PL_KEY_COUNT, pl_map_inert, "files are read row by row", NULL},
    {"dataset_exact_deduplication", PL_KEY_COUNT, pl_map_off, "rows that occur twice are left out",
     NULL},
    {"curriculum_sampling", PL_KEY_COUNT, pl_map_off, "the order of the file: see `shuffle: false`",
     NULL},
    {"model_quantization_config", PL_KEY_COUNT, pl_map_only, "Mxfp4Config|a base in another form",
     NULL},
    {"model_quantization_config_kwargs.dequantize", PL_KEY_COUNT, pl_map_inert,
     "`mode` says in which form the base is held", NULL},
    {"bnb_config_kwargs.bnb_4bit_use_double_quant", PL_KEY_double_quant, pl_map_flag, NULL, NULL},
    {"bnb_config_kwargs.bnb_4bit_quant_type", PL_KEY_quant_type, pl_map_same, NULL, NULL},
    {"gemma4_hybrid_attn_impl|llama4_linearized_experts|gptq_disable_exllama|use_otel_metrics|"
     "otel_metrics_host|otel_metrics_port|ddp|streaming_multipack_buffer_size|"
     "base_model_ignore_patterns",
     PL_KEY_COUNT, pl_map_inert, "it changes nothing that is learned", NULL},
    {"fsdp_version|dp_shard_size|dp_replicate_size", PL_KEY_COUNT, pl_map_inert,
     "`sharding` says what is divided", NULL},
    {"tensor_parallel_size", PL_KEY_COUNT, pl_map_inert, "devices divide samples and states", NULL},
    {"context_parallel_size", PL_KEY_COUNT, pl_map_inert, "devices divide samples and states",
     NULL},
    {"gptq_groupsize", PL_KEY_COUNT, pl_map_inert, "without `gptq`", NULL},
    {"gptq_model_v1", PL_KEY_COUNT, pl_map_inert, "without `gptq`", NULL},
    {"skip_prepare_dataset", PL_KEY_COUNT, pl_map_inert, "there is nothing to set here", NULL},
    {"device_map", PL_KEY_COUNT, pl_map_inert, "the plan says where each tensor lies", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

/* ---- rules ---- */

static void rule_preferences(struct pl_import *im) {
    struct pl_taken t, weights;
    const bool has_weights = pl_import_take(im, "dpo_loss_weights", &weights);
    if (pl_import_take(im, "dpo_loss_type", &t)) {
        if (im->job.stage == PL_STAGE_DPO && !pl_import_said(im, PL_KEY_preference_loss)) {
            pl_import_losses(im, &t, has_weights ? &weights : NULL);
        } else {
            pl_import_inert(im, &t, "it is read under `rl: dpo`");
            if (has_weights) pl_import_inert(im, &weights, "it is read with dpo_loss_type");
        }
    } else if (has_weights) {
        pl_import_inert(im, &weights, "it is read with dpo_loss_type");
    }
    pl_rule_smoothing(im, "dpo_label_smoothing", true);
    pl_rule_not_read(im);
    pl_rule_simpo(im);
}

/* With lora_target_linear all linear layers have adapters, whatever else is named. */
static void rule_targets(struct pl_import *im) {
    struct pl_taken t;
    if (!pl_import_take(im, "lora_target_linear", &t)) return;
    if (pl_node_is_on(t.value))
        pl_import_set(im, PL_KEY_lora_target_modules, "all-linear", &t, NULL);
    else
        pl_import_inert(im, &t, "off, as it is here");
}

static void rule_base(struct pl_import *im) {
    struct pl_taken t;
    const bool has = pl_import_take(im, "load_in_4bit", &t);
    if (has && pl_node_is_on(t.value) && im->job.mode == PL_MODE_LORA)
        pl_import_set(im, PL_KEY_mode, "qlora", &t, "the base is held in 4 bits");
    else if (has)
        pl_import_inert(im, &t, "`mode` says it");
}

/* Takes the names of one thing: the one that is on, else the first; the others are inert. */
static bool take_either(struct pl_import *im, const char *paths, struct pl_taken *t) {
    struct pl_taken next;
    if (!pl_import_take(im, paths, t)) return false;
    while (pl_import_take(im, paths, &next)) {
        const bool on = !pl_node_is_on(t->value) && pl_node_is_on(next.value);
        const struct pl_taken other = on ? *t : next;
        if (on) *t = next;
        pl_import_inert(im, &other, "the other name of it decides");
    }
    return true;
}

/* The default of bf16 is auto: bf16 where the GPU has it. Weights are read in that type, so that
 * a full run has them, its gradients and its moments in it alone. */
static void rule_precision(struct pl_import *im) {
    struct pl_taken b, f;
    bool flag = true;
    const bool has_b = take_either(im, "bf16|bfloat16", &b);
    const bool has_f = take_either(im, "fp16|float16", &f);
    const bool is_half = has_f && pl_node_is_on(f.value);
    const bool off = has_b && pl_node_flag(b.value, &flag) && !flag;
    if (!off && !(is_half && !has_b)) {
        if (has_f) pl_import_inert(im, &f, "bf16 decides");
        pl_import_pure_bf16(im, has_b ? &b : NULL);
    } else if (is_half) {
        pl_import_set(im, PL_KEY_dtype, "fp16", &f, NULL);
        if (has_b) pl_import_inert(im, &b, "off: `dtype: fp16`");
    } else {
        pl_import_set(im, PL_KEY_dtype, "fp32", &b, NULL);
        if (has_f) pl_import_inert(im, &f, "off: `dtype: fp32`");
    }
}

/* batch_size is the samples of a step there, from which the accumulation follows. */
static void rule_batch(struct pl_import *im) {
    if (!pl_import_has(im, PL_KEY_gradient_accumulation_steps) &&
        !pl_import_has(im, PL_KEY_global_batch_size))
        pl_import_set(im, PL_KEY_gradient_accumulation_steps, "1", NULL, NULL);
}

/* ---- data ---- */

static const struct pl_word types[] = {
    {"completion", "text", NULL},
    {"pretrain", "text", NULL},
    {"chat_template", "messages", NULL},
    {"chat_template.default", "messages", NULL},
    {"sharegpt", "sharegpt", NULL},
    {"input_output", NULL, NULL},
    PL_WORDS_END,
};

/* Names of columns that are the same here and there. */
static const char *const columns[] = {
    "field_instruction", "field_input",        "field_output",          "field_system",
    "field_messages",    "message_field_role", "message_field_content",
};

static void read_rows(struct pl_import *im, const struct pl_node *entry, const struct pl_node *type,
                      const struct pl_taken *t) {
    const struct pl_node *field = pl_import_in(im, entry, "field");
    const struct pl_word *w = types;
    while (w->word && strcmp(w->word, pl_node_text(type)) != 0)
        w++;
    if (w->word && w->to)
        pl_data_word(im, "format", w->to);
    else
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "rows of the type %.60s; `format: auto` reads them by their columns",
                             pl_node_text(type));
    if (field) pl_data_word(im, "field_text", pl_node_text(field));
    if (strcmp(pl_node_text(type), "completion") == 0)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "a text of more than sequence_len tokens is cut into several samples "
                             "there, and is one sample here: see `overlength`");
}

/* Keys of an entry with what they do. `as`: the value that changes nothing here; "": every value,
 * which is read where it matters; NULL: none but off. */
static const struct entry_key {
    const char *key, *as, *why;
} entry_keys[] = {
    {"path", "", NULL},
    {"type", "", NULL},
    {"split", "", NULL},
    {"name", "", NULL},
    {"data_files", "", NULL},
    {"field", "", NULL},
    {"text_column", "", NULL},
    {"field_chosen", "", NULL},
    {"field_rejected", "", NULL},
    {"roles", "", NULL},
    {"message_property_mappings", "", NULL},
    {"ds_type", "", NULL},
    {"trust_remote_code", "", NULL},
    {"preprocess_shards", "", NULL},
    {"chat_template", NULL,
     "a template of this file alone: write `chat_template`, which is for all"},
    {"chat_template_jinja", NULL,
     "a template of this file alone: write `chat_template`, which is for all"},
    {"field_tools", "tools", "a column with tools: call it `tools`"},
    {"field_thinking", "reasoning_content",
     "a key with the reasoning of the answers: call it `reasoning_content`"},
    {"template_thinking_key", "reasoning_content", "the name that the template has for reasoning"},
    {"split_thinking", NULL, "reasoning is cut out of the text of answers"},
    {"drop_system_message", NULL, "the system's message is left out"},
    {"shards", NULL, "a part of the rows, drawn at random: `max_samples` reads the first ones"},
    {"shards_idx", NULL, "a part of the rows"},
    {"skip", NULL, "the first rows are left out: see `split`"},
    {"revision", "main", "another revision of the data: fetch that one"},
    {"message_field_training", "train", "a key that says which messages are trained on"},
    {"message_field_training_detail", NULL,
     "a key that says which parts of messages are trained on"},
    {"roles_to_train", "assistant", "other roles than the assistant's are not trained on"},
    {"train_on_eos", "turn", "other ends than those of answers"},
    {"train_on_eot", "turn", "other ends than those of answers"},
};

static bool changes_nothing(const struct pl_import *im, const struct entry_key *k,
                            const struct pl_node *value) {
    uint32_t i = 0;
    if (!pl_node_is_on(value) || (k->as && !*k->as)) return true;
    if (value->kind == PL_NODE_SEQUENCE && value->n == 1) value = pl_import_next(im, value, &i);
    return k->as && strcmp(pl_node_text(value), k->as) == 0;
}

static bool is_column(const char *key) {
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (strcmp(columns[i], key) == 0) return true;
    return false;
}

/* Names the keys of the entry that do something else there. */
static void tell_keys(struct pl_import *im, const struct pl_node *entry, const struct pl_taken *t) {
    const struct entry_key *end = entry_keys + sizeof entry_keys / sizeof *entry_keys;
    uint32_t i = 0;
    for (const struct pl_node *key, *value; (key = pl_import_pair(im, entry, &i, &value));) {
        const struct entry_key *k = entry_keys;
        while (k < end && strcmp(k->key, key->text) != 0)
            k++;
        if (k == end && !is_column(key->text) && !pl_node_is_null(value))
            pl_import_note_entry(im, PL_IMPORT_MISSED, t, "%.60s: this key is not known here",
                                 key->text);
        else if (k < end && !changes_nothing(im, k, value))
            pl_import_note_entry(im, PL_IMPORT_MISSED, t, "%s: %s", k->key, k->why);
    }
}

static void read_supervised(struct pl_import *im, const struct pl_node *entry,
                            const struct pl_taken *t) {
    const struct pl_node *type = pl_import_in(im, entry, "type");
    if (type && pl_axolotl_prompt(im, type, t)) return;
    if (type) read_rows(im, entry, type, t);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const struct pl_node *name = pl_import_in(im, entry, columns[i]);
        if (name) pl_data_word(im, columns[i], pl_node_text(name));
    }
    pl_data_words(im, "field_text", pl_import_in(im, entry, "text_column"));
}

static void read_mapping(struct pl_import *im, const struct pl_node *entry, const char *section,
                         const char *theirs, const char *ours) {
    const struct pl_node *map = pl_import_in(im, entry, section);
    const struct pl_node *value = map ? pl_import_in(im, map, theirs) : NULL;
    pl_data_words(im, ours, value);
}

/* `file` is one of its files where `path` only says of which kind they are; NULL: `path` is. */
static void read_entry(struct pl_import *im, const struct pl_node *entry, const struct pl_taken *t,
                       const char *split, const char *file) {
    const struct pl_node *path = pl_import_in(im, entry, "path");
    const struct pl_node *files = pl_import_in(im, entry, "data_files");
    const struct pl_node *part = pl_import_in(im, entry, "split");
    const struct pl_node *name = pl_import_in(im, entry, "name");
    pl_data_begin(im, t, file ? file : pl_node_text(path));
    if (pl_data_prefers(im))
        pl_axolotl_preferences(im, entry, t);
    else
        read_supervised(im, entry, t);
    read_mapping(im, entry, "message_property_mappings", "role", "message_field_role");
    read_mapping(im, entry, "message_property_mappings", "content", "message_field_content");
    read_mapping(im, entry, "roles", "user", "role_user");
    read_mapping(im, entry, "roles", "assistant", "role_assistant");
    read_mapping(im, entry, "roles", "system", "role_system");
    pl_data_split(im, t, split, part ? pl_node_text(part) : "");
    tell_keys(im, entry, t);
    if (name)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t, "its configuration `%.60s`: name that file",
                             pl_node_text(name));
    if (files && !file)
        pl_import_note_entry(im, PL_IMPORT_MAPPED, t, "its files `%.100s`: name them in `path`",
                             pl_node_text(files));
    pl_data_end(im);
}

/* One entry for each of its files. */
static void read_entries(struct pl_import *im, const struct pl_node *entry,
                         const struct pl_taken *t, const char *split) {
    const struct pl_node *path = pl_import_in(im, entry, "path");
    const struct pl_node *files = pl_import_in(im, entry, "data_files");
    uint32_t i = 0;
    if (!files || !pl_data_is_kind(pl_node_text(path)))
        read_entry(im, entry, t, split, NULL);
    else if (files->kind == PL_NODE_SCALAR)
        read_entry(im, entry, t, split, pl_node_text(files));
    else
        for (const struct pl_node *file; (file = pl_import_next(im, files, &i));)
            read_entry(im, entry, t, split, pl_node_text(file));
}

static void read_list(struct pl_import *im, const char *path, const char *split) {
    struct pl_taken t;
    uint32_t i = 0;
    if (!pl_import_take(im, path, &t)) return;
    if (t.value->kind == PL_NODE_SCALAR) {
        pl_data_begin(im, &t, t.value->text);
        pl_data_prefers(im);
        if (split) pl_data_word(im, "split", split);
        pl_data_end(im);
        return;
    }
    for (const struct pl_node *item; (item = pl_import_next(im, t.value, &i));) {
        const struct pl_taken one = {t.path, item->line ? item : t.key, item};
        if (item->kind == PL_NODE_MAPPING) read_entries(im, item, &one, split);
    }
}

static void rule_data(struct pl_import *im) {
    struct pl_taken t;
    read_list(im, "datasets", NULL);
    if (pl_import_peek(im, "pretraining_dataset", &t)) {
        read_list(im, "pretraining_dataset", NULL);
        pl_import_miss(im, &t,
                       "its texts are joined and cut into blocks of sequence_len; here each "
                       "row is a sample");
    }
    read_list(im, "test_datasets", "eval");
}

const struct pl_dialect pl_dialect_axolotl = {
    .tables = (const struct pl_import_row *const[]){rows, pl_rows_of_trainer, NULL},
    .rules = (void (*const[])(
        struct pl_import *)){rule_targets, rule_base, rule_preferences, rule_precision, rule_batch,
                             rule_data, pl_rule_warmup, pl_rule_schedule, pl_rule_checkpoints,
                             pl_rule_evaluation, pl_rule_reports, pl_rule_devices, NULL},
};
