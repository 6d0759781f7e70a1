/* keeping.h - `keep_first_pass: auto`: whether a step of preferences keeps what its first forward
 * pass has computed, or computes it again; and `keep_unpacked: auto`: whether a layer keeps the
 * copies of 4-bit matrices that its recomputation has unpacked.
 *
 * In: a question of which all else is decided.  Out: keep_first_pass, keep_unpacked, decided.
 * Needs: plan, cost.
 *   K1  neither costs a sample of a micro-batch
 *   K2  the first pass is kept where it fits and takes less time, by the seconds of both programs;
 *       without a budget only where a micro-batch has no more samples by it
 *   K3  copies are kept where they fit a budget that is known: no program takes longer by them
 * Use: pl_decide_keeping(&q, NULL, &notes, &d); pl_decide_copies(&q, &notes, &d); */
#ifndef PL_ESTIMATOR_AUTOBATCH_KEEPING_H
#define PL_ESTIMATOR_AUTOBATCH_KEEPING_H

#include "estimator/search/question.h"

/* True if keep_first_pass is to be decided. */
bool pl_keeping_is_open(const struct pl_question *q);
/* Leaves alone what is not open. other (nullable): the same question as it was decided for a pass
 * that is kept, whose choices are taken with it where they are faster. notes (nullable) gets a line
 * that says why. */
pl_err pl_decide_keeping(struct pl_question *q, const struct pl_question *other,
                         struct pl_text *notes, struct pl_diag *d);
/* Decides keep_unpacked where it is open, last of all. notes (nullable) gets a line where copies
 * are kept. */
pl_err pl_decide_copies(struct pl_question *q, struct pl_text *notes, struct pl_diag *d);

#endif
