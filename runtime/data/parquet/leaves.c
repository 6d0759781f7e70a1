#include "runtime/data/parquet/leaves.h"

#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

pl_err pl_parquet_damaged(const struct pl_parquet_leaves *l, uint32_t i, const char *what,
                          struct pl_diag *d) {
    const bool named = i < l->n;
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, l->path, l->row, 0,
               "the Parquet file cannot be read: %s%s%s%s", named ? "column `" : "",
               named ? l->leaf[i].name : "", named ? "`: " : "", what);
    pl_diag_hint(d, "download or write the file again; pyarrow.parquet.read_table says what it "
                    "finds in it");
    return PL_ERR_DATA_SYNTAX;
}

pl_err pl_parquet_leaves_create(struct pl_parquet_leaves *l, const struct pl_carquet *c,
                                struct pl_carquet_reader *reader, const struct pl_parquet_tree *t,
                                const char *path, struct pl_diag *d) {
    *l = (struct pl_parquet_leaves){.c = c, .reader = reader, .path = path, .row = 1};
    l->leaf = pl_calloc((size_t)t->leaves + 1, sizeof *l->leaf);
    if (!l->leaf) return pl_host_oom(d, "the columns of a Parquet file");
    for (uint32_t i = 1, column = 1; i < t->n; i++) {
        if (i == t->nodes[column].end) column = i;
        if (t->nodes[i].shape != PL_PARQUET_LEAF) continue;
        l->leaf[l->n].name = t->nodes[column].name;
        l->leaf[l->n++].node = &t->nodes[i];
    }
    return PL_ERR_OK;
}

static pl_err open_column(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d) {
    struct pl_parquet_leaf *leaf = &l->leaf[i];
    struct pl_carquet_error e = {.code = 0};
    leaf->held_bytes = 0;
    leaf->column = l->c->reader_get_column(l->reader, leaf->group, (int32_t)i, &e);
    return leaf->column ? PL_ERR_OK : pl_parquet_damaged(l, i, e.message, d);
}

/* The library keeps the pages that it has decoded until their column is closed. */
static pl_err open_again(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d) {
    pl_parquet_leaf_close(l, i);
    PL_TRY(open_column(l, i, d));
    const int64_t read = l->leaf[i].read;
    if (l->c->column_skip(l->leaf[i].column, read) == read) return PL_ERR_OK;
    return pl_parquet_damaged(l, i, "its pages have other values when they are read again", d);
}

/* Returns the bytes that the values of the batch refer to. */
static uint64_t bytes_of_batch(const struct pl_parquet_leaf *leaf) {
    uint64_t bytes = 0, n = 0;
    for (int64_t k = 0; leaf->node->apart && k < leaf->n; k++) {
        struct pl_carquet_bytes value;
        if (leaf->definitions[k] != leaf->node->definition) continue;
        memcpy(&value, leaf->values + n++ * sizeof value, sizeof value);
        bytes += value.n > 0 ? (uint64_t)value.n : 0;
    }
    return bytes;
}

/* Reads the next batch. With a part of one comes the error that ended it, which the next call
 * repeats. */
static pl_err fill(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d) {
    struct pl_parquet_leaf *leaf = &l->leaf[i];
    struct pl_carquet_error e = {.code = 0};
    if (leaf->held_bytes > PL_PARQUET_HELD_BYTES) PL_TRY(open_again(l, i, d));
    leaf->n = l->c->column_read_batch_ex(leaf->column, leaf->values, PL_PARQUET_BATCH,
                                         leaf->definitions, leaf->repetitions, &e);
    leaf->at = 0;
    leaf->value = leaf->values;
    if (leaf->n < 0 || leaf->n > PL_PARQUET_BATCH) return pl_parquet_damaged(l, i, e.message, d);
    leaf->read += leaf->n;
    leaf->held_bytes += bytes_of_batch(leaf);
    return PL_ERR_OK;
}

static pl_err set_front(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d) {
    struct pl_parquet_leaf *leaf = &l->leaf[i];
    const bool ends = leaf->n == 0;
    /* E1 */
    leaf->definition = ends ? -1 : leaf->definitions[leaf->at];
    leaf->repetition = ends ? 0 : leaf->repetitions[leaf->at];
    /* E2 */
    if (leaf->definition > leaf->node->definition || leaf->repetition > leaf->node->repetition ||
        leaf->repetition < 0)
        return pl_parquet_damaged(l, i, "a level is above that of its column", d);
    return PL_ERR_OK;
}

pl_err pl_parquet_leaf_next(struct pl_parquet_leaves *l, uint32_t i, struct pl_diag *d) {
    struct pl_parquet_leaf *leaf = &l->leaf[i];
    if (leaf->definition < 0) return pl_parquet_damaged(l, i, "it ends before its row group", d);
    if (leaf->definition == leaf->node->definition) leaf->value += leaf->node->bytes;
    if (++leaf->at == leaf->n) PL_TRY(fill(l, i, d));
    return set_front(l, i, d);
}

pl_err pl_parquet_leaf_open(struct pl_parquet_leaves *l, uint32_t i, int32_t group,
                            struct pl_diag *d) {
    struct pl_parquet_leaf *leaf = &l->leaf[i];
    if (!leaf->values) leaf->values = pl_calloc(PL_PARQUET_BATCH, leaf->node->bytes);
    if (!leaf->values) return pl_host_oom(d, "a column of a Parquet file");
    leaf->group = group;
    leaf->read = 0;
    PL_TRY(open_column(l, i, d));
    PL_TRY(fill(l, i, d));
    return set_front(l, i, d);
}

void pl_parquet_leaf_close(struct pl_parquet_leaves *l, uint32_t i) {
    if (l->leaf[i].column) l->c->column_reader_free(l->leaf[i].column);
    l->leaf[i].column = NULL;
}

void pl_parquet_leaves_destroy(struct pl_parquet_leaves *l) {
    for (uint32_t i = 0; i < l->n; i++) {
        pl_parquet_leaf_close(l, i);
        free(l->leaf[i].values);
    }
    free(l->leaf);
    *l = (struct pl_parquet_leaves){.leaf = NULL};
}
