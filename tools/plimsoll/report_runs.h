/* report_runs.h - the directories of runs, read for a page, and looked at for changes.
 *
 * In: directories.  Out: struct pl_page; whether a page of before is still true.
 * Needs: page.h, checkpoint (files, locks).
 *   RR1  a directory is a run if it has train_log.jsonl; what else is missing or damaged costs its
 *        section, and a note says so
 *   RR2  a run lives while a process holds its directory and, since some file systems lock no
 *        directories, for a minute after its log was written; not once its summary is there
 * Use: PL_TRY(pl_report_read(dirs, n, &page, &notes, d)); ... pl_page_finish(&page); */
#ifndef PL_TOOLS_PLIMSOLL_REPORT_RUNS_H
#define PL_TOOLS_PLIMSOLL_REPORT_RUNS_H

#include "runtime/report/page.h"

/* DATA_FILE: a directory is no run. Appends notes, one a line. On failure *p is empty. */
pl_err pl_report_read(const char *const *dirs, uint32_t n, struct pl_page *p, struct pl_text *notes,
                      struct pl_diag *d);
/* True if a run of the page lives. */
bool pl_report_any_lives(const struct pl_page *p);
/* Returns a number that changes with the files of the runs, and when one of the runs ends. */
uint64_t pl_report_mark(const char *const *dirs, uint32_t n);

#endif
