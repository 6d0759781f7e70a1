/* outcome.h - files that a run leaves besides weights: preflight.json, pictures; private to the
 * room. */
#ifndef PL_RUNTIME_TRAIN_OUTCOME_H
#define PL_RUNTIME_TRAIN_OUTCOME_H

#include "runtime/train/training_run.h"

pl_err pl_run_write_preflight(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_write_pictures(struct pl_run *r, uint64_t measured_bytes, struct pl_diag *d);

#endif
