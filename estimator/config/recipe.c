#include "estimator/config/recipe.h"

#include <string.h>

/* The points that a document needs: one key that only this trainer has, or several of few. */
#define ENOUGH 3
/* The points that outweigh keys of ours. */
#define BEYOND_DOUBT 6

/* `section` is a key at the top whose value is a mapping with `key` in it; "*" is any such key. */
static const struct {
    enum pl_recipe trainer;
    const char *section, *key;
    int points;
} signs[] = {
    {PL_RECIPE_TORCHTUNE, "*", "_component_", 6},
    {PL_RECIPE_TORCHTUNE, NULL, "checkpointer", 2},
    {PL_RECIPE_PEFT, NULL, "peft_type", 6},
    {PL_RECIPE_PEFT, NULL, "base_model_name_or_path", 2},
    {PL_RECIPE_PEFT, NULL, "init_lora_weights", 2},
    {PL_RECIPE_ACCELERATE, NULL, "compute_environment", 3},
    {PL_RECIPE_ACCELERATE, NULL, "distributed_type", 3},
    {PL_RECIPE_ACCELERATE, NULL, "num_processes", 1},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "finetuning_type", 3},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "stage", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "template", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "cutoff_len", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "dataset_dir", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "lora_target", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "model_class", 6},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "train_dataset", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "dist_config", 2},
    {PL_RECIPE_LLAMA_FACTORY, NULL, "peft_config", 2},
    {PL_RECIPE_UNSLOTH, "training", "training_type", 6},
    {PL_RECIPE_UNSLOTH, "training", "random_seed", 6},
    {PL_RECIPE_UNSLOTH, "training", "load_in_4bit", 6},
    {PL_RECIPE_UNSLOTH, "training", "gradient_checkpointing", 6},
    {PL_RECIPE_UNSLOTH, "training", "learning_rate", 6},
    {PL_RECIPE_UNSLOTH, NULL, "model_name", 2},
    {PL_RECIPE_UNSLOTH, NULL, "use_gradient_checkpointing", 3},
    {PL_RECIPE_UNSLOTH, NULL, "random_state", 3},
    {PL_RECIPE_UNSLOTH, NULL, "full_finetuning", 3},
    {PL_RECIPE_UNSLOTH, NULL, "loftq_config", 1},
    {PL_RECIPE_UNSLOTH, NULL, "load_in_4bit", 1},
    {PL_RECIPE_UNSLOTH, NULL, "per_device_train_batch_size", 1},
    {PL_RECIPE_AXOLOTL, NULL, "base_model", 2},
    {PL_RECIPE_AXOLOTL, NULL, "sequence_len", 2},
    {PL_RECIPE_AXOLOTL, NULL, "micro_batch_size", 2},
    {PL_RECIPE_AXOLOTL, NULL, "sample_packing", 2},
    {PL_RECIPE_AXOLOTL, NULL, "lora_target_linear", 2},
    {PL_RECIPE_AXOLOTL, NULL, "saves_per_epoch", 2},
    {PL_RECIPE_AXOLOTL, NULL, "evals_per_epoch", 2},
    {PL_RECIPE_AXOLOTL, NULL, "pad_to_sequence_len", 2},
    {PL_RECIPE_AXOLOTL, NULL, "dataset_prepared_path", 1},
    {PL_RECIPE_AXOLOTL, NULL, "adapter", 1},
    {PL_RECIPE_AXOLOTL, NULL, "special_tokens", 1},
    {PL_RECIPE_TRL, NULL, "dataset_mixture", 3},
    {PL_RECIPE_TRL, NULL, "dataset_mixer", 3},
    {PL_RECIPE_TRL, NULL, "dataset_name", 2},
    {PL_RECIPE_TRL, NULL, "dataset_text_field", 2},
    {PL_RECIPE_TRL, NULL, "use_peft", 2},
    {PL_RECIPE_TRL, NULL, "model_name_or_path", 2},
    {PL_RECIPE_TRL, NULL, "torch_dtype", 1},
    {PL_RECIPE_TRL, NULL, "per_device_train_batch_size", 1},
    {PL_RECIPE_TRL, NULL, "num_train_epochs", 1},
    {PL_RECIPE_TRL, NULL, "lr_scheduler_type", 1},
};

static bool is_called(const struct pl_node *key, const char *name) {
    return strcmp(key->text, name) == 0;
}

static bool mapping_has(const struct pl_document *doc, const struct pl_node *map,
                        const char *name) {
    for (uint32_t i = map->first; i; i = doc->nodes[doc->nodes[i].next].next)
        if (is_called(&doc->nodes[i], name)) return true;
    return false;
}

static bool has_sign(const struct pl_document *doc, size_t sign) {
    const char *section = signs[sign].section;
    const struct pl_node *nodes = doc->nodes;
    if (!section) return mapping_has(doc, nodes, signs[sign].key);
    for (uint32_t i = nodes[0].first; i; i = nodes[nodes[i].next].next) {
        const struct pl_node *value = &nodes[nodes[i].next];
        if (section[0] != '*' && !is_called(&nodes[i], section)) continue;
        if (value->kind == PL_NODE_MAPPING && mapping_has(doc, value, signs[sign].key)) return true;
    }
    return false;
}

/* `mode` is a key of ours alone, and so is `model` as a name; sections of others are called so,
 * too. */
static bool is_ours(const struct pl_document *doc) {
    const struct pl_node *nodes = doc->nodes;
    for (uint32_t i = nodes[0].first; i; i = nodes[nodes[i].next].next) {
        const bool scalar = nodes[nodes[i].next].kind == PL_NODE_SCALAR;
        if (scalar && (is_called(&nodes[i], "mode") || is_called(&nodes[i], "model"))) return true;
    }
    return false;
}

enum pl_recipe pl_recipe_find(const struct pl_document *doc) {
    int points[PL_RECIPE_COUNT] = {0};
    enum pl_recipe best = PL_RECIPE_NONE;
    if (!doc->n || doc->nodes[0].kind != PL_NODE_MAPPING) return best;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (has_sign(doc, i)) points[signs[i].trainer] += signs[i].points;
    for (int i = 1; i < PL_RECIPE_COUNT; i++)
        if (points[i] > points[best]) best = (enum pl_recipe)i;
    return points[best] >= (is_ours(doc) ? BEYOND_DOUBT : ENOUGH) ? best : PL_RECIPE_NONE;
}

static const struct {
    const char *name, *title;
} trainers[PL_RECIPE_COUNT] = {{"", ""},
#define X(id, name, title) {name, title},
                                PL_RECIPE_TRAINERS(X)
#undef X
};

enum pl_recipe pl_recipe_by_name(const char *name) {
    for (int i = 1; i < PL_RECIPE_COUNT; i++)
        if (strcmp(trainers[i].name, name) == 0) return (enum pl_recipe)i;
    return PL_RECIPE_NONE;
}

const char *pl_recipe_name(enum pl_recipe f) {
    return trainers[f].name;
}

const char *pl_recipe_title(enum pl_recipe f) {
    return trainers[f].title;
}
