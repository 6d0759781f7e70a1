/* row_slice.h - a part of the rows of an entry, as Hugging Face datasets writes it after the name
 * of a split: `train[:10%]`, `train[100:]`, `train[-10%:]`.
 *
 * In: the text from the bracket on.  Out: a slice, its text, the rows that it takes of N.
 * Needs: base.
 *   W1  a slice takes of N rows those that datasets takes: a negative bound counts from the end,
 *       a bound beyond the rows is their end, and a percentage is rounded to the closest row, to
 *       the even one where two are equally close. One case differs: a negative percentage that
 *       rounds to 0 rows is the end, and in datasets the first row, so that [-1%:] of 40 rows
 *       would be all of them
 *   W2  a slice whose bounds alone show that it takes no row is refused when it is read
 * Use: what = pl_row_slice_parse("[:10%]", &s); range = pl_row_slice_of(&s, rows); */
#ifndef PL_ESTIMATOR_CONFIG_ROW_SLICE_H
#define PL_ESTIMATOR_CONFIG_ROW_SLICE_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct pl_row_bound {
    bool given; /* false: the first row, or the end */
    int64_t at; /* below 0: counted from the end */
};

struct pl_row_slice { /* {0} takes every row */
    struct pl_row_bound from, to;
    bool percent;
};

struct pl_row_range {
    uint64_t from, to; /* rows [from, to) */
};

/* Returns NULL, or what is wrong with the text; *hint is then what to write instead, or NULL. */
const char *pl_row_slice_parse(const char *text, struct pl_row_slice *out, const char **hint);
void pl_row_slice_write(const struct pl_row_slice *s, struct pl_text *out); /* "" for every row */
/* Returns the rows of `rows` that the slice takes; none: from == to. */
struct pl_row_range pl_row_slice_of(const struct pl_row_slice *s, uint64_t rows);
/* True if the slice is the first N rows, or all: nothing has to be counted to know them. *most is
 * N, or UINT64_MAX. */
bool pl_row_slice_is_first(const struct pl_row_slice *s, uint64_t *most);

#endif
