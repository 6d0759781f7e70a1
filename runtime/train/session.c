/* session.c - opening and closing a run: device, ladder of plans, the job arena. */
#include "runtime/train/run.h"

#include "estimator/base/checked.h"
#include "runtime/data/chat/chat.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t pl_run_free_bytes(const struct pl_run *r) {
    uint64_t limit = r->device->budget_bytes, used = r->device->used_bytes;
    uint64_t left = limit > used ? limit - used : 0, there = left;
    if (pl_device_is_cuda(r->job->device) &&
        r->device->ops->free_bytes(r->device, &there, NULL) != PL_ERR_OK)
        return left;
    return pl_u64_min(left, there);
}

double pl_run_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* pl_job_validate has checked the entries. */
static void arm_fault(struct pl_run *r, const char *text) {
    struct pl_fault f;
    if (!pl_fault_parse(text, &f)) return;
    switch (f.kind) {
    case PL_FAULT_DEVICE_OOM_ALLOC:
        r->device->inject = (struct pl_inject){.at = f.at, .count = f.count};
        break;
    case PL_FAULT_DEVICE_OOM_STEP:
        r->step_fault = (struct pl_debug_fault){.step = f.at, .count = f.count};
        break;
    case PL_FAULT_PINNED_OOM_ALLOC:
        r->device->inject_pinned = (struct pl_inject){.at = f.at, .count = f.count};
        break;
    case PL_FAULT_DISK_FULL_WRITE:
        r->io_fault = (struct pl_io_fault){.at = f.at, .count = f.count};
        break;
    case PL_FAULT_HOST_OOM_ALLOC:
        break; /* the pre-flight has armed it */
    }
}

static const struct pl_device_ops *back_end(const struct pl_job *job) {
    if (pl_device_is_cuda(job->device)) return &pl_device_cuda;
    return job->device == PL_DEVICE_NULL ? &pl_device_null : &pl_device_cpu;
}

static pl_err open_device(struct pl_run *r, struct pl_diag *d) {
    uint64_t budget = r->pf->q.budget.total_bytes;
    PL_TRY(pl_device_open_at(back_end(r->job), pl_device_ordinal(r->job->device), r->job->threads,
                             budget, &r->device, d));
    for (uint32_t i = 0; i < r->job->debug_inject.n; i++)
        arm_fault(r, r->job->debug_inject.items[i]);
    if (r->io_fault.at) pl_checkpoint_set_fault(&r->io_fault);
    return PL_ERR_OK;
}

static bool has_host_ops(const struct pl_program *p) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].host) return true;
    return false;
}

/* A GPU's kernels cannot run the ops of the host; those of the CPU and the null device can. */
static pl_err open_host_device(struct pl_run *r, struct pl_diag *d) {
    if (!pl_device_is_cuda(r->job->device) || !has_host_ops(r->pf->estimate.planned.program))
        return PL_ERR_OK;
    return pl_device_open(&pl_device_cpu, r->job->threads, 0, &r->host_device, d);
}

static void find_inputs(struct pl_rung *rung) {
    const struct pl_program *p = rung->planned.program;
    memset(rung->inputs, 0xff, sizeof rung->inputs);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role < PL_ROLE_IDS || t->role > PL_ROLE_TARGETS) continue;
        rung->inputs[t->phase == PL_PHASE_EVAL][t->role - PL_ROLE_IDS] = i;
    }
    const struct pl_phase_range *o = &p->phases[PL_PHASE_OPTIMIZER];
    for (uint32_t i = 0; i < o->n_ops && !rung->norm_ops; i++)
        if (p->ops[o->first_op + i].kind == PL_OP_CLIP_SCALE) rung->norm_ops = i + 1;
}

static bool same_job_arenas(const struct pl_plan *a, const struct pl_plan *b) {
    bool same = a->job_bytes == b->job_bytes;
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        same = same && a->host[place].job_bytes == b->host[place].job_bytes;
    return same;
}

