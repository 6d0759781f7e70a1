/* outcome.h - what a run leaves besides weights: its books, preflight.json, the receipt, pictures;
 * private to the room. */
#ifndef PL_RUNTIME_TRAIN_OUTCOME_H
#define PL_RUNTIME_TRAIN_OUTCOME_H

#include "runtime/train/training_run.h"

/* Checks S1 of session.h; fills the books and the counts of *out. */
pl_err pl_run_check_books(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);
/* Called by every rank; the first one writes. */
pl_err pl_run_write_preflight(struct pl_run *r, struct pl_diag *d);
/* Rewrites config.resolved.yaml, timeline.json and preflight.json after a halving, if they hold
 * what was before it. */
pl_err pl_run_renew_resolved(struct pl_run *r, struct pl_diag *d);
/* Writes receipt.json. t: the measurements of the run, NULL = none yet. */
pl_err pl_run_write_receipt(struct pl_run *r, const struct pl_train_result *t, struct pl_diag *d);
pl_err pl_run_write_pictures(struct pl_run *r, uint64_t measured_bytes, struct pl_diag *d);

#endif
