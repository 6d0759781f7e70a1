/* probe.h - a few real steps on the longest samples; private to the room. */
#ifndef PL_RUNTIME_TRAIN_PROBE_H
#define PL_RUNTIME_TRAIN_PROBE_H

#include "runtime/train/training_run.h"

/* Takes a few real steps on the longest samples, then zeroes the arenas. Loading follows. */
pl_err pl_run_probe(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);

#endif
