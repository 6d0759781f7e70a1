/* adapter_io.c - PEFT adapter directories. */
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/windows.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_STEM "adapter_model"
#define ADAPTER_FILE "adapter_model.safetensors"
#define CONFIG_FILE  "adapter_config.json"
#define NAMES_TEXT   512

/* The module names the program has adapters on, in row order. */
struct targets {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    const char *names[PL_MODEL_MAX_ROWS];
    uint32_t n;
};

static void find_targets(struct targets *t, const struct pl_program *p) {
    uint32_t n_rows = pl_model_rows(p->model, t->rows);
    t->n = 0;
    for (uint32_t r = 0; r < n_rows; r++)
        if (p->shape.lora_targets >> r & 1) t->names[t->n++] = t->rows[r].module;
}

static json_t *target_list(const struct pl_program *p) {
    struct targets t;
    json_t *list = json_array();
    find_targets(&t, p);
    for (uint32_t i = 0; i < t.n; i++)
        json_array_append_new(list, json_string(t.names[i]));
    return list;
}

/* null = all layers, which is what PEFT takes it for. */
static json_t *layer_list(const struct pl_program *p) {
    if (p->shape.freeze_layers == 0) return json_null();
    json_t *list = json_array();
    for (uint64_t l = p->shape.freeze_layers; l < p->model->layers; l++)
        json_array_append_new(list, json_integer((json_int_t)l));
    return list;
}

/* PEFT declares lora_alpha an int; a fraction is written as it is. */
static json_t *number(double v) {
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static const char *base_model(const struct pl_job *job) {
    return job->model && *job->model ? job->model : job->model_config;
}

/* Every key of PEFT's LoraConfig that its readers look at; what Plimsoll does not do is said off.
 * Those that vary are set by make_config. */
static const char fixed_config[] =
    "{\"alpha_pattern\": {}, \"auto_mapping\": null, \"bias\": \"none\", \"fan_in_fan_out\": false,"
    " \"inference_mode\": true, \"init_lora_weights\": true, \"layers_pattern\": null,"
    " \"loftq_config\": {}, \"lora_bias\": false, \"megatron_config\": null,"
    " \"megatron_core\": \"megatron.core\", \"modules_to_save\": null, \"peft_type\": \"LORA\","
    " \"rank_pattern\": {}, \"revision\": null, \"task_type\": \"CAUSAL_LM\", \"use_dora\": false}";

/* NULL when out of memory. */
static json_t *make_config(const struct pl_program *p, const struct pl_job *job) {
    double alpha = isnan(job->lora_alpha) ? 2.0 * (double)p->shape.lora_r : job->lora_alpha;
    const struct {
        const char *key;
        json_t *value;
    } varying[] = {
        {"base_model_name_or_path", base_model(job) ? json_string(base_model(job)) : json_null()},
        {"layers_to_transform", layer_list(p)},
        {"lora_alpha", number(alpha)},
        {"lora_dropout", json_real(p->shape.lora_dropout)},
        {"r", json_integer((json_int_t)p->shape.lora_r)},
        {"target_modules", target_list(p)},
        {"use_rslora", json_boolean(job->use_rslora)},
    };
    json_t *config = json_loads(fixed_config, 0, NULL);
    bool whole = config != NULL;
    for (size_t i = 0; i < sizeof varying / sizeof *varying; i++)
        whole = json_object_set_new(config, varying[i].key, varying[i].value) == 0 && whole;
    if (whole) return config;
    json_decref(config);
    return NULL;
}

static pl_err put_config(struct pl_outbox *o, const struct pl_program *p, const struct pl_job *job,
                         struct pl_diag *d) {
    json_t *config = make_config(p, job);
    pl_err err = pl_json_put(o, CONFIG_FILE, config, d);
    json_decref(config);
    return err;
}

pl_err pl_adapter_save(const struct pl_tensor_io *io, const char *dir, const struct pl_job *job,
                       struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_outbox o = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = pl_windows_add_adapter(&w, io->program, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_outbox_init(&o, dir, d), out);
    PL_TRY_GOTO(pl_windows_save(&w, 0, w.n, &source, &o, ADAPTER_FILE, d), out);
    PL_TRY_GOTO(put_config(&o, io->program, job, d), out);
    err = pl_outbox_commit(&o, d);
out:
    pl_outbox_finish(&o);
    pl_windows_finish(&w);
    return err;
}

PL_PRINTF(3, 4)
static pl_err mismatch(const char *path, struct pl_diag *d, const char *fmt, ...) {
    char text[2 * NAMES_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_err err = pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, path, 0, 0, "%s: %s", path, text);
    pl_diag_hint(d, "train with the settings the adapter was made with, or start a new adapter");
    return err;
}

/* Things PEFT can do to a model that a plain LoRA program does not. Off is what the type says, or
 * absent, or null; an object must be empty too. */
static const struct {
    const char *key;
    json_type off;
} features[] = {
    {"use_dora", JSON_FALSE},       {"lora_bias", JSON_FALSE},     {"fan_in_fan_out", JSON_FALSE},
    {"modules_to_save", JSON_NULL}, {"rank_pattern", JSON_OBJECT}, {"alpha_pattern", JSON_OBJECT},
};

static pl_err check_features(const json_t *config, const char *path, struct pl_diag *d) {
    const char *type = json_string_value(json_object_get(config, "peft_type"));
    const char *bias = json_string_value(json_object_get(config, "bias"));
    if (!type || strcmp(type, "LORA") != 0)
        return mismatch(path, d, "peft_type is %s, not LORA", type ? type : "missing");
    if (bias && strcmp(bias, "none") != 0)
        return mismatch(path, d, "bias is %s; only none is trained", bias);
    for (size_t i = 0; i < sizeof features / sizeof *features; i++) {
        const json_t *v = json_object_get(config, features[i].key);
        bool off = !v || json_is_null(v) || json_typeof(v) == features[i].off;
        if (!off || json_object_size(v) > 0)
            return mismatch(path, d, "%s is set, which Plimsoll does not train", features[i].key);
    }
    return PL_ERR_OK;
}

static void join_names(const char *const *names, uint32_t n, char out[NAMES_TEXT]) {
    int len = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < n && len < NAMES_TEXT; i++)
        len += snprintf(out + len, (size_t)(NAMES_TEXT - len), "%s%s", i ? ", " : "", names[i]);
}

