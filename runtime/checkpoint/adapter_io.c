/* adapter_io.c - PEFT adapter directories. */
#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/windows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_FILE PL_ADAPTER_STEM ".safetensors"
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
        pl_json_append(&list, json_string(t.names[i]));
    return list;
}

/* null = all layers, which is what PEFT takes it for. */
static json_t *layer_list(const struct pl_program *p) {
    if (p->shape.freeze_layers == 0) return json_null();
    json_t *list = json_array();
    for (uint64_t l = p->shape.freeze_layers; l < p->model->layers; l++)
        pl_json_append(&list, json_integer((json_int_t)l));
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
    json_t *config = pl_json_load(fixed_config, sizeof fixed_config - 1, 0, NULL);
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
    pl_err err = pl_json_put(o, PL_ADAPTER_CONFIG, config, d);
    json_decref(config);
    return err;
}

pl_err pl_adapter_put(const struct pl_tensor_io *io, struct pl_outbox *o, const struct pl_job *job,
                      struct pl_diag *d) {
    struct pl_windows w = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = pl_windows_add_adapter(&w, io->program, d);
    if (err == PL_ERR_OK) err = pl_windows_save(&w, 0, w.n, &source, o, ADAPTER_FILE, d);
    pl_windows_finish(&w);
    return err == PL_ERR_OK ? put_config(o, io->program, job, d) : err;
}

pl_err pl_adapter_save(const struct pl_tensor_io *io, const char *dir, const struct pl_job *job,
                       struct pl_diag *d) {
    struct pl_outbox o = {0};
    pl_err err;
    PL_TRY_GOTO(pl_save_set_begin(dir, d), out);
    PL_TRY_GOTO(pl_outbox_init(&o, dir, d), out);
    PL_TRY_GOTO(pl_adapter_put(io, &o, job, d), out);
    err = pl_save_set_commit(&o, NULL, NULL, d);
out:
    pl_outbox_finish(&o);
    return err;
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

/* PEFT matches the end of a module path: `self_attn.q_proj` means q_proj, and so does the path of
 * the module of one layer, which PEFT writes for models of few modules. */
static const char *last_part(const char *path) {
    const char *dot = path ? strrchr(path, '.') : NULL;
    return dot ? dot + 1 : path;
}

static bool lists_module(const json_t *list, const char *module) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = last_part(json_string_value(json_array_get(list, i)));
        if (name && strcmp(name, module) == 0) return true;
    }
    return false;
}

static bool names_target(const char *path, const struct targets *t) {
    for (uint32_t i = 0; path && i < t->n; i++)
        if (strcmp(last_part(path), t->names[i]) == 0) return true;
    return false;
}

static pl_err check_targets(const struct pl_adapter_config *c, const struct pl_program *p,
                            struct pl_diag *d) {
    struct targets t;
    const json_t *list = json_object_get(c->root, "target_modules");
    const char *word = json_string_value(list);
    char want[NAMES_TEXT], have[NAMES_TEXT];
    find_targets(&t, p);
    /* Which modules that is, the tensors of the file will tell. */
    if (word && strcmp(word, "all-linear") == 0) return PL_ERR_OK;
    bool same = json_array_size(list) > 0;
    for (uint32_t i = 0; i < t.n; i++)
        same = same && lists_module(list, t.names[i]);
    for (size_t i = 0; i < json_array_size(list); i++)
        same = same && names_target(json_string_value(json_array_get(list, i)), &t);
    if (same) return PL_ERR_OK;
    join_names(t.names, t.n, want);
    join_json_names(list, have);
    return pl_adapter_config_refuse(c, d,
                                    "target_modules are %s, lora_target_modules of this run %s",
                                    word ? word : have, want);
}

/* Another scale would make another model of the same matrices. */
static pl_err check_scale(const struct pl_adapter_config *c, const struct pl_program *p,
                          struct pl_diag *d) {
    if (fabs(c->scale - p->shape.lora_scale) <= 1e-9 * fabs(c->scale)) return PL_ERR_OK;
    return pl_adapter_config_refuse(
        c, d, "lora_alpha %g%s makes a scale of %.9g, this run's is %.9g", c->alpha,
        c->use_rslora ? " with use_rslora" : "", c->scale, p->shape.lora_scale);
}

static pl_err check_config(const struct pl_adapter_config *c, const struct pl_program *p,
                           struct pl_diag *d) {
    if (c->r != p->shape.lora_r)
        return pl_adapter_config_refuse(c, d, "r is %llu, lora_r of this run %llu",
                                        (unsigned long long)c->r,
                                        (unsigned long long)p->shape.lora_r);
    PL_TRY(check_targets(c, p, d));
    return check_scale(c, p, d);
}

static pl_err read_config(const char *dir, const struct pl_program *p, struct pl_diag *d) {
    struct pl_adapter_config c;
    PL_TRY(pl_adapter_config_read(&c, dir, d));
    pl_err err = check_config(&c, p, d);
    pl_adapter_config_finish(&c);
    return err;
}

pl_err pl_adapter_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = read_config(dir, io->program, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_windows_add_adapter(&w, io->program, d), out);
    PL_TRY_GOTO(pl_weight_files_open(&f, dir, PL_ADAPTER_STEM, PL_ERR_CHECKPOINT_FILE, d), out);
    PL_TRY_GOTO(pl_windows_resolve(&w, &f, PL_MATCH_COMPLETE, PL_ERR_CHECKPOINT_MISMATCH, d), out);
    err = pl_windows_load(&w, io, true, d);
out:
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}
