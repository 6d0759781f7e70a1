/* weights_io.c - what goes into the job arena before the first step, and what comes out of it. */
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/train/run.h"

#include "estimator/base/alloc.h"
#include "estimator/find/find.h"
#include "estimator/base/checked.h"
#include "runtime/train/rope_table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool has_memory(const struct pl_run *r) {
    return r->device->ops != &pl_device_null;
}

/* A row for every position of such a length, from row `first` of the table on. */
static pl_err fill_rope(struct pl_run *r, uint32_t id, uint64_t first, uint64_t length,
                        struct pl_diag *d) {
    struct pl_rung *rung = pl_run_rung(r);
    const uint32_t which = rung->planned.program->tensors[id].layer;
    const struct pl_rope *rope = &r->pf->model.rope[which == PL_ROPE_SECOND];
    const uint64_t rows = rung->planned.program->shape.max_seq_length;
    const uint64_t row_bytes = (uint64_t)rope->dim * sizeof(float);
    char *const table = (char *)pl_exec_address(&rung->exec, id) + first * row_bytes;
    double freq[PL_ROPE_MAX_PAIRS];
    float part[16 * 2 * PL_ROPE_MAX_PAIRS];
    const uint64_t most = sizeof part / row_bytes;
    pl_rope_frequencies(rope, length, freq);
    for (uint64_t row = 0; row < rows; row += most) {
        const uint64_t n = pl_u64_min(most, rows - row);
        pl_rope_rows(rope, freq, which == PL_ROPE_OF_QUERIES, row, n, part);
        pl_err err =
            r->device->ops->upload(r->device, table + row * row_bytes, part, n * row_bytes);
        if (err != PL_ERR_OK) return pl_diag_set(d, err, "the rope table could not be copied");
    }
    return PL_ERR_OK;
}

static pl_err fill_tables(struct pl_run *r, struct pl_diag *d) {
    const struct pl_program *p = pl_run_rung(r)->planned.program;
    const uint64_t positions = p->shape.max_seq_length;
    const uint64_t length = pl_rope_length(&r->pf->model.rope[0], positions);
    r->rope_length = length;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->role != PL_ROLE_ROPE) continue;
        PL_TRY(fill_rope(r, i, 0, t->layer == 1 ? length : 0, d));
        if (t->dims[0] > positions) PL_TRY(fill_rope(r, i, positions, length, d));
    }
    return PL_ERR_OK;
}

pl_err pl_run_follow_length(struct pl_run *r, struct pl_diag *d) {
    const uint64_t length = pl_rope_length(&r->pf->model.rope[0], r->micro.max_len);
    if (length == 0 || length == r->rope_length) return PL_ERR_OK;
    const uint32_t id = pl_program_find(pl_run_rung(r)->planned.program, PL_ROLE_ROPE, 0, 1);
    PL_TRY(fill_rope(r, id, 0, length, d));
    r->rope_length = length;
    return PL_ERR_OK;
}

static pl_err load_base(struct pl_run *r, const struct pl_tensor_io *io, struct pl_diag *d) {
    if (r->job->init == PL_INIT_RANDOM) return pl_model_init_random(io, r->job->seed, d);
    return pl_model_load(io, r->pf->model_dir, d);
}

static pl_err load_adapter(struct pl_run *r, const struct pl_tensor_io *io, struct pl_diag *d) {
    char *path;
    PL_TRY(pl_find_adapter(r->job, &path, d));
    pl_err err = path ? pl_adapter_load(io, path, d) : pl_adapter_init(io, r->job->seed, d);
    free(path);
    return err;
}

static pl_err resume(struct pl_run *r, const struct pl_tensor_io *io, struct pl_diag *d) {
    const struct pl_run_state *then = &r->pf->resume_state;
    pl_err err = pl_checkpoint_load(io, r->pf->resume_path, d);
    if (err == PL_ERR_CHECKPOINT_FORMAT)
        pl_diag_hint(d, "the checkpoint is damaged: move it away to resume from the one before it");
    if (err != PL_ERR_OK) return err;
    /* What was counted; all else is this run's, and was compared before. */
    r->state.step = then->step;
    r->state.position = then->position;
    r->state.tokens = then->tokens;
    r->state.oom_recoveries = then->oom_recoveries;
    r->state.batch_size = r->oom.batch_size;
    r->saved_step = then->step;
    return PL_ERR_OK;
}

pl_err pl_run_load(struct pl_run *r, struct pl_diag *d) {
    if (!has_memory(r)) return PL_ERR_OK;
    struct pl_tensor_io io = pl_run_io(r, PL_PHASE_LOAD);
    PL_TRY(fill_tables(r, d));
    PL_TRY(load_base(r, &io, d));
    if (pl_mode_adapts(r->job->mode)) PL_TRY(load_adapter(r, &io, d));
    return r->pf->resume_path ? resume(r, &io, d) : PL_ERR_OK;
}

/* The directory whose tokenizer goes with the weights: that of `tokenizer:`, else the model's.
 * *out is malloc'd; NULL: there is none. */
