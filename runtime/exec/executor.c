/* executor.c - where the tensors of a bound plan lie. */
#include "runtime/exec/executor.h"

const struct pl_arena *pl_exec_arena(const struct pl_exec *e, const struct pl_tensor *t) {
    bool job = t->scope == PL_SCOPE_JOB;
    if (t->place == PL_PLACE_DEVICE) return job ? &e->job : &e->batch_arena;
    return job ? &e->host_arenas.job[t->place] : &e->host_arenas.batch[t->place];
}

void *pl_exec_address(const struct pl_exec *e, uint32_t tensor) {
    const struct pl_arena *a = pl_exec_arena(e, &e->plan->program->tensors[tensor]);
    return (char *)a->base + e->plan->places[tensor].offset;
}
