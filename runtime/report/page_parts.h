/* page_parts.h - the parts of a page; private to the room.
 *
 * In: struct pl_page.  Out: HTML and JSON appended to a text. Needs: page.h.
 * Use: pl_page_add_bill(p, out); out->failed tells of missing memory. */
#ifndef PL_RUNTIME_REPORT_PAGE_PARTS_H
#define PL_RUNTIME_REPORT_PAGE_PARTS_H

#include "runtime/report/page.h"

/* Each appends one section: a table, or a sentence that there is nothing to show. */
void pl_page_add_figures(const struct pl_page *p, struct pl_text *out);
void pl_page_add_events(const struct pl_page *p, struct pl_text *out);
/* Appends a section with its heading; nothing if no run has samples. */
void pl_page_add_samples(const struct pl_page *p, struct pl_text *out);
void pl_page_add_bill(const struct pl_page *p, struct pl_text *out);
void pl_page_add_settings(const struct pl_page *p, struct pl_text *out);

/* Appends the curves, marks and timelines as JSON that may stand in a script element. */
void pl_page_add_data(const struct pl_page *p, struct pl_text *out);

/* Appends a cell with the colour and the label of run `i`, as a heading of its row. */
void pl_page_add_run(const struct pl_page *p, uint32_t i, struct pl_text *out);
/* Returns the colour of a line of the ledger, "#rrggbb". */
const char *pl_page_category_colour(const char *category);

#endif
