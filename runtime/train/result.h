/* result.h - what a run planned, allocated, measured and reached. */
#ifndef PL_RUNTIME_TRAIN_RESULT_H
#define PL_RUNTIME_TRAIN_RESULT_H

#include "estimator/base/diag.h"
#include "runtime/admit/speed.h"
#include "runtime/session/books.h"

struct pl_probe { /* what the steps on the longest samples showed */
    uint32_t steps, batch_size;
    uint64_t tokens, longest;                /* of a step; tokens of the longest sample */
    double seconds;                          /* a step, the fastest */
    double first_loss, last_loss, grad_norm; /* of the first and the last step; of the last */
    double run_seconds; /* of the whole run at that rate, as if every step were this long */
};

struct pl_train_result {
    struct pl_probe probe; /* steps 0 = there was none */
    uint64_t steps;        /* done since the job began, earlier runs included */
    uint64_t steps_run;    /* by this run; also of one that failed */
    struct pl_books books;
    double last_loss, eval_loss, tokens_per_second, wall_seconds;
    double data_wait_seconds;    /* of wall_seconds, in which steps waited for their samples */
    struct pl_pace_medians pace; /* of the steps of this run; NaN: too few */
    uint32_t oom_recoveries;
    int stopped_by; /* signal number, 0 = ran to its end */
};

struct pl_run;
/* S1 of session.h; fills the books and the counts of *out. */
pl_err pl_run_check_books(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d);

#endif
