#include "runtime/train/result.h"

#include "runtime/session/measure.h"
#include "runtime/train/training_run.h"

pl_err pl_run_check_books(struct pl_run *r, struct pl_train_result *out, struct pl_diag *d) {
    out->steps = r->state.step;
    out->steps_run = r->state.step - r->s.pf->files.resume_state.step;
    out->oom_recoveries = r->oom.retries;
    out->wall_seconds = pl_session_clock() - r->started;
    out->data_wait_seconds = r->data_wait_seconds;
    return pl_session_check_books(&r->s, &out->books, d);
}
