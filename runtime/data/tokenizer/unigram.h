/* unigram.h - a word to ids by the segmentation whose scores have the largest sum.
 *
 * In: pieces with scores, one word at a time.  Out: tokens.  Needs: vocab.h, span.h.
 *   G1  Viterbi (Kudo, Subword Regularization, 2018) in double precision, from left to right; of
 *       equal sums the one found first stands, which is the one with the longest last piece
 *   G2  a character that is no piece scores `unknown`; unknown neighbours are one token
 *   G3  a word costs its bytes times the bytes of the longest piece, at most
 * Use: pl_unigram_sort(&u); pl_unigram_encode(&u, &scratch, &word, &list, d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_UNIGRAM_H
#define PL_RUNTIME_DATA_TOKENIZER_UNIGRAM_H

#include "estimator/base/diag.h"
#include "runtime/data/tokenizer/span.h"
#include "runtime/data/tokenizer/token_list.h"
#include "runtime/data/tokenizer/vocab.h"

/* The most bytes of one piece: SentencePiece trains none above 16 characters unless it is told to,
 * and G3 is a bound only with this one. */
#define PL_UNIGRAM_MOST_BYTES 512u

struct pl_unigram_piece {
    const char *s; /* of the vocabulary */
    size_t n;
    double score;
    int32_t id;
};

struct pl_unigram {
    const struct pl_vocab *vocab;
    struct pl_unigram_piece *pieces; /* [n], owned, by bytes; NULL: the model is another one */
    uint32_t n;
    uint32_t first[257]; /* the pieces that begin with byte c are [first[c], first[c + 1]) */
    double unknown;      /* score of a character without a piece */
    int32_t unk;         /* -1: such a character is an error */
    int32_t fallback[256];
};

void pl_unigram_sort(struct pl_unigram *u); /* and fills `first` */
void pl_unigram_finish(struct pl_unigram *u);

struct pl_unigram_end { /* of the best pieces that end at a byte */
    double score;
    uint32_t link; /* where the last of them begins */
    int32_t id;    /* of the last; -1: none ends there */
};

struct pl_unigram_scratch {
    struct pl_unigram_end *ends; /* [cap] */
    size_t cap;
};
void pl_unigram_scratch_finish(struct pl_unigram_scratch *s);

/* Adds the tokens of `word` (n > 0, below 2^31) to *out. TOKENIZER_INPUT: an unknown character and
 * no `unk`. */
pl_err pl_unigram_encode(const struct pl_unigram *u, struct pl_unigram_scratch *s,
                         const struct pl_span *word, struct pl_token_list *out, struct pl_diag *d);

#endif
