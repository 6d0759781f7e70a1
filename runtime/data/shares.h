/* shares.h - decides which rows of each file its entry takes, by `split` and `max_samples`.
 *
 * In: the files of the data, in their order.  Out: skip and most of a file.  Needs: split,
 * data_content.
 *   A1  the rows of an entry are those of all its files, one after the other
 * Rows are counted, which reads every file of the entry once more, only where the slice begins
 * after the first row, counts from the end or is a percentage.
 * Use: pl_data_share(data, i, &d), for each file before it is read, in their order. */
#ifndef PL_RUNTIME_DATA_SHARES_H
#define PL_RUNTIME_DATA_SHARES_H

#include "runtime/data/data_state.h"

/* PL_ERR_DATA_EMPTY: the slice takes none of the rows. */
pl_err pl_data_share(struct pl_data *data, uint32_t i, struct pl_diag *d);

#endif
