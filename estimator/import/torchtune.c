/* torchtune.c - torchtune's configuration. Defaults are those of its recipes and components
 * (recipes/, torchtune/datasets/, torchtune/models/) of 2026-04, and of torch.optim. */
#include "estimator/import/dialect.h"

#include "estimator/base/open_file.h"
#include "estimator/config/job_values.h"
#include "estimator/config/scalar.h"
#include "estimator/model/catalogue.h"

#include <stdio.h>
#include <string.h>

/* The last part of a component: "lora_llama3_8b" of torchtune.models.llama3.lora_llama3_8b. */
static const char *component_name(const struct pl_taken *t) {
    const char *text = pl_node_text(t->value), *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* A directory that is not here and is called as a model of the catalogue is that model. */
static PL_MAP(map_checkpoint) {
    char name[256];
    const char *text = pl_node_text(t->value);
    size_t n = strlen(text);
    while (n > 1 && text[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && text[from - 1] != '/')
        from--;
    snprintf(name, sizeof name, "%.*s", (int)(n - from < 200 ? n - from : 200), text + from);
    struct pl_known_as as;
    if (!pl_catalogue_find(name, &as) || pl_look_for(text) != PL_NOT_THERE)
        pl_map_same(im, row, t);
    else
        pl_import_set(im, PL_KEY_model, as.id, t, "not there: this is the model of that name");
}

static PL_MAP(map_model) {
    const char *name = component_name(t);
    const bool q = begins(name, "qlora_"), lora = begins(name, "lora_") || q;
    (void)row;
    pl_import_set(im, PL_KEY_mode, q ? "qlora" : lora ? "lora" : "full", t, NULL);
    if (strstr(name, "vision") || strstr(name, "multimodal") || strstr(name, "flamingo"))
        pl_import_miss(im, t, "images: not supported");
    if (strstr(name, "classifier")) pl_import_miss(im, t, "a classifier: not supported");
}

/* The losses of torchtune.rlhf.loss, older torchtune.modules.rlhf.loss; each has a beta, which
 * RSOLoss calls gamma. */
static const struct preferred {
    const char *name, *stage, *loss; /* loss NULL: the stage has one */
} preferred[] = {
    {"DPOLoss", "dpo", "sigmoid"},
    {"RSOLoss", "dpo", "hinge"},
    {"SimPOLoss", "simpo", NULL},
};

static const struct preferred *find_preferred(const struct pl_import *im) {
    struct pl_taken t;
    if (!pl_import_peek(im, "loss._component_", &t)) return NULL;
    for (size_t i = 0; i < sizeof preferred / sizeof *preferred; i++)
        if (strcmp(preferred[i].name, component_name(&t)) == 0) return &preferred[i];
    return NULL;
}

static PL_MAP(map_loss) {
    const char *name = component_name(t);
    const struct preferred *loss = find_preferred(im);
    (void)row;
    if (loss) pl_import_set(im, PL_KEY_stage, loss->stage, t, NULL);
    if (loss && loss->loss) pl_import_set(im, PL_KEY_preference_loss, loss->loss, t, NULL);
    if (loss) return;
    if (strstr(name, "CrossEntropy") || strstr(name, "CEWithChunked"))
        pl_import_inert(im, t, "the same loss, in chunks");
    else
        pl_import_miss(im, t, "another loss than that of the next token: not supported");
}

static PL_MAP(map_gamma) {
    const bool is_margin = im->job.stage == PL_STAGE_SIMPO;
    (void)row;
    pl_import_set(im, is_margin ? PL_KEY_simpo_gamma : PL_KEY_beta, pl_node_text(t->value), t,
                  NULL);
}

static const struct pl_word optimizers[] = {
    {"torch.optim.AdamW", "adamw", NULL},
    {"torchao.prototype.low_bit_optim.AdamW8bit", NULL,
     "torchao's states in 8 bits: not supported; see `adamw_8bit`"},
    {"torchao.prototype.low_bit_optim.CPUOffloadOptimizer", "adamw", "see `offload: optimizer`"},
    {"bitsandbytes.optim.PagedAdamW", "adamw", "states are planned, not paged"},
    {"bitsandbytes.optim.AdamW", "adamw", NULL},
    {"bitsandbytes.optim.AdamW8bit", "adamw_8bit", NULL},
    {"bitsandbytes.optim.PagedAdamW8bit", "adamw_8bit", "states are planned, not paged"},
    {"torch.optim.SGD", "sgd", NULL},
    PL_WORDS_END,
};

static PL_MAP(map_schedule) {
    const char *name = component_name(t);
    (void)row;
    if (strcmp(name, "get_cosine_schedule_with_warmup") == 0)
        pl_import_set(im, PL_KEY_lr_scheduler, "cosine", t, NULL);
    else
        pl_import_miss(im, t, "another schedule than the cosine with a warm-up: not supported");
}

static PL_MAP(map_type) {
    const char *text = pl_node_text(t->value);
    (void)row;
    if (strcmp(text, "bf16") == 0) {
        pl_import_pure_bf16(im, t);
        if (im->job.mode != PL_MODE_FULL && im->job.mode != PL_UNSET_U32) {
            pl_import_set(im, PL_KEY_adapter_dtype, "bf16", t, "bf16 alone");
            if (im->job.optimizer == PL_OPTIMIZER_ADAMW)
                pl_import_set(im, PL_KEY_moment_dtype, "bf16", t, "bf16 alone");
        }
    } else {
        pl_import_set(im, PL_KEY_dtype, text, t, NULL);
    }
}

static PL_MAP(map_device) {
    const char *text = pl_node_text(t->value);
    if (strcmp(text, "cpu") == 0)
        pl_map_same(im, row, t);
    else
        pl_import_inert(im, t, "a GPU is taken where there is one");
}

/* A recipe that ends an epoch after so many steps; with one epoch that is max_steps. */
static PL_MAP(map_epoch_steps) {
    struct pl_taken epochs;
    double n = 1;
    if (pl_import_peek(im, "epochs", &epochs)) pl_node_number(epochs.value, &n);
    if (n == 1)
        pl_map_steps(im, row, t);
    else
        pl_import_miss(im, t, "epochs of so many steps: write `max_steps: N` for all of them");
}

static PL_MAP(map_offload) {
    struct pl_taken check;
    bool on = pl_node_is_on(t->value);
    if (on && pl_import_peek(im, "enable_activation_checkpointing", &check))
        on = pl_node_is_on(check.value);
    (void)row;
    if (on)
        pl_import_set(im, PL_KEY_gradient_checkpointing, "offload", t, NULL);
    else
        pl_import_inert(im, t, "off, as it is here");
}

static PL_MAP(map_tokenizer) {
    (void)row;
    pl_import_inert(im, t, "the tokens are those of tokenizer.json in the model's directory");
}

static const struct pl_word levels[] = {
    {"true", "full", NULL}, {"false", "none", NULL}, PL_WORDS_END};

static const struct pl_import_row rows[] = {
    {"checkpointer.checkpoint_dir", PL_KEY_model, map_checkpoint, NULL, NULL},
    {"model._component_", PL_KEY_mode, map_model, NULL, "full"},
    {"model.quantize_base", PL_KEY_mode, pl_map_word,
     (const struct pl_word[]){{"true", "qlora", NULL}, {"false", "", NULL}, PL_WORDS_END}, NULL},
    {"model.lora_rank", PL_KEY_lora_r, pl_map_same, NULL, "8"},
    {"model.lora_alpha", PL_KEY_lora_alpha, pl_map_same, NULL, "16"},
    {"model.lora_dropout", PL_KEY_lora_dropout, pl_map_same, NULL, NULL},
    {"model.use_dora", PL_KEY_COUNT, pl_map_off, "DoRA", NULL},
    {"model.max_seq_len", PL_KEY_COUNT, pl_map_inert, "`max_seq_length` bounds a sample", NULL},
    {"model.image_size|model.decoder_trainable|model.encoder_trainable|model.fusion_trainable|"
     "tokenizer.image_size|tokenizer.max_num_tiles|collate_fn",
     PL_KEY_COUNT, pl_map_off, "images", NULL},
    {"tokenizer.max_seq_len", PL_KEY_max_seq_length, pl_map_same, NULL, NULL},
    {"tokenizer.prompt_template", PL_KEY_COUNT, pl_map_off,
     "a template of torchtune: see `prompt_format` and `chat_template`", NULL},
    {"tokenizer._component_", PL_KEY_COUNT, map_tokenizer, NULL, NULL},
    {"tokenizer.path|tokenizer.merges_file|tokenizer.vocab_path|tokenizer.merges_path|"
     "tokenizer.special_tokens_path",
     PL_KEY_COUNT, map_tokenizer, NULL, NULL},
    {"batch_size", PL_KEY_batch_size, pl_map_same, NULL, "1"},
    {"gradient_accumulation_steps", PL_KEY_gradient_accumulation_steps, pl_map_same, NULL, "1"},
    {"epochs", PL_KEY_num_epochs, pl_map_same, NULL, "1"},
    {"max_steps_per_epoch", PL_KEY_max_steps, map_epoch_steps, NULL, NULL},
    {"shuffle", PL_KEY_shuffle, pl_map_flag, NULL, NULL},
    {"seed", PL_KEY_seed, pl_map_same, NULL, NULL},
    {"optimizer._component_", PL_KEY_optimizer, pl_map_word, optimizers, NULL},
    {"optimizer.lr", PL_KEY_learning_rate, pl_map_same, NULL, "1e-3"},
    {"optimizer.weight_decay", PL_KEY_weight_decay, pl_map_same, NULL, "0.01"},
    {"optimizer.eps", PL_KEY_adam_epsilon, pl_map_same, NULL, NULL},
    {"optimizer.fused|optimizer.foreach", PL_KEY_COUNT, pl_map_inert,
     "it computes the same in another way", NULL},
    {"lr_scheduler._component_", PL_KEY_lr_scheduler, map_schedule, NULL, "constant"},
    {"lr_scheduler.num_warmup_steps", PL_KEY_warmup_steps, pl_map_steps, NULL, "0"},
    {"lr_scheduler.num_cycles", PL_KEY_COUNT, pl_map_only, "0.5|another part of the cosine", NULL},
    {"clip_grad_norm", PL_KEY_max_grad_norm, pl_map_same, NULL, "0"},
    {"optimizer_in_bwd", PL_KEY_optimizer_in_backward, pl_map_word,
     (const struct pl_word[]){{"true", "true", NULL}, {"false", "false", NULL}, PL_WORDS_END},
     NULL},
    {"loss._component_", PL_KEY_COUNT, map_loss, NULL, NULL},
    {"loss.beta", PL_KEY_beta, pl_map_same, NULL, NULL},
    {"loss.gamma", PL_KEY_COUNT, map_gamma, NULL, NULL},
    {"loss.label_smoothing", PL_KEY_label_smoothing, pl_map_same, NULL, NULL},
    {"loss", PL_KEY_COUNT, pl_map_inert, "the mean over the tokens that are trained on", NULL},
    {"kd_loss|kd_ratio|teacher_model|teacher_checkpointer", PL_KEY_COUNT, pl_map_off,
     "distillation from a second model", NULL},
    {"policy_model|reward_and_value_model|ref_policy_checkpointer|value_checkpointer|"
     "reward_checkpointer|reward_functions|ppo_epochs|ppo_batch_size|grpo_samples",
     PL_KEY_COUNT, pl_map_off, "training on rewards", NULL},
    {"enable_activation_checkpointing", PL_KEY_gradient_checkpointing, pl_map_word, levels, "none"},
    {"enable_activation_offloading", PL_KEY_gradient_checkpointing, map_offload, NULL, NULL},
    {"ac_mode|ac_option", PL_KEY_COUNT, pl_map_inert, "see `gradient_checkpointing: every_N`",
     NULL},
    {"dtype", PL_KEY_dtype, map_type, NULL, NULL},
    {"device", PL_KEY_device, map_device, NULL, NULL},
    {"output_dir", PL_KEY_output_dir, pl_map_same, NULL, NULL},
    {"log_every_n_steps", PL_KEY_logging_steps, pl_map_steps, NULL, NULL},
    {"run_val_every_n_steps", PL_KEY_eval_steps, pl_map_steps, NULL, NULL},
    {"fsdp_cpu_offload", PL_KEY_offload, pl_map_word,
     (const struct pl_word[]){{"true", "weights", NULL}, {"false", "", NULL}, PL_WORDS_END}, NULL},
    {"checkpointer.adapter_checkpoint|checkpointer.recipe_checkpoint|resume_from_checkpoint",
     PL_KEY_COUNT, pl_map_off, "to continue a run of torchtune", NULL},
    {"checkpointer", PL_KEY_COUNT, pl_map_inert, "`model` and `output_dir` say it", NULL},
    {"quantizer", PL_KEY_COUNT, pl_map_off, "training for a quantised model (QAT)", NULL},
    {"profiler|metric_logger|log_peak_memory_stats|log_level", PL_KEY_COUNT, pl_map_inert,
     "train_log.jsonl has the figures of every step", NULL},
    {"compile|use_flex", PL_KEY_COUNT, pl_map_inert, "it computes the same in another way", NULL},
    {"save_adapter_weights_only|save_every_n_epochs|use_distributed_state_dict|low_cpu_ram",
     PL_KEY_COUNT, pl_map_inert, "the finished model or adapter is saved", NULL},
    {"batch_size_val", PL_KEY_COUNT, pl_map_inert, "evaluation takes `batch_size`", NULL},
    {"custom_sharded_layers|memory_efficient_fsdp_wrap|tensor_parallel_plan|tensor_parallel_dim|"
     "data_parallel_shard_dim|data_parallel_replicate_dim|fsdp_reshard_after_forward",
     PL_KEY_COUNT, pl_map_inert, "devices divide samples and states: see `sharding`", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

/* ---- rules ---- */

/* Names of modules in torchtune's models, and in ours. Phi's weights are fused here as in its
 * files, so that one adapter is on q, k and v together. */
static const struct {
    const char *theirs, *ours, *fused;
} modules[] = {{"q_proj", "q_proj", "qkv_proj"},
               {"k_proj", "k_proj", "qkv_proj"},
               {"v_proj", "v_proj", "qkv_proj"},
               {"output_proj", "o_proj", "o_proj"}};

static void add_module(struct pl_text *list, const char *name) {
    if (strstr(pl_text_str(list), name)) return;
    pl_text_add(list, list->len > 1 ? ", " : "");
    pl_scalar_write(list, name);
}

static void add_attention(const struct pl_import *im, const struct pl_node *names, bool fused,
                          struct pl_text *list) {
    uint32_t i = 0;
    for (const struct pl_node *item; (item = pl_import_next(im, names, &i));) {
        const char *name = pl_node_text(item);
        for (size_t k = 0; k < sizeof modules / sizeof *modules; k++)
            if (strcmp(modules[k].theirs, pl_node_text(item)) == 0)
                name = fused ? modules[k].fused : modules[k].ours;
        add_module(list, name);
    }
}

static void rule_targets(struct pl_import *im) {
    struct pl_taken t, mlp, head, model;
    struct pl_text list = {0};
    if (!pl_import_take(im, "model.lora_attn_modules", &t)) return;
    const bool fused =
        pl_import_peek(im, "model._component_", &model) && strstr(component_name(&model), "phi");
    const bool has_mlp = pl_import_take(im, "model.apply_lora_to_mlp", &mlp);
    const bool has_head = pl_import_take(im, "model.apply_lora_to_output", &head);
    pl_text_add(&list, "[");
    add_attention(im, t.value, fused, &list);
    if (has_mlp && pl_node_is_on(mlp.value)) {
        add_module(&list, fused ? "gate_up_proj" : "gate_proj");
        if (!fused) add_module(&list, "up_proj");
        add_module(&list, "down_proj");
    }
    if (has_head && pl_node_is_on(head.value)) add_module(&list, "lm_head");
    pl_text_add(&list, "]");
    if (list.failed)
        im->err = pl_host_oom(im->d, "a list of modules");
    else
        pl_import_set(im, PL_KEY_lora_target_modules, list.data, &t, NULL);
    if (fused)
        pl_import_miss(im, &t, "an adapter for each of q, k and v there, for all three here");
    if (has_mlp) pl_import_inert(im, &mlp, "lora_target_modules says it");
    if (has_head) pl_import_inert(im, &head, "lora_target_modules says it");
    pl_text_finish(&list);
}

static void rule_betas(struct pl_import *im) {
    struct pl_taken t;
    uint32_t i = 0;
    if (!pl_import_take(im, "optimizer.betas", &t)) return;
    const struct pl_node *first = pl_import_next(im, t.value, &i);
    const struct pl_node *second = first ? pl_import_next(im, t.value, &i) : NULL;
    if (t.value->kind != PL_NODE_SEQUENCE || !second) {
        pl_import_miss(im, &t, "no list of two");
        return;
    }
    pl_import_set(im, PL_KEY_adam_beta1, pl_node_text(first), &t, NULL);
    pl_import_set(im, PL_KEY_adam_beta2, pl_node_text(second), &t, NULL);
}

/* The reference of an adapter is the base; that of a model is read from a checkpoint, which is one
 * of the base as a rule. */
static void rule_preferences(struct pl_import *im) {
    struct pl_taken start, reference, of;
    const bool has = pl_import_take(im, "ref_checkpointer", &of);
    const bool same = pl_import_peek(im, "checkpointer.checkpoint_dir", &start) &&
                      pl_import_peek(im, "ref_checkpointer.checkpoint_dir", &reference) &&
                      !strcmp(pl_node_text(start.value), pl_node_text(reference.value));
    pl_rule_smoothing(im, "loss.label_smoothing", false);
    if (im->job.stage == PL_STAGE_SIMPO && !pl_import_has(im, PL_KEY_beta))
        pl_import_set(im, PL_KEY_beta, "2", NULL, NULL);
    if (has && (!pl_job_refers(&im->job) || im->job.mode != PL_MODE_FULL))
        pl_import_inert(im, &of, "the base is the reference, or there is none");
    else if (has && same)
        pl_import_inert(im, &of, "the reference is what the run starts with, as here");
    else if (has)
        pl_import_miss(im, &of,
                       "a reference other than the base and the start of the run: not supported");
}

/* Without a length nothing is cut there: a row that is longer ends the run here, and is not cut
 * silently. */
static void rule_length(struct pl_import *im) {
    if (pl_import_has(im, PL_KEY_max_seq_length)) return;
    pl_import_set(im, PL_KEY_overlength, "error", NULL,
                  "no row is cut there: raise `max_seq_length` where one is longer");
}

static void rule_decay(struct pl_import *im) {
    if (im->job.mode == PL_MODE_FULL && im->job.weight_decay > 0 &&
        im->job.optimizer != PL_OPTIMIZER_SGD)
        pl_import_miss(im, NULL, "weight_decay: norms decay there, too, and never here");
}

/* ---- data ---- */

/* Tokenizers that put a message between tokens of a turn whatever the prompt template is, and the
 * template of ours that has the same turns. Gemma's puts none. */
static const struct turns {
    const char *tokenizer, *chat_template;
} turns[] = {
    {"llama3_tokenizer", "llama3"},   {"llama2_tokenizer", "llama2"},
    {"mistral_tokenizer", "mistral"}, {"qwen2_tokenizer", "chatml"},
    {"qwen2_5_tokenizer", "chatml"},
};

static const char *tokenizer_of(const struct pl_import *im) {
    struct pl_taken t;
    return pl_import_peek(im, "tokenizer._component_", &t) ? component_name(&t) : "";
}

static void set_turns(struct pl_import *im, const struct pl_taken *t) {
    const char *name = tokenizer_of(im);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        if (strcmp(turns[i].tokenizer, name) == 0) {
            pl_import_set(im, PL_KEY_chat_template, turns[i].chat_template, NULL,
                          "the turns of its tokenizer");
            return;
        }
    pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                         "the turns of its tokenizer: the model's own template is taken; compare "
                         "`plimsoll tokenize job.yaml --show 3`");
}

#define IN_TURN                                                                                    \
    "the prompt is a turn of the model's template there, and plain text here: compare "            \
    "`plimsoll tokenize job.yaml --show 3`"
#define STACK_EXCHANGE "stack_exchange_paired_dataset"

/* A prompt that is made of columns: its text with names of torchtune's in braces, for rows with
 * and without an input, and the columns that these names stand for. */
struct prompt {
    const char *text, *without; /* without NULL: the text is for all rows */
    const char *instruction, *input, *output;
};

#define TASK  "Below is an instruction that describes a task"
#define WRITE ". Write a response that appropriately completes the request.\n\n### Instruction:\n"
static const struct prompt alpaca = {
    TASK ", paired with an input that provides further context" WRITE
         "{instruction}\n\n### Input:\n{input}\n\n### Response:\n",
    TASK WRITE "{instruction}\n\n### Response:\n", "instruction", "input", "output"};
static const struct prompt alone = {"{input}", NULL, NULL, "input", "output"};
static const struct prompt dialogue = {"{input}", NULL, NULL, "dialogue", "summary"};

static const struct builder {
    const char *name, *source, *format; /* source: where the builder has its rows; NULL: given */
    bool trains_prompt;                 /* unless train_on_input says otherwise */
    const struct prompt *prompt;        /* a message, which a tokenizer may mark; NULL: none */
} builders[] = {
    {"alpaca_dataset", "tatsu-lab/alpaca", NULL, true, &alpaca},
    {"alpaca_cleaned_dataset", "yahma/alpaca-cleaned", NULL, true, &alpaca},
    {"chat_dataset", NULL, "messages", false, NULL},
    {"text_completion_dataset", NULL, "text", true, NULL},
    {"wikitext_dataset", "EleutherAI/wikitext_document_level", "text", true, NULL},
    {"cnn_dailymail_articles_dataset", "ccdv/cnn_dailymail", "text", true, NULL},
    {"slimorca_dataset", "Open-Orca/SlimOrca-Dedup", "sharegpt", false, NULL},
    {"instruct_dataset", NULL, NULL, false, &alone},
    {"grammar_dataset", "liweili/c4_200m", NULL, false, &alone},
    {"samsum_dataset", "Samsung/samsum", NULL, false, &dialogue},
    {"preference_dataset", NULL, "preference", false, NULL},
    {"hh_rlhf_helpful_dataset", "RLHFlow/HH-RLHF-Helpful-standard", "preference", false, NULL},
    {STACK_EXCHANGE, "lvwerra/stack-exchange-paired", "preference", false, NULL},
};

static bool is_of(const struct builder *b, const char *format) {
    return b->format && strcmp(b->format, format) == 0;
}

/* Tokenizers of other models put a message between tokens of a turn. */
static bool marks_turns(const struct pl_import *im) {
    return strcmp(tokenizer_of(im), "gemma_tokenizer") != 0;
}

/* The column that `column_map` gives a name; without the map it is `usual`. */
static const char *column_of(const struct pl_import *im, const struct pl_node *map,
                             const char *name, const char *usual) {
    const struct pl_node *column = map ? pl_import_in(im, map, name) : NULL;
    return column ? pl_node_text(column) : map ? "" : usual;
}

static void add_format(struct pl_import *im, const char *key, const char *text,
                       const char *instruction, const char *given) {
    struct pl_text out = {0};
    for (const char *brace; (brace = strchr(text, '{')); text = strchr(brace, '}') + 1) {
        pl_text_addn(&out, text, (size_t)(brace - text));
        pl_text_addf(&out, "{%s}", brace[3] == 's' ? instruction : given);
    }
    pl_text_add(&out, text);
    im->data.failed |= out.failed;
    pl_data_word(im, key, pl_text_str(&out));
    pl_text_finish(&out);
}

static void write_prompt(struct pl_import *im, const struct pl_node *map, const struct prompt *p) {
    const char *key = marks_turns(im) ? "question_format" : "prompt_format";
    const char *instruction =
        p->instruction ? column_of(im, map, "instruction", p->instruction) : "";
    const char *given = column_of(im, map, "input", p->input);
    if (*given) add_format(im, key, p->text, instruction, given);
    if (p->without)
        add_format(im, *given ? "no_input_format" : key, p->without, instruction, given);
    pl_data_word(im, "field_output", column_of(im, map, "output", p->output));
}

static const struct builder *find_builder(const char *component) {
    const char *dot = strrchr(component, '.'), *name = dot ? dot + 1 : component;
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
        if (strcmp(builders[i].name, name) == 0) return &builders[i];
    return NULL;
}

/* True for pairs whose prompt is a string, which is a message there. */
static bool asks(const struct builder *b) {
    return strcmp(b->name, STACK_EXCHANGE) == 0;
}

/* Names of columns; those of pairs with a prompt differ from ours. */
static void read_preferences(struct pl_import *im, const struct pl_node *map, bool has_prompt) {
    static const struct {
        const char *theirs, *ours, *preset;
    } fields[] = {{"prompt", "field_prompt", "question"},
                  {"chosen", "field_chosen", "response_j"},
                  {"rejected", "field_rejected", "response_k"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const struct pl_node *name = map ? pl_import_in(im, map, fields[i].theirs) : NULL;
        if (name)
            pl_data_word(im, fields[i].ours, pl_node_text(name));
        else if (has_prompt && !map)
            pl_data_word(im, fields[i].ours, fields[i].preset);
    }
}

static void read_columns(struct pl_import *im, const struct pl_node *entry,
                         const struct builder *b) {
    const struct pl_node *style = pl_import_in(im, entry, "conversation_style");
    const struct pl_node *messages = pl_import_in(im, entry, "conversation_column");
    const struct pl_node *column = pl_import_in(im, entry, "column");
    const struct pl_node *map = pl_import_in(im, entry, "column_map");
    const bool shares = style && strcmp(pl_node_text(style), "sharegpt") == 0;
    if (!b) return;
    if (b->prompt) write_prompt(im, map, b->prompt);
    if (b->format) pl_data_word(im, "format", shares ? "sharegpt" : b->format);
    if (is_of(b, "preference")) read_preferences(im, map, asks(b));
    if (messages) pl_data_word(im, "field_messages", pl_node_text(messages));
    if (column && is_of(b, "text")) pl_data_word(im, "field_text", pl_node_text(column));
}

/* True if the rows are conversations, or become some. */
static bool has_turns(const struct pl_import *im, const struct builder *b) {
    return is_of(b, "messages") || is_of(b, "sharegpt") || (is_of(b, "preference") && !asks(b)) ||
           (b->prompt && marks_turns(im));
}

/* `file` is one of the files of its source; NULL: the source is the name of a data set. */
static void read_rows(struct pl_import *im, const struct pl_node *entry, const struct pl_taken *t,
                      const char *split, const char *file) {
    const struct pl_node *component = pl_import_in(im, entry, "_component_");
    const struct pl_node *source = pl_import_in(im, entry, "source");
    const struct pl_node *part = pl_import_in(im, entry, "split");
    const struct pl_node *input = pl_import_in(im, entry, "train_on_input");
    const struct builder *b = find_builder(component ? pl_node_text(component) : "");
    bool whole = b && b->trains_prompt;
    pl_data_begin(im, t,
                  file             ? file
                  : source         ? pl_node_text(source)
                  : b && b->source ? b->source
                                   : "");
    read_columns(im, entry, b);
    if (!b)
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, "rows of %.80s: not supported",
                             component ? pl_node_text(component) : "no component");
    else if (asks(b) && marks_turns(im))
        pl_import_note_entry(im, PL_IMPORT_MISSED, t, IN_TURN);
    if (b && has_turns(im, b)) set_turns(im, t);
    pl_data_split(im, t, split, part ? pl_node_text(part) : "");
    if (pl_import_in(im, entry, "new_system_prompt"))
        pl_import_note_entry(im, PL_IMPORT_MISSED, t,
                             "new_system_prompt: a system prompt before each row: write it into "
                             "the rows");
    pl_data_end(im);
    if (input) pl_node_flag(input, &whole);
    if (b && !split && !is_of(b, "text"))
        pl_import_set(im, PL_KEY_train_on, whole ? "all" : "responses", input ? t : NULL, NULL);
}

/* One entry for each of its files. */
static void read_source(struct pl_import *im, const struct pl_node *entry, const struct pl_taken *t,
                        const char *split) {
    const struct pl_node *files = pl_import_in(im, entry, "data_files");
    uint32_t i = 0;
    if (!files || files->kind == PL_NODE_SCALAR)
        read_rows(im, entry, t, split, files ? pl_node_text(files) : NULL);
    else
        for (const struct pl_node *file; (file = pl_import_next(im, files, &i));)
            read_rows(im, entry, t, split, pl_node_text(file));
}

static void rule_data(struct pl_import *im) {
    struct pl_taken t, every, packed;
    uint32_t i = 0;
    const bool several = pl_import_peek(im, "dataset", &t) && t.value->kind == PL_NODE_SEQUENCE;
    if (pl_import_peek(im, "dataset.packed|dataloader.packed", &packed)) {
        const struct pl_import_row row = {"", PL_KEY_packing, pl_map_flag, NULL, NULL};
        pl_map_flag(im, &row, &packed);
    }
    if (pl_import_take(im, "dataset", &t) && !several) read_source(im, t.value, &t, NULL);
    for (const struct pl_node *item; several && (item = pl_import_next(im, t.value, &i));)
        if (item->kind == PL_NODE_MAPPING) read_source(im, item, &t, NULL);
    if (!pl_import_take(im, "dataset_val", &t)) return;
    if (pl_import_peek(im, "run_val_every_n_steps", &every))
        read_source(im, t.value, &t, "eval");
    else
        pl_import_inert(im, &t, "run_val_every_n_steps is not given, so it is not evaluated there");
}

const struct pl_dialect pl_dialect_torchtune = {
    .tables = (const struct pl_import_row *const[]){rows, NULL},
    .rules = (void (*const[])(struct pl_import *)){rule_targets, rule_betas, rule_preferences,
                                                   rule_length, rule_decay, rule_data, NULL},
    .interpolates = true,
};
