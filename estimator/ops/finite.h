/* finite.h - numbers that are not finite, found in one pass over bytes in memory.
 *
 * In: elements of a type, by its name in safetensors.  Out: the first that is NaN or infinite.
 *   N1  an element type that is not of the format is said so, never taken for finite
 * Source of the 8-bit types: OCP OFP8 and MX specifications, 1.0.
 * Use: at = pl_finite_scan(pl_dtype_file_name(t), p, n); if (at < n) ... */
#ifndef PL_ESTIMATOR_OPS_FINITE_H
#define PL_ESTIMATOR_OPS_FINITE_H

#include <stdint.h>

enum pl_number_class {
    PL_NUMBERS_FLOATING,     /* may be other than finite */
    PL_NUMBERS_NOT_FLOATING, /* integers and truth values */
    PL_NUMBERS_UNKNOWN,
};

/* bytes (nullable): of an element; 1 for types below a byte, whose bytes are looked at. */
enum pl_number_class pl_number_class(const char *dtype_name, uint32_t *bytes);
/* The first of n elements of such a type that is not finite; n: there is none. */
uint64_t pl_finite_scan(const char *dtype_name, const void *p, uint64_t n);
/* Returns "nan", "inf" or "-inf" for an element of F64, F32, BF16 or F16 that is not finite: of an
 * infinity only the exponent and the sign have bits. */
const char *pl_finite_name(const char *dtype_name, const void *p);

#endif
