/* stream.c - windows between files and the device, through staging, piece by piece.
 *
 * A piece is a group of elements that fits the staging buffer together with what it is converted
 * to; a tensor may be larger than staging. Results do not depend on the size of the pieces. */
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/checkpoint/durable.h"
#include "runtime/checkpoint/finite.h"
#include "runtime/checkpoint/share.h"
#include "runtime/checkpoint/tensor_io.h"
#include "runtime/checkpoint/windows.h"
#include "runtime/comm/comm.h"
#include "runtime/kernels/start.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_ALIGN 64 /* elements: keeps the parts of staging aligned, and random blocks whole */

/* Staging cut into parts: what was read, its fp32 values, the values in the tensor's type. */
struct piece {
    uint64_t elements;
    void *raw;
    float *values;
    void *out;
};

static pl_err cut_staging(const struct pl_tensor_io *io, uint64_t raw_bytes, uint64_t values_bytes,
                          uint64_t out_bytes, struct piece *out, struct pl_diag *d) {
    if (!io->staging || io->staging_bytes < PL_STAGING_MIN)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "a staging buffer of %llu bytes is too small",
                           (unsigned long long)io->staging_bytes);
    uint64_t n = io->staging_bytes / (raw_bytes + values_bytes + out_bytes);
    char *base = io->staging;
    n -= n % PIECE_ALIGN;
    out->elements = n;
    out->values = (void *)base;
    out->raw = base + n * values_bytes;
    out->out = base + n * (values_bytes + raw_bytes);
    return PL_ERR_OK;
}

static char *element_address(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element) {
    char *base = io->address(io->ctx, tensor);
    return base + element * pl_dtype_bytes(io->program->tensors[tensor].dtype);
}

static pl_err device_error(const struct pl_tensor_io *io, uint32_t tensor, pl_err err,
                           struct pl_diag *d) {
    char name[96];
    pl_tensor_name(io->program, tensor, name);
    return pl_diag_set(d, err, "the device did not copy tensor %s", name);
}

static pl_err device_sync(const struct pl_tensor_io *io) {
    return io->device->ops->sync ? io->device->ops->sync(io->device) : PL_ERR_OK;
}

/* A tensor in host memory is copied by the processor, once nothing copies it for the device. */
static bool in_host_memory(const struct pl_tensor_io *io, uint32_t tensor) {
    return io->program->tensors[tensor].place != PL_PLACE_DEVICE;
}

static pl_err copy_on_host(const struct pl_tensor_io *io, void *dst, const void *src,
                           uint64_t bytes) {
    pl_err err = device_sync(io);
    if (err == PL_ERR_OK && bytes) memcpy(dst, src, bytes);
    return err;
}

static pl_err upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                     const void *src, uint64_t n, struct pl_diag *d) {
    uint64_t bytes = n * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    char *dst = element_address(io, tensor, element);
    pl_err err = in_host_memory(io, tensor) ? copy_on_host(io, dst, src, bytes)
                                            : io->device->ops->upload(io->device, dst, src, bytes);
    if (err == PL_ERR_OK) err = device_sync(io);
    return err == PL_ERR_OK ? err : device_error(io, tensor, err, d);
}

/* Staging is used again as soon as this returns, so the copy must be over. */
pl_err pl_io_upload(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                    const void *src, uint64_t n, struct pl_diag *d) {
    struct pl_cut_range ranges[PL_MAX_PARTS], r;
    const uint64_t size = pl_dtype_bytes(io->program->tensors[tensor].dtype);
    if (!io->cut || !pl_cut_is_cut(io->cut, tensor)) return upload(io, tensor, element, src, n, d);
    const uint32_t count = pl_cut_ranges(io->cut, tensor, io->comm->world.rank, ranges);
    for (uint32_t i = 0; i < count; i++)
        if (pl_cut_meet(ranges[i], element, n, &r))
            PL_TRY(upload(io, tensor, r.at, (const char *)src + (r.from - element) * size, r.count,
                          d));
    return PL_ERR_OK;
}

static pl_err download_own(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                           void *dst, uint64_t n, struct pl_diag *d) {
    uint64_t bytes = n * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    const char *src = element_address(io, tensor, element);
    pl_err err = in_host_memory(io, tensor)
                     ? copy_on_host(io, dst, src, bytes)
                     : io->device->ops->download(io->device, dst, src, bytes);
    if (err == PL_ERR_OK) err = device_sync(io);
    return err == PL_ERR_OK ? err : device_error(io, tensor, err, d);
}

