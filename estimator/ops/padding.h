/* padding.h - counts rounded up to few sizes, so that what was chosen or recorded for one serves
 * many, and what fills them up.
 *
 * Needs: estimator/base. */
#ifndef PL_ESTIMATOR_OPS_PADDING_H
#define PL_ESTIMATOR_OPS_PADDING_H

#include "estimator/base/checked.h"

/* The target of a row that fills a micro-batch up: CROSS_ENTROPY gives it no loss and a gradient of
 * zero. */
#define PL_TARGET_NONE INT32_MIN

/* Rounds n up to one of `steps` numbers between a power of two and the next (n below 2^56, steps a
 * power of two), and what is below 2 steps^2 to a multiple of steps: n is raised by less than its
 * part 1 / steps, or by less than `steps`. */
static inline uint64_t pl_octave_step(uint64_t n, uint64_t steps) {
    uint64_t unit = steps;
    while (unit * 2 * steps <= n)
        unit *= 2;
    return pl_u64_round_up(n, unit);
}

#endif
