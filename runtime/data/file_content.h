/* file_content.h - the content of a data file, from which its rows are split: the file itself, or
 * what a compressed file or a Parquet file holds.
 *
 * In: an open file, and the parser and the format of its rows.  Out: its content, and its kind.
 * Needs: formats, unpack, parquet.
 * Use: PL_TRY(pl_file_content(&file, &all, &content, &kind, &d)); */
#ifndef PL_RUNTIME_DATA_FILE_CONTENT_H
#define PL_RUNTIME_DATA_FILE_CONTENT_H

#include "runtime/data/formats.h"
#include "runtime/data/unpack.h"

struct pl_content_source {
    int fd;
    const char *path;
    struct pl_row_parser *parser;   /* its shape is that of the file */
    const struct pl_format *format; /* NULL: not known yet */
};

/* *parquet: the content is a line for each row of a Parquet file. Errors are those of pl_unpack and
 * pl_unpack_parquet. */
pl_err pl_file_content(const struct pl_content_source *file, struct pl_unpacked *all,
                       struct pl_content *out, bool *parquet, struct pl_diag *d);

#endif
