/* resolve.h - finds the config.json of the model that a user named.
 *
 * In: a path or a name.  Out: the path of the config, and of the weights if they are on this
 * machine.
 * Needs: base, catalogue; the file system and the environment are only read.
 *   R1  the order is: a directory or file, the Hugging Face hub cache, the built-in catalogue; a
 *       directory without config.json is the one GGUF file that it holds
 *   R2  the hub cache is where hub_cache.h says; refs/main names the snapshot
 *   R3  nothing is guessed: a cache whose snapshot is broken is named in a note, and passed over
 *       only for a model of the catalogue
 *   R4  a name that the catalogue knows by another spelling is looked for in the cache by its id as
 *       well, and a note says which id was taken
 * Use: struct pl_model_ref ref;
 *      if (pl_model_resolve("Qwen/Qwen2.5-7B", &ref, &notes, &d) == PL_ERR_OK)
 *          pl_model_read(ref.config, &model, &d);
 *      pl_model_ref_finish(&ref); */
#ifndef PL_ESTIMATOR_MODEL_RESOLVE_H
#define PL_ESTIMATOR_MODEL_RESOLVE_H

#include "estimator/base/text.h"
#include "estimator/model/catalogue.h"

enum pl_model_origin { PL_ORIGIN_PATH, PL_ORIGIN_HUB_CACHE, PL_ORIGIN_CATALOGUE };

struct pl_model_ref {
    enum pl_model_origin origin;
    char *config;      /* for pl_model_read: a path, which may not exist, or "catalogue:NAME" */
    char *weights_dir; /* a directory, or a GGUF file; NULL: the catalogue knows no weights */
};

/* PL_ERR_MODEL_FILE: `name` reads like the name of a model, and there is none; the message lists
 * where it was looked for, the hint the nearest names. A text that reads like a path is returned as
 * one. notes may be NULL. On failure *out is {0}. */
pl_err pl_model_resolve(const char *name, struct pl_model_ref *out, struct pl_text *notes,
                        struct pl_diag *d);
/* Records MODEL_WEIGHTS: the weights of `name` are not on this machine; the hint is the command
 * that fetches them. */
pl_err pl_model_not_here(const char *name, struct pl_diag *d);
/* Writes the Hugging Face id that `name` stands for, of the catalogue or as it is written; false if
 * it stands for none. */
bool pl_model_hub_id(const char *name, char id[PL_KNOWN_ID]);
/* Appends "`plimsoll fetch ID` fetches the model" where pl_model_hub_id finds an id. */
void pl_model_add_fetching(const char *name, struct pl_text *out);
void pl_model_ref_finish(struct pl_model_ref *ref); /* leaves {0} */

#endif
