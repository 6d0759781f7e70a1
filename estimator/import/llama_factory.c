/* llama_factory.c - LLaMA-Factory's configuration, flat and in the sections of its version 1.
 * Defaults are those of src/llamafactory/hparams (data_args.py, model_args.py, finetuning_args.py)
 * of 2026-08, and of transformers' TrainingArguments beneath them. */
#include "estimator/import/dialect.h"

#include "estimator/config/job_values.h"

#include <stdlib.h>
#include <string.h>

static const struct pl_word types[] = {
    {"lora", "lora", NULL},
    {"full", "full", NULL},
    {"freeze", NULL,
     "training of the last layers alone: see `freeze_layers`, which counts the "
     "first ones"},
    {"oft", NULL, "OFT: not supported"},
    PL_WORDS_END,
};

static const struct pl_word stages[] = {
    {"sft", "sft", NULL},
    {"pt", "sft", "each row is a text"},
    {"dpo", "dpo", NULL},
    {"kto", "kto", NULL},
    {"rm", NULL, "training of a reward model: not supported"},
    {"ppo", NULL, "training on rewards (PPO): not supported"},
    PL_WORDS_END,
};

#define LINE_FEED "there the line feed after an answer is trained on, too"
/* Templates of which one that is known by name writes the same text. */
static const struct pl_word templates[] = {
    {"llama3", "llama3", NULL},
    {"qwen", "qwen25", LINE_FEED},
    {"qwen3_nothink", "chatml", LINE_FEED},
    {"chatml", "chatml", LINE_FEED},
    {"yi", "chatml", LINE_FEED},
    {"mistral", "mistral_sysfirst", NULL},
    {"phi4_mini", "phi4_mini", NULL},
    {"empty", NULL, "no template: write `format: prompt_completion`"},
    PL_WORDS_END,
};

static PL_MAP(map_template) {
    struct pl_import_row known = *row;
    const struct pl_word *w = templates;
    known.arg = templates;
    while (w->word && strcmp(w->word, pl_node_text(t->value)) != 0)
        w++;
    if (w->word)
        pl_map_word(im, &known, t);
    else if (!pl_llama_factory_template(im, t))
        pl_import_miss(im, t, "this template is not known here: `auto` is the model's own");
}

/* Under `stage: dpo` a loss without a reference is a stage of its own here. */
static PL_MAP(map_loss) {
    static const struct pl_word losses[] = {
        {"sigmoid", "sigmoid", NULL},
        {"hinge", "hinge", NULL},
        {"ipo", "ipo", NULL},
        {"kto_pair", NULL, "KTO on pairs: not supported; `stage: kto` reads rows with a label"},
        PL_WORDS_END,
    };
    struct pl_import_row known = *row;
    const char *word = pl_node_text(t->value);
    known.arg = losses;
    if (im->job.stage != PL_STAGE_DPO)
        pl_import_inert(im, t, "it is read under `stage: dpo`");
    else if (strcmp(word, "orpo") == 0 || strcmp(word, "simpo") == 0)
        pl_import_set(im, PL_KEY_stage, word, t, NULL);
    else
        pl_map_word(im, &known, t);
}

static PL_MAP(map_supervised) {
    const bool alone = im->job.stage == PL_STAGE_ORPO || im->job.stage == PL_STAGE_KTO;
    if (alone && pl_node_is_on(t->value))
        pl_import_miss(im, t, "more of the supervised loss under this stage: not supported");
    else
        pl_map_same(im, row, t);
}

/* SimPO has none there. */
static PL_MAP(map_smoothing) {
    if (im->job.stage == PL_STAGE_SIMPO)
        pl_import_inert(im, t, "this loss does not read it");
    else
        pl_map_same(im, row, t);
}

static PL_MAP(map_tails) {
    pl_map_same(im, row, t);
    if (im->job.stage == PL_STAGE_DPO)
        pl_import_miss(im, t, "it weighs the policy alone there, and the reference, too, here");
}

static PL_MAP(map_quantisation) {
    const char *bits = pl_node_text(t->value);
    (void)row;
    if (strcmp(bits, "4") == 0)
        pl_import_set(im, PL_KEY_mode, "qlora", t, NULL);
    else
        pl_import_miss(im, t, "a base in %.20s bits: not supported; `mode: qlora` has 4", bits);
}

