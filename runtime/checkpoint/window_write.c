/* window_write.c - the bytes of windows from the device into an open file, through staging, piece
 * by piece. */
#include "runtime/checkpoint/window_write.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/cut.h"

#include <stdlib.h>
#include <string.h>

/* Elements [row, row+rows) x [col, col+n) of the file into piece->out: from whole columns, or from
 * these rows of one where staging holds no column. */
static pl_err turn_block(const struct pl_window *w, const struct pl_tensor_io *io,
                         const struct pl_io_piece *piece, uint64_t row, uint64_t rows, uint64_t col,
                         uint64_t n, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    const uint64_t most = pl_window_columns(w, piece->elements), skipped = most ? 0 : row;
    const uint64_t stride = most ? w->dims[0] : rows;
    for (uint64_t at = 0, some; at < n; at += some) {
        some = pl_u64_min(pl_u64_max(most, 1), n - at);
        PL_TRY(pl_io_download(io, w->tensor, w->first + (col + at) * w->dims[0] + skipped,
                              piece->raw, some * stride, d));
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = 0; i < some; i++)
                memcpy((char *)piece->out + (r * n + at + i) * size,
                       (const char *)piece->raw + (i * stride + row - skipped + r) * size, size);
    }
    return PL_ERR_OK;
}

/* The destination of a window's elements: to the end of a file, to their places in one that is
 * shared, or nowhere. */
struct sink {
    struct pl_outbox *outbox; /* NULL: the rank feeds the one that writes */
    bool shared;
    uint64_t at; /* of the window in a shared file */
};

static pl_err put_bytes(const struct sink *s, uint64_t offset, const void *data, uint64_t bytes,
                        struct pl_diag *d) {
    if (!s->outbox) return PL_ERR_OK;
    return s->shared ? pl_outbox_write_at(s->outbox, s->at + offset, data, bytes, d)
                     : pl_outbox_write(s->outbox, data, bytes, d);
}

/* Rows [row, row+rows) of columns [col, col+n) of the file. */
static pl_err put_block(const struct pl_window *w, const struct sink *s, const char *data,
                        uint64_t row, uint64_t rows, uint64_t col, uint64_t n, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    if (!s->shared) return put_bytes(s, 0, data, rows * n * size, d);
    for (uint64_t r = 0; r < rows; r++)
        PL_TRY(
            put_bytes(s, ((row + r) * w->dims[1] + col) * size, data + r * n * size, n * size, d));
    return PL_ERR_OK;
}

/* Columns [begin, end) of a window, which the file wants row after row: as many at a time as half
 * of staging holds, or part of one. */
static pl_err save_turned(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct sink *s, uint64_t begin, uint64_t end, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    struct pl_io_piece piece = {0};
    PL_TRY(pl_io_divide_staging(io, size, 0, size, &piece, d));
    const uint64_t span = pl_u64_min(end - begin, piece.elements);
    const uint64_t together = span == end - begin ? piece.elements / span : 1;
    for (uint64_t row = 0, rows; row < w->dims[0]; row += rows) {
        rows = pl_u64_min(together, w->dims[0] - row);
        for (uint64_t col = begin, n; col < end; col += n) {
            n = pl_u64_min(span, end - col);
            PL_TRY(turn_block(w, io, &piece, row, rows, col, n, d));
            PL_TRY(put_block(w, s, piece.out, row, rows, col, n, d));
        }
    }
    return PL_ERR_OK;
}

/* Elements [begin, end) of a window. */
static pl_err save_straight(const struct pl_window *w, const struct pl_tensor_io *io,
                            const struct sink *s, uint64_t begin, uint64_t end, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    struct pl_io_piece piece = {0};
    PL_TRY(pl_io_divide_staging(io, size, 0, 0, &piece, d));
    for (uint64_t at = begin; at < end; at += piece.elements) {
        const uint64_t n = pl_u64_min(piece.elements, end - at);
        PL_TRY(pl_io_download(io, w->tensor, w->first + at, piece.raw, n, d));
        PL_TRY(put_bytes(s, at * size, piece.raw, n * size, d));
    }
    return PL_ERR_OK;
}

/* outbox NULL: the rank feeds the one that writes. */
static pl_err save_window(void *ctx, const struct pl_window *w, struct pl_outbox *o,
                          struct pl_diag *d) {
    const struct sink s = {.outbox = o};
    return w->turned ? save_turned(w, ctx, &s, 0, w->dims[1], d)
                     : save_straight(w, ctx, &s, 0, w->count, d);
}

pl_err pl_window_save_part(const struct pl_window *w, const struct pl_tensor_io *io, uint64_t from,
                           uint64_t n, struct pl_outbox *o, uint64_t at, struct pl_diag *d) {
    const struct sink s = {.outbox = o, .shared = true, .at = at};
    if (!w->turned || w->dims[1] == 1) return save_straight(w, io, &s, from, from + n, d);
    return save_turned(w, io, &s, from / w->dims[0], (from + n) / w->dims[0], d);
}

pl_err pl_windows_feed(const struct pl_windows *w, const struct pl_tensor_io *io,
                       struct pl_diag *d) {
    for (uint32_t i = 0; i < w->n; i++)
        if (pl_cut_is_cut(io->cut, w->items[i].tensor))
            PL_TRY(save_window((void *)(uintptr_t)io, &w->items[i], NULL, d));
    return PL_ERR_OK;
}

struct pl_window_source pl_window_source_device(const struct pl_tensor_io *io) {
    /* save_window takes it back as const */
    return (struct pl_window_source){.write = save_window,
                                     .ctx = (void *)(uintptr_t)io,
                                     .shares = io->shares ? io : NULL,
                                     .buffer = io->staging,
                                     .buffer_bytes = io->staging_bytes};
}

pl_err pl_windows_header(const struct pl_windows *w, uint32_t begin, uint32_t end,
                         struct pl_text *out, struct pl_diag *d) {
    const size_t n = (size_t)(end - begin);
    struct pl_st_item *items = pl_calloc(n + 1, sizeof *items);
    uint64_t(*dims)[3] = pl_calloc(n + 1, sizeof *dims);
    pl_err err = items && dims ? PL_ERR_OK : pl_host_oom(d, "the header of a safetensors file");
    for (size_t i = 0; i < n && err == PL_ERR_OK; i++) {
        const struct pl_window *item = &w->items[begin + i];
        items[i] = (struct pl_st_item){.name = item->name,
                                       .dtype = item->dtype,
                                       .rank = pl_window_shape(item, dims[i]),
                                       .dims = dims[i]};
    }
    if (err == PL_ERR_OK) err = pl_st_header(items, end - begin, out, d);
    free(dims);
    free(items);
    return err;
}
