/* train.h - the trainer: configuration -> estimate -> gate -> reserve -> load -> steps -> save.
 *
 * Everything that can refuse a job runs in pl_preflight_init (preflight.h). Needs: every room of
 * runtime, oom_recovery, estimator.
 *   T1  a step is a transaction: gradients and loss are void until the optimizer has run
 *   T2  after the first step the device's allocation counter stands still, except in recovery
 * S1 to S4 of session.h hold in every run.
 * Use: struct pl_preflight pf; pl_preflight_init(&pf, &job, &how, &d);
 *      pl_train(&pf, &opt, &result, &d); pl_preflight_finish(&pf); */
#ifndef PL_RUNTIME_TRAIN_TRAIN_H
#define PL_RUNTIME_TRAIN_TRAIN_H

#include "runtime/admit/preflight.h"
#include "runtime/train/options.h"

/* Trains. PL_ERR_INTERRUPTED after a signal, with everything saved. */
pl_err pl_train(struct pl_preflight *pf, const struct pl_train_options *opt,
                struct pl_train_result *out, struct pl_diag *d);

#endif
