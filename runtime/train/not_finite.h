/* not_finite.h - why a step ended without a finite loss or norm.
 *
 * In: the step, whose values are here and whose update was switched off.  Out: the error that ends
 * the run.  Needs: exec (watch.h), micro_batch.h.
 *   N1  the micro-batches of the step are computed once more, op by op, up to the first value that
 *       is not finite; weights and optimizer states stay as they are, so they can still be saved
 *   N2  all ranks do so together: ops between them run on every rank
 * Private to the room. */
#ifndef PL_RUNTIME_TRAIN_NOT_FINITE_H
#define PL_RUNTIME_TRAIN_NOT_FINITE_H

#include "runtime/train/training_run.h"

/* Adds to the message of an error the tensor, layer and op where the first such value is, if there
 * is one. d may be NULL: nothing is computed. */
void pl_run_name_not_finite(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d);
/* Returns PL_ERR_NOT_FINITE for a step whose values are here. Sets r->half_updated. */
pl_err pl_run_refuse_not_finite(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d);

#endif
