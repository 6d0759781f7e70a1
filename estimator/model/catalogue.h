/* catalogue.h - public models that are known without a download: names and config.json.
 *
 * In: a name or a Hugging Face id.  Out: a row of the table.  Needs: base.
 *   C1  a row holds the config.json of the published model, read by the same reader as a file: no
 *       size is stored separately; a row may have the facts of another one but for some keys
 *   C2  the owner of an id is compared as well: a repository of another owner may hold another
 *       architecture under the same name, so it is not taken for this one
 *   C3  `-`, `_`, `.`, `:` and a space are one separator, which may be missing before a digit, and
 *       letter case does not matter: "qwen2.5:7b" has the letters of "Qwen2.5-7B"
 * Variants share a row when their architectures do (base and instruct); token ids of the variants
 * may differ, no byte of a plan depends on them.
 * Adding a model: a row in catalogue_rows.c; one with sizes of its own has its directory and its
 * counts in tests/model/configs.
 * Use: const struct pl_known_model *k = pl_catalogue_find("Qwen/Qwen2.5-7B-Instruct", NULL);
 *      pl_catalogue_config(k, &text, &d) and pl_model_parse(k->name, text, strlen(text), &m, &d) */
#ifndef PL_ESTIMATOR_MODEL_CATALOGUE_H
#define PL_ESTIMATOR_MODEL_CATALOGUE_H

#include "estimator/base/text.h"

#include <stddef.h>

struct pl_known_model {
    const char *name;       /* e.g. "Qwen2.5-7B" */
    const char *const *ids; /* for pl_catalogue_id; NULL after the last */
    const char *like;       /* nullable: the name of the row whose config these models have ... */
    const char *config;     /* ... but for the keys of this JSON text */
};

#define PL_KNOWN_ID 128 /* the hub allows 96 letters */
struct pl_known_as {
    char id[PL_KNOWN_ID]; /* the Hugging Face id that was meant */
    bool guessed;         /* the name is none of the row's names and ids: it is spelt another way,
                           * or it is a name of Ollama */
};

/* Finds a model by name, by id, by the part of an id after its slash, by another spelling of these,
 * or by its name at Ollama; NULL = unknown. `as` may be NULL. */
const struct pl_known_model *pl_catalogue_find(const char *name, struct pl_known_as *as);
/* Returns the whole table. */
const struct pl_known_model *pl_catalogue_table(size_t *n);
/* Writes the i-th id of a row; false after the last. */
bool pl_catalogue_id(const struct pl_known_model *k, size_t i, char id[PL_KNOWN_ID]);
/* Gives the config.json of a row, malloc'd. */
pl_err pl_catalogue_config(const struct pl_known_model *k, char **text, struct pl_diag *d);
/* Appends the names most like `name`, at most three, as "A, B or C"; nothing if none is near. */
void pl_catalogue_nearest(const char *name, struct pl_text *out);

#endif
