/* gguf_merges.h - merges of a SentencePiece vocabulary, which its GGUF file does not list.
 *
 * In: the tokens, and a score of each.  Out: pairs of tokens, the first to be merged first.
 * Source: transformers 5.23, tokenization_utils_base.generate_merges. */
#ifndef PL_ESTIMATOR_GGUF_GGUF_MERGES_H
#define PL_ESTIMATOR_GGUF_GGUF_MERGES_H

#include "estimator/base/diag.h"
#include "estimator/gguf/gguf_value.h"

struct pl_gguf_merge {
    uint32_t left, right; /* indices of tokens */
    uint32_t of;          /* the token that both make */
    uint32_t left_chars, right_chars;
    double score;
};

/* Every way to cut a token into two tokens, the greatest score first; of equal ones the longer left
 * part, the longer right one, then the order of the vocabulary. *out is malloc'd. */
pl_err pl_gguf_make_merges(const struct pl_gguf_string *tokens, const double *scores, uint32_t n,
                           struct pl_gguf_merge **out, uint64_t *n_out, struct pl_diag *d);

#endif
