/* session_open.c - the device, the ladder of plans, the micro-batch. */
#include "runtime/session/session_open.h"

#include "estimator/config/debug_fault.h"
#include "estimator/config/job_values.h"
#include "runtime/admit/anew.h"
#include "runtime/admit/graphs.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/session/arenas.h"
#include "runtime/session/measure.h"
#include "runtime/session/agree.h"

#include <string.h>

static const struct pl_back_end *back_end(const struct pl_question *q) {
    if (pl_device_is_cuda(q->job->device)) return &pl_back_end_cuda;
    if (q->job->device == PL_DEVICE_NULL) return &pl_back_end_null;
    return pl_question_multiplies_in_bf16(q) ? &pl_back_end_cpu : &pl_back_end_cpu_fp32;
}

/* pl_job_validate has checked the entries. */
static void arm_fault(struct pl_device *device, const char *text) {
    struct pl_fault f;
    if (!pl_fault_parse(text, &f)) return;
    const struct pl_inject inject = {.at = f.at, .count = f.count};
    if (f.kind == PL_FAULT_DEVICE_OOM_ALLOC) device->inject = inject;
    if (f.kind == PL_FAULT_PINNED_OOM_ALLOC) device->inject_pinned = inject;
}

/* It takes one core 10 seconds or more, and nothing else would be said meanwhile. */
static void tell_compiling(const struct pl_session *s) {
    const struct pl_device_ops *ops = back_end(&s->pf->q)->ops;
    const uint32_t sm = s->pf->gpu.sm;
    if (!ops->lacks_code || !ops->lacks_code(sm)) return;
    fprintf(s->messages,
            "plimsoll: note: the driver compiles the kernels for this GPU, which takes some "
            "seconds; a build with -Dcuda-arch=%u has them\n",
            sm);
}

static pl_err open_device(struct pl_session *s, struct pl_diag *d) {
    uint64_t budget = s->pf->q.budget.total_bytes;
    tell_compiling(s);
    PL_TRY(pl_device_open_at(back_end(&s->pf->q), pl_device_ordinal(s->job->device),
                             s->job->threads, budget, &s->device, d));
    for (uint32_t i = 0; i < s->job->debug_inject.n; i++)
        arm_fault(s->device, s->job->debug_inject.items[i]);
    return PL_ERR_OK;
}

/* A GPU's kernels cannot run the ops of the host; those of the CPU and the null device can. */
static pl_err open_host_device(struct pl_session *s, struct pl_diag *d) {
    const struct pl_program *p = s->pf->estimate.planned.program;
    bool has_host_ops = false;
    for (uint32_t i = 0; i < p->n_ops; i++)
        has_host_ops |= p->ops[i].host;
    if (!pl_device_is_cuda(s->job->device) || !has_host_ops) return PL_ERR_OK;
    return pl_device_open(&pl_back_end_cpu, s->job->threads, 0, &s->host_device, d);
}

static void find_inputs(struct pl_rung *rung) {
    const struct pl_program *p = rung->planned.program;
    memset(rung->inputs, 0xff, sizeof rung->inputs);
    memset(rung->logp, 0xff, sizeof rung->logp);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role == PL_ROLE_LOGP) rung->logp[t->phase] = i;
        if (pl_role_is_input(t->role)) rung->inputs[t->phase][t->role - PL_ROLE_IDS] = i;
    }
    rung->ops = pl_program_step_ops(p);
}

static bool same_job_arenas(const struct pl_plan *a, const struct pl_plan *b) {
    bool same = a->job_bytes == b->job_bytes;
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        same = same && a->host[place].job_bytes == b->host[place].job_bytes;
    return same;
}

static pl_err plan_rung(struct pl_session *s, struct pl_rung *rung,
                        const struct pl_job_shape *shape, struct pl_diag *d) {
    pl_planned_finish(&rung->planned);
    return pl_planned_init_shape(&rung->planned, shape, &s->pf->model, &s->pf->q.traits, d);
}

/* P4 in use: every rung must leave the job arena as it is. A smaller micro-batch is one of several
 * of a step, so gradients in bf16 are folded (exchange.c), which takes a tensor more. Where that
 * would be all that a smaller micro-batch saves, and more, sums are rounded to nearest: a run that
 * continues is worth more than that. */
static pl_err plan_smaller(struct pl_session *s, struct pl_rung *rung, struct pl_diag *d) {
    const uint64_t before = rung[-1].planned.plan->arena_bytes;
    struct pl_job_shape shape = s->pf->estimate.planned.program->shape;
    shape.batch_size = rung->batch_size;
    shape.keeps_first_pass &= pl_job_whole_samples(s->job, rung->batch_size) == rung->batch_size;
    if (shape.gradients == PL_GRADIENTS_OF_UPDATE) shape.gradients = PL_GRADIENTS_OF_STEP;
    shape.folds_gradients = pl_dtype_is_narrow(shape.gradient_dtype);
    PL_TRY(plan_rung(s, rung, &shape, d));
    if (shape.folds_gradients && !shape.rank_order && rung->planned.plan->arena_bytes >= before) {
        shape.folds_gradients = false;
        PL_TRY(plan_rung(s, rung, &shape, d));
    }
    if (!same_job_arenas(rung->planned.plan, s->pf->estimate.planned.plan))
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "the job arena changed with the micro-batch");
    return PL_ERR_OK;
}

