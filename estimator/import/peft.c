/* peft.c - adapter_config.json of PEFT as the adapter of a job. Defaults are those of
 * peft/tuners/lora/config.py of 2026-08. */
#include "estimator/import/dialect.h"

#include <string.h>

static PL_MAP(map_start) {
    (void)row;
    if (strcmp(pl_node_text(t->value), "gaussian") != 0 && pl_node_is_on(t->value) &&
        strcmp(pl_node_text(t->value), "true") != 0)
        pl_import_miss(im, t, "another start of the adapter: not supported");
    else if (strcmp(pl_node_text(t->value), "gaussian") == 0)
        pl_import_miss(im, t, "A is drawn from a normal distribution there");
    else
        pl_import_inert(im, t, "as here");
}

static const struct pl_import_row rows[] = {
    {"base_model_name_or_path", PL_KEY_model, pl_map_same, NULL, NULL},
    {"peft_type", PL_KEY_mode, pl_map_word,
     (const struct pl_word[]){{"LORA", "lora", "`qlora` holds the base in 4 bits"}, PL_WORDS_END},
     "lora"},
    {"r", PL_KEY_lora_r, pl_map_same, NULL, "8"},
    {"lora_alpha", PL_KEY_lora_alpha, pl_map_same, NULL, "8"},
    {"lora_dropout", PL_KEY_lora_dropout, pl_map_same, NULL, NULL},
    {"target_modules", PL_KEY_lora_target_modules, pl_map_list, NULL, "[q_proj, v_proj]"},
    {"target_parameters", PL_KEY_lora_target_parameters, pl_map_list, NULL, NULL},
    {"exclude_modules", PL_KEY_lora_exclude_modules, pl_map_list, NULL, NULL},
    {"modules_to_save", PL_KEY_lora_modules_to_save, pl_map_list, NULL, NULL},
    {"layers_to_transform", PL_KEY_layers_to_transform, pl_map_list, NULL, NULL},
    {"layers_pattern", PL_KEY_layers_pattern, pl_map_list, NULL, NULL},
    {"use_rslora", PL_KEY_use_rslora, pl_map_flag, NULL, NULL},
    {"task_type", PL_KEY_COUNT, pl_map_only, "CAUSAL_LM|another task", NULL},
    {"bias", PL_KEY_COUNT, pl_map_only, "none|training of biases", NULL},
    {"init_lora_weights", PL_KEY_COUNT, map_start, NULL, NULL},
    {"revision", PL_KEY_COUNT, pl_map_only, "main|another revision of the base", NULL},
    {"rank_pattern", PL_KEY_COUNT, pl_map_off, "ranks that differ by module", NULL},
    {"alpha_pattern", PL_KEY_COUNT, pl_map_off, "scales that differ by module", NULL},
    {"trainable_token_indices", PL_KEY_COUNT, pl_map_off,
     "training of single rows of the embedding", NULL},
    {"layer_replication", PL_KEY_COUNT, pl_map_off, "layers that are repeated", NULL},
    {"lora_bias", PL_KEY_COUNT, pl_map_off, "biases of the adapter", NULL},
    {"use_dora", PL_KEY_COUNT, pl_map_off, "DoRA", NULL},
    {"use_qalora|use_bdlora|arrow_config|eva_config|corda_config|loftq_config|alora_invocation_"
     "tokens",
     PL_KEY_COUNT, pl_map_off, "another kind of LoRA", NULL},
    {"fan_in_fan_out", PL_KEY_COUNT, pl_map_off, "weights that lie transposed", NULL},
    {"inference_mode|auto_mapping|megatron_config|megatron_core|peft_version|qalora_group_size|"
     "runtime_config|ensure_weight_tying|lora_ga_config|monteclora_config|velora_config",
     PL_KEY_COUNT, pl_map_inert, "there is nothing to set here", NULL},
    {NULL, PL_KEY_COUNT, NULL, NULL, NULL},
};

const struct pl_dialect pl_dialect_peft = {
    .tables = (const struct pl_import_row *const[]){rows, NULL},
    .rules = (void (*const[])(struct pl_import *)){NULL},
};