static pl_err exchange(const struct pl_tensor_io *io, uint32_t peer, bool receive, void *p,
                       uint64_t bytes, struct pl_diag *d) {
    const struct pl_move move = {peer, receive, p, bytes};
    pl_err err = io->comm->ops->exchange(io->comm, &move, 1, NULL);
    if (err == PL_ERR_OK) return err;
    return pl_comm_check(io->comm, d) != PL_ERR_OK
               ? err
               : pl_diag_set(d, err, "rank %u sent no state", peer);
}

/* Elements of another rank, through scratch of a device that the host does not reach. */
static pl_err receive(const struct pl_tensor_io *io, uint32_t rank, char *dst, uint64_t bytes,
                      struct pl_diag *d) {
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = pl_u64_min(bytes - at, io->scratch_bytes);
        PL_TRY(exchange(io, rank, true, io->scratch ? io->scratch : dst + at, n, d));
        if (!io->scratch) continue;
        pl_err err = io->device->ops->download(io->device, dst + at, io->scratch, n);
        if (err != PL_ERR_OK) return pl_diag_set(d, err, "the device did not copy a state");
    }
    return PL_ERR_OK;
}

static pl_err send(const struct pl_tensor_io *io, uint32_t tensor, const struct pl_cut_range *r,
                   struct pl_diag *d) {
    const uint64_t bytes = r->count * pl_dtype_bytes(io->program->tensors[tensor].dtype);
    char *from = element_address(io, tensor, r->at);
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = pl_u64_min(bytes - at, io->scratch_bytes);
        PL_TRY(exchange(io, 0, false, from + at, n, d));
    }
    return PL_ERR_OK;
}

/* The elements that `rank` holds of [element, element+n): rank 0 gets them. Of files that are
 * shared every rank gets its own. */
static pl_err download_of(const struct pl_tensor_io *io, uint32_t rank, uint32_t tensor,
                          uint64_t element, char *dst, uint64_t n, struct pl_diag *d) {
    struct pl_cut_range ranges[PL_MAX_PARTS], r;
    const uint64_t size = pl_dtype_bytes(io->program->tensors[tensor].dtype);
    const uint32_t me = io->comm->world.rank;
    const uint32_t count = pl_cut_ranges(io->cut, tensor, rank, ranges);
    for (uint32_t i = 0; i < count; i++) {
        if (!pl_cut_meet(ranges[i], element, n, &r)) continue;
        char *to = dst + (r.from - element) * size;
        if (rank == me && (me == 0 || io->shares))
            PL_TRY(download_own(io, tensor, r.at, to, r.count, d));
        else if (me == 0)
            PL_TRY(receive(io, rank, to, r.count * size, d));
        else if (rank == me)
            PL_TRY(send(io, tensor, &r, d));
    }
    return PL_ERR_OK;
}

static pl_err download(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element, void *dst,
                       uint64_t n, struct pl_diag *d) {
    if (!io->cut || !pl_cut_is_cut(io->cut, tensor))
        return download_own(io, tensor, element, dst, n, d);
    if (io->shares) return download_of(io, io->comm->world.rank, tensor, element, dst, n, d);
    for (uint32_t rank = 0; rank < io->comm->world.size; rank++)
        PL_TRY(download_of(io, rank, tensor, element, dst, n, d));
    return PL_ERR_OK;
}

/* n elements of the file of a window, from `at` on. */
static pl_err read_raw(const struct pl_window *w, uint64_t at, uint64_t n, void *dst,
                       struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->entry->dtype);
    PL_TRY(pl_st_read(w->file, w->entry, at * size, dst, n * size, d));
    return w->finite ? pl_finite_check(w->file, w->entry, dst, at, n, d) : PL_ERR_OK;
}

/* fp32 values to the tensor, rounded to its type, and unrounded to the master. */
static pl_err store_values(const struct pl_window *w, const struct pl_tensor_io *io,
                           uint32_t master, const struct piece *piece, uint64_t first, uint64_t n,
                           struct pl_diag *d) {
    enum pl_dtype type = io->program->tensors[w->tensor].dtype;
    if (master != PL_NONE) PL_TRY(pl_io_upload(io, master, w->first + first, piece->values, n, d));
    if (type == PL_DTYPE_F32)
        return pl_io_upload(io, w->tensor, w->first + first, piece->values, n, d);
    pl_convert_from_f32(piece->out, piece->values, type, n);
    return pl_io_upload(io, w->tensor, w->first + first, piece->out, n, d);
}

