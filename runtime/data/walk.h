/* walk.h - the endless walk over the rows of a run: from a position to a row.
 *
 * In: an open data set, rows left out of it, (shuffle, seed), the weights of its files.  Out: the
 * row at any position.  Needs: data.h.
 *   W1  the row is a function of the position: nothing is carried from one step to the next, so a
 *       resumed run needs its position and nothing else
 *   W2  an epoch holds weight x rows of every file; over many epochs every row of a file is visited
 *       equally often, to within one visit
 *   W3  if every weight is 1 the walk is pl_data_order() itself: each row once an epoch
 *   W4  an epoch ends: no step takes rows of two epochs, so its last one may be short. A circle has
 *       no end: its steps are full, and pass from the last row to the first
 * Use: pl_walk_mix(&w, data, NULL, shuffle, seed, &d); row = pl_walk_row(&w, position); */
#ifndef PL_RUNTIME_DATA_WALK_H
#define PL_RUNTIME_DATA_WALK_H

#include "runtime/data/holdout.h"

struct pl_walk_part { /* the share of one file */
    uint64_t first, rows;
    uint64_t start, take; /* its turns in an epoch: [start, start + take) */
};

struct pl_walk {
    uint64_t first, rows;       /* rows [first, first + rows) of the data */
    uint64_t epoch_rows;        /* visits in an epoch */
    struct pl_walk_part *parts; /* owned; NULL = every row once an epoch (W3) */
    uint32_t n_parts;
    bool shuffle;
    uint64_t seed;
    const struct pl_holdout *held; /* borrowed, nullable; positions count the rows that it keeps */
    bool of_held;                  /* positions count the rows that it holds out instead */
    bool circle;                   /* W4 */
};

/* Walks rows [first, first + n), each once an epoch. Owns nothing. */
void pl_walk_init(struct pl_walk *w, uint64_t first, uint64_t n, bool shuffle, uint64_t seed);
/* Walks the rows of the data without those left out (NULL: all), by the weights of their files. On
 * failure nothing is held. */
pl_err pl_walk_mix(struct pl_walk *w, const struct pl_data *data, const struct pl_holdout *held,
                   bool shuffle, uint64_t seed, struct pl_diag *d);
/* Walks the rows held out, in their order. */
void pl_walk_held(struct pl_walk *w, const struct pl_holdout *held);
void pl_walk_finish(struct pl_walk *w);
uint64_t pl_walk_row(const struct pl_walk *w, uint64_t position);
/* Returns the rows from `position` to the end of its epoch; UINT64_MAX in a circle. */
uint64_t pl_walk_left(const struct pl_walk *w, uint64_t position);

#endif
