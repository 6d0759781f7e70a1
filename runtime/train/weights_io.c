#include "runtime/train/weights_io.h"
#include "runtime/train/score.h"

#include "estimator/base/alloc.h"
#include "estimator/base/json_tree.h"
#include "estimator/config/job_values.h"
#include "estimator/find/find.h"
#include "estimator/gguf/gguf_file.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/save_set.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/data/data.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/session/load.h"
#include "runtime/train/best.h"
#include "runtime/train/reference.h"
#include "runtime/train/step.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A checkpoint without a scale leaves that of the configuration. */
static void take_scale(const struct pl_run_state *from, struct pl_run_state *to) {
    if (!from->loss_scale || !to->loss_scale) return;
    to->loss_scale = from->loss_scale;
    to->good_updates = from->good_updates;
    to->skipped_steps = from->skipped_steps;
}

/* A checkpoint that was damaged is not the only one. */
static void hint_at_older(pl_err err, struct pl_diag *d) {
    if (err == PL_ERR_CHECKPOINT_FORMAT)
        pl_diag_hint(d, "the checkpoint is damaged: move it away to resume from the one before it");
}

/* A run that is resumed by force may refer to something else than the checkpoint did. */
static pl_err load_reference(struct pl_run *r, struct pl_diag *d) {
    const bool forced = strcmp(r->s.job->resume, "force") == 0;
    if (!pl_job_precomputes(r->s.job) || r->reference.whole || forced) return PL_ERR_OK;
    pl_err err = pl_reference_load(&r->reference, r->s.pf->files.resume_path, d);
    hint_at_older(err, d);
    return err;
}

static pl_err resume(struct pl_run *r, const struct pl_tensor_io *io, struct pl_diag *d) {
    const struct pl_run_state *then = &r->s.pf->files.resume_state;
    pl_err err = pl_checkpoint_load(io, r->s.pf->files.resume_path, d);
    hint_at_older(err, d);
    if (err != PL_ERR_OK) return err;
    /* Only counters are restored; everything else is this run's, and was compared before. */
    r->state.step = then->step;
    r->state.position = then->position;
    r->state.tokens = then->tokens;
    r->state.oom_recoveries = then->oom_recoveries;
    take_scale(then, &r->state);
    PL_TRY(pl_run_init_best(r, then, d));
    r->state.batch_size = r->oom.batch_size;
    r->saved = r->state;
    return PL_ERR_OK;
}

pl_err pl_run_load(struct pl_run *r, struct pl_diag *d) {
    PL_TRY(pl_session_load(&r->s, d));
    if (!r->s.pf->files.resume_path || !pl_session_has_memory(&r->s)) return PL_ERR_OK;
    PL_TRY(load_reference(r, d));
    PL_TRY(pl_run_refer(r, d)); /* later the weights are those of the checkpoint */
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_LOAD);
    return resume(r, &io, d);
}

/* The checkpoint that `saved` tells of: NULL in *out where it is the start of the run. */
static pl_err saved_path(const struct pl_run *r, char **out, struct pl_diag *d) {
    const bool resumed =
        r->s.pf->files.resume_path && r->saved.step == r->s.pf->files.resume_state.step;
    *out = NULL;
    if (r->saved.step == 0 && !resumed) return PL_ERR_OK;
    *out = resumed ? pl_strdup(r->s.pf->files.resume_path)
                   : pl_checkpoint_path(r->s.job->output_dir, r->saved.step);
    return *out ? PL_ERR_OK : pl_host_oom(d, "a path");
}

pl_err pl_run_load_saved(struct pl_run *r, struct pl_diag *d) {
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_LOAD);
    char *path = NULL;
    PL_TRY(pl_session_load(&r->s, d));
    PL_TRY(saved_path(r, &path, d));
    pl_err err = path ? pl_checkpoint_load(&io, path, d) : PL_ERR_OK;
    free(path);
    if (err != PL_ERR_OK) return err;
    r->state.step = r->saved.step;
    r->state.position = r->saved.position;
    r->state.tokens = r->saved.tokens;
    take_scale(&r->saved, &r->state);
    pl_run_restore_best(r, &r->saved);
    return PL_ERR_OK;
}

/* --- what goes with the weights ----------------------------------------------------------------
 */
struct run_companions {
    struct pl_companions list;
    char *dir;              /* owned; NULL: there is none */
    struct pl_text program; /* text of the run's own template */
    char *config;           /* owned: tokenizer_config.json with several templates; NULL */
};

