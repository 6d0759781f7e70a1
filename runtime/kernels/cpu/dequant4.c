/* dequant4.c - DEQUANT4: 4-bit codes to the matrix a product reads.
 *
 * A block of 64 elements has one absmax, so its 16 possible values are made once, as stored, and
 * each code picks one of them. Where the machine shuffles bytes, a vector of codes picks the bytes
 * of 16 values at a time: one shuffle for each byte of an element. */
#include "runtime/kernels/cpu/simd.h"

#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_call.h"

#if defined(__SSSE3__)
#include <tmmintrin.h>
#endif

#define BLOCK PL_QUANT_BLOCK

struct dequant {
    const uint8_t *codes;
    const float *absmax;    /* of blocks, or of nests where there is absmax8 */
    const uint8_t *absmax8; /* NULL = not nested */
    float offset;
    const float *table;
    struct pl_view w; /* [O,K], one run of elements */
};

/* ---- a block ---- */

/* The values of the 16 codes as the matrix stores them, byte k of value i at [k][i]. */
struct values {
    uint8_t bytes[4][PL_QUANT_LEVELS];
    union {
        float f32[PL_QUANT_LEVELS];
        uint16_t bf16[PL_QUANT_LEVELS];
    } as;
};

static void scale_table(const float *table, float absmax, enum pl_dtype t, struct values *v) {
    float scaled[PL_QUANT_LEVELS];
    for (int i = 0; i < PL_QUANT_LEVELS; i++)
        scaled[i] = table[i] * absmax;
    pl_narrow(&v->as, t, scaled, PL_QUANT_LEVELS);
}

static void pick(const struct values *v, enum pl_dtype t, const uint8_t *codes, void *w) {
    for (int i = 0; i < BLOCK; i++) {
        const unsigned code = i % 2 ? codes[i / 2] & 15u : codes[i / 2] >> 4;
        if (t == PL_DTYPE_F32)
            ((float *)w)[i] = v->as.f32[code];
        else
            ((uint16_t *)w)[i] = v->as.bf16[code];
    }
}

/* The last block of an odd window: through copies, so that nothing past its end is touched. */
static void pick_some(const struct values *v, enum pl_dtype t, const uint8_t *codes, void *w,
                      uint64_t n) {
    uint8_t whole[BLOCK / 2] = {0};
    float out[BLOCK];
    memcpy(whole, codes, pl_quant_codes_bytes(n));
    pick(v, t, whole, out);
    memcpy(w, out, n * pl_float_bytes(t));
}

/* ---- all blocks ---- */

/* Blocks [first, end) of one nest. */
static const float *block_absmax(const struct dequant *d, uint64_t first, uint64_t end,
                                 float buf[PL_QUANT_NEST]) {
    if (!d->absmax8) return d->absmax + first;
    pl_quant_unnest(d->absmax8 + first, d->absmax + first / PL_QUANT_NEST, d->offset, end - first,
                    buf);
    return buf;
}

static void dequantise_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct dequant *d = arg;
    const uint64_t n = d->w.rows * d->w.cols, size = pl_float_bytes(d->w.dtype);
    float nested[PL_QUANT_NEST];
    const float *absmax = block_absmax(d, first, end, nested);
    struct values v;
    (void)worker;
    for (uint64_t b = first; b < end; b++) {
        const uint64_t i = b * BLOCK;
        const uint8_t *codes = d->codes + i / 2;
        char *w = (char *)d->w.p + i * size;
        scale_table(d->table, absmax[b - first], d->w.dtype, &v);
        if (n - i >= BLOCK)
            pick(&v, d->w.dtype, codes, w);
        else
            pick_some(&v, d->w.dtype, codes, w, n - i);
    }
}

/* in: codes[n/2]u8, absmax[..]f32, absmax8?[n/64]u8; out: w[O,K]. */
pl_err PL_CPU(dequant4)(struct pl_device *dev, const struct pl_call *c) {
    const uint64_t n = pl_quant_elements(&c->out[0]);
    struct dequant d = {.codes = c->in[0].p,
                        .absmax = c->in[1].p,
                        .absmax8 = c->in[2].p,
                        .table = pl_quant_table(c->attr->quant),
                        .w = c->out[0]};
    if (!pl_dequant4_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    if (d.absmax8) d.offset = d.absmax[pl_quant_nests(n)];
    pl_cpu_rows(dev, pl_quant_blocks(n), PL_QUANT_NEST, dequantise_blocks, &d);
    return PL_ERR_OK;
}
