/* step.c - the step as a transaction, and the hooks recovery acts through. */
#include "runtime/train/step.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "runtime/session/arenas.h"
#include "runtime/session/inputs.h"
#include "runtime/session/measure.h"
#include "runtime/session/agree.h"
#include "runtime/train/begin_anew.h"
#include "runtime/train/micro_batch.h"
#include "runtime/train/not_finite.h"
#include "runtime/train/run_ops.h"
#include "runtime/train/score.h"

#include <math.h>

/* device_oom@step=N strikes after the first micro-batch, when gradients are half made. */
static bool fault_due(struct pl_run *r) {
    struct pl_debug_fault *f = &r->step_fault;
    if (f->at != r->state.step + 1 || f->count == 0) return false;
    if (f->count != UINT64_MAX) f->count--;
    return true;
}

/* The values of a queued step; waits for it. */
static pl_err take_values(struct pl_run *r, uint32_t at) {
    const struct pl_device_ops *ops = r->s.device->ops;
    struct pl_pending *p = &r->pending[at];
    if (p->posted) PL_TRY(ops->collect(r->s.device, at, p->values, sizeof p->values));
    p->posted = false;
    return PL_ERR_OK;
}

/* clip[1] is NaN where the weights were left alone (CLIP_SCALE). */
static bool is_finite(const struct pl_pending *p) {
    return isfinite(p->values[0][0]) && isfinite(p->values[1][0]) && isfinite(p->values[1][1]);
}

/* Ranks that did not fail have made a norm of what the others sent, which may be no number, and so
 * have switched off all updates. They are on again, unless a queued step has switched them off. */
static pl_err restore_clip(struct pl_run *r) {
    static const double clip[2] = {0, 1};
    r->clip_is_void = false;
    for (uint32_t i = 0; i < r->n_pending; i++) {
        const uint32_t at = (r->oldest_pending + i) % PL_MAX_PENDING;
        PL_TRY(take_values(r, at));
        if (!is_finite(&r->pending[at])) return PL_ERR_OK;
    }
    return pl_session_upload(&r->s, pl_run_rung(r)->planned.program->clip, clip, sizeof clip);
}

/* Agrees with the other ranks on the outcome. */
static pl_err agree(struct pl_run *r, pl_err err, struct pl_diag *d) {
    const struct pl_outcome mine = {err, r->opt->stop ? (int)*r->opt->stop : 0};
    const struct pl_outcome all = pl_session_agree(&r->s, mine, d);
    r->stop = all.stop;
    return all.err;
}

/* Runs the micro-batch at hand; `before` is the outcome of what came before it, as in
 * pl_run_ops(). */
static pl_err run_micro(struct pl_run *r, pl_err before, struct pl_diag *d) {
    const struct pl_step_ops *ops = &pl_run_rung(r)->ops;
    pl_err err = before == PL_ERR_OK ? pl_run_prepare(r, PL_PHASE_MICRO, d) : before;
    if (!pl_run_keeps_first_pass(r)) return pl_run_ops(r, err, &ops->micro, d);
    err = pl_run_ops(r, err, &ops->score, d);
    if (err == PL_ERR_OK) err = pl_run_weigh_targets(r, d);
    return pl_run_ops(r, err, &ops->learn, d);
}

/* Forward and backward over the held samples, norm and clip: up to before the commit. Micro-batches
 * go to the ranks in turn. */
static pl_err attempt(void *ctx, struct pl_diag *d) {
    struct pl_run *r = ctx;
    pl_err err = PL_ERR_OK;
    if (r->batch.n == 0) return PL_ERR_OK; /* only the reservation was asked for */
    PL_TRY(pl_run_load_anew(r, d));
    pl_run_rung(r)->exec.muted = false;
    const uint64_t slots = r->batch.targets ? r->batch.slots : 0;
    if (slots && pl_job_prefers(r->s.job)) {
        PL_TRY(pl_run_refer(r, d)); /* ranks agree on the outcome of both */
        PL_TRY(pl_run_score(r, d));
    }
    for (r->round = 0; r->round < slots; r->round += pl_run_round_slots(r)) {
        if (err == PL_ERR_OK && r->clip_is_void) err = restore_clip(r);
        err = run_micro(r, err, d);
        if (err == PL_ERR_OK && r->round == 0 && fault_due(r)) err = pl_run_inject(r, d);
        if (err != PL_ERR_OK && !r->s.comm) break;
    }
    if (slots) err = pl_run_ops(r, err, &pl_run_rung(r)->ops.norm, d);
    if (slots && pl_run_keeps_first_pass(r)) err = pl_run_end_scores(r, err, d);
    err = agree(r, err, d);
    r->clip_is_void = r->s.comm && err == PL_ERR_DEVICE_OOM;
    return err;
}

