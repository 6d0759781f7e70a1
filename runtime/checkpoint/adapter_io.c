/* adapter_io.c - PEFT adapter directories. */
#include "runtime/checkpoint/adapter_io.h"

#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/json_io.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/share.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/checkpoint/window_load.h"
#include "runtime/checkpoint/window_resolve.h"
#include "runtime/checkpoint/window_write.h"
#include "runtime/checkpoint/windows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADAPTER_FILE PL_ADAPTER_STEM ".safetensors"
#define NAMES_TEXT   512

/* The names of modules and the layers, as people write them, where the same modules are adapted in
 * every layer that has any; else every path, or one expression for the paths of experts, which are
 * many. In each case PEFT finds the same modules again. Parameters of experts have a list of their
 * own, which PEFT reads without the layers. */
struct adapted {
    const struct pl_program *p;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows;
    pl_row_set parameters; /* of experts */
    pl_row_set same;       /* what a layer adapts that adapts anything, but for parameters */
    uint64_t layers;       /* how many do */
    bool uniform;
};

static pl_row_set modules_of_layer(const struct adapted *a, uint64_t layer) {
    return pl_shape_adapted_rows(&a->p->shape, layer) & ~a->parameters;
}

static bool have_one_name(const struct adapted *a, uint32_t i, uint32_t j) {
    return a->rows[i].module && a->rows[j].module &&
           strcmp(a->rows[i].module, a->rows[j].module) == 0;
}

/* True if another module of that name has no adapter. */
static bool is_one_of_several(const struct adapted *a, uint32_t row) {
    bool other = false;
    for (uint32_t r = 0; r < a->n_rows; r++)
        other |= !pl_row_set_has(a->same | a->parameters, r) && have_one_name(a, r, row);
    return other;
}

static void find_adapted(struct adapted *a, const struct pl_program *p) {
    *a = (struct adapted){.p = p, .uniform = true};
    a->n_rows = pl_model_modules(p->model, a->rows);
    for (uint32_t r = 0; r < a->n_rows; r++)
        if (pl_row_is_parameter(&a->rows[r])) a->parameters |= pl_row_set_of(r);
    for (uint64_t l = 0; l < p->model->layers; l++) {
        const pl_row_set mask = modules_of_layer(a, l);
        if (!mask) continue;
        a->uniform = a->uniform && (!a->layers || mask == a->same);
        a->same = mask;
        a->layers++;
    }
    for (uint32_t r = 0; r < a->n_rows; r++) /* no end of a path is that of all experts */
        if (a->rows[r].split && pl_row_set_has(a->same, r)) a->uniform &= !is_one_of_several(a, r);
}

static void put_paths(json_t **list, const struct adapted *a, uint64_t layer) {
    const pl_row_set mask = modules_of_layer(a, layer);
    char path[128];
    for (uint32_t r = 0; r < a->n_rows; r++) {
        if (!pl_row_set_has(mask, r)) continue;
        pl_target_path(&a->rows[r], layer, path);
        pl_json_append(list, json_string(path));
    }
}

/* "model\.layers\.3\.mlp\.experts\.\d+\.up_proj" */
static void add_expression(struct pl_text *text, const struct pl_param_row *row, uint64_t layer) {
    struct pl_param_row all = *row;
    char path[128];
    all.split = false; /* keeps the `*` in the path */
    pl_target_path(&all, layer, path);
    pl_text_add(text, text->len ? "|" : "");
    for (const char *at = path; *at; at++) {
        if (*at == '.') pl_text_add(text, "\\");
        if (*at == '*')
            pl_text_add(text, "\\d+");
        else
            pl_text_addn(text, at, 1);
    }
}

static void add_expressions(struct pl_text *text, const struct adapted *a, uint64_t layer) {
    const pl_row_set mask = modules_of_layer(a, layer);
    for (uint32_t r = 0; r < a->n_rows; r++)
        if (pl_row_set_has(mask, r)) add_expression(text, &a->rows[r], layer);
}

