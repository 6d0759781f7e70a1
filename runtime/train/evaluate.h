/* evaluate.h - what the model makes of the rows that it is not trained on; private to the room.
 *
 * In: a run whose steps are all collected.  Out: loss, accuracy and perplexity of the supervised
 * tokens, or the measures of preferences, told in the log, on the board and as a note.
 * Needs: session, report.
 *   V1  every row is computed once, in the order of the data, whatever the ranks: the numbers are
 *       the same on every rank, and the count of right tokens is the same for any number of them */
#ifndef PL_RUNTIME_TRAIN_EVALUATE_H
#define PL_RUNTIME_TRAIN_EVALUATE_H

#include "runtime/train/training_run.h"

/* Does nothing if the run has no rows to evaluate. */
pl_err pl_run_evaluate(struct pl_run *r, struct pl_evaluation *out, struct pl_diag *d);

/* Lists the measures of a step or an evaluation that are there, the loss aside, under their names;
 * returns their number. */
uint32_t pl_run_list_measures(const struct pl_measures *m, struct pl_named_value out[PL_STEP_MORE]);
/* Puts values on the board, if there is one, under "GROUP/name". */
pl_err pl_run_board_more(struct pl_run *r, const char *group, uint64_t step,
                         const struct pl_named_value *values, uint32_t n, struct pl_diag *d);

#endif
