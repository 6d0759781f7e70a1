#include "runtime/train/reference.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/digest.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"
#include "runtime/checkpoint/run_state.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 1024

/* Labels may be those of a prompt that is trained; the place of the answer says what is scored. */
uint64_t pl_reference_key(const struct pl_step_batch *b, uint64_t i) {
    const struct pl_sample *s = &b->samples[i];
    const uint64_t numbers[] = {s->n, b->members[i].answer, b->weights[i].tail};
    struct pl_digest h;
    pl_digest_init(&h, 0);
    pl_digest_add(&h, numbers, sizeof numbers);
    pl_digest_add(&h, s->ids, s->n * sizeof *s->ids);
    const uint64_t key = pl_digest_value(&h);
    return key ? key : 1;
}

/* The row of a key, or the empty one where it would stand; there is one. */
static struct pl_reference_row *find_row(const struct pl_reference *t, uint64_t key) {
    uint64_t i = key % t->cap;
    while (t->rows[i].key && t->rows[i].key != key)
        i = i + 1 == t->cap ? 0 : i + 1;
    return &t->rows[i];
}

bool pl_reference_get(const struct pl_reference *t, uint64_t key, double *value) {
    if (!t->n) return false;
    const struct pl_reference_row *row = find_row(t, key);
    *value = row->value;
    return row->key == key;
}

static pl_err grow(struct pl_reference *t, struct pl_diag *d) {
    struct pl_reference wider = {0};
    if (!pl_u64_mul(t->cap ? t->cap : FIRST_CAPACITY / 2, 2, &wider.cap) ||
        wider.cap > SIZE_MAX / sizeof *wider.rows)
        return pl_host_oom(d, "the reference");
    wider.rows = pl_calloc((size_t)wider.cap, sizeof *wider.rows);
    if (!wider.rows) return pl_host_oom(d, "the reference");
    for (uint64_t i = 0; i < t->cap; i++)
        if (t->rows[i].key) *find_row(&wider, t->rows[i].key) = t->rows[i];
    wider.n = t->n;
    wider.whole = t->whole;
    free(t->rows);
    *t = wider;
    return PL_ERR_OK;
}

pl_err pl_reference_put(struct pl_reference *t, uint64_t key, double value, struct pl_diag *d) {
    if (2 * (t->n + 1) > t->cap) PL_TRY(grow(t, d));
    struct pl_reference_row *row = find_row(t, key);
    if (row->key) return PL_ERR_OK;
    *row = (struct pl_reference_row){key, value};
    t->n++;
    return PL_ERR_OK;
}

void pl_reference_finish(struct pl_reference *t) {
    free(t->rows);
    *t = (struct pl_reference){0};
}

/* --- the file of a checkpoint ----------------------------------------------------------------- */

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

/* F3. Adds the rows of the file's content. */
static pl_err add_rows(struct pl_reference *t, const char *text, uint64_t bytes, const char *path,
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
    if (err == PL_ERR_OK) err = add_rows(t, text, bytes, path, d);
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
