/* step.h - the step as a transaction, and recovery from missing memory; private to the room. */
#ifndef PL_RUNTIME_TRAIN_STEP_H
#define PL_RUNTIME_TRAIN_STEP_H

#include "estimator/config/job_values.h"
#include "runtime/train/training_run.h"

struct pl_step_result {
    uint64_t step, position; /* values after the step */
    double loss, grad_norm, learning_rate;
    uint64_t targets, tokens; /* supervised tokens, computed tokens */
    uint64_t samples;
    uint32_t batch_size;         /* micro-batch in use */
    uint64_t loss_scale;         /* of its gradients; 0: none */
    bool skipped;                /* they overflowed: no weight was updated */
    struct pl_measures measures; /* of preferences */
    struct pl_step_cost cost;
};
/* Returns the hooks through which recovery acts on a step. */
struct pl_oom_hooks pl_run_oom_hooks(struct pl_run *r);
/* Reserves the batch arena, with as many halvings as recovery allows. */
pl_err pl_run_reserve(struct pl_run *r, struct pl_diag *d);
/* Runs one transaction: the next samples, forward and backward, then the commit. On a device that
 * works on its own it is only queued; at most PL_MAX_PENDING steps may wait to be collected. If the
 * commit itself ran out of memory no step was done: r->lost is set, and pl_run_go_back() has to
 * follow. */
pl_err pl_run_step(struct pl_run *r, struct pl_diag *d);
/* Waits for the oldest step that was not collected, and returns its outcome. PL_ERR_NOT_FINITE: its
 * loss or norm is not finite; neither it nor a later step has changed a weight, and it stays
 * pending. */
pl_err pl_run_collect(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d);
/* Collects the steps that ended well and forgets the other ones, as if they had not been queued. */
void pl_run_undo_pending(struct pl_run *r);
/* Returns how many steps may stay uncollected while the next one is queued: under fp16 its scale
 * and its rate follow from their outcome, and preferences are scored before they are learned. */
static inline uint32_t pl_run_lag(const struct pl_run *r) {
    const bool waits = r->state.loss_scale || pl_job_prefers(r->s.job);
    return r->s.device->ops->post && !waits ? PL_MAX_PENDING - 1 : 0;
}
/* Runs the step on the longest samples of the data without counting it: the weights change, the
 * run's state does not. With r->lost *out is not filled. */
pl_err pl_run_longest_step(struct pl_run *r, struct pl_step_result *out, struct pl_diag *d);

#endif
