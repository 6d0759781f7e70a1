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
#include <zstd_errors.h>
#endif

#define BLOCK (1u << 17)

struct unpacking {
    const char *path;
    int from, to;
    uint64_t given;  /* bytes of content so far */
    uint64_t taken;  /* bytes taken from the compressed file */
    uint64_t member; /* begin of the current member */
    bool inside;     /* a member has begun and not ended */
    bool begins;     /* the bytes to take are the first of a member */
    z_stream z;
#if PL_HAVE_ZSTD
    ZSTD_DCtx *zstd;
    int window_log;
#endif
    char in[BLOCK], out[BLOCK];
};

static const char again[] = "download or write the file again";

static pl_err damaged(const struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 0,
               "the compressed file is damaged: member at byte %llu",
               (unsigned long long)u->member);
    pl_diag_hint(d, again);
    return PL_ERR_DATA_SYNTAX;
}

/* Something else follows the last member: content that nobody unpacked must not be left out. */
static pl_err foreign(const struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 0,
               "the compressed content ends at byte %llu, and what follows it is not compressed",
               (unsigned long long)u->member);
    pl_diag_hint(d, "files were joined, or the download is wrong: remove what follows");
    return PL_ERR_DATA_SYNTAX;
}

static const char *unpack_dir(void) {
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

pl_err pl_unpacked_no_room(const char *path, struct pl_diag *d) {
    pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), path, 0, 0,
               "cannot unpack the file into %s: %s", unpack_dir(), strerror(errno));
    pl_diag_hint(d, "TMPDIR names another directory");
    return PL_ERR_DATA_FILE;
}

static pl_err no_memory(const struct unpacking *u, struct pl_diag *d) {
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", u->path);
}

/* The next bytes of the compressed file, 0 at its end. */
static pl_err take_packed(struct unpacking *u, size_t *n, struct pl_diag *d) {
    ssize_t got;
    do
        got = read(u->from, u->in, BLOCK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), u->path, 0, 0, "cannot read: %s",
                          strerror(errno));
    *n = (size_t)got;
    u->taken += *n;
    return PL_ERR_OK;
}

static pl_err give(struct unpacking *u, size_t n, struct pl_diag *d) {
    for (size_t done = 0; done < n;) {
        ssize_t put = write(u->to, u->out + done, n - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return pl_unpacked_no_room(u->path, d);
        done += (size_t)put;
    }
    u->given += n;
    return PL_ERR_OK;
}

/* --- gzip ------------------------------------------------------------------------------------- */
static bool begins_gzip(char c) {
    return c == '\x1F';
}

static pl_err open_gzip(struct unpacking *u, struct pl_diag *d) {
    u->z = (z_stream){.avail_in = 0};
    return inflateInit2(&u->z, 16 + MAX_WBITS) == Z_OK ? PL_ERR_OK : no_memory(u, d);
}

static void close_gzip(struct unpacking *u) {
    inflateEnd(&u->z);
}

static pl_err feed_gzip(struct unpacking *u, size_t *at, size_t n, struct pl_diag *d) {
    z_stream *z = &u->z;
    int code = u->begins ? inflateReset(z) : Z_OK;
    z->next_in = (Bytef *)u->in + *at;
    z->avail_in = (uInt)(n - *at);
    do {
        z->next_out = (Bytef *)u->out;
        z->avail_out = BLOCK;
        if (code == Z_OK) code = inflate(z, Z_NO_FLUSH);
        if (code == Z_MEM_ERROR) return no_memory(u, d);
        if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
            const bool no_member = z->msg && strcmp(z->msg, "incorrect header check") == 0;
            return no_member && u->member ? foreign(u, d) : damaged(u, d);
        }
        PL_TRY(give(u, BLOCK - z->avail_out, d));
    } while (code == Z_OK && (z->avail_in || !z->avail_out));
    *at = n - z->avail_in;
    u->inside = code != Z_STREAM_END;
    return PL_ERR_OK;
}

/* --- zstd ------------------------------------------------------------------------------------- */
/* A frame, or one that is to be skipped. */
static bool begins_zstd(char c) {
    return c == '\x28' || (c & 0xF0) == 0x50;
}

#if PL_HAVE_ZSTD
static pl_err open_zstd(struct unpacking *u, struct pl_diag *d) {
    u->zstd = ZSTD_createDCtx();
    if (!u->zstd) return no_memory(u, d);
    const ZSTD_bounds most = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax);
    const int wish = PL_UNPACK_WINDOW_LOG;
    u->window_log = ZSTD_isError(most.error) || most.upperBound > wish ? wish : most.upperBound;
    ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, u->window_log);
    return PL_ERR_OK;
}

static void close_zstd(struct unpacking *u) {
    ZSTD_freeDCtx(u->zstd);
}

static pl_err zstd_error(const struct unpacking *u, size_t code, struct pl_diag *d) {
    switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_memory_allocation:
        return no_memory(u, d);
    case ZSTD_error_prefix_unknown:
        return u->member ? foreign(u, d) : damaged(u, d);
    case ZSTD_error_frameParameter_windowTooLarge:
        break;
    default:
        return damaged(u, d);
    }
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 0,
               "the zstd window of the file is above the limit of %llu MiB",
               (1ull << u->window_log) >> 20);
    pl_diag_hint(d, "compress it again with a smaller one: zstd --long=27");
    return PL_ERR_DATA_SYNTAX;
}

