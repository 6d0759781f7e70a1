/* quantise.c - values on their way into 4-bit tensors, through staging, never two copies of them.
 *
 * A piece is a whole number of groups: values that share one nested absmax. Codes need the absmax
 * of their own block only, but double quantisation subtracts the mean of all absmax of a matrix
 * first (arXiv 2305.14314, section 3): those wait in staging until it is known. Where it has no
 * room for all of them the values are quantised a second time rather than kept.
 * Kernels of the device read staging and write into place, so only values pass through it; without
 * kernels the host works in it. */
#include "runtime/checkpoint/quantise.h"

#include "estimator/base/checked.h"
#include "runtime/checkpoint/convert.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/start.h"

/* Staging cut into parts, each aligned to 64 bytes. */
struct cut {
    uint64_t elements; /* of a piece: a multiple of PL_QUANT_GROUP */
    bool whole;        /* absmax are those of the whole matrix, not of a piece */
    void *raw;
    float *values, *absmax, *nested;
    uint8_t *codes, *absmax8;
};

struct work {
    const struct pl_window *w;
    const struct pl_tensor_io *io;
    const struct pl_window_values *values; /* NULL: those of the file */
    struct pl_device *on;                  /* whose kernels run; NULL: the host does it */
    struct cut cut;
    uint64_t n;                /* values of a matrix */
    uint64_t from;             /* the first of the matrix at hand, among those of the window */
    struct pl_codes_place own; /* of that matrix */
    struct pl_diag *d;
};

/* ---- staging ---- */

static void *take_staging(char **at, uint64_t bytes) {
    void *p = *at;
    *at += pl_u64_round_up(bytes, 64);
    return p;
}

/* Bytes of a value as a part holds it; 0 = the part is not needed. */
static uint64_t raw_bytes(const struct work *k) {
    return k->values ? 0 : pl_dtype_bytes(k->w->entry->dtype);
}

/* Kernels read what the types of weights are, and make values themselves. */
static uint64_t value_bytes(const struct work *k) {
    bool kernel_reads = k->values || k->w->entry->dtype != PL_DTYPE_F16;
    return k->on && kernel_reads ? 0 : sizeof(float);
}

static pl_err cut_staging(struct work *k) {
    const uint64_t parts = 6, all = pl_quant_nests(k->n);
    const uint64_t absmax = PL_QUANT_NEST * sizeof(float); /* of a group */
    uint64_t group = PL_QUANT_GROUP * (raw_bytes(k) + value_bytes(k));
    if (!k->on) group += PL_QUANT_GROUP / 2 + PL_QUANT_NEST + sizeof(float);
    uint64_t usable = k->io->staging_bytes - pl_u64_min(k->io->staging_bytes, parts * 64);
    struct cut *cut = &k->cut;
    cut->whole =
        k->w->absmax8 != PL_NONE && all * absmax <= usable / 2 && all * absmax + group <= usable;
    uint64_t n =
        cut->whole ? (usable - all * absmax) / (group ? group : 1) : usable / (group + absmax);
    char *at = k->io->staging;
    if (!at || n == 0)
        return pl_diag_set(k->d, PL_ERR_PLAN_BROKEN,
                           "a staging buffer of %llu bytes is too small to quantise in",
                           (unsigned long long)k->io->staging_bytes);
    n = pl_u64_min(n, all);
    cut->elements = n * PL_QUANT_GROUP;
    cut->absmax = take_staging(&at, (cut->whole ? all : n) * absmax);
    cut->raw = take_staging(&at, cut->elements * raw_bytes(k));
    cut->values = take_staging(&at, cut->elements * value_bytes(k));
    if (k->on) return PL_ERR_OK;
    cut->codes = take_staging(&at, cut->elements / 2);
    cut->absmax8 = take_staging(&at, n * PL_QUANT_NEST);
    cut->nested = take_staging(&at, n * sizeof(float));
    return PL_ERR_OK;
}

/* The place where the absmax of the blocks from element `at` on wait. */
static float *absmax_of(const struct work *k, uint64_t at) {
    return k->cut.absmax + (k->cut.whole ? at / PL_QUANT_BLOCK : 0);
}

static struct pl_view vector(void *p, uint64_t n, enum pl_dtype dtype) {
    return (struct pl_view){.p = p, .rows = n, .cols = 1, .ld = 1, .dtype = dtype};
}

/* ---- a piece: values to codes and absmax ---- */

static pl_err read_values(const struct work *k, uint64_t at, uint64_t n) {
    if (k->values) {
        const struct pl_start_rule rule = pl_start_rule_of(&k->values->attr, k->values->seed);
        if (!k->on) pl_start_values(&rule, k->from + at, n, k->cut.values);
        return PL_ERR_OK;
    }
    const enum pl_dtype type = k->w->entry->dtype;
    const uint64_t bytes = pl_dtype_bytes(type);
    PL_TRY(
        pl_st_read(k->w->file, k->w->entry, (k->from + at) * bytes, k->cut.raw, n * bytes, k->d));
    if (value_bytes(k)) pl_convert_to_f32(k->cut.values, k->cut.raw, type, n);
    return PL_ERR_OK;
}

static pl_err quantise_on_host(const struct work *k, uint64_t at, uint64_t n) {
    const struct pl_window *w = k->w;
    float *absmax = absmax_of(k, at);
    pl_quant_absmax(k->cut.values, n, absmax);
    pl_quant_codes(w->quant, k->cut.values, n, absmax, k->cut.codes);
    PL_TRY(pl_io_upload(k->io, w->tensor, k->own.codes + at / 2, k->cut.codes,
                        pl_quant_codes_bytes(n), k->d));
    if (w->absmax8 != PL_NONE) return PL_ERR_OK;
    return pl_io_upload(k->io, w->absmax, k->own.absmax + at / PL_QUANT_BLOCK, absmax,
                        pl_quant_blocks(n), k->d);
}

