/* unpack_parquet.h - the content of a Parquet file: its rows as lines of JSON.
 *
 * In: an open file, and which of its columns are read.  Out: a descriptor of its content.
 * Needs: lines, unpack.
 *   P1  the content goes to the file without a name that compressed files are unpacked into, one
 *       line for each row, so that the line of a message is the number of the row
 *   P2  a process of its own decodes the file: one that is damaged may crash the library that does
 *       it, and ends that process alone
 * Use: if (pl_is_parquet(fd)) pl_unpack_parquet(fd, path, &wish, &all, &content, &d); */
#ifndef PL_RUNTIME_DATA_PARQUET_UNPACK_PARQUET_H
#define PL_RUNTIME_DATA_PARQUET_UNPACK_PARQUET_H

#include "runtime/data/parquet/lines.h"
#include "runtime/data/unpack.h"

bool pl_is_parquet(int fd);
/* Errors are those of pl_parquet_write_lines, and PL_ERR_DATA_FILE: there is no room for the
 * content, or no process. */
pl_err pl_unpack_parquet(int fd, const char *path, const struct pl_parquet_wish *wish,
                         struct pl_unpacked *all, struct pl_content *out, struct pl_diag *d);

#endif
