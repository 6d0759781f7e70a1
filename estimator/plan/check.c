/* check.c - the invariants of program.h and plan.h, proven on a finished plan.
 *
 * Nothing here is shared with the code that made the plan: versions are replayed, in-place rights
 * are read from the op table, and overlaps are found by sweeping the ops with the live tensors. */
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/plan.h"

#include <stdlib.h>
#include <string.h>

struct touched {            /* rows of a tensor that ops which run as one have used so far */
    uint32_t first;         /* of these ops */
    uint64_t read, written; /* ends of the rows */
};

struct checker {
    const struct pl_plan *plan;
    const struct pl_program *p;
    struct pl_diag *d;
    uint32_t *version;
    struct touched *touched; /* by tensor */
    /* by memory: STEP tensors alive, sorted by offset */
    uint32_t *live[PL_PLACE_COUNT], n_live[PL_PLACE_COUNT];
};

static pl_err broken(const struct checker *c, uint32_t op, uint32_t id, const char *what) {
    char name[96];
    pl_tensor_name(c->p, id, name);
    return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "op %u (%s) and tensor %s: %s", op,
                       pl_op_name(c->p->ops[op].kind), name, what);
}

static bool windows_meet(const struct pl_tensor *t, const struct pl_operand *a,
                         const struct pl_operand *b) {
    uint64_t ac = a->cols ? a->cols : t->dims[1], bc = b->cols ? b->cols : t->dims[1];
    uint64_t ar = a->nrows ? a->nrows : t->dims[0], br = b->nrows ? b->nrows : t->dims[0];
    return a->col < b->col + bc && b->col < a->col + ac && a->row0 < b->row0 + br &&
           b->row0 < a->row0 + ar;
}

/* R2: an output that meets an input must be declared, either as that input or as one that lives at
 * the same time. */
static pl_err check_in_place(const struct checker *c, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    for (int j = 0; j < o->n_out; j++) {
        if (o->out[j].id == PL_NONE) continue;
        const struct pl_tensor *t = &c->p->tensors[o->out[j].id];
        bool meets = false, declared = false;
        for (int i = 0; i < o->n_in; i++) {
            if (o->in[i].id != o->out[j].id || !windows_meet(t, &o->in[i], &o->out[j])) continue;
            meets = true;
            declared |= pl_operand_in_place(&pl_op_rows[o->kind].in[i]);
        }
        if (meets && !declared)
            return broken(c, op, o->out[j].id, "written in place, not declared");
    }
    return PL_ERR_OK;
}

static bool window_inside(const struct pl_tensor *t, const struct pl_operand *w) {
    return (uint64_t)w->col + w->cols <= t->dims[1] && w->row0 + w->nrows <= t->dims[0];
}

/* Job tensors and inputs hold something before any op; the rest must have been written. The op that
 * begins a gradient reads it in later micro-batches alone. */
static bool needs_definition(const struct pl_program *p, const struct pl_op *o, uint32_t id) {
    const struct pl_tensor *t = &p->tensors[id];
    if (t->role == PL_ROLE_GRAD && o->attr.accumulate == PL_ACC_FIRST_WRITES) return false;
    bool input = pl_role_is_input(t->role);
    bool scratch = t->category == PL_CATEGORY_WORKSPACE;
    bool overwritten = t->role == PL_ROLE_MICRO_GRAD;
    bool filled_by_rows = pl_tensor_spans_phase(t); /* and read as far as they were filled */
    return t->scope == PL_SCOPE_STEP && !input && !scratch && !overwritten && !filled_by_rows;
}

/* R1 of program.h, B2 of emit.h: contents expected are the contents there. */
static pl_err check_versions(struct checker *c, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    for (int i = 0; i < o->n_in; i++) {
        uint32_t id = o->in[i].id;
        if (id == PL_NONE) continue;
        if (id >= c->p->n_tensors || !window_inside(&c->p->tensors[id], &o->in[i]))
            return broken(c, op, id, "window outside the tensor");
        if (o->in[i].version != c->version[id])
            return broken(c, op, id, "reads a content that was overwritten");
        if (c->version[id] == 0 && needs_definition(c->p, o, id))
            return broken(c, op, id, "read before it is written");
    }
    for (int i = 0; i < o->n_out; i++) {
        uint32_t id = o->out[i].id;
        if (id == PL_NONE) continue;
        if (!window_inside(&c->p->tensors[id], &o->out[i]))
            return broken(c, op, id, "window outside the tensor");
        if (o->out[i].version != ++c->version[id])
            return broken(c, op, id, "writes are out of order");
    }
    return PL_ERR_OK;
}

