/* dtype.h - element types of tensors. X(NAME, "name", bytes per element, safetensors name) */
#ifndef PL_ESTIMATOR_OPS_DTYPE_H
#define PL_ESTIMATOR_OPS_DTYPE_H

#include <stdint.h>

#define PL_DTYPE_MAP(X)                                                                            \
    X(F32, "fp32", 4, "F32")                                                                       \
    X(BF16, "bf16", 2, "BF16")                                                                     \
    X(F16, "fp16", 2, "F16") /* in files only */                                                   \
    X(F64, "fp64", 8, "F64")                                                                       \
    X(I32, "int32", 4, "I32")                                                                      \
    X(U64, "uint64", 8, "U64")                                                                     \
    X(U8, "uint8", 1, "U8")

enum pl_dtype {
#define X(t, name, bytes, st) PL_DTYPE_##t,
    PL_DTYPE_MAP(X)
#undef X
        PL_DTYPE_COUNT
};

uint64_t pl_dtype_bytes(enum pl_dtype t);
const char *pl_dtype_name(enum pl_dtype t);
const char *pl_dtype_file_name(enum pl_dtype t);
/* Returns the nearest number that BF16 holds, to even between two, or x itself for any other type.
 * x is finite. */
float pl_dtype_round(enum pl_dtype t, float x);

#endif
