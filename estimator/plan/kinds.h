/* kinds.h - which tensors of a layer take turns.
 *
 * In: tensors of a phase.  Out: their kinds.
 * A layer that does its work in equal pieces has tensors of the same bytes for each piece, and a
 * piece needs them when those of the piece before are no longer alive: these are of one kind, which
 * has one tensor of a piece. Every other tensor is a kind of its own. What is of no layer is as if
 * it were of one more.
 *   D1  a brief program has the same kinds in the same order, in each layer that it has
 * Needs: program, place. No I/O.
 * Use: pl_kinds_find(&t, &kinds, &d); ... kinds.list[kinds.of[i]] ...; pl_kinds_finish(&kinds); */
#ifndef PL_ESTIMATOR_PLAN_KINDS_H
#define PL_ESTIMATOR_PLAN_KINDS_H

#include "estimator/plan/place.h"

#include <stdbool.h>

struct pl_kind {
    uint32_t id;      /* of its first tensor */
    uint32_t last_op; /* of its latest */
    uint32_t piece;   /* of its latest */
    uint32_t ordinal; /* of the kind in its layer */
    uint32_t next;    /* of the layer; PL_NONE: none */
};

struct pl_kinds {
    struct pl_kind *list; /* owned */
    uint32_t *of;         /* owned, [tensors] the kind of each */
    uint32_t *in_layer;   /* owned, [layers + 1] how many there are; at last those of no layer */
    uint32_t n, most;     /* in all; in one layer */
};

/* Finish it also after an error. */
pl_err pl_kinds_find(const struct pl_phase_tensors *t, struct pl_kinds *out, struct pl_diag *d);
void pl_kinds_finish(struct pl_kinds *k); /* leaves {0} */

/* The layer that a tensor is of; PL_NONE: of none. */
static inline uint32_t pl_kinds_layer(const struct pl_tensor *t) {
    return t->role == PL_ROLE_ROPE ? PL_NONE : t->layer;
}
/* True if equal layers have it at the same time: what a pass over the layers keeps for a later one,
 * and scratch of updates that run as one. */
bool pl_kinds_keeps(const struct pl_phase_tensors *t, uint32_t id);

#endif