static pl_err companions_dir(const struct pl_run *r, char **out, struct pl_diag *d) {
    const char *given = r->job->tokenizer;
    bool named = given && given[0] && strcmp(given, "byte") != 0;
    struct stat st;
    *out = NULL;
    if (!named && !r->pf->model_dir) return PL_ERR_OK;
    if (named)
        PL_TRY(pl_find_tokenizer(r->job, out, d));
    else if (!(*out = pl_strdup(r->pf->model_dir)))
        return pl_host_oom(d, "a path");
    char *slash = strrchr(*out, '/');
    if (!named || (stat(*out, &st) == 0 && S_ISDIR(st.st_mode))) return PL_ERR_OK;
    if (slash)
        *slash = 0;
    else
        strcpy(*out, "."); /* a path holds a byte at least */
    return PL_ERR_OK;
}

static pl_err put_weights(struct pl_run *r, const struct pl_tensor_io *io, struct pl_outbox *o,
                          struct pl_diag *d) {
    if (pl_mode_adapts(r->job->mode)) return pl_adapter_put(io, o, r->job, d);
    enum pl_dtype dtype = r->job->dtype == PL_JOB_DTYPE_BF16 ? PL_DTYPE_BF16 : PL_DTYPE_F32;
    char *config = NULL, *companions = NULL;
    pl_err err;
    PL_TRY_GOTO(companions_dir(r, &companions, d), out);
    config = pl_model_config_text(r->config_json, dtype, false);
    err = config ? pl_model_put(io, o, config, companions, PL_SHARD_BYTES, d)
                 : pl_host_oom(d, "config.json");
out:
    free(companions);
    free(config);
    return err;
}

static pl_err save_checkpoint(struct pl_run *r, uint32_t keep, struct pl_diag *d) {
    if (!has_memory(r)) return PL_ERR_OK;
    struct pl_tensor_io io = pl_run_io(r, PL_PHASE_SAVE);
    struct pl_checkpoint c = {0};
    pl_err err;
    PL_TRY_GOTO(pl_checkpoint_begin(&c, r->job->output_dir, r->state.step, d), out);
    PL_TRY_GOTO(put_weights(r, &io, &c.outbox, d), out);
    PL_TRY_GOTO(pl_checkpoint_write_state(&c, &io, &r->state, r->pf->record, d), out);
    /* The steps that led here are on disk before the checkpoint has its name, so that a run which
     * goes on from it has a log without holes. */
    PL_TRY_GOTO(pl_log_sync(r->log, d), out);
    err = pl_checkpoint_commit(&c, r->job->output_dir, keep, d);
out:
    pl_checkpoint_abort(&c);
    if (err != PL_ERR_OK) return err;
    r->saved_step = r->state.step;
    return pl_log_event(r->log, "checkpoint", json_pack("{s:I}", "step", (json_int_t)r->state.step),
                        d);
}

pl_err pl_run_checkpoint(struct pl_run *r, struct pl_diag *d) {
    return save_checkpoint(r, r->job->save_total_limit, d);
}

/* Where a save has just failed, or the device answers no more, another try is in vain. Older
 * checkpoints stay, whatever save_total_limit says: what went wrong may have begun behind them. */
void pl_run_rescue(struct pl_run *r, pl_err cause, struct pl_diag *d) {
    char hint[sizeof d->hint];
    bool staged = r->device->staging || r->batch_arena.base;
    if (cause == PL_ERR_CHECKPOINT_WRITE || cause == PL_ERR_DEVICE_LOST) return;
    if (r->committing || !staged || !has_memory(r)) return;
    pl_run_undo_pending(r);
    if (r->state.step <= r->saved_step) return;
    (void)save_checkpoint(r, UINT32_MAX, NULL);
    if (r->saved_step != r->state.step || !d) return;
    snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(d));
    pl_diag_hint(d, "%s; step %llu is saved: the same command resumes after it", hint,
                 (unsigned long long)r->saved_step);
}

/* Weights and record. */
static pl_err put_final(struct pl_run *r, struct pl_outbox *o, struct pl_diag *d) {
    const struct pl_tensor_io io = pl_run_io(r, PL_PHASE_SAVE);
    PL_TRY(put_weights(r, &io, o, d));
    return pl_run_record_put(o, &r->state, r->pf->record, d);
}

/* The files of output_dir change together or not at all (save_set.h). */
pl_err pl_run_save_final(struct pl_run *r, struct pl_diag *d) {
    if (!has_memory(r)) return PL_ERR_OK;
    const char *dir = r->job->output_dir;
    const bool adapts = pl_mode_adapts(r->job->mode);
    struct pl_outbox o = {0};
    json_t *files = json_object();
    pl_err err = files ? PL_ERR_OK : pl_host_oom(d, "the list of files");
    if (err == PL_ERR_OK) err = pl_save_set_begin(dir, d);
    if (err == PL_ERR_OK) err = pl_outbox_init(&o, dir, d);
    o.manifest = files;
    if (err == PL_ERR_OK) err = put_final(r, &o, d);
    if (err == PL_ERR_OK) err = pl_save_set_commit(&o, adapts ? NULL : pl_model_is_leftover, &o, d);
    pl_outbox_finish(&o);
    json_decref(files);
    return err;
}