static pl_err drain(void *ctx, struct pl_diag *d) {
    return pl_run_drain(ctx, d);
}

/* The next attempt clears the loss, and its first micro-batch overwrites every gradient. */
static void discard(void *ctx) {
    (void)ctx;
}

static pl_err replan(void *ctx, uint32_t batch_size, struct pl_diag *d) {
    struct pl_run *r = ctx;
    bool anew = false;
    if (pl_run_may_begin_anew(r)) {
        pl_run_drop_reference(r);
        PL_TRY(pl_run_begin_anew(r, batch_size, &anew, d));
    }
    if (anew) return PL_ERR_OK;
    for (uint32_t i = r->s.rung; i < r->s.n_rungs; i++) {
        if (r->s.rungs[i].batch_size != batch_size) continue;
        r->s.rung = i;
        return PL_ERR_OK;
    }
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "no plan was made for micro-batch %u", batch_size);
}

static pl_err reserve(void *ctx, struct pl_diag *d) {
    struct pl_run *r = ctx;
    pl_err err = r->s.job_arena.base ? PL_ERR_OK : pl_session_reserve_job(&r->s, d);
    if (err == PL_ERR_OK) err = pl_session_reserve_batch(&r->s, d);
    PL_TRY(agree(r, err, d));
    return pl_session_register_arenas(&r->s, d);
}

static void facts(void *ctx, struct pl_oom_facts *out) {
    const struct pl_run *r = ctx;
    *out = r->s.facts;
}

static void event(void *ctx, const struct pl_oom_event *e) {
    struct pl_run *r = ctx;
    char line[200];
    r->state.batch_size = e->new_batch_size;
    r->resolved_is_stale = true;
    r->state.oom_recoveries++;
    snprintf(line, sizeof line,
             "out of memory (%s) in step %llu: micro-batch %u -> %u, %llu micro-batches a step",
             e->facts.what, (unsigned long long)e->step, e->old_batch_size, e->new_batch_size,
             (unsigned long long)e->gradient_accumulation_steps);
    pl_progress_note(&r->progress, line);
    json_t *o = json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "step", (json_int_t)e->step, "attempt",
        (json_int_t)e->attempt, "cause", e->facts.injected ? "injected" : "out of memory", "what",
        e->facts.what, "requested_bytes", (json_int_t)e->facts.requested_bytes, "free_bytes",
        (json_int_t)e->facts.free_bytes, "old_batch_size", (json_int_t)e->old_batch_size,
        "new_batch_size", (json_int_t)e->new_batch_size, "gradient_accumulation_steps",
        (json_int_t)e->gradient_accumulation_steps);
    if (r->log)
        pl_log_event(r->log, "oom_recovery", o, NULL);
    else
        json_decref(o);
}

static const struct pl_oom_hooks hook_table = {.attempt = attempt,
                                               .drain = drain,
                                               .discard = discard,
                                               .replan = replan,
                                               .reserve = reserve,
                                               .facts = facts,
                                               .event = event};

struct pl_oom_hooks pl_run_oom_hooks(struct pl_run *r) {
    struct pl_oom_hooks hooks = hook_table;
    hooks.ctx = r;
    return hooks;
}

pl_err pl_run_reserve(struct pl_run *r, struct pl_diag *d) {
    const struct pl_oom_hooks hooks = pl_run_oom_hooks(r);
    r->batch.n = 0;
    PL_TRY(pl_oom_run(&r->oom, &hooks, r->state.step + 1, true, d));
    r->anew = false; /* loading follows */
    return PL_ERR_OK;
}

/* The i-th pair of values[] of a pending step. */
static pl_err post_pair(struct pl_run *r, uint32_t pending, uint32_t i, uint32_t tensor) {
    const struct pl_device_ops *ops = r->s.device->ops;
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    double(*values)[2] = r->pending[pending].values;
    if (!r->pending[pending].posted)
        return pl_exec_download(exec, tensor, values[i], sizeof *values);
    return ops->post(r->s.device, pending, i * sizeof *values, pl_exec_address(exec, tensor),
                     sizeof *values);
}

