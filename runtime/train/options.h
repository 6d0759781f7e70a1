/* options.h - how a run is observed and stopped, and its results: planned, allocated and measured
 * bytes, steps, losses. */
#ifndef PL_RUNTIME_TRAIN_OPTIONS_H
#define PL_RUNTIME_TRAIN_OPTIONS_H

#include "runtime/admit/speed.h"
#include "runtime/session/books.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* No option changes what is trained. */
struct pl_train_options {
    FILE *messages;   /* ledger, notes, progress; never NULL */
    FILE *json;       /* one event a line; NULL = off */
    bool quiet;       /* errors only */
    bool no_progress; /* notes, but no steps */
    bool colour;      /* about `messages` */
    bool probe_only;  /* only the probe runs: nothing is trained or saved */
    bool profile;     /* time every op of every step; a table on messages, an event in the log */
    volatile sig_atomic_t *stop; /* nullable; a non-zero signal number: finish the step, save,
                                    stop */
};

/* --- the results of a run --------------------------------------------------------------------- */

struct pl_probe { /* results of the steps on the longest samples */
    uint32_t steps, batch_size;
    uint64_t tokens, longest;                /* tokens of a step; tokens of the longest sample */
    double seconds;                          /* time of the fastest step */
    double first_loss, last_loss, grad_norm; /* losses of the first and the last step; norm of the
                                                last */
    double run_seconds; /* time of the whole run if every step were this long */
};

struct pl_evaluation { /* of the rows that are not trained on */
    uint64_t tokens;   /* supervised tokens; 0: no evaluation was made, or it had none */
    uint64_t right;    /* of them, those that were the likeliest by the model */
    double loss, accuracy, perplexity; /* mean per token; right / tokens; exp(loss) */
};

struct pl_best_model { /* the best of those that have a checkpoint */
    uint64_t step;     /* 0: the job asked for none, or no evaluation had a finite figure */
    const char *metric;
    double value;
    bool is_saved; /* false: its checkpoint is gone, and the model is that of the last step */
};

struct pl_train_result {
    struct pl_probe probe; /* steps 0 = no probe ran */
    uint64_t steps;        /* done since the job began, earlier runs included */
    uint64_t steps_run;    /* by this run, even if it failed */
    struct pl_books books;
    struct pl_evaluation evaluation; /* the last one */
    struct pl_best_model best;
    bool stopped_early; /* evaluations did not become better */
    double last_loss, tokens_per_second, wall_seconds;
    double data_wait_seconds;    /* part of wall_seconds in which steps waited for their samples */
    struct pl_pace_medians pace; /* medians over the steps of this run; NaN = too few steps */
    uint32_t oom_recoveries;
    int stopped_by; /* signal number, 0 = it ran to its end */
};

#endif