/* One expression for all paths. NULL when out of memory. */
static json_t *target_expression(const struct adapted *a) {
    struct pl_text text = {0};
    for (uint64_t l = 0; l < a->p->model->layers; l++)
        add_expressions(&text, a, l);
    add_expressions(&text, a, PL_NONE);
    json_t *expression = text.failed ? NULL : json_string(pl_text_str(&text));
    pl_text_finish(&text);
    return expression;
}

/* The end of the paths of a parameter, or each path where some layers have no adapter on it. */
static void put_parameter(json_t **list, const struct adapted *a, uint32_t r) {
    bool all = true;
    char path[128];
    for (uint64_t l = 0; l < a->p->model->layers; l++) {
        struct pl_param_row own = a->rows[r];
        all &= !pl_model_row_in(a->p->model, &own, l) ||
               pl_row_set_has(pl_shape_adapted_rows(&a->p->shape, l), r);
    }
    if (all) pl_json_append(list, json_string(a->rows[r].suffix));
    for (uint64_t l = 0; l < a->p->model->layers && !all; l++) {
        if (!pl_row_set_has(pl_shape_adapted_rows(&a->p->shape, l), r)) continue;
        pl_target_path(&a->rows[r], l, path);
        pl_json_append(list, json_string(path));
    }
}

/* The name of a module, or the end of its path where others of that name have no adapter. A name
 * that experts and a dense MLP share stands once. */
static void put_name(json_t **list, const struct adapted *a, uint32_t r) {
    char end[128];
    bool named = false;
    for (uint32_t i = 0; i < r; i++)
        named |= pl_row_set_has(a->same, i) && have_one_name(a, i, r);
    snprintf(end, sizeof end, "%s", a->rows[r].suffix);
    *strrchr(end, '.') = 0;
    if (is_one_of_several(a, r))
        pl_json_append(list, json_string(end));
    else if (!named)
        pl_json_append(list, json_string(a->rows[r].module));
}

/* NULL when out of memory. */
static json_t *target_list(const struct adapted *a) {
    bool splits = false;
    for (uint32_t r = 0; r < a->n_rows; r++)
        splits |= a->rows[r].split && pl_row_set_has(a->p->shape.lora_targets.rows, r);
    if (!a->uniform && splits) return target_expression(a);
    json_t *list = json_array();
    for (uint32_t r = 0; a->uniform && r < a->n_rows; r++)
        if (pl_row_set_has(a->same, r)) put_name(&list, a, r);
    for (uint64_t l = 0; !a->uniform && l < a->p->model->layers; l++)
        put_paths(&list, a, l);
    put_paths(&list, a, PL_NONE);
    return list;
}

/* null = all layers, or those of the paths, which is what PEFT takes it for. */
static json_t *layer_list(const struct adapted *a) {
    if (!a->uniform || a->layers == 0 || a->layers == a->p->model->layers) return json_null();
    json_t *list = json_array();
    for (uint64_t l = 0; l < a->p->model->layers; l++)
        if (modules_of_layer(a, l) & a->same) pl_json_append(&list, json_integer((json_int_t)l));
    return list;
}

/* The name of a module that stands once: `lm_head`, `embed_tokens`. */
static const char *end_of_path(const struct pl_param_row *row, char path[128]) {
    pl_target_path(row, 0, path);
    const char *end = strrchr(path, '.');
    return end ? end + 1 : path;
}