/* The narrower type decides: the base may be held, or the copy stored, in 16 bits of 32. */
static pl_err check_copy(const struct pl_window *w, const struct pl_tensor_io *io,
                         struct pl_diag *d) {
    enum pl_dtype from = w->entry->dtype, to = io->program->tensors[w->tensor].dtype;
    uint64_t from_bytes = pl_dtype_bytes(from);
    if (io->cut && pl_cut_is_cut(io->cut, w->tensor)) return PL_ERR_OK; /* no rank has all of it */
    bool rounds_base = pl_dtype_bytes(to) > from_bytes, same = true;
    enum pl_dtype type = rounds_base ? from : to;
    struct piece piece = {0};
    PL_TRY(cut_staging(io, from_bytes, sizeof(float), pl_dtype_bytes(type), &piece, d));
    for (uint64_t at = 0; at < w->count && same; at += piece.elements) {
        uint64_t n = pl_u64_min(piece.elements, w->count - at);
        PL_TRY(pl_st_read(w->file, w->entry, at * from_bytes, piece.raw, n * from_bytes, d));
        if (rounds_base)
            PL_TRY(download(io, w->tensor, at, piece.values, n, d));
        else
            pl_convert_to_f32(piece.values, piece.raw, from, n);
        pl_convert_from_f32(piece.out, piece.values, type, n);
        if (!rounds_base) PL_TRY(download(io, w->tensor, at, piece.raw, n, d));
        same = memcmp(piece.out, piece.raw, n * pl_dtype_bytes(type)) == 0;
    }
    return same ? PL_ERR_OK : pl_window_refuse_copy(w, d);
}

/* Columns of a turned window that a part of staging holds. */
static uint64_t columns_of(const struct pl_window *w, uint64_t elements) {
    return pl_u64_min(elements / w->dims[0], w->dims[1]);
}

static pl_err too_many_rows(const struct pl_window *w, struct pl_diag *d) {
    return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "a staging buffer holds no column of %s", w->name);
}

/* The file has [R,C], the tensor [C,R]: some columns at a time. */
static pl_err load_turned(const struct pl_window *w, const struct pl_tensor_io *io, uint32_t master,
                          struct pl_diag *d) {
    const enum pl_dtype from = w->entry->dtype;
    const uint64_t rows = w->dims[0], cols = w->dims[1], size = pl_dtype_bytes(from);
    struct piece piece = {0};
    PL_TRY(cut_staging(io, size, sizeof(float), sizeof(float), &piece, d));
    const uint64_t most = columns_of(w, piece.elements);
    float *const as_read = piece.out;
    if (!most) return too_many_rows(w, d);
    for (uint64_t col = 0; col < cols; col += most) {
        const uint64_t n = pl_u64_min(most, cols - col);
        for (uint64_t r = 0; r < rows; r++)
            PL_TRY(read_raw(w, r * cols + col, n, (char *)piece.raw + r * n * size, d));
        pl_convert_to_f32(as_read, piece.raw, from, n * rows);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = 0; i < n; i++)
                piece.values[i * rows + r] = as_read[r * n + i];
        PL_TRY(store_values(w, io, master, &piece, col * rows, n * rows, d));
    }
    return PL_ERR_OK;
}

static pl_err load_window(const struct pl_window *w, const struct pl_tensor_io *io, uint32_t master,
                          struct pl_diag *d) {
    if (w->turned) return load_turned(w, io, master, d);
    if (w->is_copy) return check_copy(w, io, d);
    if (w->stored.absmax) return pl_window_load_codes(w, io, d);
    if (w->quantised) return pl_window_quantise(w, io, NULL, d);
    enum pl_dtype from = w->entry->dtype, to = io->program->tensors[w->tensor].dtype;
    bool as_is = from == to && master == PL_NONE;
    uint64_t from_bytes = pl_dtype_bytes(from);
    struct piece piece = {0};
    PL_TRY(cut_staging(io, from_bytes, as_is ? 0 : sizeof(float), as_is ? 0 : pl_dtype_bytes(to),
                       &piece, d));
    for (uint64_t at = 0; at < w->count; at += piece.elements) {
        uint64_t n = pl_u64_min(piece.elements, w->count - at);
        PL_TRY(read_raw(w, at, n, piece.raw, d));
        if (as_is) {
            PL_TRY(pl_io_upload(io, w->tensor, w->first + at, piece.raw, n, d));
            continue;
        }
        pl_convert_to_f32(piece.values, piece.raw, from, n);
        PL_TRY(store_values(w, io, master, &piece, at, n, d));
    }
    return PL_ERR_OK;
}