/* The directory whose tokenizer goes with the weights: that of `tokenizer:`, else the model's. */
static pl_err find_companions(const struct pl_run *r, bool named, char **out, struct pl_diag *d) {
    struct stat st;
    if (!named && !r->s.pf->files.model_dir) return PL_ERR_OK;
    if (named)
        PL_TRY(pl_find_tokenizer(r->s.job, out, d));
    else if (!(*out = pl_strdup(r->s.pf->files.model_dir)))
        return pl_host_oom(d, "a path");
    char *slash = strrchr(*out, '/');
    if (!named || (stat(*out, &st) == 0 && S_ISDIR(st.st_mode)) || pl_gguf_is(*out))
        return PL_ERR_OK;
    if (slash)
        *slash = 0;
    else
        strcpy(*out, "."); /* a path holds a byte at least */
    return PL_ERR_OK;
}

static json_t *list_templates(const struct pl_tokenizer *t) {
    json_t *list = json_array();
    const struct pl_tokenizer_template *one;
    for (size_t i = 0; (one = pl_tokenizer_template(t, i)) != NULL; i++)
        pl_json_append(&list, json_pack("{s:s, s:s}", "name", one->name, "template", one->text));
    return list;
}

/* Templates of a folder chat_templates/ stand in tokenizer_config.json of the model that is saved,
 * since a save changes files of one directory. transformers reads both forms. */
static pl_err join_templates(struct run_companions *c, const struct pl_tokenizer *t,
                             struct pl_diag *d) {
    const struct pl_tokenizer_template *second = t ? pl_tokenizer_template(t, 1) : NULL;
    struct pl_json_error e;
    pl_err err = PL_ERR_OK;
    uint64_t bytes;
    char *text = NULL;
    if (!c->dir || !second || !strstr(second->where, "/chat_templates/")) return PL_ERR_OK;
    char *path = pl_path_join(c->dir, "tokenizer_config.json");
    if (!path) return pl_host_oom(d, "a path");
    json_t *root = NULL;
    if (access(path, F_OK) == 0) {
        PL_TRY_GOTO(pl_model_read_text(path, &text, &bytes, d), out);
        root = pl_json_load(text, (size_t)bytes, PL_JSON_TEXT, &e);
    } else {
        root = json_object();
    }
    pl_json_set(&root, "chat_template", list_templates(t));
    c->config = root ? pl_json_dump(root, JSON_INDENT(2)) : NULL;
    if (!c->config) err = pl_host_oom(d, "tokenizer_config.json");
out:
    json_decref(root);
    free(text);
    free(path);
    return err;
}

/* A run by LoRA leaves the tokenizer with the base unless the job names another one. */
static pl_err gather_companions(const struct pl_run *r, struct run_companions *c,
                                struct pl_diag *d) {
    const char *given = r->s.job->tokenizer;
    const struct pl_data *data = r->s.pf->data.rows;
    const bool adapts = pl_mode_adapts(r->s.job->mode);
    const bool named = given && given[0] && strcmp(given, "byte") != 0;
    if (named || !adapts) PL_TRY(find_companions(r, named, &c->dir, d));
    if (data) pl_data_write_program(data, &c->program);
    if (c->program.failed) return pl_host_oom(d, "the chat template");
    if (!c->program.len && data) PL_TRY(join_templates(c, pl_data_tokenizer(data), d));
    c->list = (struct pl_companions){
        .dirs = {c->dir},
        .chat_template = c->program.len ? pl_text_str(&c->program) : NULL,
        .tokenizer_config = c->config,
        .tokenizer_only = adapts,
    };
    return PL_ERR_OK;
}

static pl_err put_weights(struct pl_run *r, const struct pl_tensor_io *io, struct pl_outbox *o,
                          struct pl_diag *d) {
    struct run_companions c = {.dir = NULL};
    char *config = NULL;
    pl_err err;
    PL_TRY_GOTO(gather_companions(r, &c, d), out);
    if (pl_mode_adapts(r->s.job->mode)) {
        err = pl_adapter_put(io, o, r->s.job, &c.list, d);
        goto out;
    }
    config = pl_model_config_text(r->config_json, r->s.job->dtype, false);
    err = config ? pl_model_put(io, o, config, &c.list, PL_SHARD_BYTES, d)
                 : pl_host_oom(d, "config.json");
out:
    free(c.dir);
    free(c.config);
    pl_text_finish(&c.program);
    free(config);
    return err;
}

static bool writes_files(const struct pl_run *r) {
    return pl_session_leads(&r->s) && pl_session_has_memory(&r->s);
}

/* If every rank holds parts of tensors, all of them take part in a save. */
static pl_err feed(struct pl_run *r, bool with_states, struct pl_diag *d) {
    if (!r->s.cut.whole || pl_session_leads(&r->s)) return PL_ERR_OK;
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_SAVE);
    return pl_checkpoint_feed(&io, with_states, d);
}

