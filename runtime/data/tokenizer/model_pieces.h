/* model_pieces.h - the pieces of a model, whatever its type. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_MODEL_PIECES_H
#define PL_RUNTIME_DATA_TOKENIZER_MODEL_PIECES_H

#include "runtime/data/tokenizer/tokenizer_parts.h"

/* Puts a piece into t->model unless piece or id are there. */
pl_err pl_tokenizer_put_piece(struct pl_tokenizer *t, const struct pl_text *piece, uint32_t v,
                              struct pl_diag *d);
/* Ids of "<0x00>"...; all -1 without byte_fallback. */
void pl_tokenizer_byte_pieces(const struct pl_vocab *v, bool fallback, int32_t out[256]);

#endif
