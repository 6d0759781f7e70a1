/* validate.h - rules between keys: combinations that are refused. */
#ifndef PL_ESTIMATOR_CONFIG_VALIDATE_H
#define PL_ESTIMATOR_CONFIG_VALIDATE_H

#include "estimator/base/diag.h"
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

#endif
