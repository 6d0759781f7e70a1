/* validate.h - rules between keys: combinations that are refused. */
#ifndef PL_ESTIMATOR_CONFIG_VALIDATE_H
#define PL_ESTIMATOR_CONFIG_VALIDATE_H

#include "estimator/base/diag.h"
#include "estimator/config/job.h"

/* Checks combinations (J2); pl_job_read has already called it. */
pl_err pl_job_validate(const struct pl_job *job, struct pl_diag *d);
/* CONFIG_CONFLICT if `comm` cannot move memory of the device. `device: auto` is not judged: the
 * caller that decides it checks again. */
pl_err pl_job_check_comm(const struct pl_job *job, struct pl_diag *d);
/* Requires what training needs beyond an estimate: training data, and at least one step. */
pl_err pl_job_require_training(const struct pl_job *job, struct pl_diag *d);
/* Requires the keys without which a configuration has no meaning: a source of the model, and with
 * `mode` a mode, which a job that trains nothing does not need. */
pl_err pl_job_require_keys(const struct pl_job *job, bool mode, struct pl_diag *d);

#endif
