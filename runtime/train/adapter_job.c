/* adapter_job.c - see adapter_job.h. */
#include "runtime/train/adapter_job.h"

#include "runtime/checkpoint/adapter_config.h"

#include <string.h>

/* PEFT matches the end of a module path: `self_attn.q_proj` means q_proj. */
static const char *module_of(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static pl_err take_modules(struct pl_job *job, const struct pl_adapter_config *c,
                           struct pl_diag *d) {
    const json_t *list = json_object_get(c->root, "target_modules"), *item;
    const char *word = json_string_value(list);
    struct pl_text text = {0};
    size_t i;
    if (word && strcmp(word, "all-linear") == 0)
        return pl_job_set(job, "lora_target_modules", word, d);
    if (word || json_array_size(list) == 0)
        return pl_adapter_config_refuse(c, d, "target_modules is %s, not a list of modules",
                                        word ? word : "empty");
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        pl_text_addf(&text, "%s%s", i ? ", " : "[", name ? module_of(name) : "?");
    }
    pl_text_add(&text, "]");
    pl_err err = text.failed ? pl_host_oom(d, "a list")
                             : pl_job_set(job, "lora_target_modules", pl_text_str(&text), d);
    pl_text_finish(&text);
    return err;
}

/* An adapter of a run with `freeze_layers: N` sits on the layers from N on. */
static pl_err take_layers(struct pl_job *job, const struct pl_adapter_config *c,
                          const struct pl_model *m, struct pl_diag *d) {
    const json_t *list = json_object_get(c->root, "layers_to_transform");
    size_t n = json_array_size(list);
    job->freeze_layers = 0;
    if (!list || json_is_null(list)) return PL_ERR_OK;
    for (size_t i = 0; i < n && n <= m->layers; i++)
        if (json_integer_value(json_array_get(list, i)) != (json_int_t)(m->layers - n + i)) n = 0;
    if (n == 0 || n > m->layers)
        return pl_adapter_config_refuse(c, d,
                                        "layers_to_transform are not the last ones, in order");
    job->freeze_layers = (uint32_t)(m->layers - n);
    return PL_ERR_OK;
}

pl_err pl_adapter_job_fill(struct pl_job *job, const struct pl_model *m, const char *dir,
                           struct pl_diag *d) {
    struct pl_adapter_config c = {0};
    PL_TRY(pl_adapter_config_read(&c, dir, d));
    if (!pl_mode_adapts(job->mode)) job->mode = PL_MODE_LORA;
    job->lora_r = (uint32_t)c.r;
    job->lora_alpha = c.alpha;
    job->use_rslora = c.use_rslora;
    job->lora_dropout = 0;
    pl_err err = take_modules(job, &c, d);
    if (err == PL_ERR_OK) err = take_layers(job, &c, m, d);
    pl_adapter_config_finish(&c);
    return err;
}
