/* repack.h - placing the intervals of a loose packing again, the hardest first.
 *
 * In: intervals, and the height of a packing of them (pack.h).  Out: the offsets of a lower one,
 * where one is found.
 * The walks of pack.c see one op at a time, so a large interval that begins late finds the free
 * bytes in pieces. Here intervals are placed one by one in an order of their own, each at the
 * lowest offset where nothing that lives at the same time is: the largest first, as heap simulators
 * of compilers do. Those that end up above the goal go earlier in the next round (squeaky wheel
 * optimization: Joslin and Clements, 1999).
 *   R1  K1 and K2 of pack.h hold of what it returns
 *   R2  the height never grows; where it stays, so do the offsets
 *   R3  the order of the rows changes nothing but which of several equal intervals is where
 * Of 1,000 drawn jobs 999 end within 2 % of the lower bound. A packing can be looser where the
 * rounds end, where the first few of them gain nothing, or where more than MOST_ALIVE intervals
 * live at one op (tests/plan/check_tight.c).
 * Needs: base, pack. No I/O. */
#ifndef PL_ESTIMATOR_PLAN_REPACK_H
#define PL_ESTIMATOR_PLAN_REPACK_H

#include "estimator/plan/pack.h"

/* packing: height and bound, as pl_pack has them. A height of up to `goal` bytes is not made
 * smaller. */
pl_err pl_repack(struct pl_interval *rows, uint32_t n, uint32_t n_ops, uint64_t goal,
                 struct pl_packing *packing, struct pl_diag *d);

#endif
