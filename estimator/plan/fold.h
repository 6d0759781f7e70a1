/* fold.h - the intervals of a phase, those of equal layers put together.
 *
 * In: a program, whole or brief, and the lifetimes of its plan.  Out: units to place, each of
 * intervals that share an offset, and where each tensor is in them.
 * Layers that are alike take turns with the same bytes, so one of them, or of two that alternate,
 * tells where all have what they need for themselves. What they keep for a later pass over the
 * layers adds up: the copies of it lie side by side. Time is that of a brief program, in which the
 * copies of a run take none. Updates go over the layers once, in the time of the program itself;
 * their scratch adds up where they run as one.
 *   F1  what is placed so that no two units share a byte at a common op is so in the whole program
 *   F2  a whole program and a brief one of the same shape give the same units
 * Needs: program, plan, pack. No I/O.
 * Use: pl_fold_init(&f, p, places, phase, ids, n, &d); if (f.units.n) pl_repack(&f.units, ...);
 *      ...; pl_fold_offset(&f, i); ... pl_fold_finish(&f); */
#ifndef PL_ESTIMATOR_PLAN_FOLD_H
#define PL_ESTIMATOR_PLAN_FOLD_H

#include "estimator/plan/place.h"
#include "estimator/plan/pack_units.h"
#include "estimator/program/program.h"

struct pl_fold {
    struct pl_units units; /* n 0: layers are not alike enough */
    struct pl_interval *rows;
    uint32_t *ends;  /* owned, as rows: what `units` points to */
    uint32_t *unit;  /* owned, [n ids] */
    uint64_t *above; /* owned, [n ids]: bytes from the offset of its unit on */
};

/* Of the tensors `ids` of a phase, all of which are used, ascending; places: of every tensor of
 * the program. Finish it also after an error. */
pl_err pl_fold_init(struct pl_fold *f, const struct pl_program *p,
                    const struct pl_place_row *places, enum pl_phase phase, const uint32_t *ids,
                    uint32_t n, struct pl_diag *d);
/* Of tensor ids[i]. */
static inline uint64_t pl_fold_offset(const struct pl_fold *f, uint32_t i) {
    return f->rows[pl_unit_begin(&f->units, f->unit[i])].offset + f->above[i];
}
void pl_fold_finish(struct pl_fold *f); /* leaves {0} */

#endif
