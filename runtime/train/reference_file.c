#include "runtime/train/reference_file.h"

#include "estimator/base/alloc.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"

#include <stdlib.h>
#include <string.h>

#define FILE_NAME "reference.bin"

static const char magic[8] = {'P', 'L', 'R', 'E', 'F', 'E', 'R', '1'};

static int by_key(const void *a, const void *b) {
    const struct pl_reference_row *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

pl_err pl_reference_save(const struct pl_reference *t, struct pl_outbox *o, struct pl_diag *d) {
    struct pl_reference_row *sorted = pl_malloc((size_t)(t->n + 1) * sizeof *sorted);
    uint64_t n = 0;
    if (!sorted) return pl_host_oom(d, "the reference");
    for (uint64_t i = 0; i < t->cap; i++)
        if (t->rows[i].key) sorted[n++] = t->rows[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_key);
    pl_err err = pl_outbox_open(o, FILE_NAME, d);
    if (err == PL_ERR_OK) err = pl_outbox_write(o, magic, sizeof magic, d);
    if (err == PL_ERR_OK) err = pl_outbox_write(o, sorted, n * sizeof *sorted, d);
    if (err == PL_ERR_OK) err = pl_outbox_close(o, d);
    free(sorted);
    return err;
}

static pl_err damaged(const char *path, struct pl_diag *d) {
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                      "the values of the reference are damaged");
}

/* Adds the rows of the file's content. */
static pl_err take_rows(struct pl_reference *t, const char *text, uint64_t bytes, const char *path,
                        struct pl_diag *d) {
    struct pl_reference_row row;
    uint64_t last = 0;
    if (bytes < sizeof magic || memcmp(text, magic, sizeof magic) != 0 ||
        (bytes - sizeof magic) % sizeof row)
        return damaged(path, d);
    for (uint64_t at = sizeof magic; at < bytes; at += sizeof row) {
        memcpy(&row, text + at, sizeof row);
        if (row.key <= last) return damaged(path, d);
        last = row.key;
        PL_TRY(pl_reference_put(t, row.key, row.value, d));
    }
    return PL_ERR_OK;
}

static pl_err read_file(struct pl_reference *t, const char *checkpoint, const json_t *entry,
                        struct pl_diag *d) {
    char *path = pl_path_join(checkpoint, FILE_NAME), *text = NULL;
    uint64_t bytes = 0;
    pl_err err =
        path ? pl_manifest_check_file(checkpoint, FILE_NAME, entry, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = pl_file_read(path, UINT64_MAX, &text, &bytes, d);
    if (err == PL_ERR_OK) err = take_rows(t, text, bytes, path, d);
    free(text);
    free(path);
    return err;
}

pl_err pl_reference_load(struct pl_reference *t, const char *checkpoint, struct pl_diag *d) {
    struct pl_run_record record;
    PL_TRY(pl_run_record_read(&record, checkpoint, d));
    const json_t *entry = record.files ? json_object_get(record.files, FILE_NAME) : NULL;
    pl_err err = entry ? read_file(t, checkpoint, entry, d) : PL_ERR_OK;
    pl_run_record_finish(&record);
    return err;
}