static PL_MAP(map_targets) {
    if (strcmp(pl_node_text(t->value), "all") == 0)
        pl_import_set(im, PL_KEY_lora_target_modules, "all-linear", t, NULL);
    else
        pl_map_list(im, row, t);
}

/* neat_packing keeps samples apart; without it attention crosses them. */
static PL_MAP(map_packing) {
    struct pl_taken neat;
    const bool on = pl_node_is_on(t->value);
    pl_map_flag(im, row, t);
    if (pl_job_prefers(&im->job)) return;
    if (on && !(pl_import_peek(im, "neat_packing", &neat) && pl_node_is_on(neat.value)))
        pl_import_miss(im, t, "attention crosses from one sample to the next there, and not here");
}

/* Templates that reason read it: without thinking, an empty reasoning is not trained on. */
static PL_MAP(map_thinking) {
    struct pl_taken template;
    const bool reasons = pl_import_peek(im, "template", &template) &&
                         strcmp(pl_node_text(template.value), "qwen3") == 0;
    (void)row;
    if (reasons && !pl_node_is_on(t->value))
        pl_import_miss(im, t, "reasoning is left out there, and an empty one is not trained on");
    else
        pl_import_inert(im, t, "the template decides");
}

static const struct pl_import_row rows[] = {
    {"model", PL_KEY_model, pl_map_same, NULL, NULL},
    {"finetuning_type|peft_config.name", PL_KEY_mode, pl_map_word, types, NULL},
    {"quantization_bit|quant_config.quantization_bit", PL_KEY_mode, map_quantisation, NULL, NULL},
    {"quantization_type", PL_KEY_quant_type, pl_map_same, NULL, NULL},
    {"double_quantization", PL_KEY_double_quant, pl_map_flag, NULL, NULL},
    {"quantization_method|quant_config.name", PL_KEY_COUNT, pl_map_only,
     "bnb|a base that another method has quantised", NULL},
    {"stage", PL_KEY_stage, pl_map_word, stages, NULL},
    {"pref_loss", PL_KEY_preference_loss, map_loss, NULL, NULL},
    {"pref_beta", PL_KEY_beta, pl_map_same, NULL, NULL},
    {"pref_ftx", PL_KEY_sft_weight, map_supervised, NULL, NULL},
    {"pref_bco_weight", PL_KEY_COUNT, pl_map_off, "the loss of BCO together with the other", NULL},
    {"dpo_label_smoothing", PL_KEY_label_smoothing, map_smoothing, NULL, NULL},
    {"simpo_gamma", PL_KEY_simpo_gamma, pl_map_same, NULL, NULL},
    {"kto_chosen_weight", PL_KEY_desirable_weight, pl_map_same, NULL, NULL},
    {"kto_rejected_weight", PL_KEY_undesirable_weight, pl_map_same, NULL, NULL},
    {"ld_alpha", PL_KEY_ld_alpha, map_tails, NULL, NULL},
    {"ref_model_quantization_bit", PL_KEY_COUNT, pl_map_off, "a reference in fewer bits", NULL},
    {"lora_rank|peft_config.r", PL_KEY_lora_r, pl_map_same, NULL, "8"},
    {"lora_alpha|peft_config.lora_alpha", PL_KEY_lora_alpha, pl_map_same, NULL, NULL},
    {"peft_config.lora_dropout", PL_KEY_lora_dropout, pl_map_same, NULL, NULL},
    {"lora_target|peft_config.target_modules", PL_KEY_lora_target_modules, map_targets, NULL, NULL},
    {"additional_target", PL_KEY_lora_modules_to_save, pl_map_list, NULL, NULL},
    {"adapter_name_or_path|peft_config.adapter_name_or_path", PL_KEY_adapter_path, pl_map_same,
     NULL, NULL},
    {"create_new_adapter", PL_KEY_COUNT, pl_map_off, "a second adapter on top of a merged one",
     NULL},
    {"pissa_init", PL_KEY_COUNT, pl_map_off, "PiSSA", NULL},
    {"template", PL_KEY_chat_template, map_template, NULL, NULL},
    {"cutoff_len", PL_KEY_max_seq_length, pl_map_same, NULL, NULL},
    {"packing", PL_KEY_packing, map_packing, NULL, NULL},
    {"neat_packing", PL_KEY_packing, pl_map_flag, NULL, NULL},
    {"train_on_prompt", PL_KEY_train_on, pl_map_word,
     (const struct pl_word[]){{"true", "all", NULL}, {"false", "responses", NULL}, PL_WORDS_END},
     NULL},
    {"mask_history", PL_KEY_train_on, pl_map_word,
     (const struct pl_word[]){{"true", "last", NULL}, {"false", "", NULL}, PL_WORDS_END}, NULL},
    {"val_size", PL_KEY_val_set_size, pl_map_same, NULL, NULL},
    {"default_system", PL_KEY_COUNT, pl_map_off, "a system prompt for rows without one", NULL},
    {"tool_format", PL_KEY_COUNT, pl_map_off, "a form of tool calls", NULL},
    {"enable_thinking", PL_KEY_COUNT, map_thinking, NULL, NULL},
    {"mix_strategy", PL_KEY_COUNT, pl_map_only, "concat|files that are read in turn", NULL},
    {"interleave_probs", PL_KEY_COUNT, pl_map_off, "shares of files: see `weight`", NULL},
    {"streaming", PL_KEY_COUNT, pl_map_inert, "files are read row by row", NULL},
    {"tokenized_path", PL_KEY_COUNT, pl_map_inert, "`dataset_cache` keeps tokens", NULL},
    {"disable_shuffling", PL_KEY_shuffle, pl_map_word,
     (const struct pl_word[]){{"true", "false", NULL}, {"false", "true", NULL}, PL_WORDS_END},
     NULL},
    {"resize_vocab|add_tokens|add_special_tokens", PL_KEY_COUNT, pl_map_off,
     "new tokens in the vocabulary", NULL},
    {"rope_scaling", PL_KEY_COUNT, pl_map_off, "another scaling of positions", NULL},
    {"shift_attn", PL_KEY_COUNT, pl_map_off, "shifted sparse attention", NULL},
    {"train_from_scratch", PL_KEY_init, pl_map_word,
     (const struct pl_word[]){{"true", "random", "write `model_config`, too"},
                              {"false", "pretrained", NULL},
                              PL_WORDS_END},
     NULL},
    {"disable_gradient_checkpointing", PL_KEY_gradient_checkpointing, pl_map_word,
     (const struct pl_word[]){{"true", "none", NULL}, {"false", "full", NULL}, PL_WORDS_END},
     "full"},
    {"use_unsloth_gc", PL_KEY_gradient_checkpointing, pl_map_word,
     (const struct pl_word[]){{"true", "offload", NULL}, {"false", "", NULL}, PL_WORDS_END}, NULL},
    {"use_unsloth", PL_KEY_COUNT, pl_map_inert, "it computes the same in another way", NULL},
    {"upcast_layernorm", PL_KEY_COUNT, pl_map_inert, "norms are computed in fp32", NULL},
    {"upcast_lmhead_output", PL_KEY_COUNT, pl_map_inert, "the loss is computed in fp32", NULL},
    {"per_device_train_batch_size|micro_batch_size", PL_KEY_batch_size, pl_map_same, NULL, "8"},
    {"gradient_accumulation_steps", PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, NULL},
    {"global_batch_size", PL_KEY_global_batch_size, pl_map_same, NULL, NULL},
    {"learning_rate", PL_KEY_learning_rate, pl_map_same, NULL, "5e-5"},
    {"num_train_epochs", PL_KEY_num_epochs, pl_map_same, NULL, "3"},
    {"use_dft_loss", PL_KEY_COUNT, pl_map_off, "the loss of DFT", NULL},
    {"use_asft_loss", PL_KEY_COUNT, pl_map_off, "the loss of ASFT", NULL},
    {"use_eaft_loss", PL_KEY_COUNT, pl_map_off, "the loss of EAFT", NULL},
    {"use_llama_pro", PL_KEY_COUNT, pl_map_off, "LLaMA Pro, layers that are added", NULL},
    {"freeze_vision_tower|freeze_multi_modal_projector|freeze_language_model", PL_KEY_COUNT,
     pl_map_off, "images, video and sound", NULL},
    {"freeze_trainable_layers", PL_KEY_COUNT, pl_map_off, "training of the last layers alone",
     NULL},
    {"model_class", PL_KEY_COUNT, pl_map_only, "llm|another kind of model", NULL},
    {"kernel_config|init_config|batching_strategy", PL_KEY_COUNT, pl_map_inert,
     "it computes the same in another way", NULL},
    {"dist_config.dcp_path", PL_KEY_COUNT, pl_map_inert, "`model` names the weights", NULL},
    {"sample_backend|max_new_tokens|infer_backend", PL_KEY_COUNT, pl_map_inert,
     "of generation, not of training", NULL},
    {"export_dir", PL_KEY_COUNT, pl_map_off, "to merge an adapter, which `plimsoll merge` does",
     NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

static void rule_mode(struct pl_import *im) {
    struct pl_taken t;
    const bool v1 = pl_import_peek(im, "model_class", &t);
    struct pl_taken type;
    const bool other = pl_import_peek(im, "finetuning_type|peft_config.name", &type);
    if (pl_import_has(im, PL_KEY_mode)) return;
    pl_import_set(im, PL_KEY_mode, other || v1 ? "full" : "lora", NULL, NULL);
}

/* Returns true if both keys are there with one value, or neither is. */
static bool is_same(const struct pl_import *im, const char *a, const char *b) {
    struct pl_taken x, y;
    const bool has_x = pl_import_peek(im, a, &x), has_y = pl_import_peek(im, b, &y);
    return has_x == has_y && (!has_x || !strcmp(pl_node_text(x.value), pl_node_text(y.value)));
}

/* A reference that is named is read from its own files there: here it is the base, or the weights
 * that the run starts with. Without a name it is what is the default here. */
static void rule_reference(struct pl_import *im) {
    struct pl_taken t, adapter;
    const bool has = pl_import_take(im, "ref_model", &t);
    const bool adapted = pl_import_take(im, "ref_model_adapters", &adapter);
    const bool same = is_same(im, "ref_model", "model_name_or_path");
    const bool starts = is_same(im, "ref_model_adapters", "adapter_name_or_path");
    if (!has && adapted) pl_import_inert(im, &adapter, "it is read with `ref_model`");
    if (!has) return;
    if (!same || (adapted && !starts))
        pl_import_miss(im, &t,
                       "a reference other than the base and the start of the run: not "
                       "supported");
    else if (im->job.mode == PL_MODE_FULL || adapted)
        pl_import_set(im, PL_KEY_reference, "initial", &t, NULL);
    else
        pl_import_set(im, PL_KEY_reference, "base", &t, NULL);
    if (adapted) pl_import_inert(im, &adapter, "`reference` says it");
}

/* The supervised loss is a mean over answers there, each of which is one over its tokens. */
static void rule_preferences(struct pl_import *im) {
    struct pl_taken t;
    const bool has_part = im->job.sft_weight > 0 && pl_job_prefers(&im->job);
    pl_rule_smoothing(im, "dpo_label_smoothing", false);
    pl_rule_not_read(im);
    if ((im->job.stage == PL_STAGE_ORPO || has_part) && im->job.batch_size != 1 &&
        pl_import_peek(im, has_part ? "pref_ftx" : "pref_loss", &t))
        pl_import_miss(im, &t,
                       "the supervised loss is a mean of answers there, and of the tokens of each "
                       "`batch_size` pairs here");
}

/* Without pure_bf16 what is trained is held in fp32, and computed in bf16. */
static void rule_precision(struct pl_import *im) {
    struct pl_taken pure, b, f;
    const bool has_pure = pl_import_take(im, "pure_bf16", &pure);
    const bool has_b = pl_import_take(im, "bf16", &b), has_f = pl_import_take(im, "fp16", &f);
    if (has_pure && pl_node_is_on(pure.value)) {
        pl_import_pure_bf16(im, &pure);
        if (im->job.mode != PL_MODE_FULL)
            pl_import_set(im, PL_KEY_adapter_dtype, "bf16", &pure, NULL);
        if (has_b) pl_import_inert(im, &b, "pure_bf16 decides");
    } else if (has_b && pl_node_is_on(b.value)) {
        pl_import_set(im, PL_KEY_dtype, "bf16", &b, NULL);
        if (im->job.mode == PL_MODE_FULL)
            pl_import_set(im, PL_KEY_master_weights, "true", &b, "weights are in fp32 there");
    } else if (has_f && pl_node_is_on(f.value)) {
        pl_import_set(im, PL_KEY_dtype, "fp16", &f, NULL);
    } else {
        if (has_b) pl_import_inert(im, &b, "off: the type is that of the model");
        if (has_f) pl_import_inert(im, &f, "off: the type is that of the model");
    }
}

static void rule_batch(struct pl_import *im) {
    if (!pl_import_has(im, PL_KEY_gradient_accumulation_steps) &&
        !pl_import_has(im, PL_KEY_global_batch_size))
        pl_import_set(im, PL_KEY_gradient_accumulation_steps, "1", NULL, NULL);
    if (!pl_import_has(im, PL_KEY_lr_scheduler))
        pl_import_set(im, PL_KEY_lr_scheduler, "linear", NULL, NULL);
}

/* Sections of version 1: fsdp2 divides weights, DeepSpeed what its file says. */
static void rule_dist(struct pl_import *im) {
    struct pl_taken t;
    if (!pl_import_take(im, "dist_config.name", &t)) return;
    pl_import_set(im, PL_KEY_devices, "auto", &t,
                  "how many GPUs is said by the launcher there: write `devices: N`");
    pl_import_set(im, PL_KEY_sharding, "weights", &t, NULL);
    if (pl_import_take(im, "dist_config.config_file", &t))
        pl_import_inert(im, &t, "`sharding` says what is divided");
}

/* ---- data ---- */

/* Names of columns and tags in dataset_info.json: theirs, ours. */
static const struct {
    const char *section, *theirs, *ours;
} columns[] = {
    {"columns", "prompt", "field_instruction"},       {"columns", "query", "field_input"},
    {"columns", "response", "field_output"},          {"columns", "system", "field_system"},
    {"columns", "messages", "field_messages"},        {"tags", "role_tag", "message_field_role"},
    {"tags", "content_tag", "message_field_content"}, {"tags", "user_tag", "role_user"},
    {"tags", "assistant_tag", "role_assistant"},      {"tags", "system_tag", "role_system"},
};

/* True if the rows are texts. */
static bool is_pretraining(const struct pl_import *im) {
    struct pl_taken t;
    return pl_import_peek(im, "stage", &t) && strcmp(pl_node_text(t.value), "pt") == 0;
}

static const char *string_in(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* The columns and words of an entry that its rows have, a prompt in turns or as an instruction. */
static void add_columns(struct pl_import *im, const json_t *info, bool chat) {
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        const char *name = string_in(json_object_get(info, columns[i].section), columns[i].theirs);
        const bool history = strcmp(columns[i].theirs, "prompt") == 0 && chat;
        const bool ranked = strcmp(columns[i].theirs, "response") == 0 && pl_job_prefers(&im->job);
        if (*name && !history && !ranked) pl_data_word(im, columns[i].ours, name);
    }
}

/* Columns of rows of preferences; false: the stage reads others. */
static bool describe_preferences(struct pl_import *im, const struct pl_taken *t, const json_t *info,
                                 bool chat) {
    static const struct {
        const char *theirs, *ours;
    } names[] = {
        {"chosen", "field_chosen"}, {"rejected", "field_rejected"}, {"kto_tag", "field_label"}};
    const json_t *columns_of = json_object_get(info, "columns");
    const bool labelled = im->job.stage == PL_STAGE_KTO;
    if (!pl_data_prefers(im)) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        pl_data_word(im, names[i].ours, string_in(columns_of, names[i].theirs));
    if (!labelled) add_columns(im, info, chat);
    if (labelled)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "its rows become turns of the template there: make lists of "
                             "messages of `prompt` and `completion`%s with the keys `role` and "
                             "`content`",
                             chat ? ", which is the last message there," : "");
    return true;
}

/* The column of a part of an instruction: without `columns` the usual one, else one that they name,
 * or none. */
static const char *column_of(const json_t *info, const char *part, const char *usual) {
    const json_t *columns_of = json_object_get(info, "columns");
    return columns_of ? string_in(columns_of, part) : usual;
}

/* src/llamafactory/data/converter.py: an instruction, a line feed and the input are a question. */
static void describe_question(struct pl_import *im, const struct pl_taken *t, const json_t *info) {
    const char *prompt = column_of(info, "prompt", "instruction");
    const char *query = column_of(info, "query", "input"), *system = column_of(info, "system", "");
    struct pl_text both = {0}, alone = {0};
    if (*prompt) pl_text_addf(&alone, "{%s}", prompt);
    pl_text_addf(&both, *query ? "%s%s{%s}" : "%s", pl_text_str(&alone), *prompt ? "\n" : "",
                 query);
    pl_data_word(im, "question_format", pl_text_str(&both));
    if (*prompt && *query) pl_data_word(im, "no_input_format", pl_text_str(&alone));
    pl_data_word(im, "field_output", column_of(info, "response", "output"));
    pl_data_word(im, "field_system", system);
    if (*column_of(info, "history", ""))
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "`history`: earlier questions and answers of a row: convert the rows "
                             "to `messages`");
    im->data.failed |= both.failed || alone.failed;
    pl_text_finish(&both);
    pl_text_finish(&alone);
}

