/* token_list.h - the list of tokens that encoding fills.
 *
 * In: ids and where they begin.  Out: struct pl_token_list.  Needs: nothing. */
#ifndef PL_RUNTIME_DATA_TOKENIZER_TOKEN_LIST_H
#define PL_RUNTIME_DATA_TOKENIZER_TOKEN_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct pl_token_list {
    int32_t *ids;     /* [n], owned, grown by encode */
    uint64_t *starts; /* [n], owned: byte of the text where each token begins; tokens that the
                       * post-processor added begin where the text ends or starts */
    uint64_t n, cap;
    uint64_t
        most; /* set by the caller: what comes after so many is counted and not kept; 0 = all is */
    uint64_t all; /* tokens of the text, with those that are not kept */
    int32_t last; /* the last of them, where there are any */
};
void pl_token_list_finish(struct pl_token_list *list); /* frees; leaves {0} */

/* Makes room for `extra` more tokens, as far as they are kept. False: out of memory. */
bool pl_token_list_reserve(struct pl_token_list *list, uint64_t extra);

/* Needs the room. */
static inline void pl_token_list_push(struct pl_token_list *list, int32_t id, uint64_t start) {
    list->all++;
    list->last = id;
    if (list->most && list->n >= list->most) return;
    list->ids[list->n] = id;
    list->starts[list->n++] = start;
}

#endif
