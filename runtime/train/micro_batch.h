/* micro_batch.h - the micro-batch at hand of a step, on the device.
 *
 * In: r->batch, the samples of the step, and r->round.  Out: inputs and facts that the ops read.
 * Needs: session, data.  Private to the room. */
#ifndef PL_RUNTIME_TRAIN_MICRO_BATCH_H
#define PL_RUNTIME_TRAIN_MICRO_BATCH_H

#include "runtime/train/training_run.h"

/* Returns the rate of the step at hand. It follows the updates: a skipped step does not move it. */
double pl_run_learning_rate(const struct pl_run *r);
pl_err pl_run_clear_loss(struct pl_run *r);
/* Loads the longest samples of the data as r->batch, over and over until it is a step. */
pl_err pl_run_load_longest(struct pl_run *r, struct pl_diag *d);
/* Describes r->s.micro to the ops. `contributors`: the ranks that have a micro-batch in the round;
 * `first`: none of the step came before; `targets`: of the whole step, 0 = no gradient is asked
 * for. */
pl_err pl_run_describe(struct pl_run *r, uint32_t contributors, bool first, uint64_t targets,
                       struct pl_diag *d);
/* Makes the micro-batch of this rank in the round at hand and brings it to the device for a phase;
 * the last round may have none for it. The first round clears the loss. PL_PHASE_MICRO alone asks
 * for a gradient, and leaves out the samples that are only scored. */
pl_err pl_run_prepare(struct pl_run *r, enum pl_phase phase, struct pl_diag *d);

#endif