static void describe_columns(struct pl_import *im, const struct pl_taken *t, const json_t *info,
                             bool chat) {
    const bool has_messages = *string_in(json_object_get(info, "columns"), "messages");
    if (chat) {
        pl_data_word(im, "format", has_messages ? "messages" : "sharegpt");
        add_columns(im, info, chat);
    } else if (is_pretraining(im)) {
        pl_data_word(im, "format", "text");
        pl_data_word(im, "field_text", column_of(info, "prompt", "instruction"));
    } else {
        describe_question(im, t, info);
    }
    if (json_is_true(json_object_get(info, "ranking")))
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, "rows of preferences without their stage");
}

/* The data of a configuration. */
struct sources {
    const char *folder;
    json_t *infos;        /* of dataset_info.json; NULL: it is not there */
    uint64_t most;        /* rows of each data set; 0: all */
    struct pl_taken said; /* where `most` is above 0 */
};

/* src/llamafactory/data/loader.py: `num_samples` of a data set are drawn, then the first
 * `max_samples` of what is left are taken, before anything is mixed. */
static void describe_samples(struct pl_import *im, const struct pl_taken *t, const json_t *info,
                             const struct sources *from) {
    uint64_t most = from->most;
    const json_int_t drawn = json_integer_value(json_object_get(info, "num_samples"));
    if (drawn > 0)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "`num_samples`: %lld rows are drawn at random there; here they are "
                             "the first ones",
                             (long long)drawn);
    if (most) pl_import_note_entry(im, PL_IMPORT_MAPPED, &from->said, "`max_samples`");
    if (drawn > 0 && (!most || (uint64_t)drawn < most)) most = (uint64_t)drawn;
    pl_data_samples(im, most);
}

