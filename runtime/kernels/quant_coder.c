/* quant_coder.c - the tables of 4-bit codes. */
#include "runtime/kernels/quant_coder.h"

/* FP4 has the values 0, 1/16, 2, 3, 4, 6, 8 and 12 over 12; bit 3 is the sign, but not of 0. */
/* MXFP4 has e2m1, whose bit 3 is the sign. */
static const float tables[PL_QUANT_COUNT][PL_QUANT_LEVELS] = {
    [PL_QUANT_NF4] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
                      -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
                      0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f,
                      0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                      0.7229568362236023f, 1.0f},
    [PL_QUANT_FP4] = {0.0f, 0.0625f / 12, 8.0f / 12, 12.0f / 12, 4.0f / 12, 6.0f / 12, 2.0f / 12,
                      3.0f / 12, 0.0f, -0.0625f / 12, -8.0f / 12, -12.0f / 12, -4.0f / 12,
                      -6.0f / 12, -2.0f / 12, -3.0f / 12},
    [PL_QUANT_MXFP4] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, 0.0f, -0.5f, -1.0f, -1.5f,
                        -2.0f, -3.0f, -4.0f, -6.0f},
};

/* The codes of fp4 without its sign, by value. */
static const uint8_t fp4_ascending[PL_QUANT_LEVELS / 2] = {0, 1, 6, 7, 4, 5, 2, 3};

const float *pl_quant_table(enum pl_quant t) {
    return tables[t];
}

void pl_quant_coder_init(struct pl_quant_coder *c, enum pl_quant t) {
    const float *value = tables[t];
    c->type = t;
    for (int k = 0; t == PL_QUANT_NF4 && k < PL_QUANT_LEVELS - 1; k++)
        c->midpoint[k] = pl_quant_midpoint(value[k], value[k + 1]);
    for (int k = 0; t == PL_QUANT_FP4 && k < PL_QUANT_LEVELS / 2 - 1; k++) {
        c->midpoint[k] = pl_quant_midpoint(value[fp4_ascending[k]], value[fp4_ascending[k + 1]]);
        c->turn[k] = fp4_ascending[k] ^ fp4_ascending[k + 1];
    }
}
