/* rules.c - what several keys of theirs decide together, for the trainers that stand on
 * transformers. Defaults are those of TrainingArguments of transformers 5.x (training_args.py). */
#include "estimator/import/dialect.h"

#include <stdio.h>
#include <string.h>

/* ---- learning rate ---- */

static void set_number(struct pl_import *im, enum pl_key_id key, double v, const struct pl_taken *t,
                       const char *why) {
    char text[40];
    snprintf(text, sizeof text, "%.9g", v);
    pl_import_set(im, key, text, t, why);
}

/* warmup_steps wins where it is above 0; since transformers 5 a value below 1 is a share. */
void pl_rule_warmup(struct pl_import *im) {
    struct pl_taken steps, ratio;
    double v = 0, share = 0;
    const bool has_steps = pl_import_take(im, "warmup_steps|training.warmup_steps", &steps);
    const bool has_ratio = pl_import_take(im, "warmup_ratio", &ratio);
    if (has_steps && !pl_node_number(steps.value, &v)) pl_import_miss(im, &steps, "no number");
    if (has_ratio && !pl_node_number(ratio.value, &share)) pl_import_miss(im, &ratio, "no number");
    if (has_steps && v > 0) {
        if (has_ratio) pl_import_inert(im, &ratio, "warmup_steps is given, too, and wins there");
        set_number(im, v < 1 ? PL_KEY_warmup_ratio : PL_KEY_warmup_steps, v, &steps, NULL);
    } else if (has_ratio) {
        if (has_steps) pl_import_inert(im, &steps, "warmup_ratio is given, too");
        set_number(im, PL_KEY_warmup_ratio, share, &ratio, NULL);
    } else if (has_steps) {
        pl_import_set(im, PL_KEY_warmup_steps, "0", &steps, NULL);
    } else if (im->from == PL_RECIPE_AXOLOTL) { /* core/builders/base.py */
        pl_import_set(im, PL_KEY_warmup_ratio, "0.03", NULL, "there at most 100 steps");
    } else if (im->from != PL_RECIPE_UNSLOTH) {
        pl_import_set(im, PL_KEY_warmup_steps, "0", NULL, NULL);
    }
}

static const struct pl_word schedules[] = {
    {"linear", "linear", NULL},
    {"cosine", "cosine", NULL},
    {"constant", "constant", NULL},
    {"constant_with_warmup", "constant_with_warmup", NULL},
    {"cosine_with_min_lr", "cosine_with_min_lr", NULL},
    {"cosine_with_restarts", NULL, "a cosine that starts again: not supported"},
    {"inverse_sqrt", NULL, "a rate that falls with the root of the steps: not supported"},
    {"polynomial", NULL, "a polynomial decay: not supported"},
    {"one_cycle", NULL, "one cycle: not supported"},
    {"rex", NULL, "the schedule REX: not supported"},
    {"reduce_lr_on_plateau", NULL, "a rate that follows the evaluation: not supported"},
    {"warmup_stable_decay", NULL, "a stable part before the decay: not supported"},
    PL_WORDS_END,
};

static void set_lowest(struct pl_import *im, const struct pl_taken *t, double ratio) {
    if (pl_import_set(im, PL_KEY_lr_scheduler, "cosine_with_min_lr", t, NULL))
        set_number(im, PL_KEY_min_lr_ratio, ratio, t, NULL);
}

/* Arguments of the schedule: the lowest rate, or its share of the peak. */
static void read_arguments(struct pl_import *im, const struct pl_taken *t) {
    double lowest = 0, peak = 0;
    struct pl_taken lr;
    const struct pl_node *rate = pl_import_in(im, t->value, "min_lr_rate");
    const struct pl_node *min = pl_import_in(im, t->value, "min_lr");
    if (t->value->kind == PL_NODE_MAPPING && !t->value->n) {
        pl_import_inert(im, t, "empty");
    } else if (t->value->n != 2 || !(rate || min)) {
        pl_import_miss(im, t, "arguments of the schedule other than the lowest rate");
    } else if (rate && pl_node_number(rate, &lowest)) {
        set_lowest(im, t, lowest);
    } else if (min && pl_node_number(min, &lowest) && pl_import_peek(im, "learning_rate", &lr) &&
               pl_node_number(lr.value, &peak) && peak > 0) {
        set_lowest(im, t, lowest / peak);
    } else {
        pl_import_miss(im, t, "a lowest rate that is no number, or has no peak to compare with");
    }
}