#define NO_INFO                                                                                    \
    "dataset_info.json is not in %.100s, or does not name it: this is the usual name of the file"
#define USUAL ", and these are the usual columns"
#define PREFERRED                                                                                  \
    "; its rows become turns of the template there: make lists of messages of their prompts and "  \
    "answers"

/* Rows that nothing describes are those that an entry without words describes. */
static void guess(struct pl_import *im, const struct pl_taken *t, const char *folder) {
    const bool prefers = pl_data_prefers(im);
    if (prefers && im->job.stage == PL_STAGE_KTO) {
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, NO_INFO PREFERRED, folder);
        return;
    }
    pl_import_note_entry(im, PL_IMPORT_MAPPED, t, prefers ? NO_INFO : NO_INFO USUAL, folder);
    if (!prefers && is_pretraining(im))
        pl_data_word(im, "format", "text");
    else if (!prefers)
        describe_question(im, t, NULL);
}

/* One name of `dataset`: by its entry in dataset_info.json, or by the name of its file. */
static void read_name(struct pl_import *im, const struct pl_taken *t, const struct sources *from,
                      const char *name, const char *split) {
    const char *const folder = from->folder;
    struct pl_text path = {0};
    const json_t *info = json_object_get(from->infos, name);
    const char *hub = string_in(info, "hf_hub_url"), *file = string_in(info, "file_name");
    if (*hub && !*file)
        pl_text_add(&path, hub);
    else if (*file)
        pl_text_addf(&path, "%s/%s", folder, file);
    else
        pl_text_addf(&path, "%s/%s.json", folder, name);
    pl_data_begin(im, t, pl_text_str(&path));
    im->data.failed |= path.failed;
    pl_text_finish(&path);
    const bool chat = strcmp(string_in(info, "formatting"), "sharegpt") == 0;
    if (!info)
        guess(im, t, folder);
    else if (!describe_preferences(im, t, info, chat))
        describe_columns(im, t, info, chat);
    pl_data_split(im, t, split, string_in(info, "split"));
    describe_samples(im, t, info, from);
    pl_data_end(im);
}

