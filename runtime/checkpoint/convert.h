/* convert.h - element conversions between files and tensors, any alignment, no overlap.
 *
 * bf16 and fp16 to fp32 are exact, subnormals and NaN payloads included. fp32 to bf16 and fp16
 * rounds to nearest even; a NaN stays a (quiet) NaN. */
#ifndef PL_RUNTIME_CHECKPOINT_CONVERT_H
#define PL_RUNTIME_CHECKPOINT_CONVERT_H

#include "estimator/ops/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* True for F32, BF16 and F16, the types in which weights may be stored. */
bool pl_convert_reads(enum pl_dtype t);
/* Converts n elements of type `from` at src to fp32. */
void pl_convert_to_f32(float *dst, const void *src, enum pl_dtype from, uint64_t n);
/* Converts n fp32 elements to type `to` (F32, BF16 or F16). */
void pl_convert_from_f32(void *dst, const float *src, enum pl_dtype to, uint64_t n);

#endif