pl_err pl_windows_load(const struct pl_windows *w, const struct pl_tensor_io *io, bool fill_master,
                       struct pl_diag *d) {
    for (uint32_t i = 0; i < w->n; i++)
        PL_TRY(load_window(&w->items[i], io, fill_master ? w->items[i].master : PL_NONE, d));
    return PL_ERR_OK;
}

/* ---- values that are made ---- */

struct pl_view pl_io_view(const struct pl_tensor_io *io, uint32_t tensor, uint64_t element,
                          uint64_t n) {
    return (struct pl_view){.p = element_address(io, tensor, element),
                            .rows = n,
                            .cols = 1,
                            .ld = 1,
                            .dtype = io->program->tensors[tensor].dtype};
}

struct pl_device *pl_io_kernel_device(const struct pl_tensor_io *io, uint32_t tensor,
                                      enum pl_op_kind kind) {
    if (io->cut && pl_cut_is_cut(io->cut, tensor)) return NULL;
    struct pl_device *on = in_host_memory(io, tensor) ? io->host : io->device;
    return on && on->kernels && on->kernels[kind] ? on : NULL;
}

pl_err pl_io_run(const struct pl_tensor_io *io, struct pl_device *on, uint32_t tensor,
                 enum pl_op_kind kind, const struct pl_call *c, struct pl_diag *d) {
    char name[96];
    pl_err err = on == io->device ? PL_ERR_OK : device_sync(io);
    if (err == PL_ERR_OK) err = on->kernels[kind](on, c);
    if (err == PL_ERR_OK && on->ops->sync) err = on->ops->sync(on);
    if (err == PL_ERR_OK) return PL_ERR_OK;
    pl_tensor_name(io->program, tensor, name);
    return pl_diag_set(d, err, "the device did not make tensor %s (%s)", name, pl_op_name(kind));
}

static pl_err start_in_place(const struct pl_window *w, const struct pl_tensor_io *io,
                             uint32_t tensor, const struct pl_window_values *values,
                             struct pl_diag *d) {
    const struct pl_batch batch = {.seed = values->seed};
    struct pl_call c = {.attr = &values->attr, .batch = &batch};
    c.out[PL_START_OUT_W] = pl_io_view(io, tensor, w->first, w->count);
    return pl_io_run(io, pl_io_kernel_device(io, tensor, PL_OP_START), tensor, PL_OP_START, &c, d);
}

static pl_err start_through_staging(const struct pl_window *w, const struct pl_tensor_io *io,
                                    const struct pl_window_values *values, struct pl_diag *d) {
    const struct pl_start_rule rule = pl_start_rule_of(&values->attr, values->seed);
    struct piece piece = {0};
    uint64_t type_bytes = pl_dtype_bytes(io->program->tensors[w->tensor].dtype);
    PL_TRY(cut_staging(io, 0, sizeof(float), type_bytes, &piece, d));
    for (uint64_t at = 0; at < w->count; at += piece.elements) {
        uint64_t n = pl_u64_min(piece.elements, w->count - at);
        pl_start_values(&rule, at, n, piece.values);
        PL_TRY(store_values(w, io, w->master, &piece, at, n, d));
    }
    return PL_ERR_OK;
}

pl_err pl_window_start(const struct pl_window *w, const struct pl_tensor_io *io,
                       const struct pl_window_values *values, struct pl_diag *d) {
    if (w->quantised) return pl_window_quantise(w, io, values, d);
    bool in_place = pl_io_kernel_device(io, w->tensor, PL_OP_START) &&
                    (w->master == PL_NONE || pl_io_kernel_device(io, w->master, PL_OP_START));
    if (!in_place) return start_through_staging(w, io, values, d);
    PL_TRY(start_in_place(w, io, w->tensor, values, d));
    return w->master == PL_NONE ? PL_ERR_OK : start_in_place(w, io, w->master, values, d);
}

