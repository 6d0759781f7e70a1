/* gguf_blocks.h - blocks of quantised values to fp32, as ggml's dequantize_row_* gives them.
 *
 * In: a block of one of the types of gguf_types.h.  Out: its values.  Needs: ops/half.h.
 *   B1  every product and every difference is rounded to fp32 on its own, in the order of ggml's
 *       code, so that the bits are those of ggml and of the Python package gguf
 * Source: github.com/ggml-org/ggml, ggml-common.h (layouts) and ggml-quants.c (rules). */
#ifndef PL_RUNTIME_CHECKPOINT_GGUF_BLOCKS_H
#define PL_RUNTIME_CHECKPOINT_GGUF_BLOCKS_H

#include "estimator/gguf/gguf_types.h"

/* Writes the values of one block. */
typedef void pl_gguf_decode_fn(const unsigned char *block, float *out);
/* Returns the decoder of a type; NULL: its blocks are not read. */
pl_gguf_decode_fn *pl_gguf_decoder(uint32_t type_id);

#endif
