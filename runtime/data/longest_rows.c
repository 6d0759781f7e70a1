#include "runtime/data/longest_rows.h"

void pl_longest_add(struct pl_longest *l, uint64_t row, uint64_t tokens) {
    uint32_t at = l->n;
    while (at > 0 && l->tokens[at - 1] < tokens)
        at--;
    if (at == PL_LONGEST_ROWS) return;
    if (l->n < PL_LONGEST_ROWS) l->n++;
    for (uint32_t i = l->n - 1; i > at; i--) {
        l->row[i] = l->row[i - 1];
        l->tokens[i] = l->tokens[i - 1];
    }
    l->row[at] = row;
    l->tokens[at] = tokens;
}
