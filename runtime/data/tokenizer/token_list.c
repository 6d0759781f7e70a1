/* token_list.c - growing the list of tokens. */
#include "runtime/data/tokenizer/token_list.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdlib.h>

bool pl_token_list_reserve(struct pl_token_list *list, uint64_t extra) {
    uint64_t n, bytes, cap = list->cap ? list->cap : 256;
    if (!pl_u64_add(list->n, extra, &n)) return false;
    if (list->most) n = pl_u64_min(n, list->most);
    if (n <= list->cap) return true;
    while (cap < n)
        if (!pl_u64_mul(cap, 2, &cap)) return false;
    if (!pl_u64_mul(cap, sizeof *list->starts, &bytes) || bytes > SIZE_MAX) return false;
    int32_t *ids = pl_realloc(list->ids, (size_t)cap * sizeof *ids);
    if (ids) list->ids = ids;
    uint64_t *starts = ids ? pl_realloc(list->starts, (size_t)bytes) : NULL;
    if (!starts) return false;
    list->starts = starts;
    list->cap = cap;
    return true;
}

void pl_token_list_finish(struct pl_token_list *list) {
    free(list->ids);
    free(list->starts);
    *list = (struct pl_token_list){0};
}
