/* fold.h - the tensors of a phase as units that share an offset, and where each tensor is in them.
 *
 * In: tensors of a phase.  Out: units (pack.h).
 * Layers that are alike take turns with the same bytes, so one of them, or of two that alternate,
 * tells where all have what they need for themselves, and so do equal pieces of work (kinds.h).
 * What layers keep for a later pass over the layers adds up: the copies of it lie side by side.
 * Time is that of a brief program, in which the copies of a run take none. Updates go over the
 * layers once, in the time of the program itself; their scratch adds up where they run as one.
 *   F1  what is placed so that no two units share a byte at a common op is so in the whole program
 *   F2  a whole program and a brief one of the same shape give the same units in the same order,
 *       and the same of them meet (repack.h)
 * Needs: program, plan, pack. No I/O.
 * Use: pl_fold_init(&f, &t, &d); if (f.units.n) pl_repack(&f.units, ...);
 *      ...; pl_fold_offset(&f, i); ... pl_fold_finish(&f); */
#ifndef PL_ESTIMATOR_PLAN_FOLD_H
#define PL_ESTIMATOR_PLAN_FOLD_H

#include "estimator/plan/pack.h"
#include "estimator/plan/place.h"

struct pl_fold {
    struct pl_units units; /* n 0: layers are not alike enough */
    struct pl_interval *rows;
    uint32_t *ends;  /* owned, as rows: what `units` points to */
    uint32_t *unit;  /* owned, [tensors] */
    uint64_t *above; /* owned, [tensors]: bytes from the offset of its unit on */
};

/* Finish it also after an error. */
pl_err pl_fold_init(struct pl_fold *f, const struct pl_phase_tensors *t, struct pl_diag *d);
/* Returns the offset of tensor t->ids[i]. */
static inline uint64_t pl_fold_offset(const struct pl_fold *f, uint32_t i) {
    return f->rows[pl_unit_begin(&f->units, f->unit[i])].offset + f->above[i];
}
void pl_fold_finish(struct pl_fold *f); /* leaves {0} */

#endif
