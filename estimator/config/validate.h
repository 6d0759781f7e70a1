/* validate.h - rules between keys that reading and writing share. Internal to config/. */
#ifndef PL_ESTIMATOR_CONFIG_VALIDATE_H
#define PL_ESTIMATOR_CONFIG_VALIDATE_H

#include "estimator/config/job.h"

/* Keys without which a configuration says nothing: mode, and a source of the model. */
pl_err pl_job_require_keys(const struct pl_job *job, struct pl_diag *d);

/* False for a key that another key's value makes meaningless (lora_r under `mode: full`): its
 * default is not written to config.resolved.yaml. */
bool pl_job_key_applies(const struct pl_job *job, enum pl_key_id key);
/* Of a key that was given and is to be dropped: "`lora_r` has no meaning with `mode: full`" into
 * *why; false for every other. */
bool pl_job_key_is_useless(const struct pl_job *job, enum pl_key_id key, struct pl_text *why);

#endif
