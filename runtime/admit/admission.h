/* admission.h - what is decided and read of a job before it may run: the types of the room.
 *
 * Needs: estimator, data, run_state.h, report.h.  Filled and freed by preflight.h. */
#ifndef PL_RUNTIME_ADMIT_ADMISSION_H
#define PL_RUNTIME_ADMIT_ADMISSION_H

#include "estimator/autobatch/decide.h"
#include "estimator/config/spec.h"
#include "estimator/gate/estimate.h"
#include "estimator/gate/gate.h"
#include "runtime/admit/context.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/comm/comm.h"
#include "runtime/data/batch.h"
#include "runtime/data/prompt_text.h"
#include "runtime/report/report.h"

/* The extent to which a job is admitted. {0}: its data are read and its plan is made, nothing more.
 */
struct pl_admission {
    bool makes_output;  /* output_dir is made, and locked until pl_preflight_finish; else it is
                          * looked at */
    bool judges_output; /* what is in output_dir may refuse the job */
    bool needs_weights; /* false: that they are not on this machine is a warning */
    struct pl_progress *progress;   /* nullable: shows how far the data are read */
    const struct pl_teller *teller; /* nullable: hears which ranks are late */
    const struct pl_world *world;   /* nullable: this process is alone */
    uint32_t devices;               /* what `devices: auto` is; 0: not decided */
};

/* How long a step of a job will take, as far as earlier runs tell (speed.h). */
#define PL_FORECASTS_JUDGED 8
struct pl_forecast {
    double nominal_step_seconds; /* of a mean step, on the nominal machine */
    double ratio;                /* step_seconds over nominal; 0: nothing was measured here */
    double step_seconds;         /* NaN without a ratio */
    uint64_t params;             /* of the model that the last run trained */
    uint32_t judged;             /* of the latest forecasts, PL_FORECASTS_JUDGED at most */
    double off, most_off; /* |predicted / measured - 1| of those, median and worst; NaN: none */
};

/* The files that a run reads and writes, as found before any device is opened: those of the model,
 * of a checkpoint that is resumed, and of output_dir. From the stage of the files on. */
struct pl_run_files {
    char *model_dir;             /* directory of the weights; NULL: init: random, or none is here */
    bool in_hub_cache;           /* model_dir is a snapshot of the hub cache */
    char *config_path;           /* the config.json that was read, for pl_model_read_text */
    struct pl_job adapter_names; /* what the facts of the adapter borrow; {0}: nothing */
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

/* The rows that are trained on and evaluated. From the stage of the data on. */
struct pl_run_data {
    struct pl_data *rows, *eval; /* eval may equal rows (held-out rows) */
    struct pl_holdout held;      /* of rows: those that are evaluated */
    struct pl_holdout left_out;  /* rows that training leaves out: those, and what trains nothing */
    uint64_t n_eval;             /* rows that are evaluated */
    struct pl_walk walk, eval_walk; /* over the rows of each */
    struct pl_batch_source source, eval_source;
};

/* The prompts that the model in training answers. {0}: the job names none. */
struct pl_run_prompts {
    struct pl_prompt_text text;
    struct pl_run_prompt {
        int32_t *ids; /* [n], owned */
        uint64_t n;
    } * list; /* [n], owned: in the order of `sample_prompts` */
    uint32_t n;
};

/* A job that is admitted, or on its way: its specification with what was decided by planning, and
 * the files and data that it was decided by. */
struct pl_preflight {
    struct pl_spec spec;      /* of the run */
    const struct pl_job *job; /* as it runs: that of `spec` */
    struct pl_world world;    /* size 0 and 1: alone */
    struct pl_comm *comm;     /* to the other ranks, until the session has it; NULL: alone */
    struct pl_model model;
    struct pl_question q;      /* about job and model; all of it decided */
    struct pl_gpu gpu;         /* as NVML described it; {0} on the CPU */
    struct pl_context context; /* as predicted; 0 bytes on the CPU */
    uint64_t graph_bytes;      /* of budget.context_bytes: granted to graphs of a step */
    struct pl_planned first; /* under `batch_size: auto`, until the data are read: of one sample */
    struct pl_autobatch search;
    struct pl_estimate estimate; /* the plan at the chosen batch, verdict, remedies, notes */
    struct pl_cut cut;           /* where ranks hold parts of tensors: what files hold; else {0} */
    uint64_t global_batch, total_steps, warmup_steps;
    double warmup_ratio;         /* that warmup_steps were made of; NaN: they were given */
    struct pl_forecast forecast; /* of a step; nothing was decided by it */
    bool batch_was_auto, base_was_auto;
    bool too_large; /* the refusal is that of the size: the estimate says more */
    bool settled;   /* nothing is left to decide */

    struct pl_run_files files;
    struct pl_run_data data;
    struct pl_run_prompts prompts;

    struct pl_text notes;
    bool host_fault; /* debug_inject: host_oom@alloc, armed until pl_preflight_finish */
};

#endif
