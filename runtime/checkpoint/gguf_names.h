/* gguf_names.h - the names of tensors in GGUF, and in the files of transformers.
 *
 * One table serves both ways: bases are read by it, adapters written.
 * Source: github.com/ggml-org/llama.cpp, gguf-py/gguf/tensor_mapping.py. */
#ifndef PL_RUNTIME_CHECKPOINT_GGUF_NAMES_H
#define PL_RUNTIME_CHECKPOINT_GGUF_NAMES_H

#include "estimator/gguf/gguf_file.h"
#include "estimator/model/model.h"

#define PL_GGUF_NAME   64 /* bytes of a name, the most that ggml allows */
#define PL_GGUF_MODULE 48 /* bytes of a name that has room for `.weight.lora_a` */

/* The converter interleaves the rows of queries and keys in the heads of some families. */
enum pl_gguf_change { PL_GGUF_AS_IS, PL_GGUF_QUERY_ROWS, PL_GGUF_KEY_ROWS };

/* Writes the name of transformers, "model.layers.3.self_attn.q_proj.weight", and returns true;
 * false for a tensor that no model of transformers has, such as tables of rotary factors. */
bool pl_gguf_name_of_file(const char *architecture, const struct pl_gguf_string *gguf,
                          char out[128], enum pl_gguf_change *change);
/* Writes the name of a module's weight in layer `layer` of a GGUF model, without `.weight`; false
 * for a row without a module. */
bool pl_gguf_module_name(const struct pl_param_row *row, uint64_t layer, char out[PL_GGUF_MODULE]);

#endif
