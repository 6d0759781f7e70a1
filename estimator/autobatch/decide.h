/* decide.h - all that a question leaves open, decided: level, chunks, updates in the backward pass
 * and micro-batch.
 *
 * In: a question.  Out: its decisions.  Needs: plan.
 * Chunks of the MLP take time and save memory, and round sums in another order. So mlp_chunk_tokens
 * stays open, and the MLP whole, wherever anything fits that way, updates in the backward pass
 * included, which change no bit; where nothing does, it becomes the largest power of two with
 * which something fits, if there is one.
 * Updates in the backward pass with which nothing fits either are not taken: they decide nothing,
 * and a smaller micro-batch could not have them.
 * Panels of a 4-bit base (unpack_buffer) take more and smaller products. So they come last:
 * matrices are unpacked whole wherever anything fits that way, in chunks or not; where nothing
 * does, panels are the largest power of two of bytes with which something fits, without chunks of
 * the MLP if there is one.
 * What the first pass of a step of preferences computes, and copies of 4-bit matrices, are kept
 * where all else is decided (keeping.h).
 * Use: pl_decide(&q, PL_BATCH_LIMIT, &search, &notes, &d);
 *      pl_question_plan(&q, &search.planned, &planned, &d); pl_autobatch_finish(&search); */
#ifndef PL_ESTIMATOR_AUTOBATCH_DECIDE_H
#define PL_ESTIMATOR_AUTOBATCH_DECIDE_H

#include "estimator/autobatch/autobatch.h"
#include "estimator/autobatch/autolevel.h"

/* Decides what pl_autolevel_decide() does, and mlp_chunk_tokens, unpack_buffer, keep_first_pass and
 * keep_unpacked. The latter two are not decided for a batch that is open. */
pl_err pl_decide_levels(struct pl_question *q, uint32_t limit, struct pl_trials *trials,
                        struct pl_text *notes, struct pl_diag *d);

/* Decides all that is open: pl_decide_levels(), then the batch, which is the job's own or the
 * largest that fits and that a step can use; 1 where none fits or no budget is known. limit as for
 * pl_autobatch_solve(). search->planned gets the plan of the decision where one was made. notes
 * (nullable) gets a line for each choice of the former. Finish *search in every case. */
pl_err pl_decide(struct pl_question *q, uint32_t limit, struct pl_autobatch *search,
                 struct pl_text *notes, struct pl_diag *d);

/* Raises q->recommended, the largest batch at the level that was decided for the job's own, to the
 * largest at `full`, where no one wrote the level: a larger batch would have another one. held: as
 * for pl_question_measure. */
pl_err pl_decide_recommended(struct pl_question *q, uint32_t limit, struct pl_planned *held,
                             struct pl_diag *d);

/* Decides again, for the question's own batch size, all else that its job leaves open: as for the
 * same job with that batch size written down. trials->held gets the plan, for figures alone; limit:
 * as for pl_question_measure_within(), 0: none. */
pl_err pl_decide_again(struct pl_question *q, uint64_t limit, struct pl_trials *trials,
                       struct pl_diag *d);

#endif
