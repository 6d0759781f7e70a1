/* row_json.h - one value of a Parquet file as JSON, put together from the entries of its leaves.
 *
 * In: leaves, each with the value's first entry at its front.  Out: JSON; the leaves stand after
 * the value.  Needs: leaves.
 *   J1  the work follows Dremel's assembly of records: a node is present where the definition level
 *       of its first leaf is at least its own, and a list continues while the repetition level of
 *       its first leaf is its own
 * The depth of the calls is that of the tree.
 * Use: pl_parquet_write_member(&w, node, &any, &d); */
#ifndef PL_RUNTIME_DATA_PARQUET_WRITE_H
#define PL_RUNTIME_DATA_PARQUET_WRITE_H

#include "estimator/base/text.h"
#include "runtime/data/parquet/leaves.h"

struct pl_parquet_writer {
    const struct pl_parquet_tree *tree;
    struct pl_parquet_leaves *leaves;
    struct pl_text *out;
};

/* Writes `"name":value` of a child of the row or of a struct, after a comma where *any, and sets
 * *any; nothing if it is null. */
pl_err pl_parquet_write_member(struct pl_parquet_writer *w, uint32_t node, bool *any,
                               struct pl_diag *d);
/* Writes `"name":true`. */
void pl_parquet_write_unread(struct pl_parquet_writer *w, uint32_t node, bool *any);

#endif
