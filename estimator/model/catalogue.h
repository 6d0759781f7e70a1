/* catalogue.h - public models that are known without a download: names and config.json.
 *
 * In: a name or a Hugging Face id.  Out: a row of the table.  Needs: base.
 *   C1  a row holds the config.json of the published model, read by the same reader as a file: no
 *       size is stored separately
 *   C2  ids are compared whole, ignoring letter case: a repository of another owner may hold
 *       another architecture under the same name, so it is not taken for this one
 *   C3  variants share a row when their architectures do (base and instruct); token ids of the
 *       variants may differ, no byte of a plan depends on them
 * Adding a model: a row in catalogue.c, its directory and counts in tests/model/configs.
 * Use: const struct pl_known_model *k = pl_catalogue_find("Qwen/Qwen2.5-7B-Instruct");
 *      pl_model_parse(k->name, k->config, strlen(k->config), &model, &d); */
#ifndef PL_ESTIMATOR_MODEL_CATALOGUE_H
#define PL_ESTIMATOR_MODEL_CATALOGUE_H

#include "estimator/base/text.h"

#include <stddef.h>

#define PL_KNOWN_IDS 4

struct pl_known_model {
    const char *name;              /* e.g. "Qwen2.5-7B" */
    const char *ids[PL_KNOWN_IDS]; /* Hugging Face ids, NULL after the last */
    const char *config;            /* JSON text */
};

/* Finds a model by name, by id, or by the part of an id after its slash; NULL = unknown. */
const struct pl_known_model *pl_catalogue_find(const char *name);
const struct pl_known_model *pl_catalogue_table(size_t *n);
/* Appends the names most like `name`, at most three, as "A, B or C"; nothing if none is near. */
void pl_catalogue_nearest(const char *name, struct pl_text *out);

#endif
