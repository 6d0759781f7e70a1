/* preflight_data.c - the data of a job: its files, its rows, the walk over them. */
#include "runtime/admit/preflight_data.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_values.h"
#include "runtime/admit/admission.h"

#include <math.h>
#include <string.h>

static uint64_t rows_in(const struct pl_holdout *h, const struct pl_data_file *f) {
    return pl_holdout_below(h, f->first + f->rows) - pl_holdout_below(h, f->first);
}

/* A file that is named to be trained on, and whose rows are all held out. */
static void note_untrained_files(struct pl_preflight *pf) {
    for (uint32_t i = 0; i < pl_data_files(pf->data.rows); i++) {
        const struct pl_data_file *f = pl_data_file(pf->data.rows, i);
        const uint64_t held = rows_in(&pf->data.held, f);
        if (!held || rows_in(&pf->data.left_out, f) < f->rows) continue;
        pl_text_addf(&pf->notes,
                     "%s: no row of it is trained on: `val_set_size` holds out all of its %llu "
                     "rows; `split: eval` names rows for evaluation\n",
                     f->path, (unsigned long long)held);
    }
}

static pl_err hold_out(struct pl_preflight *pf, const struct pl_holdout *untrained,
                       struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    const uint64_t rows = pl_data_rows(pf->data.rows) - untrained->n;
    if (pf->data.eval) pf->data.n_eval = pl_data_rows(pf->data.eval);
    if (pf->data.eval || job->val_set_size <= 0) return PL_ERR_OK;
    uint64_t held = job->val_set_size < 1 ? (uint64_t)ceil((double)rows * job->val_set_size)
                                          : (uint64_t)job->val_set_size;
    if (held >= rows)
        return pl_job_error(job, PL_KEY_val_set_size, PL_ERR_CONFIG_RANGE, d,
                            "val_set_size holds out %llu of %llu rows, none is left to train on",
                            (unsigned long long)held, (unsigned long long)rows);
    PL_TRY(pl_holdout_draw(&pf->data.held, pf->data.rows, untrained, held, job->seed, d));
    pf->data.n_eval = held;
    pf->data.eval = pf->data.rows;
    return PL_ERR_OK;
}

/* In a circle every row keeps its place. */
static pl_err split_rows(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_holdout untrained = {0};
    pl_err err;
    if (!pl_job_reads_in_circle(pf->job))
        PL_TRY_GOTO(pl_holdout_untrained(&untrained, pf->data.rows, d), out);
    PL_TRY_GOTO(hold_out(pf, &untrained, d), out);
    PL_TRY_GOTO(pl_holdout_join(&pf->data.left_out, &untrained, &pf->data.held, d), out);
    note_untrained_files(pf);
out:
    pl_holdout_finish(&untrained);
    return err;
}

/* The day that chats were rendered on: known before other data is opened, so that it shows the
 * same, on a run over midnight as well. */
static void record_chat(struct pl_preflight *pf, const struct pl_data *data) {
    if (pf->job->chat_date) return;
    (void)pl_data_chat_date(data, pf->spec.facts.chat_date);
    pl_resolve(&pf->spec);
}

static void tell_reading(void *ctx, const struct pl_data_reading *at) {
    pl_progress_reading(ctx, at->path, at->done_bytes, at->bytes, at->rows);
}

static pl_err read_rows(struct pl_preflight *pf, struct pl_progress *progress, struct pl_diag *d) {
    const struct pl_data_watch watch = {tell_reading, progress};
    const struct pl_data_watch *told = progress ? &watch : NULL;
    PL_TRY(pl_data_read(pf->data.rows, &pf->notes, told, d));
    record_chat(pf, pf->data.rows);
    return pf->data.eval ? pl_data_read(pf->data.eval, &pf->notes, told, d) : PL_ERR_OK;
}

/* KTO learns from the difference between good answers and others: rows are looked at until there is
 * one of each. */
static pl_err check_labels(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_sample s = {0};
    bool seen[2] = {false, false};
    pl_err err = PL_ERR_OK;
    if (pf->job->stage != PL_STAGE_KTO) return PL_ERR_OK;
    for (uint64_t row = 0; row < pl_data_rows(pf->data.rows) && !(seen[0] && seen[1]); row++) {
        PL_TRY_GOTO(pl_data_sample(pf->data.rows, row, &s, d), out);
        if (s.n) seen[pl_label_part_flags(s.labels[0]) & PL_PART_UNDESIRED ? 1 : 0] = true;
    }
    if (seen[0] && seen[1]) goto out;
    err = pl_diag_at(d, PL_ERR_DATA_FIELD, pl_data_file(pf->data.rows, 0)->path, 0, 0,
                     "every row has `label: %s`, and KTO learns from the difference",
                     seen[1] ? "false" : "true");
    pl_diag_hint(d, "add rows of the other label, or set `stage: sft`");
out:
    pl_sample_finish(&s);
    return err;
}

pl_err pl_preflight_tokenizer(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(pl_data_begin_split(pf->job, &pf->model, PL_SPLIT_TRAIN, &pf->data.rows, d));
    return pl_data_begin_split(pf->job, &pf->model, PL_SPLIT_EVAL, &pf->data.eval, d);
}

pl_err pl_preflight_data(struct pl_preflight *pf, struct pl_progress *progress, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    PL_TRY(pl_data_find(pf->data.rows, d));
    if (pf->data.eval) PL_TRY(pl_data_find(pf->data.eval, d));
    pl_err err = read_rows(pf, progress, d);
    if (progress) pl_progress_clear(progress);
    if (err != PL_ERR_OK) return err;
    PL_TRY(check_labels(pf, d));
    /* A row that is weighted changes the plan: its targets have weights from then on. */
    pf->spec.facts.weighs_rows = pl_data_stats(pf->data.rows)->weighted_rows > 0;
    pl_resolve(&pf->spec);
    PL_TRY(split_rows(pf, d));
    if (pf->data.eval) record_chat(pf, pf->data.eval);
    uint64_t pack_tokens = job->packing ? job->max_seq_length : 0;
    if (pf->data.held.n)
        pl_walk_held(&pf->data.eval_walk, &pf->data.held);
    else
        pl_walk_init(&pf->data.eval_walk, 0, pf->data.n_eval, false, 0);
    const struct pl_grouping grouping = {.samples = pl_job_prefers(job) ? pl_job_group(job) : 0,
                                         .trains_prompts = job->stage == PL_STAGE_ORPO,
                                         .most_tokens = job->max_seq_length};
    pf->data.source =
        (struct pl_batch_source){pf->data.rows, &pf->data.walk, pack_tokens, grouping};
    pf->data.eval_source =
        (struct pl_batch_source){pf->data.eval, &pf->data.eval_walk, pack_tokens, grouping};
    PL_TRY(
        pl_walk_mix(&pf->data.walk, pf->data.rows, &pf->data.left_out, job->shuffle, job->seed, d));
    pf->data.walk.circle = pl_job_reads_in_circle(job);
    return PL_ERR_OK;
}
