/* prequantised.c - matrices whose files hold 4-bit codes: those of bitsandbytes, as transformers
 * saves them, and experts in MXFP4.
 *
 * X.weight holds codes of two values a byte as U8 [n/2, 1]. Next to it are X.weight.absmax (F32, or
 * U8 under double quantisation with X.weight.nested_absmax), the tables X.weight.quant_map and
 * X.weight.nested_quant_map, and X.weight.quant_state.bitsandbytes__nf4 (or __fp4), a JSON text.
 * Format: bitsandbytes, functional.py, QuantState.as_dict(packed=True). */
#include "runtime/checkpoint/prequantised.h"

#include "estimator/base/checked.h"
#include "estimator/base/json_tree.h"
#include "runtime/checkpoint/mxfp4_weights.h"
#include "runtime/kernels/quant.h"

#include <stdio.h>
#include <string.h>

#define STATE_TEXT 4096 /* bytes; the texts of bitsandbytes have 200 */

struct reader {
    const struct pl_weight_files *files;
    const struct pl_window *window;
    pl_err err;
    struct pl_diag *d;
};

static pl_err refuse_part(const struct reader *r, const char *part, const char *why) {
    return pl_diag_at(r->d, r->err, r->window->file->path, 0, 0, "%s: `%s%s%s` %s",
                      r->window->file->path, r->window->name, *part ? "." : "", part, why);
}

/* A part of the matrix: n elements of a type, in one dimension. */
static pl_err find_part(const struct reader *r, const char *part, enum pl_dtype dtype, uint64_t n,
                        struct pl_window *out) {
    *out = (struct pl_window){0};
    if (snprintf(out->name, sizeof out->name, "%s.%s", r->window->name, part) >=
            (int)sizeof out->name ||
        !pl_window_find(r->files, out))
        return refuse_part(r, part, "is missing");
    if (out->entry->dtype != dtype || out->entry->rank != 1 || (n && out->entry->dims[0] != n))
        return refuse_part(r, part, "has another type or length than the codes of this matrix");
    return PL_ERR_OK;
}

static pl_err check_table(const struct reader *r, const char *part, const float *want, uint64_t n) {
    float table[PL_QUANT_MAP_SIZE];
    struct pl_window w;
    PL_TRY(find_part(r, part, PL_DTYPE_F32, n, &w));
    PL_TRY(pl_st_read(w.file, w.entry, 0, table, n * sizeof *table, r->d));
    for (uint64_t i = 0; i < n; i++)
        if (table[i] != want[i]) return refuse_part(r, part, "is not the table of this code");
    return PL_ERR_OK;
}

static pl_err check_state(const struct reader *r, const char *part, const json_t *state,
                          bool nested, float *offset) {
    const json_t *real = json_object_get(state, "nested_offset");
    const json_t *shape = json_object_get(state, "shape");
    const uint64_t *dims = r->window->dims;
    if (json_array_size(shape) != 2 ||
        json_integer_value(json_array_get(shape, 0)) != (json_int_t)dims[0] ||
        json_integer_value(json_array_get(shape, 1)) != (json_int_t)dims[1])
        return refuse_part(r, part, "gives another shape than the model has");
    if (json_integer_value(json_object_get(state, "blocksize")) != PL_QUANT_BLOCK)
        return refuse_part(r, part, "gives a block size other than 64");
    if (!nested) return PL_ERR_OK;
    if (json_integer_value(json_object_get(state, "nested_blocksize")) != PL_QUANT_NEST ||
        !json_is_number(real))
        return refuse_part(r, part,
                           "gives a nested block size other than 256, or no nested_offset");
    *offset = (float)json_number_value(real);
    return PL_ERR_OK;
}

static pl_err read_state(const struct reader *r, bool nested, float *offset) {
    char part[48], text[STATE_TEXT];
    struct pl_window w;
    snprintf(part, sizeof part, "quant_state.bitsandbytes__%s",
             r->window->quant == PL_QUANT_FP4 ? "fp4" : "nf4");
    PL_TRY(find_part(r, part, PL_DTYPE_U8, 0, &w));
    uint64_t bytes = w.entry->end - w.entry->begin;
    if (bytes > sizeof text) return refuse_part(r, part, "is too long");
    PL_TRY(pl_st_read(w.file, w.entry, 0, text, bytes, r->d));
    struct pl_json_error e;
    json_t *state = pl_json_load(text, (size_t)bytes, PL_JSON_ONCE, &e);
    if (!state && e.no_memory) return pl_host_oom(r->d, part);
    pl_err err = json_is_object(state) ? check_state(r, part, state, nested, offset)
                                       : refuse_part(r, part, "is not a JSON object");
    json_decref(state);
    return err;
}