static json_t *whole_list(const struct adapted *a) {
    char path[128];
    const pl_row_set whole = a->p->shape.lora_targets.whole;
    if (!whole) return json_null();
    json_t *list = json_array();
    for (uint32_t r = 0; r < a->n_rows; r++)
        if (pl_row_set_has(whole, r))
            pl_json_append(&list, json_string(end_of_path(&a->rows[r], path)));
    return list;
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
    " \"megatron_core\": \"megatron.core\", \"peft_type\": \"LORA\","
    " \"rank_pattern\": {}, \"revision\": null, \"task_type\": \"CAUSAL_LM\", \"use_dora\": false}";

/* NULL when out of memory. */
static json_t *make_config(const struct pl_program *p, const struct pl_job *job) {
    double alpha = isnan(job->lora_alpha) ? 2.0 * (double)p->shape.lora_r : job->lora_alpha;
    /* PEFT declares it an int; a fraction is written as it is. */
    const bool is_whole = alpha == floor(alpha) && fabs(alpha) < 1e15;
    struct adapted a;
    find_adapted(&a, p);
    const struct {
        const char *key;
        json_t *value;
    } varying[] = {
        {"base_model_name_or_path", base_model(job) ? json_string(base_model(job)) : json_null()},
        {"layers_to_transform", layer_list(&a)},
        {"lora_alpha", is_whole ? json_integer((json_int_t)alpha) : json_real(alpha)},
        {"lora_dropout", json_real(p->shape.lora_dropout)},
        {"modules_to_save", whole_list(&a)},
        {"r", json_integer((json_int_t)p->shape.lora_r)},
        {"target_modules", target_list(&a)},
        {"use_rslora", json_boolean(job->use_rslora)},
    };
    json_t *config = pl_json_load(fixed_config, sizeof fixed_config - 1, 0, NULL);
    for (size_t i = 0; i < sizeof varying / sizeof *varying; i++)
        pl_json_set(&config, varying[i].key, varying[i].value);
    const pl_row_set parameters = a.parameters & p->shape.lora_targets.rows;
    if (parameters) {
        json_t *list = json_array();
        for (uint32_t r = 0; r < a.n_rows; r++)
            if (pl_row_set_has(parameters, r)) put_parameter(&list, &a, r);
        pl_json_set(&config, "target_parameters", list);
    }
    return config;
}

pl_err pl_adapter_join(const struct pl_tensor_io *io, struct pl_outbox *o, struct pl_diag *d) {
    struct pl_windows w = {0};
    const struct pl_window_source source = pl_window_source_device(io);
    pl_err err = pl_windows_add_adapter(&w, io->program, d);
    if (err == PL_ERR_OK) err = pl_windows_save(&w, 0, w.n, &source, o, ADAPTER_FILE, d);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_adapter_put(const struct pl_tensor_io *io, struct pl_outbox *o, const struct pl_job *job,
                      const struct pl_companions *companions, struct pl_diag *d) {
    const struct pl_window_source source = pl_window_source_device(io);
    PL_TRY(pl_adapter_join(io, o, d));
    json_t *config = make_config(io->program, job);
    const pl_err err = pl_json_put(o, PL_ADAPTER_CONFIG, config, d);
    json_decref(config);
    if (err != PL_ERR_OK) return err;
    return pl_companions_put(o, companions, source.buffer, source.buffer_bytes, d);
}

static void join_rows(const struct pl_program *p, pl_row_set mask, char out[NAMES_TEXT]) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t n_rows = pl_model_modules(p->model, rows);
    char path[128];
    int len = 0;
    snprintf(out, NAMES_TEXT, "none");
    for (uint32_t r = 0; r < n_rows && len < NAMES_TEXT; r++)
        if (pl_row_set_has(mask, r))
            len += snprintf(out + len, (size_t)(NAMES_TEXT - len), "%s%s", len ? ", " : "",
                            end_of_path(&rows[r], path));
}

/* The tensors of the file will tell which layers they are in. */
static pl_err check_targets(const struct pl_adapter_config *c, const struct pl_program *p,
                            struct pl_diag *d) {
    struct pl_targets t;
    char want[NAMES_TEXT], have[NAMES_TEXT];
    PL_TRY(pl_adapter_config_targets(c, p->model, &t, d));
    const struct pl_targets *own = &p->shape.lora_targets;
    if (t.whole != own->whole) {
        join_rows(p, own->whole, want);
        join_rows(p, t.whole, have);
        return pl_adapter_config_refuse(
            c, d, "modules_to_save are %s, lora_modules_to_save of this run %s", have, want);
    }
    if (t.rows == own->rows && t.once == own->once) return PL_ERR_OK;
    join_rows(p, own->rows | own->once, want);
    join_rows(p, t.rows | t.once, have);
    return pl_adapter_config_refuse(
        c, d, "target_modules are %s, lora_target_modules of this run %s", have, want);
}

static pl_err check_config(const struct pl_adapter_config *c, const struct pl_program *p,
                           struct pl_diag *d) {
    if (c->r != p->shape.lora_r)
        return pl_adapter_config_refuse(c, d, "r is %llu, lora_r of this run %llu",
                                        (unsigned long long)c->r,
                                        (unsigned long long)p->shape.lora_r);
    PL_TRY(check_targets(c, p, d));
    /* Another scale would make another model of the same matrices. */
    if (fabs(c->scale - p->shape.lora_scale) <= 1e-9 * fabs(c->scale)) return PL_ERR_OK;
    return pl_adapter_config_refuse(
        c, d, "lora_alpha %g%s makes a scale of %.9g, this run's is %.9g", c->alpha,
        c->use_rslora ? " with use_rslora" : "", c->scale, p->shape.lora_scale);
}

static pl_err add_base_copy(struct pl_windows *w, const struct pl_weight_files *f,
                            const struct pl_program *p, struct pl_diag *d) {
    const bool shared = p->model->tied && !pl_shape_unties(&p->shape, p->model);
    static const enum pl_slot slots[] = {PL_SLOT_EMBED, PL_SLOT_HEAD};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        const enum pl_slot holder = shared ? PL_SLOT_EMBED : slots[i];
        const uint32_t base = pl_program_find(p, PL_ROLE_WEIGHT, holder, PL_NONE);
        if (pl_shape_is_whole(&p->shape, p->model, slots[i]) || base == PL_NONE) continue;
        PL_TRY(pl_windows_add_base_copy(w, f, p->model, slots[i], base, d));
    }
    return PL_ERR_OK;
}

