/* packed_file.c - the text of a file, plain or gzip, within limits. */
#include "runtime/data/tokenizer/packed_file.h"

#include "estimator/base/alloc.h"
#include "estimator/base/open_file.h"
#include "estimator/gguf/gguf_tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

/* Unpacked. The largest known has 35 MB, and gzip makes a tokenizer a fifth of itself. */
#define FILE_MOST_BYTES ((size_t)128 << 20)
#define GZIP_MOST_TIMES 100
#define GZIP_FREE_BYTES ((size_t)1 << 20)

static pl_err read_stream(gzFile z, const char *path, struct pl_text *out, struct pl_diag *d) {
    enum { BLOCK = 1 << 16 };
    char *block = pl_malloc(BLOCK);
    pl_err err = PL_ERR_OK;
    int n = 0, code;
    if (!block || gzbuffer(z, BLOCK) != 0) {
        free(block);
        return pl_host_oom(d, path);
    }
    while (err == PL_ERR_OK && (n = gzread(z, block, BLOCK)) > 0) {
        const z_off_t packed = gzoffset(z);
        pl_text_addn(out, block, (size_t)n);
        if (out->failed) err = pl_host_oom(d, path);
        if (out->len > FILE_MOST_BYTES)
            err = pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0, "the file is above %zu MiB",
                             FILE_MOST_BYTES >> 20);
        else if (out->len > GZIP_FREE_BYTES && packed >= 0 &&
                 out->len / GZIP_MOST_TIMES > (size_t)packed)
            err = pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0,
                             "unpacked the file is above %d times its size", GZIP_MOST_TIMES);
    }
    const char *why = gzerror(z, &code);
    if (err == PL_ERR_OK && n < 0)
        err = code == Z_MEM_ERROR ? pl_host_oom(d, path)
                                  : pl_diag_at(d, PL_ERR_TOKENIZER_FILE, path, 0, 0,
                                               "the file cannot be read: %s", why);
    free(block);
    return err;
}

pl_err pl_tokenizer_read_file(const char *path, struct pl_text *out, bool *there,
                              struct pl_diag *d) {
    const char *why;
    int fd = pl_open_file(path, NULL, &why);
    if (fd < 0 && errno == ENOTDIR) return pl_gguf_companion(path, out, there, d);
    *there = fd >= 0 || (errno != ENOENT && errno != ENOTDIR);
    if (fd < 0 && !*there) return PL_ERR_OK;
    if (fd < 0)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_TOKENIZER_FILE), path, 0, 0,
                          "the file cannot be opened: %s", why);
    gzFile z = gzdopen(fd, "rb");
    if (!z) {
        close(fd);
        return pl_host_oom(d, path);
    }
    pl_err err = read_stream(z, path, out, d);
    gzclose(z);
    return err;
}