static pl_err feed_zstd(struct unpacking *u, size_t *at, size_t n, struct pl_diag *d) {
    ZSTD_inBuffer in = {u->in, n, *at};
    bool full = false;
    for (size_t left = 1; left && (in.pos < in.size || full);) {
        ZSTD_outBuffer to = {u->out, BLOCK, 0};
        left = ZSTD_decompressStream(u->zstd, &to, &in);
        if (ZSTD_isError(left)) return zstd_error(u, left, d);
        full = to.pos == to.size;
        u->inside = left != 0;
        PL_TRY(give(u, to.pos, d));
    }
    *at = in.pos;
    return PL_ERR_OK;
}
#else
static pl_err open_zstd(struct unpacking *u, struct pl_diag *d) {
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 1,
               "the file is compressed (zstd), and this build was made without libzstd");
    pl_diag_hint(d, "unpack it first: unzstd FILE");
    return PL_ERR_DATA_SYNTAX;
}
static void close_zstd(struct unpacking *u) {
    (void)u;
}
static pl_err feed_zstd(struct unpacking *u, size_t *at, size_t n, struct pl_diag *d) {
    (void)at, (void)n;
    return damaged(u, d);
}
#endif

/* --- all -------------------------------------------------------------------------------------- */
static const struct packer {
    const char *magic;
    size_t n;
    const char *ending;
    bool (*begins)(char c); /* true if a member may begin with the byte */
    pl_err (*open)(struct unpacking *u, struct pl_diag *d);
    /* Unpacks from in[*at], at most to the end of the member; u->inside says whether it ended. */
    pl_err (*feed)(struct unpacking *u, size_t *at, size_t n, struct pl_diag *d);
    void (*close)(struct unpacking *u);
} packers[] = {
    {"\x1F\x8B", 2, ".gz", begins_gzip, open_gzip, feed_gzip, close_gzip},
    {"\x28\xB5\x2F\xFD", 4, ".zst", begins_zstd, open_zstd, feed_zstd, close_zstd},
};
#define N_PACKERS (sizeof packers / sizeof *packers)

/* A frame of zstd that is to be skipped may be the first. */
static const struct packer *packer_of(int fd) {
    char head[4];
    const ssize_t n = pread(fd, head, sizeof head, 0);
    if (n == 4 && (head[0] & 0xF0) == 0x50 && memcmp(head + 1, "\x2A\x4D\x18", 3) == 0)
        return &packers[N_PACKERS - 1];
    for (size_t i = 0; i < N_PACKERS; i++)
        if (n >= (ssize_t)packers[i].n && memcmp(head, packers[i].magic, packers[i].n) == 0)
            return &packers[i];
    return NULL; /* a file that cannot be read is reported by its reader */
}

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

pl_err pl_unpacked_open(struct pl_unpacked *all, const char *path, struct pl_diag *d) {
    if (all->fd < 0) all->fd = nameless_file(unpack_dir());
    return all->fd < 0 ? pl_unpacked_no_room(path, d) : PL_ERR_OK;
}

/* Passes over the zeros between two members; false where something else than a member follows. */
static bool find_member(struct unpacking *u, const struct packer *p, size_t *at, size_t n) {
    while (*at < n && !u->in[*at])
        ++*at;
    u->member = u->taken - (n - *at);
    return *at == n || p->begins(u->in[*at]);
}

static pl_err unpack_all(struct unpacking *u, const struct packer *p, struct pl_diag *d) {
    size_t n = 0;
    do {
        PL_TRY(take_packed(u, &n, d));
        for (size_t at = 0; at < n;) {
            u->begins = !u->inside;
            if (u->begins && !find_member(u, p, &at, n)) return foreign(u, d);
            if (at < n) PL_TRY(p->feed(u, &at, n, d));
        }
    } while (n);
    if (!u->inside) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_DATA_SYNTAX, u->path, 1, 0,
               "the compressed file is cut short: it ends after %llu bytes",
               (unsigned long long)u->taken);
    pl_diag_hint(d, again);
    return PL_ERR_DATA_SYNTAX;
}

static pl_err unpack_with(const struct packer *p, int fd, const char *path, struct pl_unpacked *all,
                          struct pl_content *out, struct pl_diag *d) {
    struct unpacking *u = pl_calloc(1, sizeof *u);
    if (!u) return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the content of %s", path);
    u->path = path;
    u->from = fd;
    pl_err err = pl_unpacked_open(all, path, d);
    u->to = all->fd;
    if (err == PL_ERR_OK) err = p->open(u, d);
    if (err == PL_ERR_OK) {
        err = unpack_all(u, p, d);
        p->close(u);
    }
    *out = (struct pl_content){all->fd, all->bytes, u->given};
    all->bytes += u->given;
    free(u);
    return err;
}

pl_err pl_unpack(int fd, const char *path, struct pl_unpacked *all, struct pl_content *out,
                 struct pl_diag *d) {
    const struct packer *p = packer_of(fd);
    *out = PL_CONTENT_OF(fd);
    return p ? unpack_with(p, fd, path, all, out, d) : PL_ERR_OK;
}

void pl_unpacked_finish(struct pl_unpacked *all) {
    if (all->fd >= 0) close(all->fd);
    *all = PL_UNPACKED_NONE;
}
