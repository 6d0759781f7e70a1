/* autolevel.h - gradient_checkpointing: auto: the fastest level of recomputation that fits.
 *
 * In: a job.  Out: the job with a level decided.  Each level is planned with the micro-batch that
 * the job would run it with; the cheapest by planned work and traffic per token wins.
 *   A1  the choice follows from plans and constants alone: the same job and budget give the same
 *       level on every machine
 *   A2  levels compute the same values in the same order, so the choice changes no bit of a run */
#ifndef PL_ESTIMATOR_AUTOBATCH_AUTOLEVEL_H
#define PL_ESTIMATOR_AUTOBATCH_AUTOLEVEL_H

#include "estimator/autobatch/autobatch.h"

/* The levels it chooses from, in the order of what they recompute; *n: how many. */
const uint32_t *pl_autolevel_levels(uint32_t *n);

/* Does nothing unless the level is `auto`. limit: as for pl_autobatch_solve, at most what a step
 * can use. Without a budget, and where nothing fits, the level is `full`. notes (nullable) gets a
 * line that says what was chosen. */
pl_err pl_autolevel_decide(struct pl_job *job, const struct pl_model *m,
                           const struct pl_traits *traits, const struct pl_budget *budget,
                           uint32_t limit, struct pl_text *notes, struct pl_diag *d);

#endif
