#include "runtime/data/data_content.h"

#include "estimator/base/open_file.h"
#include "runtime/data/file_content.h"

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

pl_err pl_data_unpack(struct pl_data *data, struct data_file *f, struct pl_diag *d) {
    struct stat st;
    if (f->packed) return PL_ERR_OK;
    PL_TRY(pl_data_reopen(data, f->path, &f->fd, d));
    const struct pl_content_source source = {f->fd, f->path, &data->parser, f->format};
    data->parser.shape = &f->shape;
    PL_TRY(pl_file_content(&source, &data->unpacked, &f->content, &f->parquet, d));
    f->packed = f->content.fd != f->fd;
    f->csv = f->csv && !f->parquet;
    f->content_bytes = f->packed                                  ? f->content.bytes
                       : fstat(f->fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size
                                                                  : 0;
    if (f->packed) pl_pool_close(&data->pool, &f->fd);
    return PL_ERR_OK;
}
