#include "runtime/admit/record.h"

#include "estimator/base/digest.h"
#include "estimator/config/job_text.h"
#include "estimator/config/key_table.h"
#include "runtime/checkpoint/identity.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/data/epoch_steps.h"
#include "runtime/device/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the record of the run");
}

/* --- rows that are no keys: by content ---------------------------------------------------------
 */

static pl_err write_samples(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d) {
    (void)d;
    pl_text_addf(out, "%llu", (unsigned long long)pf->global_batch);
    return PL_ERR_OK;
}

/* Rows that are left out are none of the data that is trained on. */
static pl_err write_data(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d) {
    struct pl_digest h;
    const struct pl_data_stats *s = pl_data_stats(pf->data.rows);
    pl_digest_init(&h, 0);
    for (uint32_t i = 0; i < pl_data_files(pf->data.rows); i++) {
        const struct pl_data_file *f = pl_data_file(pf->data.rows, i);
        struct pl_file_digest file;
        struct pl_diag failure = {0};
        pl_err err = pl_file_digest_read(f->path, &file, &failure);
        if (err != PL_ERR_OK)
            return pl_diag_at(d, err == PL_ERR_HOST_OOM ? err : PL_ERR_DATA_FILE, f->path, 0, 0,
                              "%s", failure.message);
        pl_digest_add(&h, &file, sizeof file);
        pl_digest_add(&h, &f->rows, sizeof f->rows);
        pl_digest_add(&h, &f->weight, sizeof f->weight);
    }
    pl_text_addf(out, "%llu rows, %llu tokens (%llu supervised), xxh64 %016llx",
                 (unsigned long long)(s->rows - pf->data.left_out.n), (unsigned long long)s->tokens,
                 (unsigned long long)s->supervised_tokens, (unsigned long long)pl_digest_value(&h));
    return PL_ERR_OK;
}

static pl_err write_tokenizer(const struct pl_preflight *pf, struct pl_text *out,
                              struct pl_diag *d) {
    uint64_t identity;
    (void)d;
    if (pl_data_tokenizer_identity(pf->data.rows, &identity))
        pl_text_addf(out, "xxh64 %016llx", (unsigned long long)identity);
    return PL_ERR_OK;
}

static pl_err write_config(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d) {
    char *text = NULL;
    uint64_t bytes, identity;
    PL_TRY(pl_model_read_text(pf->files.config_path, &text, &bytes, d));
    pl_err err = pl_config_identity(text, bytes, &identity, d);
    free(text);
    if (err == PL_ERR_OK) pl_text_addf(out, "xxh64 %016llx", (unsigned long long)identity);
    return err;
}

static pl_err write_kernels(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d) {
    struct pl_cpu_level level;
    (void)d;
    if (pl_device_is_cuda(pf->job->device))
        pl_text_addf(out, "sm_%u", pf->q.traits.sm);
    else if (pl_cpu_level(pl_question_multiplies_in_bf16(&pf->q), &level, NULL) == PL_ERR_OK)
        pl_text_add(out, level.name);
    return PL_ERR_OK;
}

static pl_err write_weights(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d) {
    (void)d;
    pl_text_addf(out, "xxh64 %016llx", (unsigned long long)pf->files.weights_identity);
    return PL_ERR_OK;
}

static bool is_planned(const struct pl_preflight *pf) {
    return pf->estimate.planned.plan != NULL;
}

static bool is_settled(const struct pl_preflight *pf) {
    return pf->settled;
}

static bool knows_weights(const struct pl_preflight *pf) {
    return pf->files.weights_known;
}

#define SAMPLES_ROW "samples_per_step"

