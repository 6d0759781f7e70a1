/* summary.h - a summary of the files of a data set, as text and as JSON.
 *
 * In: an open data set.  Out: a line a file, or a JSON list.  Needs: data.h, jansson.
 * Use: pl_data_write_files(data, &text); json_t *list = pl_data_files_json(data); */
#ifndef PL_RUNTIME_DATA_SUMMARY_H
#define PL_RUNTIME_DATA_SUMMARY_H

#include "runtime/data/data.h"

#include <jansson.h>

/* Appends "  data: one.jsonl: 2 rows, 12 tokens, 50.0 % trained on, longest 6\n" for each file,
 * with the numbers of rows that were cut, dropped or train nothing, and of each trait, unless 0. */
void pl_data_write_files(const struct pl_data *data, struct pl_text *out);
/* Returns [{"file", "rows", "tokens", "supervised_tokens", "longest", "truncated_rows",
 * "dropped_rows", "unsupervised_rows", and a key for each trait of row_traits.h}, ...]; NULL: no
 * memory. */
json_t *pl_data_files_json(const struct pl_data *data);

#endif
