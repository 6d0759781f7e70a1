/* Samples are found by their position, and everything random by step and sample, so counters and
 * tensors are all of it. */
#include "runtime/train/go_back.h"

#include "runtime/session/arenas.h"
#include "runtime/train/step.h"
#include "runtime/train/weights_io.h"

/* Arenas are zeroed when they are taken: nothing of the lost state is left in moments or norm. */
static pl_err reserve(void *ctx, struct pl_diag *d) {
    struct pl_run *r = ctx;
    pl_session_release_arenas(&r->s);
    PL_TRY(pl_session_reserve_job(&r->s, d));
    PL_TRY(pl_session_reserve_batch(&r->s, d));
    return pl_session_register_arenas(&r->s, d);
}

static pl_err bring_back(void *ctx, struct pl_diag *d) {
    struct pl_run *r = ctx;
    if (pl_session_has_memory(&r->s)) PL_TRY(pl_run_load_saved(r, d));
    r->n_pending = 0;
    return r->log ? pl_log_go_back(r->log, r->state.step, d) : PL_ERR_OK;
}

static void tell(struct pl_run *r, uint64_t lost) {
    char line[160];
    if (r->state.step)
        snprintf(line, sizeof line, "step %llu was half updated: the run is back after step %llu",
                 (unsigned long long)lost, (unsigned long long)r->state.step);
    else
        snprintf(line, sizeof line, "step %llu was half updated: the run begins again",
                 (unsigned long long)lost);
    pl_progress_note(&r->progress, line);
}

/* Nothing of the lost state is saved. */
static void hint_at_checkpoint(const struct pl_run *r, struct pl_diag *d) {
    char hint[sizeof d->hint];
    if (!d || !r->saved.step) return;
    snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(d));
    pl_diag_hint(d, "%s; the same command resumes after step %llu", hint,
                 (unsigned long long)r->saved.step);
}

pl_err pl_run_go_back(struct pl_run *r, struct pl_diag *d) {
    struct pl_oom_hooks hooks = pl_run_oom_hooks(r);
    const uint64_t lost = r->state.step + 1;
    hooks.reserve = reserve;
    hooks.attempt = bring_back;
    pl_err err = pl_oom_go_back(&r->oom, &hooks, lost, d);
    if (err != PL_ERR_OK) {
        hint_at_checkpoint(r, d);
        return err;
    }
    tell(r, lost);
    r->committing = r->lost = r->anew = false;
    return PL_ERR_OK;
}