static void read_names(struct pl_import *im, const char *path, const struct sources *from,
                       const char *split) {
    struct pl_taken t;
    if (!pl_import_take(im, path, &t)) return;
    const char *names = pl_node_text(t.value);
    uint32_t i = 0;
    for (const struct pl_node *item;
         t.value->kind == PL_NODE_SEQUENCE && (item = pl_import_next(im, t.value, &i));)
        read_name(im, &t, from, pl_node_text(item), split);
    while (*names) {
        char name[256];
        names += strspn(names, ", ");
        const size_t n = strcspn(names, ",");
        if (n && n < sizeof name) {
            memcpy(name, names, n);
            name[n] = 0;
            read_name(im, &t, from, name, split);
        } else if (n) {
            pl_import_miss(im, &t, "the name of a data set of more than 255 bytes");
        }
        names += n;
    }
}

static void read_most(struct pl_import *im, struct sources *from) {
    double v;
    if (!pl_import_take(im, "max_samples", &from->said)) return;
    if (pl_node_number(from->said.value, &v) && v >= 1 && v < 9e15)
        from->most = (uint64_t)v;
    else
        pl_import_miss(im, &from->said, "it is no number of rows");
}

/* src/llamafactory/hparams/data_args.py: its texts are packed unless `packing` says otherwise. */
static void check_pretraining(struct pl_import *im) {
    struct pl_taken stage, packing;
    if (!is_pretraining(im) || !pl_import_peek(im, "stage", &stage)) return;
    if (!pl_import_peek(im, "packing", &packing) || pl_node_is_on(packing.value))
        pl_import_miss(im, &stage,
                       "its texts are joined and cut into blocks of cutoff_len; here each row is a "
                       "sample");
}

