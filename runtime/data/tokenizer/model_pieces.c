/* model_pieces.c - the pieces of a model, whatever its type. */
#include "runtime/data/tokenizer/model_pieces.h"

#include <stdio.h>

pl_err pl_tokenizer_put_piece(struct pl_tokenizer *t, const struct pl_text *piece, uint32_t v,
                              struct pl_diag *d) {
    const char *s = pl_text_str(piece);
    if (piece->failed) return pl_host_oom(d, "the vocabulary of a tokenizer");
    if (piece->len > PL_VOCAB_MOST_BYTES)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`model.vocab` has a piece of %zu bytes",
                           piece->len);
    const char *twin = pl_vocab_piece(&t->model, v, NULL);
    if (twin)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`model.vocab` gives `%.60s` and `%.60s` the id %u", twin, s, v);
    if (pl_vocab_find(&t->model, s, piece->len) >= 0)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`model.vocab` has `%.60s` twice", s);
    return pl_vocab_put(&t->model, v, s, piece->len)
               ? PL_ERR_OK
               : pl_host_oom(d, "the vocabulary of a tokenizer");
}

void pl_tokenizer_byte_pieces(const struct pl_vocab *v, bool fallback, int32_t out[256]) {
    for (unsigned c = 0; c < 256; c++) {
        char code[8];
        snprintf(code, sizeof code, "<0x%02X>", c);
        out[c] = fallback ? pl_vocab_find(v, code, 6) : -1;
    }
}
