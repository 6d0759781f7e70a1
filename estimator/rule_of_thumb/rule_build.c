/* rule_build.c - the columns, rows and cells of a table. */
#include "estimator/rule_of_thumb/rule_build.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void pl_rule_columns(struct pl_rule_table *t, const char *const *names, uint32_t n) {
    assert(n <= PL_RULE_MAX_COLUMNS);
    memcpy(t->columns, names, n * sizeof *names);
    t->n_columns = n;
}

struct pl_rule_cell *pl_rule_row(struct pl_rule_table *t) {
    assert(t->n_rows < PL_RULE_MAX_ROWS);
    return t->cells[t->n_rows++];
}

void pl_rule_number(struct pl_rule_cell *c, double v, int decimals) {
    c->is_number = true;
    c->number = v;
    snprintf(c->text, sizeof c->text, "%.*f", decimals, v);
}

void pl_rule_words(struct pl_rule_cell *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
}
