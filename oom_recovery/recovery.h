/* recovery.h - out of memory is a state, not an accident.
 *
 * In: hooks into a step that can be tried again.  Out: the step done at some micro-batch, or
 * RUNTIME_GPU_OOM with the bytes asked for, the bytes free, and remedies.
 * Needs: estimator. Acts only through its hooks; never includes runtime; allocates nothing.
 *
 *            attempt ok
 *   RUN ----------------------------------------------------------------> DONE
 *    | PL_ERR_DEVICE_OOM              any other error
 *    |  +-------------------------------------------------------------> FAILED (that error)
 *    v
 *   CLASSIFY --disabled, or retries spent, or batch 1--> EXHAUSTED (RUNTIME_GPU_OOM)
 *    |
 *    v                 v                v                 v
 *   DRAIN -> DISCARD -> HALVE -> REPLAN -> RESERVE --ok--> RUN
 *                                            | PL_ERR_DEVICE_OOM: back to CLASSIFY
 * Only RESERVE allocates on this path.
 *   O1  a step is committed once or not at all: hooks.attempt stops before the optimizer
 *   O2  at most max_retries halvings in a run, whatever step they fall on
 *   O3  the samples of a step never change; halving rounds up, so 3 -> 2 -> 1
 *   O4  a commit that the device had no memory for is not tried again: the state before it is lost.
 *       pl_oom_go_back() takes the same way from CLASSIFY on, and the RUN at its end brings back
 *       the last state that is whole */
#ifndef PL_OOM_RECOVERY_RECOVERY_H
#define PL_OOM_RECOVERY_RECOVERY_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum pl_oom_state {
    PL_OOM_RUN,
    PL_OOM_CLASSIFY,
    PL_OOM_DRAIN,
    PL_OOM_DISCARD,
    PL_OOM_HALVE,
    PL_OOM_REPLAN,
    PL_OOM_RESERVE,
    PL_OOM_DONE,
    PL_OOM_EXHAUSTED,
    PL_OOM_FAILED
};

/* The failure as the device saw it. The facts hook fills it right after a failure. */
struct pl_oom_facts {
    const char *what; /* "batch arena" or "job arena"; static or owned by the hooks */
    uint64_t requested_bytes, free_bytes;
    bool injected;
};

struct pl_oom_event { /* one line of train_log.jsonl */
    uint64_t step;
    uint32_t attempt; /* 1-based halving of the run */
    struct pl_oom_facts facts;
    uint32_t old_batch_size, new_batch_size;
    uint64_t gradient_accumulation_steps; /* after the halving */
};

struct pl_oom_hooks {
    void *ctx;
    pl_err (*attempt)(void *ctx, struct pl_diag *d); /* the samples of the step, up to but without
                                                        the commit */
    pl_err (*drain)(void *ctx, struct pl_diag *d);   /* wait, clear the device's last error */
    void (*discard)(void *ctx);                      /* gradients and loss of the step are void */
    pl_err (*replan)(void *ctx, uint32_t batch_size, struct pl_diag *d);
    pl_err (*reserve)(void *ctx, struct pl_diag *d); /* release and reserve the batch arena */
    void (*facts)(void *ctx, struct pl_oom_facts *out);
    void (*event)(void *ctx, const struct pl_oom_event *e);
};

struct pl_oom {
    bool enabled;
    uint32_t max_retries;
    uint32_t retries;            /* halvings done in this run */
    uint32_t batch_size;         /* micro-batch in use */
    uint64_t step, global_batch; /* for events only */
    enum pl_oom_state state;
    struct pl_oom_facts last; /* facts of the newest failure */
};

void pl_oom_init(struct pl_oom *m, bool enabled, uint32_t max_retries, uint32_t batch_size,
                 uint64_t global_batch);
/* Runs one step to DONE (PL_ERR_OK), EXHAUSTED (PL_ERR_GPU_OOM) or FAILED. `reserve_first` enters
 * at RESERVE instead of RUN: the first reservation of a run is protected like any step. */
pl_err pl_oom_run(struct pl_oom *m, const struct pl_oom_hooks *h, uint64_t step, bool reserve_first,
                  struct pl_diag *d);
/* Recovers from PL_ERR_DEVICE_OOM in the commit of `step`: hooks.attempt brings back an earlier
 * state, and hooks.reserve discards the one that is lost. */
pl_err pl_oom_go_back(struct pl_oom *m, const struct pl_oom_hooks *h, uint64_t step,
                      struct pl_diag *d);
/* Reports EXHAUSTED for a failure that is never tried again: as with `enabled` off. */
pl_err pl_oom_refuse(struct pl_oom *m, uint64_t step, const struct pl_oom_facts *facts,
                     struct pl_diag *d);
/* Returns the micro-batches of a step: ceil(global / batch). */
uint64_t pl_oom_accumulation(uint64_t global_batch, uint32_t batch_size);
uint32_t pl_oom_halve(uint32_t batch_size); /* rounds up; 1 -> 1 */

#endif