/* P5: an op finds its operands in the memory that it can reach. */
static bool can_reach(const struct pl_op *o, bool output, enum pl_tensor_place place) {
    if (o->kind == PL_OP_COPY_IN) return place == (output ? PL_PLACE_DEVICE : PL_PLACE_PINNED);
    if (o->kind == PL_OP_COPY_OUT) return place == (output ? PL_PLACE_PINNED : PL_PLACE_DEVICE);
    return (place == PL_PLACE_DEVICE) != o->host;
}

static pl_err misfit(const struct checker *c, uint32_t op, const struct pl_operand_row *row,
                     const struct pl_operand *o) {
    char text[64];
    struct pl_text wanted = PL_TEXT_FIXED(text);
    pl_operand_describe(row, &wanted);
    if (o->id != PL_NONE) return broken(c, op, o->id, pl_text_str(&wanted));
    return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "op %u (%s) has no %s", op,
                       pl_op_name(c->p->ops[op].kind), pl_text_str(&wanted));
}

/* R5 of program.h for one operand: there if it has to be, of a type and shape of its row. */
static bool operand_fits(const struct checker *c, const struct pl_operand_row *row,
                         const struct pl_operand *o, struct pl_dims *dims) {
    if (o->id == PL_NONE) return pl_operand_may_be_absent(row);
    const struct pl_tensor *t = &c->p->tensors[o->id];
    return pl_operand_takes(row, t->dtype) &&
           pl_dims_fit(dims, row, o->nrows ? o->nrows : t->dims[0], o->cols ? o->cols : t->dims[1]);
}

static bool same_window(const struct pl_operand *a, const struct pl_operand *b) {
    return a->id == b->id && (a->id == PL_NONE || (a->col == b->col && a->cols == b->cols &&
                                                   a->row0 == b->row0 && a->nrows == b->nrows));
}

/* R5 of program.h: an output in place is the input of its name, there or not. */
static bool in_place_fits(const struct pl_op_row *row, const struct pl_op *o, int out) {
    if (!pl_operand_in_place(&row->out[out])) return true;
    for (int i = 0; i < row->n_in; i++)
        if (strcmp(row->in[i].name, row->out[out].name) == 0)
            return same_window(&o->in[i], &o->out[out]);
    return false;
}

/* R5 of program.h. Twice: dimensions that follow from others are known once all operands were
 * seen. */
static pl_err check_row(const struct checker *c, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    const struct pl_op_row *row = &pl_op_rows[o->kind];
    struct pl_dims dims = {0};
    if (o->n_in != row->n_in || o->n_out != row->n_out)
        return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "op %u (%s) has %u inputs and %u outputs", op,
                           row->name, o->n_in, o->n_out);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < o->n_in; i++)
            if (!operand_fits(c, &row->in[i], &o->in[i], &dims))
                return misfit(c, op, &row->in[i], &o->in[i]);
        for (int i = 0; i < o->n_out; i++)
            if (!operand_fits(c, &row->out[i], &o->out[i], &dims) || !in_place_fits(row, o, i))
                return misfit(c, op, &row->out[i], &o->out[i]);
    }
    return PL_ERR_OK;
}

static pl_err check_places(const struct checker *c, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        bool output = i >= o->n_in;
        uint32_t id = output ? o->out[i - o->n_in].id : o->in[i].id;
        if (id != PL_NONE && !can_reach(o, output, c->p->tensors[id].place))
            return broken(c, op, id, "lies in a memory that the op does not reach");
    }
    return PL_ERR_OK;
}

static uint64_t end_of(const struct checker *c, uint32_t id) {
    return c->plan->places[id].offset + c->p->tensors[id].bytes;
}

static uint64_t batch_bytes(const struct pl_plan *plan, enum pl_tensor_place place) {
    return place == PL_PLACE_DEVICE ? plan->batch_bytes : plan->host[place].batch_bytes;
}

static uint64_t job_bytes(const struct pl_plan *plan, enum pl_tensor_place place) {
    return place == PL_PLACE_DEVICE ? plan->job_bytes : plan->host[place].job_bytes;
}