/* Nothing is posted where the host computes the norm: it has waited for the step already. */
static pl_err post_values(struct pl_run *r, uint32_t at) {
    const struct pl_program *p = pl_run_rung(r)->planned.program;
    r->pending[at].posted = r->s.device->ops->post && p->tensors[p->clip].place == PL_PLACE_DEVICE;
    PL_TRY(post_pair(r, at, 0, p->loss));
    return post_pair(r, at, 1, p->clip);
}

/* The update: the device itself leaves the weights alone when loss or norm is not finite, from then
 * on and for good (CLIP_SCALE), so the host need not look before it, nor before the next step. A
 * step without a target has no gradient, and updates nothing: no weight decays by it. */
static pl_err commit(struct pl_run *r, struct pl_diag *d) {
    uint32_t at = (r->oldest_pending + r->n_pending) % PL_MAX_PENDING;
    if (r->batch.targets) PL_TRY(pl_run_ops(r, PL_ERR_OK, &pl_run_rung(r)->ops.commit, d));
    r->pending[at] = (struct pl_pending){.step = r->state.step + 1,
                                         .position = r->state.position + r->batch.rows,
                                         .targets = r->batch.targets,
                                         .tokens = r->batch.tokens,
                                         .samples = r->batch.rows,
                                         .batch_size = r->oom.batch_size,
                                         .loss_scale = r->state.loss_scale,
                                         .measures = r->measures,
                                         .learning_rate = pl_run_learning_rate(r)};
    if (r->batch.targets) PL_TRY(post_values(r, at));
    r->n_pending++;
    return PL_ERR_OK;
}

/* --- the scale of the loss ------------------------------------------------------------------- */

/* The scale is a power of two, so that dividing by it is exact; it is kept where a float has room
 * for it and for the gradients. */
#define LOSS_SCALE_MOST (UINT64_C(1) << 62)

/* The scaled gradients of a step overflowed, so that CLIP_SCALE has switched off its update: the
 * step counts, its samples are used, and the next one has half the scale (Micikevicius et al.,
 * "Mixed Precision Training", 2018, section 3.2; torch.amp.GradScaler). */
static pl_err skip_update(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d) {
    struct pl_run_state *state = &r->state;
    if (state->loss_scale <= 1) {
        pl_err err = pl_diag_set(d, PL_ERR_NOT_FINITE,
                                 "step %llu: the gradients overflow fp16 even with a loss scale "
                                 "of 1; the weights were not touched",
                                 (unsigned long long)p->step);
        pl_run_name_not_finite(r, p, d);
        pl_diag_hint(d, "set `dtype: fp32`, or `dtype: bf16` where the device has it");
        return err;
    }
    state->loss_scale /= 2;
    state->good_updates = 0;
    state->skipped_steps++;
    return restore_clip(r);
}

static void count_update(struct pl_run *r) {
    struct pl_run_state *state = &r->state;
    if (!state->loss_scale || ++state->good_updates < r->s.job->loss_scale_window) return;
    state->good_updates = 0;
    if (state->loss_scale < LOSS_SCALE_MOST) state->loss_scale *= 2;
}

/* The device has summed what targets lost; a loss of preferences is none of targets alone. */
static double mean_loss(const struct pl_run *r, const struct pl_pending *p) {
    if (!p->targets) return NAN;
    return pl_job_prefers(r->s.job) ? p->measures.of[PL_MEASURE_LOSS]
                                    : p->values[0][0] / (double)p->targets;
}

pl_err pl_run_collect(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d) {
    struct pl_pending *p = &r->pending[r->oldest_pending];
    pl_err err = take_values(r, r->oldest_pending);
    if (err != PL_ERR_OK)
        return pl_diag_set(d, err, "step %llu did not end", (unsigned long long)p->step);
    const double norm = p->values[1][0];
    const bool overflowed = isfinite(p->values[0][0]) && !is_finite(p);
    *out = (struct pl_step_result){.step = p->step,
                                   .position = p->position,
                                   .loss = mean_loss(r, p),
                                   .grad_norm = norm,
                                   .learning_rate = p->learning_rate,
                                   .targets = p->targets,
                                   .tokens = p->tokens,
                                   .samples = p->samples,
                                   .batch_size = p->batch_size,
                                   .loss_scale = p->loss_scale,
                                   .skipped = p->loss_scale && p->targets && overflowed,
                                   .measures = p->measures,
                                   .cost = p->cost};
    if (!is_finite(p) && !out->skipped) return pl_run_refuse_not_finite(r, p, d);
    r->oldest_pending = (r->oldest_pending + 1) % PL_MAX_PENDING;
    r->n_pending--;
    if (out->skipped) return skip_update(r, p, d);
    if (p->targets) count_update(r);
    return PL_ERR_OK;
}

