/* gguf_types.h - the element types of GGUF: how many elements a block has, and in how many bytes.
 *
 * Source: github.com/ggml-org/ggml, ggml-common.h and the table type_traits of ggml.c. */
#ifndef PL_ESTIMATOR_GGUF_GGUF_TYPES_H
#define PL_ESTIMATOR_GGUF_GGUF_TYPES_H

#include <stdint.h>

/* X(id in files, name, elements of a block, bytes of a block) */
#define PL_GGUF_TYPES(X)                                                                           \
    X(0, F32, 1, 4)                                                                                \
    X(1, F16, 1, 2)                                                                                \
    X(2, Q4_0, 32, 18)                                                                             \
    X(3, Q4_1, 32, 20)                                                                             \
    X(6, Q5_0, 32, 22)                                                                             \
    X(7, Q5_1, 32, 24)                                                                             \
    X(8, Q8_0, 32, 34)                                                                             \
    X(9, Q8_1, 32, 36)                                                                             \
    X(10, Q2_K, 256, 84)                                                                           \
    X(11, Q3_K, 256, 110)                                                                          \
    X(12, Q4_K, 256, 144)                                                                          \
    X(13, Q5_K, 256, 176)                                                                          \
    X(14, Q6_K, 256, 210)                                                                          \
    X(15, Q8_K, 256, 292)                                                                          \
    X(16, IQ2_XXS, 256, 66)                                                                        \
    X(17, IQ2_XS, 256, 74)                                                                         \
    X(18, IQ3_XXS, 256, 98)                                                                        \
    X(19, IQ1_S, 256, 50)                                                                          \
    X(20, IQ4_NL, 32, 18)                                                                          \
    X(21, IQ3_S, 256, 110)                                                                         \
    X(22, IQ2_S, 256, 82)                                                                          \
    X(23, IQ4_XS, 256, 136)                                                                        \
    X(24, I8, 1, 1)                                                                                \
    X(25, I16, 1, 2)                                                                               \
    X(26, I32, 1, 4)                                                                               \
    X(27, I64, 1, 8)                                                                               \
    X(28, F64, 1, 8)                                                                               \
    X(29, IQ1_M, 256, 56)                                                                          \
    X(30, BF16, 1, 2)                                                                              \
    X(34, TQ1_0, 256, 54)                                                                          \
    X(35, TQ2_0, 256, 66)                                                                          \
    X(39, MXFP4, 32, 17)                                                                           \
    X(40, NVFP4, 64, 36)                                                                           \
    X(41, Q1_0, 128, 18)

enum pl_gguf_type_id {
#define X(id, name, elements, bytes) PL_GGUF_##name = id,
    PL_GGUF_TYPES(X)
#undef X
};

struct pl_gguf_type {
    uint32_t id; /* enum pl_gguf_type_id */
    const char *name;
    uint32_t elements, bytes; /* of a block */
};

#define PL_GGUF_BLOCK_ELEMENTS 256 /* the most that a block has */

/* Returns the row of an id; NULL: no type of the table has it. */
const struct pl_gguf_type *pl_gguf_type(uint32_t id);

#endif
