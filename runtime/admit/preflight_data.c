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
    for (uint32_t i = 0; i < pl_data_files(pf->data); i++) {
        const struct pl_data_file *f = pl_data_file(pf->data, i);
        const uint64_t held = rows_in(&pf->held, f);
        if (!held || rows_in(&pf->left_out, f) < f->rows) continue;
        pl_text_addf(&pf->notes,
                     "%s: no row of it is trained on: `val_set_size` holds out all of its %llu "
                     "rows; `split: eval` names rows for evaluation\n",
                     f->path, (unsigned long long)held);
    }
}

static pl_err hold_out(struct pl_preflight *pf, const struct pl_holdout *untrained,
                       struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    const uint64_t rows = pl_data_rows(pf->data) - untrained->n;
    if (pf->eval_data) pf->eval_rows = pl_data_rows(pf->eval_data);
    if (pf->eval_data || job->val_set_size <= 0) return PL_ERR_OK;
    uint64_t held = job->val_set_size < 1 ? (uint64_t)ceil((double)rows * job->val_set_size)
                                          : (uint64_t)job->val_set_size;
    if (held >= rows)
        return pl_job_error(job, PL_KEY_val_set_size, PL_ERR_CONFIG_RANGE, d,
                            "val_set_size holds out %llu of %llu rows, none is left to train on",
                            (unsigned long long)held, (unsigned long long)rows);
    PL_TRY(pl_holdout_draw(&pf->held, pf->data, untrained, held, job->seed, d));
    pf->eval_rows = held;
    pf->eval_data = pf->data;
    return PL_ERR_OK;
}

/* In a circle every row keeps its place. */
static pl_err split_rows(struct pl_preflight *pf, struct pl_diag *d) {
    struct pl_holdout untrained = {0};
    pl_err err;
    if (!pl_job_reads_in_circle(pf->job))
        PL_TRY_GOTO(pl_holdout_untrained(&untrained, pf->data, d), out);
    PL_TRY_GOTO(hold_out(pf, &untrained, d), out);
    PL_TRY_GOTO(pl_holdout_join(&pf->left_out, &untrained, &pf->held, d), out);
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
    PL_TRY(pl_data_read(pf->data, &pf->notes, told, d));
    record_chat(pf, pf->data);
    return pf->eval_data ? pl_data_read(pf->eval_data, &pf->notes, told, d) : PL_ERR_OK;
}

pl_err pl_preflight_tokenizer(struct pl_preflight *pf, struct pl_diag *d) {
    PL_TRY(pl_data_begin_split(pf->job, &pf->model, PL_SPLIT_TRAIN, &pf->data, d));
    return pl_data_begin_split(pf->job, &pf->model, PL_SPLIT_EVAL, &pf->eval_data, d);
}

pl_err pl_preflight_data(struct pl_preflight *pf, struct pl_progress *progress, struct pl_diag *d) {
    const struct pl_job *job = pf->job;
    PL_TRY(pl_data_find(pf->data, d));
    if (pf->eval_data) PL_TRY(pl_data_find(pf->eval_data, d));
    pl_err err = read_rows(pf, progress, d);
    if (progress) pl_progress_clear(progress);
    if (err != PL_ERR_OK) return err;
    PL_TRY(split_rows(pf, d));
    if (pf->eval_data) record_chat(pf, pf->eval_data);
    uint64_t pack_tokens = job->packing ? job->max_seq_length : 0;
    if (pf->held.n)
        pl_walk_held(&pf->eval_walk, &pf->held);
    else
        pl_walk_init(&pf->eval_walk, 0, pf->eval_rows, false, 0);
    pf->source = (struct pl_batch_source){pf->data, &pf->walk, pack_tokens};
    pf->eval_source = (struct pl_batch_source){pf->eval_data, &pf->eval_walk, pack_tokens};
    PL_TRY(pl_walk_mix(&pf->walk, pf->data, &pf->left_out, job->shuffle, job->seed, d));
    pf->walk.circle = pl_job_reads_in_circle(job);
    return PL_ERR_OK;
}
