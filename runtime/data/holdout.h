/* holdout.h - rows that training leaves out: those held out for evaluation, and those without a
 * token to train on.
 *
 * In: an open data set, how many rows, a seed.  Out: the held-out rows, and the kept rows by
 * number.  Needs: data.h.
 *   O1  every file gives its share of the rows, to within one: a sorted list of files is not
 *       evaluated by the last of them alone
 *   O2  the choice of rows in a file is a function of (seed, number of the file, its rows, its
 *       share) alone, so a run that is resumed holds out the same; rows without a token to train on
 *       count for nothing
 *   O3  kept rows stay in the order of the files
 * Use: pl_holdout_untrained(&u, data, &d); pl_holdout_draw(&h, data, &u, 100, seed, &d);
 *      pl_holdout_join(&out, &u, &h, &d); row = pl_holdout_kept(&out, i); ...
 *      pl_holdout_finish(&h); */
#ifndef PL_RUNTIME_DATA_HOLDOUT_H
#define PL_RUNTIME_DATA_HOLDOUT_H

#include "runtime/data/data.h"

struct pl_holdout {
    uint64_t *rows; /* [n], owned, ascending */
    uint64_t n;
};

/* Lists the rows without a token to train on. On failure, here and below, the list is empty. */
pl_err pl_holdout_untrained(struct pl_holdout *h, const struct pl_data *data, struct pl_diag *d);
/* Draws n rows from those that `out` keeps (NULL: from all); n is less than their number. */
pl_err pl_holdout_draw(struct pl_holdout *h, const struct pl_data *data,
                       const struct pl_holdout *out, uint64_t n, uint64_t seed, struct pl_diag *d);
/* Joins both lists, which have no row in common. */
pl_err pl_holdout_join(struct pl_holdout *h, const struct pl_holdout *a, const struct pl_holdout *b,
                       struct pl_diag *d);
void pl_holdout_finish(struct pl_holdout *h); /* leaves {0} */
/* Return row i of those that are kept, and how many rows below `row` are held out. */
uint64_t pl_holdout_kept(const struct pl_holdout *h, uint64_t i);
uint64_t pl_holdout_below(const struct pl_holdout *h, uint64_t row);

#endif
