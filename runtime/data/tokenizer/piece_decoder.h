/* piece_decoder.h - from the pieces of tokens back to text.
 *
 * In: pieces, as the file spells them.  Out: text.  Needs: base, pattern.h, utf8.h.
 *   D1  steps run in the order of the file, each over the whole list of pieces
 *   D2  without a step the pieces are joined by spaces, as the library does
 *   D3  the text is UTF-8: bytes that are not become U+FFFD where bytes are made
 * Use: pl_piece_list_add(&list, s, n); ... pl_piece_decoder_run(&decoder, &list, &text, &d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_PIECE_DECODER_H
#define PL_RUNTIME_DATA_TOKENIZER_PIECE_DECODER_H

#include "estimator/base/text.h"
#include "runtime/data/tokenizer/pattern.h"

#include <stdint.h>

#define PL_DECODER_MOST_STEPS 16

enum pl_decoder_kind {
    PL_DECODER_BYTE_LEVEL,
    PL_DECODER_REPLACE,
    PL_DECODER_BYTE_FALLBACK,
    PL_DECODER_FUSE,
    PL_DECODER_STRIP,
    PL_DECODER_METASPACE,
};

struct pl_decoder_step {
    enum pl_decoder_kind kind;
    struct pl_pattern *pattern; /* replace, owned */
    char *content;              /* replace: [n_content], owned */
    size_t n_content;
    char character[4]; /* strip, metaspace */
    size_t n_character;
    uint32_t start, stop; /* strip: at most as many */
    bool drops_first;     /* metaspace: the character leaves nothing in the first piece */
};

struct pl_piece_decoder {
    struct pl_decoder_step steps[PL_DECODER_MOST_STEPS];
    uint32_t n;
};
void pl_piece_decoder_finish(struct pl_piece_decoder *p);

struct pl_piece_list {
    struct pl_text text;
    size_t *ends; /* [n], of each piece in text */
    size_t n, cap;
    bool failed;
};
void pl_piece_list_add(struct pl_piece_list *list, const char *s, size_t n);
void pl_piece_list_finish(struct pl_piece_list *list);

/* Appends to *out; uses up the list. */
pl_err pl_piece_decoder_run(const struct pl_piece_decoder *p, struct pl_piece_list *list,
                            struct pl_text *out, struct pl_diag *d);

#endif
