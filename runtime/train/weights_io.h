/* weights_io.h - loads, resumes and saves weights; private to the room.
 *
 * Checkpoints are written by all ranks that see output_dir (share.h). The final weights are written
 * by rank 0 alone: the journal of that save (save_set.h) holds the digest of each whole file. */
#ifndef PL_RUNTIME_TRAIN_WEIGHTS_IO_H
#define PL_RUNTIME_TRAIN_WEIGHTS_IO_H

#include "runtime/train/training_run.h"

pl_err pl_run_load(struct pl_run *r, struct pl_diag *d);
/* Loads the state that `saved` describes into arenas that were just reserved. */
pl_err pl_run_load_saved(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_checkpoint(struct pl_run *r, struct pl_diag *d);
/* Saves the state that a failure between two steps has left in memory, as a checkpoint of the last
 * whole step next to the existing ones; the hint of d then says so. */
void pl_run_rescue(struct pl_run *r, pl_err cause, struct pl_diag *d);
/* Saves the weights, then the record of the run that made them. */
pl_err pl_run_save_final(struct pl_run *r, struct pl_diag *d);

#endif
