/* repack.h - a packing close to what is alive, of programs that the walks leave loose.
 *
 * In: units of intervals, and the height of a packing of them (pack.h).
 * Out: the offsets of a lower one, where one is found.
 * The walks of pack.c see one op at a time, so a large interval that begins late finds the free
 * bytes in pieces. Here units are placed from the bottom upwards, whenever they live: next comes
 * the unit whose lowest free offset is the lowest; of several, the hardest one, which meets the
 * most others. A unit that ends above the goal is twice as hard in the next attempt, so
 * it comes earlier. The lowest of a few attempts is taken.
 *   R1  K1 and K2 of pack.h hold of what it returns
 *   R2  the height never grows; where it stays, so do the offsets
 *   R3  the number of intervals in a unit changes nothing
 * More than 14,000 units stay where they are, since the table of who meets whom would be too large.
 * Needs: base, pack. No I/O. */
#ifndef PL_ESTIMATOR_PLAN_REPACK_H
#define PL_ESTIMATOR_PLAN_REPACK_H

#include "estimator/plan/pack.h"

/* packing: height and bound, as pl_pack has them. A height of up to `goal` bytes is not made
 * smaller, nor one of up to `enough`, which changes nothing but where it ends. */
pl_err pl_repack(const struct pl_units *units, uint64_t goal, uint64_t enough,
                 struct pl_packing *packing, struct pl_diag *d);

#endif
