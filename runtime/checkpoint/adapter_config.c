#include "estimator/base/alloc.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/save_set.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT       1024
#define DEFAULT_R  8
#define MOST_RANKS 1048576 /* wider than any matrix */

static pl_err refuse_config(const struct pl_adapter_config *c, const char *hint, struct pl_diag *d,
                            const char *fmt, va_list ap) {
    char text[TEXT];
    vsnprintf(text, sizeof text, fmt, ap);
    pl_err err = pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, c->path, 0, 0, "%s: %s", c->path, text);
    pl_diag_hint(d, "%s", hint);
    return err;
}

pl_err pl_adapter_config_refuse(const struct pl_adapter_config *c, struct pl_diag *d,
                                const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    pl_err err = refuse_config(
        c, "train with the settings the adapter was made with, or start a new adapter", d, fmt, ap);
    va_end(ap);
    return err;
}

void pl_adapter_config_hint(const struct pl_adapter_config *c, struct pl_diag *d) {
    const char *base = json_string_value(json_object_get(c->root, "base_model_name_or_path"));
    if (!c->root || !d || d->hint[0]) return;
    if (base && *base)
        pl_diag_hint(d,
                     "an adapter fits the model it was trained on, and no other: this one says "
                     "`%s`",
                     base);
    else
        pl_diag_hint(d, "an adapter fits the model it was trained on, and no other");
}

PL_PRINTF(3, 4)
static pl_err unsupported(const struct pl_adapter_config *c, struct pl_diag *d, const char *fmt,
                          ...) {
    va_list ap;
    va_start(ap, fmt);
    pl_err err = refuse_config(
        c, "only plain LoRA is read; PEFT's merge_and_unload() can merge others", d, fmt, ap);
    va_end(ap);
    return err;
}

/* The settings of PEFT 0.21 that do more to a model than plain LoRA does. A setting is off by the
 * value that its type says, where it is absent, or where it is null; an object must be empty
 * too. */
static const struct {
    const char *key;
    json_type off;
} features[] = {
    {"use_dora", JSON_FALSE},
    {"lora_bias", JSON_FALSE},
    {"fan_in_fan_out", JSON_FALSE},
    {"use_qalora", JSON_FALSE},
    {"use_bdlora", JSON_FALSE},
    {"layer_replication", JSON_NULL},
    {"trainable_token_indices", JSON_NULL},
    {"alora_invocation_tokens", JSON_NULL},
    {"arrow_config", JSON_NULL},
    {"kasa_config", JSON_NULL},
    {"monteclora_config", JSON_NULL},
    {"velora_config", JSON_NULL},
    {"rank_pattern", JSON_OBJECT},
    {"alpha_pattern", JSON_OBJECT},
};

/* Read here, or of no effect on what the matrices mean: where they came from, who runs them, the
 * settings of starts that init_lora_weights names. */
static const char *const known[] = {
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "corda_config",
    "ensure_weight_tying",
    "eva_config",
    "exclude_modules",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "layers_to_transform",
    "loftq_config",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "modules_to_save",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "runtime_config",
    "target_modules",
    "target_parameters",
    "task_type",
    "use_rslora",
};

static bool is_known(const char *key) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], key) == 0) return true;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (strcmp(features[i].key, key) == 0) return true;
    return false;
}

/* Python's idea of it: what PEFT's `if config.key` takes for set. */
static bool is_truthy(const json_t *v) {
    if (!v) return false;
    switch (json_typeof(v)) {
    case JSON_TRUE:
        return true;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(v) != 0;
    case JSON_STRING:
        return json_string_length(v) > 0;
    case JSON_ARRAY:
        return json_array_size(v) > 0;
    case JSON_OBJECT:
        return json_object_size(v) > 0;
    default:
        return false;
    }
}

/* A key of a later PEFT that is set asks for something that this reader cannot know of. */
static pl_err check_unknown(const struct pl_adapter_config *c, struct pl_diag *d) {
    const char *key;
    json_t *v;
    json_object_foreach(c->root, key, v) {
        if (is_truthy(v) && !is_known(key))
            return unsupported(c, d, "%.64s is set, and its meaning is not known", key);
    }
    return PL_ERR_OK;
}

/* Starts that leave the base as it is; the others subtract something from it, so that the adapter
 * does not belong to the model it names. */
static const char *const starts[] = {"gaussian", "orthogonal", "eva"};

