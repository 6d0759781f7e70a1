/* step_time.c - two timelines over the ops of a plan. */
#include "estimator/plan/step_time.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

struct machine {
    const struct pl_program *p;
    const struct pl_speed *speed;
    const struct pl_link *link;
    struct pl_load load; /* of the step */
};

static double seconds_of(const struct machine *m, const struct pl_op *op) {
    if (pl_op_cost(op) != PL_COST_RANKS) return pl_op_seconds(m->p, op, m->speed, &m->load);
    return m->link->start_seconds +
           (double)pl_op_traffic(m->p, op).busiest_bytes / m->link->bytes_per_second;
}

/* True for copies that a device with a copy stream makes while it computes. */
static bool copies_aside(const struct pl_program *p, const struct pl_op *op) {
    return p->traits.backend == PL_BACKEND_CUDA && pl_op_cost(op) == PL_COST_COPY;
}

static struct pl_load load_of(const struct pl_program *p, double micro_batches) {
    struct pl_load load = pl_load_full(p);
    load.micro_batches = micro_batches;
    load.tokens *= micro_batches;
    load.targets *= micro_batches;
    return load;
}

void pl_program_step_time(const struct pl_program *p, const struct pl_speed *speed,
                          const struct pl_link *link, double micro_batches,
                          struct pl_step_time *out) {
    const struct machine m = {p, speed, link, load_of(p, micro_batches)};
    *out = (struct pl_step_time){.sent_bytes = pl_program_sent_bytes(p, micro_batches)};
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        const double runs = pl_op_runs(p, op, micro_batches) * pl_op_copies(p, op);
        if (runs <= 0) continue;
        const double seconds = runs * seconds_of(&m, op);
        *(pl_op_cost(op) == PL_COST_RANKS ? &out->link_seconds : &out->compute_seconds) += seconds;
        if (copies_aside(p, op)) out->copy_seconds += seconds;
    }
}

/* --- bytes as cells -------------------------------------------------------------------------- */

/* The batch arena, cut wherever a tensor begins or ends; after these cells one for each tensor that
 * lies elsewhere, whose place is its own. */
struct cells {
    uint64_t *ends;         /* owned; ascending boundaries of the batch arena */
    double *written, *used; /* owned; by cell: when the last op that wrote or used it has ended */
    uint32_t n_ends, n;
};

struct span {
    uint32_t first, end;
};

static bool is_shared(const struct pl_tensor *t) {
    return t->scope == PL_SCOPE_STEP && t->place == PL_PLACE_DEVICE;
}

static int compare_ends(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static pl_err make_cells(const struct pl_plan *plan, struct cells *c, struct pl_diag *d) {
    const struct pl_program *p = plan->program;
    uint32_t kept = 0;
    *c = (struct cells){.n = 3 * p->n_tensors};
    c->ends = pl_calloc(2 * (size_t)p->n_tensors + 1, sizeof *c->ends);
    c->written = pl_calloc((size_t)c->n + 1, sizeof *c->written);
    c->used = pl_calloc((size_t)c->n + 1, sizeof *c->used);
    if (!c->ends || !c->written || !c->used) return pl_host_oom(d, "the time of a step");
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (!is_shared(&p->tensors[i])) continue;
        c->ends[c->n_ends++] = plan->places[i].offset;
        c->ends[c->n_ends++] = plan->places[i].offset + p->tensors[i].bytes;
    }
    qsort(c->ends, c->n_ends, sizeof *c->ends, compare_ends);
    for (uint32_t i = 0; i < c->n_ends; i++)
        if (kept == 0 || c->ends[kept - 1] != c->ends[i]) c->ends[kept++] = c->ends[i];
    c->n_ends = kept;
    return PL_ERR_OK;
}

