/* read_file.h - whole files, and what is in a directory. */
#ifndef PL_RUNTIME_CHECKPOINT_READ_FILE_H
#define PL_RUNTIME_CHECKPOINT_READ_FILE_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* True if a directory has anything of this name, links not followed. A directory that cannot be
 * read is an error: a directory that does not answer is not one without the file. */
pl_err pl_dir_holds(const char *dir, const char *name, bool *out, struct pl_diag *d);
/* malloc'd "dir/name", NULL when out of memory. */
char *pl_path_join(const char *dir, const char *name);
/* "cannot read PATH: " and errno. */
pl_err pl_file_read_error(struct pl_diag *d, const char *path);
/* Whole file into malloc'd NUL-terminated *out. */
pl_err pl_file_read(const char *path, uint64_t limit_bytes, char **out, uint64_t *bytes,
                    struct pl_diag *d);

#endif
