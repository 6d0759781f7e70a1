/* mxfp4_weights.h - experts that files hold as MXFP4 codes, as the bf16 tensors of their values, or
 * as codes.
 *
 * X_blocks is U8 [experts, out, in / 32, 16], two codes a byte and the low half first; X_scales is
 * U8 [experts, out, in / 32]. X is their values, [experts, in, out], as transformers makes them and
 * saves them.
 * In: opened safetensors files.  Out: one file more, of those values; their codes.  Needs:
 * safetensors.
 *   X1  one expert at a time is in host memory; bf16 holds every value exactly
 * Source: OCP Microscaling Formats 1.0, 5.3; transformers, integrations/mxfp4.py. */
#ifndef PL_RUNTIME_CHECKPOINT_MXFP4_WEIGHTS_H
#define PL_RUNTIME_CHECKPOINT_MXFP4_WEIGHTS_H

#include "runtime/checkpoint/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes the codes and scales out of the lists of the files, which must outlive *out, and puts their
 * values into it; *any: there are some, else *out is left alone. PL_ERR_CHECKPOINT_FORMAT: codes
 * have no scales that fit them, or a file holds their values as well. */
pl_err pl_mxfp4_weights_take(struct pl_st_file *files, uint32_t n, struct pl_st_file *out,
                             bool *any, struct pl_diag *d);

/* True if an entry has values of codes that can be read as they are. */
bool pl_mxfp4_has_codes(const struct pl_st_file *f, const struct pl_st_entry *e);
/* Reads the codes of an expert in the order of its values, [in, out], the first of a byte in its
 * high half, and their scales, [in / 32, out]. They stay until the next call for a tensor of the
 * file. */
pl_err pl_mxfp4_read_codes(const struct pl_st_file *f, const struct pl_st_entry *e, uint64_t expert,
                           const uint8_t **codes, const uint8_t **scales, struct pl_diag *d);

#endif