/* Cell i begins at boundary i. */
static uint32_t cell_at(const struct cells *c, uint64_t offset) {
    uint32_t low = 0, high = c->n_ends;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->ends[middle] < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* --- two timelines --------------------------------------------------------------------------- */

enum lane { MACHINE, ASIDE, N_LANES };

struct timelines {
    const struct pl_plan *plan;
    struct cells cells;
    struct span *spans; /* owned; by tensor */
    double free_at[N_LANES];
};

static double latest(const double *times, struct span s, double at) {
    for (uint32_t i = s.first; i < s.end; i++)
        if (times[i] > at) at = times[i];
    return at;
}

static void raise_to(double *times, struct span s, double at) {
    for (uint32_t i = s.first; i < s.end; i++)
        if (times[i] < at) times[i] = at;
}

/* A copy begins after every op before it. */
static void run_op(struct timelines *t, const struct pl_op *op, double seconds) {
    const bool copy = copies_aside(t->plan->program, op);
    double *free_at = &t->free_at[copy || pl_op_cost(op) == PL_COST_RANKS ? ASIDE : MACHINE];
    double at = *free_at;
    if (copy && at < t->free_at[MACHINE]) at = t->free_at[MACHINE];
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].id != PL_NONE) at = latest(t->cells.written, t->spans[op->in[i].id], at);
    for (int i = 0; i < op->n_out; i++)
        if (op->out[i].id != PL_NONE) at = latest(t->cells.used, t->spans[op->out[i].id], at);
    at += seconds;
    for (int i = 0; i < op->n_in; i++)
        if (op->in[i].id != PL_NONE) raise_to(t->cells.used, t->spans[op->in[i].id], at);
    for (int i = 0; i < op->n_out; i++) {
        if (op->out[i].id == PL_NONE) continue;
        raise_to(t->cells.used, t->spans[op->out[i].id], at);
        raise_to(t->cells.written, t->spans[op->out[i].id], at);
    }
    *free_at = at;
}

/* Seconds from the first op of a phase to the last one's end. */
static double run_phase(struct timelines *t, const struct machine *m, enum pl_phase phase) {
    const struct pl_phase_range *r = &m->p->phases[phase];
    for (uint32_t i = 0; i < t->cells.n; i++)
        t->cells.written[i] = t->cells.used[i] = 0;
    t->free_at[MACHINE] = t->free_at[ASIDE] = 0;
    for (uint32_t i = r->first_op; i < r->first_op + r->n_ops; i++)
        if (pl_op_runs(m->p, &m->p->ops[i], m->load.micro_batches) > 0)
            run_op(t, &m->p->ops[i], seconds_of(m, &m->p->ops[i]));
    return t->free_at[MACHINE] > t->free_at[ASIDE] ? t->free_at[MACHINE] : t->free_at[ASIDE];
}

static pl_err make_spans(struct timelines *t, struct pl_diag *d) {
    const uint32_t n = t->plan->program->n_tensors;
    t->spans = pl_calloc((size_t)n + 1, sizeof *t->spans);
    if (!t->spans) return pl_host_oom(d, "the time of a step");
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_tensor *tensor = &t->plan->program->tensors[i];
        const uint64_t offset = t->plan->places[i].offset;
        t->spans[i] = (struct span){2 * n + i, 2 * n + i + 1}; /* of its own */
        if (is_shared(tensor))
            t->spans[i] = (struct span){cell_at(&t->cells, offset),
                                        cell_at(&t->cells, offset + tensor->bytes)};
    }
    return PL_ERR_OK;
}

pl_err pl_plan_step_time(const struct pl_plan *plan, const struct pl_speed *speed,
                         const struct pl_link *link, double micro_batches, struct pl_step_time *out,
                         struct pl_diag *d) {
    const struct machine m = {plan->program, speed, link, load_of(plan->program, micro_batches)};
    struct timelines t = {.plan = plan};
    pl_program_step_time(plan->program, speed, link, micro_batches, out);
    if (plan->program->shortened)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "the time of a step is that of a whole program");
    out->overlapped_seconds = pl_step_in_order(out);
    if (out->link_seconds <= 0 && out->copy_seconds <= 0) return PL_ERR_OK;
    pl_err err = make_cells(plan, &t.cells, d);
    if (err == PL_ERR_OK) err = make_spans(&t, d);
    if (err == PL_ERR_OK)
        out->overlapped_seconds = micro_batches * run_phase(&t, &m, PL_PHASE_MICRO) +
                                  run_phase(&t, &m, PL_PHASE_OPTIMIZER);
    free(t.cells.ends);
    free(t.cells.written);
    free(t.cells.used);
    free(t.spans);
    return err;
}
