#include "runtime/checkpoint/manifest.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/digest.h"
#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (1u << 20)

char *pl_digest_text(uint64_t xxh64, char buf[PL_DIGEST_TEXT]) {
    snprintf(buf, PL_DIGEST_TEXT, "%016llx", (unsigned long long)xxh64);
    return buf;
}

/* A file that is read once, from its first byte to its last. */
struct reader {
    const char *path;
    int fd;
    char *buf; /* owned, of CHUNK bytes */
};

static void reader_close(struct reader *r) {
    if (r->fd >= 0) close(r->fd);
    free(r->buf);
}

/* The file is closed on failure. */
static pl_err reader_open(struct reader *r, const char *path, struct pl_diag *d) {
    struct stat st;
    pl_err err = PL_ERR_OK;
    *r = (struct reader){.path = path, .fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        err = pl_file_read_error(d, path);
    else if (!S_ISREG(st.st_mode))
        err = pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0, "%s is not a regular file", path);
    else if (!(r->buf = pl_malloc(CHUNK)))
        err = pl_host_oom(d, path);
    if (err != PL_ERR_OK) reader_close(r);
    return err;
}

/* The digest of the next `most` bytes, or of as many as there are. */
static pl_err digest_next(struct reader *r, uint64_t most, struct pl_file_digest *out,
                          struct pl_diag *d) {
    struct pl_digest h;
    ssize_t n = 1;
    pl_digest_init(&h, 0);
    while (h.bytes < most && n != 0) {
        n = read(r->fd, r->buf, (size_t)pl_u64_min(most - h.bytes, CHUNK));
        if (n < 0 && errno != EINTR) return pl_file_read_error(d, r->path);
        if (n > 0) pl_digest_add(&h, r->buf, (size_t)n);
    }
    *out = (struct pl_file_digest){h.bytes, pl_digest_value(&h)};
    return PL_ERR_OK;
}

pl_err pl_file_digest_read(const char *path, struct pl_file_digest *out, struct pl_diag *d) {
    struct reader r;
    PL_TRY(reader_open(&r, path, d));
    pl_err err = digest_next(&r, UINT64_MAX, out, d);
    reader_close(&r);
    return err;
}

/* --- written ---------------------------------------------------------------------------------- */

/* set_new takes its value on failure too, and a NULL value is a failure. */
static pl_err set_entry(json_t *files, const char *name, json_t *entry, struct pl_diag *d) {
    return json_object_set_new(files, name, entry) == 0 ? PL_ERR_OK : pl_host_oom(d, name);
}

pl_err pl_manifest_add(json_t *files, const char *name, const struct pl_file_digest *digest,
                       struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    return set_entry(files, name,
                     json_pack("{s:I, s:s}", "bytes", (json_int_t)digest->bytes, "xxh64",
                               pl_digest_text(digest->xxh64, text)),
                     d);
}

pl_err pl_manifest_add_pieces(json_t *files, const char *name, const struct pl_file_piece *pieces,
                              uint32_t n, struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    const uint64_t bytes = pieces[n - 1].end;
    if (n == 1)
        return pl_manifest_add(files, name, &(struct pl_file_digest){bytes, pieces->xxh64}, d);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        pl_json_append(&list, json_pack("[I, s]", (json_int_t)pieces[i].end,
                                        pl_digest_text(pieces[i].xxh64, text)));
    /* json_pack takes the list on failure too. */
    return set_entry(files, name,
                     json_pack("{s:I, s:o}", "bytes", (json_int_t)bytes, "pieces", list), d);
}

bool pl_manifest_has_pieces(json_t *files) {
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry) if (json_object_get(entry, "pieces")) return true;
    return false;
}

/* --- checked ---------------------------------------------------------------------------------- */

static pl_err check_size(const char *path, const json_t *entry, uint64_t now, struct pl_diag *d) {
    const json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
    if (bytes >= 0 && (uint64_t)bytes == now) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                      "%s is damaged: it was saved with %lld bytes and has %llu", path,
                      (long long)bytes, (unsigned long long)now);
}

static bool is_digest(const char *xxh64, uint64_t now, char text[PL_DIGEST_TEXT]) {
    pl_digest_text(now, text);
    return xxh64 && strcmp(xxh64, text) == 0;
}

static pl_err check_whole(struct reader *r, const json_t *entry, struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    struct pl_file_digest now;
    const char *xxh64 = json_string_value(json_object_get(entry, "xxh64"));
    PL_TRY(digest_next(r, UINT64_MAX, &now, d));
    PL_TRY(check_size(r->path, entry, now.bytes, d));
    if (is_digest(xxh64, now.xxh64, text)) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, r->path, 0, 0,
                      "%s is damaged: it was saved with the digest %s and has %s", r->path,
                      xxh64 ? xxh64 : "(none)", text);
}

static pl_err no_pieces(const char *path, struct pl_diag *d) {
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                      "%s is damaged: the list of its pieces is none", path);
}

/* Reads from byte `begin` on; *got: how many bytes of it there are. Those of a file that ends too
 * early have another size than the file. */
static pl_err check_piece(struct reader *r, const json_t *piece, uint64_t begin, uint64_t *got,
                          struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    struct pl_file_digest now;
    const json_int_t end = json_integer_value(json_array_get(piece, 0));
    const char *xxh64 = json_string_value(json_array_get(piece, 1));
    if (end <= 0 || (uint64_t)end <= begin || !xxh64) return no_pieces(r->path, d);
    PL_TRY(digest_next(r, (uint64_t)end - begin, &now, d));
    *got = now.bytes;
    if (begin + now.bytes < (uint64_t)end || is_digest(xxh64, now.xxh64, text)) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, r->path, 0, 0,
                      "%s is damaged: bytes %llu to %lld were saved with the digest %s and have %s",
                      r->path, (unsigned long long)begin, (long long)end, xxh64, text);
}

static pl_err check_pieces(struct reader *r, const json_t *entry, const json_t *pieces,
                           struct pl_diag *d) {
    struct pl_file_digest rest;
    size_t i;
    const json_t *piece;
    uint64_t end = 0, got = 0, bytes = 0;
    json_array_foreach(pieces, i, piece) {
        PL_TRY(check_piece(r, piece, end, &got, d));
        end = (uint64_t)json_integer_value(json_array_get(piece, 0));
        bytes += got;
    }
    PL_TRY(digest_next(r, UINT64_MAX, &rest, d));
    PL_TRY(check_size(r->path, entry, bytes + rest.bytes, d));
    return bytes == end && rest.bytes == 0 && end > 0 ? PL_ERR_OK : no_pieces(r->path, d);
}

static pl_err check_file(const char *path, const json_t *entry, struct pl_diag *d) {
    const json_t *pieces = json_object_get(entry, "pieces");
    struct reader r;
    PL_TRY(reader_open(&r, path, d));
    pl_err err = pieces ? check_pieces(&r, entry, pieces, d) : check_whole(&r, entry, d);
    reader_close(&r);
    return err;
}

pl_err pl_manifest_check_file(const char *dir, const char *name, const json_t *entry,
                              struct pl_diag *d) {
    if (!*name || strchr(name, '/'))
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, dir, 0, 0,
                          "%s: `%s` in the list of its files is not a file name", dir, name);
    char *path = pl_path_join(dir, name);
    pl_err err = path ? check_file(path, entry, d) : pl_host_oom(d, "a path");
    free(path);
    return err;
}

pl_err pl_manifest_check(json_t *files, const char *dir, struct pl_diag *d) {
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry) PL_TRY(pl_manifest_check_file(dir, name, entry, d));
    return PL_ERR_OK;
}