static const struct {
    const char *name;
    enum pl_key_class class;
    pl_err (*write)(const struct pl_preflight *pf, struct pl_text *out, struct pl_diag *d);
    bool (*is_known)(const struct pl_preflight *pf); /* NULL: always */
} contents[] = {
    {SAMPLES_ROW, PL_KEY_MEANING, write_samples, is_planned},
    {"data", PL_KEY_MEANING, write_data, is_settled},
    {"tokenizer_files", PL_KEY_MEANING, write_tokenizer, is_settled},
    {"config_json", PL_KEY_MEANING, write_config, NULL},
    {"base_weights", PL_KEY_MEANING, write_weights, knows_weights},
    {"kernels", PL_KEY_MAY_CHANGE, write_kernels, NULL},
};
#define N_CONTENTS (sizeof contents / sizeof *contents)

/* --- keys --------------------------------------------------------------------------------------
 */

/* F1, where the key alone does not say what was decided. */
static void write_setting(const struct pl_preflight *pf, enum pl_key_id key, struct pl_text *out) {
    const struct pl_job *job = pf->job;
    if (key == PL_KEY_compute_dtype && job->mode != PL_MODE_QLORA)
        pl_text_add(out, "auto"); /* its effect is the kernels */
    else if (key == PL_KEY_compute_dtype && job->compute_dtype == PL_DTYPE_AUTO)
        pl_text_add(out, pl_dtype_name(job->dtype));
    else if (key == PL_KEY_base_dtype && pf->base_was_auto)
        pl_text_add(out, "auto");
    else if (key == PL_KEY_quant_type)
        pl_text_add(out, pl_quant_name(pl_job_quant(job, &pf->model)));
    else if (key == PL_KEY_warmup_ratio && !isnan(pf->warmup_ratio))
        pl_text_addf(out, "%.17g", pf->warmup_ratio);
    else if (key == PL_KEY_vram_budget && !job->given[key])
        pl_text_add(out, "auto"); /* what is free changes by the minute */
    else
        pl_job_write_key(job, key, out);
}

/* True if a key is decided by now. Some are by the plan that runs, some by the rows of the data. */
static bool is_decided(const struct pl_preflight *pf, enum pl_key_id key) {
    if (pf->settled) return true;
    if (key == PL_KEY_warmup_steps || key == PL_KEY_warmup_ratio) return false;
    if (key == PL_KEY_gradient_dtype || key == PL_KEY_dtype) return is_planned(pf);
    if (key == PL_KEY_optimizer_in_backward) return pf->job->optimizer_in_backward != PL_TRI_AUTO;
    if (key == PL_KEY_precompute_reference) return pf->job->precompute_reference != PL_TRI_AUTO;
    if (key == PL_KEY_row_weights) return pf->job->row_weights != PL_TRI_AUTO;
    return key != PL_KEY_chat_date || pf->job->chat_date;
}

static pl_err add_row(json_t *record, const char *name, struct pl_text *value, struct pl_diag *d) {
    bool whole =
        !value->failed &&
        json_object_set_new(record, name, json_stringn(pl_text_str(value), value->len)) == 0;
    value->len = 0;
    return whole ? PL_ERR_OK : no_memory(d);
}

static pl_err add_settings(const struct pl_preflight *pf, json_t *record, struct pl_text *value,
                           struct pl_diag *d) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    for (uint32_t i = 0; i < n; i++) {
        if (pl_key_class(i) == PL_KEY_THIS_START || !is_decided(pf, i)) continue;
        write_setting(pf, i, value);
        PL_TRY(add_row(record, keys[i].key, value, d));
    }
    return PL_ERR_OK;
}

static pl_err add_rows(const struct pl_preflight *pf, json_t *record, struct pl_text *value,
                       struct pl_diag *d) {
    PL_TRY(add_settings(pf, record, value, d));
    for (size_t i = 0; i < N_CONTENTS; i++) {
        if (contents[i].is_known && !contents[i].is_known(pf)) continue;
        PL_TRY(contents[i].write(pf, value, d));
        PL_TRY(add_row(record, contents[i].name, value, d));
    }
    return PL_ERR_OK;
}

