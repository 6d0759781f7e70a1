/* exec.c - binding views and running ops. */
#include "runtime/exec/exec.h"
#include "estimator/base/alloc.h"
#include "estimator/program/cost.h"
#include "runtime/exec/copy_stream.h"
#include "runtime/exec/poison.h"
#include "runtime/exec/repeats.h"
#include "runtime/exec/watch.h"
#include "runtime/kernels/facts.h"

#include "estimator/base/checked.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct pl_exec_patch {
    struct pl_view *view;
    uint64_t first, most; /* batch row of the window's start; rows at capacity */
    enum pl_rows rows;
};

static bool is_dynamic(const struct pl_program *p, const struct pl_operand *o) {
    return o->id != PL_NONE && p->tensors[o->id].rows != PL_ROWS_FIXED;
}

static uint32_t count_patches(const struct pl_program *p) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < p->ops[i].n_in; k++)
            n += is_dynamic(p, &p->ops[i].in[k]);
        for (int k = 0; k < p->ops[i].n_out; k++)
            n += is_dynamic(p, &p->ops[i].out[k]);
    }
    return n;
}

pl_err pl_exec_init(struct pl_exec *e, const struct pl_plan *plan, struct pl_device *dev,
                    struct pl_diag *d) {
    const struct pl_program *p = plan->program;
    *e = (struct pl_exec){.plan = plan, .device = dev, .host = dev};
    e->calls = pl_calloc(p->n_ops + 1, sizeof *e->calls);
    e->patches = pl_malloc((count_patches(p) + 1) * sizeof *e->patches);
    e->patches_before = pl_calloc(p->n_ops + 1, sizeof *e->patches_before);
    e->turns = pl_malloc((p->n_ops + 1) * sizeof *e->turns);
    e->shapes = pl_calloc(PL_EXEC_SHAPES, sizeof *e->shapes);
    const bool has_all = e->calls && e->patches && e->patches_before && e->turns && e->shapes;
    pl_err err = has_all ? pl_copy_stream_find(plan, e->turns, d)
                         : pl_host_oom(d, "the binding of the plan");
    if (err == PL_ERR_OK) err = pl_poison_init(e, d);
    if (err != PL_ERR_OK) pl_exec_finish(e);
    return err;
}

void *pl_exec_lend(struct pl_exec *e, uint32_t tensor) {
    pl_poison_open(e, tensor);
    return pl_exec_address(e, tensor);
}

pl_err pl_exec_upload(struct pl_exec *e, uint32_t tensor, const void *src, uint64_t bytes) {
    void *dst = pl_exec_lend(e, tensor);
    if (!pl_exec_in_host_memory(e, tensor))
        return e->device->ops->upload(e->device, dst, src, bytes);
    PL_TRY(pl_exec_wait(e));
    if (e->device->ops != &pl_device_null) memcpy(dst, src, bytes);
    return PL_ERR_OK;
}

pl_err pl_exec_download(struct pl_exec *e, uint32_t tensor, void *dst, uint64_t bytes) {
    return pl_exec_read(e, tensor, 0, dst, bytes);
}

static void bind_view(struct pl_exec *e, const struct pl_operand *o, struct pl_view *v) {
    const struct pl_program *p = e->plan->program;
    *v = (struct pl_view){0};
    if (o->id == PL_NONE) return;
    const struct pl_tensor *t = &p->tensors[o->id];
    uint64_t width = t->dims[1] * t->dims[2];
    v->ld = width;
    v->cols = o->cols ? o->cols : width;
    v->rows = o->nrows ? o->nrows : t->dims[0];
    v->dtype = t->dtype;
    v->p =
        (char *)pl_exec_address(e, o->id) + (o->row0 * width + o->col) * pl_dtype_bytes(t->dtype);
    if (is_dynamic(p, o))
        e->patches[e->n_patches++] = (struct pl_exec_patch){v, o->batch_row, v->rows, t->rows};
}

/* E1: each tensor ends inside its arena. */
static pl_err check_bounds(const struct pl_exec *e, struct pl_diag *d) {
    const struct pl_program *p = e->plan->program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        uint64_t end = e->plan->places[i].offset + t->bytes;
        if (end <= pl_exec_arena(e, t)->bytes) continue;
        char name[96];
        pl_tensor_name(p, i, name);
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "tensor %s ends outside its arena", name);
    }
    return PL_ERR_OK;
}

