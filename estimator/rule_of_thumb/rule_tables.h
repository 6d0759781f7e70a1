/* rule_tables.h - the tables that people plan by, each computed for the inputs at hand.
 *
 * In: struct pl_rule_inputs.  Out: a table of named columns, as text or JSON.  Needs: rule_cells.h.
 *   B1  a column called document_... repeats what was published, whatever the inputs; every other
 *       number is computed from them
 *   B2  the cells of a row stand in the order of the columns, and a row has all of them
 * Use: struct pl_rule_table t; pl_rule_table_fill(pl_rule_table_find("grid"), &in, &t);
 *      pl_rule_table_text(&t, &text); */
#ifndef PL_ESTIMATOR_RULE_OF_THUMB_RULE_TABLES_H
#define PL_ESTIMATOR_RULE_OF_THUMB_RULE_TABLES_H

#include "estimator/base/text.h"
#include "estimator/rule_of_thumb/rule_cells.h"

const struct pl_rule_table_info *pl_rule_table_list(size_t *n);
const struct pl_rule_table_info *pl_rule_table_find(const char *name); /* NULL: none */

void pl_rule_table_fill(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in,
                        struct pl_rule_table *t);
/* Title, aligned columns, note. */
void pl_rule_table_text(const struct pl_rule_table *t, struct pl_text *out);
/* {table, title, columns, rows, approximate, notes}; NULL when out of memory. */
json_t *pl_rule_table_json(const struct pl_rule_table *t);

/* What people get wrong, and the setting that puts it right. */
struct pl_rule_mistake {
    const char *name;      /* "no_gradient_checkpointing" */
    const char *mistake, *symptom, *fix;
    const char *setting;   /* of this program; "" = none yet */
};
const struct pl_rule_mistake *pl_rule_mistakes(size_t *n);

#endif
