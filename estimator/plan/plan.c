/* plan.c - lifetimes, the arenas, the ledger, the timeline. */
#include "estimator/plan/plan.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/plan/expand.h"
#include "estimator/plan/fold.h"
#include "estimator/plan/pack.h"
#include "estimator/plan/repack.h"

#include <stdlib.h>
#include <string.h>

#define NOT_USED UINT32_MAX

static void touch(struct pl_place_row *row, uint32_t op) {
    if (row->first_op == NOT_USED) row->first_op = op;
    row->last_op = op;
}

/* A tensor that an op uses is alive in all of [first, last], the ops that run as one with it. */
static void touch_operands(struct pl_plan *plan, uint32_t op, uint32_t first, uint32_t last) {
    const struct pl_op *o = &plan->program->ops[op];
    for (int i = 0; i < o->n_in + o->n_out; i++) {
        uint32_t id = i < o->n_in ? o->in[i].id : o->out[i - o->n_in].id;
        if (id == PL_NONE || plan->program->tensors[id].scope != PL_SCOPE_STEP) continue;
        touch(&plan->places[id], first);
        touch(&plan->places[id], last);
    }
}

/* Values that a layer keeps leave for host memory in its forward pass, and its gradients leave in
 * its backward pass, while later ops of the layer compute: both stay until these have ended, so
 * that none of them has to wait for the copy. */
static bool leaves_layer(const struct pl_program *p, const struct pl_op *op) {
    if (op->kind != PL_OP_COPY_OUT || (op->backward && op->layer == PL_NONE)) return false;
    const enum pl_category leaving = op->backward ? PL_CATEGORY_GRADIENTS : PL_CATEGORY_ACTIVATIONS;
    return p->tensors[op->in[0].id].category == leaving;
}

static void let_copies_run(struct pl_plan *plan) {
    const struct pl_program *p = plan->program;
    const struct pl_phase_range *micro = &p->phases[PL_PHASE_MICRO];
    const uint32_t end = micro->first_op + micro->n_ops;
    for (uint32_t i = micro->first_op, last; i < end; i++) {
        const struct pl_op *op = &p->ops[i];
        if (!leaves_layer(p, op)) continue;
        struct pl_place_row *place = &plan->places[op->in[0].id];
        last = i;
        while (last + 1 < end && p->ops[last + 1].layer == op->layer &&
               p->ops[last + 1].backward == op->backward)
            last++;
        place->last_op = (uint32_t)pl_u64_max(place->last_op, last);
    }
}

/* First and last op of every STEP tensor; inputs are there before the first op of their phase, and
 * so is what a micro-batch before has left. */
static void find_lifetimes(struct pl_plan *plan) {
    const struct pl_program *p = plan->program;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        struct pl_place_row *row = &plan->places[i];
        *row = (struct pl_place_row){.first_op = NOT_USED};
        if (t->scope == PL_SCOPE_JOB)
            *row = (struct pl_place_row){.last_op = p->n_ops ? p->n_ops - 1 : 0};
        else if (pl_role_is_input(t->role) || pl_tensor_is_held(p, t))
            touch(row, p->phases[t->phase].first_op);
    }
    for (uint32_t op = 0, n; op < p->n_ops; op += n) {
        n = pl_program_together(p, op, p->n_ops);
        for (uint32_t i = op; i < op + n; i++)
            touch_operands(plan, i, op, op + n - 1);
    }
    let_copies_run(plan);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_phase_range *r = &p->phases[p->tensors[i].phase];
        if (pl_tensor_spans_phase(&p->tensors[i]))
            plan->places[i].last_op = r->first_op + r->n_ops - 1;
    }
}

/* True if equal layers have it at the same time: what lasts for the run, what a pass over the
 * layers keeps for a later one, and scratch of ops that run as one. */
static bool adds_up(const struct pl_plan *plan, uint32_t id) {
    const struct pl_tensor *t = &plan->program->tensors[id];
    const struct pl_place_row *row = &plan->places[id];
    if (t->scope == PL_SCOPE_JOB) return true;
    if (t->phase == PL_PHASE_OPTIMIZER)
        return t->category == PL_CATEGORY_WORKSPACE && row->last_op > row->first_op;
    return pl_program_pass(plan->program, row->first_op) !=
           pl_program_pass(plan->program, row->last_op);
}