/* E1 for host memory. */
static pl_err check_host_arenas(const struct pl_exec *e, struct pl_diag *d) {
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++) {
        const struct pl_host_plan *h = &e->plan->host[place];
        uint64_t job = e->host_arenas.job[place].bytes, batch = e->host_arenas.batch[place].bytes;
        if (job == h->job_bytes && batch == h->batch_bytes) continue;
        return pl_diag_set(
            d, PL_ERR_PLAN_BROKEN, "planned %llu + %llu bytes of %s memory, bound %llu + %llu",
            (unsigned long long)h->job_bytes, (unsigned long long)h->batch_bytes,
            pl_place_name(place), (unsigned long long)job, (unsigned long long)batch);
    }
    return PL_ERR_OK;
}

pl_err pl_exec_bind(struct pl_exec *e, const struct pl_arena *job, const struct pl_arena *batch,
                    struct pl_diag *d) {
    const struct pl_program *p = e->plan->program;
    if (job->bytes != e->plan->job_bytes || batch->bytes != e->plan->batch_bytes)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "planned %llu + %llu bytes, bound %llu + %llu",
                           (unsigned long long)e->plan->job_bytes,
                           (unsigned long long)e->plan->batch_bytes, (unsigned long long)job->bytes,
                           (unsigned long long)batch->bytes);
    PL_TRY(check_host_arenas(e, d));
    pl_exec_forget(e);
    e->job = *job;
    e->batch_arena = *batch;
    PL_TRY(check_bounds(e, d));
    e->n_patches = 0;
    e->view_tokens = e->view_targets = UINT64_MAX;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        struct pl_call *c = &e->calls[i];
        c->attr = &op->attr;
        c->batch = &e->batch;
        for (int k = 0; k < op->n_in; k++)
            bind_view(e, &op->in[k], &c->in[k]);
        for (int k = 0; k < op->n_out; k++)
            bind_view(e, &op->out[k], &c->out[k]);
        e->patches_before[i + 1] = e->n_patches;
    }
    return PL_ERR_OK;
}

pl_err pl_exec_describe(struct pl_exec *e, const struct pl_batch *b, struct pl_diag *d) {
    const uint32_t id = e->plan->program->facts;
    struct pl_facts facts;
    e->batch = *b;
    if (id == PL_NONE) return PL_ERR_OK;
    e->batch.facts = pl_exec_address(e, id);
    pl_facts_fill(b, &facts);
    pl_err err = pl_exec_upload(e, id, &facts, sizeof facts);
    return err == PL_ERR_OK ? err
                            : pl_diag_set(d, err, "the facts of a micro-batch did not arrive");
}

/* Cuts every window to the rows the micro-batch really has. */
static void cut_rows(struct pl_exec *e) {
    if (e->view_tokens == e->batch.n_tokens && e->view_targets == e->batch.n_targets) return;
    e->view_tokens = e->batch.n_tokens;
    e->view_targets = e->batch.n_targets;
    for (uint32_t i = 0; i < e->n_patches; i++) {
        const struct pl_exec_patch *patch = &e->patches[i];
        uint64_t n = patch->rows == PL_ROWS_TARGETS ? e->view_targets : e->view_tokens;
        if (patch->rows == PL_ROWS_ROUTED) n *= e->plan->program->model->experts.per_token;
        patch->view->rows = n <= patch->first ? 0 : pl_u64_min(n - patch->first, patch->most);
    }
}

/* Runs ops that may run as one, by the kernel that takes them all where the device has one.
 * E3: the device works on while the host computes only if nothing it computes with is under way. */
