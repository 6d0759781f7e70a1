/* conflicts.h - which units of intervals are alive at the same time.
 *
 * In: units (pack_units.h).  Out: for each unit those that it meets, and the moments of the phase
 * at which units are alive.
 * A moment is an op at which something ends, where something began since the moment before: what is
 * alive at any other op is alive at a moment as well. Moments at which the same units are alive are
 * one, so that equal layers add none.
 *   N1  two units meet where they are alive at a common op
 *   N2  moments are numbered by the numbers of the units that are alive at them, so the number of
 *       rows of a unit does not matter
 * Needs: base, pack_units. No I/O. */
#ifndef PL_ESTIMATOR_PLAN_CONFLICTS_H
#define PL_ESTIMATOR_PLAN_CONFLICTS_H

#include "estimator/plan/pack_units.h"

/* Items of list i: items[begin[i]] to items[begin[i + 1] - 1]. */
struct pl_lists {
    uint32_t *begin, *items; /* owned */
};

struct pl_conflicts {
    struct pl_lists meets;   /* [units] the others that it meets, ascending */
    struct pl_lists moments; /* [units] at which it is alive, ascending */
    struct pl_lists alive;   /* [n_moments] units, those of the most moments first */
    uint32_t n_moments;
};

/* Finish it also after an error. */
pl_err pl_conflicts_find(struct pl_conflicts *c, const struct pl_units *units, struct pl_diag *d);
void pl_conflicts_finish(struct pl_conflicts *c); /* leaves {0} */

#endif
