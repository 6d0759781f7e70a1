/* quant_layout.h - how values are stored in 4 and in 8 bits: codes, blocks, bytes.
 *
 * Weights (QLoRA, Dettmers et al., arXiv 2305.14314; layout of bitsandbytes): codes of 4 bits, two
 * a byte, with one fp32 absmax per block of 64 of the flattened matrix; under double quantisation
 * the absmax are codes of 8 bits with one fp32 absmax per 256 of them, and one fp32 offset per
 * matrix. Optimizer moments (arXiv 2110.02861): codes of 8 bits with one fp32 absmax per block of
 * 256; tensors below PL_STATE8_MIN elements keep fp32. */
#ifndef PL_ESTIMATOR_OPS_QUANT_LAYOUT_H
#define PL_ESTIMATOR_OPS_QUANT_LAYOUT_H

#include <stdint.h>

enum pl_quant { PL_QUANT_NF4, PL_QUANT_FP4, PL_QUANT_COUNT };

#define PL_QUANT_BLOCK  64   /* weights that share an absmax */
#define PL_QUANT_NEST   256  /* absmax that share an absmax of their own */
#define PL_QUANT_GROUP  (PL_QUANT_BLOCK * PL_QUANT_NEST) /* weights under one nested absmax */
/* Staging for one group in transit: its values as in the file and in fp32, the codes, and room to
 * align the parts. */
#define PL_QUANT_STAGING (144 << 10)
#define PL_STATE8_BLOCK 256
#define PL_STATE8_MIN   4096

static inline uint64_t pl_quant_codes_bytes(uint64_t n) { return n / 2 + n % 2; }
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
