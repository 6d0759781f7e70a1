#include "runtime/exec/copy_stream.h"

#include "estimator/base/alloc.h"
#include "estimator/program/cost.h"

#include <stdlib.h>

bool pl_copy_stream_is(const struct pl_program *p, const struct pl_op *op) {
    const bool copies = op->kind == PL_OP_COPY_IN || op->kind == PL_OP_COPY_OUT;
    const bool between = pl_op_cost(op) == PL_COST_RANKS || op->kind == PL_OP_FOLD;
    return !op->host && (copies || (between && pl_shape_ranks(&p->shape) > 1));
}

/* --- who waits for whom ---------------------------------------------------------------------- */

static bool overlap(const struct pl_plan *plan, const struct pl_operand *a,
                    const struct pl_operand *b) {
    if (a->id == PL_NONE || b->id == PL_NONE) return false;
    const struct pl_tensor *x = &plan->program->tensors[a->id], *y = &plan->program->tensors[b->id];
    const uint64_t from = plan->places[a->id].offset, other = plan->places[b->id].offset;
    return x->scope == y->scope && x->place == y->place && from < other + y->bytes &&
           other < from + x->bytes;
}

static bool meets(const struct pl_plan *plan, const struct pl_operand *o,
                  const struct pl_operand *list, int n) {
    for (int i = 0; i < n; i++)
        if (overlap(plan, o, &list[i])) return true;
    return false;
}

/* A2. Scratch stands among the inputs and is written. The host's ops come after all of the device.
 */
static bool must_follow(const struct pl_plan *plan, const struct pl_op *op,
                        const struct pl_op *copy) {
    if (op->host) return true;
    for (int i = 0; i < op->n_out; i++)
        if (meets(plan, &op->out[i], copy->in, copy->n_in) ||
            meets(plan, &op->out[i], copy->out, copy->n_out))
            return true;
    for (int i = 0; i < op->n_in; i++) {
        const bool scratch = pl_op_rows[op->kind].in[i].use == PL_USE_SCRATCH;
        if (meets(plan, &op->in[i], copy->out, copy->n_out) ||
            (scratch && meets(plan, &op->in[i], copy->in, copy->n_in)))
            return true;
    }
    return false;
}

struct begun { /* ops of the copy stream of a phase, in order */
    uint32_t *list;
    uint32_t first, n; /* that no op has waited for: [first, n) */
};

/* They end in the order that they began in, so the last one decides. */
static uint32_t find_last(const struct pl_plan *plan, const struct pl_op *op, struct begun *b) {
    const struct pl_op *ops = plan->program->ops;
    for (uint32_t k = b->n; k > b->first; k--) {
        if (!must_follow(plan, op, &ops[b->list[k - 1]])) continue;
        b->first = k;
        return b->list[k - 1];
    }
    return PL_NONE;
}

pl_err pl_copy_stream_find(const struct pl_plan *plan, uint32_t *turns, struct pl_diag *d) {
    const struct pl_program *p = plan->program;
    struct begun b = {.list = pl_malloc(((size_t)p->n_ops + 1) * sizeof *b.list)};
    uint32_t number = 0;
    if (!b.list) return pl_host_oom(d, "the binding of the plan");
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (i > 0 && op->phase != p->ops[i - 1].phase) b.first = b.n = 0;
        if (pl_copy_stream_is(p, op)) {
            turns[i] = ++number;
            b.list[b.n++] = i;
            continue;
        }
        const uint32_t last = find_last(plan, op, &b);
        turns[i] = last == PL_NONE ? 0 : turns[last];
    }
    free(b.list);
    return PL_ERR_OK;
}

/* --- running --------------------------------------------------------------------------------- */

/* No op of an earlier range is still running (A3). */
void pl_copy_stream_open(struct pl_exec *e, uint32_t first) {
    const struct pl_program *p = e->plan->program;
    const bool alone = pl_shape_ranks(&p->shape) > 1 && !e->device->comm;
    e->overlaps = e->device->ops->copy_stream_begin && !alone && !e->times && !e->watch;
    e->begun = 0;
    for (uint32_t i = first; e->begun == 0 && i-- > 0;)
        if (pl_copy_stream_is(p, &p->ops[i])) e->begun = e->turns[i];
    e->awaited = e->begun;
}

static pl_err await(struct pl_exec *e, uint32_t number) {
    if (!e->overlaps || number <= e->awaited) return PL_ERR_OK;
    e->awaited = number;
    return e->device->ops->copy_stream_await(e->device, number);
}

pl_err pl_copy_stream_await(struct pl_exec *e, uint32_t first, uint32_t n) {
    const struct pl_program *p = e->plan->program;
    uint32_t number = 0;
    for (uint32_t i = first; i < first + n; i++)
        if (e->turns[i] > number && !pl_copy_stream_is(p, &p->ops[i])) number = e->turns[i];
    return await(e, number);
}

pl_err pl_copy_stream_run(struct pl_exec *e, uint32_t i, pl_kernel_fn kernel,
                          const struct pl_call *call) {
    const struct pl_program *p = e->plan->program;
    struct pl_device *dev = e->device;
    if (!e->overlaps || !pl_copy_stream_is(p, &p->ops[i])) return kernel(dev, call);
    if (dev->ops->copy_stream_begin(dev) != PL_ERR_OK) {
        PL_TRY(pl_copy_stream_join(e));
        e->overlaps = false;
        return kernel(dev, call);
    }
    const pl_err err = kernel(dev, call);
    e->begun = e->turns[i];
    const pl_err ended = dev->ops->copy_stream_end(dev, e->begun);
    return err == PL_ERR_OK ? ended : err;
}

pl_err pl_copy_stream_join(struct pl_exec *e) {
    return await(e, e->begun);
}