/* P4 in use: every rung must leave the job arena as it is. */
static pl_err plan_smaller(struct pl_run *r, struct pl_rung *rung, struct pl_diag *d) {
    struct pl_job_shape shape = r->pf->estimate.planned.program->shape;
    shape.batch_size = rung->batch_size;
    PL_TRY(pl_planned_init_shape(&rung->planned, &shape, &r->pf->model, &r->pf->q.traits, d));
    if (!same_job_arenas(rung->planned.plan, r->pf->estimate.planned.plan))
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "the job arena changed with the micro-batch");
    return PL_ERR_OK;
}

/* The first rung is the plan that was judged (T5). */
static pl_err add_rung(struct pl_run *r, uint32_t batch_size, struct pl_diag *d) {
    const bool first = r->n_rungs == 0;
    struct pl_rung *rung = &r->rungs[r->n_rungs++];
    rung->batch_size = batch_size;
    if (first)
        rung->planned = r->pf->estimate.planned;
    else
        PL_TRY(plan_smaller(r, rung, d));
    PL_TRY(pl_plan_check(rung->planned.plan, d));
    find_inputs(rung);
    PL_TRY(pl_exec_init(&rung->exec, rung->planned.plan, r->device, d));
    if (r->host_device) rung->exec.host = r->host_device;
    return PL_ERR_OK;
}

static pl_err build_ladder(struct pl_run *r, struct pl_diag *d) {
    uint32_t batch = r->job->batch_size;
    PL_TRY(add_rung(r, batch, d));
    for (uint32_t i = 0; r->job->oom_recovery && i < r->job->oom_max_retries && batch > 1; i++) {
        batch = pl_oom_halve(batch);
        PL_TRY(add_rung(r, batch, d));
    }
    return PL_ERR_OK;
}

static uint32_t most_ops(const struct pl_run *r) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < r->n_rungs; i++)
        if (r->rungs[i].planned.program->n_ops > most) most = r->rungs[i].planned.program->n_ops;
    return most;
}

/* As pl_run_state has it. */
static uint32_t chat_day(const struct pl_job *job) {
    struct pl_chat_date date;
    if (!job->chat_date || !pl_chat_date_parse(job->chat_date, &date)) return 0;
    return (uint32_t)((date.year * 100 + date.month) * 100 + date.day);
}

static void init_counters(struct pl_run *r) {
    const struct pl_preflight *pf = r->pf;
    r->schedule = (struct pl_schedule){.kind = r->job->lr_scheduler,
                                       .peak = r->job->learning_rate,
                                       .min_ratio = r->job->min_lr_ratio,
                                       .warmup = pf->warmup_steps,
                                       .total = pf->total_steps};
    r->state = (struct pl_run_state){.batch_size = r->job->batch_size,
                                     .global_batch = pf->global_batch,
                                     .seed = r->job->seed,
                                     .loss_chunk_tokens = r->job->loss_chunk_tokens,
                                     .epoch_rows = pf->walk.epoch_rows,
                                     .chat_day = chat_day(r->job),
                                     .data_tokens = pf->data ? pl_data_stats(pf->data)->tokens : 0,
                                     .run_number = pf->run.run_number};
    memcpy(r->state.run_id, pf->run.run_id, sizeof r->state.run_id);
    pl_oom_init(&r->oom, r->job->oom_recovery, r->job->oom_max_retries, r->job->batch_size,
                pf->global_batch);
}

static pl_err reserve_host_job(struct pl_run *r, struct pl_diag *d) {
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        PL_TRY(pl_host_reserve(r->device, place, r->rungs[0].planned.plan->host[place].job_bytes,
                               "job arena of the host", &r->host_arenas.job[place], d));
    return pl_staging_reserve(r->device, d);
}

/* Graphs know the addresses of what they work on. */
void pl_run_release_batch(struct pl_run *r) {
    for (uint32_t i = 0; i < r->n_rungs; i++)
        pl_exec_forget(&r->rungs[i].exec);
    pl_arena_release(r->device, &r->batch_arena);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        pl_host_release(r->device, place, &r->host_arenas.batch[place]);
}