static void rule_data(struct pl_import *im) {
    struct pl_taken t;
    struct pl_text path = {0};
    check_pretraining(im);
    const bool has_folder = pl_import_take(im, "dataset_dir", &t);
    struct sources from = {.folder = has_folder ? pl_node_text(t.value) : "data"};
    if (has_folder) pl_import_inert(im, &t, "each `path` begins with it");
    read_most(im, &from);
    pl_text_addf(&path, "%s/dataset_info.json", from.folder);
    if (path.failed)
        im->err = pl_host_oom(im->d, "a path");
    else
        from.infos = pl_import_json_beside(im, path.data);
    read_names(im, "dataset", &from, NULL);
    read_names(im, "eval_dataset", &from, "eval");
    json_decref(from.infos);
    pl_text_finish(&path);
    if (!pl_import_take(im, "train_dataset", &t)) return;
    pl_data_begin(im, &t, pl_node_text(t.value));
    pl_import_note_entry(im, PL_IMPORT_MISSED, &t,
                         "that file lists data: name the files themselves in `path`");
    pl_data_end(im);
}

const struct pl_dialect pl_dialect_llama_factory = {
    .tables = (const struct pl_import_row *const[]){rows, pl_rows_of_trainer, NULL},
    .rules = (void (*const[])(
        struct pl_import *)){rule_mode, rule_reference, rule_preferences, rule_precision, rule_data,
                             pl_rule_warmup, pl_rule_schedule, rule_batch, pl_rule_checkpoints,
                             pl_rule_evaluation, pl_rule_reports, rule_dist, pl_rule_devices, NULL},
};
