/* format_rows.c - steps that the readers of all formats take. */
#include "runtime/data/format_rows.h"

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

bool pl_row_add_string(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return true;
    pl_row_go_to(p, k);
    if (pl_scan_peek(&p->scan) == PL_SCAN_NULL) return true;
    return pl_scan_string(&p->scan, &p->text);
}
