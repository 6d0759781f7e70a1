/* live.c - which tensors are alive at an op of a plan. */
#include "estimator/plan/live.h"

bool pl_plan_is_live(const struct pl_plan *plan, uint32_t id, uint32_t op) {
    const struct pl_place_row *at = &plan->places[id];
    const struct pl_tensor *t = &plan->program->tensors[id];
    return t->scope == PL_SCOPE_STEP && t->place == PL_PLACE_DEVICE && at->first_op <= op &&
           op <= at->last_op;
}

uint32_t pl_plan_largest_live(const struct pl_plan *plan, uint32_t op, uint32_t n, uint32_t *ids) {
    const struct pl_tensor *t = plan->program->tensors;
    uint32_t found = 0;
    for (uint32_t id = 0; id < plan->program->n_tensors; id++) {
        if (!pl_plan_is_live(plan, id, op)) continue;
        uint32_t at = found < n ? found : n;
        for (; at > 0 && t[ids[at - 1]].bytes < t[id].bytes; at--) {
            if (at < n) ids[at] = ids[at - 1];
        }
        if (at < n) ids[at] = id;
        if (found < n) found++;
    }
    return found;
}