/* P1: a tensor that becomes alive must fit between its neighbours. */
static pl_err enter(struct checker *c, uint32_t op, uint32_t id) {
    uint64_t offset = c->plan->places[id].offset;
    enum pl_tensor_place place = c->p->tensors[id].place;
    uint32_t *live = c->live[place], at = c->n_live[place];
    /* P2 of plan.h */
    if (offset % c->p->traits.align_bytes) return broken(c, op, id, "is not aligned");
    while (at > 0 && c->plan->places[live[at - 1]].offset > offset)
        at--;
    if (at > 0 && end_of(c, live[at - 1]) > offset) return broken(c, op, id, "overlaps below");
    if (at < c->n_live[place] && end_of(c, id) > c->plan->places[live[at]].offset)
        return broken(c, op, id, "overlaps above");
    if (end_of(c, id) > batch_bytes(c->plan, place))
        return broken(c, op, id, "leaves the batch arena");
    memmove(&live[at + 1], &live[at], (c->n_live[place] - at) * sizeof *live);
    live[at] = id;
    c->n_live[place]++;
    return PL_ERR_OK;
}

static void drop_dead(struct checker *c, uint32_t op) {
    for (int place = 0; place < PL_PLACE_COUNT; place++) {
        uint32_t *live = c->live[place], kept = 0;
        for (uint32_t i = 0; i < c->n_live[place]; i++)
            if (c->plan->places[live[i]].last_op >= op) live[kept++] = live[i];
        c->n_live[place] = kept;
    }
}

static pl_err check_use(struct checker *c, uint32_t op, uint32_t id) {
    const struct pl_place_row *row = &c->plan->places[id];
    const struct pl_tensor *t = &c->p->tensors[id];
    if (t->scope == PL_SCOPE_JOB) return PL_ERR_OK;
    if (t->phase != c->p->ops[op].phase) return broken(c, op, id, "belongs to another phase");
    if (op < row->first_op || op > row->last_op) return broken(c, op, id, "used outside its life");
    for (uint32_t i = 0; i < c->n_live[t->place]; i++)
        if (c->live[t->place][i] == id) return PL_ERR_OK;
    return enter(c, op, id);
}

static pl_err check_overlaps(struct checker *c, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    drop_dead(c, op);
    for (int i = 0; i < o->n_in; i++)
        if (o->in[i].id != PL_NONE) PL_TRY(check_use(c, op, o->in[i].id));
    for (int i = 0; i < o->n_out; i++)
        if (o->out[i].id != PL_NONE) PL_TRY(check_use(c, op, o->out[i].id));
    return PL_ERR_OK;
}

static struct touched *touched_by(const struct checker *c, uint32_t first, uint32_t id) {
    struct touched *t = &c->touched[id];
    if (t->first != first) *t = (struct touched){.first = first};
    return t;
}

/* R4, rows rising from op to op: what one writes lies after all that those before it used, what it
 * reads after all that they wrote. */
static pl_err check_apart(const struct checker *c, uint32_t first, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        bool output = i >= o->n_in;
        const struct pl_operand *w = output ? &o->out[i - o->n_in] : &o->in[i];
        if (w->id == PL_NONE) continue;
        const struct touched *t = touched_by(c, first, w->id);
        if (w->row0 < t->written || (output && w->row0 < t->read))
            return broken(c, op, w->id, "meets what an op that runs with it writes");
    }
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        bool output = i >= o->n_in;
        const struct pl_operand *w = output ? &o->out[i - o->n_in] : &o->in[i];
        if (w->id == PL_NONE) continue;
        struct touched *t = touched_by(c, first, w->id);
        uint64_t *end = output ? &t->written : &t->read;
        *end = pl_u64_max(*end, w->row0 + (w->nrows ? w->nrows : c->p->tensors[w->id].dims[0]));
    }
    return PL_ERR_OK;
}

static pl_err check_lives(const struct checker *c, uint32_t first, uint32_t last, uint32_t op) {
    const struct pl_op *o = &c->p->ops[op];
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        uint32_t id = i < o->n_in ? o->in[i].id : o->out[i - o->n_in].id;
        if (id == PL_NONE || c->p->tensors[id].scope != PL_SCOPE_STEP) continue;
        if (c->plan->places[id].first_op > first || c->plan->places[id].last_op < last)
            return broken(c, op, id, "does not live as long as the ops that run as one");
    }
    return PL_ERR_OK;
}

/* R4 of the ops that run as one from `first` on; how many they are goes to *n. */
static pl_err check_together(const struct checker *c, uint32_t first, uint32_t end, uint32_t *n) {
    *n = pl_program_together(c->p, first, end);
    for (uint32_t op = first; *n > 1 && op < first + *n; op++) {
        PL_TRY(check_apart(c, first, op));
        PL_TRY(check_lives(c, first, first + *n - 1, op));
    }
    return PL_ERR_OK;
}

