/* file_kind.h - recognises files without rows by their first bytes, and gives the line that makes
 * rows of them.
 *
 * In: the beginning of a file, unpacked.  Out: its kind, and a hint.  Needs: base. The ending of
 * the name is ignored: a parquet file that is called rows.jsonl is one.
 * Use: PL_TRY(pl_file_kind_check(path, bytes, n, &d)); */
#ifndef PL_RUNTIME_DATA_FILE_KIND_H
#define PL_RUNTIME_DATA_FILE_KIND_H

#include "estimator/base/diag.h"

#include <stddef.h>

/* PL_ERR_DATA_SYNTAX: the file is of a known kind that holds no rows of text. */
pl_err pl_file_kind_check(const char *path, const char *bytes, size_t n, struct pl_diag *d);
/* Sets a hint in which each 'FILE' is replaced by the path, unless that needs other quotes. */
void pl_file_hint(struct pl_diag *d, const char *hint, const char *path);

#endif
