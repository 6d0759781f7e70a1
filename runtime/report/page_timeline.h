/* page_timeline.h - timeline.json of a run, as the script of a page draws it; private to the room.
 *
 * In: the tree of a file.  Out: a tree with the same figures, each of them checked.
 * Needs: json_tree.
 *   PT1  what is returned has the members that the script reads, of the types that it expects, and
 *        no others; lists of one phase are equally long
 * Use: json_t *t = pl_page_timeline(file, &no_memory); if (t) ... json_decref(t); */
#ifndef PL_RUNTIME_REPORT_PAGE_TIMELINE_H
#define PL_RUNTIME_REPORT_PAGE_TIMELINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns what is drawn of a timeline.json, with operations as indices into "names". NULL: the file
 * is of another form, or there is no memory (*no_memory). */
json_t *pl_page_timeline(const json_t *file, bool *no_memory);
/* Returns such a timeline with at most `columns` of each phase, the fullest for the others, and the
 * peak for itself. NULL: no memory. */
json_t *pl_page_timeline_thinned(const json_t *timeline, size_t columns);

#endif
