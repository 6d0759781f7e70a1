/* prompts.h - the prompts that the model in training answers, as tokens; private to the room.
 *
 * In: `sample_prompts` of a job whose data are read.  Out: pf->prompts.  Needs: data. */
#ifndef PL_RUNTIME_ADMIT_PROMPTS_H
#define PL_RUNTIME_ADMIT_PROMPTS_H

#include "runtime/admit/admission.h"

/* Does nothing where the job names none. CONFIG_RANGE: a prompt leaves no room for an answer, or
 * has no token. */
pl_err pl_preflight_prompts(struct pl_preflight *pf, struct pl_diag *d);
void pl_run_prompts_finish(struct pl_run_prompts *p); /* leaves {0} */

#endif
