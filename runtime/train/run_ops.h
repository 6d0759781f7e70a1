/* run_ops.h - ranges of ops of a step, and the faults that a test injects into them; private to the
 * room. */
#ifndef PL_RUNTIME_TRAIN_RUN_OPS_H
#define PL_RUNTIME_TRAIN_RUN_OPS_H

#include "runtime/train/training_run.h"

/* Fails as a kernel without memory would. */
pl_err pl_run_inject(struct pl_run *r, struct pl_diag *d);
/* Runs ops of a range; `before` is the outcome of what came before it: after a failure of this rank
 * only those run that other ranks wait for (E5 of exec.h). Returns the first failure. */
pl_err pl_run_ops(struct pl_run *r, pl_err before, const struct pl_phase_range *ops,
                  struct pl_diag *d);

/* Waits for the device after a failure. */
pl_err pl_run_drain(struct pl_run *r, struct pl_diag *d);

#endif