/* shares: the other ranks help. */
static pl_err save_checkpoint(struct pl_run *r, uint32_t keep, bool shares, struct pl_diag *d) {
    const struct pl_rotation stay = {keep, pl_run_best_step(r)};
    struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_SAVE);
    struct pl_checkpoint c = {0};
    pl_err err;
    io.shares = shares;
    PL_TRY_GOTO(pl_checkpoint_begin(&c, r->s.job->output_dir, r->state.step, d), out);
    PL_TRY_GOTO(put_weights(r, &io, &c.outbox, d), out);
    if (r->reference.whole) PL_TRY_GOTO(pl_reference_save(&r->reference, &c.outbox, d), out);
    PL_TRY_GOTO(pl_checkpoint_write_state(&c, &io, &r->state, r->s.pf->files.record, d), out);
    /* The steps that led here are on disk before the checkpoint has its name, so that a run which
     * goes on from it has a log without holes. */
    PL_TRY_GOTO(pl_log_sync(r->log, d), out);
    err = pl_checkpoint_commit(&c, r->s.job->output_dir, stay, d);
out:
    pl_checkpoint_abort(&c);
    if (err != PL_ERR_OK) return err;
    r->saved = r->state;
    return pl_log_event(r->log, "checkpoint", json_pack("{s:I}", "step", (json_int_t)r->state.step),
                        d);
}

/* Rank 0 saves, and the other ranks help. */
pl_err pl_run_checkpoint(struct pl_run *r, struct pl_diag *d) {
    if (writes_files(r))
        return save_checkpoint(r, r->s.job->save_total_limit, r->s.shares_files, d);
    if (!r->s.shares_files) return feed(r, true, d);
    if (!pl_session_has_memory(&r->s)) return PL_ERR_OK;
    struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_SAVE);
    io.shares = true;
    return pl_checkpoint_join(&io, r->s.job->output_dir, r->state.step, PL_SHARD_BYTES, d);
}

/* If a save has just failed, or the device no longer answers, another attempt is in vain. Older
 * checkpoints stay, whatever save_total_limit says: the cause may have begun after them. The other
 * ranks may be gone, so rank 0 saves alone what it has whole. */
void pl_run_rescue(struct pl_run *r, pl_err cause, struct pl_diag *d) {
    char hint[sizeof d->hint];
    bool staged = r->s.device->staging || r->s.batch_arena.base;
    if (cause == PL_ERR_CHECKPOINT_WRITE || cause == PL_ERR_DEVICE_LOST) return;
    if (r->committing || r->half_updated || !staged || !writes_files(r) || r->s.cut.whole) return;
    pl_run_undo_pending(r);
    if (r->state.step <= r->saved.step) return;
    (void)save_checkpoint(r, UINT32_MAX, false, NULL);
    if (r->saved.step != r->state.step || !d) return;
    snprintf(hint, sizeof hint, "%s", pl_diag_hint_text(d));
    pl_diag_hint(d, "%s; step %llu is saved: the same command resumes after it", hint,
                 (unsigned long long)r->saved.step);
}

/* The files of output_dir change together or not at all (save_set.h). A run that resumes after its
 * last step saves nothing else, so that what is left of checkpoints goes here. */
pl_err pl_run_save_final(struct pl_run *r, struct pl_diag *d) {
    if (!writes_files(r)) return feed(r, false, d);
    const char *dir = r->s.job->output_dir;
    const bool adapts = pl_mode_adapts(r->s.job->mode);
    const struct pl_tensor_io io = pl_session_io(&r->s, PL_PHASE_SAVE);
    struct pl_outbox o = {0};
    json_t *files = json_object();
    pl_err err = files ? PL_ERR_OK : pl_host_oom(d, "the list of files");
    if (err == PL_ERR_OK) err = pl_save_set_begin(dir, d);
    if (err == PL_ERR_OK) err = pl_outbox_init(&o, dir, d);
    o.manifest = files;
    if (err == PL_ERR_OK) err = put_weights(r, &io, &o, d);
    if (err == PL_ERR_OK) err = pl_run_record_put(&o, &r->state, r->s.pf->files.record, d);
    if (err == PL_ERR_OK)
        err = pl_save_set_commit(&o, adapts ? pl_companions_is_leftover : pl_model_is_leftover, &o,
                                 d);
    if (err == PL_ERR_OK) err = pl_checkpoint_clear(dir, d);
    pl_outbox_finish(&o);
    json_decref(files);
    return err;
}
