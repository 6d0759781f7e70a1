/* begin_anew.h - a run that halves its micro-batch before its first update begins again.
 *
 * In: a run of which no step was committed since its weights were loaded.  Out: the run that was
 * begun with the smaller micro-batch, resumed where this one was.  Needs: session.
 *   W1  open settings of the job are decided for the smaller micro-batch (anew.h): losses and
 *       weights are those, bit for bit, of a job with that `batch_size` and these samples a step
 *   W2  after an update only the micro-batch changes: chunks, panels and the type of gradients
 *       change bits, and the job arena holds the state */
#ifndef PL_RUNTIME_TRAIN_BEGIN_ANEW_H
#define PL_RUNTIME_TRAIN_BEGIN_ANEW_H

#include "runtime/train/training_run.h"

/* True if no update was made yet, or none that counts. */
bool pl_run_may_begin_anew(const struct pl_run *r);
/* Sets *taken to false if the device has no room for it; nothing was changed then. Else both arenas
 * are to be reserved and the weights to be loaded: r->anew. */
pl_err pl_run_begin_anew(struct pl_run *r, uint32_t batch_size, bool *taken, struct pl_diag *d);
/* Called if r->anew is set, before the next micro-batch. */
pl_err pl_run_load_anew(struct pl_run *r, struct pl_diag *d);

#endif
