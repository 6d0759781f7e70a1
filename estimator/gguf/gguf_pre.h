/* gguf_pre.h - how texts are split before byte-level merges: the names of `tokenizer.ggml.pre`.
 *
 * Source: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp, and the tokenizer.json that each name
 * stands for. */
#ifndef PL_ESTIMATOR_GGUF_GGUF_PRE_H
#define PL_ESTIMATOR_GGUF_GGUF_PRE_H

#include <stdbool.h>
#include <stddef.h>

struct pl_gguf_pre {
    const char *name;
    const char *regex; /* each match is a word; NULL: the pattern of GPT-2 */
    bool digits;       /* each digit is a word before that */
    bool whole_words;  /* a word that is a token is not put together by merges */
};

/* Returns the row of a name of n bytes; NULL: there is none. */
const struct pl_gguf_pre *pl_gguf_pre_find(const char *name, size_t n);

#endif
