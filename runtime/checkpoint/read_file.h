/* read_file.h - whole files, and what is in a directory. */
#ifndef PL_RUNTIME_CHECKPOINT_READ_FILE_H
#define PL_RUNTIME_CHECKPOINT_READ_FILE_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* True if a directory has anything of this name, links not followed. A directory that cannot be
 * read is an error: a directory that does not answer is not one without the file. */
pl_err pl_dir_holds(const char *dir, const char *name, bool *out, struct pl_diag *d);
/* Returns "dir/name", malloc'd; NULL when out of memory. */
char *pl_path_join(const char *dir, const char *name);
/* Reports "cannot read PATH: " and errno. */
pl_err pl_file_read_error(struct pl_diag *d, const char *path);
/* Reads a whole file into *out, malloc'd and NUL-terminated. */
pl_err pl_file_read(const char *path, uint64_t limit_bytes, char **out, uint64_t *bytes,
                    struct pl_diag *d);

#endif
