/* calls_shim.c - stands before libc in a program under test (LD_PRELOAD). By the environment:
 *
 *   CALLS_LOG=FILE         a line for every rename, remove, unlink, rmdir and fsync: name and path
 *   CALLS_KILL=N           SIGKILL before the N-th rename, remove, unlink or rmdir (1-based)
 *   CALLS_FAIL=ERRNO:END   opening for reading a path that ends in END fails with this errno */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned changes;

static void tell(const char *call, const char *path) {
    const char *log = getenv("CALLS_LOG");
    FILE *f = log ? fopen(log, "a") : NULL;
    if (!f) return;
    fprintf(f, "%s %s\n", call, path);
    fclose(f);
}

static void change(const char *call, const char *path) {
    const char *at = getenv("CALLS_KILL");
    tell(call, path);
    if (at && ++changes == (unsigned)atoi(at)) raise(SIGKILL);
}

typedef int on_two_paths(const char *, const char *);
typedef int on_path(const char *);
typedef int on_fd(int);
typedef int on_open(const char *, int, ...);

/* POSIX has dlsym give functions as objects. */
#define NEXT(type, name)                                                                           \
    static type *next;                                                                             \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, name)

int rename(const char *from, const char *to) {
    NEXT(on_two_paths, "rename");
    change("rename", to);
    return next(from, to);
}

#define ONE_PATH(call)                                                                             \
    int call(const char *path) {                                                                   \
        NEXT(on_path, #call);                                                                      \
        change(#call, path);                                                                       \
        return next(path);                                                                         \
    }
ONE_PATH(remove)
ONE_PATH(unlink)
ONE_PATH(rmdir)

int fsync(int fd) {
    char link[64], path[4096];
    NEXT(on_fd, "fsync");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    tell("fsync", path);
    return next(fd);
}

static int fails(const char *path, int flags) {
    const char *rule = getenv("CALLS_FAIL"), *end = rule ? strchr(rule, ':') : NULL;
    size_t n = strlen(path), m = end ? strlen(++end) : 0;
    if (!end || (flags & O_ACCMODE) != O_RDONLY || n < m || strcmp(path + n - m, end) != 0)
        return 0;
    errno = atoi(rule);
    return 1;
}

#define OPENS(call)                                                                                \
    int call(const char *path, int flags, ...) {                                                   \
        va_list ap;                                                                                \
        NEXT(on_open, #call);                                                                      \
        va_start(ap, flags);                                                                       \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, int) : 0;                            \
        va_end(ap);                                                                                \
        return fails(path, flags) ? -1 : next(path, flags, mode);                                  \
    }
OPENS(open)
OPENS(open64)
