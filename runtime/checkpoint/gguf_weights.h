/* gguf_weights.h - a GGUF file as a file of weights: names, shapes and values of transformers.
 *
 * In: a GGUF file, or the first of its parts.  Out: a struct pl_st_file whose bytes are computed
 * when they are read.  Needs: gguf, gguf_names.h, gguf_blocks.h.
 *   W1  quantised tensors are tensors of fp32; F32, F16 and BF16 ones stay what they are
 *   W2  what llama.cpp's converter changed is changed back: interleaved rows of queries and keys,
 *       norms of Gemma 3 that have 1 added
 *   W3  memory does not depend on the size of the file: values are made a piece at a time
 * Use: pl_gguf_weights_open(&f, "model.gguf", &d); pl_st_read(&f, e, ...); pl_st_close(&f); */
#ifndef PL_RUNTIME_CHECKPOINT_GGUF_WEIGHTS_H
#define PL_RUNTIME_CHECKPOINT_GGUF_WEIGHTS_H

#include "runtime/checkpoint/safetensors.h"

/* Opens the file as pl_st_open does, with the same errors. */
pl_err pl_gguf_weights_open(struct pl_st_file *f, const char *path, struct pl_diag *d);

#endif
