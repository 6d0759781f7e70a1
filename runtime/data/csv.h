/* csv.h - records of comma-separated values (RFC 4180), or of values separated by tabs, as JSON
 * objects, so that one parser reads the rows of every file.
 *
 * In: the bytes of a record.  Out: {"column": "field", ...}, every value a string.  Needs: text.
 *   V1  the first record names the columns; every other has as many fields
 *   V2  a field in quotes holds commas, line feeds and doubled quotes; blanks belong to a field
 *   V3  bytes are passed on as they are: the JSON scanner reports errors in them
 *   V4  the work is in proportion to the bytes, however many columns there are
 * Use: csv.separator = pl_csv_separator(path, n); pl_csv_header(&csv, text, n);
 *      pl_csv_record(&csv, text, n, &json); ... pl_csv_finish(&csv); */
#ifndef PL_RUNTIME_DATA_CSV_H
#define PL_RUNTIME_DATA_CSV_H

#include "estimator/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_csv {
    char separator;      /* between fields */
    struct pl_text keys; /* `"name":` of each column, with a NUL after each */
    uint64_t columns;    /* 0: the header was not read yet */
    char problem[160];   /* the problem of the last call that failed */
    const char *hint;    /* hint on the problem; FILE in it stands for the path */
};

/* Returns the separator of a file by the ending of its name; 0: it is not such a file. */
char pl_csv_separator(const char *path, size_t n);
/* Returns the end of the record that begins at text[0], its line feed included; `seen` bytes were
 * scanned before, with *quoted as it was left. 0: not within these n bytes. */
size_t pl_csv_record_end(const char *text, size_t n, size_t seen, bool *quoted);
bool pl_csv_header(struct pl_csv *csv, const char *text, size_t n);
/* Replaces *json; json->failed: there was no memory. */
bool pl_csv_record(struct pl_csv *csv, const char *text, size_t n, struct pl_text *json);
void pl_csv_finish(struct pl_csv *csv); /* leaves {0} */

#endif
