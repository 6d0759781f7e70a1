/* split.h - splits a data file into rows: lines of a JSONL file, elements of a JSON array, objects
 * of several lines, records of CSV.
 *
 * In: the content of a file.  Out: the bytes of one row after the other with offset, line and
 * column.  Needs: base.
 *   L1  the file is read once, front to back; the buffer holds one row, whatever the file's size
 *   L2  a row is split at its boundary, not checked: the scanner reports errors inside it
 *   L3  the beginning of a file decides how all of it is split
 *   L4  only LF ends a line; blank lines and one byte order mark at the start are passed over
 * Use: pl_split_open(&s, &content, path, csv, &d);
 *      while (pl_split_next(&s, &row, &more, &d) == 0 && more) ... */
#ifndef PL_RUNTIME_DATA_SPLIT_H
#define PL_RUNTIME_DATA_SPLIT_H

#include "estimator/base/diag.h"
#include "runtime/data/content.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The buffer holds a whole row; this limit keeps a file without line ends from being taken for
 * one. */
#define PL_ROW_MOST_BYTES ((size_t)256 << 20)

struct pl_split {
    struct pl_content content;
    const char *path; /* borrowed */
    char *buf;        /* [begin, end) is read and not yet returned */
    size_t cap, begin, end;
    uint64_t offset;     /* file offset of buf[0] */
    uint64_t line;       /* line of buf[begin], 1-based */
    uint64_t line_start; /* file offset of that line */
    bool array, started, closed, eof;
    bool objects; /* objects of several lines each, one after the other */
    bool csv;     /* records of comma-separated values, the header among them */
};

struct pl_raw_row {
    const char *text; /* valid until the next call */
    size_t n;
    uint64_t offset, line, line_start;
    bool ends_file; /* nothing follows the row, not even a newline */
};

/* Starts reading the content at its beginning. Refuses content that is not text by its first bytes
 * (file_kind.h). On failure nothing is held. */
pl_err pl_split_open(struct pl_split *s, const struct pl_content *content, const char *path,
                     bool csv, struct pl_diag *d);
/* *more is false at the end. PL_ERR_DATA_SYNTAX: a row above PL_ROW_MOST_BYTES. */
pl_err pl_split_next(struct pl_split *s, struct pl_raw_row *row, bool *more, struct pl_diag *d);
void pl_split_finish(struct pl_split *s);

#endif
