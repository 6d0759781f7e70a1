/* run_state.h - trainer_state.json: the counters of a run. */
#ifndef PL_RUNTIME_CHECKPOINT_RUN_STATE_H
#define PL_RUNTIME_CHECKPOINT_RUN_STATE_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"

#define PL_STATE_FILE "trainer_state.json"

pl_err pl_run_state_put(struct pl_outbox *o, const struct pl_run_state *s, struct pl_diag *d);

#endif
