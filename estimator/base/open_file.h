/* open_file.h - opening what must be a file.
 *
 * In: a path from a person or from elsewhere.  Out: a descriptor to read from.
 *   R1  no call waits: a FIFO without a writer, a terminal and a device are refused, not read
 *   R2  what was looked at is what is read: the kind is that of the open descriptor
 * Use: int fd = pl_open_file(path, NULL, &why);
 *      if (fd < 0) return pl_diag_at(d, err, path, 0, 0, "cannot open: %s", why); */
#ifndef PL_ESTIMATOR_BASE_OPEN_FILE_H
#define PL_ESTIMATOR_BASE_OPEN_FILE_H

#include "estimator/base/diag.h"

#include <stdio.h>
#include <sys/stat.h>

/* A descriptor for reading, -1 unless `path` is a regular file: errno and *why then say why, errno
 * EISDIR for a directory and EINVAL for another kind. *why lives until the next strerror(). `st`
 * and `why` may be NULL. */
int pl_open_file(const char *path, struct stat *st, const char **why);
/* The same as a stream; NULL with errno and *why. */
FILE *pl_fopen_file(const char *path, const char **why);
/* Of an open that failed with `error`, once it is recorded: where the process may not open more
 * files, the hint says how it may. Returns `err`. */
pl_err pl_open_hint(struct pl_diag *d, pl_err err, int error);
/* Whether there is anything of this name. What cannot be looked at is not absent; errno is why. */
enum pl_there { PL_NOT_THERE, PL_THERE, PL_THERE_UNKNOWN };
enum pl_there pl_look_for(const char *path);

#endif
