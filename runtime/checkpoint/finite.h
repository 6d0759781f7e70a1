/* finite.h - numbers of a file that are not finite, found in one pass over bytes in memory.
 *
 * In: bytes of a tensor.  Out: the first element that is NaN or infinite.
 *   N1  an element type that is not of the format is said so, never taken for finite
 * Source of the 8-bit types: OCP OFP8 and MX specifications, 1.0.
 * Use: pl_st_read(f, e, at, buf, n, d); pl_finite_check(f, e, buf, at / size, n / size, d); */
#ifndef PL_RUNTIME_CHECKPOINT_FINITE_H
#define PL_RUNTIME_CHECKPOINT_FINITE_H

#include "runtime/checkpoint/safetensors.h"

enum pl_number_class {
    PL_NUMBERS_FLOATING,     /* may be other than finite */
    PL_NUMBERS_NOT_FLOATING, /* integers and truth values */
    PL_NUMBERS_UNKNOWN,
};

/* bytes (nullable): of an element; 1 for types below a byte, whose bytes are looked at. */
enum pl_number_class pl_number_class(const char *dtype_name, uint32_t *bytes);
/* The first of n elements of such a type that is not finite; n: there is none. */
uint64_t pl_finite_scan(const char *dtype_name, const void *p, uint64_t n);
/* n elements of an entry from `first` on: PL_ERR_CHECKPOINT_FORMAT names tensor and element. */
pl_err pl_finite_check(const struct pl_st_file *f, const struct pl_st_entry *e, const void *p,
                       uint64_t first, uint64_t n, struct pl_diag *d);
/* All of an entry, through a buffer of a multiple of 8 bytes. Bytes are read of types that may be
 * other than finite, and only of those. */
pl_err pl_finite_read(const struct pl_st_file *f, const struct pl_st_entry *e, void *buf,
                      uint64_t buf_bytes, struct pl_diag *d);

#endif
