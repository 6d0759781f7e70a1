/* measures_told.h - the measures of a step or an evaluation of preferences, as named values.
 *
 * In: measures.  Out: values for the log and scalars on the board.  Needs: report.
 * Private to the room. */
#ifndef PL_RUNTIME_TRAIN_MEASURES_TOLD_H
#define PL_RUNTIME_TRAIN_MEASURES_TOLD_H

#include "runtime/train/training_run.h"

/* Lists the measures that are there, the loss aside, under their names; returns their number. */
uint32_t pl_run_list_measures(const struct pl_measures *m, struct pl_named_value out[PL_STEP_MORE]);
/* Puts values on the board, if there is one, under "GROUP/name". */
pl_err pl_run_board_more(struct pl_run *r, const char *group, uint64_t step,
                         const struct pl_named_value *values, uint32_t n, struct pl_diag *d);

#endif