void pl_run_release_arenas(struct pl_run *r) {
    pl_run_release_batch(r);
    pl_arena_release(r->device, &r->job_arena);
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        pl_host_release(r->device, place, &r->host_arenas.job[place]);
}

/* No halving makes weights smaller: out of memory here is final. */
pl_err pl_run_reserve_job(struct pl_run *r, struct pl_diag *d) {
    uint64_t bytes = r->rungs[0].planned.plan->job_bytes;
    struct pl_diag failure = {0};
    pl_err err = pl_arena_reserve(r->device, bytes, "job arena", &r->job_arena, &failure);
    if (err == PL_ERR_OK) return reserve_host_job(r, d);
    r->facts = (struct pl_oom_facts){.what = "job arena",
                                     .requested_bytes = bytes,
                                     .free_bytes = pl_run_free_bytes(r),
                                     .injected = r->device->inject.at != 0};
    pl_diag_set(d, err, "%s", failure.message);
    if (err == PL_ERR_DEVICE_OOM) {
        pl_run_explain_oom(r);
        pl_diag_hint(d, "no batch size makes the job arena smaller: %s",
                     r->job->inference ? "a smaller context or a 4-bit base does"
                                       : "`offload`, `mode: lora` or `mode: qlora` does");
    }
    return err;
}

pl_err pl_run_open(struct pl_run *r, struct pl_preflight *pf, const struct pl_train_options *opt,
                   struct pl_diag *d) {
    *r = (struct pl_run){.pf = pf, .job = pf->job, .opt = opt, .started = pl_run_clock()};
    init_counters(r);
    uint64_t config_bytes;
    PL_TRY(pl_model_read_text(pf->config_path, &r->config_json, &config_bytes, d));
    PL_TRY(open_device(r, d));
    PL_TRY(open_host_device(r, d));
    PL_TRY(pl_run_check_context(r, d));
    PL_TRY(build_ladder(r, d));
    const struct pl_program *p = r->rungs[0].planned.program;
    PL_TRY(pl_profile_init(&r->profile, most_ops(r), opt->profile, d));
    PL_TRY(pl_micro_batch_init(&r->micro, p->tokens, p->seqs, d));
    if (p->shape.long_by_sample) {
        r->micro.long_from = pf->model.rope[0].original_max_positions;
        r->micro.long_base = p->shape.max_seq_length;
    }
    return pl_run_reserve_job(r, d);
}

void pl_run_close(struct pl_run *r) {
    pl_checkpoint_set_fault(NULL);
    for (uint32_t i = 0; i < r->n_rungs; i++) {
        pl_exec_finish(&r->rungs[i].exec);
        if (i > 0) pl_planned_finish(&r->rungs[i].planned);
    }
    if (r->device) pl_run_release_arenas(r);
    pl_device_close(&r->host_device);
    pl_device_close(&r->device);
    pl_worker_stop(&r->worker);
    pl_step_batch_finish(&r->batch);
    pl_micro_batch_finish(&r->micro);
    pl_profile_finish(&r->profile);
    pl_tensorboard_close(&r->board);
    pl_log_close(&r->log);
    free(r->config_json);
    *r = (struct pl_run){0};
}

static void *address(void *ctx, uint32_t tensor) {
    return pl_exec_address(&pl_run_rung(ctx)->exec, tensor);
}

struct pl_tensor_io pl_run_io(struct pl_run *r, enum pl_phase phase) {
    const struct pl_program *p = pl_run_rung(r)->planned.program;
    bool reaches_host = !pl_device_is_cuda(r->job->device);
    struct pl_tensor_io io = {.program = p,
                              .device = r->device,
                              .host = reaches_host ? r->device : r->host_device,
                              .address = address,
                              .ctx = r,
                              .staging = r->device->staging,
                              .staging_bytes = r->device->staging_bytes};
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        if (p->tensors[i].role != PL_ROLE_STAGING || p->tensors[i].phase != phase) continue;
        io.staging = pl_exec_lend(&pl_run_rung(r)->exec, i);
        io.staging_bytes = p->tensors[i].bytes;
    }
    return io;
}
