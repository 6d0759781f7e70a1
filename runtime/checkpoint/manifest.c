/* manifest.c - see manifest.h. */
#include "runtime/checkpoint/manifest.h"
#include "estimator/base/alloc.h"
#include "estimator/base/digest.h"
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

static pl_err digest_of(int fd, const char *path, struct pl_file_digest *out, struct pl_diag *d) {
    struct pl_digest h;
    char *buf = pl_malloc(CHUNK);
    ssize_t n = 0;
    if (!buf) return pl_host_oom(d, path);
    pl_digest_init(&h, 0);
    do {
        n = read(fd, buf, CHUNK);
        if (n > 0) pl_digest_add(&h, buf, (size_t)n);
    } while (n > 0 || (n < 0 && errno == EINTR));
    pl_err err = n == 0 ? PL_ERR_OK : pl_file_read_error(d, path);
    *out = (struct pl_file_digest){h.bytes, pl_digest_value(&h)};
    free(buf);
    return err;
}

pl_err pl_file_digest_read(const char *path, struct pl_file_digest *out, struct pl_diag *d) {
    struct stat st;
    pl_err err;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        err = pl_file_read_error(d, path);
    else if (!S_ISREG(st.st_mode))
        err = pl_diag_at(d, PL_ERR_CHECKPOINT_FILE, path, 0, 0, "%s is not a regular file", path);
    else
        err = digest_of(fd, path, out, d);
    if (fd >= 0) close(fd);
    return err;
}

pl_err pl_manifest_add(json_t *files, const char *name, const struct pl_file_digest *digest,
                       struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    json_t *entry = json_pack("{s:I, s:s}", "bytes", (json_int_t)digest->bytes, "xxh64",
                              pl_digest_text(digest->xxh64, text));
    /* set_new takes its value on failure too, and a NULL value is a failure. */
    return json_object_set_new(files, name, entry) == 0 ? PL_ERR_OK : pl_host_oom(d, name);
}

static pl_err differs(const char *path, const json_t *entry, const struct pl_file_digest *now,
                      struct pl_diag *d) {
    char text[PL_DIGEST_TEXT];
    const json_int_t bytes = json_integer_value(json_object_get(entry, "bytes"));
    const char *xxh64 = json_string_value(json_object_get(entry, "xxh64"));
    if (bytes < 0 || (uint64_t)bytes != now->bytes)
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                          "%s is damaged: it was saved with %lld bytes and has %llu", path,
                          (long long)bytes, (unsigned long long)now->bytes);
    pl_digest_text(now->xxh64, text);
    if (xxh64 && strcmp(xxh64, text) == 0) return PL_ERR_OK;
    return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, path, 0, 0,
                      "%s is damaged: it was saved with the digest %s and has %s", path,
                      xxh64 ? xxh64 : "(none)", text);
}

pl_err pl_manifest_check_file(const char *dir, const char *name, const json_t *entry,
                              struct pl_diag *d) {
    struct pl_file_digest now;
    if (!*name || strchr(name, '/'))
        return pl_diag_at(d, PL_ERR_CHECKPOINT_FORMAT, dir, 0, 0,
                          "%s: `%s` in the list of its files is not a file name", dir, name);
    char *path = pl_path_join(dir, name);
    pl_err err = path ? pl_file_digest_read(path, &now, d) : pl_host_oom(d, "a path");
    if (err == PL_ERR_OK) err = differs(path, entry, &now, d);
    free(path);
    return err;
}

pl_err pl_manifest_check(json_t *files, const char *dir, struct pl_diag *d) {
    const char *name;
    json_t *entry;
    json_object_foreach(files, name, entry) PL_TRY(pl_manifest_check_file(dir, name, entry, d));
    return PL_ERR_OK;
}
