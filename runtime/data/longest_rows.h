/* longest_rows.h - the longest rows of the data, any of them if several have one length; kept for
 * the probe. */
#ifndef PL_RUNTIME_DATA_LONGEST_ROWS_H
#define PL_RUNTIME_DATA_LONGEST_ROWS_H

#include <stdint.h>

#define PL_LONGEST_ROWS 64
struct pl_longest { /* longest first */
    uint64_t row[PL_LONGEST_ROWS], tokens[PL_LONGEST_ROWS];
    uint32_t n;
};
/* Adds a row; the shortest is dropped if there are too many. */
void pl_longest_add(struct pl_longest *l, uint64_t row, uint64_t tokens);

#endif
