/* unpack.c - see unpack.h. */
#include "runtime/data/unpack.h"

#include "estimator/base/alloc.h"
#include "estimator/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#if PL_HAVE_ZSTD
#include <zstd.h>
#endif

#define BLOCK (1u << 17)

struct unpacking {
    const char *path, *dir;
    int from, to;
    char in[BLOCK], out[BLOCK];
};

static pl_err damaged(const struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 0,
               "the compressed file is damaged, or cut short");
    pl_diag_hint(d, "download or write the file again");
    return PL_ERR_DATA_SYNTAX;
}

static pl_err no_room(const struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), u->path, 0, 0,
               "cannot unpack the file into %s: %s", u->dir, strerror(errno));
    pl_diag_hint(d, "TMPDIR names another directory");
    return PL_ERR_DATA_FILE;
}

/* The next bytes of the compressed file, 0 at its end. */
static pl_err take(struct unpacking *u, size_t *n, struct pl_diag *d) {
    ssize_t got;
    do
        got = read(u->from, u->in, BLOCK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), u->path, 0, 0, "cannot read: %s",
                          strerror(errno));
    *n = (size_t)got;
    return PL_ERR_OK;
}

static pl_err give(const struct unpacking *u, size_t n, struct pl_diag *d) {
    for (size_t done = 0; done < n;) {
        ssize_t put = write(u->to, u->out + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return no_room(u, d);
        done += (size_t)put;
    }
    return PL_ERR_OK;
}

/* --- gzip ------------------------------------------------------------------------------------- */
/* Unpacks what is in the stream; *ended: its member ended, and the next one begins. */
static pl_err inflate_block(struct unpacking *u, z_stream *z, bool *ended, struct pl_diag *d) {
    while (z->avail_in || !z->avail_out) {
        if (*ended && inflateReset(z) != Z_OK) return damaged(u, d);
        z->next_out = (Bytef *)u->out;
        z->avail_out = BLOCK;
        int code = inflate(z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR)
            return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", u->path);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) return damaged(u, d);
        *ended = code == Z_STREAM_END;
        PL_TRY(give(u, BLOCK - z->avail_out, d));
        if (code == Z_BUF_ERROR) break;
    }
    return PL_ERR_OK;
}

static pl_err unpack_gzip(struct unpacking *u, struct pl_diag *d) {
    z_stream z = {.avail_out = BLOCK};
    bool ended = false;
    size_t n = 0;
    pl_err err = PL_ERR_OK;
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", u->path);
    do {
        PL_TRY_GOTO(take(u, &n, d), out);
        z.next_in = (Bytef *)u->in;
        z.avail_in = (uInt)n;
        z.avail_out = BLOCK;
        if (n) PL_TRY_GOTO(inflate_block(u, &z, &ended, d), out);
    } while (n);
    if (!ended) err = damaged(u, d);
out:
    inflateEnd(&z);
    return err;
}

/* --- zstd ------------------------------------------------------------------------------------- */
#if PL_HAVE_ZSTD
static pl_err unpack_zstd(struct unpacking *u, struct pl_diag *d) {
    ZSTD_DStream *z = ZSTD_createDStream();
    size_t n = 0, left = 0;
    pl_err err = PL_ERR_OK;
    if (!z) return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", u->path);
    do {
        PL_TRY_GOTO(take(u, &n, d), out);
        ZSTD_inBuffer in = {u->in, n, 0};
        bool full = false;
        while (in.pos < in.size || full) {
            ZSTD_outBuffer to = {u->out, BLOCK, 0};
            left = ZSTD_decompressStream(z, &to, &in);
            if (ZSTD_isError(left)) {
                err = damaged(u, d);
                goto out;
            }
            full = to.pos == to.size;
            PL_TRY_GOTO(give(u, to.pos, d), out);
        }
    } while (n);
    if (left) err = damaged(u, d); /* the last frame has not ended */
out:
    ZSTD_freeDStream(z);
    return err;
}
#else
static pl_err unpack_zstd(struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 1,
               "the file is compressed (zstd), and this build was made without libzstd");
    pl_diag_hint(d, "unpack it first: unzstd FILE");
    return PL_ERR_DATA_SYNTAX;
}
#endif

/* --- all -------------------------------------------------------------------------------------- */
static const struct {
    const char *magic;
    size_t n;
    const char *ending;
    pl_err (*unpack)(struct unpacking *u, struct pl_diag *d);
} packers[] = {
    {"\x1F\x8B", 2, ".gz", unpack_gzip},
    {"\x28\xB5\x2F\xFD", 4, ".zst", unpack_zstd},
};
#define N_PACKERS (sizeof packers / sizeof *packers)

size_t pl_unpacked_length(const char *path) {
    size_t n = strlen(path);
    for (size_t i = 0; i < N_PACKERS; i++) {
        size_t end = strlen(packers[i].ending);
        if (n > end && strcmp(path + n - end, packers[i].ending) == 0) return n - end;
    }
    return n;
}

/* A file without a name; O_TMPFILE is not known to every file system. */
static int nameless_file(const char *dir) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct pl_text name = {0};
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    pl_text_addf(&name, "%s/plimsoll-rows-XXXXXX", dir);
    fd = name.failed ? -1 : mkostemp(name.data, O_CLOEXEC);
    if (fd >= 0) unlink(name.data);
    pl_text_finish(&name);
    return fd;
}

static pl_err unpack_with(size_t i, int fd, const char *path, int *out, struct pl_diag *d) {
    struct unpacking *u = pl_malloc(sizeof *u);
    const char *dir = getenv("TMPDIR");
    if (!u) return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", path);
    u->path = path;
    u->dir = dir && *dir ? dir : "/tmp";
    u->from = fd;
    u->to = nameless_file(u->dir);
    pl_err err = u->to < 0 ? no_room(u, d) : packers[i].unpack(u, d);
    if (err == PL_ERR_OK)
        *out = u->to;
    else if (u->to >= 0)
        close(u->to);
    free(u);
    return err;
}

pl_err pl_unpack(int fd, const char *path, int *out, struct pl_diag *d) {
    char head[4];
    ssize_t n = pread(fd, head, sizeof head, 0);
    *out = fd;
    for (size_t i = 0; i < N_PACKERS; i++)
        if (n >= (ssize_t)packers[i].n && memcmp(head, packers[i].magic, packers[i].n) == 0)
            return unpack_with(i, fd, path, out, d);
    return PL_ERR_OK; /* what cannot be read is said by whoever reads it */
}