/* Elements [row, row+rows) x [col, col+n) of the file into piece->out. */
static pl_err turn_block(const struct pl_window *w, const struct pl_tensor_io *io,
                         const struct piece *piece, uint64_t row, uint64_t rows, uint64_t col,
                         uint64_t n, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype), most = columns_of(w, piece->elements);
    for (uint64_t at = 0; at < n; at += most) {
        const uint64_t some = pl_u64_min(most, n - at);
        PL_TRY(download(io, w->tensor, w->first + (col + at) * w->dims[0], piece->raw,
                        some * w->dims[0], d));
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t i = 0; i < some; i++)
                memcpy((char *)piece->out + (r * n + at + i) * size,
                       (const char *)piece->raw + (i * w->dims[0] + row + r) * size, size);
    }
    return PL_ERR_OK;
}

/* Where the elements of a window go: to the end of a file, to their places in one that is shared,
 * or nowhere. */
struct sink {
    struct pl_outbox *outbox; /* NULL: the rank feeds the one that writes */
    bool shared;
    uint64_t at; /* of the window in a shared file */
};

static pl_err put(const struct sink *s, uint64_t offset, const void *data, uint64_t bytes,
                  struct pl_diag *d) {
    if (!s->outbox) return PL_ERR_OK;
    return s->shared ? pl_outbox_write_at(s->outbox, s->at + offset, data, bytes, d)
                     : pl_outbox_write(s->outbox, data, bytes, d);
}

/* Rows [row, row+rows) of columns [col, col+n) of the file. */
static pl_err put_block(const struct pl_window *w, const struct sink *s, const char *data,
                        uint64_t row, uint64_t rows, uint64_t col, uint64_t n, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    if (!s->shared) return put(s, 0, data, rows * n * size, d);
    for (uint64_t r = 0; r < rows; r++)
        PL_TRY(put(s, ((row + r) * w->dims[1] + col) * size, data + r * n * size, n * size, d));
    return PL_ERR_OK;
}

/* Columns [begin, end) of a window, which the file wants row after row: as many at a time as half
 * of staging holds, or part of one. */
static pl_err save_turned(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct sink *s, uint64_t begin, uint64_t end, struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->dtype);
    struct piece piece = {0};
    PL_TRY(cut_staging(io, size, 0, size, &piece, d));
    if (!columns_of(w, piece.elements)) return too_many_rows(w, d);
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
    struct piece piece = {0};
    PL_TRY(cut_staging(io, size, 0, 0, &piece, d));
    for (uint64_t at = begin; at < end; at += piece.elements) {
        const uint64_t n = pl_u64_min(piece.elements, end - at);
        PL_TRY(download(io, w->tensor, w->first + at, piece.raw, n, d));
        PL_TRY(put(s, at * size, piece.raw, n * size, d));
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
    struct pl_st_item *items = pl_calloc((size_t)(end - begin) + 1, sizeof *items);
    if (!items) return pl_host_oom(d, "the header of a safetensors file");
    for (uint32_t i = begin; i < end; i++)
        items[i - begin] = (struct pl_st_item){.name = w->items[i].name,
                                               .dtype = w->items[i].dtype,
                                               .rank = w->items[i].rank,
                                               .dims = w->items[i].dims};
    pl_err err = pl_st_header(items, end - begin, out, d);
    free(items);
    return err;
}

static pl_err save_alone(const struct pl_windows *w, uint32_t begin, uint32_t end,
                         const struct pl_window_source *source, struct pl_outbox *o,
                         const char *name, struct pl_diag *d) {
    struct pl_text header = {0};
    pl_err err = pl_windows_header(w, begin, end, &header, d);
    if (err != PL_ERR_OK) goto out;
    PL_TRY_GOTO(pl_outbox_open(o, name, d), out);
    PL_TRY_GOTO(pl_outbox_write(o, header.data, header.len, d), out);
    for (uint32_t i = begin; i < end; i++)
        PL_TRY_GOTO(source->write(source->ctx, &w->items[i], o, d), out);
    err = pl_outbox_close(o, d);
out:
    pl_text_finish(&header);
    return err;
}

pl_err pl_windows_save(const struct pl_windows *w, uint32_t begin, uint32_t end,
                       const struct pl_window_source *source, struct pl_outbox *o, const char *name,
                       struct pl_diag *d) {
    const struct pl_tensor_io *io = source->shares;
    if (io && pl_windows_are_shared(w, begin, end, io))
        return pl_windows_share(w, begin, end, io, o, name, d);
    if (io && io->comm->world.rank != 0) return PL_ERR_OK;
    return save_alone(w, begin, end, source, o, name, d);
}
