/* report_text.c - the lines of a table as aligned columns and as CSV. */
#include "estimator/base/report_rows.h"

#include "estimator/base/units.h"

#include <stdio.h>
#include <string.h>

#define MAX_COLUMNS 8 /* of a table that shows every row */

const char *pl_report_cell(const struct pl_row *row, char room[PL_REPORT_CELL]) {
    switch (row->type) {
    case PL_ROW_COUNT:
        snprintf(room, PL_REPORT_CELL, "%lld", (long long)row->is.count);
        return room;
    case PL_ROW_BYTES:
        return pl_bytes_text((uint64_t)row->is.count, room);
    case PL_ROW_REAL:
        snprintf(room, PL_REPORT_CELL, row->decimals < 0 ? "%.*g" : "%.*f",
                 row->decimals < 0 ? -row->decimals : row->decimals, row->is.real);
        return room;
    case PL_ROW_SHARE:
        snprintf(room, PL_REPORT_CELL, "%.0f %%", 100 * row->is.real);
        return room;
    case PL_ROW_WORD:
        return row->is.word;
    case PL_ROW_TRUTH:
        return row->is.truth ? "yes" : "no";
    case PL_ROW_TEXT:
        return row->is.text;
    case PL_ROW_NULL:
    case PL_ROW_TREE:
        break;
    }
    return "-";
}

static void add_cell(const struct pl_report_column *c, const char *text, struct pl_text *out) {
    pl_text_addf(out, "%*s%*s", c->gap, "", c->width, text);
}

/* The end of the line that begins at row `i`. */
static uint32_t end_of_line(const struct pl_report *r, uint32_t i) {
    for (i++; i < r->n_rows && !r->rows[i].line;)
        i++;
    return i;
}

/* A null row where the line has none of this name. */
static const struct pl_row *row_of_line(const struct pl_report *r, uint32_t i, uint32_t end,
                                        const char *name) {
    static const struct pl_row none = {0};
    for (; i < end; i++)
        if (strcmp(r->rows[i].name, name) == 0) return &r->rows[i];
    return &none;
}

void pl_report_columns(const struct pl_report *r, const struct pl_report_column *columns,
                       uint32_t n, const char *dim, const char *off, struct pl_text *out) {
    out->failed |= r->failed;
    pl_text_addf(out, "%*s%s", columns[0].gap, "", dim);
    for (uint32_t c = 0; c < n; c++)
        add_cell(
            &(struct pl_report_column){.gap = c ? columns[c].gap : 0, .width = columns[c].width},
            columns[c].heading, out);
    pl_text_addf(out, "%s\n", off);
    for (uint32_t i = 0, end; i < r->n_rows; i = end) {
        end = end_of_line(r, i);
        for (uint32_t c = 0; c < n; c++) {
            char room[PL_REPORT_CELL];
            const struct pl_row *row = row_of_line(r, i, end, columns[c].name);
            if (row->name) add_cell(&columns[c], pl_report_cell(row, room), out);
        }
        pl_text_add(out, "\n");
    }
}

static int widest(const struct pl_report *r, const char *name) {
    char room[PL_REPORT_CELL];
    size_t width = strlen(name);
    for (uint32_t i = 0; i < r->n_rows; i++) {
        const size_t n = strlen(pl_report_cell(&r->rows[i], room));
        if (n > width && strcmp(r->rows[i].name, name) == 0) width = n;
    }
    return (int)width;
}

/* Figures stand right, and so do the headings of their columns; the last column is not padded. */
void pl_report_all_columns(const struct pl_report *r, struct pl_text *out) {
    struct pl_report_column columns[MAX_COLUMNS];
    const uint32_t end = r->n_rows ? end_of_line(r, 0) : 0;
    uint32_t n = end < MAX_COLUMNS ? end : MAX_COLUMNS;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_row *row = &r->rows[i];
        const bool left = row->type == PL_ROW_WORD || row->type == PL_ROW_TEXT;
        const int width = widest(r, row->name);
        columns[i] = (struct pl_report_column){row->name, row->name, 2,
                                               left && i + 1 == n ? 0
                                               : left             ? -width
                                                                  : width};
    }
    if (n) pl_report_columns(r, columns, n, "", "", out);
    out->failed |= r->failed;
}

void pl_report_csv(const struct pl_report *r, const char *const *names, uint32_t n,
                   struct pl_text *out) {
    out->failed |= r->failed;
    for (uint32_t c = 0; c < n; c++)
        pl_text_addf(out, "%s%s", names[c], c + 1 < n ? "," : "\r\n");
    for (uint32_t i = 0, end; i < r->n_rows; i = end) {
        end = end_of_line(r, i);
        for (uint32_t c = 0; c < n; c++) {
            char room[PL_REPORT_CELL];
            struct pl_row row = *row_of_line(r, i, end, names[c]);
            if (row.type == PL_ROW_BYTES) row.type = PL_ROW_COUNT;
            pl_text_addf(out, "%s%s", pl_report_cell(&row, room), c + 1 < n ? "," : "\r\n");
        }
    }
}
