/* sweep.h - the bytes that are alive at every operation of a phase, by category.
 *
 * In: struct pl_plan.  Out: a table that the pictures read, and the operations that stand for their
 * neighbours where there are more of them than room. Needs: plan.
 *   SW1  a row holds the tensors of the batch arena alone; those of the job arena are always alive
 *        (plan->job_by_category)
 *   SW2  an operation that stands for others is the fullest of them, and the peak always stands for
 *        itself
 * Use: struct pl_sweep s = {0}; if (!pl_sweep_init(&s, plan, phase)) return no_memory;
 *      ... pl_sweep_bytes(&s, op, category) ... pl_sweep_finish(&s); */
#ifndef PL_ESTIMATOR_PICTURE_SWEEP_H
#define PL_ESTIMATOR_PICTURE_SWEEP_H

#include "estimator/plan/plan.h"

struct pl_sweep {
    const struct pl_plan *plan;       /* borrowed */
    const struct pl_phase_range *ops; /* of the phase */
    uint64_t *live;                   /* owned, [ops->n_ops][PL_CATEGORY_COUNT] */
};

bool pl_sweep_init(struct pl_sweep *s, const struct pl_plan *plan, enum pl_phase phase);
void pl_sweep_finish(struct pl_sweep *s);

/* op: relative to the phase. */
static inline uint64_t pl_sweep_bytes(const struct pl_sweep *s, uint32_t op, uint32_t category) {
    return s->live[(size_t)op * PL_CATEGORY_COUNT + category];
}

/* Fills op_of with at most `most` operations, one for each column of the phase, and returns their
 * number. *peak_column (nullable) is that of `peak_op`, the fullest of the phase. Both are relative
 * to the phase. */
uint32_t pl_sweep_columns(const struct pl_sweep *s, uint32_t peak_op, uint32_t most,
                          uint32_t *op_of, uint32_t *peak_column);

/* Returns the first operation of the backward pass, relative to the phase; its number of operations
 * if there is none. */
uint32_t pl_sweep_turn(const struct pl_sweep *s);

#endif
