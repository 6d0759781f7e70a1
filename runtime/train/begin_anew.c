#include "runtime/train/begin_anew.h"

#include "estimator/base/checked.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/session/arenas.h"
#include "runtime/session/load.h"
#include "runtime/session/session_open.h"
#include "runtime/train/run_open.h"

#include <string.h>

bool pl_run_may_begin_anew(const struct pl_run *r) {
    const uint64_t start = r->s.pf->files.resume_state.step;
    return r->lost ? r->saved.step == start : r->state.step == start;
}

/* Returns the bytes that the device has for arenas, as observed. If a library lacked memory while
 * both were there, they need to be smaller: by as much as it asked for, or by as much as halving
 * gives back at least. */
static uint64_t room_for_arenas(const struct pl_session *s) {
    const uint64_t job = s->job_arena.bytes, batch = s->batch_arena.bytes;
    const uint64_t all = job + batch + pl_session_free_bytes(s);
    if (!s->batch_arena.base) return all;
    if (!s->facts.requested_bytes) return job + batch / 2;
    return all - pl_u64_min(all, s->facts.requested_bytes);
}

/* Returns the batch after as many halvings as the run may still make. */
static uint32_t least_batch(const struct pl_oom *m) {
    uint32_t batch = m->batch_size;
    for (uint32_t i = m->retries; i < m->max_retries && batch > 1; i++)
        batch = pl_oom_halve(batch);
    return batch;
}

/* Updates what the run holds of the job's decisions. */
static pl_err follow_decisions(struct pl_run *r, struct pl_diag *d) {
    r->anew = true;
    r->state.loss_chunk_tokens = r->s.job->loss_chunk_tokens;
    r->saved.loss_chunk_tokens = r->s.job->loss_chunk_tokens;
    pl_profile_finish(&r->profile);
    return pl_run_init_profile(r, d);
}

pl_err pl_run_begin_anew(struct pl_run *r, uint32_t batch_size, bool *taken, struct pl_diag *d) {
    struct pl_text notes = {0};
    const struct pl_beginning b = {.batch_size = batch_size,
                                   .least = least_batch(&r->oom),
                                   .have_bytes = room_for_arenas(&r->s),
                                   .is_fresh = r->anew || r->batch.n == 0};
    pl_err err = pl_session_begin_anew(&r->s, &b, taken, &notes, d);
    if (err == PL_ERR_OK && *taken) err = follow_decisions(r, d);
    if (err == PL_ERR_OK && notes.failed) err = pl_host_oom(d, "notes");
    const bool tells = err == PL_ERR_OK && notes.len;
    char *rest = NULL, *line = tells ? strtok_r(notes.data, "\n", &rest) : NULL;
    for (; line; line = strtok_r(NULL, "\n", &rest))
        pl_progress_note(&r->progress, line);
    pl_text_finish(&notes);
    return err;
}

pl_err pl_run_load_anew(struct pl_run *r, struct pl_diag *d) {
    if (!r->anew) return PL_ERR_OK;
    r->anew = false;
    PL_TRY(pl_session_load(&r->s, d));
    if (!r->s.pf->files.resume_path || !pl_session_has_memory(&r->s)) return PL_ERR_OK;
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_LOAD);
    return pl_checkpoint_load(&io, r->s.pf->files.resume_path, d);
}
