/* rule_tables.h - the tables that people plan by, each computed for the inputs at hand.
 *
 * In: struct pl_rule_inputs.  Out: a table of named columns, as text or JSON.  Needs: rule.h.
 *   B1  a column called document_... repeats what was published, whatever the inputs; every other
 *       number is computed from them
 *   B2  every line of a table has the same rows in the same order
 * Use: pl_rule_table_text(pl_rule_table_find("grid"), &in, &text); */
#ifndef PL_ESTIMATOR_RULE_OF_THUMB_RULE_TABLES_H
#define PL_ESTIMATOR_RULE_OF_THUMB_RULE_TABLES_H

#include "estimator/base/text.h"
#include "estimator/rule_of_thumb/rule.h"

struct pl_rule_table_info {
    const char *name, *title;
    const char *note; /* one line, or "" */
    bool qlora;       /* about nf4 weights with LoRA unless asked otherwise; else 16-bit weights */
    bool card;        /* compares with a card: one of 15 GB unless asked otherwise */
    void (*fill)(const struct pl_rule_inputs *in, struct pl_report *r);
};

const struct pl_rule_table_info *pl_rule_table_list(size_t *n);
const struct pl_rule_table_info *pl_rule_table_find(const char *name); /* NULL: none */

/* Title, aligned columns, note. */
void pl_rule_table_text(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in,
                        struct pl_text *out);
/* {table, title, columns, rows, approximate, notes}; NULL when out of memory. */
json_t *pl_rule_table_json(const struct pl_rule_table_info *info, const struct pl_rule_inputs *in);

#endif
