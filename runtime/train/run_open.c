#include "runtime/train/run_open.h"
#include "runtime/train/score.h"

#include "estimator/base/checked.h"
#include "estimator/config/debug_fault.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/data/chat/chat.h"
#include "runtime/session/arenas.h"
#include "runtime/session/measure.h"
#include "runtime/session/session_open.h"
#include "runtime/train/best.h"
#include "runtime/train/samples.h"

#include <stdlib.h>
#include <string.h>

/* Faults of the device are armed when it is opened. */
static void arm_fault(struct pl_run *r, const char *text) {
    struct pl_fault f;
    if (!pl_fault_parse(text, &f)) return;
    if (f.kind == PL_FAULT_DEVICE_OOM_STEP)
        r->step_fault = (struct pl_debug_fault){.at = f.at, .count = f.count};
    if (f.kind == PL_FAULT_OVERFLOW_STEP)
        r->overflow = (struct pl_debug_fault){.at = f.at, .count = f.count};
    if (f.kind == PL_FAULT_DEVICE_OOM_OP)
        r->op_fault = (struct pl_debug_fault){.at = f.at, .count = f.count};
    if (f.kind == PL_FAULT_DISK_FULL_WRITE)
        r->io_fault = (struct pl_io_fault){.at = f.at, .count = f.count};
}

/* Returns the day in the form of pl_run_state. */
static uint32_t chat_day(const struct pl_job *job) {
    struct pl_chat_date date;
    if (!job->chat_date || !pl_chat_date_parse(job->chat_date, &date)) return 0;
    return (uint32_t)((date.year * 100 + date.month) * 100 + date.day);
}

/* Recovery halves the micro-batch and not what the losses have means of: a job says it, or the
 * checkpoint that is resumed. */
static uint32_t unit_of(const struct pl_preflight *pf) {
    const uint32_t asked = pf->spec.asked->batch_size, then = pf->files.resume_state.unit;
    if (asked != PL_AUTO) return asked;
    return then ? then : pf->job->batch_size;
}

static void init_counters(struct pl_run *r, const struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    r->schedule = (struct pl_schedule){.kind = job->lr_scheduler,
                                       .peak = job->learning_rate,
                                       .min_ratio = job->min_lr_ratio,
                                       .warmup = pf->warmup_steps,
                                       .total = pf->total_steps};
    r->state = (struct pl_run_state){.batch_size = job->batch_size,
                                     .unit = r->unit,
                                     .global_batch = pf->global_batch,
                                     .seed = job->seed,
                                     .loss_chunk_tokens = job->loss_chunk_tokens,
                                     .epoch_rows = pf->data.walk.epoch_rows,
                                     .chat_day = chat_day(job),
                                     .data_tokens =
                                         pf->data.rows ? pl_data_stats(pf->data.rows)->tokens : 0,
                                     .run_number = pf->files.run.run_number};
    if (pf->estimate.planned.program->shape.dtype == PL_DTYPE_F16)
        r->state.loss_scale = job->loss_scale == PL_AUTO ? PL_LOSS_SCALE : job->loss_scale;
    memcpy(r->state.run_id, pf->files.run.run_id, sizeof r->state.run_id);
    pl_oom_init(&r->oom, job->oom_recovery, job->oom_max_retries, job->batch_size,
                pf->global_batch);
}

pl_err pl_run_init_profile(struct pl_run *r, struct pl_diag *d) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < r->s.n_rungs; i++)
        most = (uint32_t)pl_u64_max(most, r->s.rungs[i].planned.program->n_ops);
    return pl_profile_init(&r->profile, most, r->opt->profile, d);
}

pl_err pl_run_open(struct pl_run *r, struct pl_preflight *pf, const struct pl_train_options *opt,
                   struct pl_diag *d) {
    uint64_t config_bytes;
    *r = (struct pl_run){.opt = opt, .unit = unit_of(pf), .started = pl_session_clock()};
    init_counters(r, pf);
    /* The estimate of KTO is that of a micro-batch, whose size is decided by now. */
    pf->data.source.grouping.exchange = pf->data.eval_source.grouping.exchange =
        pf->job->stage == PL_STAGE_KTO ? r->unit : 0;
    PL_TRY(pl_model_read_text(pf->files.config_path, &r->config_json, &config_bytes, d));
    PL_TRY(pl_session_open(&r->s, pf, opt->messages, opt->colour, d));
    PL_TRY(pl_run_init_best(r, &(struct pl_run_state){0}, d));
    r->saved = r->state;
    for (uint32_t i = 0; i < r->s.job->debug_inject.n; i++)
        arm_fault(r, r->s.job->debug_inject.items[i]);
    if (r->io_fault.at) pl_checkpoint_set_fault(&r->io_fault);
    PL_TRY(pl_run_init_profile(r, d));
    PL_TRY(pl_run_init_samples(r, d));
    return pl_session_reserve_job(&r->s, d);
}

void pl_run_close(struct pl_run *r) {
    pl_checkpoint_set_fault(NULL);
    pl_run_finish_samples(r);
    pl_session_close(&r->s);
    pl_worker_stop(&r->worker);
    pl_step_batch_finish(&r->batch);
    pl_scores_finish(&r->scores);
    pl_reference_finish(&r->reference);
    pl_profile_finish(&r->profile);
    pl_tensorboard_close(&r->board);
    pl_log_close(&r->log);
    free(r->config_json);
    *r = (struct pl_run){0};
}