/* The first rung is the plan that was judged (S3). */
static pl_err add_rung(struct pl_session *s, uint32_t batch_size, struct pl_diag *d) {
    const bool first = s->n_rungs == 0;
    struct pl_rung *rung = &s->rungs[s->n_rungs++];
    rung->batch_size = batch_size;
    if (first)
        rung->planned = s->pf->estimate.planned;
    else
        PL_TRY(plan_smaller(s, rung, d));
    PL_TRY(pl_plan_check(rung->planned.plan, d));
    find_inputs(rung);
    rung->pads = pl_graphs_pad(s->job, rung->planned.program);
    PL_TRY(pl_exec_init(&rung->exec, rung->planned.plan, s->device, d));
    if (s->host_device) rung->exec.host = s->host_device;
    return PL_ERR_OK;
}

static pl_err build_ladder(struct pl_session *s, struct pl_diag *d) {
    uint32_t batch = s->job->batch_size;
    PL_TRY(add_rung(s, batch, d));
    for (uint32_t i = 0; s->job->oom_recovery && i < s->job->oom_max_retries && batch > 1; i++) {
        batch = pl_oom_halve(batch);
        PL_TRY(add_rung(s, batch, d));
    }
    return PL_ERR_OK;
}

static pl_err init_micro_batch(struct pl_session *s, struct pl_diag *d) {
    const struct pl_program *p = s->rungs[0].planned.program;
    PL_TRY(pl_micro_batch_init(&s->micro, p->tokens, p->seqs, d));
    if (p->shape.long_by_sample) {
        s->micro.long_from = s->pf->model.rope[0].original_max_positions;
        s->micro.long_base = p->shape.max_seq_length;
    }
    return PL_ERR_OK;
}

pl_err pl_session_open(struct pl_session *s, struct pl_preflight *pf, FILE *messages, bool colour,
                       struct pl_diag *d) {
    *s = (struct pl_session){.pf = pf, .job = pf->job, .messages = messages, .colour = colour};
    s->comm = pf->comm;
    pf->comm = NULL;
    PL_TRY(open_device(s, d));
    PL_TRY(open_host_device(s, d));
    PL_TRY(pl_session_join(s, d));
    PL_TRY(pl_session_check_context(s, d));
    PL_TRY(build_ladder(s, d));
    PL_TRY(pl_session_cut(s, d));
    return init_micro_batch(s, d);
}

static void close_ladder(struct pl_session *s) {
    for (uint32_t i = 0; i < s->n_rungs; i++) {
        pl_exec_finish(&s->rungs[i].exec);
        if (i > 0) pl_planned_finish(&s->rungs[i].planned);
    }
    memset(s->rungs, 0, sizeof s->rungs);
    s->n_rungs = s->rung = 0;
    pl_cut_finish(&s->cut);
}

/* One rank that has no room is enough. */
static pl_err has_room(struct pl_session *s, const struct pl_anew *a, uint64_t have_bytes,
                       bool *out, struct pl_diag *d) {
    bool all[PL_RANKS_MAX];
    const bool mine = *out = a->planned.plan->arena_bytes <= have_bytes;
    if (!s->comm) return PL_ERR_OK;
    PL_TRY(pl_comm_agree(s->comm, &mine, sizeof mine, all, d));
    for (uint32_t r = 0; r < s->comm->world.size; r++)
        *out = *out && all[r];
    return PL_ERR_OK;
}

/* *out: there is room for the micro-batch, or will be after more halvings. */
static pl_err has_room_below(struct pl_session *s, const struct pl_beginning *b, bool *out,
                             struct pl_diag *d) {
    for (uint32_t batch = b->batch_size; !*out && batch > b->least;) {
        struct pl_anew a;
        batch = pl_oom_halve(batch);
        pl_err err = pl_anew_decide(s->pf, batch, b->have_bytes, NULL, &a, d);
        if (err == PL_ERR_OK) err = has_room(s, &a, b->have_bytes, out, d);
        pl_anew_finish(&a);
        PL_TRY(err);
    }
    return PL_ERR_OK;
}

static pl_err take_anew(struct pl_session *s, struct pl_anew *a, bool is_fresh, struct pl_diag *d) {
    if (is_fresh && same_job_arenas(s->rungs[0].planned.plan, a->planned.plan))
        pl_session_release_batch(s);
    else
        pl_session_release_arenas(s);
    close_ladder(s);
    PL_TRY(pl_anew_take(s->pf, a, d));
    s->device->graphs.limit_bytes = s->pf->graph_bytes;
    return build_ladder(s, d);
}

pl_err pl_session_begin_anew(struct pl_session *s, const struct pl_beginning *b, bool *taken,
                             struct pl_text *notes, struct pl_diag *d) {
    struct pl_anew a;
    const struct pl_planned *known = NULL; /* the plan that the ladder has of it */
    for (uint32_t i = 0; i < s->n_rungs && !known; i++)
        if (s->rungs[i].batch_size == b->batch_size) known = &s->rungs[i].planned;
    *taken = false;
    s->pf->comm = s->comm;
    pl_err err = pl_anew_decide(s->pf, b->batch_size, b->have_bytes, known, &a, d);
    if (err == PL_ERR_OK && !a.same) {
        err = has_room(s, &a, b->have_bytes, taken, d);
        if (err == PL_ERR_OK) err = has_room_below(s, b, taken, d);
    }
    s->pf->comm = NULL;
    if (err == PL_ERR_OK && *taken) err = take_anew(s, &a, b->is_fresh, d);
    if (err == PL_ERR_OK && *taken) err = pl_session_cut(s, d);
    if (*taken) pl_text_add(notes, pl_text_str(&a.notes));
    pl_anew_finish(&a);
    return err;
}

void pl_session_close(struct pl_session *s) {
    if (s->device) pl_session_release_arenas(s);
    close_ladder(s);
    pl_comm_close(&s->comm);
    pl_device_close(&s->host_device);
    pl_device_close(&s->device);
    pl_micro_batch_finish(&s->micro);
    *s = (struct pl_session){0};
}
