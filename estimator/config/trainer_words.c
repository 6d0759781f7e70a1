#include "estimator/config/trainer_words.h"

#include <string.h>

#define TYPE_LINE                                                                                  \
    "`dtype: bf16`, `dtype: fp16` or `dtype: fp32`, or remove the line: `auto` is bf16 where the " \
    "device has it"
#define ANSWERS "`train_on: responses`, the default, or `train_on: all`"
#define LEVELS  "`gradient_checkpointing: full`, or `offload`"
#define BY_RATIO                                                                                   \
    "`lr_scheduler: cosine_with_min_lr` and `min_lr_ratio: X`, where X is min_lr / "               \
    "learning_rate: 0.005 for 1e-6 of 2e-4"
#define SHARDED  "`devices: N` and `sharding: optimizer`, `gradients` or `weights` (stages 1, 2, 3)"
#define NOT_SENT "nothing is sent anywhere; train_log.jsonl can be imported afterwards"
#define NO_PART  "there is nothing to set here"
#define NO_BITS  "it says how fast products are computed, not what is learned"
#define PREFERS  "this setting of training on preferences"
#define OWN_LOSS "attention never holds its matrix, and logits are computed in chunks"

/* A name that ends in `*` stands for all that begin so; the first row counts. */
static const struct {
    const char *name;
    struct pl_trainer_key is;
} keys[] = {
    {"min_lr", {PL_TRAINER_WRITE, BY_RATIO}},
    {"cosine_min_lr_ratio", {PL_TRAINER_WRITE, BY_RATIO}},
    {"min_lr_rate", {PL_TRAINER_WRITE, BY_RATIO}},
    {"lr_scheduler_kwargs", {PL_TRAINER_WRITE, BY_RATIO}},
    {"save_strategy", {PL_TRAINER_WRITE, "`save_steps: N` for a checkpoint every N steps"}},
    {"saves_per_epoch", {PL_TRAINER_WRITE, "`save_steps: N` for a checkpoint every N steps"}},
    {"eval_strategy", {PL_TRAINER_WRITE, "`eval_steps: N` to evaluate every N steps"}},
    {"evaluation_strategy", {PL_TRAINER_WRITE, "`eval_steps: N` to evaluate every N steps"}},
    {"evals_per_epoch", {PL_TRAINER_WRITE, "`eval_steps: N` to evaluate every N steps"}},
    {"logging_strategy", {PL_TRAINER_WRITE, "`logging_steps: N` to log every N steps"}},
    {"bf16", {PL_TRAINER_WRITE, TYPE_LINE}},
    {"fp16", {PL_TRAINER_WRITE, TYPE_LINE}},
    {"torch_dtype", {PL_TRAINER_WRITE, TYPE_LINE}},
    {"load_in_4bit", {PL_TRAINER_WRITE, "`mode: qlora`"}},
    {"load_in_8bit",
     {PL_TRAINER_WRITE, "`mode: qlora`, or `mode: lora`: there are no 8-bit bases"}},
    {"bnb_4bit_quant_type", {PL_TRAINER_WRITE, "`quant_type: nf4`, or `fp4`"}},
    {"bnb_4bit_use_double_quant",
     {PL_TRAINER_WRITE, "`double_quant: true`, the default, or `false`"}},
    {"bnb_4bit_compute_dtype", {PL_TRAINER_WRITE, "`compute_dtype: bf16`, `fp16` or `fp32`"}},
    {"early_stopping_steps", {PL_TRAINER_WRITE, "`early_stopping_patience: N`"}},
    {"use_peft", {PL_TRAINER_WRITE, "`mode: lora`, or `mode: full` without adapters"}},
    {"lora_target_linear", {PL_TRAINER_WRITE, "`lora_target_modules: all-linear`, the default"}},
    {"lora_target", {PL_TRAINER_WRITE, "`lora_target_modules: all-linear`, or a list of modules"}},
    {"use_gradient_checkpointing", {PL_TRAINER_WRITE, LEVELS}},
    {"group_by_length", {PL_TRAINER_WRITE, "`packing: true`, or remove the line"}},
    {"deepspeed", {PL_TRAINER_WRITE, SHARDED}},
    {"fsdp", {PL_TRAINER_WRITE, SHARDED}},
    {"fsdp_config", {PL_TRAINER_WRITE, SHARDED}},
    {"distributed", {PL_TRAINER_WRITE, SHARDED}},
    {"dataset_text_field",
     {PL_TRAINER_WRITE, "`datasets: [{path: FILE, format: text, field_text: NAME}]`"}},
    {"dataset_name", {PL_TRAINER_WRITE, "`datasets: [FILE]`; nothing is downloaded"}},
    {"train_file", {PL_TRAINER_WRITE, "`datasets: [FILE]`"}},
    {"max_samples", {PL_TRAINER_WRITE, "`max_samples: N` in an entry of `datasets`"}},
    {"packing_strategy", {PL_TRAINER_WRITE, "`packing: true`: whole samples, best fit"}},
    {"train_on_inputs", {PL_TRAINER_WRITE, ANSWERS}},
    {"completion_only_loss", {PL_TRAINER_WRITE, ANSWERS}},
    {"assistant_only_loss", {PL_TRAINER_WRITE, ANSWERS}},
    {"train_on_responses", {PL_TRAINER_WRITE, ANSWERS}},
    {"data_seed", {PL_TRAINER_WRITE, "`seed: N`: it fixes the order, too"}},
    {"random_state", {PL_TRAINER_WRITE, "`seed: N`"}},

    {"use_dora", {PL_TRAINER_MISSES, "DoRA"}},
    {"peft_use_dora", {PL_TRAINER_MISSES, "DoRA"}},
    {"lora_bias", {PL_TRAINER_MISSES, "training of biases"}},
    {"loraplus_*", {PL_TRAINER_MISSES, "LoRA+, a rate of its own for the B matrices"}},
    {"neftune_noise_alpha", {PL_TRAINER_MISSES, "NEFTune, noise on the embeddings"}},
    {"label_smoothing_factor", {PL_TRAINER_MISSES, "label smoothing"}},
    {"rl", {PL_TRAINER_MISSES, "training on preferences or rewards"}},
    {"rl_*", {PL_TRAINER_MISSES, "training on preferences or rewards"}},
    {"dpo_*", {PL_TRAINER_MISSES, PREFERS}},
    {"kto_*", {PL_TRAINER_MISSES, PREFERS}},
    {"orpo_*", {PL_TRAINER_MISSES, PREFERS}},
    {"simpo_*", {PL_TRAINER_MISSES, PREFERS}},
    {"pref_*", {PL_TRAINER_MISSES, PREFERS}},
    {"ppo_*", {PL_TRAINER_MISSES, "training on rewards"}},
    {"reward_*", {PL_TRAINER_MISSES, "training on rewards"}},
    {"trl", {PL_TRAINER_MISSES, "training on preferences or rewards"}},
    {"vllm", {PL_TRAINER_MISSES, "generation by vLLM during training"}},
    {"qat", {PL_TRAINER_MISSES, "training for a quantised model (QAT)"}},
    {"fp8*", {PL_TRAINER_MISSES, "products in FP8"}},
    {"relora*", {PL_TRAINER_MISSES, "ReLoRA"}},
    {"galore_*", {PL_TRAINER_MISSES, "GaLore"}},
    {"use_galore", {PL_TRAINER_MISSES, "GaLore"}},
    {"use_badam", {PL_TRAINER_MISSES, "BAdam"}},
    {"use_apollo", {PL_TRAINER_MISSES, "APOLLO"}},
    {"use_muon", {PL_TRAINER_MISSES, "Muon"}},
    {"use_adam_mini", {PL_TRAINER_MISSES, "Adam-mini"}},
    {"lisa_*", {PL_TRAINER_MISSES, "LISA"}},
    {"diffusion", {PL_TRAINER_MISSES, "training by diffusion"}},
    {"ebft", {PL_TRAINER_MISSES, "training on rewards"}},
    {"reward_model", {PL_TRAINER_MISSES, "training of a reward model"}},
    {"process_reward_model", {PL_TRAINER_MISSES, "training of a reward model"}},
    {"num_labels", {PL_TRAINER_MISSES, "a classifier"}},
    {"min_sample_len", {PL_TRAINER_MISSES, "leaving out rows that are short"}},
    {"model_quantization_config*", {PL_TRAINER_MISSES, "a base in another form"}},
    {"experts_*", {PL_TRAINER_INERT, NO_BITS}},
    {"expert_*", {PL_TRAINER_INERT, NO_BITS}},
    {"quantize_moe_experts", {PL_TRAINER_INERT, "`mode: qlora` holds experts in 4 bits"}},
    {"use_scattermoe", {PL_TRAINER_INERT, NO_BITS}},
    {"use_sonicmoe", {PL_TRAINER_INERT, NO_BITS}},
    {"use_kt", {PL_TRAINER_MISSES, "experts of KTransformers"}},
    {"kt_*", {PL_TRAINER_MISSES, "experts of KTransformers"}},
    {"oft_*", {PL_TRAINER_MISSES, "OFT"}},
    {"pissa_*", {PL_TRAINER_MISSES, "PiSSA"}},
    {"processor_type", {PL_TRAINER_MISSES, "images, video and sound"}},
    {"image_*", {PL_TRAINER_MISSES, "images"}},
    {"video_*", {PL_TRAINER_MISSES, "video"}},

    {"logging_first_step",
     {PL_TRAINER_INERT, "with `logging_steps: 1`, the default, it is logged"}},
    {"tf32", {PL_TRAINER_INERT, "products are as exact as `dtype` says"}},
    {"flash_attention*", {PL_TRAINER_INERT, OWN_LOSS}},
    {"flash_attn*", {PL_TRAINER_INERT, OWN_LOSS}},
    {"attn_implementation", {PL_TRAINER_INERT, OWN_LOSS}},
    {"sdp_attention", {PL_TRAINER_INERT, OWN_LOSS}},
    {"xformers_attention", {PL_TRAINER_INERT, OWN_LOSS}},
    {"flex_attn*", {PL_TRAINER_INERT, OWN_LOSS}},
    {"use_liger_kernel", {PL_TRAINER_INERT, OWN_LOSS}},
    {"enable_liger_kernel", {PL_TRAINER_INERT, OWN_LOSS}},
    {"use_reentrant_gc", {PL_TRAINER_INERT, NO_PART}},
    {"liger_*", {PL_TRAINER_INERT, OWN_LOSS}},
    {"cut_cross_entropy", {PL_TRAINER_INERT, OWN_LOSS}},
    {"lora_mlp_kernel", {PL_TRAINER_INERT, NO_BITS}},
    {"lora_qkv_kernel", {PL_TRAINER_INERT, NO_BITS}},
    {"lora_o_kernel", {PL_TRAINER_INERT, NO_BITS}},
    {"torch_compile*", {PL_TRAINER_INERT, NO_BITS}},
    {"use_kernels", {PL_TRAINER_INERT, NO_BITS}},
    {"padding_free", {PL_TRAINER_INERT, NO_BITS}},
    {"pad_to_sequence_len", {PL_TRAINER_INERT, "padding is computed nowhere"}},
    {"pad_to_multiple_of", {PL_TRAINER_INERT, "padding is computed nowhere"}},
    {"gradient_checkpointing_kwargs", {PL_TRAINER_INERT, NO_PART}},
    {"average_tokens_across_devices", {PL_TRAINER_INERT, "the loss is the mean over all tokens"}},
    {"per_device_eval_batch_size", {PL_TRAINER_INERT, "evaluation takes `batch_size`"}},
    {"eval_batch_size", {PL_TRAINER_INERT, "evaluation takes `batch_size`"}},
    {"dataloader_drop_last", {PL_TRAINER_INERT, "no row is dropped"}},
    {"dataloader_*", {PL_TRAINER_INERT, NO_PART}},
    {"dataset_num_proc", {PL_TRAINER_INERT, NO_PART}},
    {"dataset_processes", {PL_TRAINER_INERT, NO_PART}},
    {"preprocessing_*", {PL_TRAINER_INERT, NO_PART}},
    {"overwrite_cache", {PL_TRAINER_INERT, NO_PART}},
    {"ddp_*", {PL_TRAINER_INERT, NO_PART}},
    {"local_rank", {PL_TRAINER_INERT, NO_PART}},
    {"use_ray", {PL_TRAINER_INERT, NO_PART}},
    {"ray_*", {PL_TRAINER_INERT, NO_PART}},
    {"accelerator_config", {PL_TRAINER_INERT, NO_PART}},
    {"experimental_skip_move_to_device", {PL_TRAINER_INERT, NO_PART}},
    {"fused_attn_kernel", {PL_TRAINER_INERT, NO_BITS}},
    {"tiled_mlp*", {PL_TRAINER_INERT, "`mlp_chunk_tokens` cuts an MLP into parts"}},
    {"eval_table_size", {PL_TRAINER_INERT, "nothing is generated in an evaluation"}},
    {"eval_max_new_tokens", {PL_TRAINER_INERT, "nothing is generated in an evaluation"}},
    {"eval_causal_lm_metrics", {PL_TRAINER_INERT, "nothing is generated in an evaluation"}},
    {"do_causal_lm_eval", {PL_TRAINER_INERT, "nothing is generated in an evaluation"}},
    {"predict_with_generate", {PL_TRAINER_INERT, "nothing is generated in an evaluation"}},
    {"low_cpu_mem_usage", {PL_TRAINER_INERT, NO_PART}},
    {"use_cache", {PL_TRAINER_INERT, NO_PART}},
    {"use_fast_tokenizer", {PL_TRAINER_INERT, "the tokens are those of tokenizer.json"}},
    {"trust_remote_code", {PL_TRAINER_INERT, "no code of a model is run"}},
    {"remove_unused_columns", {PL_TRAINER_INERT, "columns that are not read are passed over"}},
    {"strict", {PL_TRAINER_INERT, "weights are always read strictly"}},
    {"debug", {PL_TRAINER_INERT, NO_PART}},
    {"do_train", {PL_TRAINER_INERT, "`plimsoll train` trains"}},
    {"do_eval", {PL_TRAINER_INERT, "where there is evaluation data it is evaluated"}},
    {"do_predict", {PL_TRAINER_INERT, NO_PART}},
    {"log_level*", {PL_TRAINER_INERT, NO_PART}},
    {"logging_dir", {PL_TRAINER_INERT, "logs are written to output_dir"}},
    {"logging_nan_inf_filter", {PL_TRAINER_INERT, NO_PART}},
    {"include_*", {PL_TRAINER_INERT, NO_PART}},
    {"plot_loss", {PL_TRAINER_INERT, "train_log.jsonl has every loss"}},
    {"save_safetensors", {PL_TRAINER_INERT, "weights are always saved so"}},
    {"save_only_model", {PL_TRAINER_INERT, "checkpoints are always whole"}},
    {"greater_is_better", {PL_TRAINER_INERT, "it follows from `metric_for_best_model`"}},
    {"loss_watchdog_*", {PL_TRAINER_INERT, "a loss that is not finite ends the run"}},
    {"push_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"hub_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"wandb*", {PL_TRAINER_INERT, NOT_SENT}},
    {"use_wandb", {PL_TRAINER_INERT, NOT_SENT}},
    {"use_tensorboard", {PL_TRAINER_WRITE, "`report_to: [jsonl, tensorboard]`"}},
    {"use_swanlab", {PL_TRAINER_INERT, NOT_SENT}},
    {"swanlab_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"mlflow_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"use_mlflow", {PL_TRAINER_INERT, NOT_SENT}},
    {"comet_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"trackio_*", {PL_TRAINER_INERT, NOT_SENT}},
    {"hf_use_auth_token", {PL_TRAINER_INERT, NOT_SENT}},
};

const struct pl_trainer_key *pl_trainer_key(const char *name) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *row = keys[i].name;
        const size_t n = strlen(row);
        const bool begins = n && row[n - 1] == '*' && strncmp(row, name, n - 1) == 0;
        if (begins || strcmp(row, name) == 0) return &keys[i].is;
    }
    return NULL;
}

bool pl_trainer_key_hint(const char *name, struct pl_text *out) {
    static const char *const forms[] = {"write %s", "%s: remove the line",
                                        "%s: not supported; remove the line"};
    const struct pl_trainer_key *k = pl_trainer_key(name);
    if (!k) return false;
    const char *form = forms[k->fate], *text = strstr(form, "%s");
    pl_text_addn(out, form, (size_t)(text - form));
    pl_text_add(out, k->text);
    pl_text_add(out, text + 2);
    return true;
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
