/* data_stats.h - statistics of the rows of files.
 *
 * In: rows, as they are counted.  Out: sums.  Needs: row_traits. */
#ifndef PL_RUNTIME_DATA_DATA_STATS_H
#define PL_RUNTIME_DATA_DATA_STATS_H

#include "runtime/data/row_traits.h"

struct pl_data_stats {
    uint64_t rows, unsupervised_rows, truncated_rows, dropped_rows, weighted_rows;
    /* after truncation; targets after the shift by one */
    uint64_t tokens, supervised_tokens, longest;
    uint64_t traits[PL_TRAITS]; /* rows that have each trait */
};

/* A row as it is counted: its tokens, those that are trained on, and if it is weighted. */
struct pl_counted_row {
    uint64_t n, targets;
    bool weighted;
};
static inline void pl_data_stats_add(struct pl_data_stats *st, const struct pl_counted_row *row) {
    st->rows++;
    st->tokens += row->n;
    st->supervised_tokens += row->targets;
    st->weighted_rows += row->weighted;
    if (row->n > st->longest) st->longest = row->n;
}

#endif