static pl_err check_features(const struct pl_adapter_config *c, struct pl_diag *d) {
    const char *type = json_string_value(json_object_get(c->root, "peft_type"));
    const char *bias = json_string_value(json_object_get(c->root, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        return unsupported(c, d, "peft_type is %s, not LORA", type ? type : "missing");
    if (bias && strcmp(bias, "none") != 0)
        return unsupported(c, d, "bias is %s; only none is supported", bias);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const json_t *v = json_object_get(c->root, features[i].key);
        bool off = !v || json_is_null(v) || json_typeof(v) == features[i].off;
        if (!off || json_object_size(v) > 0)
            return unsupported(c, d, "%s is set, which is not supported", features[i].key);
    }
    if (is_truthy(json_object_get(c->root, "ensure_weight_tying")) &&
        is_truthy(json_object_get(c->root, "modules_to_save")))
        return unsupported(c, d,
                           "ensure_weight_tying together with modules_to_save is not supported");
    PL_TRY(check_unknown(c, d));
    const char *start = json_string_value(json_object_get(c->root, "init_lora_weights"));
    for (size_t i = 0; start && i < sizeof starts / sizeof *starts; i++)
        if (strcmp(start, starts[i]) == 0) start = NULL;
    if (!start) return PL_ERR_OK;
    return unsupported(c, d, "init_lora_weights is %s, which changes the base model too", start);
}

static pl_err read_numbers(struct pl_adapter_config *c, struct pl_diag *d) {
    const json_t *r = json_object_get(c->root, "r");
    const json_t *alpha = json_object_get(c->root, "lora_alpha");
    c->r = DEFAULT_R;
    c->alpha = DEFAULT_R;
    if (r &&
        (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > MOST_RANKS))
        return unsupported(c, d, "r is not a rank");
    if (r) c->r = (uint64_t)json_integer_value(r);
    if (alpha && !json_is_number(alpha)) return unsupported(c, d, "lora_alpha is not a number");
    if (alpha) c->alpha = json_number_value(alpha);
    c->use_rslora = json_is_true(json_object_get(c->root, "use_rslora"));
    c->scale = c->alpha / (c->use_rslora ? sqrt((double)c->r) : (double)c->r);
    if (isfinite((float)c->scale) && isfinite((float)(c->scale * (double)c->r))) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, c->path, 0, 0,
               "%s: lora_alpha %g makes a scale of %g, which fp32 does not hold", c->path, c->alpha,
               c->scale);
    pl_diag_hint(d, "write the lora_alpha that the adapter was trained with");
    return PL_ERR_CHECKPOINT_FORMAT;
}

/* ---- which modules ---- */

/* PEFT takes a text for one regular expression and a list for names; null and [] are nothing. */
static uint64_t count_names(const json_t *v) {
    return json_is_string(v) ? 1 : json_array_size(v);
}

static bool take_names(const json_t *v, const char ***next, struct pl_target_names *out) {
    const uint64_t n = count_names(v);
    if (v && !json_is_null(v) && !json_is_string(v) && !json_is_array(v)) return false;
    *out = (struct pl_target_names){*next, (uint32_t)n};
    for (uint64_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_is_string(v) ? v : json_array_get(v, i));
        if (!name) return false;
        *(*next)++ = name;
    }
    return true;
}

/* A number or a list of them; layers that no model has are of no effect, as in PEFT. */
static bool take_layers(const json_t *v, struct pl_target_choice *choice) {
    const bool one = json_is_integer(v);
    const uint64_t n = one ? 1 : json_array_size(v);
    if (v && !json_is_null(v) && !one && !json_is_array(v)) return false;
    choice->some_layers = n > 0;
    for (uint64_t i = 0; i < n; i++) {
        const json_t *layer = one ? v : json_array_get(v, i);
        if (!json_is_integer(layer)) return false;
        const json_int_t l = json_integer_value(layer);
        if (l >= 0 && l < PL_MODEL_MAX_LAYERS) pl_target_choose_layer(choice, (uint64_t)l);
    }
    return true;
}

static pl_err read_choice(struct pl_adapter_config *c, struct pl_diag *d) {
    const struct {
        const char *key;
        struct pl_target_names *names;
    } lists[] = {
        {"target_modules", &c->choice.modules},   {"target_parameters", &c->choice.parameters},
        {"exclude_modules", &c->choice.excluded}, {"layers_pattern", &c->choice.lists},
        {"modules_to_save", &c->choice.whole},
    };
    uint64_t n = 1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        n += count_names(json_object_get(c->root, lists[i].key));
    const char **next = c->names = pl_malloc(n * sizeof *c->names);
    if (!next) return pl_host_oom(d, "the names of modules");
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!take_names(json_object_get(c->root, lists[i].key), &next, lists[i].names))
            return unsupported(c, d, "%s is not a list of names", lists[i].key);
    c->choice.of_file = true;
    if (!take_layers(json_object_get(c->root, "layers_to_transform"), &c->choice))
        return unsupported(c, d, "layers_to_transform is not a list of layers");
    return PL_ERR_OK;
}

pl_err pl_adapter_config_targets(const struct pl_adapter_config *c, const struct pl_model *m,
                                 struct pl_targets *out, struct pl_diag *d) {
    struct pl_diag why = {0};
    pl_err err = pl_targets_find(m, &c->choice, out, NULL, &why);
    if (err == PL_ERR_OK) return err;
    pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, c->path, 0, 0, "%s: %s", c->path, why.message);
    pl_diag_hint(d, "%s", why.hint);
    return PL_ERR_CHECKPOINT_MISMATCH;
}

pl_err pl_adapter_config_read(struct pl_adapter_config *c, const char *dir, struct pl_diag *d) {
    *c = (struct pl_adapter_config){.path = pl_path_join(dir, PL_ADAPTER_CONFIG)};
    pl_err err = c->path ? pl_save_set_settle(dir, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = pl_json_read(c->path, &c->root, d);
    if (err == PL_ERR_OK) err = check_features(c, d);
    if (err == PL_ERR_OK) err = read_numbers(c, d);
    if (err == PL_ERR_OK) err = read_choice(c, d);
    if (err != PL_ERR_OK) pl_adapter_config_finish(c);
    return err;
}

void pl_adapter_config_finish(struct pl_adapter_config *c) {
    json_decref(c->root);
    free(c->names);
    free(c->path);
    *c = (struct pl_adapter_config){0};
}