/* Equal tensors that one of a brief program stands for where bytes are counted. */
static uint64_t copies_of(const struct pl_plan *plan, uint32_t id) {
    const uint64_t n = pl_tensor_left_out(plan->program, &plan->program->tensors[id]);
    return n && adds_up(plan, id) ? 1 + n : 1;
}

/* Gives job tensors their places, in the order of the program, each memory on its own. */
static pl_err place_job_tensors(struct pl_plan *plan, struct pl_diag *d) {
    const struct pl_program *p = plan->program;
    uint64_t top[PL_PLACE_COUNT] = {0};
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->scope != PL_SCOPE_JOB) continue;
        const bool device = t->place == PL_PLACE_DEVICE;
        uint64_t *at = &top[t->place], all;
        const uint64_t n = copies_of(plan, i);
        plan->places[i].offset = *at;
        if (!pl_u64_align(t->bytes, p->traits.align_bytes, &all) || !pl_u64_mul(all, n, &all) ||
            !pl_u64_add(*at, all, at))
            return pl_diag_set(d, PL_ERR_OVERFLOW, "the job's tensors exceed 64 bits");
        (device ? plan->job_by_category : plan->host[t->place].ledger)[t->category] += n * t->bytes;
    }
    plan->job_bytes = top[PL_PLACE_DEVICE];
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        plan->host[place].job_bytes = top[place];
    return PL_ERR_OK;
}

/* Tensors of a step that are used, by phase and memory; those of one bucket ascend. */
enum { BUCKETS = PL_PHASE_COUNT * PL_PLACE_COUNT };
struct buckets {
    uint32_t start[BUCKETS + 1];
    uint32_t *ids; /* [n_tensors] */
    uint32_t most; /* in one bucket */
};

static int bucket_of(enum pl_phase phase, enum pl_tensor_place place) {
    return (int)phase * PL_PLACE_COUNT + (int)place;
}

/* PL_NONE: of no bucket. */
static uint32_t bucket_of_tensor(const struct pl_plan *plan, uint32_t id) {
    const struct pl_tensor *t = &plan->program->tensors[id];
    if (t->scope != PL_SCOPE_STEP || plan->places[id].first_op == NOT_USED) return PL_NONE;
    return (uint32_t)bucket_of(t->phase, t->place);
}

static void fill_buckets(const struct pl_plan *plan, struct buckets *b) {
    const uint32_t n = plan->program->n_tensors;
    uint32_t next[BUCKETS], bucket;
    for (uint32_t i = 0; i < n; i++)
        if ((bucket = bucket_of_tensor(plan, i)) != PL_NONE) b->start[bucket + 1]++;
    for (int k = 0; k < BUCKETS; k++) {
        if (b->start[k + 1] > b->most) b->most = b->start[k + 1];
        b->start[k + 1] += b->start[k];
        next[k] = b->start[k];
    }
    for (uint32_t i = 0; i < n; i++)
        if ((bucket = bucket_of_tensor(plan, i)) != PL_NONE) b->ids[next[bucket]++] = i;
}

/* Interval rows of the tensors of a phase. */
static pl_err collect(const struct pl_plan *plan, const struct pl_phase_tensors *t,
                      struct pl_interval *rows, struct pl_diag *d) {
    const struct pl_program *p = plan->program;
    const uint32_t first_op = p->phases[t->phase].first_op;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const uint32_t id = t->ids[i];
        const struct pl_place_row *row = &plan->places[id];
        uint64_t bytes;
        if (!pl_u64_align(p->tensors[id].bytes, p->traits.align_bytes, &bytes) ||
            !pl_u64_mul(bytes, copies_of(plan, id), &bytes) || !pl_u64_add(sum, bytes, &sum))
            return pl_diag_set(d, PL_ERR_OVERFLOW, "the tensors of a step exceed 64 bits");
        rows[i] = (struct pl_interval){
            .bytes = bytes, .first = row->first_op - first_op, .last = row->last_op - first_op};
    }
    return PL_ERR_OK;
}

