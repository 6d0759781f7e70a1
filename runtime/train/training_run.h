/* training_run.h - the state of a training run; private to the room. */
#ifndef PL_RUNTIME_TRAIN_TRAINING_RUN_H
#define PL_RUNTIME_TRAIN_TRAINING_RUN_H

#include "oom_recovery/recovery.h"
#include "runtime/admit/speed.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/data/worker.h"
#include "runtime/generate/decode.h"
#include "runtime/report/report.h"
#include "runtime/session/session.h"
#include "runtime/train/losses.h"
#include "runtime/train/options.h"
#include "runtime/train/profile.h"
#include "runtime/train/reference.h"
#include "runtime/train/schedule.h"

struct pl_debug_fault { /* debug_inject: device_oom@step=N, or of an operation */
    uint64_t at, count;
};

#define PL_LOSS_SCALE 65536 /* of the first step under fp16, as torch.amp.GradScaler has it */

/* The load of a step, and, if it was timed, the seconds of its ops by class. */
struct pl_step_cost {
    struct pl_load load;
    bool timed;
    double seconds[PL_COST_COUNT];
};

/* The scores of the samples of a step. */
struct pl_scores {
    struct pl_score *of; /* [cap], owned */
    uint64_t cap;
    uint32_t *rank;          /* [cap], owned: the rank that computes a sample */
    double *logp;            /* owned: of the targets of a micro-batch */
    bool refers;             /* what is scored is the reference, by whatever phase */
    enum pl_members members; /* that a forward pass scores */
};

/* A step that is queued and whose loss and norm were not read yet. */
struct pl_pending {
    uint64_t step, position, targets, tokens, samples;
    uint32_t batch_size;
    double learning_rate;
    uint64_t loss_scale;         /* 0: none */
    struct pl_measures measures; /* of preferences */
    struct pl_step_cost cost;
    bool posted;         /* values come with pl_device_ops.collect; false: they are here already */
    double values[2][2]; /* loss and clip */
};
#define PL_MAX_PENDING PL_MAIL_PLACES

struct pl_run {
    struct pl_session s;
    const struct pl_train_options *opt;
    struct pl_oom oom;
    struct pl_run_state state;
    struct pl_run_state saved; /* state of the newest checkpoint that `state` came from, or of the
                                  start */
    bool committing;           /* an update is being queued: the weights are those of no step */
    bool half_updated; /* an update that was queued is known to have stopped half way, with the same
                          effect */
    bool anew;         /* the run began again, and has no weights yet (begin_anew.h) */
    bool resolved_is_stale; /* config.resolved.yaml holds the micro-batch of before a halving */
    bool lost;              /* the commit of a step ran out of memory: go_back.h */
    struct pl_schedule schedule;
    struct pl_step_batch batch;
    /* rows of a micro-batch as the run began, of which a preference stage has means */
    uint32_t unit;
    struct pl_scores scores;             /* of preferences, as these two */
    struct pl_measures measures;         /* of the step at hand */
    struct pl_reference reference;       /* of the whole run, where it is computed before */
    struct pl_generate_options sampling; /* of samples */
    struct pl_decoder *decoder;          /* NULL: the job asks for no samples */
    uint64_t round;                      /* first sample of the current step of the ranks */
    bool clip_is_void; /* an attempt of the ranks failed: the norm that it computed belongs to no
                          step */
    int stop;          /* signal that asks to end, from any rank, as agreed in the last step */
    struct pl_pending pending[PL_MAX_PENDING]; /* a ring */
    uint32_t oldest_pending, n_pending;
    struct pl_worker
        *worker; /* loads samples ahead; NULL: they are loaded when their step begins */
    struct pl_pace pace;
    struct pl_profile profile;
    double data_wait_seconds; /* sum over all steps, until their samples were there */
    struct pl_log *log;
    struct pl_tensorboard *board; /* NULL: the job asks for none */
    struct pl_progress progress;
    struct pl_debug_fault step_fault, op_fault, overflow;
    uint64_t ops_run; /* ops of the steps */
    struct pl_io_fault io_fault;
    uint64_t tokens_computed;
    bool graphs_off_told; /* the user was told why there are no graphs */
    char *config_json;    /* text of the model's config.json, as read */
    double started;       /* monotonic seconds */
};

static inline uint32_t pl_run_ranks(const struct pl_run *r) {
    return r->s.comm ? r->s.comm->world.size : 1;
}
static inline struct pl_rung *pl_run_rung(struct pl_run *r) {
    return pl_session_rung(&r->s);
}
/* Returns the slots of a micro-batch: the batch size, or one more where both answers of a pair are
 * computed at one time. */
static inline uint64_t pl_run_slots(const struct pl_run *r) {
    return r->s.rungs[r->s.rung].planned.program->shape.batch_size;
}
/* Returns the slots that all ranks compute in a round. */
static inline uint64_t pl_run_round_slots(const struct pl_run *r) {
    return pl_run_slots(r) * pl_run_ranks(r);
}

#endif
