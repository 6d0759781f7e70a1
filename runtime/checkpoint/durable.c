/* durable.c - temp, fsync, rename, fsync the directory; and what makes any of them fail. */
#include "runtime/checkpoint/durable.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/open_file.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRITE_CHUNK (1u << 30) /* one write(2) moves at most 2^31 - 4096 bytes */
#define REMOVE_FDS  16         /* directories nftw may hold open */

static struct pl_io_fault *fault;

void pl_checkpoint_set_fault(struct pl_io_fault *f) {
    fault = f;
}

static bool fault_strikes(void) {
    if (!fault) return false;
    uint64_t call = ++fault->calls;
    if (!fault->at || call < fault->at || call - fault->at >= fault->count) return false;
    if (fault->before) fault->before();
    errno = ENOSPC;
    return !fault->before;
}

static pl_err write_error(struct pl_diag *d, const char *verb, const char *path) {
    return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), path, 0, 0, "cannot %s %s: %s",
                      verb, path, strerror(errno));
}

/* The descriptor is gone whatever close says (Linux), so it is never closed twice. */
static pl_err fd_close(int fd, const char *path, struct pl_diag *d) {
    bool struck = fault_strikes();
    int rc = close(fd);
    if (struck) errno = ENOSPC;
    if (struck || rc != 0) return write_error(d, "close", path);
    return PL_ERR_OK;
}

pl_err pl_outbox_init(struct pl_outbox *o, const char *dir, struct pl_diag *d) {
    *o = (struct pl_outbox){.fd = -1};
    o->dir = pl_strdup(dir);
    return o->dir ? PL_ERR_OK : pl_host_oom(d, "a path");
}

pl_err pl_outbox_init_file(struct pl_outbox *o, const char *path, const char **name,
                           struct pl_diag *d) {
    const char *slash = strrchr(path, '/');
    char *dir =
        !slash ? pl_strdup(".") : pl_strndup(path, slash == path ? 1 : (size_t)(slash - path));
    pl_err err = dir ? pl_outbox_init(o, dir, d) : pl_host_oom(d, "a path");
    *name = slash ? slash + 1 : path;
    free(dir);
    return err;
}

static char *temporary_path(const struct pl_outbox *o, const char *name) {
    char *path = NULL;
    return pl_asprintf(&path, "%s/%s.tmp", o->dir, name) < 0 ? NULL : path;
}

static bool remember_name(struct pl_outbox *o, const char *name) {
    if (o->n == o->cap) {
        uint32_t cap = o->cap ? 2 * o->cap : 8;
        char **names = pl_realloc(o->names, cap * sizeof *names);
        if (names) o->names = names;
        struct pl_file_digest *marks = names ? pl_realloc(o->marks, cap * sizeof *marks) : NULL;
        if (!marks) return false;
        o->marks = marks;
        o->cap = cap;
    }
    o->marks[o->n] = (struct pl_file_digest){0};
    o->names[o->n] = pl_strdup(name);
    return o->names[o->n] && ++o->n;
}

static pl_err open_temporary(struct pl_outbox *o, const char *name, int flags, struct pl_diag *d) {
    o->open_path = temporary_path(o, name);
    if (!o->open_path) return pl_host_oom(d, "a file name");
    pl_digest_init(&o->digest, 0);
    o->n_pieces = 0;
    if (!fault_strikes())
        o->fd = open(o->open_path, flags | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0666);
    const char *verb = flags & O_CREAT ? "create" : "open";
    return o->fd < 0 ? write_error(d, verb, o->open_path) : PL_ERR_OK;
}

pl_err pl_outbox_open(struct pl_outbox *o, const char *name, struct pl_diag *d) {
    if (!remember_name(o, name)) return pl_host_oom(d, "a file name");
    return open_temporary(o, name, O_CREAT | O_TRUNC, d);
}

pl_err pl_outbox_write(struct pl_outbox *o, const void *data, uint64_t bytes, struct pl_diag *d) {
    const char *p = data;
    while (bytes > 0) {
        ssize_t n = -1;
        if (!fault_strikes()) n = write(o->fd, p, (size_t)pl_u64_min(bytes, WRITE_CHUNK));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return write_error(d, "write", o->open_path);
        pl_digest_add(&o->digest, p, (size_t)n);
        p += n;
        bytes -= (uint64_t)n;
    }
    return PL_ERR_OK;
}

