/* rows_prompt.c - the prompt that a text of the entry makes of the columns of a row. */
#include "runtime/data/format_rows.h"

#include <string.h>

/* The value of the column in braces: a string, a number as it is written, nothing for null. */
static bool add_column(struct pl_row_parser *p, struct pl_span name) {
    const char *digits;
    size_t n;
    uint32_t j = 0;
    while (p->shape->names[j].n != name.n || memcmp(p->shape->names[j].at, name.at, name.n) != 0)
        j++;
    pl_row_go_to(p, PL_PROMPTED_KEY(j));
    if (pl_scan_peek(&p->scan) != PL_SCAN_NUMBER) return pl_row_add_string(p, PL_PROMPTED_KEY(j));
    if (!pl_scan_number(&p->scan, &digits, &n)) return false;
    if (!pl_scan_is_finite(digits, n))
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, (size_t)(digits - p->scan.text),
                            "a column without a value is null, or not there",
                            "`%.*s` is %.*s, expected a text or a number", (int)name.n, name.at,
                            (int)n, digits);
    pl_text_addn(&p->text, digits, n);
    return true;
}

/* True if a column is empty that `no_input_format` does without: it is not there, null or "". */
static bool lacks_input(struct pl_row_parser *p, bool *lacks) {
    const size_t before = p->text.len;
    *lacks = false;
    for (uint32_t j = 0; j < p->shape->n_names && !*lacks; j++) {
        if (!p->shape->may_be_empty[j]) continue;
        if (p->seen[PL_PROMPTED_KEY(j)] && !add_column(p, p->shape->names[j])) return false;
        *lacks = p->text.len == before;
        p->text.len = before;
    }
    return true;
}

bool pl_row_add_prompt(struct pl_row_parser *p) {
    const struct pl_columns *columns = &p->shape->columns;
    const char *at = columns->name[pl_columns_prompt(columns)], *problem;
    struct pl_prompt_piece piece;
    bool lacks;
    if (!lacks_input(p, &lacks)) return false;
    if (lacks) at = columns->name[PL_COLUMN_NO_INPUT_FORMAT];
    while (pl_prompt_next(&at, &piece, &problem)) {
        if (!piece.name)
            pl_text_addn(&p->text, piece.span.at, piece.span.n);
        else if (!add_column(p, piece.span))
            return false;
    }
    return !p->text.failed || pl_row_no_memory(p);
}
