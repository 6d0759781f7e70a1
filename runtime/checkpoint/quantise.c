/* quantise.c - values on their way into 4-bit tensors, through staging, never two copies of them.
 *
 * A piece is a whole number of groups: values that share one nested absmax. Double quantisation
 * subtracts the mean of all absmax of a matrix first (arXiv 2305.14314, section 3), so the values
 * are read twice rather than kept. */
#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/checkpoint/windows.h"
#include "runtime/kernels/quant.h"

/* Staging cut into parts, each aligned to 64 bytes. */
struct cut {
    uint64_t elements; /* of a piece: a multiple of PL_QUANT_GROUP */
    void *raw;
    float *values, *absmax, *nested;
    uint8_t *codes, *absmax8;
};

struct source {
    pl_window_fill fill; /* NULL: the file */
    void *ctx;
};

static uint64_t aligned(uint64_t bytes) {
    return pl_u64_div_up(bytes, 64) * 64;
}

static void *take(char **at, uint64_t bytes) {
    void *p = *at;
    *at += aligned(bytes);
    return p;
}

static pl_err cut_staging(const struct pl_tensor_io *io, uint64_t raw_bytes, struct cut *out,
                          struct pl_diag *d) {
    const uint64_t parts = 6;
    uint64_t group = PL_QUANT_GROUP * (raw_bytes + sizeof(float)) + PL_QUANT_GROUP / 2 +
                     PL_QUANT_NEST * (sizeof(float) + 1) + sizeof(float);
    uint64_t usable = io->staging_bytes - pl_u64_min(io->staging_bytes, parts * 64);
    uint64_t n = usable / group;
    char *at = io->staging;
    if (!io->staging || n == 0)
        return pl_diag_set(d, PL_ERR_PLAN_BROKEN,
                           "a staging buffer of %llu bytes is too small to quantise in",
                           (unsigned long long)io->staging_bytes);
    out->elements = n * PL_QUANT_GROUP;
    out->raw = take(&at, out->elements * raw_bytes);
    out->values = take(&at, out->elements * sizeof(float));
    out->codes = take(&at, out->elements / 2);
    out->absmax = take(&at, n * PL_QUANT_NEST * sizeof(float));
    out->absmax8 = take(&at, n * PL_QUANT_NEST);
    out->nested = take(&at, n * sizeof(float));
    return PL_ERR_OK;
}

static pl_err read_values(const struct pl_window *w, const struct source *src,
                          const struct cut *cut, uint64_t first, uint64_t n, struct pl_diag *d) {
    if (src->fill) {
        src->fill(src->ctx, w, first, n, cut->values);
        return PL_ERR_OK;
    }
    uint64_t bytes = pl_dtype_bytes(w->entry->dtype);
    PL_TRY(pl_st_read(w->file, w->entry, first * bytes, cut->raw, n * bytes, d));
    pl_convert_to_f32(cut->values, cut->raw, w->entry->dtype, n);
    return PL_ERR_OK;
}

/* Mean of the absmax of all blocks. */
static pl_err mean_absmax(const struct pl_window *w, const struct source *src,
                          const struct cut *cut, float *mean, struct pl_diag *d) {
    double sum = 0;
    for (uint64_t at = 0; at < w->count; at += cut->elements) {
        uint64_t n = pl_u64_min(cut->elements, w->count - at);
        PL_TRY(read_values(w, src, cut, at, n, d));
        pl_quant_absmax(cut->values, n, cut->absmax);
        sum += pl_quant_sum(cut->absmax, pl_quant_blocks(n));
    }
    *mean = w->count ? (float)(sum / (double)pl_quant_blocks(w->count)) : 0;
    return PL_ERR_OK;
}

static pl_err store_piece(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct cut *cut, float offset, uint64_t at, uint64_t n,
                          struct pl_diag *d) {
    uint64_t blocks = pl_quant_blocks(n);
    pl_quant_absmax(cut->values, n, cut->absmax);
    pl_quant_codes(io->program->shape.quant, cut->values, n, cut->absmax, cut->codes);
    PL_TRY(pl_io_upload(io, w->tensor, at / 2, cut->codes, pl_quant_codes_bytes(n), d));
    if (w->absmax8 == PL_NONE)
        return pl_io_upload(io, w->absmax, at / PL_QUANT_BLOCK, cut->absmax, blocks, d);
    pl_quant_nest(cut->absmax, blocks, offset, cut->absmax8, cut->nested);
    PL_TRY(pl_io_upload(io, w->absmax8, at / PL_QUANT_BLOCK, cut->absmax8, blocks, d));
    return pl_io_upload(io, w->absmax, at / PL_QUANT_GROUP, cut->nested, pl_quant_nests(n), d);
}

pl_err pl_window_quantise(const struct pl_window *w, const struct pl_tensor_io *io,
                          pl_window_fill fill, void *ctx, struct pl_diag *d) {
    const struct source src = {fill, ctx};
    struct cut cut;
    float offset = 0;
    PL_TRY(cut_staging(io, fill ? 0 : pl_dtype_bytes(w->entry->dtype), &cut, d));
    if (w->absmax8 != PL_NONE) PL_TRY(mean_absmax(w, &src, &cut, &offset, d));
    for (uint64_t at = 0; at < w->count; at += cut.elements) {
        uint64_t n = pl_u64_min(cut.elements, w->count - at);
        PL_TRY(read_values(w, &src, &cut, at, n, d));
        PL_TRY(store_piece(w, io, &cut, offset, at, n, d));
    }
    if (w->absmax8 == PL_NONE) return PL_ERR_OK;
    return pl_io_upload(io, w->absmax, pl_quant_nests(w->count), &offset, 1, d);
}
