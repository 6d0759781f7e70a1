/* window_load.c - windows from files, or from a rule, to the device, through staging, piece by
 * piece.
 *
 * A tensor may be larger than staging. Results do not depend on the size of the pieces. */
#include "runtime/checkpoint/window_load.h"

#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/cut.h"
#include "runtime/checkpoint/finite_entry.h"
#include "runtime/checkpoint/prequantised.h"
#include "runtime/checkpoint/surplus.h"
#include "runtime/kernels/start.h"

#include <math.h>
#include <string.h>

/* n elements of the file of a window, from `at` on. */
static pl_err read_raw(const struct pl_window *w, uint64_t at, uint64_t n, void *dst,
                       struct pl_diag *d) {
    const uint64_t size = pl_dtype_bytes(w->entry->dtype);
    PL_TRY(pl_st_read(w->file, w->entry, at * size, dst, n * size, d));
    return w->finite ? pl_finite_check(w->file, w->entry, dst, at, n, d) : PL_ERR_OK;
}

/* Refuses a file of which fp16 cannot hold a value: what is written is infinite where what was read
 * is not. A small number may become zero. */
static pl_err check_range(const struct pl_window *w, const struct pl_io_piece *piece,
                          enum pl_dtype type, uint64_t first, uint64_t n, struct pl_diag *d) {
    if (type != PL_DTYPE_F16 || !w->entry) return PL_ERR_OK;
    const uint64_t at = pl_finite_scan(pl_dtype_file_name(type), piece->out, n);
    if (at == n || !isfinite(piece->values[at])) return PL_ERR_OK;
    pl_err err =
        pl_diag_at(d, PL_ERR_MODEL_WEIGHTS, w->file->path, 0, 0,
                   "%s: tensor `%s`: element %llu is %g, and fp16 ends at 65504", w->file->path,
                   w->entry->name, (unsigned long long)(first + at), (double)piece->values[at]);
    pl_diag_hint(d, "set `dtype: fp32`, or `dtype: bf16` where the device has it");
    return err;
}

/* fp32 values to the tensor, rounded to its type, and unrounded to the master. */
static pl_err store_values(const struct pl_window *w, const struct pl_tensor_io *io,
                           uint32_t master, const struct pl_io_piece *piece, uint64_t first,
                           uint64_t n, struct pl_diag *d) {
    enum pl_dtype type = io->program->tensors[w->tensor].dtype;
    if (master != PL_NONE) PL_TRY(pl_io_upload(io, master, w->first + first, piece->values, n, d));
    if (type == PL_DTYPE_F32)
        return pl_io_upload(io, w->tensor, w->first + first, piece->values, n, d);
    pl_convert_from_f32(piece->out, piece->values, type, n);
    PL_TRY(check_range(w, piece, type, first, n, d));
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
    struct pl_io_piece piece = {0};
    PL_TRY(pl_io_divide_staging(io, from_bytes, sizeof(float), pl_dtype_bytes(type), &piece, d));
    for (uint64_t at = 0; at < w->count && same; at += piece.elements) {
        uint64_t n = pl_u64_min(piece.elements, w->count - at);
        PL_TRY(pl_st_read(w->file, w->entry, at * from_bytes, piece.raw, n * from_bytes, d));
        if (rounds_base)
            PL_TRY(pl_io_download(io, w->tensor, at, piece.values, n, d));
        else
            pl_convert_to_f32(piece.values, piece.raw, from, n);
        pl_convert_from_f32(piece.out, piece.values, type, n);
        if (!rounds_base) PL_TRY(pl_io_download(io, w->tensor, at, piece.raw, n, d));
        same = memcmp(piece.out, piece.raw, n * pl_dtype_bytes(type)) == 0;
    }
    return same ? PL_ERR_OK : pl_window_refuse_copy(w, d);
}

/* out[i,r] = in[r,i] of elements of a size. */
static void turn(const char *in, char *out, uint64_t rows, uint64_t cols, uint64_t size) {
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < cols; i++)
            memcpy(out + (i * rows + r) * size, in + (r * cols + i) * size, size);
}

/* Rows [row, row+rows) of columns [col, col+n) of a turned window; all rows, or one column. */
static pl_err load_block(const struct pl_window *w, const struct pl_tensor_io *io, uint32_t master,
                         const struct pl_io_piece *piece, uint64_t row, uint64_t rows, uint64_t col,
                         uint64_t n, struct pl_diag *d) {
    const enum pl_dtype from = w->entry->dtype;
    const uint64_t size = pl_dtype_bytes(from), first = col * w->dims[0] + row;
    for (uint64_t r = 0; r < rows; r++)
        PL_TRY(read_raw(w, (row + r) * w->dims[1] + col, n, (char *)piece->raw + r * n * size, d));
    if (!piece->values) {
        turn(piece->raw, piece->out, rows, n, size);
        return pl_io_upload(io, w->tensor, w->first + first, piece->out, n * rows, d);
    }
    pl_convert_to_f32(piece->out, piece->raw, from, n * rows);
    turn(piece->out, (char *)piece->values, rows, n, sizeof(float));
    return store_values(w, io, master, piece, first, n * rows, d);
}

/* The file has [R,C], the tensor [C,R]: some columns at a time, or a part of one. */
static pl_err load_turned(const struct pl_window *w, const struct pl_tensor_io *io, uint32_t master,
                          struct pl_diag *d) {
    const enum pl_dtype from = w->entry->dtype;
    const bool as_is = from == io->program->tensors[w->tensor].dtype && master == PL_NONE;
    const uint64_t size = pl_dtype_bytes(from), rows = w->dims[0], cols = w->dims[1];
    struct pl_io_piece piece = {0};
    PL_TRY(pl_io_divide_staging(io, size, as_is ? 0 : sizeof(float), as_is ? size : sizeof(float),
                                &piece, d));
    if (as_is) piece.values = NULL;
    const uint64_t most = pl_u64_max(pl_window_columns(w, piece.elements), 1);
    const uint64_t together = pl_u64_min(rows, piece.elements);
    for (uint64_t col = 0; col < cols; col += most)
        for (uint64_t row = 0; row < rows; row += together)
            PL_TRY(load_block(w, io, master, &piece, row, pl_u64_min(together, rows - row), col,
                              pl_u64_min(most, cols - col), d));
    return PL_ERR_OK;
}

static pl_err load_window(const struct pl_window *w, const struct pl_tensor_io *io, uint32_t master,
                          struct pl_diag *d) {
    if (w->turned) return load_turned(w, io, master, d);
    if (w->is_copy) return check_copy(w, io, d);
    if (w->stored.absmax) return pl_window_load_codes(w, io, d);
    if (w->quantised && !pl_quant_has_absmax(w->quant)) return pl_window_load_mxfp4(w, io, d);
    if (w->quantised) return pl_window_quantise(w, io, NULL, d);
    enum pl_dtype from = w->entry->dtype, to = io->program->tensors[w->tensor].dtype;
    bool as_is = from == to && master == PL_NONE;
    uint64_t from_bytes = pl_dtype_bytes(from);
    struct pl_io_piece piece = {0};
    PL_TRY(pl_io_divide_staging(io, from_bytes, as_is ? 0 : sizeof(float),
                                as_is ? 0 : pl_dtype_bytes(to), &piece, d));
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

/* ---- values of a rule ---- */

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
    struct pl_io_piece piece = {0};
    uint64_t type_bytes = pl_dtype_bytes(io->program->tensors[w->tensor].dtype);
    PL_TRY(pl_io_divide_staging(io, 0, sizeof(float), type_bytes, &piece, d));
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
