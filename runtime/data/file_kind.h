/* file_kind.h - files that hold no rows, by their first bytes, and the line that makes rows of
 * them.
 *
 * In: the beginning of a file, unpacked.  Out: what it is, and what to do.  Needs: base.
 * The ending of a name says nothing here: a parquet file that is called rows.jsonl is one.
 * Use: PL_TRY(pl_file_kind_check(path, bytes, n, &d)); */
#ifndef PL_RUNTIME_DATA_FILE_KIND_H
#define PL_RUNTIME_DATA_FILE_KIND_H

#include "estimator/base/diag.h"

#include <stddef.h>

/* PL_ERR_DATA_SYNTAX: the file is of a known kind that holds no rows of text. */
pl_err pl_file_kind_check(const char *path, const char *bytes, size_t n, struct pl_diag *d);
/* Sets a hint in which each 'FILE' is replaced by the path, where that needs no other quotes. */
void pl_file_hint(struct pl_diag *d, const char *hint, const char *path);

#endif