static void live_at_peak(const struct pl_plan *plan, uint32_t peak_op,
                         const struct pl_phase_tensors *tensors, uint64_t live[PL_CATEGORY_COUNT]) {
    for (uint32_t i = 0; i < tensors->n; i++) {
        const struct pl_place_row *row = &plan->places[tensors->ids[i]];
        const struct pl_tensor *t = &plan->program->tensors[tensors->ids[i]];
        if (row->first_op <= peak_op && peak_op <= row->last_op)
            live[t->category] += t->bytes * copies_of(plan, tensors->ids[i]);
    }
}

/* Bytes of the batch arena that are within the limit. */
static uint64_t room_of(const struct pl_plan *plan) {
    return plan->limit > plan->job_bytes ? plan->limit - plan->job_bytes : 0;
}

/* True if more is alive at one time than there is. */
static bool is_over(struct pl_plan *plan, const struct pl_packing *bound) {
    const bool over =
        plan->limit && (plan->job_bytes > plan->limit || bound->live_bytes > room_of(plan));
    plan->over |= over;
    return over;
}

static struct pl_phase_tensors tensors_of(const struct pl_plan *plan, enum pl_phase phase,
                                          enum pl_tensor_place place, const struct buckets *b) {
    const uint32_t *start = &b->start[bucket_of(phase, place)];
    return (struct pl_phase_tensors){plan->program, plan->places, phase, b->ids + start[0],
                                     start[1] - start[0]};
}

/* Layers that are left out are placed one by one, since gaps are between them. What is alive at
 * most is known already, of rows where one stands for all of them. */
static pl_err pack_layers(const struct pl_phase_tensors *t, uint64_t enough, struct pl_packing *out,
                          struct pl_diag *d) {
    struct pl_expansion whole;
    struct pl_packing packing;
    PL_TRY(pl_expand(t, &whole, d));
    pl_err err = pl_pack_within(whole.rows, whole.n, whole.n_ops, enough, &packing, d);
    out->bytes = packing.bytes;
    free(whole.rows);
    return err;
}

/* Packs the tensors of a phase in one memory and gives them their offsets. */
static pl_err pack_phase(struct pl_plan *plan, enum pl_phase phase, enum pl_tensor_place place,
                         const struct buckets *b, struct pl_interval *rows,
                         struct pl_phase_plan *out, struct pl_diag *d) {
    const struct pl_phase_range *range = &plan->program->phases[phase];
    const struct pl_phase_tensors t = tensors_of(plan, phase, place, b);
    struct pl_packing packing;
    PL_TRY(collect(plan, &t, rows, d));
    const uint64_t enough = place == PL_PLACE_DEVICE ? room_of(plan) : 0;
    const bool layers = plan->program->layers_left_out && phase != PL_PHASE_OPTIMIZER;
    if (layers || plan->limit) PL_TRY(pl_pack_bound(rows, t.n, range->n_ops, &packing, d));
    if (place == PL_PLACE_DEVICE && is_over(plan, &packing))
        packing.bytes = packing.live_bytes;
    else if (layers)
        PL_TRY(pack_layers(&t, enough, &packing, d));
    else
        PL_TRY(pl_pack_within(rows, t.n, range->n_ops, enough, &packing, d));
    for (uint32_t i = 0; i < t.n; i++)
        plan->places[t.ids[i]].offset = rows[i].offset;
    *out = (struct pl_phase_plan){.bytes = packing.bytes,
                                  .live_bytes = packing.live_bytes,
                                  .peak_op = range->first_op + packing.peak_op};
    live_at_peak(plan, out->peak_op, &t, out->live);
    return PL_ERR_OK;
}

/* --- arenas ---------------------------------------------------------------------------------- */

static enum pl_phase highest_of(const struct pl_phase_plan phases[PL_PHASE_COUNT]) {
    int highest = 0;
    for (int phase = 1; phase < PL_PHASE_COUNT; phase++)
        if (phases[phase].bytes > phases[highest].bytes) highest = phase;
    return (enum pl_phase)highest;
}

