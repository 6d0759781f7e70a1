/* score.h - the first pass of a step of preferences: forward alone, over all of its samples, by the
 * policy and by the reference; then the weights with which the second pass learns.
 *
 * In: r->batch.  Out: its weights, r->measures.  Needs: losses.h, reference.h.
 * Private to the room.
 *   C1  samples are scored as many at a time as the second pass computes, so that the plan of a
 *       step holds no more of them than that of a supervised one. Where the program keeps the first
 *       pass (pl_job_shape), a micro-batch scores its samples itself, and what is scored before are
 *       the partners of KTO and the reference
 *   C2  how they are cut changes no sum but for its last bits: a sample is scored by itself
 *   C3  ranks score micro-batches in turn, and tell each other the sums; what follows from them,
 *       which is all the rest, is the same on every rank. They agree on every failure that one of
 *       them alone may meet
 *   C4  the dropout of a sample is a function of the step, the sample and the place (dropout.c), so
 *       that both passes of a step have the same; the reference has none
 * Use: pl_run_refer(r, &d) in the first step, or before a checkpoint is loaded;
 *      pl_run_score(r, &d) before the micro-batches; pl_run_weigh_targets(r, &d) in each, and
 *      pl_run_end_scores(r, err, &d) after them, where the program keeps the first pass. */
#ifndef PL_RUNTIME_TRAIN_SCORE_H
#define PL_RUNTIME_TRAIN_SCORE_H

#include "runtime/train/training_run.h"

/* Computes the reference of all samples of the run where it is not computed with each step, and
 * once; the weights are those that the run starts with. */
pl_err pl_run_refer(struct pl_run *r, struct pl_diag *d);
/* Called when the micro-batch is halved before the first update. The last bits of a product depend
 * on its rows: the run is one that was begun with the smaller micro-batch only if all values are
 * computed with that one. Values that a checkpoint had stay. */
void pl_run_drop_reference(struct pl_run *r);
/* True if micro-batches score their samples themselves. */
bool pl_run_keeps_first_pass(struct pl_run *r);
/* Scores r->batch and weighs its targets, or what has to be known of it before the first
 * micro-batch. */
pl_err pl_run_score(struct pl_run *r, struct pl_diag *d);
/* Takes the scores of the micro-batch at hand, and brings the weights of its targets to the
 * device. */
pl_err pl_run_weigh_targets(struct pl_run *r, struct pl_diag *d);
/* Fills the measures of a step whose micro-batches are computed; `before` is their outcome, on
 * which ranks agree. */
pl_err pl_run_end_scores(struct pl_run *r, pl_err before, struct pl_diag *d);
/* Computes the measures of the evaluation rows. */
pl_err pl_run_eval_preferences(struct pl_run *r, struct pl_measures *out, struct pl_diag *d);
void pl_scores_finish(struct pl_scores *s); /* leaves {0} */

#endif
