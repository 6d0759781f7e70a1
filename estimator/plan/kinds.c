#include "estimator/plan/kinds.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* The pass over the layers that an op is of; updates have one. */
static enum pl_pass pass_of(const struct pl_phase_tensors *t, uint32_t op) {
    return t->phase == PL_PHASE_OPTIMIZER ? PL_PASS_UP : pl_program_pass(t->p, op);
}

bool pl_kinds_keeps(const struct pl_phase_tensors *t, uint32_t id) {
    const struct pl_place_row *at = &t->places[id];
    if (t->phase == PL_PHASE_OPTIMIZER)
        return t->p->tensors[id].category == PL_CATEGORY_WORKSPACE && at->last_op > at->first_op;
    return pass_of(t, at->first_op) != pass_of(t, at->last_op);
}

/* True if two tensors of one layer are of one kind, in one loop and one pass. */
static bool are_alike(const struct pl_phase_tensors *t, uint32_t a, uint32_t b) {
    const struct pl_tensor *x = &t->p->tensors[a], *y = &t->p->tensors[b];
    return x->loop == y->loop && x->bytes == y->bytes && x->role == y->role && x->slot == y->slot &&
           x->row == y->row && x->of == y->of && x->category == y->category &&
           strcmp(x->name, y->name) == 0 &&
           pass_of(t, t->places[a].first_op) == pass_of(t, t->places[b].first_op);
}

/* The kind that a tensor joins, among those of its layer from `first` on; PL_NONE: none. */
static uint32_t find_kind(const struct pl_phase_tensors *t, const struct pl_kinds *k,
                          uint32_t first, uint32_t id) {
    const struct pl_tensor *tensor = &t->p->tensors[id];
    if (!tensor->loop || pl_kinds_keeps(t, id)) return PL_NONE;
    for (uint32_t i = first; i != PL_NONE; i = k->list[i].next)
        if (k->list[i].piece != tensor->piece && t->places[id].first_op > k->list[i].last_op &&
            !pl_kinds_keeps(t, k->list[i].id) && are_alike(t, k->list[i].id, id))
            return i;
    return PL_NONE;
}

struct ends { /* kinds of a layer */
    uint32_t first, last;
};

static uint32_t add_kind(struct pl_kinds *k, struct ends *ends, uint32_t layer, uint32_t id) {
    const uint32_t i = k->n++;
    k->list[i] = (struct pl_kind){.id = id, .ordinal = k->in_layer[layer]++, .next = PL_NONE};
    if (ends->first == PL_NONE)
        ends->first = i;
    else
        k->list[ends->last].next = i;
    ends->last = i;
    if (k->in_layer[layer] > k->most) k->most = k->in_layer[layer];
    return i;
}

pl_err pl_kinds_find(const struct pl_phase_tensors *t, struct pl_kinds *out, struct pl_diag *d) {
    const uint32_t layers = (uint32_t)t->p->model->layers;
    struct ends *ends = pl_malloc((layers + 1) * sizeof *ends);
    *out = (struct pl_kinds){.list = pl_malloc(((size_t)t->n + 1) * sizeof *out->list),
                             .of = pl_malloc(((size_t)t->n + 1) * sizeof *out->of),
                             .in_layer = pl_calloc(layers + 1, sizeof *out->in_layer)};
    if (!ends || !out->list || !out->of || !out->in_layer) {
        free(ends);
        return pl_host_oom(d, "the plan");
    }
    for (uint32_t l = 0; l <= layers; l++)
        ends[l] = (struct ends){PL_NONE, PL_NONE};
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t id = t->ids[i], layer = pl_kinds_layer(&t->p->tensors[id]);
        const uint32_t at = layer == PL_NONE ? layers : layer;
        uint32_t k = find_kind(t, out, ends[at].first, id);
        if (k == PL_NONE) k = add_kind(out, &ends[at], at, id);
        out->list[k].last_op = t->places[id].last_op;
        out->list[k].piece = t->p->tensors[id].piece;
        out->of[i] = k;
    }
    free(ends);
    return PL_ERR_OK;
}

void pl_kinds_finish(struct pl_kinds *k) {
    free(k->list);
    free(k->of);
    free(k->in_layer);
    *k = (struct pl_kinds){0};
}
