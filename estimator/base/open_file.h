/* open_file.h - opens regular files only.
 *
 * In: a path from a person or from elsewhere.  Out: a descriptor to read from.
 *   R1  no call waits: a FIFO without a writer, a terminal and a device are refused, not read
 * The file that is checked is the file that is read, since its kind is taken from the descriptor.
 * Use: int fd = pl_open_file(path, NULL, &why);
 *      if (fd < 0) return pl_diag_at(d, err, path, 0, 0, "cannot open: %s", why); */
#ifndef PL_ESTIMATOR_BASE_OPEN_FILE_H
#define PL_ESTIMATOR_BASE_OPEN_FILE_H

#include "estimator/base/diag.h"

#include <stdio.h>
#include <sys/stat.h>

/* Returns a descriptor for reading, or -1 unless `path` is a regular file. Then errno (EISDIR for a
 * directory, EINVAL for another kind) and *why say the reason; *why lives until the next
 * strerror(). `st` and `why` may be NULL. */
int pl_open_file(const char *path, struct stat *st, const char **why);
/* pl_open_file as a stream; NULL with errno and *why. */
FILE *pl_fopen_file(const char *path, const char **why);
/* Adds a hint to the recorded failure `err` of an open that failed with errno `error`: if the
 * process has too many open files, how to raise the limit. Returns `err`. */
pl_err pl_open_hint(struct pl_diag *d, pl_err err, int error);
/* Says if a file of any kind has this name. UNKNOWN: it cannot be looked at, which does not mean
 * that it is absent; errno holds the reason. */
enum pl_there { PL_NOT_THERE, PL_THERE, PL_THERE_UNKNOWN };
enum pl_there pl_look_for(const char *path);

#endif