static pl_err run_together(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d) {
    const struct pl_op *op = &e->plan->program->ops[first];
    struct pl_device *on = op->host ? e->host : e->device;
    const pl_group_fn group = !op->host && e->device->groups ? e->device->groups[op->kind] : NULL;
    const pl_kernel_fn kernel = on->kernels[op->kind];
    uint32_t i = first;
    pl_err err = pl_copy_stream_await(e, first, n);
    if (err == PL_ERR_OK && op->host) err = pl_exec_wait(e);
    if (err == PL_ERR_OK && !group && !kernel) err = PL_ERR_PLAN_BROKEN;
    if (err == PL_ERR_OK) e->pending |= !op->host;
    if (err == PL_ERR_OK && group) {
        err = group(e->device, &e->calls[first], n);
    } else if (err == PL_ERR_OK) {
        for (; i < first + n && err == PL_ERR_OK; i++)
            err = op->host ? kernel(on, &e->calls[i])
                           : pl_copy_stream_run(e, i, kernel, &e->calls[i]);
        i--;
    }
    if (err == PL_ERR_OK) return PL_ERR_OK;
    const char *why = e->device->failure;
    e->device->failure = NULL;
    return pl_diag_set(d, err, "op %u (%s) failed on device %s%s%s", i, pl_op_name(op->kind),
                       e->device->ops->name, why ? ": " : "", why ? why : "");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ops last until their device is done with them; the reading at their end is where the next begin.
 * Of ops that run as one the first has all the seconds. */
static pl_err read_clock(struct pl_exec *e, uint32_t first, uint32_t n, double *since) {
    PL_TRY(pl_exec_wait(e));
    const double ended = now();
    e->times[first].seconds += ended - *since;
    for (uint32_t i = first; i < first + n; i++)
        e->times[i].runs++;
    *since = ended;
    return PL_ERR_OK;
}

/* Runs a range of ops. E5: a failure is remembered, and the ops that other ranks wait for run on,
 * whatever they send; that fails only where a rank is lost. The ops after the range may touch all
 * that its ops on the copy stream touch. */
static pl_err run_ops(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d) {
    const struct pl_op *ops = e->plan->program->ops;
    pl_copy_stream_open(e, first);
    pl_err failed = e->times ? pl_exec_wait(e) : PL_ERR_OK;
    const uint32_t end = failed == PL_ERR_OK ? first + n : first;
    double since = e->times ? now() : 0;
    for (uint32_t i = first, k; i < end; i += k) {
        struct pl_diag ignored = {0};
        k = pl_program_together(e->plan->program, i, end);
        pl_poison_before(e, i, k);
        const bool runs = !e->muted || pl_op_cost(&ops[i]) == PL_COST_RANKS;
        pl_err err = runs ? run_together(e, i, k, e->muted ? &ignored : d) : PL_ERR_OK;
        if (failed == PL_ERR_OK) failed = err;
        if (err == PL_ERR_COMM_PEER_LOST) break;
        if (err != PL_ERR_OK && e->device->comm) e->muted = true;
        if (err != PL_ERR_OK && !e->muted) break;
        err = e->times ? read_clock(e, i, k, &since) : PL_ERR_OK;
        if (err == PL_ERR_OK && e->watch) err = pl_watch_ops(e, i, k);
        if (failed == PL_ERR_OK) failed = err;
        if (err != PL_ERR_OK) break;
    }
    const pl_err joined = pl_copy_stream_join(e);
    if (failed != PL_ERR_OK || joined == PL_ERR_OK) return failed;
    return pl_diag_set(d, joined, "the copy stream was not waited for on device %s",
                       e->device->ops->name);
}

pl_err pl_exec_run(struct pl_exec *e, uint32_t first, uint32_t n, struct pl_diag *d) {
    cut_rows(e);
    const bool once = e->times || e->watch || e->device->comm;
    PL_TRY(once ? run_ops(e, first, n, d) : pl_exec_replay(e, first, n, run_ops, d));
    e->ops_run += n;
    return PL_ERR_OK;
}

pl_err pl_exec_run_phase(struct pl_exec *e, enum pl_phase phase, struct pl_diag *d) {
    const struct pl_phase_range *r = &e->plan->program->phases[phase];
    return pl_exec_run(e, r->first_op, r->n_ops, d);
}

void pl_exec_forget(struct pl_exec *e) {
    pl_poison_lift(e);
    pl_exec_forget_graphs(e);
}

void pl_exec_finish(struct pl_exec *e) {
    if (e->device) pl_exec_forget(e);
    pl_poison_finish(e);
    free(e->calls);
    free(e->patches);
    free(e->patches_before);
    free(e->turns);
    free(e->shapes);
    *e = (struct pl_exec){0};
}
