/* data_stats.h - what is known of the rows of files: sums, the longest rows, and how far a file was
 * read.
 *
 * In: rows, as they are counted.  Out: sums, and the numbers of the longest.  Needs: row_traits. */
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
void pl_data_stats_add(struct pl_data_stats *st, const struct pl_counted_row *row);

/* The longest rows, any of them if several have one length; kept for the probe. */
#define PL_LONGEST_ROWS 64
struct pl_longest { /* longest first */
    uint64_t row[PL_LONGEST_ROWS], tokens[PL_LONGEST_ROWS];
    uint32_t n;
};
/* Adds a row; the shortest is dropped if there are too many. */
void pl_longest_add(struct pl_longest *l, uint64_t row, uint64_t tokens);

/* A file of the data and its rows, which are consecutive. */
struct pl_data_file {
    const char *path; /* path that was opened */
    uint64_t first, rows;
    double weight;
    struct pl_data_stats stats;
};

/* The progress of reading a file for the first time. */
struct pl_data_reading {
    const char *path;
    uint64_t done_bytes, bytes; /* bytes of its unpacked content */
    uint64_t rows;              /* so far */
};
struct pl_data_watch {
    void (*reading)(void *ctx, const struct pl_data_reading *at); /* called after every row */
    void *ctx;
};

#endif
