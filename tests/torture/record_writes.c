/* record_writes.c - preloaded into a program: writes down what it does to files, as far as a power
 * cut may tell it from nothing. RECORD_TO names the record, which gets a line for every change
 * below the working directory: what, inode, bytes, whether they follow, path, path before; `sync`
 * and `rename` of a file are followed by its bytes.
 *
 * Streams of libc do not call through the symbols that stand here: what they have written is seen
 * when it is synced. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *record;
static char root[PATH_MAX];
static int ready, inside;

/* POSIX has a pointer to an object become one to a function in this way alone. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

static void begin(void) {
    const char *to = getenv("RECORD_TO");
    if (ready++) return;
    if (!getcwd(root, sizeof root)) root[0] = 0;
    if (to) record = fopen(to, "we");
}

__attribute__((destructor)) static void end(void) {
    inside++;
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
    begin();
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
        begin();                                                                                   \
        bool fresh = record && flags & O_CREAT && access(path, F_OK) != 0;                         \
        int fd = next(path, flags, mode);                                                          \
        if (fd >= 0 && fresh) tell("create", path, "-", false);                                    \
        if (fd >= 0 && !fresh && flags & O_TRUNC) tell("write", path, "-", false);                 \
        return fd;                                                                                 \
    }
OPEN(open)
OPEN(open64)

ssize_t write(int fd, const void *data, size_t n) {
    NEXT(write);
    char path[PATH_MAX];
    ssize_t wrote = next(fd, data, n);
    if (wrote > 0 && record && *path_of(fd, path) == '/') tell("write", path, "-", false);
    return wrote;
}

int fsync(int fd) {
    NEXT(fsync);
    char path[PATH_MAX];
    int code = next(fd);
    if (code == 0 && *path_of(fd, path) == '/') tell("sync", path, "-", true);
    return code;
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    int code = next(from, to);
    if (code == 0) tell("rename", to, from, true);
    return code;
}

#define GONE(name)                                                                                 \
    int name(const char *path) {                                                                   \
        NEXT(name);                                                                                \
        int code = next(path);                                                                     \
        if (code == 0) tell("gone", path, "-", false);                                             \
        return code;                                                                               \
    }
GONE(unlink)
GONE(rmdir)
GONE(remove)

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    int code = next(path, mode);
    if (code == 0) tell("create", path, "-", false);
    return code;
}
