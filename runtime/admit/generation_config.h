/* generation_config.h - what a model's generation_config.json says about generating.
 *
 * In: the directory of a config.json.  Out: end tokens of the model, notes.
 * Needs: checkpoint/json_io.h, model.
 *   G1  its `eos_token_id`, a number or a list, replaces that of config.json, as in transformers;
 *       where it has none, that of config.json stands
 *   G2  its sampling defaults are told and not used
 *   G3  a file that cannot be read, and a value that is no id, are noted and do not stop a run
 * Use: pl_generation_config_take("model/config.json", &model, &notes, &d); */
#ifndef PL_RUNTIME_ADMIT_GENERATION_CONFIG_H
#define PL_RUNTIME_ADMIT_GENERATION_CONFIG_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/model/model.h"

/* Reads the file next to the config.json that `config_path` names. PL_ERR_HOST_OOM. */
pl_err pl_generation_config_take(const char *config_path, struct pl_model *m, struct pl_text *notes,
                                 struct pl_diag *d);

#endif
