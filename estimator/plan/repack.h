/* repack.h - a packing as low as what is alive, of most programs.
 *
 * In: units of intervals, and the height of a packing of them (pack.h).
 * Out: the offsets of a lower one, where one is found.
 * The walks of pack.c see one op at a time, so a large interval that begins late finds the free
 * bytes in pieces. Here a capacity is given, first what is alive at most, and a bounded depth-first
 * search places unit after unit within it: always at its lowest free offset, never below the unit
 * before, and only where each moment has room left for what is alive then (MiniMalloc: Moffitt,
 * ASPLOS 2023). Units that were in the way of an attempt come earlier in the next one (dom/wdeg:
 * Boussemart et al., ECAI 2004). After some attempts a higher capacity is tried.
 *   R1  K1 and K2 of pack.h hold of what it returns
 *   R2  the height never grows; where it stays, so do the offsets
 *   R3  the number of intervals in a unit changes nothing
 * More than 14,000 units stay where they are, since the table of who meets whom would be too large.
 * Needs: base, conflicts. No I/O. */
#ifndef PL_ESTIMATOR_PLAN_REPACK_H
#define PL_ESTIMATOR_PLAN_REPACK_H

#include "estimator/plan/pack_units.h"

/* packing: height and bound, as pl_pack has them. A height of up to `goal` bytes is not made
 * smaller, nor one of up to `enough`, which changes nothing but where it ends. */
pl_err pl_repack(const struct pl_units *units, uint64_t goal, uint64_t enough,
                 struct pl_packing *packing, struct pl_diag *d);

#endif
