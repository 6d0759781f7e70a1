/* validate.h - rules between keys: what is refused, and what has no meaning. */
#ifndef PL_ESTIMATOR_CONFIG_VALIDATE_H
#define PL_ESTIMATOR_CONFIG_VALIDATE_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"

/* Combinations (J2); pl_job_read has already called it. */
pl_err pl_job_validate(const struct pl_job *job, struct pl_diag *d);
/* CONFIG_CONFLICT where `comm` moves no memory of the device; `device: auto` is not judged, so who
 * decides it asks again. */
pl_err pl_job_check_comm(const struct pl_job *job, struct pl_diag *d);
/* What training needs beyond an estimate: data to train on, and at least one step. */
pl_err pl_job_require_training(const struct pl_job *job, struct pl_diag *d);
/* Keys without which a configuration says nothing: a source of the model, and what is trained, but
 * where nothing is (mode false). */
pl_err pl_job_require_keys(const struct pl_job *job, bool mode, struct pl_diag *d);

/* False for a key that another key's value makes meaningless (lora_r under `mode: full`): its
 * default is not written to config.resolved.yaml. */
bool pl_job_key_applies(const struct pl_job *job, enum pl_key_id key);
/* Of a key that was given and is to be dropped: "`lora_r` has no meaning with `mode: full`" into
 * *why; false for every other. */
bool pl_job_key_is_useless(const struct pl_job *job, enum pl_key_id key, struct pl_text *why);

#endif
