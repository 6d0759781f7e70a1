/* rule_cells.h - a table of named columns, and what its rows are computed from.
 *
 * Needs: rule.h. Files that fill a table include rule_build.h, those that show one include
 * rule_tables.h. */
#ifndef PL_ESTIMATOR_RULE_OF_THUMB_RULE_CELLS_H
#define PL_ESTIMATOR_RULE_OF_THUMB_RULE_CELLS_H

#include "estimator/rule_of_thumb/rule.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_RULE_MAX_ROWS    16
#define PL_RULE_MAX_COLUMNS 8
#define PL_RULE_CELL        200

struct pl_rule_cell {
    bool is_number;
    double number;
    char text[PL_RULE_CELL]; /* of a number: as it is shown */
};

struct pl_rule_table {
    const struct pl_rule_table_info *info;
    const char *columns[PL_RULE_MAX_COLUMNS]; /* snake_case, the keys of the JSON rows */
    struct pl_rule_cell cells[PL_RULE_MAX_ROWS][PL_RULE_MAX_COLUMNS];
    uint32_t n_columns, n_rows;
};

struct pl_rule_table_info {
    const char *name, *title;
    const char *note; /* one line, or "" */
    bool qlora;       /* about nf4 weights with LoRA unless asked otherwise; else 16-bit weights */
    bool card;        /* compares with a card: one of 15 GB unless asked otherwise */
    void (*fill)(const struct pl_rule_inputs *in, struct pl_rule_table *t);
};

#endif
