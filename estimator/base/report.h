/* report.h - an answer as typed rows, each said once, which the printers and the library walk.
 *
 * In:    figures, in the order in which JSON lists them.
 * Out:   a JSON object, and every row by its name.
 * Needs: text, json_tree.
 *
 *   RP1  a row has one type: a printer or a reader never guesses it from the text
 *   RP2  words are borrowed, trees and texts are owned; memory that was missing for one of them is
 *        an answer that is missing, never one that lacks a row
 *   RP3  a report has a fixed number of rows, all of them known when it is written: a full one is a
 *        defect
 *
 * Use: struct pl_report r = {0}; pl_report_count(&r, "batch_size", 4);
 *      pl_report_open(&r, "bytes"); pl_report_count(&r, "total", n); pl_report_open(&r, NULL);
 *      json_t *o = pl_report_end(&r); */
#ifndef PL_ESTIMATOR_BASE_REPORT_H
#define PL_ESTIMATOR_BASE_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum pl_row_type { PL_ROW_NULL, PL_ROW_COUNT, PL_ROW_REAL, PL_ROW_WORD, PL_ROW_TRUTH, PL_ROW_TREE };

struct pl_row {
    const char *object; /* the member of the answer that holds the row; NULL: the answer itself */
    const char *name;
    enum pl_row_type type;
    union {
        uint64_t count;
        double real;
        const char *word;
        bool truth;
        json_t *tree; /* owned; NULL: memory ran out */
    } is;
};

#define PL_REPORT_ROWS 96
struct pl_report {
    struct pl_row rows[PL_REPORT_ROWS];
    unsigned n_rows;
    const char *object; /* of the rows to come */
};

/* The rows that follow stand in this member of the answer. */
void pl_report_open(struct pl_report *r, const char *object);
void pl_report_null(struct pl_report *r, const char *name);
void pl_report_count(struct pl_report *r, const char *name, uint64_t v);
void pl_report_real(struct pl_report *r, const char *name, double v);
void pl_report_word(struct pl_report *r, const char *name, const char *v); /* NULL is null */
void pl_report_truth(struct pl_report *r, const char *name, bool v);
void pl_report_tree(struct pl_report *r, const char *name, json_t *v); /* steals it */

/* Makes the last row null where its value is not known. */
void pl_report_known(struct pl_report *r, bool known);

/* NULL: no such row. */
const struct pl_row *pl_report_find(const struct pl_report *r, const char *object,
                                    const char *name);
/* NULL when out of memory. */
json_t *pl_report_json(const struct pl_report *r);
json_t *pl_report_end(struct pl_report *r); /* pl_report_json() and pl_report_finish() */
void pl_report_finish(struct pl_report *r); /* leaves {0} */

#endif
