#include "runtime/admit/adapter_job.h"

#include "estimator/config/job_text.h"
#include "estimator/config/scalar.h"
#include "runtime/checkpoint/adapter_config.h"

static pl_err take_list(struct pl_job *names, const char *key, struct pl_text *text,
                        struct pl_diag *d) {
    pl_text_add(text, "]");
    pl_err err =
        text->failed ? pl_host_oom(d, "a list") : pl_job_set(names, key, pl_text_str(text), d);
    pl_text_finish(text);
    return err;
}

static pl_err take_names(struct pl_job *names, const char *key, const struct pl_target_names *from,
                         struct pl_diag *d) {
    struct pl_text text = {0};
    if (!from->n) return PL_ERR_OK;
    for (uint32_t i = 0; i < from->n; i++) {
        pl_text_add(&text, i ? ", " : "[");
        pl_scalar_write(&text, from->items[i]);
    }
    return take_list(names, key, &text, d);
}

static pl_err take_layers(struct pl_job *names, const struct pl_target_choice *c,
                          const struct pl_model *m, struct pl_diag *d) {
    struct pl_text text = {0};
    if (!c->some_layers) return PL_ERR_OK;
    for (uint64_t l = 0; l < m->layers; l++)
        if (pl_target_has_layer(c, l))
            pl_text_addf(&text, "%s%llu", text.len ? ", " : "[", (unsigned long long)l);
    return take_list(names, "layers_to_transform", &text, d);
}

/* The choice of the file has been found to match something of this model. Parameters may stand
 * among the modules, too, and do where the file has no modules: a job has no empty list of them. */
static pl_err take_choice(struct pl_job *names, const struct pl_adapter_config *c,
                          const struct pl_model *m, struct pl_diag *d) {
    struct pl_targets found;
    PL_TRY(pl_adapter_config_targets(c, m, &found, d));
    PL_TRY(pl_job_defaults(names, d));
    const struct pl_target_names *modules = &c->choice.modules, *parameters = &c->choice.parameters;
    PL_TRY(take_names(names, "lora_target_modules", modules->n ? modules : parameters, d));
    if (modules->n) PL_TRY(take_names(names, "lora_target_parameters", parameters, d));
    PL_TRY(take_names(names, "lora_exclude_modules", &c->choice.excluded, d));
    PL_TRY(take_names(names, "layers_pattern", &c->choice.lists, d));
    PL_TRY(take_names(names, "lora_modules_to_save", &c->choice.whole, d));
    return take_layers(names, &c->choice, m, d);
}

pl_err pl_adapter_job_read(struct pl_job *names, const struct pl_model *m, const char *dir,
                           struct pl_adapter_facts *out, struct pl_diag *d) {
    struct pl_adapter_config c = {0};
    PL_TRY(pl_adapter_config_read(&c, dir, d));
    *out = (struct pl_adapter_facts){.are = true,
                                     .r = (uint32_t)c.r,
                                     .alpha = c.alpha,
                                     .use_rslora = c.use_rslora,
                                     .names = names};
    pl_err err = take_choice(names, &c, m, d);
    pl_adapter_config_finish(&c);
    return err;
}