static void join_json_names(const json_t *list, char out[NAMES_TEXT]) {
    int len = 0;
    out[0] = 0;
    for (size_t i = 0; i < json_array_size(list) && len < NAMES_TEXT; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        len += snprintf(out + len, (size_t)(NAMES_TEXT - len), "%s%s", i ? ", " : "",
                        name ? name : "?");
    }
}

/* PEFT matches the end of a module path: `self_attn.q_proj` means q_proj. */
static bool lists_module(const json_t *list, const char *module) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const char *dot = name ? strrchr(name, '.') : NULL;
        if (name && strcmp(dot ? dot + 1 : name, module) == 0) return true;
    }
    return false;
}

static pl_err check_targets(const json_t *config, const struct pl_program *p, const char *path,
                            struct pl_diag *d) {
    struct targets t;
    const json_t *list = json_object_get(config, "target_modules");
    const char *word = json_string_value(list);
    char want[NAMES_TEXT], have[NAMES_TEXT];
    bool same = json_array_size(list) > 0;
    find_targets(&t, p);
    /* Which modules that is, the tensors of the file will tell. */
    if (word && strcmp(word, "all-linear") == 0) return PL_ERR_OK;
    for (uint32_t i = 0; i < t.n; i++)
        same = same && lists_module(list, t.names[i]);
    if (same && json_array_size(list) == t.n) return PL_ERR_OK;
    join_names(t.names, t.n, want);
    join_json_names(list, have);
    return mismatch(path, d, "target_modules are %s, lora_target_modules of this run %s",
                    word ? word : have, want);
}

/* lora_alpha / r, or over sqrt(r) for rsLoRA: another scale would make another model of the same
 * matrices. */
static pl_err check_scale(const json_t *config, const struct pl_program *p, const char *path,
                          struct pl_diag *d) {
    const json_t *alpha = json_object_get(config, "lora_alpha");
    double r = (double)p->shape.lora_r;
    if (!json_is_number(alpha)) return PL_ERR_OK;
    bool rs = json_is_true(json_object_get(config, "use_rslora"));
    double scale = json_number_value(alpha) / (rs ? sqrt(r) : r);
    if (fabs(scale - p->shape.lora_scale) <= 1e-9 * fabs(scale)) return PL_ERR_OK;
    return mismatch(path, d, "lora_alpha %g%s makes a scale of %.9g, this run's is %.9g",
                    json_number_value(alpha), rs ? " with use_rslora" : "", scale,
                    p->shape.lora_scale);
}

static pl_err check_config(const json_t *config, const struct pl_program *p, const char *path,
                           struct pl_diag *d) {
    const json_t *r = json_object_get(config, "r");
    PL_TRY(check_features(config, path, d));
    if (json_is_integer(r) && json_integer_value(r) != (json_int_t)p->shape.lora_r)
        return mismatch(path, d, "r is %lld, lora_r of this run %llu",
                        (long long)json_integer_value(r), (unsigned long long)p->shape.lora_r);
    PL_TRY(check_targets(config, p, path, d));
    return check_scale(config, p, path, d);
}

static pl_err read_config(const char *dir, const struct pl_program *p, struct pl_diag *d) {
    json_t *config = NULL;
    char *path = pl_path_join(dir, CONFIG_FILE);
    pl_err err = path ? pl_json_read(path, &config, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = check_config(config, p, path, d);
    json_decref(config);
    free(path);
    return err;
}

pl_err pl_adapter_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = read_config(dir, io->program, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_windows_add_adapter(&w, io->program, d), out);
    PL_TRY_GOTO(pl_weight_files_open(&f, dir, ADAPTER_STEM, PL_ERR_CHECKPOINT_FILE, d), out);
    PL_TRY_GOTO(pl_windows_resolve(&w, &f, PL_MATCH_COMPLETE, PL_ERR_CHECKPOINT_MISMATCH, d), out);
    err = pl_windows_load(&w, io, true, d);
out:
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}
