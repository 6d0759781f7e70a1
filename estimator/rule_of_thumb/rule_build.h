/* rule_build.h - how a table is filled; for the files of this room alone.
 *
 * Use: pl_rule_columns(t, (const char *const[]){"batch_size", "total_gb"}, 2);
 *      struct pl_rule_cell *c = pl_rule_row(t); pl_rule_number(c++, 4, 0); ... */
#ifndef PL_ESTIMATOR_RULE_OF_THUMB_RULE_BUILD_H
#define PL_ESTIMATOR_RULE_OF_THUMB_RULE_BUILD_H

#include "estimator/base/diag.h"
#include "estimator/rule_of_thumb/rule_cells.h"

void pl_rule_columns(struct pl_rule_table *t, const char *const *names, uint32_t n);
/* The cells of the next row. The tables are constants of this room, so a full one is a defect. */
struct pl_rule_cell *pl_rule_row(struct pl_rule_table *t);
/* Rounded to `decimals` where it is shown, not in `number`. */
void pl_rule_number(struct pl_rule_cell *c, double v, int decimals);
void pl_rule_words(struct pl_rule_cell *c, const char *fmt, ...) PL_PRINTF(2, 3);

#define PL_RULE_FILL_MAP(X)                                                                        \
    X(precision) X(gradients) X(optimizer) X(lora) X(activations) X(inference) X(qlora) X(gpus)    \
    X(grid) X(accumulation) X(freezing) X(mistakes) X(checklist) X(tiers) X(samples)
#define X(name) void pl_rule_fill_##name(const struct pl_rule_inputs *in, struct pl_rule_table *t);
PL_RULE_FILL_MAP(X)
#undef X

#endif
