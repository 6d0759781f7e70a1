/* run_open.h - a run opened and closed: its session, counters and faults; private to the room. */
#ifndef PL_RUNTIME_TRAIN_RUN_OPEN_H
#define PL_RUNTIME_TRAIN_RUN_OPEN_H

#include "runtime/train/training_run.h"

/* Close *r in every case. */
pl_err pl_run_open(struct pl_run *r, struct pl_preflight *pf, const struct pl_train_options *opt,
                   struct pl_diag *d);
/* For the programs that the session has. */
pl_err pl_run_init_profile(struct pl_run *r, struct pl_diag *d);
void pl_run_close(struct pl_run *r); /* leaves {0} */

#endif
