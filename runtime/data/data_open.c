/* data_open.c - the data of a job: its entries, and the tokenizer where one needs it. */
#include "runtime/data/data.h"
#include "runtime/data/data_state.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job_values.h"

#include <stdlib.h>
#include <string.h>

static pl_err open_tokenizer(struct pl_data *data, struct pl_diag *d) {
    for (uint32_t i = 0; i < data->entries.n; i++) {
        const struct pl_dataset *entry = &data->entries.items[i];
        const struct pl_format *f = pl_format_find(entry->format, data->job->stage);
        if (pl_format_written(&entry->columns) || (f && pl_format_needs_tokenizer(f)))
            return pl_encoder_open(&data->parser.encoder, data->job, data->model, d);
    }
    return PL_ERR_OK;
}

/* Takes the items of *entries. */
static pl_err begin(const struct pl_job *job, const struct pl_model *m,
                    struct pl_dataset_list *entries, struct pl_data **out, struct pl_diag *d) {
    struct pl_data *data = pl_calloc(1, sizeof *data);
    if (!data || pthread_mutex_init(&data->lock, NULL) != 0) {
        free(data);
        free(entries->items);
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %u data files", entries->n);
    }
    data->job = job;
    data->model = m;
    data->unpacked = PL_UNPACKED_NONE;
    data->entries = *entries;
    data->prefers = pl_job_prefers(job);
    data->max_tokens = (uint64_t)job->max_seq_length * pl_job_group(job);
    data->parser.rule =
        (struct pl_preference_rule){job->stage, job->truncation, job->max_seq_length};
    data->parser.ignores_weights = job->row_weights == PL_TRI_FALSE;
    data->overlength = job->overlength;
    data->positions = m->n_ropes && m->rope[0].type == PL_ROPE_DEFAULT ? m->max_positions : 0;
    pl_err err = open_tokenizer(data, d);
    if (err == PL_ERR_OK)
        *out = data;
    else
        pl_data_close(&data);
    return err;
}

static pl_err open_begun(struct pl_data *begun, struct pl_text *notes, struct pl_data **out,
                         struct pl_diag *d) {
    pl_err err = pl_data_find(begun, d);
    if (err == PL_ERR_OK) err = pl_data_read(begun, notes, NULL, d);
    if (err == PL_ERR_OK)
        *out = begun;
    else
        pl_data_close(&begun);
    return err;
}

pl_err pl_data_open(const struct pl_job *job, const struct pl_model *m,
                    const struct pl_dataset_list *list, struct pl_text *notes, struct pl_data **out,
                    struct pl_diag *d) {
    struct pl_dataset_list entries = {.items = pl_calloc((size_t)list->n + 1, sizeof *list->items)};
    struct pl_data *begun = NULL;
    *out = NULL;
    if (!entries.items) return pl_host_oom(d, "the list of data files");
    memcpy(entries.items, list->items, list->n * sizeof *list->items);
    entries.n = list->n;
    PL_TRY(begin(job, m, &entries, &begun, d));
    return open_begun(begun, notes, out, d);
}

pl_err pl_data_begin_split(const struct pl_job *job, const struct pl_model *m, uint32_t split,
                           struct pl_data **out, struct pl_diag *d) {
    const bool apart = split == PL_SPLIT_EVAL && job->eval_datasets.n;
    const struct pl_dataset_list *all = apart ? &job->eval_datasets : &job->datasets;
    bool single = job->dataset && split == PL_SPLIT_TRAIN;
    struct pl_dataset_list list = {.items = pl_calloc((size_t)all->n + 1, sizeof *list.items)};
    *out = NULL;
    if (!list.items) return pl_host_oom(d, "the list of data files");
    if (single) {
        list.items[list.n] = PL_DATASET_DEFAULT;
        list.items[list.n++].path = job->dataset;
    }
    for (uint32_t i = 0; i < all->n; i++)
        if (apart || all->items[i].split == split) list.items[list.n++] = all->items[i];
    if (list.n) return begin(job, m, &list, out, d);
    free(list.items);
    return PL_ERR_OK;
}

pl_err pl_data_open_split(const struct pl_job *job, const struct pl_model *m, uint32_t split,
                          struct pl_text *notes, struct pl_data **out, struct pl_diag *d) {
    struct pl_data *begun = NULL;
    *out = NULL;
    PL_TRY(pl_data_begin_split(job, m, split, &begun, d));
    return begun ? open_begun(begun, notes, out, d) : PL_ERR_OK;
}
