/* record.c - preloaded into a program: writes down what it does to files, as far as a power cut may
 * tell it from nothing, or lets a call fail. By the environment:
 *
 *   RECORD_TO=FILE      a line for every change below the working directory: what, inode, bytes,
 *                       path, second path; `sync` and `rename` of a file are followed by its bytes
 *   RECORD_FAIL=N:E[+]  the N-th call fails with errno E, with `+` all after it too; before it the
 *                       process is killed where E is 0
 *   RECORD_COUNT=FILE   at the end, how many calls there were
 *
 * A call is one of those below that names a file under the working directory, or a descriptor of
 * one. Streams of libc do not call through the symbols that stand here: what they have written is
 * seen when it is synced. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *record;
static char root[PATH_MAX];
static long calls, fail_at = -1;
static int fail_errno, ready, inside;
static bool fail_for_good;

/* POSIX has a pointer to an object become one to a function in this way alone. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

static void begin(void) {
    const char *to = getenv("RECORD_TO"), *fail = getenv("RECORD_FAIL");
    char *rest;
    if (ready++) return;
    inside++;
    if (!getcwd(root, sizeof root)) root[0] = 0;
    if (to) record = fopen(to, "we");
    if (fail) {
        fail_at = strtol(fail, &rest, 10);
        fail_errno = *rest ? (int)strtol(rest + 1, &rest, 10) : 0;
        fail_for_good = *rest == '+';
    }
    inside--;
}

__attribute__((destructor)) static void tell_count(void) {
    const char *to = getenv("RECORD_COUNT");
    inside++;
    FILE *f = to ? fopen(to, "we") : NULL;
    if (f) fprintf(f, "%ld\n", calls);
    if (f) fclose(f);
    if (record) fclose(record);
}

static bool is_below(const char *path) {
    size_t n = strlen(root);
    if (path[0] != '/') return true;
    return n && strncmp(path, root, n) == 0 && path[n] == '/';
}

static const char *path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

/* Whether the call on this path has to fail; errno is set then. */
static bool fails(const char *path) {
    begin();
    if (inside || !is_below(path)) return false;
    calls++;
    if (fail_at <= 0 || (fail_for_good ? calls < fail_at : calls != fail_at)) return false;
    if (!fail_errno) raise(SIGKILL);
    errno = fail_errno;
    return true;
}

static bool fd_fails(int fd) {
    char path[PATH_MAX];
    return *path_of(fd, path) == '/' && fails(path);
}

/* --- the record ------------------------------------------------------------------------------- */

static void copy_content(const char *path, long long bytes) {
    char block[65536];
    FILE *f = fopen(path, "re");
    while (bytes > 0) {
        size_t want = bytes < (long long)sizeof block ? (size_t)bytes : sizeof block;
        size_t n = f ? fread(block, 1, want, f) : 0;
        if (!n) memset(block, 0, n = want); /* it became shorter: the length was promised */
        fwrite(block, 1, n, record);
        bytes -= (long long)n;
    }
    if (f) fclose(f);
}

/* path: where the file is now; from: its name before, "-" where it had none. */
static void tell(const char *what, const char *path, const char *from, bool content) {
    const int error = errno;
    struct stat st = {0};
    if (!record || inside || !is_below(path)) return;
    inside++;
    bool there = lstat(path, &st) == 0;
    content = content && there && S_ISREG(st.st_mode);
    fprintf(record, "%s %llu %lld %d %s %s\n", what, (unsigned long long)st.st_ino,
            (long long)st.st_size, content, path, from);
    if (content) copy_content(path, (long long)st.st_size);
    inside--;
    errno = error;
}

/* --- calls ------------------------------------------------------------------------------------ */

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        NEXT(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                      \
        va_end(ap);                                                                                \
        if (fails(path)) return -1;                                                                \
        bool fresh = record && flags & O_CREAT && access(path, F_OK) != 0;                         \
        int fd = next(path, flags, mode);                                                          \
        if (fd >= 0 && fresh) tell("create", path, "-", false);                                    \
        if (fd >= 0 && !fresh && flags & O_TRUNC) tell("write", path, "-", false);                 \
        return fd;                                                                                 \
    }
OPEN(open)
OPEN(open64)

ssize_t read(int fd, void *data, size_t n) {
    NEXT(read);
    return fd_fails(fd) ? -1 : next(fd, data, n);
}

#define PREAD(name, type)                                                                          \
    ssize_t name(int fd, void *data, size_t n, type at) {                                          \
        NEXT(name);                                                                                \
        return fd_fails(fd) ? -1 : next(fd, data, n, at);                                          \
    }
PREAD(pread, off_t)
PREAD(pread64, off64_t)

ssize_t write(int fd, const void *data, size_t n) {
    NEXT(write);
    char path[PATH_MAX];
    if (fd_fails(fd)) return -1;
    ssize_t wrote = next(fd, data, n);
    if (wrote > 0 && record && *path_of(fd, path) == '/') tell("write", path, "-", false);
    return wrote;
}

int fsync(int fd) {
    NEXT(fsync);
    char path[PATH_MAX];
    if (fd_fails(fd)) return -1;
    int code = next(fd);
    if (code == 0 && *path_of(fd, path) == '/') tell("sync", path, "-", true);
    return code;
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    if (fails(to)) return -1;
    int code = next(from, to);
    if (code == 0) tell("rename", to, from, true);
    return code;
}

#define GONE(name)                                                                                 \
    int name(const char *path) {                                                                   \
        NEXT(name);                                                                                \
        if (fails(path)) return -1;                                                                \
        int code = next(path);                                                                     \
        if (code == 0) tell("gone", path, "-", false);                                             \
        return code;                                                                               \
    }
GONE(unlink)
GONE(rmdir)
GONE(remove)

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    if (fails(path)) return -1;
    int code = next(path, mode);
    if (code == 0) tell("create", path, "-", false);
    return code;
}

int flock(int fd, int how) {
    NEXT(flock);
    return fd_fails(fd) ? -1 : next(fd, how);
}