/* Packs a phase again, with tensors of equal layers, and of equal pieces of work, put together.
 * goal, enough: as for pl_repack(). */
static pl_err repack_phase(struct pl_plan *plan, const struct pl_phase_tensors *t, uint64_t goal,
                           uint64_t enough, struct pl_phase_plan *ph, struct pl_diag *d) {
    struct pl_packing packing = {.bytes = ph->bytes, .live_bytes = ph->live_bytes};
    struct pl_fold f;
    pl_err err = pl_fold_init(&f, t, d);
    if (err == PL_ERR_OK) err = pl_repack(&f.units, goal, enough, &packing, d);
    for (uint32_t i = 0; i < t->n && err == PL_ERR_OK && packing.bytes < ph->bytes; i++)
        plan->places[t->ids[i]].offset = pl_fold_offset(&f, i);
    pl_fold_finish(&f);
    ph->bytes = packing.bytes;
    return err;
}

/* Only the highest phase decides how high an arena is, so the others may be loose. What is tried,
 * and in which order, does not depend on `enough`, which only ends it earlier: whether so many
 * bytes are enough has the answer that the plan without a limit has. */
static pl_err tighten(struct pl_plan *plan, enum pl_tensor_place place, const struct buckets *b,
                      uint64_t enough, struct pl_phase_plan phases[PL_PHASE_COUNT],
                      struct pl_diag *d) {
    const uint64_t alive = pl_plan_most_alive(phases);
    bool tried[PL_PHASE_COUNT] = {false};
    for (;;) {
        const enum pl_phase highest = highest_of(phases);
        struct pl_phase_plan *ph = &phases[highest];
        if (tried[highest] || ph->bytes <= pl_u64_max(alive, enough)) return PL_ERR_OK;
        const struct pl_phase_tensors t = tensors_of(plan, highest, place, b);
        tried[highest] = true;
        PL_TRY(repack_phase(plan, &t, alive, enough, ph, d));
    }
}

static pl_err place_phases(struct pl_plan *plan, enum pl_tensor_place place,
                           const struct buckets *b, struct pl_interval *rows,
                           struct pl_phase_plan phases[PL_PHASE_COUNT], struct pl_diag *d) {
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++)
        PL_TRY(pack_phase(plan, phase, place, b, rows, &phases[phase], d));
    return PL_ERR_OK;
}

/* The bytes of the host's arenas are not asked for where there is a limit. */
static pl_err place_host(struct pl_plan *plan, enum pl_tensor_place place, const struct buckets *b,
                         struct pl_interval *rows, struct pl_diag *d) {
    struct pl_host_plan *h = &plan->host[place];
    struct pl_phase_plan phases[PL_PHASE_COUNT];
    uint64_t tensors = 0, bytes;
    PL_TRY(place_phases(plan, place, b, rows, phases, d));
    if (!plan->limit) PL_TRY(tighten(plan, place, b, 0, phases, d));
    const struct pl_phase_plan *peak = &phases[highest_of(phases)];
    h->batch_bytes = peak->bytes;
    if (!pl_u64_add(h->job_bytes, h->batch_bytes, &bytes))
        return pl_diag_set(d, PL_ERR_OVERFLOW, "the host's tensors exceed 64 bits");
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        h->ledger[c] += peak->live[c];
        tensors += h->ledger[c];
    }
    h->padding_bytes = bytes - tensors;
    return PL_ERR_OK;
}

uint64_t pl_plan_host_total(const struct pl_plan *plan) {
    return plan->program->traits.pinned_bytes + pl_plan_host_placed(plan);
}