static pl_err sync_and_close(struct pl_outbox *o, struct pl_diag *d) {
    pl_err err =
        fault_strikes() || fsync(o->fd) != 0 ? write_error(d, "sync", o->open_path) : PL_ERR_OK;
    pl_err closed = fd_close(o->fd, o->open_path, d);
    o->fd = -1;
    free(o->open_path);
    o->open_path = NULL;
    return err == PL_ERR_OK ? closed : err;
}

pl_err pl_outbox_close(struct pl_outbox *o, struct pl_diag *d) {
    o->marks[o->n - 1] = (struct pl_file_digest){o->digest.bytes, pl_digest_value(&o->digest)};
    PL_TRY(sync_and_close(o, d));
    if (!o->manifest) return PL_ERR_OK;
    return pl_manifest_add(o->manifest, o->names[o->n - 1], &o->marks[o->n - 1], d);
}

pl_err pl_outbox_put(struct pl_outbox *o, const char *name, const void *data, uint64_t bytes,
                     struct pl_diag *d) {
    PL_TRY(pl_outbox_open(o, name, d));
    PL_TRY(pl_outbox_write(o, data, bytes, d));
    return pl_outbox_close(o, d);
}

/* --- files of several processes (U4) ---------------------------------------------------------- */

static pl_err identify(const struct pl_outbox *o, struct pl_file_id *id, struct pl_diag *d) {
    struct stat st;
    if (fstat(o->fd, &st) != 0) return write_error(d, "look at", o->open_path);
    *id = (struct pl_file_id){st.st_dev, st.st_ino};
    return PL_ERR_OK;
}

pl_err pl_outbox_open_shared(struct pl_outbox *o, const char *name, uint64_t bytes,
                             struct pl_file_id *id, struct pl_diag *d) {
    PL_TRY(pl_outbox_open(o, name, d));
    if (fault_strikes() || ftruncate(o->fd, (off_t)bytes) != 0)
        return write_error(d, "set the length of", o->open_path);
    return identify(o, id, d);
}

pl_err pl_outbox_join(struct pl_outbox *o, const char *name, const struct pl_file_id *id,
                      struct pl_diag *d) {
    struct pl_file_id found;
    PL_TRY(open_temporary(o, name, 0, d));
    PL_TRY(identify(o, &found, d));
    if (found.device == id->device && found.inode == id->inode) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_WRITE, o->open_path, 0, 0,
                      "%s is not the file that rank 0 writes", o->open_path);
}

/* The piece that ends at `at`, or a new one. NULL: no memory. */
static struct pl_file_piece *piece_at(struct pl_outbox *o, uint64_t at) {
    if (o->n_pieces && o->pieces[o->n_pieces - 1].end == at) return &o->pieces[o->n_pieces - 1];
    if (o->n_pieces == o->cap_pieces) {
        const uint32_t cap = o->cap_pieces ? 2 * o->cap_pieces : 16;
        struct pl_file_piece *pieces = pl_realloc(o->pieces, cap * sizeof *pieces);
        if (!pieces) return NULL;
        o->pieces = pieces;
        o->cap_pieces = cap;
    }
    pl_digest_init(&o->digest, 0);
    o->pieces[o->n_pieces] = (struct pl_file_piece){.begin = at, .end = at};
    return &o->pieces[o->n_pieces++];
}

pl_err pl_outbox_write_at(struct pl_outbox *o, uint64_t at, const void *data, uint64_t bytes,
                          struct pl_diag *d) {
    const char *p = data;
    struct pl_file_piece *piece = piece_at(o, at);
    if (!piece) return pl_host_oom(d, o->open_path);
    while (bytes > 0) {
        ssize_t n = -1;
        if (!fault_strikes())
            n = pwrite(o->fd, p, (size_t)pl_u64_min(bytes, WRITE_CHUNK), (off_t)piece->end);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return write_error(d, "write", o->open_path);
        pl_digest_add(&o->digest, p, (size_t)n);
        p += n;
        bytes -= (uint64_t)n;
        piece->end += (uint64_t)n;
    }
    piece->xxh64 = pl_digest_value(&o->digest);
    return PL_ERR_OK;
}

pl_err pl_outbox_close_shared(struct pl_outbox *o, struct pl_diag *d) {
    return sync_and_close(o, d);
}

/* --- names and the end ------------------------------------------------------------------------ */

bool pl_outbox_has(const struct pl_outbox *o, const char *name) {
    for (uint32_t i = 0; i < o->n; i++)
        if (strcmp(o->names[i], name) == 0) return true;
    return false;
}