pl_err pl_record_make(const struct pl_preflight *pf, json_t **out, struct pl_diag *d) {
    struct pl_text value = {0};
    json_t *record = json_object();
    pl_err err = record ? add_rows(pf, record, &value, d) : no_memory(d);
    pl_text_finish(&value);
    if (err == PL_ERR_OK)
        *out = record;
    else
        json_decref(record);
    return err;
}

pl_err pl_record_renew(const struct pl_preflight *pf, json_t *record, struct pl_diag *d) {
    struct pl_text value = {0};
    pl_err err = add_settings(pf, record, &value, d);
    pl_text_finish(&value);
    return err;
}

/* Weights that cannot be read are loading's to report. */
pl_err pl_record_identify_weights(struct pl_preflight *pf, struct pl_diag *d) {
    if (!pf->files.model_dir) return PL_ERR_OK;
    pl_err err = pl_weights_identity(pf->files.model_dir, &pf->files.weights_identity, NULL);
    pf->files.weights_known = err == PL_ERR_OK;
    return err == PL_ERR_HOST_OOM ? no_memory(d) : PL_ERR_OK;
}

/* The facts that a version which recorded no job still tells. */
static json_t *record_of_state(const struct pl_run_state *s) {
    char samples[24], seed[24];
    snprintf(samples, sizeof samples, "%llu", (unsigned long long)s->global_batch);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)s->seed);
    return json_pack("{s:s, s:s}", SAMPLES_ROW, samples, "seed", seed);
}

/* --- differences -------------------------------------------------------------------------------
 */

const char *pl_record_get(const json_t *record, const char *row) {
    return json_string_value(json_object_get(record, row));
}

static bool same_row(const json_t *then, const json_t *now, const char *row) {
    const char *a = pl_record_get(then, row), *b = pl_record_get(now, row);
    return !a || !b || strcmp(a, b) == 0;
}

static bool has_value(const json_t *record, const char *row, const char *value) {
    const char *have = pl_record_get(record, row);
    return have && strcmp(have, value) == 0;
}

/* Two ways to say one thing: a ratio of other steps is the same ratio, and the same steps are the
 * same however they were asked for; `base_dtype: auto` changes no bit of the base. */
static bool is_same(const json_t *then, const json_t *now, const char *row) {
    if (same_row(then, now, row)) return true;
    if (strcmp(row, "warmup_steps") == 0) {
        const char *ratio = pl_record_get(now, "warmup_ratio");
        return ratio && *ratio && same_row(then, now, "warmup_ratio");
    }
    if (strcmp(row, "warmup_ratio") == 0) return same_row(then, now, "warmup_steps");
    return strcmp(row, "base_dtype") == 0 &&
           (has_value(then, row, "auto") || has_value(now, row, "auto"));
}

static void compare_row(const json_t *then, const json_t *now, const char *row,
                        enum pl_key_class class, struct pl_record_differences *out) {
    const bool form = class == PL_KEY_FORM;
    struct pl_text *list = form || class == PL_KEY_MEANING ? &out->meaning : &out->others;
    if (is_same(then, now, row)) return;
    if (form) pl_text_addf(&out->form, "%s`%s`", out->form.len ? ", " : "", row);
    const char *a = pl_record_get(then, row), *b = pl_record_get(now, row);
    pl_text_addf(list, "%s%s: %s -> %s", list->len ? "; " : "", row, *a ? a : "(unset)",
                 *b ? b : "(unset)");
}

void pl_record_compare(const json_t *then, const json_t *now, struct pl_record_differences *out) {
    uint32_t n;
    const struct pl_key_info *keys = pl_key_table(&n);
    *out = (struct pl_record_differences){0};
    for (uint32_t i = 0; i < n; i++)
        compare_row(then, now, keys[i].key, pl_key_class(i), out);
    for (size_t i = 0; i < N_CONTENTS; i++)
        compare_row(then, now, contents[i].name, contents[i].class, out);
}

