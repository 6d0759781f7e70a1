/* quant_block.h - a block of 64 values to 4 bits, in loops that vectorise.
 *
 * In: 64 fp32 values. Out: their largest magnitude, their codes. Needs: flags that neither fuse nor
 * reorder; the bits then are the same at every instruction set. */
#ifndef PL_RUNTIME_KERNELS_QUANT_BLOCK_H
#define PL_RUNTIME_KERNELS_QUANT_BLOCK_H

#include "runtime/kernels/quant.h"

#define PL_QUANT_BLOCK_LANES 16

/* NaN is passed over. Comparisons may not be reordered into a reduction, hence the lanes. */
static inline float pl_quant_block_absmax(const float *x) {
    float lane[PL_QUANT_BLOCK_LANES] = {0};
    for (int i = 0; i < PL_QUANT_BLOCK; i += PL_QUANT_BLOCK_LANES)
        for (int l = 0; l < PL_QUANT_BLOCK_LANES; l++)
            lane[l] = fabsf(x[i + l]) > lane[l] ? fabsf(x[i + l]) : lane[l];
    for (int l = 1; l < PL_QUANT_BLOCK_LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

/* scale: of their absmax, by pl_quant_scale(). */
static inline void pl_quant_block_codes(const struct pl_quant_coder *restrict c,
                                        const float *restrict x, float scale,
                                        uint8_t out[restrict PL_QUANT_BLOCK / 2]) {
    uint8_t code[PL_QUANT_BLOCK];
    if (c->type == PL_QUANT_NF4)
        for (int i = 0; i < PL_QUANT_BLOCK; i++)
            code[i] = (uint8_t)pl_quant_code_nf4(c, x[i] * scale);
    else
        for (int i = 0; i < PL_QUANT_BLOCK; i++)
            code[i] = (uint8_t)pl_quant_code_fp4(c, x[i] * scale);
    for (int i = 0; i < PL_QUANT_BLOCK / 2; i++)
        out[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
}

#endif