void pl_rule_schedule(struct pl_import *im) {
    static const struct pl_import_row row = {"", PL_KEY_lr_scheduler, pl_map_word, schedules, NULL};
    struct pl_taken t;
    double v;
    if (pl_import_take(im, "lr_scheduler_type|lr_scheduler", &t)) pl_map_word(im, &row, &t);
    if (pl_import_take(im, "lr_scheduler_kwargs", &t)) read_arguments(im, &t);
    if (pl_import_take(im, "cosine_min_lr_ratio", &t)) {
        if (pl_node_number(t.value, &v))
            set_lowest(im, &t, v);
        else
            pl_import_miss(im, &t, "no number");
    }
}

const struct pl_word pl_words_optimizer[] = {
    {"adamw_torch", "adamw", NULL},
    {"adamw_torch_fused", "adamw", NULL},
    {"adamw_hf", "adamw", NULL},
    {"adamw_apex_fused", "adamw", NULL},
    {"paged_adamw", "adamw", "states are planned, not paged"},
    {"paged_adamw_32bit", "adamw", "states are planned, not paged"},
    {"adamw", "adamw", NULL},
    {"adamw_bnb_8bit", "adamw_8bit", NULL},
    {"adamw_8bit", "adamw_8bit", NULL},
    {"paged_adamw_8bit", "adamw_8bit", "states are planned, not paged"},
    {"sgd", "sgd", NULL},
    {"lion", "lion", NULL},
    {"lion_32bit", "lion", NULL},
    {"lion_pytorch", "lion", NULL},
    {"paged_lion_32bit", "lion", "states are planned, not paged"},
    {"lion_8bit", NULL, "Lion with states in 8 bits: not supported; `lion` has them in fp32"},
    {"adafactor", NULL, "Adafactor: not supported; `adamw_8bit` has small states, too"},
    {"adamw_torch_8bit", NULL, "torchao's states in 8 bits: not supported; see `adamw_8bit`"},
    {"adamw_torch_4bit", NULL, "states in 4 bits: not supported; see `adamw_8bit`"},
    {"muon", NULL, "Muon: not supported"},
    {"rmsprop", NULL, "RMSprop: not supported"},
    {"schedule_free_adamw", NULL, "schedule-free AdamW: not supported"},
    PL_WORDS_END,
};

/* ---- what is written and evaluated, and when ---- */

/* Returns the word of a strategy; a bare `no` is false in YAML 1.1. */
static const char *strategy_of(const struct pl_taken *t) {
    bool flag;
    if (pl_node_flag(t->value, &flag) && !flag) return "no";
    return pl_node_text(t->value);
}

#define BY_EPOCH                                                                                   \
    "once an epoch, whose steps the data gives: write `%s: N`; nothing that is learned depends "   \
    "on it"

void pl_rule_checkpoints(struct pl_import *im) {
    static const struct pl_import_row row = {"", PL_KEY_save_steps, pl_map_steps, NULL, NULL};
    struct pl_taken t, steps;
    const bool has = pl_import_take(im, "save_strategy", &t);
    const char *strategy = has ? strategy_of(&t) : "steps";
    const bool has_steps = pl_import_take(im, "save_steps|training.save_steps", &steps);
    if (has && strcmp(strategy, "epoch") == 0) pl_import_inert(im, &t, BY_EPOCH, "save_steps");
    if (has && strcmp(strategy, "no") == 0) pl_import_set(im, PL_KEY_save_steps, "0", &t, NULL);
    if (has && strcmp(strategy, "best") == 0) pl_import_inert(im, &t, "no checkpoint is chosen");
    if (strcmp(strategy, "steps") != 0) {
        if (has_steps) pl_import_inert(im, &steps, "save_strategy is not `steps`");
        return;
    }
    if (has) pl_import_inert(im, &t, "save_steps says it");
    if (has_steps)
        pl_map_steps(im, &row, &steps);
    else if (im->from == PL_RECIPE_TRL || im->from == PL_RECIPE_LLAMA_FACTORY)
        pl_import_set(im, PL_KEY_save_steps, "500", NULL, NULL);
}

