/* lines.h - the rows of a Parquet file as lines of JSON.
 *
 * In: an open file, and which columns are read.  Out: a line for each row.  Needs: leaves.
 *   R1  a line is what the row would be in JSON Lines; a member that is null is absent
 *   R2  the first row has all columns. In later ones a column that is not read is `true`, and its
 *       pages are not decoded
 *   R3  a value that JSON has no one way to write is `true`; where it is a column that is read, the
 *       file is refused by the names of the column and of its type
 * Use: pl_parquet_write_lines(file, path, &wish, fd, &bytes, &d); */
#ifndef PL_RUNTIME_DATA_PARQUET_LINES_H
#define PL_RUNTIME_DATA_PARQUET_LINES_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The wish of the reader of the rows. */
struct pl_parquet_wish {
    bool (*reads)(const void *ctx, const char *name); /* true if it needs what the column holds */
    bool (*takes)(const void *ctx, const char *name); /* true if it makes tokens of it */
    const void *ctx;
};

/* Writes the rows of `file` to the descriptor `to`. PL_ERR_DATA_SYNTAX: the file is damaged, or the
 * library is not there; PL_ERR_DATA_FIELD: R3. */
pl_err pl_parquet_write_lines(FILE *file, const char *path, const struct pl_parquet_wish *wish,
                              int to, uint64_t *bytes, struct pl_diag *d);

#endif
