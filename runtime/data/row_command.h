/* row_command.h - the command line that makes rows from a file of another shape.
 *
 * In: the form of the file, and Python's expression of a row.  Out: a line for a shell, which
 * writes rows.jsonl.  Needs: file_kind, unpack.
 *   W1  the line needs Python alone, and gzip or zstd for a compressed file
 *   W2  the name of the file stands in it as 'FILE', which pl_file_hint replaces
 * Use: struct pl_row_source src = {path, PL_SOURCE_LINES};
 *      pl_row_command(&src, "for r in @", "r['row']", &hint); */
#ifndef PL_RUNTIME_DATA_ROW_COMMAND_H
#define PL_RUNTIME_DATA_ROW_COMMAND_H

#include "estimator/base/text.h"

#include <stdbool.h>

enum pl_source_kind {
    PL_SOURCE_LINES,   /* one value per line */
    PL_SOURCE_OBJECTS, /* objects over several lines each */
    PL_SOURCE_LIST,    /* the elements of one array */
    PL_SOURCE_TABLE,   /* CSV, or values separated by tabs */
    PL_SOURCE_PARQUET,
};
struct pl_row_source {
    const char *path; /* borrowed */
    enum pl_source_kind kind;
};

/* Appends the line that prints json.dumps(row) for each r of `loops`, in which @, if present,
 * stands for the values of the file. */
void pl_row_command(const struct pl_row_source *src, const char *loops, const char *row,
                    struct pl_text *out);

#endif
