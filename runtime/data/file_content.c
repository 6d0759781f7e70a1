#include "runtime/data/file_content.h"

#include "runtime/data/parquet/unpack_parquet.h"

static bool reads(const void *ctx, const char *column) {
    const struct pl_content_source *file = ctx;
    return pl_format_reads(file->parser, file->format, column);
}

static bool takes(const void *ctx, const char *column) {
    const struct pl_content_source *file = ctx;
    return pl_format_takes(file->parser, file->format, column);
}

pl_err pl_file_content(const struct pl_content_source *file, struct pl_unpacked *all,
                       struct pl_content *out, bool *parquet, struct pl_diag *d) {
    const struct pl_parquet_wish wish = {reads, takes, file};
    *parquet = pl_is_parquet(file->fd);
    return *parquet ? pl_unpack_parquet(file->fd, file->path, &wish, all, out, d)
                    : pl_unpack(file->fd, file->path, all, out, d);
}
