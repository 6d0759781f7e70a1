#include "tests/support/fault_shim.h"

#include "estimator/config/debug_fault.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_CALLS   (1u << 20) /* calls whose callers are told apart */
#define MOST_STREAMS 64
#define FRAMES       24 /* frames of callers */

enum kind {
#define ENUM(name) KIND_##name,
    PL_FAULT_KINDS(ENUM)
#undef ENUM
        KINDS
};
static const char *const kind_names[] = {
#define NAME(name) #name,
    PL_FAULT_KINDS(NAME)
#undef NAME
};
static const enum kind changes[] = {KIND_create, KIND_write,  KIND_sync,  KIND_rename,
                                    KIND_link,   KIND_unlink, KIND_mkdir, KIND_truncate};

static struct {
    bool counts[KINDS], kills, halves, forever, traces, no_sync;
    int error;
    long at;
    char path[PATH_MAX], from[PATH_MAX], cwd[PATH_MAX], count_to[PATH_MAX], callers_to[PATH_MAX];
    int log;
    uint64_t *callers;
} rule = {.log = -1};
static atomic_long calls;
static atomic_bool armed, started, ready;
static _Thread_local int inside; /* calls made from here do not count */

/* POSIX has a pointer to an object become one to a function in this way alone. */
#define NEXT(name)                                                                                 \
    static __typeof__(name) *next;                                                                 \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

/* --- the environment -------------------------------------------------------------------------- */

static void copy(char to[PATH_MAX], const char *name) {
    const char *value = getenv(name);
    snprintf(to, PATH_MAX, "%s", value ? value : "");
}

static void choose(const char *word, size_t n) {
    bool files = n == 5 && memcmp(word, "files", 5) == 0;
    for (int k = 0; k < KINDS; k++)
        if ((files && k != KIND_memory) ||
            (n == strlen(kind_names[k]) && memcmp(word, kind_names[k], n) == 0))
            rule.counts[k] = true;
    if (n != 7 || memcmp(word, "changes", 7) != 0) return;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        rule.counts[changes[i]] = true;
}

static void choose_kinds(void) {
    const char *word = getenv("FAULT_CALLS");
    memset(rule.counts, 0, sizeof rule.counts);
    if (!word) word = "files";
    for (size_t n; *word; word += n + (word[n] == ',')) {
        n = strcspn(word, ",");
        choose(word, n);
    }
}

static bool is_set(const char *name) {
    return getenv(name) != NULL;
}

static int open_next(const char *path, int flags) {
    NEXT(open);
    return next(path, flags, 0666);
}

