/* weights_io.h - weights loaded, resumed and saved; private to the room.
 *
 * Checkpoints are written by all ranks that see output_dir (share.h). What a run ends with is
 * written by rank 0 alone, once: the journal of that save (save_set.h) knows each file by the
 * digest of all of it. */
#ifndef PL_RUNTIME_TRAIN_WEIGHTS_IO_H
#define PL_RUNTIME_TRAIN_WEIGHTS_IO_H

#include "runtime/train/training_run.h"

pl_err pl_run_load(struct pl_run *r, struct pl_diag *d);
/* The state that `saved` tells of, into arenas that were just taken. */
pl_err pl_run_load_saved(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_checkpoint(struct pl_run *r, struct pl_diag *d);
/* What a failure between two steps leaves in memory, as a checkpoint of the last whole step beside
 * those that are there; the hint of d then says so. */
void pl_run_rescue(struct pl_run *r, pl_err cause, struct pl_diag *d);
/* The weights, then the record of the run that made them. */
pl_err pl_run_save_final(struct pl_run *r, struct pl_diag *d);

#endif
