/* autolevel.h - gradient_checkpointing, batch_size and optimizer_in_backward as one decision.
 *
 * In: a question whose job leaves some of these keys open.  Out: the level, decided; the batch size
 * that goes with it is pl_autobatch_solve()'s.  Every level of the ladder (ladder.h) has its own
 * largest micro-batch that fits; the level whose program takes the least time per token (cost.h)
 * wins, then the lower rung.
 * The choice follows from plans and constants alone: the same job and budget give the same on every
 * machine.
 *   A1  levels compute the same values in the same order, so their choice changes no bit of a run.
 *       Chunks of the loss would: a product's rounding and the sum over chunks in a head's gradient
 *       depend on where they end. So no budget decides them (pl_program_chunk_tokens)
 *   A2  what is chosen fits, unless nothing does
 *   A3  with more budget the time of the choice never rises; exactly so as far as a larger batch
 *       takes no more time per token, which only the start of one more chunk can upset
 *   A4  updates in the backward pass are taken where nothing fits without them, and by a step that
 *       does not clip and has a given micro-batch also where their choice of level takes less time;
 *       where nothing fits with them either, they are part of the smallest. What is decided without
 *       them is the same as under `optimizer_in_backward: false`
 * Use: pl_autolevel_decide(&q, limit, &trials, &notes, &d); */
#ifndef PL_ESTIMATOR_AUTOBATCH_AUTOLEVEL_H
#define PL_ESTIMATOR_AUTOBATCH_AUTOLEVEL_H

#include "estimator/autobatch/ladder.h"

/* The state that one decision leaves to the next: plans to resize, and the rungs of the latest
 * question, which hold for any batch size and budget. {0} knows nothing. */
#define PL_TRIED_ENDS (2 * PL_RECOMPUTE_OFFLOAD)
struct pl_trials_key {
    struct pl_job_shape shape;
    const struct pl_model *model;
    enum pl_backend backend;
    uint32_t sm, threads, level;
};
struct pl_found {        /* with an open batch size */
    uint32_t batch_size; /* 0: none */
    uint64_t bytes;      /* at batch_size */
    uint64_t next_bytes; /* of one more, which does not fit; 0: it was not planned */
};
struct pl_trials {
    struct pl_planned held;                /* as for pl_question_measure */
    struct pl_planned ends[PL_TRIED_ENDS]; /* of rungs that come again with every batch */
    double most_seconds;                   /* of a token: slower levels are not worth finding;
                             * 0: any is */
    struct pl_found found;                 /* by the latest decision */
    bool none;                             /* it found nothing that fits, and is worth it */
    struct pl_trials_key key;
    struct pl_ladder ladder;
};
void pl_trials_finish(struct pl_trials *t); /* leaves {0} */

/* Leaves alone what is not open. limit: as for pl_autobatch_solve, at most what a step can use.
 * Without a budget the level is `full` and gradients are kept; where nothing fits both are the
 * smallest. An open batch size becomes the one that was found with them,
 * or 1. notes (nullable) gets a line for each that was chosen; trials is nullable. */
pl_err pl_autolevel_decide(struct pl_question *q, uint32_t limit, struct pl_trials *trials,
                           struct pl_text *notes, struct pl_diag *d);
/* Level and batch alone: the same without optimizer_in_backward, which stays as it is, and
 * without notes. */
pl_err pl_autolevel_decide_sizes(struct pl_question *q, uint32_t limit, struct pl_trials *t,
                                 struct pl_diag *d);
/* True if the bytes that no level and no batch changes exceed the budget. */
pl_err pl_autolevel_is_infeasible(const struct pl_question *q, struct pl_trials *trials, bool *out,
                                  struct pl_diag *d);
/* The ladder of the question. */
pl_err pl_autolevel_ladder(const struct pl_question *q, struct pl_trials *trials,
                           struct pl_ladder *out, struct pl_diag *d);
/* True if the level is to be decided. */
bool pl_autolevel_is_open(const struct pl_question *q);
/* True if mlp_chunk_tokens may be decided: the job leaves it open, it is not decided, and there is
 * a budget. pl_autolevel_decide() leaves it as it is (decide.h). */
bool pl_autolevel_may_cut(const struct pl_question *q);
#define PL_MLP_CHUNK_MIN 128 /* products of fewer rows waste most of a GPU */
/* The same of unpack_buffer. */
bool pl_autolevel_may_unpack(const struct pl_question *q);
#define PL_UNPACK_MIN (UINT64_C(16) << 20) /* smaller panels waste most of a GPU and save little */
/* Decides level and chunks, as far as they are open, as the smallest that there are, whatever the
 * budget. */
pl_err pl_autolevel_smallest(struct pl_question *q, struct pl_trials *trials, struct pl_diag *d);

#endif
