/* keeping.h - `keep_first_pass: auto`: whether a step of preferences keeps what its first forward
 * pass has computed, or computes it again.
 *
 * In: a question of which all else is decided.  Out: keep_first_pass, decided.  Needs: plan, cost.
 *   K1  it costs no sample of a micro-batch
 *   K2  it is taken where it fits and takes less time, by the seconds of both programs; without a
 *       budget only where a micro-batch has no more samples by it
 * Use: pl_decide_keeping(&q, NULL, &notes, &d); */
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

#endif
