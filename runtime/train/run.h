/* run.h - the state of one training run; private to runtime/train.
 *
 * The ladder holds a plan and an executor for the starting micro-batch and for every halving
 * recovery may need, made before the first step, so that recovery allocates nothing on the host. */
#ifndef PL_RUNTIME_TRAIN_RUN_H
#define PL_RUNTIME_TRAIN_RUN_H

#include "oom_recovery/checklist.h"
#include "oom_recovery/recovery.h"
#include "runtime/admit/admission.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/worker.h"
#include "runtime/exec/exec.h"
#include "runtime/report/report.h"
#include "runtime/train/options.h"
#include "runtime/train/profile.h"
#include "runtime/train/result.h"
#include "runtime/train/schedule.h"

#define PL_MAX_RUNGS 18 /* halvings from 65536 to 1, and the start */

struct pl_rung {
    uint32_t batch_size;
    struct pl_planned planned; /* of rung 0 that of the pre-flight, borrowed */
    struct pl_exec exec;
    uint32_t inputs[2][PL_ROLE_TARGETS - PL_ROLE_IDS + 1]; /* ids of batch inputs: step, eval */
    uint32_t norm_ops; /* of the optimizer phase, before the first weight changes */
};

struct pl_debug_fault { /* debug_inject: device_oom@step=N */
    uint64_t step, count;
};

/* What a step computed, and, where it was timed, how long its ops took by class. */
struct pl_step_cost {
    struct pl_load load;
    bool timed;
    double seconds[PL_COST_COUNT];
};

/* A step that is queued and whose loss and norm were not looked at yet. */
struct pl_pending {
    uint64_t step, position, targets, tokens, samples;
    uint32_t batch_size;
    double learning_rate;
    struct pl_step_cost cost;
    bool posted;         /* values come with pl_device_ops.collect; false: they are here */
    double values[2][2]; /* loss and clip */
};
#define PL_MAX_PENDING PL_MAIL_PLACES

struct pl_run {
    struct pl_preflight *pf;
    const struct pl_job *job;
    const struct pl_train_options *opt;
    struct pl_device *device;
    struct pl_device *host_device; /* runs the host's ops of a GPU's plan; NULL = none, or device */
    struct pl_arena job_arena, batch_arena;
    struct pl_host_arenas host_arenas;
    struct pl_rung rungs[PL_MAX_RUNGS];
    uint32_t n_rungs, rung; /* in use */
    struct pl_oom oom;
    struct pl_run_state state;
    uint64_t saved_step; /* of the newest checkpoint that holds what `state` came from */
    bool committing;     /* an update is being queued: the weights are those of no step */
    struct pl_schedule schedule;
    struct pl_step_batch batch;
    struct pl_pending pending[PL_MAX_PENDING]; /* a ring */
    uint32_t oldest_pending, n_pending;
    struct pl_worker *worker; /* NULL = not started, or prefetch is off */
    struct pl_pace pace;
    struct pl_profile profile;
    double data_wait_seconds; /* of all steps, until their samples were there */
    struct pl_micro_batch micro;
    uint64_t rope_length; /* whose frequencies the table of long sequences has; 0 = none */
    struct pl_log *log;
    struct pl_tensorboard *board; /* NULL = not asked for */
    struct pl_progress progress;
    struct pl_debug_fault step_fault;
    struct pl_io_fault io_fault;
    struct pl_oom_facts facts; /* of the last device failure */
    uint64_t tokens_computed;
    bool graphs_off_told;        /* why there are none */
    uint64_t opened_bytes;       /* of a GPU's context, as measured after the opening */
    uint64_t steady_allocations; /* device counter when it must stand still */
    char *config_json;           /* of the model, as read */
    double started;              /* monotonic seconds */
};

static inline struct pl_rung *pl_run_rung(struct pl_run *r) {
    return &r->rungs[r->rung];
}

/* --- session.c: device, ladder, arenas --- */
pl_err pl_run_open(struct pl_run *r, struct pl_preflight *pf, const struct pl_train_options *opt,
                   struct pl_diag *d);