static pl_err enter_inputs(struct checker *c, enum pl_phase phase) {
    for (uint32_t i = 0; i < c->p->n_tensors; i++) {
        const struct pl_tensor *t = &c->p->tensors[i];
        const bool input = pl_role_is_input(t->role);
        if (t->scope == PL_SCOPE_STEP && t->phase == phase && (input || pl_tensor_is_held(c->p, t)))
            PL_TRY(enter(c, c->p->phases[phase].first_op, i));
        const uint32_t last = c->p->phases[phase].first_op + c->p->phases[phase].n_ops - 1;
        if (pl_tensor_spans_phase(t) && t->phase == phase && c->plan->places[i].last_op != last)
            return broken(c, last, i, "does not live as long as its phase");
    }
    return PL_ERR_OK;
}

/* P4 and a job arena: in order, disjoint, aligned, inside. */
static pl_err check_job_arena(const struct checker *c, enum pl_tensor_place place) {
    uint64_t top = 0;
    for (uint32_t i = 0; i < c->p->n_tensors; i++) {
        if (c->p->tensors[i].scope != PL_SCOPE_JOB || c->p->tensors[i].place != place) continue;
        uint64_t offset = c->plan->places[i].offset;
        if (offset < top || offset % c->p->traits.align_bytes)
            return broken(c, 0, i, "job tensors overlap or are not aligned");
        top = end_of(c, i);
    }
    if (top > job_bytes(c->plan, place))
        return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "job tensors leave the job arena");
    return PL_ERR_OK;
}

/* P3 */
static pl_err check_sums(const struct checker *c) {
    uint64_t sum = c->plan->alignment_bytes + c->plan->fragmentation_bytes;
    for (int i = 0; i < PL_CATEGORY_COUNT; i++)
        sum += c->plan->ledger[i];
    if (sum != c->plan->arena_bytes ||
        c->plan->arena_bytes != c->plan->job_bytes + c->plan->batch_bytes)
        return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "the ledger does not add up to the arenas");
    for (int ph = 0; ph < PL_PHASE_COUNT; ph++)
        if (c->plan->phases[ph].bytes > c->plan->batch_bytes)
            return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "a phase is larger than the batch arena");
    return PL_ERR_OK;
}

static pl_err check_host_sums(const struct checker *c, enum pl_tensor_place place) {
    const struct pl_host_plan *h = &c->plan->host[place];
    uint64_t sum = h->padding_bytes;
    for (int i = 0; i < PL_CATEGORY_COUNT; i++)
        sum += h->ledger[i];
    if (sum == pl_plan_host_bytes(c->plan, place)) return PL_ERR_OK;
    return pl_diag_set(c->d, PL_ERR_PLAN_BROKEN, "the ledger of %s memory does not add up",
                       pl_place_name(place));
}

static pl_err check_ops(struct checker *c) {
    for (int ph = 0; ph < PL_PHASE_COUNT; ph++) {
        const struct pl_phase_range *r = &c->p->phases[ph];
        memset(c->n_live, 0, sizeof c->n_live);
        if (r->n_ops == 0) continue;
        PL_TRY(enter_inputs(c, ph));
        uint32_t end = r->first_op + r->n_ops, next = r->first_op, n;
        for (uint32_t op = r->first_op; op < end; op++) {
            PL_TRY(check_versions(c, op));
            PL_TRY(check_row(c, op));
            PL_TRY(check_in_place(c, op));
            PL_TRY(check_places(c, op));
            PL_TRY(check_overlaps(c, op));
            if (op < next) continue;
            PL_TRY(check_together(c, op, end, &n));
            next = op + n;
        }
    }
    return PL_ERR_OK;
}

pl_err pl_plan_check(const struct pl_plan *plan, struct pl_diag *d) {
    struct checker c = {.plan = plan, .p = plan->program, .d = d};
    c.version = pl_calloc(c.p->n_tensors + 1, sizeof *c.version);
    c.touched = pl_calloc(c.p->n_tensors + 1, sizeof *c.touched);
    uint32_t *live = pl_malloc(((size_t)c.p->n_tensors + 1) * PL_PLACE_COUNT * sizeof *live);
    pl_err err;
    if (!c.version || !c.touched || !live) {
        err = pl_host_oom(d, "checking the plan");
        goto out;
    }
    for (int place = 0; place < PL_PLACE_COUNT; place++) {
        c.live[place] = live + place * ((size_t)c.p->n_tensors + 1);
        PL_TRY_GOTO(check_job_arena(&c, place), out);
        PL_TRY_GOTO(check_host_sums(&c, place), out);
    }
    PL_TRY_GOTO(check_sums(&c), out);
    err = check_ops(&c);
out:
    free(c.version);
    free(c.touched);
    free(live);
    return err;
}
