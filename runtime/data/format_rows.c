/* format_rows.c - steps that the readers of all formats take. */
#include "runtime/data/format_rows.h"

#include "estimator/config/scalar.h"

static const char hint_weight[] = "it is a factor of the loss of the row's tokens; "
                                  "`row_weights: false` reads past it";

bool pl_row_no_memory(struct pl_row_parser *p) {
    return pl_scan_fail(&p->scan, PL_ERR_HOST_OOM, p->scan.at, NULL, "no memory for the row");
}

bool pl_row_fail_with_problem(struct pl_row_parser *p, int k) {
    return pl_scan_fail(&p->scan, p->problem.err, p->at[k],
                        p->problem.hint[0] ? p->problem.hint : NULL, "%s", p->problem.message);
}

void pl_row_go_to(struct pl_row_parser *p, int k) {
    p->scan.at = p->at[k];
}

/* The text of a number; a field of a CSV file is a string. */
static bool read_weight_text(struct pl_row_parser *p) {
    const char *digits;
    size_t n;
    p->text.len = 0;
    if (pl_scan_peek(&p->scan) == PL_SCAN_STRING) return pl_scan_string(&p->scan, &p->text);
    if (!pl_scan_number(&p->scan, &digits, &n)) return false;
    pl_text_addn(&p->text, digits, n);
    return true;
}

/* An empty text is a field of a table without a value. */
bool pl_row_read_weight(struct pl_row_parser *p, int k) {
    char shown[PL_SHOWN];
    double v = 1;
    if (pl_scan_peek(&p->scan) == PL_SCAN_NULL) return pl_scan_skip(&p->scan);
    if (!read_weight_text(p)) return false;
    if (p->text.failed) return pl_row_no_memory(p);
    const char *text = pl_text_str(&p->text);
    if ((*text && !pl_scalar_float(text, &v)) || !pl_sample_weight_is_valid(v))
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[k], hint_weight,
                            "`weight` is %s, expected a finite number of 0 or more",
                            pl_scan_show(text, p->text.len, shown));
    p->out->weight = (float)v;
    p->out->weighted = p->out->weight != 1;
    p->text.len = 0;
    return true;
}

bool pl_row_add_string(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return true;
    pl_row_go_to(p, k);
    if (pl_scan_peek(&p->scan) == PL_SCAN_NULL) return true;
    return pl_scan_string(&p->scan, &p->text);
}