void pl_run_close(struct pl_run *r);
struct pl_tensor_io pl_run_io(struct pl_run *r, enum pl_phase phase);
double pl_run_clock(void);
/* What the budget leaves; every run has one, if only the machine's available memory. On a GPU that
 * neighbours share, no more than it has. */
uint64_t pl_run_free_bytes(const struct pl_run *r);

/* --- measure.c: what a GPU's driver took, against what was predicted --- */
/* T4. Nothing on the CPU. */
pl_err pl_run_check_context(struct pl_run *r, struct pl_diag *d);
/* Bytes of the whole process: resident on the CPU; on a GPU, of its memory. Remembers the context
 * for the next prediction. */
void pl_run_measure(struct pl_run *r, struct pl_train_result *out);

/* --- step.c --- */
struct pl_step_result {
    uint64_t step, position; /* after the step */
    double loss, grad_norm, learning_rate;
    uint64_t targets, tokens; /* supervised, computed */
    uint64_t samples;
    uint32_t batch_size; /* micro-batch in use */
    struct pl_step_cost cost;
};
/* The host image of the micro-batch to the inputs of its phase. */
pl_err pl_run_upload_inputs(struct pl_run *r, bool eval);
/* Reserves the job arenas. RUNTIME_DEVICE_OOM, explained on opt->messages, when the device's cannot
 * be had, RUNTIME_HOST_OOM when the host's cannot. */
pl_err pl_run_reserve_job(struct pl_run *r, struct pl_diag *d);
/* Gives every arena back. */
void pl_run_release_arenas(struct pl_run *r);
void pl_run_release_batch(struct pl_run *r);
/* Reserves the batch arena, halving as recovery allows. */
pl_err pl_run_reserve(struct pl_run *r, struct pl_diag *d);
/* One transaction: the next samples, forward and backward, then the commit. On a device that works
 * on its own it is only queued; at most PL_MAX_PENDING steps may wait to be collected. */
pl_err pl_run_step(struct pl_run *r, struct pl_diag *d);
/* The outcome of the oldest step that was not collected; waits for it. PL_ERR_NOT_FINITE: its loss
 * or norm; neither it nor a later step has changed a weight, and it stays pending. */
pl_err pl_run_collect(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d);
/* Collects what ended well and counts the other steps as if they had not been queued. */
void pl_run_undo_pending(struct pl_run *r);
/* Steps that may stay uncollected while the next one is queued. */
static inline uint32_t pl_run_lag(const struct pl_run *r) {
    return r->device->ops->post ? PL_MAX_PENDING - 1 : 0;
}
/* The step on the longest samples of the data, without counting it: the weights change, the run's
 * state does not. */
pl_err pl_run_longest_step(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d);
/* Mean loss over the evaluation rows. */
pl_err pl_run_eval(struct pl_run *r, double *loss, struct pl_diag *d);

/* --- weights_io.c: load, initialise, resume, save --- */
/* The table of long sequences to the frequencies of the micro-batch's longest (dynamic). */
pl_err pl_run_follow_length(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_load(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_checkpoint(struct pl_run *r, struct pl_diag *d);
/* What a failure between two steps leaves in memory, as a checkpoint of the last whole step beside
 * those that are there; the hint of d then says so. */
void pl_run_rescue(struct pl_run *r, pl_err cause, struct pl_diag *d);
/* The weights, then the record of the run that made them. */
pl_err pl_run_save_final(struct pl_run *r, struct pl_diag *d);

/* --- train.c --- */
/* T3; fills the byte counts of *out. */
pl_err pl_run_check_books(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);

/* --- probe.c --- */
/* Real steps on the longest samples, then arenas as they were before: zero. Loading follows. */
pl_err pl_run_probe(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);

/* --- outcome.c: files a run leaves besides weights --- */
pl_err pl_run_write_preflight(struct pl_run *r, struct pl_diag *d);
pl_err pl_run_write_pictures(struct pl_run *r, uint64_t measured_bytes, struct pl_diag *d);
/* Completes a RUNTIME_GPU_OOM, and a RUNTIME_DEVICE_OOM of the job arena: ledger, checklist,
 * remedies as notes on opt->messages. */
void pl_run_explain_oom(struct pl_run *r);

#endif
