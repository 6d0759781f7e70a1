/* wrapper.h - the language model inside a multimodal model's config.json.
 *
 * In: the text of a config.json.  Out: the config.json of its language model alone.  Needs: base,
 * jansson. */
#ifndef PL_ESTIMATOR_MODEL_WRAPPER_H
#define PL_ESTIMATOR_MODEL_WRAPPER_H

#include "estimator/base/diag.h"

#include <stdint.h>

/* If the text is the config.json of a known wrapper, replaces *text (malloc'd, with a NUL after its
 * *bytes bytes) by that of the language model. Leaves any other text unchanged, also one of more
 * values than most_weight (json_tree.h), which pl_model_parse() refuses. HOST_OOM. */
pl_err pl_model_unwrap(char **text, uint64_t *bytes, uint64_t most_weight, struct pl_diag *d);

#endif
