/* train.h - the trainer: configuration -> estimate -> gate -> reserve -> load -> steps -> save.
 *
 * Everything that can refuse a job runs in pl_preflight_init, from cheap to dear: keys, model
 * facts, size gate and plan, lock of output_dir, files (weights, adapter, checkpoint, tokenizer),
 * data. It opens no device, allocates no device memory, and reads of weights the headers and what
 * identifies them (record.h, F2). Needs: every room of runtime, oom_recovery, estimator.
 *   T1  a step is a transaction: gradients and loss are void until the optimizer has run
 *   T2  after the first step the device's allocation counter stands still, except in recovery
 *   T3  planned == bound == allocated, byte for byte, asserted in every run
 *   T4  on a GPU the context is measured before the arenas are taken; a verdict that it turns ends
 *       the run there, with the exit status a refusal has
 *   T5  the plan that the pre-flight judged is the one that runs; recovery adds plans of smaller
 *       micro-batches
 * Use: struct pl_preflight pf; pl_preflight_init(&pf, &job, &how, &d);
 *      pl_train(&pf, &opt, &result, &d); pl_preflight_finish(&pf); */
#ifndef PL_RUNTIME_TRAIN_TRAIN_H
#define PL_RUNTIME_TRAIN_TRAIN_H

#include "estimator/autobatch/decide.h"
#include "estimator/gate/estimate.h"
#include "estimator/gate/gate.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/batch.h"
#include "runtime/report/report.h"
#include "runtime/train/context.h"
#include "runtime/train/speed.h"

#include <signal.h>
#include <stdio.h>

struct pl_train_options {
    FILE *messages;  /* ledger, notes, progress; never NULL */
    FILE *json;      /* one event a line; NULL = off */
    bool quiet;      /* errors only */
    bool no_progress; /* notes, but no steps */
    bool colour;      /* of messages */
    bool probe_only; /* the probe alone: nothing is trained or saved */
    bool profile;    /* time every op of every step; a table on messages, an event in the log */
    volatile sig_atomic_t *stop; /* nullable; non-zero signal number: finish the step, save, stop */
};

/* What a job is admitted to. {0}: its data are read and its plan is made, nothing more. */
struct pl_admission {
    bool makes_output;  /* output_dir is made, and locked until pl_preflight_finish; else it is
                          * looked at */
    bool judges_output; /* what is in output_dir may refuse the job */
    bool needs_weights; /* false: that they are not on this machine is a warning */
    struct pl_progress *progress; /* nullable: shows how far the data are read */
};

struct pl_preflight {
    bool host_fault;      /* debug_inject: host_oom@alloc, armed until pl_preflight_finish */
    struct pl_job *job;   /* borrowed; autos are decided in place */
    struct pl_model model;
    char *model_dir;      /* directory of the weights; NULL: init: random, or none is here */
    bool in_hub_cache;    /* model_dir is a snapshot of the hub cache */
    char *config_path;    /* the config.json that was read, for pl_model_read_text */
    struct pl_data *data, *eval_data; /* eval_data may equal data (held-out rows) */
    struct pl_holdout held; /* rows of data that are evaluated */
    uint64_t eval_rows;
    struct pl_walk walk, eval_walk; /* over the rows of each */
    struct pl_batch_source source, eval_source;
    struct pl_question q;      /* about job and model; all of it decided */
    struct pl_gpu gpu;         /* as NVML described it; {0} on the CPU */
    struct pl_context context; /* as predicted; 0 bytes on the CPU */
    uint64_t graph_bytes;      /* of budget.context_bytes: granted to graphs of a step */
    struct pl_planned first; /* under `batch_size: auto`, until the data are read: of one sample */
    struct pl_estimate estimate; /* the plan at the chosen batch, verdict, remedies, notes */
    bool too_large;              /* the refusal is that of the size: the estimate says more */
    bool settled;                /* nothing is left to decide */
    struct pl_text notes;
    bool batch_was_auto, base_was_auto;
    struct pl_autobatch search;
    uint64_t global_batch, total_steps, warmup_steps;
    double warmup_ratio; /* that warmup_steps were made of; NaN: they were given */
    struct pl_forecast forecast; /* of a step; nothing was decided by it */
    char *resume_path;           /* checkpoint to continue from, NULL = from the start */
    struct pl_run_state resume_state;
    struct json_t *resume_job; /* owned; what it recorded of its run; NULL: nothing */
    struct json_t *record;     /* owned; of this run, for its checkpoints (record.h) */
    uint64_t weights_identity; /* where weights_known: of the base, for the record */
    bool weights_known;
    bool locks;
    int lock;    /* on output_dir, where it `locks` */
    size_t made; /* length of the shortest part of output_dir that was made; 0: none */
    struct pl_run_state finished; /* the run that output_dir holds; {0}: none */
    struct pl_run_state run;      /* run_number and run_id of this one */
};

/* Decides every auto, plans, judges, reads the data. A refusal is the returned error
 * (RUNTIME_DOES_NOT_FIT, RUNTIME_FULL_FT_MODEL_TOO_LARGE, ...) with *pf still valid for printing;
 * finish it in every case. */
pl_err pl_preflight_init(struct pl_preflight *pf, struct pl_job *job,
                         const struct pl_admission *how, struct pl_diag *d);
/* Model facts, data and the walk over it alone, for looking at the samples; no device is asked.
 * progress is nullable. */
pl_err pl_preflight_read_data(struct pl_preflight *pf, struct pl_job *job,
                              struct pl_progress *progress, struct pl_diag *d);
void pl_preflight_finish(struct pl_preflight *pf);

struct pl_probe { /* what the steps on the longest samples showed */
    uint32_t steps, batch_size;
    uint64_t tokens, longest; /* of a step; tokens of the longest sample */
    double seconds;           /* a step, the fastest */
    double first_loss, last_loss, grad_norm; /* of the first and the last step; of the last */
    double run_seconds;       /* of the whole run at that rate, as if every step were this long */
};

struct pl_train_result {
    struct pl_probe probe; /* steps 0 = there was none */
    uint64_t steps;     /* done since the job began, earlier runs included */
    uint64_t steps_run; /* by this run */
    uint64_t planned_bytes, allocated_bytes, measured_bytes;
    uint64_t planned_host_bytes, allocated_host_bytes; /* of the plan; what copies use is not in */
    uint64_t predicted_bytes; /* arenas and context, before anything of the device was touched */
    uint64_t context_bytes;   /* measured, at the end; 0 on the CPU */
    double last_loss, eval_loss, tokens_per_second, wall_seconds;
    double data_wait_seconds; /* of wall_seconds, in which steps waited for their samples */
    struct pl_pace_medians pace; /* of the steps of this run; NaN: too few */
    uint32_t oom_recoveries;
    int stopped_by; /* signal number, 0 = ran to its end */
};

/* Trains. PL_ERR_INTERRUPTED after a signal, with everything saved. */
pl_err pl_train(struct pl_preflight *pf, const struct pl_train_options *opt,
                struct pl_train_result *out, struct pl_diag *d);

#endif
