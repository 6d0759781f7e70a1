/* page_text.h - texts of others on a page; private to the room.
 *
 * In: text in UTF-8.  Out: a bounded, escaped part of it. Needs: text.
 * Use: pl_page_add_text(value, 300, out); */
#ifndef PL_RUNTIME_REPORT_PAGE_TEXT_H
#define PL_RUNTIME_REPORT_PAGE_TEXT_H

#include "estimator/base/text.h"

/* Returns the bytes of s, at most `most`, that end with a whole character. */
size_t pl_page_cut(const char *s, size_t most);
/* Appends these bytes, escaped as the content of an element, with an ellipsis where there are more.
 */
void pl_page_add_text(const char *s, size_t most, struct pl_text *out);

#endif
