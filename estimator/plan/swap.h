/* swap.h - a lower packing by exchanging units in the order they are placed in.
 *
 * In: units and an order of them, each of which takes the lowest offset that is free.
 * Out: the offsets of a lower packing, where one is found.
 * A unit that ends too high changes places with one that was placed before it and is alive at the
 * same time, both drawn at random; what makes the packing no higher is kept (local search over the
 * orders of a greedy placement). The random numbers are the same in every run.
 *   X1  the outcome depends on the order and on which units meet, not on the number of their rows
 *   X2  the height never grows; where it stays, so do the offsets
 * Needs: base, pack_units. No I/O. */
#ifndef PL_ESTIMATOR_PLAN_SWAP_H
#define PL_ESTIMATOR_PLAN_SWAP_H

#include "estimator/plan/pack_units.h"

/* Some tries go down to `goal` bytes, further ones only as long as the height is above `loose`;
 * all end at `enough`. order: [units->n]. */
struct pl_swap_goals {
    uint64_t goal, loose, enough;
};
pl_err pl_swap_units(const struct pl_units *units, const uint32_t *order,
                     const struct pl_swap_goals *goals, struct pl_packing *packing,
                     struct pl_diag *d);

#endif