pl_err pl_outbox_commit(struct pl_outbox *o, struct pl_diag *d) {
    for (; o->n_named < o->n; o->n_named++) {
        const char *name = o->names[o->n_named];
        char *from = temporary_path(o, name), *to = pl_path_join(o->dir, name);
        const pl_err err = from && to ? pl_path_rename(from, to, d) : pl_host_oom(d, "a path");
        free(from);
        free(to);
        if (err != PL_ERR_OK) return err;
    }
    return pl_dir_sync(o->dir, d);
}

void pl_outbox_finish(struct pl_outbox *o) {
    if (!o->dir) return;
    if (o->fd >= 0) close(o->fd);
    free(o->pieces);
    for (uint32_t i = 0; i < o->n; i++) {
        char *path = i < o->n_named ? NULL : temporary_path(o, o->names[i]);
        if (path) unlink(path);
        free(path);
        free(o->names[i]);
    }
    free(o->names);
    free(o->marks);
    free(o->open_path);
    free(o->dir);
    *o = (struct pl_outbox){.fd = -1};
}

pl_err pl_dir_create(const char *path, struct pl_diag *d) {
    if (fault_strikes() || mkdir(path, 0777) != 0) return write_error(d, "create", path);
    return PL_ERR_OK;
}

pl_err pl_dir_sync(const char *path, struct pl_diag *d) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return write_error(d, "open", path);
    bool struck = fault_strikes();
    int rc = struck ? -1 : fsync(fd);
    /* File systems without directory sync (some network ones) say EINVAL: nothing to do. */
    pl_err err = rc != 0 && errno != EINVAL ? write_error(d, "sync", path) : PL_ERR_OK;
    pl_err closed = fd_close(fd, path, d);
    return err != PL_ERR_OK ? err : closed;
}

pl_err pl_dir_sync_parent(const char *path, struct pl_diag *d) {
    char *parent = pl_path_join(path, "..");
    pl_err err = parent ? pl_dir_sync(parent, d) : pl_host_oom(d, "a path");
    free(parent);
    return err;
}

pl_err pl_dir_lock(const char *path, int *lock, struct pl_diag *d) {
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0) return write_error(d, "open", path);
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return PL_ERR_OK;
    close(*lock);
    *lock = -1;
    pl_diag_at(d, PL_ERR_IO, path, 0, 0, "another run writes into %s", path);
    pl_diag_hint(d, "wait until it has ended, or name another directory");
    return PL_ERR_IO;
}

/* Runs lock with LOCK_EX, so others that only ask do not see each other. */
bool pl_dir_is_locked(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    close(fd);
    return locked;
}

pl_err pl_path_rename(const char *from, const char *to, struct pl_diag *d) {
    if (fault_strikes() || rename(from, to) != 0) return write_error(d, "rename to", to);
    return PL_ERR_OK;
}

pl_err pl_path_unlink(const char *path, struct pl_diag *d) {
    if (fault_strikes() || (unlink(path) != 0 && errno != ENOENT))
        return write_error(d, "remove", path);
    return PL_ERR_OK;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)kind, (void)where;
    return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

pl_err pl_tree_remove(const char *path, struct pl_diag *d) {
    if (nftw(path, remove_entry, REMOVE_FDS, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT)
        return PL_ERR_OK;
    return write_error(d, "remove", path);
}

pl_err pl_dir_clear(const char *path, bool (*unwanted)(const char *name, const void *ctx),
                    const void *ctx, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    DIR *dir = opendir(path);
    if (!dir)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_CHECKPOINT_WRITE), path, 0, 0,
                          "cannot list %s: %s", path, strerror(errno));
    errno = 0;
    for (const struct dirent *e; err == PL_ERR_OK && (e = readdir(dir)); errno = 0) {
        if (!unwanted(e->d_name, ctx)) continue;
        char *entry = pl_path_join(path, e->d_name);
        err = entry ? pl_tree_remove(entry, d) : pl_host_oom(d, "a path");
        free(entry);
    }
    if (err == PL_ERR_OK && errno) err = write_error(d, "list", path);
    closedir(dir);
    return err;
}

pl_err pl_file_write(const char *path, const char *text, uint64_t bytes, struct pl_diag *d) {
    struct pl_outbox o = {0};
    const char *name;
    pl_err err = pl_outbox_init_file(&o, path, &name, d);
    if (err == PL_ERR_OK) err = pl_outbox_put(&o, name, text, bytes, d);
    if (err == PL_ERR_OK) err = pl_outbox_commit(&o, d);
    pl_outbox_finish(&o);
    return err;
}
