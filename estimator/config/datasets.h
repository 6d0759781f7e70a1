/* datasets.h - entries of `datasets` and the columns that they name. */
#ifndef PL_ESTIMATOR_CONFIG_DATASETS_H
#define PL_ESTIMATOR_CONFIG_DATASETS_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/config/job.h"

struct pl_key_info;
struct pl_key_input;

/* Parses values of the type DATASETS of key_types.h. */
pl_err pl_datasets_parse(const struct pl_key_input *in, void *field);
void pl_datasets_print(const struct pl_key_info *info, const void *field, struct pl_text *out);
void pl_datasets_clear(void *field);

const char *pl_column_key(enum pl_column column); /* e.g. "field_text" */
/* Copies `from` to *out, which then owns its strings. False: no memory, and *out is empty. */
bool pl_columns_copy(struct pl_columns *out, const struct pl_columns *from);
void pl_columns_finish(struct pl_columns *c); /* leaves {0} */
/* Appends ", key: name" for every column that has a name. */
void pl_columns_write(const struct pl_columns *c, struct pl_text *out);

#endif
