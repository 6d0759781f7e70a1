/* preflight_files.c - the files of a job besides its data: weights, adapter, checkpoint. */
#include "runtime/admit/preflight_files.h"

#include "estimator/base/alloc.h"
#include "estimator/find/find.h"
#include "runtime/admit/admission.h"
#include "runtime/admit/output_dir.h"
#include "runtime/admit/preflight_data.h"
#include "runtime/admit/preflight_size.h"
#include "runtime/admit/record.h"
#include "runtime/checkpoint/adapter_config.h"
#include "runtime/checkpoint/adapter_io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/model_io.h"
#include "runtime/checkpoint/run_state.h"
#include "runtime/checkpoint/save_set.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* --- the model ------------------------------------------------------------------------------- */

/* Before any file of a model is read. */
static pl_err settle_model(const struct pl_model_ref *ref, struct pl_diag *d) {
    return ref->weights_dir ? pl_save_set_settle(ref->weights_dir, d) : PL_ERR_OK;
}

/* The config.json to read, and the directory of the weights when there are weights to read. */
pl_err pl_preflight_find_model(struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    struct pl_model_ref config = {0}, weights = {0};
    pl_err err = PL_ERR_OK;
    PL_TRY_GOTO(pl_find_model(job, job->model_config ? job->model_config : job->model, &pf->notes,
                              &config, d),
                out);
    PL_TRY_GOTO(settle_model(&config, d), out);
    pf->files.config_path = config.config;
    config.config = NULL;
    if (job->init == PL_INIT_PRETRAINED) {
        struct pl_model_ref *from = job->model_config ? &weights : &config;
        if (job->model_config)
            PL_TRY_GOTO(pl_find_model(job, job->model, &pf->notes, &weights, d), out);
        PL_TRY_GOTO(settle_model(from, d), out);
        pf->files.in_hub_cache = from->origin == PL_ORIGIN_HUB_CACHE;
        pf->files.model_dir = from->weights_dir;
        from->weights_dir = NULL;
    }
    err = pl_model_read(pf->files.config_path, &pf->model, d);
    if (err == PL_ERR_OK && !job->inference)
        err = pl_model_check_trains(&pf->model, pf->files.config_path, d);
out:
    pl_model_ref_finish(&config);
    pl_model_ref_finish(&weights);
    return err;
}

/* --- weights --------------------------------------------------------------------------------- */

const struct pl_program *pl_preflight_whole(const struct pl_preflight *pf) {
    return pf->cut.whole ? pf->cut.whole : pl_preflight_planned(pf)->program;
}

/* The choice of `base_dtype: auto` changes no bit, so nothing may be rounded by it. */
static pl_err check_weights(const struct pl_preflight *pf, struct pl_diag *d) {
    const struct pl_program *p = pl_preflight_whole(pf);
    const bool is_exact = pf->base_was_auto && pl_dtype_is_narrow(p->shape.base_dtype);
    return is_exact ? pl_model_check_exact(p, pf->files.model_dir, d)
                    : pl_model_check_files(p, pf->files.model_dir, d);
}

static pl_err refuse_without_weights(const struct pl_preflight *pf, struct pl_diag *d) {
    return pf->files.model_dir && !pf->files.in_hub_cache ? check_weights(pf, d)
                                                          : pl_model_not_here(pf->job->model, d);
}

static pl_err warn_without_weights(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_diag why = {0};
    pl_err err = refuse_without_weights(pf, &why);
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", why.message);
    pl_text_addf(&pf->notes, "warning: %s; %s\n", why.message, pl_diag_hint_text(&why));
    return PL_ERR_OK;
}

pl_err pl_preflight_weights(struct pl_preflight *pf, bool needed, struct pl_diag *d) {
    bool here = pf->files.model_dir != NULL;
    if (pf->job->init != PL_INIT_PRETRAINED) return PL_ERR_OK;
    if (here) PL_TRY(pl_model_has_weights(pf->files.model_dir, &here, d));
    if (!here) return needed ? refuse_without_weights(pf, d) : warn_without_weights(pf, d);
    PL_TRY(check_weights(pf, d));
    /* Files that cannot be read were refused above. */
    (void)pl_model_note_surplus(pl_preflight_whole(pf), pf->files.model_dir, &pf->notes, NULL);
    return PL_ERR_OK;
}

static pl_err check_adapter(const struct pl_preflight *pf, struct pl_diag *d) {
    char *path;
    if (pf->job->device == PL_DEVICE_NULL) return PL_ERR_OK;
    PL_TRY(pl_find_adapter(pf->job, &path, d));
    pl_err err = path ? pl_adapter_check_files(pl_preflight_whole(pf), path, d) : PL_ERR_OK;
    free(path);
    return err;
}

/* --- a checkpoint that is resumed ------------------------------------------------------------ */

/* Chats of a run that is resumed show the day that they showed when it began. */
static void keep_chat_day(struct pl_preflight *pf) {
    const uint32_t day = pf->files.resume_state.chat_day;
    if (!day || pf->job->chat_date) return;
    snprintf(pf->spec.facts.chat_date, sizeof pf->spec.facts.chat_date, "%04u-%02u-%02u",
             day / 10000, day / 100 % 100, day % 100);
}