static pl_err quantise_by_kernel(const struct work *k, uint64_t at, uint64_t n) {
    const struct pl_window *w = k->w;
    const uint64_t blocks = pl_quant_blocks(n);
    struct pl_attr attr = {0};
    struct pl_batch batch = {0};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    if (k->values) {
        attr = k->values->attr;
        batch.seed = k->values->seed;
        c.in[PL_QUANT4_X] = vector(NULL, n, PL_DTYPE_F32);
    } else if (value_bytes(k)) {
        c.in[PL_QUANT4_X] = vector(k->cut.values, n, PL_DTYPE_F32);
    } else {
        c.in[PL_QUANT4_X] = vector(k->cut.raw, n, w->entry->dtype);
    }
    attr.quant = w->quant;
    attr.first_element = k->from + at;
    c.out[PL_QUANT4_OUT_CODES] =
        pl_io_view(k->io, w->tensor, k->own.codes + at / 2, pl_quant_codes_bytes(n));
    c.out[PL_QUANT4_OUT_ABSMAX] =
        w->absmax8 == PL_NONE
            ? pl_io_view(k->io, w->absmax, k->own.absmax + at / PL_QUANT_BLOCK, blocks)
            : vector(absmax_of(k, at), blocks, PL_DTYPE_F32);
    return pl_io_run(k->io, k->on, w->tensor, PL_OP_QUANT4, &c, k->d);
}

static pl_err quantise_piece(const struct work *k, uint64_t at, uint64_t n) {
    PL_TRY(read_values(k, at, n));
    return k->on ? quantise_by_kernel(k, at, n) : quantise_on_host(k, at, n);
}

/* ---- a piece: absmax to 8 bits ---- */

static pl_err nest_piece(const struct work *k, uint64_t at, uint64_t n, float offset) {
    const struct pl_window *w = k->w;
    const uint64_t blocks = pl_quant_blocks(n), block = k->own.absmax8 + at / PL_QUANT_BLOCK;
    const uint64_t nests = pl_quant_nests(n), nest = k->own.absmax + at / PL_QUANT_GROUP;
    if (k->on) {
        const struct pl_attr attr = {.offset = offset};
        struct pl_call c = {.attr = &attr};
        c.in[PL_NEST4_ABSMAX] = vector(absmax_of(k, at), blocks, PL_DTYPE_F32);
        c.out[PL_NEST4_OUT_ABSMAX8] = pl_io_view(k->io, w->absmax8, block, blocks);
        c.out[PL_NEST4_OUT_NESTED] = pl_io_view(k->io, w->absmax, nest, nests);
        return pl_io_run(k->io, k->on, w->absmax8, PL_OP_NEST4, &c, k->d);
    }
    pl_quant_nest(absmax_of(k, at), blocks, offset, k->cut.absmax8, k->cut.nested);
    PL_TRY(pl_io_upload(k->io, w->absmax8, block, k->cut.absmax8, blocks, k->d));
    return pl_io_upload(k->io, w->absmax, nest, k->cut.nested, nests, k->d);
}

/* Nest by nest, so that the sum does not depend on the pieces. */
static double add_absmax(double sum, const float *absmax, uint64_t blocks) {
    for (uint64_t b = 0; b < blocks; b += PL_QUANT_NEST)
        sum += pl_quant_sum(absmax + b, pl_u64_min(blocks - b, PL_QUANT_NEST));
    return sum;
}

/* ---- matrices ---- */

static pl_err quantise_matrix(const struct work *k) {
    const struct pl_window *w = k->w;
    double sum = 0;
    for (uint64_t at = 0; at < k->n; at += k->cut.elements) {
        uint64_t n = pl_u64_min(k->cut.elements, k->n - at);
        PL_TRY(quantise_piece(k, at, n));
        if (w->absmax8 != PL_NONE) sum = add_absmax(sum, absmax_of(k, at), pl_quant_blocks(n));
    }
    if (w->absmax8 == PL_NONE) return PL_ERR_OK;
    const float offset = k->n ? (float)(sum / (double)pl_quant_blocks(k->n)) : 0;
    for (uint64_t at = 0; at < k->n; at += k->cut.elements) {
        uint64_t n = pl_u64_min(k->cut.elements, k->n - at);
        if (!k->cut.whole) PL_TRY(quantise_piece(k, at, n));
        PL_TRY(nest_piece(k, at, n, offset));
    }
    return pl_io_upload(k->io, w->absmax, k->own.absmax + pl_quant_nests(k->n), &offset, 1, k->d);
}

pl_err pl_window_quantise(const struct pl_window *w, const struct pl_tensor_io *io,
                          const struct pl_window_values *values, struct pl_diag *d) {
    const uint64_t matrices = pl_window_matrices(w);
    struct work k = {.w = w, .io = io, .values = values, .n = w->count / matrices, .d = d};
    k.on = pl_io_kernel_device(io, w->tensor, PL_OP_QUANT4);
    PL_TRY(cut_staging(&k));
    for (uint64_t i = 0; i < matrices; i++) {
        k.from = i * k.n;
        k.own = pl_window_codes_place(w, i);
        PL_TRY(quantise_matrix(&k));
    }
    return PL_ERR_OK;
}
