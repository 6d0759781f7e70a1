/* pack_units.h - intervals that are placed together.
 *
 * In: intervals (pack.h).  Out: which of them share an offset.
 * Rows of a unit are next to each other, of equal bytes, and in the order of time: no two of them
 * live at the same op.
 * Needs: pack. */
#ifndef PL_ESTIMATOR_PLAN_PACK_UNITS_H
#define PL_ESTIMATOR_PLAN_PACK_UNITS_H

#include "estimator/plan/pack.h"

struct pl_units {
    struct pl_interval *rows; /* borrowed; their offsets are written */
    const uint32_t *ends;     /* borrowed, [n]: after the last row of each */
    uint32_t n, n_ops;
};

static inline uint32_t pl_unit_begin(const struct pl_units *u, uint32_t unit) {
    return unit ? u->ends[unit - 1] : 0;
}
static inline uint32_t pl_units_rows(const struct pl_units *u) {
    return pl_unit_begin(u, u->n);
}
/* Gives a unit its offset. */
static inline void pl_unit_put(const struct pl_units *u, uint32_t unit, uint64_t offset) {
    for (uint32_t i = pl_unit_begin(u, unit); i < u->ends[unit]; i++)
        u->rows[i].offset = offset;
}

#endif
