/* dtype.h - element types of tensors: the one list of them, and the one name of each. */
#ifndef PL_ESTIMATOR_OPS_DTYPE_H
#define PL_ESTIMATOR_OPS_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, "name", bytes per element, safetensors name) */
#define PL_DTYPE_MAP(X)                                                                            \
    X(F32, "fp32", 4, "F32")                                                                       \
    X(BF16, "bf16", 2, "BF16")                                                                     \
    X(F16, "fp16", 2, "F16")                                                                       \
    X(F64, "fp64", 8, "F64")                                                                       \
    X(I32, "int32", 4, "I32")                                                                      \
    X(U64, "uint64", 8, "U64")                                                                     \
    X(U8, "uint8", 1, "U8")

enum pl_dtype {
#define X(t, name, bytes, st) PL_DTYPE_##t,
    PL_DTYPE_MAP(X)
#undef X
        PL_DTYPE_COUNT,
    PL_DTYPE_AUTO = PL_DTYPE_COUNT /* the value of a key that leaves the type open */
};

/* The types that a step stores weights, activations and gradients in: operands, conversions and
 * kernels of both back-ends are made from these lists. X(NAME), or X(NAME, arg); the narrow ones
 * are shorter than fp32, so a value is rounded that is stored in one. */
#define PL_NARROW_LIST(X, arg) X(BF16, arg) X(F16, arg)
#define PL_FLOAT_LIST(X, arg)  X(F32, arg) PL_NARROW_LIST(X, arg)
#define PL_LISTED(NAME, X)     X(NAME)
#define PL_NARROW_MAP(X)       PL_NARROW_LIST(PL_LISTED, X)
#define PL_FLOAT_MAP(X)        PL_FLOAT_LIST(PL_LISTED, X)

#define PL_DTYPE_BIT(NAME) | 1u << PL_DTYPE_##NAME
static inline bool pl_dtype_is_float(enum pl_dtype t) {
    return (0u PL_FLOAT_MAP(PL_DTYPE_BIT)) >> t & 1;
}
static inline bool pl_dtype_is_narrow(enum pl_dtype t) {
    return (0u PL_NARROW_MAP(PL_DTYPE_BIT)) >> t & 1;
}
/* True if a number of the type is the upper half of its fp32, so that it can be rounded by adding
 * random bits below. */
static inline bool pl_dtype_is_upper_half(enum pl_dtype t) {
    return t == PL_DTYPE_BF16;
}
/* Returns the type of that name; PL_DTYPE_COUNT if there is none. */
enum pl_dtype pl_dtype_by_name(const char *name);
uint64_t pl_dtype_bytes(enum pl_dtype t);
const char *pl_dtype_name(enum pl_dtype t);
const char *pl_dtype_file_name(enum pl_dtype t);
/* Returns the nearest number that a narrow type holds, to even between two, or x itself for any
 * other type. x is finite. */
float pl_dtype_round(enum pl_dtype t, float x);

#endif