/* P3: what tensors hold at the peak, what alignment pads, and what packing could not close. */
static pl_err fill_ledger(struct pl_plan *plan, struct pl_diag *d) {
    const struct pl_phase_plan *peak = &plan->phases[plan->peak_phase];
    uint64_t tensors = 0;
    for (int c = 0; c < PL_CATEGORY_COUNT; c++) {
        plan->ledger[c] = plan->job_by_category[c] + peak->live[c];
        tensors += plan->ledger[c];
    }
    if (!pl_u64_add(plan->job_bytes, plan->batch_bytes, &plan->arena_bytes))
        return pl_diag_set(d, PL_ERR_OVERFLOW, "the plan exceeds 64 bits");
    plan->fragmentation_bytes = plan->batch_bytes - peak->live_bytes;
    plan->alignment_bytes = plan->arena_bytes - plan->fragmentation_bytes - tensors;
    return PL_ERR_OK;
}

static pl_err place_step(struct pl_plan *plan, const struct buckets *b, struct pl_diag *d) {
    struct pl_interval *rows = pl_malloc((b->most + 1) * sizeof *rows);
    if (!rows) return pl_host_oom(d, "the plan");
    pl_err err = PL_ERR_OK;
    PL_TRY_GOTO(place_phases(plan, PL_PLACE_DEVICE, b, rows, plan->phases, d), out);
    if (!plan->over)
        PL_TRY_GOTO(tighten(plan, PL_PLACE_DEVICE, b, room_of(plan), plan->phases, d), out);
    plan->peak_phase = highest_of(plan->phases);
    plan->batch_bytes = plan->phases[plan->peak_phase].bytes;
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        PL_TRY_GOTO(place_host(plan, place, b, rows, d), out);
out:
    free(rows);
    return err;
}

/* Everything but lifetimes. */
static pl_err fill(struct pl_plan *plan, struct pl_diag *d) {
    struct buckets b = {.ids = pl_malloc((plan->program->n_tensors + 1) * sizeof *b.ids)};
    pl_err err = PL_ERR_OK;
    if (!b.ids) return pl_host_oom(d, "the plan");
    fill_buckets(plan, &b);
    PL_TRY_GOTO(place_job_tensors(plan, d), out);
    PL_TRY_GOTO(place_step(plan, &b, d), out);
    err = fill_ledger(plan, d);
out:
    free(b.ids);
    return err;
}

pl_err pl_plan_create(const struct pl_program *p, struct pl_plan **out, struct pl_diag *d) {
    return pl_plan_create_within(p, 0, out, d);
}

pl_err pl_plan_create_within(const struct pl_program *p, uint64_t limit, struct pl_plan **out,
                             struct pl_diag *d) {
    *out = NULL;
    struct pl_plan *plan = pl_calloc(1, sizeof *plan);
    if (plan) plan->places = pl_malloc((p->n_tensors + 1) * sizeof *plan->places);
    if (!plan || !plan->places) {
        free(plan);
        return pl_host_oom(d, "the plan");
    }
    plan->program = p;
    plan->limit = limit;
    find_lifetimes(plan);
    pl_err err = fill(plan, d);
    if (err != PL_ERR_OK) pl_plan_destroy(&plan);
    *out = plan;
    return err;
}

pl_err pl_plan_again(struct pl_plan *plan, uint64_t limit, struct pl_diag *d) {
    *plan = (struct pl_plan){.program = plan->program, .places = plan->places, .limit = limit};
    return fill(plan, d);
}

void pl_plan_destroy(struct pl_plan **plan) {
    if (!*plan) return;
    free((*plan)->places);
    free(*plan);
    *plan = NULL;
}

void pl_plan_timeline(const struct pl_plan *plan, enum pl_phase phase, uint64_t *out) {
    const struct pl_program *p = plan->program;
    const struct pl_phase_range *range = &p->phases[phase];
    memset(out, 0, range->n_ops * sizeof *out);
    /* differences first, prefix sum after: linear in tensors and ops */
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        const struct pl_place_row *row = &plan->places[i];
        if (t->scope != PL_SCOPE_STEP || t->phase != phase || t->place != PL_PLACE_DEVICE ||
            row->first_op == NOT_USED)
            continue;
        out[row->first_op - range->first_op] += t->bytes;
        if (row->last_op + 1 < range->first_op + range->n_ops)
            out[row->last_op + 1 - range->first_op] -= t->bytes;
    }
    for (uint32_t op = 1; op < range->n_ops; op++)
        out[op] += out[op - 1];
}
