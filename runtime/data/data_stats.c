#include "runtime/data/data_stats.h"

void pl_data_stats_add(struct pl_data_stats *st, const struct pl_counted_row *row) {
    st->rows++;
    st->tokens += row->n;
    st->supervised_tokens += row->targets;
    st->weighted_rows += row->weighted;
    if (row->n > st->longest) st->longest = row->n;
}

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
