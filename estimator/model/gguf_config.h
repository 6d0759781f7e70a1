/* gguf_config.h - the config.json that the metadata of a GGUF file amounts to.
 *
 * In: an open GGUF file.  Out: JSON text for pl_model_parse.  Needs: gguf, families.
 *   C1  what llama.cpp's converter has put into names, tensors or code is put back: the family, the
 *       size of the vocabulary, a tied head, biases, the frequencies of Llama 3.1, the factors of
 *       LongRoPE
 * What has no key of the family's class is refused by name, never dropped.
 * Source of the keys: github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py, class Keys, and
 * convert_hf_to_gguf.py. */
#ifndef PL_ESTIMATOR_MODEL_GGUF_CONFIG_H
#define PL_ESTIMATOR_MODEL_GGUF_CONFIG_H

#include "estimator/gguf/gguf_file.h"

/* Sets *text to malloc'd JSON, with a NUL after its *bytes bytes. `path` appears in messages.
 * MODEL_FIELD: a key is missing or has another type; MODEL_UNSUPPORTED. */
pl_err pl_gguf_config_text(const struct pl_gguf *g, const char *path, char **text, uint64_t *bytes,
                           struct pl_diag *d);

#endif
