/* executor.c - where the tensors of a bound plan lie. */
#include "runtime/exec/executor.h"

#include <string.h>

const struct pl_arena *pl_exec_arena(const struct pl_exec *e, const struct pl_tensor *t) {
    bool job = t->scope == PL_SCOPE_JOB;
    if (t->place == PL_PLACE_DEVICE) return job ? &e->job : &e->batch_arena;
    return job ? &e->host_arenas.job[t->place] : &e->host_arenas.batch[t->place];
}

void *pl_exec_address(const struct pl_exec *e, uint32_t tensor) {
    const struct pl_arena *a = pl_exec_arena(e, &e->plan->program->tensors[tensor]);
    return (char *)a->base + e->plan->places[tensor].offset;
}

pl_err pl_exec_wait(struct pl_exec *e) {
    pl_err err = PL_ERR_OK;
    if (e->pending && e->device->ops->sync) err = e->device->ops->sync(e->device);
    e->pending = false;
    return err;
}

bool pl_exec_in_host_memory(const struct pl_exec *e, uint32_t tensor) {
    return e->plan->program->tensors[tensor].place != PL_PLACE_DEVICE;
}

pl_err pl_exec_read(struct pl_exec *e, uint32_t tensor, uint64_t offset, void *dst,
                    uint64_t bytes) {
    const void *src = (const char *)pl_exec_address(e, tensor) + offset;
    if (!pl_exec_in_host_memory(e, tensor) || e->device->ops == &pl_device_null)
        return e->device->ops->download(e->device, dst, src, bytes);
    PL_TRY(pl_exec_wait(e));
    memcpy(dst, src, bytes);
    return PL_ERR_OK;
}
