#include "estimator/base/open_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const char *kind_of(mode_t mode) {
    return S_ISDIR(mode)    ? "it is a directory, not a regular file"
           : S_ISFIFO(mode) ? "it is a pipe, not a regular file"
           : S_ISCHR(mode)  ? "it is a character device, not a regular file"
           : S_ISBLK(mode)  ? "it is a block device, not a regular file"
           : S_ISSOCK(mode) ? "it is a socket, not a regular file"
                            : "it is not a regular file";
}

static int refuse_file(int fd, int error, const char *why, const char **out) {
    if (fd >= 0) close(fd);
    if (out) *out = why ? why : strerror(error);
    errno = error;
    return -1;
}

/* O_NONBLOCK: open() of a FIFO would wait for its writer. O_NOCTTY: a terminal must not become the
 * one that controls the process. */
int pl_open_file(const char *path, struct stat *st, const char **why) {
    struct stat own;
    if (!st) st = &own;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, st) != 0) return refuse_file(fd, errno, NULL, why);
    if (S_ISREG(st->st_mode)) return fd;
    return refuse_file(fd, S_ISDIR(st->st_mode) ? EISDIR : EINVAL, kind_of(st->st_mode), why);
}

pl_err pl_open_hint(struct pl_diag *d, pl_err err, int error) {
    if (error == EMFILE)
        pl_diag_hint(d, "`ulimit -n` is the number of files that may be open at a time, and "
                        "`ulimit -n 4096` raises it");
    if (error == ENFILE) pl_diag_hint(d, "the machine's limit of open files is reached");
    return err;
}

enum pl_there pl_look_for(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0) return PL_THERE;
    return errno == ENOENT || errno == ENOTDIR ? PL_NOT_THERE : PL_THERE_UNKNOWN;
}

FILE *pl_fopen_file(const char *path, const char **why) {
    const int fd = pl_open_file(path, NULL, why);
    FILE *f = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && !f) (void)refuse_file(fd, errno, NULL, why);
    return f;
}
