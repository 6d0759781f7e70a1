/* targets.h - the modules of a model that have an adapter, and those that are trained whole, as
 * PEFT decides.
 *
 * In: what a job or an adapter_config.json says.  Out: rows of the model, layer by layer.
 *   V1  a module is named by its path, `model.layers.3.self_attn.q_proj`: an expression matches
 *       all of it, an entry of a list is all of it or its end after a dot
 *   V2  an entry that names no module of this model is an error, but for one of an adapter on disk,
 *       where PEFT wrote down what it was given; that nothing is named always is
 *   V3  only the embedding and the head may be trained whole, and then have no adapter
 *   V4  an adapter on disk may have been trained on a multimodal model, whose paths hold
 *       `language_model`: names and expressions that fit no plain path are tried on those
 *   V5  the experts of a layer are adapted one by one, as the modules that files hold, or as the
 *       parameters in which transformers holds all of them; parameters are named by the ends of
 *       their paths, in any layer, or by a module's name alone; an expression matches modules
 * Use: pl_targets_find(&model, &choice, &targets, &d). */
#ifndef PL_ESTIMATOR_MODEL_TARGETS_H
#define PL_ESTIMATOR_MODEL_TARGETS_H

#include "estimator/model/model.h"

#define PL_LAYER_WORDS (PL_MODEL_MAX_LAYERS / 64)

/* A list of names, or one regular expression (base/path_pattern.h). */
struct pl_target_names {
    const char *const *items; /* borrowed */
    uint32_t n;
};
struct pl_target_choice {
    struct pl_target_names modules; /* PEFT's target_modules; `all-linear`: those of the decoder */
    struct pl_target_names parameters; /* target_parameters: names only */
    struct pl_target_names excluded;   /* exclude_modules */
    struct pl_target_names lists;      /* layers_pattern: expressions for the name of the layers */
    struct pl_target_names whole;      /* modules_to_save: names only */
    bool some_layers;                  /* layers_to_transform is given: `layers` counts */
    uint64_t layers[PL_LAYER_WORDS];   /* one bit a layer */
    bool of_file;                      /* the choice comes from an adapter on disk (V2) */
};
static inline void pl_target_choose_layer(struct pl_target_choice *c, uint64_t layer) {
    c->layers[layer / 64] |= UINT64_C(1) << layer % 64;
}
static inline bool pl_target_has_layer(const struct pl_target_choice *c, uint64_t layer) {
    return !c->some_layers || (c->layers[layer / 64] >> layer % 64 & 1);
}

/* The field of the choice that an error is about. */
enum pl_target_field {
    PL_TARGET_MODULES,
    PL_TARGET_PARAMETERS,
    PL_TARGET_EXCLUDED,
    PL_TARGET_LISTS,
    PL_TARGET_LAYERS,
    PL_TARGET_WHOLE,
};

/* Results, as sets of pl_model_modules(). */
struct pl_targets {
    pl_row_set whole;                       /* trained as they are */
    pl_row_set once;                        /* with an adapter, outside the layers */
    pl_row_set rows;                        /* with an adapter in some layer */
    pl_row_set absent[PL_MODEL_MAX_LAYERS]; /* a subset of `rows`: those without an adapter in a
                                               layer */
};
static inline pl_row_set pl_targets_of_layer(const struct pl_targets *t, uint64_t layer) {
    return t->rows & ~t->absent[layer];
}

/* PL_ERR_CONFIG_RANGE or _CONFLICT: *wrong (nullable) holds the field. */
pl_err pl_targets_find(const struct pl_model *m, const struct pl_target_choice *c,
                       struct pl_targets *out, enum pl_target_field *wrong, struct pl_diag *d);
/* True if a text can only be a regular expression: it has characters that no path has. */
bool pl_target_is_pattern(const char *name);
/* Writes the path of the module that holds a row: "model.layers.3.self_attn.q_proj". */
void pl_target_path(const struct pl_param_row *row, uint64_t layer, char buf[128]);

#endif
