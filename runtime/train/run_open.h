/* run_open.h - opens and closes a run: its session, counters and faults; private to the room. */
#ifndef PL_RUNTIME_TRAIN_RUN_OPEN_H
#define PL_RUNTIME_TRAIN_RUN_OPEN_H

#include "runtime/train/training_run.h"

/* *r must be closed in every case. */
pl_err pl_run_open(struct pl_run *r, struct pl_preflight *pf, const struct pl_train_options *opt,
                   struct pl_diag *d);
/* Initialises the profile for the programs of the session. */
pl_err pl_run_init_profile(struct pl_run *r, struct pl_diag *d);
void pl_run_close(struct pl_run *r); /* leaves {0} */

#endif
