/* page.h - one page of HTML for one or several runs, which needs nothing but itself.
 *
 * In: the logs, receipts and timelines of runs, finished or alive.  Out: their final figures; a
 * page as text. Needs: run_log.h, pictures. No I/O.
 *   PG1  the page fetches nothing: style, script and data are in it, and its policy forbids all
 *        else
 *   PG2  a name, a setting or a path is never markup: text is escaped, and the data are JSON
 *        without a `<`
 *   PG3  a figure of the page is that of the log, bit for bit. A curve with more points than there
 *        is room for is cut into stretches, and the first, the least, the largest and a missing one
 *        of each stretch stay
 *   PG4  a run needs its log alone. Without a receipt its settings are left out, and without a
 *        timeline that is
 *   PG5  the size of a page is bounded, whatever the runs are: by the number of runs, points, rows
 *        and letters
 * Use: struct pl_page p = {0}; PL_TRY(pl_page_take(&p, "output", &log, receipt, timeline, d));
 *      pl_page_write(&p, &text); ... pl_page_finish(&p); */
#ifndef PL_RUNTIME_REPORT_PAGE_H
#define PL_RUNTIME_REPORT_PAGE_H

#include "estimator/base/report_rows.h"
#include "runtime/report/run_log.h"

#define PL_PAGE_RUNS_MOST 16

struct pl_page_run {
    char *dir;   /* owned; as it was given, in UTF-8 */
    char *label; /* owned; no two runs of a page have the same */
    struct pl_run_log log;
    json_t *settings; /* owned; names and values as texts; NULL: not known */
    json_t *timeline; /* owned; checked (page_timeline.c); NULL: not known */
    bool lives;       /* set by the caller: a process writes into the directory */
};

struct pl_page {
    struct pl_page_run runs[PL_PAGE_RUNS_MOST];
    uint32_t n;
    uint32_t refresh_seconds; /* the page loads itself again; 0: it does not */
};

/* Adds a run and takes over its log (which becomes {0}), its receipt and the tree of its
 * timeline.json, also on failure; the two may be NULL. A timeline of another form is left out. */
pl_err pl_page_take(struct pl_page *p, const char *dir, struct pl_run_log *log, json_t *receipt,
                    json_t *timeline, struct pl_diag *d);
void pl_page_finish(struct pl_page *p); /* leaves {0} */

/* Adds a line of final figures for each run. What a log does not say is null. */
void pl_page_figures(const struct pl_page *p, struct pl_report *r);
/* Appends the page. Out of memory is `failed` of the text. */
void pl_page_write(const struct pl_page *p, struct pl_text *out);

#endif
