/* pack.h - offline placement of intervals: who may share which bytes.
 *
 * In: intervals (bytes, first op, last op).  Out: their offsets and the height of the packing.
 * The problem is dynamic storage allocation, NP-hard. The method (pack.c) takes one pass over the
 * ops and is within 2 % of the lower bound on most decoder programs; repack.h takes longer and is
 * for the rest. Both say how far they are.
 *   K1  intervals that are alive at a common op never share a byte
 *   K2  bytes of every interval are already a multiple of the alignment, so are the offsets */
#ifndef PL_ESTIMATOR_PLAN_PACK_H
#define PL_ESTIMATOR_PLAN_PACK_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_interval {
    uint64_t bytes;       /* aligned */
    uint32_t first, last; /* ops, inclusive, relative to the phase */
    uint64_t offset;      /* out */
};

struct pl_packing {
    uint64_t bytes;      /* height reached */
    uint64_t live_bytes; /* largest sum of aligned intervals alive at one op: the lower bound */
    uint32_t peak_op;    /* first op where the sum is that large */
};

pl_err pl_pack(struct pl_interval *rows, uint32_t n, uint32_t n_ops, struct pl_packing *out,
               struct pl_diag *d);
/* A height of up to `enough` bytes is not made smaller. */
pl_err pl_pack_within(struct pl_interval *rows, uint32_t n, uint32_t n_ops, uint64_t enough,
                      struct pl_packing *out, struct pl_diag *d);
/* The lower bound alone: bytes stays 0. */
pl_err pl_pack_bound(const struct pl_interval *rows, uint32_t n, uint32_t n_ops,
                     struct pl_packing *out, struct pl_diag *d);
/* Sorts the indices of intervals by their first or last op: those of op i are starts[i] to
 * starts[i + 1] - 1 of `out`, in the order of the rows. starts: [n_ops + 1]; out: [n]. */
void pl_pack_by_op(const struct pl_interval *rows, uint32_t n, uint32_t n_ops, bool by_first,
                   uint32_t *starts, uint32_t *out);

/* Intervals that share an offset. Rows of a unit are next to each other, of equal bytes, and in the
 * order of time: no two of them live at the same op. */
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
