/* token_list.h - adding to the list of tokens that encoding fills.
 *
 * In: ids and where they begin.  Out: struct pl_token_list.  Needs: tokenizer.h. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKEN_LIST_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKEN_LIST_H

#include "runtime/data/tokenizer/tokenizer.h"

/* Makes room for `extra` more tokens. False: out of memory. */
bool pl_token_list_reserve(struct pl_token_list *list, uint64_t extra);

/* Needs the room. */
static inline void pl_token_list_push(struct pl_token_list *list, int32_t id, uint64_t start) {
    list->ids[list->n] = id;
    list->starts[list->n++] = start;
}

#endif
