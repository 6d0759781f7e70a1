#include "runtime/exec/repeats.h"

#include <string.h>

/* Fewer launches than this are not worth a graph. */
#define LEAST_OPS 4

/* The key of ops [first, first + n) for the micro-batch at hand. Every op that reads a count of the
 * micro-batch has rows of it, so that norm and update are the same after any. */
static struct pl_exec_shape key_of(const struct pl_exec *e, uint32_t first, uint32_t n) {
    const struct pl_batch *b = &e->batch;
    const bool follows = e->patches_before[first + n] != e->patches_before[first];
    return (struct pl_exec_shape){.first_op = first,
                                  .n_ops = n,
                                  .opens_step = b->first,
                                  .n_tokens = follows ? b->n_tokens : 0,
                                  .n_seqs = follows ? b->n_seqs : 0,
                                  .n_targets = follows ? b->n_targets : 0};
}

static bool are_one(const struct pl_exec_shape *a, const struct pl_exec_shape *b) {
    return a->n_ops == b->n_ops && a->first_op == b->first_op && a->opens_step == b->opens_step &&
           a->n_tokens == b->n_tokens && a->n_seqs == b->n_seqs && a->n_targets == b->n_targets;
}

/* The entry of this key; a new one takes the place of the least recently used without a graph. */
static struct pl_exec_shape *find_shape(struct pl_exec *e, uint32_t first, uint32_t n) {
    const struct pl_exec_shape key = key_of(e, first, n);
    struct pl_exec_shape *oldest = NULL;
    for (int i = 0; i < PL_EXEC_SHAPES; i++) {
        struct pl_exec_shape *s = &e->shapes[i];
        if (are_one(s, &key)) return s;
        if (!s->graph && (!oldest || s->used < oldest->used)) oldest = s;
    }
    *oldest = key;
    for (uint32_t i = first; i < first + n; i++)
        oldest->refused |= e->plan->program->ops[i].host;
    return oldest;
}

/* G3. */
static void make_room(struct pl_exec *e) {
    struct pl_exec_shape *oldest = NULL;
    int n = 0;
    for (int i = 0; i < PL_EXEC_SHAPES; i++) {
        struct pl_exec_shape *s = &e->shapes[i];
        if (!s->graph) continue;
        n++;
        if (!oldest || s->used < oldest->used) oldest = s;
    }
    if (n == PL_GRAPHS_MOST) e->device->ops->forget(e->device, &oldest->graph);
}

static void stop(struct pl_exec *e, const char *why) {
    e->device->graphs.off = why;
    pl_exec_forget_graphs(e);
}

/* Nothing has run when this returns; s->graph says whether there is something to replay. */
static void record(struct pl_exec *e, struct pl_exec_shape *s, pl_exec_run_fn run) {
    const struct pl_device_ops *ops = e->device->ops;
    struct pl_diag ignored = {0};
    make_room(e);
    e->recordings++;
    if (ops->record_begin(e->device) != PL_ERR_OK) {
        stop(e, "the driver does not record the work of a step");
        return;
    }
    pl_err ran = run(e, s->first_op, s->n_ops, &ignored);
    pl_err err = ops->record_end(e->device, ran == PL_ERR_OK, &s->graph);
    if (ran != PL_ERR_OK)
        stop(e, "an operation of a step cannot be recorded");
    else if (err == PL_ERR_DEVICE_OOM)
        s->refused = true;
    else if (err != PL_ERR_OK)
        stop(e, "the driver does not make a graph of a step");
}

pl_err pl_exec_replay(struct pl_exec *e, uint32_t first, uint32_t n, pl_exec_run_fn run,
                      struct pl_diag *d) {
    const struct pl_device *dev = e->device;
    if (n < LEAST_OPS || !dev->ops->record_begin || !dev->graphs.limit_bytes || dev->graphs.off)
        return run(e, first, n, d);
    struct pl_exec_shape *s = find_shape(e, first, n);
    bool again = s->used != 0;
    s->used = ++e->clock;
    if (again && !s->graph && !s->refused && e->recordings < PL_EXEC_RECORDINGS) record(e, s, run);
    if (!s->graph) return run(e, first, n, d);
    if (dev->ops->replay(e->device, s->graph) != PL_ERR_OK) {
        stop(e, "the driver does not start a graph");
        return run(e, first, n, d);
    }
    e->device->graphs.replays++;
    e->pending = true;
    return PL_ERR_OK;
}

void pl_exec_forget_graphs(struct pl_exec *e) {
    e->recordings = 0;
    if (!e->shapes) return; /* no memory for them */
    for (int i = 0; i < PL_EXEC_SHAPES; i++)
        if (e->shapes[i].graph) e->device->ops->forget(e->device, &e->shapes[i].graph);
    memset(e->shapes, 0, PL_EXEC_SHAPES * sizeof *e->shapes);
}