void fault_shim_begin(void) {
    const char *at = getenv("FAULT_AT"), *what = getenv("FAULT_DO");
    char *rest = NULL, log[PATH_MAX];
    inside++;
    choose_kinds();
    copy(rule.path, "FAULT_PATH");
    copy(rule.from, "FAULT_FROM");
    copy(rule.count_to, "FAULT_COUNT");
    copy(rule.callers_to, "FAULT_CALLERS");
    copy(log, "FAULT_LOG");
    if (!getcwd(rule.cwd, sizeof rule.cwd)) rule.cwd[0] = 0;
    rule.at = at ? strtol(at, &rest, 10) : 0;
    rule.forever = rest && *rest == '+';
    rule.kills = what && strcmp(what, "kill") == 0;
    rule.halves = what && strcmp(what, "short") == 0;
    rule.error = what && atoi(what) > 0 ? atoi(what) : EIO;
    rule.no_sync = is_set("FAULT_NO_SYNC");
    rule.traces = is_set("FAULT_TRACE");
    rule.log = log[0] ? open_next(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC) : -1;
    void *frames[FRAMES];
    if (rule.callers_to[0] || rule.traces) backtrace(frames, FRAMES); /* loads what it needs */
    if (rule.callers_to[0] && !rule.callers)
        rule.callers = mmap(NULL, MOST_CALLS * sizeof *rule.callers, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    calls = 0;
    started = !rule.from[0];
    armed = rule.at > 0 || rule.log >= 0 || rule.count_to[0] || rule.callers_to[0] || rule.no_sync;
    ready = true;
    inside--;
}

static void write_file(const char *path, const void *data, size_t n) {
    NEXT(write);
    int fd = open_next(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (fd < 0 || next(fd, data, n) != (ssize_t)n) _exit(98); /* a test that counts nothing */
    fsync(fd);
}

__attribute__((destructor)) void fault_shim_end(void) {
    char text[32];
    size_t n = (size_t)calls < MOST_CALLS ? (size_t)calls : MOST_CALLS;
    if (!armed) return;
    armed = false;
    inside++;
    if (rule.count_to[0])
        write_file(rule.count_to, text, (size_t)snprintf(text, sizeof text, "%ld\n", (long)calls));
    if (rule.callers_to[0]) write_file(rule.callers_to, rule.callers, n * sizeof *rule.callers);
    inside--;
}

__attribute__((constructor)) static void begin_once(void) {
    if (!ready) fault_shim_begin();
}

/* --- one call --------------------------------------------------------------------------------- */

static bool ends_with(const char *s, size_t n, const char *end, size_t m) {
    return n >= m && memcmp(s + n - m, end, m) == 0;
}

static bool is_wanted(const char *path) {
    size_t n = strlen(path), m = strlen(rule.path);
    if (!m) return true;
    if (rule.path[m - 1] == '$') return ends_with(path, n, rule.path, m - 1);
    return strstr(path, rule.path) != NULL;
}

static const char *absolute(const char *path, char room[PATH_MAX]) {
    if (path[0] == '/') return path;
    const int n = snprintf(room, PATH_MAX, "%s/%s", rule.cwd, path);
    return n < PATH_MAX ? room : path;
}

static const char *path_of(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return path;
}

static void remember_callers(long n) {
    void *frames[FRAMES];
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a, of addresses */
    int deep = backtrace(frames, FRAMES);
    for (int i = 0; i < deep; i++)
        hash = (hash ^ (uint64_t)(uintptr_t)frames[i]) * UINT64_C(1099511628211);
    if (n <= (long)MOST_CALLS) rule.callers[n - 1] = hash;
}

static void log_call(long n, enum kind kind, const char *call, const char *path) {
    char line[PATH_MAX + 64];
    NEXT(write);
    int length = snprintf(line, sizeof line, "%ld %s %s %s\n", n, kind_names[kind], call, path);
    if (length > 0 && next(rule.log, line, (size_t)length) != length) _exit(98);
}

static void trace(void) {
    void *frames[FRAMES];
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
}

/* The verdict on this call, which counts if the rule wants it. */
enum verdict { PASS, FAIL, HALVE };

static enum verdict meet(enum kind kind, const char *call, const char *path) {
    if (!started || !rule.counts[kind]) return PASS;
    const int error = errno;
    long n = ++calls;
    inside++;
    if (rule.callers_to[0]) remember_callers(n);
    if (rule.log >= 0) log_call(n, kind, call, path);
    bool hit = rule.at && (n == rule.at || (rule.forever && n > rule.at));
    if (hit && rule.kills) raise(SIGKILL);
    if (hit && rule.traces) trace();
    inside--;
    errno = error;
    if (hit && rule.halves) return HALVE;
    if (!hit) return PASS;
    errno = kind == KIND_memory ? ENOMEM : rule.error;
    return FAIL;
}

static enum verdict meet_path(enum kind kind, const char *call, const char *path) {
    char room[PATH_MAX];
    if (!armed || inside) return PASS;
    path = absolute(path, room);
    if (!started && kind == KIND_create)
        started = ends_with(path, strlen(path), rule.from, strlen(rule.from));
    return is_wanted(path) ? meet(kind, call, path) : PASS;
}

/* Decides for a file with a name: no pipe, no terminal. */
static enum verdict meet_fd(enum kind kind, const char *call, int fd) {
    char path[PATH_MAX];
    if (!armed || inside || !rule.counts[kind]) return PASS;
    const int error = errno;
    path_of(fd, path);
    errno = error;
    if (path[0] != '/' || strncmp(path, "/dev/", 5) == 0) {
        struct stat st; /* /dev/shm holds files */
        if (path[0] != '/' || lstat(path, &st) != 0 ||
            !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
            return PASS;
    }
    return is_wanted(path) ? meet(kind, call, path) : PASS;
}

#define FAILS_PATH(kind, name, path) (meet_path(KIND_##kind, #name, path) == FAIL)
#define FAILS_FD(kind, name, fd)     (meet_fd(KIND_##kind, #name, fd) == FAIL)

/* --- files ------------------------------------------------------------------------------------ */

static bool open_fails(const char *name, const char *path, int flags) {
    return meet_path(flags & O_CREAT ? KIND_create : KIND_open, name, path) == FAIL;
}

#define OPEN(name)                                                                                 \
    int name(const char *path, int flags, ...) {                                                   \
        NEXT(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                      \
        va_end(ap);                                                                                \
        return open_fails(#name, path, flags) ? -1 : next(path, flags, mode);                      \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                               \
    int name(int dir, const char *path, int flags, ...) {                                          \
        NEXT(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;                      \
        va_end(ap);                                                                                \
        return open_fails(#name, path, flags) ? -1 : next(dir, path, flags, mode);                 \
    }
OPENAT(openat)
OPENAT(openat64)

/* Returns at least one byte: none would be the end of the file. */
static size_t half(size_t n) {
    return n > 1 ? n / 2 : n;
}

#define MOVE(kind, name, data_type)                                                                \
    ssize_t name(int fd, data_type data, size_t n) {                                               \
        NEXT(name);                                                                                \
        enum verdict v = meet_fd(KIND_##kind, #name, fd);                                          \
        return v == FAIL ? -1 : next(fd, data, v == HALVE ? half(n) : n);                          \
    }
MOVE(read, read, void *)
MOVE(write, write, const void *)

#define MOVE_AT(kind, name, data_type, place)                                                      \
    ssize_t name(int fd, data_type data, size_t n, place at) {                                     \
        NEXT(name);                                                                                \
        enum verdict v = meet_fd(KIND_##kind, #name, fd);                                          \
        return v == FAIL ? -1 : next(fd, data, v == HALVE ? half(n) : n, at);                      \
    }
MOVE_AT(read, pread, void *, off_t)
MOVE_AT(read, pread64, void *, off64_t)
MOVE_AT(write, pwrite, const void *, off_t)
MOVE_AT(write, pwrite64, const void *, off64_t)

#define SYNC(name)                                                                                 \
    int name(int fd) {                                                                             \
        NEXT(name);                                                                                \
        if (FAILS_FD(sync, name, fd)) return -1;                                                   \
        return rule.no_sync ? 0 : next(fd);                                                        \
    }
SYNC(fsync)
SYNC(fdatasync)

#define TWO_PATHS(kind, name)                                                                      \
    int name(const char *from, const char *to) {                                                   \
        NEXT(name);                                                                                \
        return FAILS_PATH(kind, name, to) ? -1 : next(from, to);                                   \
    }
TWO_PATHS(rename, rename)
TWO_PATHS(link, link)
TWO_PATHS(link, symlink)

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    NEXT(renameat);
    return FAILS_PATH(rename, renameat, to) ? -1 : next(from_dir, from, to_dir, to);
}

#define ONE_PATH(name)                                                                             \
    int name(const char *path) {                                                                   \
        NEXT(name);                                                                                \
        return FAILS_PATH(unlink, name, path) ? -1 : next(path);                                   \
    }
ONE_PATH(unlink)
ONE_PATH(rmdir)
ONE_PATH(remove)

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    return FAILS_PATH(mkdir, mkdir, path) ? -1 : next(path, mode);
}

DIR *opendir(const char *path) {
    NEXT(opendir);
    return FAILS_PATH(dir, opendir, path) ? NULL : next(path);
}

#define READDIR(name, type)                                                                        \
    struct type *name(DIR *dir) {                                                                  \
        NEXT(name);                                                                                \
        return FAILS_FD(dir, name, dirfd(dir)) ? NULL : next(dir);                                 \
    }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

int flock(int fd, int how) {
    NEXT(flock);
    return FAILS_FD(lock, flock, fd) ? -1 : next(fd, how);
}

static bool locks(int command) {
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
           command == F_OFD_SETLKW;
}

#define FCNTL(name)                                                                                \
    int name(int fd, int command, ...) {                                                           \
        NEXT(name);                                                                                \
        va_list ap;                                                                                \
        va_start(ap, command);                                                                     \
        void *argument = va_arg(ap, void *);                                                       \
        va_end(ap);                                                                                \
        return locks(command) && FAILS_FD(lock, name, fd) ? -1 : next(fd, command, argument);      \
    }
FCNTL(fcntl)
FCNTL(fcntl64)

#define TRUNCATE(name, type)                                                                       \
    int name(int fd, type bytes) {                                                                 \
        NEXT(name);                                                                                \
        return FAILS_FD(truncate, name, fd) ? -1 : next(fd, bytes);                                \
    }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

int close(int fd) {
    NEXT(close);
    bool fails = FAILS_FD(close, close, fd);
    const int error = errno;
    int code = next(fd);
    if (fails) errno = error;
    return fails ? -1 : code;
}

#define STAT(name, type)                                                                           \
    int name(const char *path, struct type *out) {                                                 \
        NEXT(name);                                                                                \
        return FAILS_PATH(stat, name, path) ? -1 : next(path, out);                                \
    }
STAT(stat, stat)
STAT(lstat, stat)
STAT(stat64, stat64)
STAT(lstat64, stat64)

#define FSTAT(name, type)                                                                          \
    int name(int fd, struct type *out) {                                                           \
        NEXT(name);                                                                                \
        return FAILS_FD(stat, name, fd) ? -1 : next(fd, out);                                      \
    }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

int access(const char *path, int mode) {
    NEXT(access);
    return FAILS_PATH(stat, access, path) ? -1 : next(path, mode);
}

/* --- streams: those of libc do not call what stands here ------------------------------------- */

static struct stream {
    _Atomic(FILE *) file;
    int fd;
} streams[MOST_STREAMS];

static ssize_t stream_read(void *cookie, char *data, size_t n) {
    return read(((struct stream *)cookie)->fd, data, n);
}

static ssize_t stream_write(void *cookie, const char *data, size_t n) {
    size_t done = 0;
    for (ssize_t wrote = 1; done < n && wrote > 0; done += wrote > 0 ? (size_t)wrote : 0)
        wrote = write(((struct stream *)cookie)->fd, data + done, n - done);
    return (ssize_t)done; /* like libc's own: less than n is an error */
}

static int stream_seek(void *cookie, off64_t *at, int whence) {
    off64_t to = lseek64(((struct stream *)cookie)->fd, *at, whence);
    if (to >= 0) *at = to;
    return to < 0 ? -1 : 0;
}

static int stream_close(void *cookie) {
    struct stream *s = cookie;
    s->file = NULL;
    return close(s->fd);
}

FILE *fdopen(int fd, const char *mode) {
    NEXT(fdopen);
    struct stream *s = streams;
    const cookie_io_functions_t calls_of = {stream_read, stream_write, stream_seek, stream_close};
    while (s < streams + MOST_STREAMS && s->file)
        s++;
    if (!armed || inside || s == streams + MOST_STREAMS) return next(fd, mode);
    s->fd = fd;
    s->file = fopencookie(s, mode, calls_of);
    return s->file;
}

static int flags_of(const char *mode) {
    int flags = strchr(mode, 'e') ? O_CLOEXEC : 0;
    bool both = strchr(mode, '+');
    if (mode[0] == 'r') return flags | (both ? O_RDWR : O_RDONLY);
    flags |= O_CREAT | (both ? O_RDWR : O_WRONLY);
    if (strchr(mode, 'x')) flags |= O_EXCL;
    return flags | (mode[0] == 'a' ? O_APPEND : O_TRUNC);
}

#define FOPEN(name)                                                                                \
    FILE *name(const char *path, const char *mode) {                                               \
        NEXT(name);                                                                                \
        if (!armed || inside) return next(path, mode);                                             \
        int fd = open(path, flags_of(mode), 0666);                                                 \
        FILE *f = fd >= 0 ? fdopen(fd, mode) : NULL;                                               \
        if (fd >= 0 && !f) close(fd);                                                              \
        return f;                                                                                  \
    }
FOPEN(fopen)
FOPEN(fopen64)

int fileno(FILE *f) {
    NEXT(fileno);
    for (struct stream *s = streams; s < streams + MOST_STREAMS; s++)
        if (s->file == f) return s->fd;
    return next(f);
}

/* --- memory ----------------------------------------------------------------------------------- */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#define JUNK       0x5a
#define JUNK_BYTES 65536 /* larger blocks are pages of the kernel's, zero in any case */

/* The names of glibc's own functions when another library takes theirs. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void *memalign(size_t align, size_t bytes);

static bool counts_memory(void) {
    return armed && !inside && rule.counts[KIND_memory];
}

static bool refused(const char *call) {
    return counts_memory() && meet(KIND_memory, call, "") == FAIL;
}

void *malloc(size_t bytes) {
    void *p = refused("malloc") ? NULL : __libc_malloc(bytes);
    return p && bytes <= JUNK_BYTES && counts_memory() ? memset(p, JUNK, bytes) : p;
}

void *calloc(size_t n, size_t bytes) {
    return refused("calloc") ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    return refused("realloc") ? NULL : __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes) {
    return refused("memalign") ? NULL : __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    return memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    const int error = errno;
    void *p = memalign(align, bytes);
    errno = error;
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

#endif
