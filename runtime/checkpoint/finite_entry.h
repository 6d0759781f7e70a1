/* finite_entry.h - numbers of a file that are not finite.
 *
 * In: bytes of a tensor.  Out: PL_ERR_CHECKPOINT_FORMAT names the first element that is NaN or
 * infinite.  Needs: ops/finite.h.
 * Use: pl_st_read(f, e, at, buf, n, d); pl_finite_check(f, e, buf, at / size, n / size, d); */
#ifndef PL_RUNTIME_CHECKPOINT_FINITE_ENTRY_H
#define PL_RUNTIME_CHECKPOINT_FINITE_ENTRY_H

#include "estimator/ops/finite.h"
#include "runtime/checkpoint/safetensors.h"

/* Checks n elements of an entry from `first` on: PL_ERR_CHECKPOINT_FORMAT names tensor and
 * element. */
pl_err pl_finite_check(const struct pl_st_file *f, const struct pl_st_entry *e, const void *p,
                       uint64_t first, uint64_t n, struct pl_diag *d);
/* Checks all of an entry, through a buffer of a multiple of 8 bytes. Bytes are read of types that
 * may be other than finite, and only of those. */
pl_err pl_finite_read(const struct pl_st_file *f, const struct pl_st_entry *e, void *buf,
                      uint64_t buf_bytes, struct pl_diag *d);

#endif
