/* epoch_steps.h - the steps of a run: their number, and the position at which each begins.
 *
 * In: the walk over the rows, the slots of a step.  Out: steps, positions.  Needs: batch.h.
 *   N1  the counts are those of pl_step_batch_load(), called for one step after the other from
 *       position 0: schedule, progress and the end of a run follow from it
 * Use: pl_steps_of_epochs(&source, slots, 3, &steps, &d);
 *      pl_steps_position(&source, slots, step, &position, &d); */
#ifndef PL_RUNTIME_DATA_EPOCH_STEPS_H
#define PL_RUNTIME_DATA_EPOCH_STEPS_H

#include "runtime/data/batch.h"

/* Counts the steps of `epochs` passes; a part of a pass is rounded up to a step, as by
 * transformers. At least one step; epochs x rows of an epoch is below 2^53. */
pl_err pl_steps_of_epochs(const struct pl_batch_source *from, uint64_t slots, double epochs,
                          uint64_t *steps, struct pl_diag *d);
/* Computes the position of the walk after `done` steps. */
pl_err pl_steps_position(const struct pl_batch_source *from, uint64_t slots, uint64_t done,
                         uint64_t *position, struct pl_diag *d);

#endif
