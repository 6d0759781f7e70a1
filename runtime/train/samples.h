/* samples.h - answers of the model in training to the prompts of the job; private to the room.
 *
 * In: a run whose steps are all collected, pf->prompts.  Out: answers, told in the log, on the
 * board and as notes of rank 0.  Needs: generate, session, report.
 *   A1  samples change no bit of what is trained: tokens are drawn by counters of their own, and
 *       the phase shares only the batch arena with the step
 *   A2  no memory is asked for on the device; after the start the host's is asked for texts alone
 *   A3  the same weights give the same answers, whatever the number of ranks
 *   A4  where memory runs out a prompt is tried once more; then it and those after it are left out.
 *       The run continues as without samples, unless the job recovers from nothing */
#ifndef PL_RUNTIME_TRAIN_SAMPLES_H
#define PL_RUNTIME_TRAIN_SAMPLES_H

#include "runtime/train/training_run.h"

/* Called once the session is open. */
pl_err pl_run_init_samples(struct pl_run *r, struct pl_diag *d);
/* Does nothing if the job has no prompts. After a signal the answers end early. */
pl_err pl_run_sample(struct pl_run *r, struct pl_diag *d);
void pl_run_finish_samples(struct pl_run *r);

#endif
