/* kill_at.c - preloaded into a program: kills it before the N-th call that changes a file.
 *
 * KILL_FROM names the end of a path, KILL_AT is N. Calls count from the first opening of such a
 * path on: open for writing, write to a regular file, fsync, rename, unlink, mkdir. The kernel
 * keeps what was done before, so what is tested is a kill and not a power cut. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long calls;
static bool counts;

static void step(void) {
    const char *at = getenv("KILL_AT");
    if (counts && at && ++calls == atol(at)) raise(SIGKILL);
}

static bool is_start(const char *path) {
    const char *from = getenv("KILL_FROM");
    size_t n = from ? strlen(from) : 0, have = strlen(path);
    return n && have >= n && strcmp(path + have - n, from) == 0;
}

/* POSIX has a pointer to an object become one to a function in this way alone. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        NEXT(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;                                    \
        va_end(ap);                                                                                \
        counts = counts || (flags & O_CREAT && is_start(path));                                    \
        if (flags & O_CREAT) step();                                                               \
        return next(path, flags, mode);                                                            \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t n) {
    NEXT(write);
    struct stat st;
    if (counts && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) step();
    return next(fd, data, n);
}

int fsync(int fd) {
    NEXT(fsync);
    step();
    return next(fd);
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    step();
    return next(from, to);
}

int unlink(const char *path) {
    NEXT(unlink);
    step();
    return next(path);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    step();
    return next(path, mode);
}