void pl_record_differences_finish(struct pl_record_differences *x) {
    pl_text_finish(&x->form);
    pl_text_finish(&x->meaning);
    pl_text_finish(&x->others);
}

static pl_err refuse_resume(const struct pl_preflight *pf, const struct pl_record_differences *x,
                            struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_CHECKPOINT_MISMATCH, pf->files.resume_path, 0, 0,
               "%s was trained with other settings: %s", pf->files.resume_path,
               pl_text_str(&x->meaning));
    if (x->form.len)
        pl_diag_hint(d,
                     "what is saved under another %s cannot be loaded: set it back; or use "
                     "`resume: never` to start over, or another `output_dir`",
                     pl_text_str(&x->form));
    else
        pl_diag_hint(d, "set them back; or use `resume: force` to resume with these, `resume: "
                        "never` to start over, or another `output_dir`");
    return PL_ERR_CHECKPOINT_MISMATCH;
}

/* Versions before this one let a step take rows of two epochs, as a run of `max_steps` in file
 * order still does: after the same steps such a run stands elsewhere, and its next step would take
 * rows again, or pass over some. */
static pl_err check_place(const struct pl_preflight *pf, bool force, struct pl_text *notes,
                          struct pl_diag *d) {
    const struct pl_run_state *then = &pf->files.resume_state;
    uint64_t place;
    if (!pf->settled || pf->data.walk.circle) return PL_ERR_OK;
    PL_TRY(pl_steps_position(&pf->data.source, pf->global_batch, then->step, &place, d));
    if (place == then->position) return PL_ERR_OK;
    if (force) {
        pl_text_addf(notes,
                     "resume: force - %s stands at sample %llu, where epochs that end with a "
                     "step stand at %llu\n",
                     pf->files.resume_path, (unsigned long long)then->position,
                     (unsigned long long)place);
        return PL_ERR_OK;
    }
    pl_diag_at(
        d, PL_ERR_CHECKPOINT_MISMATCH, pf->files.resume_path, 0, 0,
        "%s stands at sample %llu after step %llu, where epochs that end with a step stand at "
        "%llu: an earlier version saved it, or a run with `max_steps` and `shuffle: false`",
        pf->files.resume_path, (unsigned long long)then->position, (unsigned long long)then->step,
        (unsigned long long)place);
    pl_diag_hint(d,
                 "use `resume: force` to resume from that sample, `resume: never` to start over, "
                 "or another `output_dir`");
    return PL_ERR_CHECKPOINT_MISMATCH;
}

pl_err pl_record_check_resumed(const struct pl_preflight *pf, const json_t *record,
                               struct pl_text *notes, struct pl_diag *d) {
    struct pl_record_differences x;
    const bool force = strcmp(pf->job->resume, "force") == 0;
    if (!pf->files.resume_path) return PL_ERR_OK;
    json_t *then = pf->files.resume_job ? json_incref(pf->files.resume_job)
                                        : record_of_state(&pf->files.resume_state);
    if (!then) return no_memory(d);
    pl_record_compare(then, record, &x);
    pl_err err = PL_ERR_OK;
    if (x.form.failed || x.meaning.failed || x.others.failed)
        err = no_memory(d);
    else if (x.form.len || (x.meaning.len && !force))
        err = refuse_resume(pf, &x, d);
    else if (x.meaning.len)
        pl_text_addf(notes, "resume: force - %s was trained with other settings: %s\n",
                     pf->files.resume_path, pl_text_str(&x.meaning));
    if (x.others.len)
        pl_text_addf(notes, "other settings than %s was saved with: %s\n", pf->files.resume_path,
                     pl_text_str(&x.others));
    pl_record_differences_finish(&x);
    json_decref(then);
    return err == PL_ERR_OK ? check_place(pf, force, notes, d) : err;
}
