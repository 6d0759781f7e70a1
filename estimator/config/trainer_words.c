#include "estimator/config/trainer_words.h"

#include <string.h>

#define TYPE_LINE                                                                                  \
    "`dtype: bf16`, `dtype: fp16` or `dtype: fp32`, or remove the line: `auto` is bf16 where the " \
    "device has it"
#define NOTHING_SENT                                                                               \
    "nothing is sent anywhere: remove the line, or import train_log.jsonl afterwards"
#define NO_EFFECT "there is nothing to set here: remove the line"

static const struct {
    const char *name, *hint;
} keys[] = {
    {"min_lr",
     "write `lr_scheduler: cosine_with_min_lr` and `min_lr_ratio: X`, where X is min_lr / "
     "learning_rate: 0.005 for 1e-6 of 2e-4"},
    {"cosine_min_lr_ratio", "write `lr_scheduler: cosine_with_min_lr` and `min_lr_ratio: X`"},
    {"min_lr_rate", "write `lr_scheduler: cosine_with_min_lr` and `min_lr_ratio: X`"},
    {"lr_scheduler_kwargs", "min_lr_rate is `min_lr_ratio: X` with `lr_scheduler: "
                            "cosine_with_min_lr`; other arguments are not supported"},
    {"save_strategy", "write `save_steps: N` for a checkpoint every N steps, or remove the line: "
                      "the finished model is always saved"},
    {"saves_per_epoch", "write `save_steps: N` for a checkpoint every N steps"},
    {"eval_strategy", "write `eval_steps: N` to evaluate every N steps, or remove the line: with "
                      "evaluation data it is done at the end"},
    {"evaluation_strategy", "write `eval_steps: N` to evaluate every N steps, or remove the line: "
                            "with evaluation data it is done at the end"},
    {"evals_per_epoch", "write `eval_steps: N` to evaluate every N steps"},
    {"logging_strategy", "write `logging_steps: N` to log every N steps, or remove the line: every "
                         "step is logged"},
    {"logging_first_step", "remove the line: with `logging_steps: 1`, the default, it is logged"},
    {"greater_is_better", "it follows from `metric_for_best_model`: remove the line"},
    {"early_stopping_steps", "write `early_stopping_patience: N`"},
    {"bf16", "write " TYPE_LINE},
    {"fp16", "write " TYPE_LINE},
    {"tf32", "products are as exact as `dtype` says: remove the line"},
    {"torch_dtype", "write " TYPE_LINE},
    {"load_in_4bit", "write `mode: qlora`"},
    {"load_in_8bit", "8-bit bases are not supported: write `mode: qlora`, or `mode: lora`"},
    {"bnb_4bit_quant_type", "write `quant_type: nf4`, the default, or `quant_type: fp4`"},
    {"bnb_4bit_use_double_quant", "write `double_quant: true`, the default, or `false`"},
    {"bnb_4bit_compute_dtype",
     "write `compute_dtype: bf16`, `fp16` or `fp32`, or remove the line: it is that of `dtype`"},
    {"use_peft", "write `mode: lora`, or `mode: full` without adapters"},
    {"use_dora", "DoRA is not supported: remove the line"},
    {"lora_bias", "biases are not trained: remove the line"},
    {"lora_target_linear", "write `lora_target_modules: all-linear`, the default"},
    {"lora_target", "write `lora_target_modules: all-linear`, the default, or a list of modules"},
    {"flash_attention", "attention never holds its matrix: remove the line"},
    {"flash_attn", "attention never holds its matrix: remove the line"},
    {"attn_implementation", "attention never holds its matrix: remove the line"},
    {"use_liger_kernel", "write `loss_chunk_tokens: auto`, the default, or remove the line"},
    {"gradient_checkpointing_kwargs", NO_EFFECT},
    {"use_gradient_checkpointing", "write `gradient_checkpointing: full`, or `offload`"},
    {"per_device_eval_batch_size", "evaluation takes `batch_size`: remove the line"},
    {"dataloader_num_workers", NO_EFFECT},
    {"dataloader_pin_memory", NO_EFFECT},
    {"dataloader_drop_last", "no row is dropped: remove the line"},
    {"remove_unused_columns", "columns that are not read are passed over: remove the line"},
    {"group_by_length", "not supported: write `packing: true`, or remove the line"},
    {"neftune_noise_alpha", "not supported: remove the line"},
    {"label_smoothing_factor", "not supported: remove the line"},
    {"deepspeed", "write `devices: N` and `sharding: optimizer`, `gradients` or `weights` (stages "
                  "1, 2 and 3)"},
    {"fsdp", "write `devices: N` and `sharding: weights`"},
    {"fsdp_config", "write `devices: N` and `sharding: weights`"},
    {"distributed", "write `devices: N` and `sharding: optimizer`, `gradients` or `weights`"},
    {"push_to_hub", NOTHING_SENT},
    {"hub_model_id", NOTHING_SENT},
    {"wandb_project", NOTHING_SENT},
    {"use_wandb", NOTHING_SENT},
    {"dataset_text_field", "write `datasets: [{path: FILE, format: text, field_text: NAME}]`"},
    {"dataset_name", "write `datasets: [FILE]`; nothing is downloaded"},
    {"train_file", "write `datasets: [FILE]`"},
    {"packing_strategy", "write `packing: true`: whole samples, best fit"},
    {"train_on_inputs", "write `train_on: responses`, the default, or `train_on: all`"},
    {"completion_only_loss", "write `train_on: responses`, the default, or `train_on: all`"},
    {"assistant_only_loss", "write `train_on: responses`, the default, or `train_on: all`"},
    {"train_on_responses", "write `train_on: responses`, the default, or `train_on: all`"},
    {"data_seed", "write `seed: N`: it fixes the order, too"},
    {"random_state", "write `seed: N`"},
};

