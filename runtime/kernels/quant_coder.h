/* quant_coder.h - the tables of 4-bit codes, and the search of the code of one value.
 *
 * In: a value by its absmax.  Out: its code, by Q1 of quant.h.  Needs: nothing of a device; what is
 * inline runs in kernels too. */
#ifndef PL_RUNTIME_KERNELS_QUANT_CODER_H
#define PL_RUNTIME_KERNELS_QUANT_CODER_H

#include "estimator/ops/quant_layout.h"

#include <float.h>
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define PL_QUANT_FN static inline __host__ __device__
#else
#define PL_QUANT_FN static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* 1/absmax, and 0 where that is infinite or NaN: the values then count as 0. */
PL_QUANT_FN float pl_quant_scale(float absmax) {
    const float scale = 1.0f / absmax;
    return scale <= FLT_MAX ? scale : 0.0f;
}

#define PL_QUANT_LEVELS 16

PL_QUANT_FN float pl_quant_midpoint(float a, float b) {
    return (a + b) * 0.5f;
}

/* The tables that the search of a code needs: midpoints by value; of fp4 those of the magnitudes,
 * and the bits in which the codes on both sides of each differ. */
struct pl_quant_coder {
    enum pl_quant type;
    float midpoint[PL_QUANT_LEVELS - 1];
    int32_t turn[PL_QUANT_LEVELS / 2 - 1];
};
void pl_quant_coder_init(struct pl_quant_coder *c, enum pl_quant t);

/* Returns the bits of 2^(scale - 127) in fp32, in which the least is subnormal. */
PL_QUANT_FN uint32_t pl_quant_exponent_bits(uint8_t scale) {
    return scale ? (uint32_t)scale << 23 : 0x00400000u;
}

/* Q1 of y = x / absmax, by coders of this type. */
PL_QUANT_FN int32_t pl_quant_code_nf4(const struct pl_quant_coder *c, float y) {
    int32_t rank = 0;
    for (int k = 0; k < PL_QUANT_LEVELS - 1; k++)
        rank += y > c->midpoint[k];
    return rank;
}

#define PL_QUANT_FP4_SIGN 8

PL_QUANT_FN int32_t pl_quant_code_fp4(const struct pl_quant_coder *c, float y) {
    const float magnitude = fabsf(y);
    int32_t bits = y < 0 ? PL_QUANT_FP4_SIGN : 0;
    for (int k = 0; k < PL_QUANT_LEVELS / 2 - 1; k++)
        bits ^= magnitude > c->midpoint[k] ? c->turn[k] : 0;
    return bits;
}

/* The values of the codes: [PL_QUANT_LEVELS], by code. NF4: arXiv 2305.14314, appendix E; e2m1: OCP
 * Microscaling Formats 1.0, 5.3.3. */
const float *pl_quant_table(enum pl_quant t);

#ifdef __cplusplus
}
#endif

#endif
