/* adapter_job.h - the settings of a job that an adapter on disk decides.
 *
 * In: a PEFT directory.  Out: facts for spec.h: rank, scale, modules and the lowest layer as
 * adapter_config.json has them.  Needs: config, model, checkpoint.
 * Use: struct pl_job names = {0};
 *      pl_adapter_job_read(&names, &model, "output/lora", &spec.facts.adapter, &d);
 *      ... pl_job_finish(&names); */
#ifndef PL_RUNTIME_ADMIT_ADAPTER_JOB_H
#define PL_RUNTIME_ADMIT_ADAPTER_JOB_H

#include "estimator/config/spec.h"
#include "estimator/model/model.h"

/* Reads the file. *names is {0} before; it holds the lists that *out borrows, and is the caller's
 * to finish always. CHECKPOINT_MISMATCH: it asks for what is not read (adapter_config.h), or fits
 * another model. */
pl_err pl_adapter_job_read(struct pl_job *names, const struct pl_model *m, const char *dir,
                           struct pl_adapter_facts *out, struct pl_diag *d);

#endif
