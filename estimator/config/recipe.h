/* recipe.h - recognises a configuration of another trainer by its keys.
 *
 * In: a document.  Out: the trainer whose keys it has.  Needs: document.h.
 *   F1  a document that has `mode`, or a `model` that is a name, is a job of ours however many keys
 *       of others stand in it, unless the keys of one trainer leave no doubt
 * The answer depends on the names of keys alone, not on their values.
 * Use: if (pl_recipe_find(&doc) != PL_RECIPE_NONE) ...; */
#ifndef PL_ESTIMATOR_CONFIG_RECIPE_H
#define PL_ESTIMATOR_CONFIG_RECIPE_H

#include "estimator/config/document.h"

/* X(ID, "name on the command line", "name in sentences") */
#define PL_RECIPE_TRAINERS(X)                                                                      \
    X(AXOLOTL, "axolotl", "axolotl")                                                               \
    X(LLAMA_FACTORY, "llamafactory", "LLaMA-Factory")                                              \
    X(TORCHTUNE, "torchtune", "torchtune")                                                         \
    X(TRL, "trl", "TRL")                                                                           \
    X(UNSLOTH, "unsloth", "Unsloth")                                                               \
    X(PEFT, "peft", "PEFT")                                                                        \
    X(ACCELERATE, "accelerate", "accelerate")

enum pl_recipe {
    PL_RECIPE_NONE,
#define X(id, name, title) PL_RECIPE_##id,
    PL_RECIPE_TRAINERS(X)
#undef X
        PL_RECIPE_COUNT
};

/* The choices of a flag that names a trainer: "axolotl|llamafactory|...". */
#define PL_RECIPE_CHOICE(id, name, title) "|" name
#define PL_RECIPE_CHOICES                 &(PL_RECIPE_TRAINERS(PL_RECIPE_CHOICE))[1]

enum pl_recipe pl_recipe_find(const struct pl_document *doc);
enum pl_recipe pl_recipe_by_name(const char *name); /* PL_RECIPE_NONE: there is none */
const char *pl_recipe_name(enum pl_recipe f);       /* "llamafactory" */
const char *pl_recipe_title(enum pl_recipe f);      /* "LLaMA-Factory" */

#endif