static pl_err find_scales(const struct reader *r, struct pl_stored_codes *out) {
    const struct pl_window *w = r->window;
    bool nested = w->absmax8 != PL_NONE;
    uint64_t blocks = pl_quant_blocks(w->count);
    struct pl_window absmax, deeper = {0};
    float map[PL_QUANT_MAP_SIZE];
    PL_TRY(find_part(r, "absmax", nested ? PL_DTYPE_U8 : PL_DTYPE_F32, blocks, &absmax));
    PL_TRY(check_table(r, "quant_map", pl_quant_table(w->quant), PL_QUANT_LEVELS));
    PL_TRY(read_state(r, nested, &out->offset));
    if (nested) {
        pl_quant_map_values(true, map);
        PL_TRY(check_table(r, "nested_quant_map", map, PL_QUANT_MAP_SIZE));
        PL_TRY(find_part(r, "nested_absmax", PL_DTYPE_F32, pl_quant_nests(w->count), &deeper));
    }
    out->absmax_file = absmax.file;
    out->absmax = absmax.entry;
    out->nested_file = deeper.file;
    out->nested = deeper.entry;
    return PL_ERR_OK;
}

pl_err pl_window_find_codes(struct pl_window *w, const struct pl_weight_files *f, pl_err err,
                            struct pl_diag *d) {
    const struct reader r = {f, w, err, d};
    struct pl_stored_codes stored = {0};
    if (w->matrices)
        return refuse_part(&r, "", "holds the codes of all experts as those of one matrix");
    if (w->entry->end - w->entry->begin != pl_quant_codes_bytes(w->count))
        return refuse_part(&r, "", "holds another number of codes than the model has values");
    PL_TRY(find_scales(&r, &stored));
    w->stored = stored;
    return PL_ERR_OK;
}

/* n elements of an entry to element `first` of a tensor, as they are. */
static pl_err copy(const struct pl_tensor_io *io, const struct pl_st_file *file,
                   const struct pl_st_entry *e, uint32_t tensor, uint64_t first, uint64_t n,
                   struct pl_diag *d) {
    uint64_t size = pl_dtype_bytes(e->dtype), most = io->staging_bytes / size;
    for (uint64_t at = 0; at < n; at += most) {
        uint64_t some = pl_u64_min(most, n - at);
        PL_TRY(pl_st_read(file, e, at * size, io->staging, some * size, d));
        PL_TRY(pl_io_upload(io, tensor, first + at, io->staging, some, d));
    }
    return PL_ERR_OK;
}

pl_err pl_window_load_codes(const struct pl_window *w, const struct pl_tensor_io *io,
                            struct pl_diag *d) {
    const struct pl_stored_codes *s = &w->stored;
    uint64_t blocks = pl_quant_blocks(w->count), nests = pl_quant_nests(w->count);
    if (!io->staging || io->staging_bytes < PL_STAGING_MIN)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "there is no staging buffer");
    const struct pl_codes_place own = pl_window_codes_place(w, 0);
    PL_TRY(copy(io, w->file, w->entry, w->tensor, own.codes, pl_quant_codes_bytes(w->count), d));
    if (!s->nested) return copy(io, s->absmax_file, s->absmax, w->absmax, own.absmax, blocks, d);
    PL_TRY(copy(io, s->absmax_file, s->absmax, w->absmax8, own.absmax8, blocks, d));
    PL_TRY(copy(io, s->nested_file, s->nested, w->absmax, own.absmax, nests, d));
    return pl_io_upload(io, w->absmax, own.absmax + nests, &s->offset, 1, d);
}

/* --- MXFP4 ------------------------------------------------------------------------------------ */

#define MX_FP16_SCALE 140 /* the largest with which no value is above those of fp16 */

pl_err pl_window_check_mxfp4(const struct pl_window *w, pl_err err, struct pl_diag *d) {
    const struct reader r = {NULL, w, err, d};
    if (pl_mxfp4_has_codes(w->file, w->entry)) return PL_ERR_OK;
    refuse_part(&r, "", "holds values, and no MXFP4 codes as config.json says");
    pl_diag_hint(d, "set `quant_type: nf4`, which makes codes of values");
    return err;
}

static pl_err check_scales(const struct pl_window *w, const uint8_t *scales, uint64_t n,
                           struct pl_diag *d) {
    const struct reader r = {NULL, w, PL_ERR_MODEL_WEIGHTS, d};
    uint8_t largest = 0;
    for (uint64_t i = 0; i < n; i++)
        largest = scales[i] > largest ? scales[i] : largest;
    if (largest <= MX_FP16_SCALE) return PL_ERR_OK;
    refuse_part(&r, "", "has values above 65504, at which fp16 ends");
    pl_diag_hint(d, "set `compute_dtype: fp32`, or `dtype: bf16` where the device has it");
    return r.err;
}

pl_err pl_window_load_mxfp4(const struct pl_window *w, const struct pl_tensor_io *io,
                            struct pl_diag *d) {
    const uint64_t matrices = pl_window_matrices(w), n = w->count / matrices;
    const uint64_t all = pl_quant_scales(w->quant, n);
    for (uint64_t i = 0; i < matrices; i++) {
        const struct pl_codes_place own = pl_window_codes_place(w, i);
        const uint8_t *codes, *scales;
        PL_TRY(pl_mxfp4_read_codes(w->file, w->entry, i, &codes, &scales, d));
        if (io->program->shape.compute_dtype == PL_DTYPE_F16)
            PL_TRY(check_scales(w, scales, all, d));
        PL_TRY(pl_io_upload(io, w->tensor, own.codes, codes, pl_quant_codes_bytes(n), d));
        PL_TRY(pl_io_upload(io, w->absmax, own.absmax, scales, all, d));
    }
    return PL_ERR_OK;
}
