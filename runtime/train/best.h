/* best.h - which evaluation was the best, and whether to stop for lack of a better one; private to
 * the room.
 *
 * In: evaluations, and which of them have a checkpoint.  Out: the end of the steps; the weights of
 * the best checkpoint at the end of the run.  Needs: checkpoint, session.
 *   W1  what is decided follows from the figures and from counters of the run's state alone, so a
 *       run that resumes decides as one that was never stopped, and all ranks decide the same
 *   W2  the rules are those of transformers: a figure is better if it is strictly lower, or higher
 *       for the accuracy; it ends the waiting only if it is better by more than the threshold, and
 *       one that is not finite is never better
 *   W3  the model that is saved is that of an evaluation with a checkpoint: of the best one */
#ifndef PL_RUNTIME_TRAIN_BEST_H
#define PL_RUNTIME_TRAIN_BEST_H

#include "runtime/train/training_run.h"

/* Sets up the counters of a run from those of the state that it resumes, {0} for a new one. */
pl_err pl_run_init_best(struct pl_run *r, const struct pl_run_state *then, struct pl_diag *d);
/* Sets the counters back to those of an earlier state of the same run. */
void pl_run_restore_best(struct pl_run *r, const struct pl_run_state *then);
/* Counts an evaluation. */
void pl_run_weigh(struct pl_run *r, const struct pl_evaluation *e);
/* Called after it if the step at hand gets a checkpoint. */
void pl_run_weigh_saved(struct pl_run *r, const struct pl_evaluation *e);
/* True if `early_stopping_patience` has run out. */
bool pl_run_has_stalled(const struct pl_run *r);
/* Returns the step whose checkpoint no other one may push out; 0: none. */
uint64_t pl_run_best_step(const struct pl_run *r);
/* Says why the steps have ended if they did early, and loads the weights of the best checkpoint if
 * the job asks for it. Called once, after the last step. */
pl_err pl_run_take_best(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);

#endif
