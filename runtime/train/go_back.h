/* go_back.h - the last whole state of a run, after a commit that stopped half way.
 *
 * In: a run whose step ran out of device memory while its update was under way.  Out: the same run
 * as after its newest checkpoint, or as at its start, with a smaller micro-batch.
 * Needs: oom_recovery, session, checkpoint.
 *   K1  the following steps equal those of a run that resumes from there with that micro-batch */
#ifndef PL_RUNTIME_TRAIN_GO_BACK_H
#define PL_RUNTIME_TRAIN_GO_BACK_H

#include "runtime/train/training_run.h"

/* Recovers a run whose `lost` is set, and clears it. PL_ERR_GPU_OOM: the micro-batch cannot become
 * smaller. */
pl_err pl_run_go_back(struct pl_run *r, struct pl_diag *d);

#endif
