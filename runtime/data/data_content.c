#include "runtime/data/data_content.h"

#include "estimator/base/open_file.h"
#include "runtime/data/parquet/unpack_parquet.h"

#include <errno.h>
#include <sys/stat.h>

pl_err pl_data_reopen(struct pl_data *data, const char *path, int *fd, struct pl_diag *d) {
    const char *why;
    if (pl_pool_open(&data->pool, path, fd, &why) >= 0) return PL_ERR_OK;
    const int error = errno;
    pl_err err = pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_FILE), path, 0, 0,
                            "cannot open the file again: %s", why);
    return pl_open_hint(d, err, error);
}

/* A file, and the parser and the format of its rows. */
struct source {
    struct pl_row_parser *parser;
    const struct pl_format *format; /* NULL: not known yet */
};

static bool reads_column(const void *ctx, const char *column) {
    const struct source *of = ctx;
    return pl_format_reads(of->parser, of->format, column);
}

static bool takes_column(const void *ctx, const char *column) {
    const struct source *of = ctx;
    return pl_format_takes(of->parser, of->format, column);
}

pl_err pl_data_unpack(struct pl_data *data, struct data_file *f, struct pl_diag *d) {
    struct stat st;
    if (f->packed) return PL_ERR_OK;
    PL_TRY(pl_data_reopen(data, f->path, &f->fd, d));
    const struct source source = {&data->parser, f->format};
    const struct pl_parquet_wish wish = {reads_column, takes_column, &source};
    data->parser.shape = &f->shape;
    f->parquet = pl_is_parquet(f->fd);
    PL_TRY(f->parquet ? pl_unpack_parquet(f->fd, f->path, &wish, &data->unpacked, &f->content, d)
                      : pl_unpack(f->fd, f->path, &data->unpacked, &f->content, d));
    f->packed = f->content.fd != f->fd;
    f->csv = f->csv && !f->parquet;
    f->content_bytes = f->packed                                  ? f->content.bytes
                       : fstat(f->fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size
                                                                  : 0;
    if (f->packed) pl_pool_close(&data->pool, &f->fd);
    return PL_ERR_OK;
}
