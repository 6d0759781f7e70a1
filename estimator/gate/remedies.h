/* remedies.h - what would make a job fit, each change planned for real.
 *
 * In: a question and its plan.  Out: the remedies, with their prices.  Needs: price, search. No
 * I/O.
 * Nothing of the user's settings is changed here: remedies are advice.
 *   R1  a remedy has the bytes of the job with that change typed after it and the same batch size:
 *       level and chunk that are open are decided again
 * Use: pl_gate_remedies(&q, plan, rows, &n, &d); */
#ifndef PL_ESTIMATOR_GATE_REMEDIES_H
#define PL_ESTIMATOR_GATE_REMEDIES_H

#include "estimator/gate/price.h"

#define PL_REMEDY_TEXT 160
struct pl_remedy {
    char change[PL_REMEDY_TEXT]; /* "gradient_checkpointing: full" */
    int64_t saves_bytes;
    struct pl_price price; /* as it is asked again with the change */
};
#define PL_MAX_REMEDIES 36
/* Finds what would help a question, of which `plan` is the plan. Fitting ones first, each group in
 * order of how little it changes what is learnt. When none fits alone, the last row combines what
 * is needed. */
pl_err pl_gate_remedies(const struct pl_question *q, const struct pl_plan *plan,
                        struct pl_remedy out[PL_MAX_REMEDIES], uint32_t *n, struct pl_diag *d);

#endif