/* Evaluations choose a checkpoint, or end a run, where their steps and those of checkpoints are
 * known. Those of an epoch depend on the data. */
static void choose_checkpoint(struct pl_import *im) {
    static const struct {
        const char *paths;
        enum pl_key_id key;
        bool saves;
        const char *what;
    } rows[] = {
        {"load_best_model_at_end", PL_KEY_load_best_model_at_end, true,
         "the best checkpoint as the result"},
        {"early_stopping_patience|early_stopping_steps", PL_KEY_early_stopping_patience, false,
         "an end before the last step"},
        {"early_stopping_threshold", PL_KEY_early_stopping_threshold, false,
         "an end before the last step"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pl_taken t;
        if (!pl_import_take(im, rows[i].paths, &t)) continue;
        if (!pl_node_is_on(t.value))
            pl_import_inert(im, &t, "off, as here");
        else if (pl_import_has(im, PL_KEY_eval_steps) &&
                 (!rows[i].saves || pl_import_has(im, PL_KEY_save_steps)))
            pl_import_set(im, rows[i].key, pl_node_text(t.value), &t, NULL);
        else
            pl_import_miss(im, &t, "%s: write it together with `eval_steps: N`%s", rows[i].what,
                           rows[i].saves ? " and `save_steps: N`" : "");
    }
}

void pl_rule_evaluation(struct pl_import *im) {
    static const struct pl_import_row row = {"", PL_KEY_eval_steps, pl_map_steps, NULL, NULL};
    struct pl_taken t, steps;
    const bool has = pl_import_take(im, "eval_strategy|evaluation_strategy", &t);
    const char *strategy = has ? strategy_of(&t) : "";
    const bool has_steps = pl_import_take(im, "eval_steps|training.eval_steps", &steps);
    if (strcmp(strategy, "epoch") == 0)
        pl_import_inert(im, &t, BY_EPOCH, "eval_steps");
    else if (has)
        pl_import_inert(im, &t,
                        strcmp(strategy, "no") == 0
                            ? "where there is evaluation data, it is done at the end"
                            : "eval_steps says it");
    if (has_steps && (!has || strcmp(strategy, "steps") == 0))
        pl_map_steps(im, &row, &steps);
    else if (has_steps)
        pl_import_inert(im, &steps, "the strategy is not `steps`");
    choose_checkpoint(im);
}

/* Reports go to files here, whatever else is asked for. */
void pl_rule_reports(struct pl_import *im) {
    struct pl_taken t;
    bool board = false, other = false, flag;
    uint32_t i = 0;
    if (!pl_import_take(im, "report_to", &t)) return;
    const struct pl_node *item = t.value->kind == PL_NODE_SEQUENCE ? NULL : t.value;
    if (!item) item = pl_import_next(im, t.value, &i);
    for (; item; item = i ? pl_import_next(im, t.value, &i) : NULL) {
        const char *word = pl_node_text(item);
        board |= strcmp(word, "tensorboard") == 0 || strcmp(word, "all") == 0;
        other |= strcmp(word, "tensorboard") != 0 && strcmp(word, "none") != 0 &&
                 !(pl_node_flag(item, &flag) && !flag);
    }
    if (board)
        pl_import_set(im, PL_KEY_report_to, "[jsonl, tensorboard]", &t,
                      other ? "nothing is sent anywhere" : NULL);
    else
        pl_import_inert(im, &t, "nothing is sent anywhere; train_log.jsonl is written");
}

/* ---- several devices ---- */

static const char *const stages[] = {"none", "optimizer", "gradients", "weights"};

static void set_sharding(struct pl_import *im, const struct pl_taken *t, const char *what) {
    pl_import_set(im, PL_KEY_devices, "auto", t,
                  "how many GPUs is said by the launcher there: write `devices: N`");
    pl_import_set(im, PL_KEY_sharding, what, t, NULL);
}

/* The stage in the file that `deepspeed` names; -1: it cannot be read. */
static int stage_in_file(struct pl_import *im, const char *path) {
    int stage = -1;
    json_t *root = pl_import_json_beside(im, path);
    const json_t *zero = json_object_get(root, "zero_optimization");
    const json_t *is = json_object_get(zero, "stage");
    if (root && !zero) stage = 0;
    if (json_is_integer(is) && json_integer_value(is) >= 0 && json_integer_value(is) <= 3)
        stage = (int)json_integer_value(is);
    json_decref(root);
    return stage;
}

/* Published files are called zero3.json, ds_z3_config.json, zero3_bf16.json and the like. */
static int stage_in_name(const char *path) {
    const char *slash = strrchr(path, '/');
    for (const char *c = slash ? slash : path; *c; c++)
        if (*c == 'z' || *c == 'Z') {
            const char *digit = c + 1 + (strncmp(c + 1, "ero", 3) == 0 ? 3 : 0);
            if (*digit == '_') digit++;
            if (*digit >= '0' && *digit <= '3') return *digit - '0';
        }
    return -1;
}

static void read_deepspeed(struct pl_import *im, const struct pl_taken *t) {
    double v = -1;
    const char *path = pl_node_text(t->value);
    const struct pl_node *zero = pl_import_in(im, t->value, "zero_optimization");
    const struct pl_node *given =
        pl_import_in(im, zero ? zero : t->value, zero ? "stage" : "zero_stage");
    int stage = -1;
    if (given && pl_node_number(given, &v) && v >= 0 && v <= 3) stage = (int)v;
    if (stage < 0 && *path) stage = stage_in_file(im, path);
    if (stage < 0 && *path) stage = stage_in_name(path);
    if (stage < 0)
        pl_import_inert(im, t,
                        "its stage is not known: write `devices: N` and `sharding`; "
                        "nothing that is learned depends on it");
    else
        set_sharding(im, t, stages[stage]);
}

static void read_fsdp(struct pl_import *im, const struct pl_taken *t) {
    struct pl_taken how;
    const char *word = "";
    if (pl_import_peek(im,
                       "fsdp_config.sharding_strategy|fsdp_config.fsdp_sharding_strategy|"
                       "fsdp_config.reshard_after_forward|fsdp_config.fsdp_reshard_after_forward",
                       &how))
        word = pl_node_text(how.value);
    const bool kept = strcmp(word, "SHARD_GRAD_OP") == 0 || strcmp(word, "false") == 0 ||
                      strstr(pl_node_text(t->value), "shard_grad_op");
    set_sharding(im, t, kept ? "gradients" : "weights");
}

void pl_rule_devices(struct pl_import *im) {
    struct pl_taken t, config;
    const bool speed = pl_import_take(im, "deepspeed|deepspeed_config", &t);
    if (speed && pl_node_is_on(t.value)) read_deepspeed(im, &t);
    const bool fsdp = pl_import_take(im, "fsdp", &t) && pl_node_is_on(t.value);
    const bool has_config = pl_import_take(im, "fsdp_config", &config) && config.value->n;
    if (fsdp)
        read_fsdp(im, &t);
    else if (has_config)
        read_fsdp(im, &config);
    if (fsdp && has_config) pl_import_inert(im, &config, "`sharding` says what is divided");
}

void pl_import_pure_bf16(struct pl_import *im, const struct pl_taken *t) {
    static const char why[] = "bf16 alone, without a copy in fp32";
    pl_import_set(im, PL_KEY_dtype, "bf16", t, NULL);
    if (im->job.mode != PL_MODE_FULL) return;
    pl_import_set(im, PL_KEY_master_weights, "false", t, why);
    pl_import_set(im, PL_KEY_gradient_dtype, "bf16", t, why);
    if (im->job.optimizer == PL_OPTIMIZER_ADAMW || im->job.optimizer == PL_OPTIMIZER_LION)
        pl_import_set(im, PL_KEY_moment_dtype, "bf16", t, why);
}

/* ---- the keys of Trainer that stand alone ---- */

static const struct pl_word levels[] = {
    {"true", "full", NULL},
    {"false", "none", NULL},
    {"unsloth", "offload", NULL},
    {"offload", "offload", NULL},
    {"offload_disk", "offload", "to host memory, not to the disk"},
    {"legacy", "offload", NULL},
    {"none", "none", NULL},
    PL_WORDS_END,
};

static const struct pl_word metrics[] = {
    {"loss", "loss", NULL},
    {"eval_loss", "loss", NULL},
    {"accuracy", "accuracy", "of the tokens that are trained on"},
    {"eval_accuracy", "accuracy", "of the tokens that are trained on"},
    {"perplexity", "perplexity", NULL},
    PL_WORDS_END,
};

const struct pl_import_row pl_rows_of_trainer[] = {
    {"model_name_or_path", PL_KEY_model, pl_map_same, NULL, NULL},
    {"model_revision", PL_KEY_COUNT, pl_map_only,
     "main|the weights of another revision; fetch them with `hf download MODEL --revision NAME "
     "--local-dir DIR`, and write that directory as `model`",
     NULL},
    {"output_dir", PL_KEY_output_dir, pl_map_same, NULL, NULL},
    {"overwrite_output_dir", PL_KEY_COUNT, pl_map_inert,
     "a run continues from the checkpoint in output_dir; `resume: never` starts over", NULL},
    {"resume_from_checkpoint", PL_KEY_COUNT, pl_map_off, "to continue a run of another trainer",
     NULL},
    {"auto_resume_from_checkpoints", PL_KEY_COUNT, pl_map_inert, "as here", NULL},
    {"learning_rate", PL_KEY_learning_rate, pl_map_same, NULL, NULL},
    {"weight_decay", PL_KEY_weight_decay, pl_map_same, NULL, NULL},
    {"adam_beta1", PL_KEY_adam_beta1, pl_map_same, NULL, NULL},
    {"adam_beta2", PL_KEY_adam_beta2, pl_map_same, NULL, NULL},
    {"adam_epsilon|adam_eps", PL_KEY_adam_epsilon, pl_map_same, NULL, NULL},
    {"max_grad_norm", PL_KEY_max_grad_norm, pl_map_same, NULL, NULL},
    {"optim|optimizer", PL_KEY_optimizer, pl_map_word, pl_words_optimizer, NULL},
    {"optim_args", PL_KEY_COUNT, pl_map_off, "arguments of the optimizer", NULL},
    {"max_steps", PL_KEY_max_steps, pl_map_steps, NULL, NULL},
    {"logging_steps", PL_KEY_logging_steps, pl_map_steps, NULL, NULL},
    {"logging_strategy", PL_KEY_COUNT, pl_map_inert, "logging_steps says it", NULL},
    {"save_total_limit", PL_KEY_save_total_limit, pl_map_same, NULL, NULL},
    {"seed", PL_KEY_seed, pl_map_same, NULL, NULL},
    {"data_seed", PL_KEY_COUNT, pl_map_inert, "`seed` fixes the order, too", NULL},
    {"run_name", PL_KEY_run_name, pl_map_same, NULL, NULL},
    {"gradient_checkpointing", PL_KEY_gradient_checkpointing, pl_map_word, levels,
     "auto|none there; it changes no bit"},
    {"lora_dropout", PL_KEY_lora_dropout, pl_map_same, NULL, NULL},
    {"lora_alpha", PL_KEY_lora_alpha, pl_map_same, NULL, NULL},
    {"use_rslora|peft_use_rslora", PL_KEY_use_rslora, pl_map_flag, NULL, NULL},
    {"group_by_length", PL_KEY_COUNT, pl_map_off, "batches of rows of one length", NULL},
    {"use_dora|peft_use_dora", PL_KEY_COUNT, pl_map_off, "DoRA", NULL},
    {"neftune_noise_alpha", PL_KEY_COUNT, pl_map_off, "NEFTune, noise on the embeddings", NULL},
    {"label_smoothing_factor", PL_KEY_COUNT, pl_map_off, "label smoothing", NULL},
    {"metric_for_best_model", PL_KEY_metric_for_best_model, pl_map_word, metrics, NULL},
    {"greater_is_better", PL_KEY_COUNT, pl_map_inert, "it follows from `metric_for_best_model`",
     NULL},
    {"use_tensorboard", PL_KEY_COUNT, pl_map_inert, "write `report_to: [jsonl, tensorboard]`",
     NULL},
    {"activation_offloading", PL_KEY_gradient_checkpointing, pl_map_word,
     (const struct pl_word[]){
         {"true", "offload", NULL}, {"false", "", NULL}, {"legacy", "offload", NULL}, PL_WORDS_END},
     NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};
