/* ladder.h - the mixes of recomputation levels that are worth choosing, in one order.
 *
 * In: a question.  Out: rungs; each takes more time than the one below it and needs fewer
 * bytes, but for whole levels, which rebuild the last layer at the peak itself and may save nothing
 * by it.
 * From the plain levels those remain that no other level, and no mix of two others, beats in bytes
 * and in time: the lower convex hull, of planned bytes against seconds. Between two neighbours on
 * it the first k layers are at the heavier one, the rest at the lighter: the backward pass reaches
 * the first layers last, when what the others kept is free already, so what they rebuild lies below
 * the peak.
 * The rungs follow from the job, the model and the back-end; no budget and no batch size changes
 * them.
 * Use: pl_ladder_init(&l, ...); for (r = 0; r < pl_ladder_rungs(&l); r++) ...value(&l, r); */
#ifndef PL_ESTIMATOR_AUTOBATCH_LADDER_H
#define PL_ESTIMATOR_AUTOBATCH_LADDER_H

#include "estimator/search/question.h"

/* Tokens that levels are compared at: so many that their own bytes are what counts. */
#define PL_LADDER_TOKENS 4096

struct pl_ladder {
    uint32_t levels[PL_RECOMPUTE_OFFLOAD]; /* plain, the fastest first */
    uint32_t n_levels;
    uint32_t first_layer, layers; /* those that have a backward pass; how many they are */
};

/* The batch that those tokens make up, or the largest that the chunks of the job allow. */
uint32_t pl_ladder_batch(const struct pl_question *q);
/* The ladder of one rung where the level is not open. held: as for pl_question_measure. */
pl_err pl_ladder_init(struct pl_ladder *l, const struct pl_question *q, struct pl_planned *held,
                      struct pl_diag *d);
uint32_t pl_ladder_rungs(const struct pl_ladder *l);                /* at least 1 */
uint32_t pl_ladder_value(const struct pl_ladder *l, uint32_t rung); /* PL_RECOMPUTE_* */

#endif
