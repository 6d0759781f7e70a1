/* quant_block.h - a block of 64 values to 4 bits, in loops that vectorise.
 *
 * In: 64 fp32 values. Out: their largest magnitude, their codes. Needs: flags that neither fuse nor
 * reorder; the bits then are the same at every instruction set. */
#ifndef PL_RUNTIME_KERNELS_QUANT_BLOCK_H
#define PL_RUNTIME_KERNELS_QUANT_BLOCK_H

#include "runtime/kernels/quant_coder.h"

/* out[n]: the greater of the two halves of in[2n]. */
static inline void pl_quant_block_halve(const float *restrict in, float *restrict out, int n) {
    for (int i = 0; i < n; i++)
        out[i] = in[n + i] > in[i] ? in[n + i] : in[i];
}

/* NaN is passed over. A compiler may not reorder comparisons into a tree by itself. */
static inline float pl_quant_block_absmax(const float *x) {
    float magnitude[PL_QUANT_BLOCK], a[32], b[16];
    for (int i = 0; i < PL_QUANT_BLOCK; i++)
        magnitude[i] = fabsf(x[i]) > 0 ? fabsf(x[i]) : 0;
    pl_quant_block_halve(magnitude, a, 32);
    pl_quant_block_halve(a, b, 16);
    pl_quant_block_halve(b, a, 8);
    pl_quant_block_halve(a, b, 4);
    pl_quant_block_halve(b, a, 2);
    return a[1] > a[0] ? a[1] : a[0];
}

/* scale: of their absmax, by pl_quant_scale(). */
static inline void pl_quant_block_codes(const struct pl_quant_coder *restrict c,
                                        const float *restrict x, float scale,
                                        uint8_t out[restrict PL_QUANT_BLOCK / 2]) {
    const struct pl_quant_coder own = *c; /* which no store of a code can change */
    int32_t code[PL_QUANT_BLOCK];
    if (own.type == PL_QUANT_NF4)
        for (int i = 0; i < PL_QUANT_BLOCK; i++)
            code[i] = pl_quant_code_nf4(&own, x[i] * scale);
    else
        for (int i = 0; i < PL_QUANT_BLOCK; i++)
            code[i] = pl_quant_code_fp4(&own, x[i] * scale);
    for (int i = 0; i < PL_QUANT_BLOCK / 2; i++)
        out[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
}

#endif
