/* not_finite.c - the error, and the search for the first value that is not finite. */
#include "runtime/train/not_finite.h"

#include "estimator/base/alloc.h"
#include "runtime/exec/watch.h"
#include "runtime/session/load.h"
#include "runtime/train/micro_batch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Runs the micro-batches of the step at hand. Ranks run all of them, since they wait for each
 * other (N2). */
static pl_err run_watched(struct pl_run *r, struct pl_diag *d) {
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    const struct pl_phase_range *ops = &pl_run_rung(r)->ops.micro;
    const uint64_t slots = r->batch.targets ? r->batch.slots : 0;
    exec->muted = false;
    for (r->round = 0; r->round < slots; r->round += pl_run_round_slots(r)) {
        PL_TRY(pl_run_prepare(r, PL_PHASE_MICRO, d));
        PL_TRY(pl_exec_run(exec, ops->first_op, ops->n_ops, d));
        if (exec->watch->found && !r->s.comm) break;
    }
    return PL_ERR_OK;
}

/* r->batch holds the samples of the newest step, which a device may have begun already. */
static pl_err run_again(struct pl_run *r, const struct pl_pending *p, struct pl_watch *w,
                        struct pl_diag *d) {
    const struct pl_run_state now = r->state;
    const bool newest = p->step >= now.step;
    struct pl_exec *exec = &pl_run_rung(r)->exec;
    r->state.step = p->step - 1;
    r->state.loss_scale = p->loss_scale;
    pl_err err = newest ? PL_ERR_OK
                        : pl_step_batch_load(&r->batch, &r->s.pf->data.source,
                                             p->position - p->samples, r->s.pf->global_batch, d);
    exec->watch = w;
    if (err == PL_ERR_OK) err = run_watched(r, d);
    exec->watch = NULL;
    r->state = now;
    return err;
}

void pl_run_name_not_finite(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d) {
    if (!d) return;
    struct pl_diag ignored = {0};
    struct pl_watch *w = pl_calloc(1, sizeof *w);
    const size_t n = strlen(d->message);
    char text[256];
    if (!w) return;
    pl_progress_note(&r->progress, "looking for the first value that is not finite");
    if (run_again(r, p, w, &ignored) == PL_ERR_OK && w->found) {
        pl_watch_text(pl_run_rung(r)->planned.program, w, text);
        snprintf(d->message + n, sizeof d->message - n, "; the first value that is not finite: %s",
                 text);
    }
    free(w);
}

static double mean_loss(const struct pl_pending *p) {
    return p->targets ? p->values[0][0] / (double)p->targets : NAN;
}

/* No update has changed what was loaded, so that neither the rate nor the clipping can be why. What
 * the files hold is read again: it is worth the time. */
static pl_err refuse_untouched(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d) {
    const struct pl_preflight *pf = r->s.pf;
    const char *dir = pf->files.resume_path ? pf->files.resume_path : pf->files.model_dir;
    struct pl_diag why = {0};
    if (pl_session_leads(&r->s)) (void)pl_session_check_base(&r->s, &why);
    pl_err err = pl_diag_set(d, PL_ERR_NOT_FINITE,
                             "step %llu: loss %g, gradient norm %g: the loss of the untouched "
                             "weights is not finite%s%s",
                             (unsigned long long)p->step, mean_loss(p), p->values[1][0],
                             why.err != PL_ERR_OK ? "; " : "", why.message);
    pl_run_name_not_finite(r, p, d);
    if (dir)
        pl_diag_hint(d,
                     "`plimsoll verify %s` names what is damaged; where it is whole, the "
                     "arithmetic overflows: set `dtype: fp32`",
                     dir);
    else
        pl_diag_hint(d, "the arithmetic overflows: set `dtype: fp32`");
    return err;
}

pl_err pl_run_refuse_not_finite(struct pl_run *r, const struct pl_pending *p, struct pl_diag *d) {
    const uint64_t loaded = r->s.pf->files.resume_path ? r->s.pf->files.resume_state.step : 0;
    const struct pl_job_shape *s = &pl_run_rung(r)->planned.program->shape;
    /* without clipping, an update in the backward pass knows the norm up to its own gradient */
    r->half_updated = isfinite(p->values[0][0]) && s->gradients == PL_GRADIENTS_OF_UPDATE &&
                      !pl_shape_sweeps_twice(s);
    if (p->step == loaded + 1 && !r->half_updated) return refuse_untouched(r, p, d);
    pl_err err = pl_diag_set(d, PL_ERR_NOT_FINITE, "step %llu: loss %g, gradient norm %g; %s",
                             (unsigned long long)p->step, mean_loss(p), p->values[1][0],
                             r->half_updated ? "some weights were updated before it was known"
                                             : "the weights were not touched");
    if (!r->half_updated) pl_run_name_not_finite(r, p, d);
    return err;
}