static pl_err find_tensors(struct pl_windows *w, struct pl_weight_files *f,
                           const struct pl_program *p, const char *dir, struct pl_diag *d) {
    PL_TRY(pl_windows_add_adapter(w, p, d));
    PL_TRY(pl_weight_files_open(f, dir, PL_ADAPTER_STEM, PL_ERR_CHECKPOINT_FILE, d));
    PL_TRY(add_base_copy(w, f, p, d));
    return pl_windows_resolve(w, f, PL_MATCH_COMPLETE, PL_ERR_CHECKPOINT_MISMATCH, d);
}

static pl_err find_adapter(struct pl_windows *w, struct pl_weight_files *f,
                           const struct pl_program *p, const char *dir, struct pl_diag *d) {
    struct pl_adapter_config c;
    PL_TRY(pl_adapter_config_read(&c, dir, d));
    pl_err err = check_config(&c, p, d);
    if (err == PL_ERR_OK) err = find_tensors(w, f, p, dir, d);
    if (err == PL_ERR_CHECKPOINT_MISMATCH) pl_adapter_config_hint(&c, d);
    pl_adapter_config_finish(&c);
    return err;
}

pl_err pl_adapter_check_files(const struct pl_program *p, const char *dir, struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = find_adapter(&w, &f, p, dir, d);
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}

pl_err pl_adapter_load(const struct pl_tensor_io *io, const char *dir, struct pl_diag *d) {
    struct pl_windows w = {0};
    struct pl_weight_files f = {0};
    pl_err err = find_adapter(&w, &f, io->program, dir, d);
    if (err == PL_ERR_OK) err = pl_windows_load(&w, io, true, d);
    pl_weight_files_close(&f);
    pl_windows_finish(&w);
    return err;
}
