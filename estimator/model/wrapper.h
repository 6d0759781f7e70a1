/* wrapper.h - the language model inside a multimodal model's config.json.
 *
 * In: the text of a config.json.  Out: the text of its language model's alone, as a model of its
 * own would have it.  Needs: base, jansson. */
#ifndef PL_ESTIMATOR_MODEL_WRAPPER_H
#define PL_ESTIMATOR_MODEL_WRAPPER_H

#include "estimator/base/diag.h"

#include <stdint.h>

/* Replaces *text, malloc'd and with a NUL after its *bytes bytes, by the config.json of the
 * language model where it is that of a known wrapper. Leaves any other text as it is, and one of
 * more values than most_weight (json_tree.h), which pl_model_parse() refuses. HOST_OOM. */
pl_err pl_model_unwrap(char **text, uint64_t *bytes, uint64_t most_weight, struct pl_diag *d);

#endif
