/* sharding.h - `sharding: auto`: the least that fits.
 *
 * In: a question with a budget.  Out: what its ranks hold parts of.  Needs: plan. */
#ifndef PL_ESTIMATOR_AUTOBATCH_SHARDING_H
#define PL_ESTIMATOR_AUTOBATCH_SHARDING_H

#include "estimator/search/question.h"

/* Decides `sharding`: as the job says. Under `auto`, with several ranks and a budget, GRADIENTS, or
 * WEIGHTS where the job does not fit with that and does with WEIGHTS; it is planned with its own
 * micro-batch or, where that is open, with one sample. notes (nullable) gets a line where it is
 * WEIGHTS. OPTIMIZER of ranks that exchange gradients once a step. The caller writes it into the
 * job. */
pl_err pl_sharding_decide(const struct pl_question *q, uint32_t *sharding, struct pl_text *notes,
                          struct pl_diag *d);

#endif
