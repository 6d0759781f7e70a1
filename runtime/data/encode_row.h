/* encode_row.h - the state of an encoder, and the labels of one row's tokens.
 *
 * In: an encoder whose `tokens` are those of the row's text.  Out: labels.  Needs: tokenizer, chat.
 * Use: encode.h; encode.c and encode_chat.c share the functions below. */
#ifndef PL_RUNTIME_DATA_ENCODE_ROW_H
#define PL_RUNTIME_DATA_ENCODE_ROW_H

#include "runtime/data/chat/own.h"
#include "runtime/data/row_traits.h"
#include "runtime/data/sample.h"
#include "runtime/data/tokenizer/tokenizer.h"

/* The call that makes room for new tokens in a model, for hints. */
#define PL_ENCODE_RESIZE "model.resize_token_embeddings(len(tokenizer)), save both"

#define PL_ENCODER_STOPS 48

struct pl_encoder {
    struct pl_tokenizer *tokenizer; /* NULL until opened */
    struct pl_tokenizer_scratch *scratch;
    const struct pl_chat_template *chat; /* a row of the table; NULL: none is chosen */
    bool by_program;                     /* a row of the table; NULL = none is chosen */
    struct pl_chat_own own;
    struct pl_text file; /* the text of the program of a file */
    bool *wanted;    /* messages of a row that are searched for, owned */
    bool ends_loose; /* for the last row: spans may end in white space after the turn's end */
    struct pl_chat_options options;
    struct pl_chat_text rendered;
    struct pl_token_list tokens;
    uint64_t vocab;
    int64_t eos; /* token that ends plain text; -1 = none */
    int64_t
        stops[PL_ENCODER_STOPS]; /* [n_stops]: tokens that end a turn; the first n_ends end text */
    uint32_t n_stops, n_ends;
    struct pl_row_traits traits; /* traits of the last row, cleared by the reader of a row */
    uint32_t train_on;           /* PL_TRAIN_ON_* */
    bool bytes;                  /* `tokenizer: byte` */
    uint64_t identity;           /* digest of the tokenizer's files */
};

/* Takes the tokens of e->tokens into *out, with room for one more; labels are ids if `trained`,
 * else masked. */
pl_err pl_encode_take_tokens(const struct pl_encoder *e, bool trained, struct pl_sample *out,
                             struct pl_diag *d);
/* Returns the first token that begins at byte `at` or later. */
uint64_t pl_encode_token_at(const struct pl_encoder *e, size_t at);
/* True if the byte is within a token that begins before it. */
bool pl_encode_is_inside(const struct pl_encoder *e, size_t at);
/* True if the text up to this byte has tokens that the limit for rows left out. */
bool pl_encode_is_beyond(const struct pl_encoder *e, size_t at);
/* Sets the labels of the tokens that begin in [begin, end). */
void pl_encode_label(const struct pl_encoder *e, struct pl_sample *out, size_t begin, size_t end,
                     bool trained);

#endif
