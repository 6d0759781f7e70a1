/* quant4.c - QUANT4 and NEST4: values to 4-bit codes, their absmax to 8-bit ones.
 *
 * A task has some blocks of 64 at a time in fp32: widened, or made here, where they lie otherwise.
 */
#include "runtime/kernels/cpu/simd.h"

#include "runtime/kernels/cpu/values.h"
#include "runtime/kernels/quant.h"
#include "runtime/kernels/quant_block.h"
#include "runtime/kernels/quant_call.h"

#define BLOCK PL_QUANT_BLOCK
#define TILE  16 /* blocks */

struct quant {
    struct values values; /* where x has no memory */
    struct pl_view x;     /* one run of n elements */
    uint64_t n, first;
    uint8_t *codes;
    float *absmax;
    struct pl_quant_coder coder;
};

/* Values [i, i + n), n at most TILE blocks, with zeros up to the end of a block. */
static const float *tile_values(const struct quant *q, uint64_t i, uint64_t n,
                                float buf[TILE * BLOCK]) {
    const bool whole = n % BLOCK == 0;
    if (q->x.p && q->x.dtype == PL_DTYPE_F32 && whole) return pl_vector_at(&q->x, i);
    if (q->x.p)
        pl_widen(buf, pl_vector_at(&q->x, i), q->x.dtype, n);
    else
        values_fill(&q->values, q->first + i, n, buf);
    if (!whole) memset(buf + n, 0, (BLOCK - n % BLOCK) * sizeof *buf);
    return buf;
}

static void quantise_block(const struct quant *q, uint64_t block, const float *x) {
    uint8_t codes[BLOCK / 2];
    const float absmax = pl_quant_block_absmax(x);
    const uint64_t left = pl_quant_codes_bytes(q->n) - block * (BLOCK / 2);
    pl_quant_block_codes(&q->coder, x, pl_quant_scale(absmax), codes);
    memcpy(q->codes + block * (BLOCK / 2), codes, pl_u64_min(left, sizeof codes));
    q->absmax[block] = absmax;
}

static void quantise_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct quant *q = arg;
    float buf[TILE * BLOCK];
    (void)worker;
    for (uint64_t b = first; b < end; b += TILE) {
        const uint64_t i = b * BLOCK,
                       n = pl_u64_min(pl_u64_min(end * BLOCK, q->n) - i, TILE * BLOCK);
        const float *x = tile_values(q, i, n, buf);
        for (uint64_t k = 0; k < pl_quant_blocks(n); k++)
            quantise_block(q, b + k, x + k * BLOCK);
    }
}

/* in: x?[..]; out: codes[n/2]u8, absmax[n/64]f32. */
pl_err PL_CPU(quant4)(struct pl_device *dev, const struct pl_call *c) {
    struct quant q = {.x = c->in[PL_QUANT4_X],
                      .n = pl_quant_elements(&c->in[PL_QUANT4_X]),
                      .first = c->attr->first_element,
                      .codes = c->out[PL_QUANT4_OUT_CODES].p,
                      .absmax = c->out[PL_QUANT4_OUT_ABSMAX].p};
    if (!pl_quant4_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    if (!q.x.p) values_init(&q.values, c->attr, c->batch->seed);
    pl_quant_coder_init(&q.coder, c->attr->quant);
    pl_cpu_rows(dev, pl_quant_blocks(q.n), pl_cpu_grain(BLOCK), quantise_blocks, &q);
    return PL_ERR_OK;
}

struct nest {
    const float *absmax;
    uint8_t *absmax8;
    float *nested;
    float offset;
};

static void nest_blocks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct nest *t = arg;
    (void)worker;
    pl_quant_nest(t->absmax + first, end - first, t->offset, t->absmax8 + first,
                  t->nested + first / PL_QUANT_NEST);
}

/* in: absmax[n/64]f32; out: absmax8[n/64]u8, nested[n/16384]f32. */
pl_err PL_CPU(nest4)(struct pl_device *dev, const struct pl_call *c) {
    const uint64_t grain = 16 * PL_QUANT_NEST;
    struct nest t = {c->in[PL_NEST4_ABSMAX].p, c->out[PL_NEST4_OUT_ABSMAX8].p,
                     c->out[PL_NEST4_OUT_NESTED].p, c->attr->offset};
    if (!pl_nest4_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, pl_quant_elements(&c->in[PL_NEST4_ABSMAX]), grain, nest_blocks, &t);
    return PL_ERR_OK;
}
