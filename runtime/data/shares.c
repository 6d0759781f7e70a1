#include "runtime/data/shares.h"

#include "estimator/base/checked.h"
#include "runtime/data/data_content.h"
#include "runtime/data/split.h"

static const struct pl_dataset *entry_of(const struct pl_data *data, uint32_t i) {
    return &data->entries.items[data->files[i].entry];
}

static bool begins_entry(const struct pl_data *data, uint32_t i) {
    return !i || data->files[i - 1].entry != data->files[i].entry;
}

static uint64_t most_samples(const struct pl_dataset *entry) {
    return entry->max_samples ? entry->max_samples : UINT64_MAX;
}

static pl_err count_rows(struct pl_data *data, struct data_file *f, uint64_t *rows,
                         struct pl_diag *d) {
    struct pl_split split;
    struct pl_raw_row row;
    bool more = true;
    uint64_t n = 0;
    PL_TRY(pl_data_unpack(data, f, d));
    PL_TRY(pl_split_open(&split, &f->content, f->path, f->csv, d));
    pl_err err = pl_split_next(&split, &row, &more, d);
    for (; err == PL_ERR_OK && more; n++)
        err = pl_split_next(&split, &row, &more, d);
    pl_split_finish(&split);
    *rows = n - (f->csv && n); /* the first record of CSV is its header */
    return err;
}

static pl_err no_row(const struct pl_data *data, const struct pl_dataset *entry, uint64_t rows,
                     struct pl_diag *d) {
    struct pl_text slice = {0};
    pl_row_slice_write(&entry->slice, &slice);
    pl_diag_at(d, PL_ERR_DATA_EMPTY, data->job->path, entry->line, entry->column,
               "the slice %s takes none of the %llu rows of %s", pl_text_str(&slice),
               (unsigned long long)rows, entry->path);
    pl_diag_hint(d, "`split` of the entry says which rows are read: change it, or add rows");
    pl_text_finish(&slice);
    return PL_ERR_DATA_EMPTY;
}

/* Cuts the rows of the entry that begins with file i; f->most holds the rows of each of its files
 * before. */
static void cut_share(struct pl_data *data, uint32_t i, struct pl_row_range range) {
    uint64_t first = 0;
    for (uint32_t k = i; k < data->n_files && (k == i || !begins_entry(data, k)); k++) {
        struct data_file *f = &data->files[k];
        const uint64_t end = first + f->most, from = pl_u64_max(first, range.from);
        const uint64_t to = pl_u64_max(from, pl_u64_min(end, range.to));
        f->skip = pl_u64_min(from, end) - first;
        f->most = from < end ? to - from : 0;
        first = end;
    }
}

/* Counts the rows of the entry that begins with file i, and gives each of its files its share. */
static pl_err share_slice(struct pl_data *data, uint32_t i, struct pl_diag *d) {
    const struct pl_dataset *entry = entry_of(data, i);
    uint64_t rows = 0;
    for (uint32_t k = i; k < data->n_files && (k == i || !begins_entry(data, k)); k++) {
        PL_TRY(count_rows(data, &data->files[k], &data->files[k].most, d));
        rows += data->files[k].most;
    }
    struct pl_row_range range = pl_row_slice_of(&entry->slice, rows);
    if (range.from == range.to) return no_row(data, entry, rows, d);
    range.to = range.from + pl_u64_min(range.to - range.from, most_samples(entry));
    cut_share(data, i, range);
    return PL_ERR_OK;
}

pl_err pl_data_share(struct pl_data *data, uint32_t i, struct pl_diag *d) {
    uint64_t most;
    if (!pl_row_slice_is_first(&entry_of(data, i)->slice, &most))
        return begins_entry(data, i) ? share_slice(data, i, d) : PL_ERR_OK;
    /* The file has the first rows of its entry that the files before it had not. */
    struct data_file *f = &data->files[i];
    f->most = pl_u64_min(most, most_samples(entry_of(data, i)));
    for (uint32_t k = i; f->most != UINT64_MAX && !begins_entry(data, k); k--)
        f->most -= pl_u64_min(f->most, data->files[k - 1].passed);
    return PL_ERR_OK;
}
