/* adapter_job.h - the settings of a job that an adapter on disk decides.
 *
 * In: a PEFT directory.  Out: lora_* and freeze_layers of a job.  Needs: config, model, checkpoint.
 * Use: pl_adapter_job_fill(&job, &model, "output/lora", &d); */
#ifndef PL_RUNTIME_ADMIT_ADAPTER_JOB_H
#define PL_RUNTIME_ADMIT_ADAPTER_JOB_H

#include "estimator/config/job.h"
#include "estimator/model/model.h"

/* Sets `mode: lora` but where it is qlora, and rank, scale, modules and the lowest layer as
 * adapter_config.json has them.
 * CHECKPOINT_MISMATCH: it names modules by a pattern, or layers other than the last ones. */
pl_err pl_adapter_job_fill(struct pl_job *job, const struct pl_model *m, const char *dir,
                           struct pl_diag *d);

#endif
