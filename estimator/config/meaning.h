/* meaning.h - keys that have no meaning with the others.
 *
 * In: a job.  Out: which of its keys do nothing.  Needs: job.h.
 *   K1  a key that was written and does nothing is a warning with its line; one that is written for
 *       another training, or another thing saved, than the other keys say is an error
 *   K2  a default that does nothing is not written to config.resolved.yaml, which gives no warning
 *       when it is fed back */
#ifndef PL_ESTIMATOR_CONFIG_MEANING_H
#define PL_ESTIMATOR_CONFIG_MEANING_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"

/* False if another key's value makes the key meaningless (lora_r under `mode: full`): its default
 * is not written to config.resolved.yaml. */
bool pl_job_key_applies(const struct pl_job *job, enum pl_key_id key);
/* True if a key was given and is to be dropped; appends "`lora_r` has no meaning with `mode: full`"
 * to *why. */
bool pl_job_key_is_useless(const struct pl_job *job, enum pl_key_id key, struct pl_text *why);
/* True if a key was given that has its meaning under another `stage`; appends what
 * pl_job_key_is_useless() appends. */
bool pl_job_key_is_of_other_stage(const struct pl_job *job, enum pl_key_id key,
                                  struct pl_text *why);
/* Checks the errors of K1. */
pl_err pl_job_check_meaning(const struct pl_job *job, struct pl_diag *d);

#endif