const char *pl_trainer_key_hint(const char *name) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0) return keys[i].hint;
    return NULL;
}

/* Shares of all steps are those of transformers: rounded up. */
#define SHARE(key)                                                                                 \
    "a share of all steps is not read here, write their number: a tenth of 1000 steps is `" key    \
    ": 100`"
static const struct {
    enum pl_key_id key;
    enum { SHARE_OF_STEPS, WHOLE, ZERO, NEGATIVE } when;
    const char *hint;
} numbers[] = {
    {PL_KEY_save_steps, SHARE_OF_STEPS, SHARE("save_steps")},
    {PL_KEY_eval_steps, SHARE_OF_STEPS, SHARE("eval_steps")},
    {PL_KEY_logging_steps, SHARE_OF_STEPS, SHARE("logging_steps")},
    {PL_KEY_warmup_steps, SHARE_OF_STEPS,
     "a share of all steps is `warmup_ratio`: write that key "
     "with the same number"},
    {PL_KEY_save_steps, NEGATIVE, "write `save_steps: 0`: only the finished model is saved"},
    {PL_KEY_eval_steps, NEGATIVE, "write `eval_steps: 0`: evaluation at the end"},
    {PL_KEY_logging_steps, ZERO,
     "write `logging_steps: 1`, the default; `report_to: none` writes "
     "no log"},
    {PL_KEY_warmup_steps, NEGATIVE, "write `warmup_steps: 0` for no warm-up"},
    {PL_KEY_save_total_limit, ZERO,
     "to keep every checkpoint write `save_total_limit: 1000000`; "
     "for none write `save_steps: 0`"},
    {PL_KEY_save_total_limit, NEGATIVE,
     "to keep every checkpoint write "
     "`save_total_limit: 1000000`"},
    {PL_KEY_num_epochs, NEGATIVE,
     "for a number of steps write `max_steps: N` and remove "
     "`num_epochs`"},
    {PL_KEY_max_grad_norm, NEGATIVE, "write `max_grad_norm: 0` for no clipping"},
    {PL_KEY_batch_size, NEGATIVE, "write `batch_size: auto`"},
    {PL_KEY_max_seq_length, NEGATIVE, "write the number of tokens, such as `max_seq_length: 2048`"},
    {PL_KEY_freeze_layers, NEGATIVE, "write `freeze_layers: 0` to freeze none"},
    {PL_KEY_threads, NEGATIVE, "write `threads: 0` for every core"},
    {PL_KEY_seed, NEGATIVE, "write a seed from 0, such as `seed: 42`"},
};

const char *pl_trainer_number_hint(enum pl_key_id key, double v) {
    const int when = v < 0 ? NEGATIVE : v == 0 ? ZERO : v < 1 ? SHARE_OF_STEPS : WHOLE;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].key == key && (int)numbers[i].when == when) return numbers[i].hint;
    return NULL;
}

bool pl_trainer_means_unset(enum pl_key_id key, double v) {
    return key == PL_KEY_max_steps && v == -1;
}

static const struct {
    enum pl_key_id key;
    const char *note;
} nulls[] = {
    {PL_KEY_max_grad_norm, "`max_grad_norm: null` is the default, 1; 0 is no clipping"},
    {PL_KEY_save_total_limit,
     "`save_total_limit: null` is the default, 3; 1000000 keeps every checkpoint"},
    {PL_KEY_seed, "`seed: null` is the default, 42, and not a random one"},
};

const char *pl_trainer_null_note(enum pl_key_id key) {
    for (size_t i = 0; i < sizeof nulls / sizeof *nulls; i++)
        if (nulls[i].key == key) return nulls[i].note;
    return NULL;
}
