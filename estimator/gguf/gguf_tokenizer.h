/* gguf_tokenizer.h - the tokenizer in the metadata of a GGUF file, as the files of transformers.
 *
 * In: an open GGUF file.  Out: the texts of tokenizer.json and tokenizer_config.json.
 * Needs: base, gguf_file.h.
 *   T1  the tokenizer is the one that transformers makes of the same file (5.23,
 *       integrations/gguf/gguf_tokenizer_mapping.py), but for vocabularies whose `pre` it does not
 *       know: those of a table here are split as llama.cpp splits them, others are refused by name
 *   T2  a GGUF file stands for a directory of its texts: FILE.gguf/tokenizer.json names one
 * Format: ggml, docs/gguf.md, "Tokenizer". */
#ifndef PL_ESTIMATOR_GGUF_GGUF_TOKENIZER_H
#define PL_ESTIMATOR_GGUF_GGUF_TOKENIZER_H

#include "estimator/base/digest.h"
#include "estimator/base/text.h"
#include "estimator/gguf/gguf_file.h"

/* Appends the text of T2. *there is false, and nothing is appended, for a path of another kind and
 * for another name than the two. TOKENIZER_FIELD, TOKENIZER_UNSUPPORTED, or as pl_gguf_open. */
pl_err pl_gguf_companion(const char *path, struct pl_text *out, bool *there, struct pl_diag *d);

/* Adds to a digest what the texts are made of, without making them. As pl_gguf_open. */
pl_err pl_gguf_tokenizer_identify(const char *path, struct pl_digest *h, struct pl_diag *d);

#endif
