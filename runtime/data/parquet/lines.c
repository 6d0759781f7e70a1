#include "runtime/data/parquet/lines.h"

#include "estimator/base/alloc.h"
#include "runtime/data/parquet/row_json.h"
#include "runtime/data/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH ((size_t)1 << 20)

/* A file that is being written out. */
struct decoding {
    struct pl_carquet c;
    struct pl_carquet_reader *reader;
    struct pl_parquet_tree tree;
    struct pl_parquet_leaves leaves;
    struct pl_parquet_writer writer;
    struct pl_text out;
    bool *reads; /* owned, by node: a column of the row that is read */
    bool whole;  /* the row has all columns (R2) */
    const char *path;
    int to;
    uint64_t bytes; /* written so far */
};

static pl_err flush(struct decoding *x, struct pl_diag *d) {
    if (x->out.failed) return pl_host_oom(d, "the rows of a Parquet file");
    for (size_t done = 0; done < x->out.len;) {
        const ssize_t put = write(x->to, x->out.data + done, x->out.len - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return pl_unpacked_no_room(x->path, d);
        done += (size_t)put;
    }
    x->bytes += x->out.len;
    x->out.len = 0;
    return PL_ERR_OK;
}

/* --- columns ---------------------------------------------------------------------------------- */
/* Walks over the columns of the row. */
#define EACH_COLUMN(x, i)                                                                          \
    uint32_t i = 1;                                                                                \
    i < (x)->tree.n;                                                                               \
    i = (x)->tree.nodes[i].end

/* A column that tokens are made of, and whose values JSON has no one way to write. */
static pl_err refuse_column(const struct decoding *x, uint32_t i, struct pl_diag *d) {
    const struct pl_parquet_node *node = &x->tree.nodes[i];
    pl_diag_at(d, PL_ERR_DATA_FIELD, x->path, 1, 0,
               "column `%s` has values of type %s, which no row of text has", node->name,
               node->type);
    pl_diag_hint(d, "write the column as texts or numbers: `cast` of pyarrow, or a `str` of its "
                    "values");
    return PL_ERR_DATA_FIELD;
}

static pl_err choose_columns(struct decoding *x, const struct pl_parquet_wish *wish,
                             struct pl_diag *d) {
    x->reads = pl_calloc(x->tree.n, sizeof *x->reads);
    if (!x->reads) return pl_host_oom(d, "the columns of a Parquet file");
    for (EACH_COLUMN(x, i)) {
        const struct pl_parquet_node *node = &x->tree.nodes[i];
        x->reads[i] = wish->reads(wish->ctx, node->name);
        const bool other = node->shape == PL_PARQUET_LEAF && node->value == PL_PARQUET_OTHER;
        if (other && wish->takes(wish->ctx, node->name)) return refuse_column(x, i, d);
    }
    return PL_ERR_OK;
}

static void close_column(struct decoding *x, uint32_t i) {
    const struct pl_parquet_node *node = &x->tree.nodes[i];
    for (uint32_t k = 0; k < node->leaves; k++)
        pl_parquet_leaf_close(&x->leaves, node->leaf + k);
}

/* The leaves of a column stand before a row, or all at the end. */
static pl_err check_column(struct decoding *x, uint32_t i, bool at_end, struct pl_diag *d) {
    const struct pl_parquet_node *node = &x->tree.nodes[i];
    for (uint32_t k = node->leaf; k < node->leaf + node->leaves; k++) {
        const struct pl_parquet_leaf *leaf = &x->leaves.leaf[k];
        if (leaf->repetition) return pl_parquet_damaged(&x->leaves, k, "its lists end late", d);
        if (at_end && leaf->definition >= 0)
            return pl_parquet_damaged(&x->leaves, k, "it has more rows than its row group", d);
    }
    return PL_ERR_OK;
}

/* --- rows ------------------------------------------------------------------------------------- */
static pl_err write_row(struct decoding *x, struct pl_diag *d) {
    bool any = false;
    pl_text_add(&x->out, "{");
    for (EACH_COLUMN(x, i)) {
        if (!x->reads[i] && !x->whole) {
            pl_parquet_write_unread(&x->writer, i, &any);
            continue;
        }
        PL_TRY(check_column(x, i, false, d));
        PL_TRY(pl_parquet_write_member(&x->writer, i, &any, d));
        if (!x->reads[i]) close_column(x, i);
    }
    pl_text_add(&x->out, "}\n");
    x->whole = false;
    x->leaves.row++;
    return x->out.len < FLUSH ? PL_ERR_OK : flush(x, d);
}

static pl_err write_group(struct decoding *x, int32_t group, struct pl_diag *d) {
    struct pl_carquet_group facts = {0};
    if (x->c.reader_row_group_metadata(x->reader, group, &facts) != 0 || facts.rows < 0)
        return pl_parquet_damaged(&x->leaves, x->leaves.n, "a row group has no rows", d);
    if (!facts.rows) return PL_ERR_OK;
    for (EACH_COLUMN(x, i)) {
        const struct pl_parquet_node *node = &x->tree.nodes[i];
        for (uint32_t k = 0; (x->reads[i] || x->whole) && k < node->leaves; k++)
            PL_TRY(pl_parquet_leaf_open(&x->leaves, node->leaf + k, group, d));
    }
    for (int64_t row = 0; row < facts.rows; row++)
        PL_TRY(write_row(x, d));
    for (EACH_COLUMN(x, i)) {
        if (x->reads[i]) PL_TRY(check_column(x, i, true, d));
        close_column(x, i);
    }
    return PL_ERR_OK;
}

static pl_err decode(struct decoding *x, FILE *file, const struct pl_parquet_wish *wish,
                     struct pl_diag *d) {
    struct pl_carquet_error e = {.code = 0};
    PL_TRY(pl_carquet_load(&x->c, x->path, d));
    x->reader = x->c.reader_open_file(file, NULL, &e);
    if (!x->reader) return pl_parquet_damaged(&x->leaves, 0, e.message, d);
    PL_TRY(pl_parquet_tree_make(&x->tree, &x->c, x->c.reader_schema(x->reader), x->path, d));
    PL_TRY(pl_parquet_leaves_create(&x->leaves, &x->c, x->reader, &x->tree, x->path, d));
    PL_TRY(choose_columns(x, wish, d));
    for (int32_t group = 0; group < x->c.reader_num_row_groups(x->reader); group++)
        PL_TRY(write_group(x, group, d));
    return flush(x, d);
}

pl_err pl_parquet_write_lines(FILE *file, const char *path, const struct pl_parquet_wish *wish,
                              int to, uint64_t *bytes, struct pl_diag *d) {
    struct decoding *x = pl_calloc(1, sizeof *x);
    if (!x) return pl_host_oom(d, "a Parquet file");
    x->path = x->leaves.path = path;
    x->leaves.row = 1;
    x->to = to;
    x->whole = true;
    x->writer = (struct pl_parquet_writer){&x->tree, &x->leaves, &x->out};
    const pl_err err = decode(x, file, wish, d);
    *bytes = x->bytes;
    pl_parquet_leaves_destroy(&x->leaves);
    pl_parquet_tree_finish(&x->tree);
    if (x->reader) x->c.reader_close(x->reader);
    pl_carquet_unload(&x->c);
    pl_text_finish(&x->out);
    free(x->reads);
    free(x);
    return err;
}
