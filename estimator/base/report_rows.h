/* report_rows.h - an answer as typed rows, each said once, which the printers and the library walk.
 *
 * In:    figures, in the order in which JSON lists them.
 * Out:   a JSON object; or the lines of a table, as JSON, as aligned columns and as CSV; and every
 *        row by its name.
 * Needs: text, units, json_tree.
 *
 * A row has one type: no printer or reader guesses it from a text. Names and words are borrowed,
 * texts and trees are owned.
 *   RP3  a row for which memory was missing makes the whole answer fail: JSON is NULL then, and a
 *        text has `failed`
 *   RP4  the rows after pl_report_next() are a line of a table; a table has no other rows
 *
 * Use: struct pl_report r = {0}; pl_report_count(&r, "batch_size", 4);
 *      pl_report_open(&r, "bytes"); pl_report_count(&r, "total", n); pl_report_open(&r, NULL);
 *      json_t *o = pl_report_end(&r); */
#ifndef PL_ESTIMATOR_BASE_REPORT_ROWS_H
#define PL_ESTIMATOR_BASE_REPORT_ROWS_H

#include "estimator/base/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum pl_row_type {
    PL_ROW_NULL,
    PL_ROW_COUNT,
    PL_ROW_BYTES, /* a count that people read as "1.21 GiB" */
    PL_ROW_REAL,
    PL_ROW_SHARE, /* a real that people read as "85 %" */
    PL_ROW_WORD,
    PL_ROW_TRUTH,
    PL_ROW_TEXT,
    PL_ROW_TREE
};

struct pl_row {
    const char *object; /* the member of the answer that holds the row; NULL: the answer itself */
    const char *name;
    enum pl_row_type type;
    int decimals;    /* of a real in a column; negative: significant digits */
    bool line;       /* begins a line of a table */
    bool for_people; /* in columns alone */
    union {
        int64_t count;
        double real;
        const char *word;
        bool truth;
        char *text;
        json_t *tree;
    } is;
};

struct pl_report {
    struct pl_row *rows;
    uint32_t n_rows;
    const char *object; /* of the rows to come */
    bool line;          /* the row to come begins one */
    bool failed;        /* RP3 */
    struct pl_row lost; /* takes what there was no memory for */
};

/* The rows that follow stand in this member of the answer. */
void pl_report_open(struct pl_report *r, const char *object);
/* The rows that follow are the next line of a table. */
void pl_report_next(struct pl_report *r);

void pl_report_count(struct pl_report *r, const char *name, uint64_t v);
void pl_report_integer(struct pl_report *r, const char *name, int64_t v);
void pl_report_bytes(struct pl_report *r, const char *name, uint64_t v);
void pl_report_real(struct pl_report *r, const char *name, double v);
/* decimals: as in struct pl_row; those of pl_report_real() are 2. */
void pl_report_figure(struct pl_report *r, const char *name, double v, int decimals);
void pl_report_share(struct pl_report *r, const char *name, double v);
void pl_report_word(struct pl_report *r, const char *name, const char *v); /* NULL is null */
void pl_report_truth(struct pl_report *r, const char *name, bool v);
void pl_report_text(struct pl_report *r, const char *name, struct pl_text *v); /* leaves {0} */
void pl_report_format(struct pl_report *r, const char *name, const char *fmt, ...) PL_PRINTF(3, 4);
void pl_report_tree(struct pl_report *r, const char *name, json_t *v); /* steals it */
/* Makes the last row null where its value is not known. */
void pl_report_known(struct pl_report *r, bool known);
/* Keeps the last row out of JSON. */
void pl_report_for_people(struct pl_report *r);

/* NULL: no such row. */
const struct pl_row *pl_report_find(const struct pl_report *r, const char *object,
                                    const char *name);
/* One object. NULL when out of memory. */
json_t *pl_report_json(const struct pl_report *r);
json_t *pl_report_end(struct pl_report *r); /* pl_report_json() and pl_report_finish() */
/* A list of one object a line. NULL when out of memory. */
json_t *pl_report_end_list(struct pl_report *r);
void pl_report_finish(struct pl_report *r); /* leaves {0} */

#define PL_REPORT_CELL 64
/* Returns a row as people read it, in `room` or in the row; "-" where it is null. */
const char *pl_report_cell(const struct pl_row *row, char room[PL_REPORT_CELL]);
struct pl_report_column {
    const char *name, *heading;
    int gap, width; /* blanks before it; negative widths stand left, 0 is not padded */
};
/* A heading between `dim` and `off`, and the lines; a row that a line does not have takes no room,
 * and one that is null is "-". */
void pl_report_columns(const struct pl_report *r, const struct pl_report_column *columns,
                       uint32_t n, const char *dim, const char *off, struct pl_text *out);
/* As pl_report_columns(), with every row of the first line as a column that is as wide as its
 * widest cell. */
void pl_report_all_columns(const struct pl_report *r, struct pl_text *out);
/* The named rows of each line as RFC 4180 has them, bytes as a number; none of their words needs
 * quotes. */
void pl_report_csv(const struct pl_report *r, const char *const *names, uint32_t n,
                   struct pl_text *out);

#endif
