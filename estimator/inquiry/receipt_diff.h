/* receipt_diff.h - two receipts compared: what grew, by lines of the ledger, and why.
 *
 * In: two receipts of pl_receipt_parse, and by how much a total may grow.  Out: rows, and their
 * text and JSON.  Needs: receipt.h. No I/O.
 *   RD1  the rows are the lines of both ledgers; of each memory they add up to its two totals,
 *        because the lines of each receipt do (receipt.h, RC3)
 *   RD2  a growth is judged for the device and for the host alone: what moves from one to the other
 *        makes one of them grow
 *   RD3  why: the settings and decisions that differ; where there are none, whether it is the
 *        program or only its plan that does
 * Use: struct pl_receipt_diff x; pl_receipt_compare(old, new, &allow, &x, &d);
 *      pl_receipt_diff_text(&x, &text); if (!x.within) ...; pl_receipt_diff_finish(&x); */
#ifndef PL_ESTIMATOR_INQUIRY_RECEIPT_DIFF_H
#define PL_ESTIMATOR_INQUIRY_RECEIPT_DIFF_H

#include "estimator/base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct pl_growth_allowance {
    uint64_t bytes;
    double percent; /* of the old total; what is larger counts */
};
/* "64MiB", "0", "1.5%". False for anything else. */
bool pl_growth_allowance_parse(const char *text, struct pl_growth_allowance *out);

struct pl_receipt_row {            /* borrows its words of the receipts */
    const char *memory, *category; /* memory: "device", or that of the host: "pinned", "pageable" */
    uint64_t before, after;
};

struct pl_receipt_total {
    uint64_t before, after, allowed; /* growth that is allowed */
};

struct pl_receipt_diff {
    const json_t *before, *after; /* borrowed, as long as this is used */
    struct pl_receipt_row *rows;  /* owned; those that differ, the device's first */
    size_t n_rows;
    struct pl_receipt_total device, host;
    struct pl_text why; /* one reason a line */
    bool within;        /* neither total grew by more than is allowed */
};

pl_err pl_receipt_compare(const json_t *before, const json_t *after,
                          const struct pl_growth_allowance *allow, struct pl_receipt_diff *out,
                          struct pl_diag *d);
void pl_receipt_diff_finish(struct pl_receipt_diff *x); /* leaves {0} */

void pl_receipt_diff_text(const struct pl_receipt_diff *x, struct pl_text *out);
json_t *pl_receipt_diff_json(const struct pl_receipt_diff *x); /* NULL when out of memory */

#endif