/* Returns the facts of a record that a resumed run keeps. */
static struct pl_kept kept_of(const struct pl_run_state *s, const json_t *job) {
    return (struct pl_kept){.is = true,
                            .has_recovered = s->oom_recoveries > 0,
                            .batch_size = s->batch_size,
                            .loss_chunk_tokens = s->loss_chunk_tokens,
                            .samples = s->global_batch,
                            .gradient_dtype = pl_record_get(job, "gradient_dtype"),
                            .mlp_chunk_tokens = pl_record_get(job, "mlp_chunk_tokens"),
                            .unpack_buffer = pl_record_get(job, "unpack_buffer"),
                            .keep_first_pass = pl_record_get(job, "keep_first_pass"),
                            .precompute_reference = pl_record_get(job, "precompute_reference")};
}

static pl_err read_resumed(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_run_record r;
    PL_TRY(pl_run_record_read(&r, pf->files.resume_path, d));
    pf->files.resume_state = r.state;
    pf->files.resume_job = r.job ? json_incref(r.job) : NULL;
    if (!r.files)
        pl_text_addf(&pf->notes,
                     "%s is of an earlier version: it has no digests, and does not record the job "
                     "and data that it was trained with\n",
                     pf->files.resume_path);
    pl_run_record_finish(&r);
    return PL_ERR_OK;
}

pl_err pl_preflight_find_resume(struct pl_preflight *pf, struct pl_diag *d) {
    const char *resume = pf->job->resume;
    if (strcmp(resume, "never") == 0) return PL_ERR_OK;
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "force") == 0)
        PL_TRY(pl_checkpoint_find(pf->job->output_dir, &pf->files.resume_path, &pf->notes, d));
    else if (!(pf->files.resume_path = pl_strdup(resume)))
        return pl_host_oom(d, "a path");
    if (!pf->files.resume_path) return PL_ERR_OK;
    PL_TRY(read_resumed(pf, d));
    keep_chat_day(pf);
    pf->spec.facts.kept = kept_of(&pf->files.resume_state, pf->files.resume_job);
    pl_resolve(&pf->spec);
    return PL_ERR_OK;
}

/* The walk is a function of the position and the rows, so with other rows it is another walk. A
 * checkpoint that records its job is compared by the data's content. */
static void compare_data(struct pl_preflight *pf) {
    const struct pl_run_state *then = &pf->files.resume_state;
    uint64_t rows = pf->data.walk.epoch_rows, tokens = pl_data_stats(pf->data.rows)->tokens;
    if (pf->files.resume_job || !then->epoch_rows ||
        (then->epoch_rows == rows && then->data_tokens == tokens))
        return;
    pl_text_addf(&pf->notes,
                 "%s was saved over other data: an epoch had %llu rows, the files %llu tokens; now "
                 "%llu and %llu. Rows may be seen twice, or not at all, in this epoch\n",
                 pf->files.resume_path, (unsigned long long)then->epoch_rows,
                 (unsigned long long)then->data_tokens, (unsigned long long)rows,
                 (unsigned long long)tokens);
}

/* An adapter fits any base of the same shapes, and means something on one of them. */
static void compare_base(struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    const char *now = job->model ? job->model : job->model_config;
    struct pl_adapter_config c;
    if (!pl_mode_adapts(job->mode) ||
        pl_adapter_config_read(&c, pf->files.resume_path, NULL) != PL_ERR_OK)
        return; /* loading it will say what is wrong */
    const char *then = json_string_value(json_object_get(c.root, "base_model_name_or_path"));
    if (then && now && strcmp(then, now) != 0)
        pl_text_addf(&pf->notes, "the adapter of %s was trained on `%s` and continues on `%s`\n",
                     pf->files.resume_path, then, now);
    pl_adapter_config_finish(&c);
}

void pl_preflight_compare(struct pl_preflight *pf) {
    if (!pf->files.resume_path) return;
    compare_data(pf);
    compare_base(pf);
}

/* Checks what is certain of the record before the data are read. */
static pl_err make_early_record(const struct pl_preflight *pf, json_t **out, struct pl_diag *d) {
    struct pl_preflight now = *pf; /* what it owns stays that of *pf */
    now.job = &now.spec.job;
    pl_preflight_take_built(&now.spec, pl_preflight_planned(pf)->program);
    return pl_record_make(&now, out, d);
}

/* Whatever it was trained by and on that is not data; what may differ is told when all is known. */
static pl_err compare_early(struct pl_preflight *pf, bool judges_output, struct pl_diag *d) {
    json_t *record = NULL;
    struct pl_text told_later = {0};
    PL_TRY(make_early_record(pf, &record, d));
    pl_err err = pl_record_check_resumed(pf, record, &told_later, d);
    if (err == PL_ERR_OK && judges_output) err = pl_output_dir_judge(pf, record, d);
    pl_text_finish(&told_later);
    json_decref(record);
    return err;
}

pl_err pl_preflight_files(struct pl_preflight *pf, const struct pl_admission *how,
                          struct pl_diag *d) {
    const struct pl_program *p = pl_preflight_planned(pf)->program;
    if (p->shape.sharding >= PL_SHARDING_OPTIMIZER) PL_TRY(pl_cut_init(&pf->cut, p, d));
    PL_TRY(pl_preflight_weights(pf, how->needs_weights, d));
    PL_TRY(check_adapter(pf, d));
    if (how->judges_output || pf->world.size > 1) PL_TRY(pl_record_identify_weights(pf, d));
    PL_TRY(compare_early(pf, how->judges_output, d));
    return pl_preflight_tokenizer(pf, d);
}
