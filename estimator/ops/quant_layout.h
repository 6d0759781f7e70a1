/* quant_layout.h - how values are stored in 4 and in 8 bits: codes, blocks, bytes.
 *
 * Weights (QLoRA, Dettmers et al., arXiv 2305.14314; layout of bitsandbytes): codes of 4 bits, two
 * a byte, with one fp32 absmax per block of 64 of the flattened matrix; under double quantisation
 * the absmax are codes of 8 bits with one fp32 absmax per 256 of them, and one fp32 offset per
 * matrix. Experts of files in MXFP4 (OCP Microscaling Formats 1.0, 5.3) keep their codes: a matrix
 * [in,out], two codes of a row in a byte, with an exponent of 8 bits for every 32 rows of a column,
 * [in/32,out]. Optimizer moments (arXiv 2110.02861): codes of 8 bits with one fp32 absmax per block
 * of 256; tensors below PL_STATE8_MIN elements keep fp32. */
#ifndef PL_ESTIMATOR_OPS_QUANT_LAYOUT_H
#define PL_ESTIMATOR_OPS_QUANT_LAYOUT_H

#include "estimator/ops/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* 4-bit codes: weights that share a scale, and the type of a scale. Where that is fp32 it is an
 * absmax, which can be made of any weights, and which can be a code of 8 bits itself; else it is an
 * exponent of a file. X(NAME, "name", weights, TYPE) */
#define PL_QUANT_MAP(X)                                                                            \
    X(NF4, "nf4", 64, F32)                                                                         \
    X(FP4, "fp4", 64, F32)                                                                         \
    X(MXFP4, "mxfp4", 32, U8)

enum pl_quant {
#define X(t, name, weights, scale) PL_QUANT_##t,
    PL_QUANT_MAP(X)
#undef X
        PL_QUANT_COUNT
};
const char *pl_quant_name(enum pl_quant t);
enum pl_dtype pl_quant_scale_type(enum pl_quant t);
/* Returns the scales of n weights. */
uint64_t pl_quant_scales(enum pl_quant t, uint64_t n);
/* Returns how many numbers `absmax` has for n weights: their scales; or, nested, the absmax of
 * scales that are codes of 8 bits, and the offset after them. */
uint64_t pl_quant_count_absmax(enum pl_quant t, uint64_t n, bool nested);
static inline bool pl_quant_has_absmax(enum pl_quant t) {
    return t < PL_QUANT_COUNT && pl_quant_scale_type(t) == PL_DTYPE_F32;
}

#define PL_QUANT_BLOCK 64  /* weights that share an absmax */
#define PL_QUANT_MX    32  /* weights that share an exponent */
#define PL_QUANT_NEST  256 /* absmax that share an absmax of their own */
#define PL_QUANT_GROUP (PL_QUANT_BLOCK * PL_QUANT_NEST) /* weights under one nested absmax */
/* Staging for one group in transit: its values as in the file and in fp32, the codes, and room to
 * align the parts. */
#define PL_QUANT_STAGING (144 << 10)
#define PL_STATE8_BLOCK  256
#define PL_STATE8_MIN    4096

static inline uint64_t pl_quant_codes_bytes(uint64_t n) {
    return n / 2 + n % 2;
}
static inline uint64_t pl_quant_blocks(uint64_t n) {
    return n / PL_QUANT_BLOCK + (n % PL_QUANT_BLOCK != 0);
}
static inline uint64_t pl_quant_nests(uint64_t n) {
    return n / PL_QUANT_GROUP + (n % PL_QUANT_GROUP != 0);
}
static inline uint64_t pl_state8_blocks(uint64_t n) {
    return n / PL_STATE8_BLOCK + (n % PL_STATE8_BLOCK != 0);
}

#endif
