/* timeline_json.c - the bytes over the operations of every phase, as figures to draw from. */
#include "estimator/picture/picture.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/picture/sweep.h"
#include "estimator/plan/live.h"

#include <stdlib.h>

enum {
    FORM = 1,
    COLUMNS = 2000, /* of a phase */
    LARGEST = 5,    /* tensors that are named at the peak of a phase */
};

struct columns {
    struct pl_sweep sweep;
    uint32_t op_of[COLUMNS];
    uint32_t n;
};

static const struct pl_op *op_at(const struct columns *c, uint32_t column) {
    return &c->sweep.plan->program->ops[c->sweep.ops->first_op + c->op_of[column]];
}

static json_t *integer(uint64_t v) {
    return json_integer((json_int_t)v);
}

static json_t *ops_json(const struct columns *c) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n; i++)
        pl_json_append(&list, integer(c->op_of[i]));
    return list;
}

static json_t *names_json(const struct columns *c) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n; i++)
        pl_json_append(&list, json_string(pl_op_name(op_at(c, i)->kind)));
    return list;
}

/* -1: the operation belongs to no layer. */
static json_t *layers_json(const struct columns *c) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->n; i++) {
        const struct pl_op *op = op_at(c, i);
        pl_json_append(&list, json_integer(op->layer == PL_NONE ? -1 : (json_int_t)op->layer));
    }
    return list;
}

/* NULL without a failure: the phase has no tensor of the category. */
static json_t *bytes_json(const struct columns *c, uint32_t category, bool *any) {
    json_t *list = json_array();
    *any = false;
    for (uint32_t i = 0; i < c->n; i++) {
        const uint64_t bytes = pl_sweep_bytes(&c->sweep, c->op_of[i], category);
        *any |= bytes != 0;
        pl_json_append(&list, integer(bytes));
    }
    return list;
}

static json_t *live_json(const struct columns *c) {
    json_t *o = json_object();
    for (uint32_t category = 0; category < PL_CATEGORY_COUNT; category++) {
        bool any;
        json_t *list = bytes_json(c, category, &any);
        if (any || !list)
            pl_json_set(&o, pl_category_name((enum pl_category)category), list);
        else
            json_decref(list);
    }
    return o;
}

static json_t *largest_json(const struct pl_plan *plan, enum pl_phase phase) {
    uint32_t ids[LARGEST];
    const uint32_t n = pl_plan_largest_live(plan, plan->phases[phase].peak_op, LARGEST, ids);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++) {
        char name[96];
        pl_tensor_name(plan->program, ids[i], name);
        pl_json_append(&list, json_pack("{s:s, s:o}", "name", name, "bytes",
                                        integer(plan->program->tensors[ids[i]].bytes)));
    }
    return list;
}

static json_t *phase_json(const struct pl_plan *plan, enum pl_phase phase, struct columns *c) {
    if (!pl_sweep_init(&c->sweep, plan, phase)) return NULL;
    const uint32_t peak = plan->phases[phase].peak_op - c->sweep.ops->first_op;
    c->n = pl_sweep_columns(&c->sweep, peak, COLUMNS, c->op_of, NULL);
    json_t *o = json_pack(
        "{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "name", pl_phase_name(phase), "ops",
        (json_int_t)c->sweep.ops->n_ops, "backward_op", (json_int_t)pl_sweep_turn(&c->sweep),
        "peak_op", (json_int_t)peak, "op", ops_json(c), "what", names_json(c), "layer",
        layers_json(c), "live", live_json(c), "largest", largest_json(plan, phase));
    pl_sweep_finish(&c->sweep);
    return o;
}

static json_t *phases_json(const struct pl_plan *plan) {
    struct columns *c = pl_malloc(sizeof *c);
    json_t *list = c ? json_array() : NULL;
    for (int p = 0; c && p < PL_PHASE_COUNT; p++)
        if (plan->program->phases[p].n_ops)
            pl_json_append(&list, phase_json(plan, (enum pl_phase)p, c));
    free(c);
    return list;
}

static json_t *job_json(const struct pl_plan *plan) {
    json_t *o = json_object();
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        if (plan->job_by_category[c])
            pl_json_set(&o, pl_category_name((enum pl_category)c),
                        integer(plan->job_by_category[c]));
    return o;
}

json_t *pl_timeline_json(const struct pl_plan *plan, uint64_t budget_bytes) {
    const bool known = budget_bytes && budget_bytes != PL_AUTO_BYTES;
    return json_pack("{s:i, s:s, s:o, s:o, s:o, s:o}", "timeline", FORM, "peak_phase",
                     pl_phase_name(plan->peak_phase), "arena_bytes", integer(plan->arena_bytes),
                     "budget_bytes", known ? integer(budget_bytes) : json_null(), "job",
                     job_json(plan), "phases", phases_json(plan));
}
