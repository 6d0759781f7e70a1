/* gguf_adapter.h - an adapter as one GGUF file, as llama.cpp's convert_lora_to_gguf.py writes it.
 *
 * In: the adapter of struct pl_merge_files.  Out: a file for `llama-cli --lora`.
 * Needs: base, model, checkpoint's durable writes.
 *   G1  version 3, little-endian; tensors start on multiples of 32 bytes, in the order of the file
 *   G2  names and shapes are those of the converted base model: blk.N.attn_q.weight.lora_a with
 *       ne = [in, r], .lora_b with ne = [r, out]
 *   G3  where llama.cpp rotates neighbouring elements and the Hugging Face file halves of a head,
 *       the rows of q's and k's B change places as those of the base model did
 *   G4  adapter.lora.alpha / r is the adapter's scale, also under use_rslora
 * Format: github.com/ggml-org/ggml, docs/gguf.md. */
#ifndef PL_RUNTIME_CHECKPOINT_GGUF_ADAPTER_H
#define PL_RUNTIME_CHECKPOINT_GGUF_ADAPTER_H

#include "runtime/checkpoint/merge_files.h"

#define PL_GGUF_ALIGN 32

struct pl_gguf_setting {    /* of the metadata */
    const char *key, *text; /* text NULL: a number */
    bool real;              /* fp32, else uint32 */
    double number;
};
struct pl_gguf_tensor {
    char name[64];
    enum pl_dtype dtype; /* F32, F16 or BF16 */
    uint64_t ne[2];      /* elements, fastest first */
};
/* Everything before the first tensor's bytes, padding included. */
pl_err pl_gguf_add_header(const struct pl_gguf_setting *values, uint64_t n_values,
                          const struct pl_gguf_tensor *tensors, uint64_t n_tensors,
                          struct pl_text *out, struct pl_diag *d);

/* Crash-safe; `work` brings buffers for one whole matrix (PL_NONE) and may stop the work. */
pl_err pl_gguf_write_adapter(const struct pl_merge_files *f, const struct pl_model *m,
                             const struct pl_merge_work *work, const char *path,
                             enum pl_dtype dtype, struct pl_diag *d);

#endif