void pl_run_undo_pending(struct pl_run *r) {
    struct pl_step_result ignored;
    while (r->n_pending && pl_run_collect(r, &ignored, NULL) == PL_ERR_OK)
        continue;
    for (; r->n_pending; r->n_pending--) {
        const struct pl_pending *p =
            &r->pending[(r->oldest_pending + r->n_pending - 1) % PL_MAX_PENDING];
        r->state.step--;
        r->state.position -= p->samples;
        r->state.tokens -= p->targets;
    }
}

static pl_err held_step(struct pl_run *r, struct pl_diag *d) {
    const struct pl_oom_hooks hooks = pl_run_oom_hooks(r);
    struct pl_diag failure = {0};
    PL_TRY(pl_oom_run(&r->oom, &hooks, r->state.step + 1, false, d));
    r->committing = true;
    pl_err err = commit(r, &failure);
    /* in the backward pass an update runs among ops for which a library may have no memory */
    const enum pl_gradient_life life = pl_run_rung(r)->planned.program->shape.gradients;
    r->lost = err == PL_ERR_DEVICE_OOM && life == PL_GRADIENTS_OF_UPDATE;
    if (r->lost) return PL_ERR_OK;
    if (err != PL_ERR_OK) {
        if (d && d->err == PL_ERR_OK) *d = failure;
        return err;
    }
    /* T2 of train.h */
    if (pl_session_allocations(&r->s) == r->s.steady_allocations) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "step %llu allocated device memory",
                       (unsigned long long)(r->state.step + 1));
}

static pl_err next_samples(struct pl_run *r, struct pl_diag *d) {
    const struct pl_preflight *pf = r->s.pf;
    uint64_t position = r->state.position;
    if (!r->s.job->prefetch)
        return pl_step_batch_load(&r->batch, &pf->data.source, position, pf->global_batch, d);
    if (!r->worker) PL_TRY(pl_worker_start(&pf->data.source, pf->global_batch, &r->worker, d));
    return pl_worker_take(r->worker, position, &r->batch, d);
}

static struct pl_load load_of_step(const struct pl_run *r) {
    double squares = 0, tokens = (double)r->batch.tokens;
    for (uint64_t i = 0; i < r->batch.n; i++)
        squares += (double)r->batch.samples[i].n * (double)r->batch.samples[i].n;
    return (struct pl_load){.micro_batches = (double)pl_u64_div_up(r->batch.slots, pl_run_slots(r)),
                            .tokens = tokens,
                            .targets = (double)r->batch.targets,
                            .length = tokens > 0 ? squares / tokens : 0,
                            .refers_before = pl_job_precomputes(r->s.job)};
}

pl_err pl_run_step(struct pl_run *r, struct pl_diag *d) {
    double before = pl_session_clock();
    PL_TRY(next_samples(r, d));
    r->data_wait_seconds += pl_session_clock() - before;
    pl_profile_begin(&r->profile, &pl_run_rung(r)->exec, r->s.device->ops->sync != NULL);
    PL_TRY(held_step(r, d));
    if (r->lost) return PL_ERR_OK;
    const uint32_t newest = (r->oldest_pending + r->n_pending - 1) % PL_MAX_PENDING;
    struct pl_step_cost *c = &r->pending[newest].cost;
    c->load = load_of_step(r);
    c->timed = pl_profile_end(&r->profile, &pl_run_rung(r)->exec, &c->load, c->seconds);
    r->state.step++;
    r->state.position += r->batch.rows;
    r->state.tokens += r->batch.targets;
    r->committing = false;
    r->tokens_computed += r->batch.tokens;
    return PL_ERR_OK;
}

pl_err pl_run_longest_step(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d) {
    PL_TRY(pl_run_load_longest(r, d));
    PL_TRY(held_step(r, d));
    if (r->lost) return PL_ERR_OK;
    const struct pl_run_state before = r->state;
    pl_err err = pl_run_collect(r, out, d);
    r->state = before; /* the scale, too */
    return err;
}
