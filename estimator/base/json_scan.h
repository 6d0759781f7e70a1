/* json_scan.h - a JSON scanner over bytes in memory, without a tree: RFC 8259, and what Python's
 * json module writes beyond it.
 *
 * In: the bytes of one row.  Out: its keys and values one after the other, or the first problem
 * with its byte and a sentence.  Needs: base.
 *   N1  no recursion and no allocation but the caller's text: nesting beyond PL_SCAN_DEPTH is a
 *       problem, not a stack overflow; a 5 MB string costs its bytes once
 *   N2  everything is checked, values that are not read included: escapes, UTF-8, NUL. A surrogate
 *       without its other half is a problem of the string that is read
 *   N3  numbers are spans, so those of ignored keys may be of any size, and NaN, Infinity and
 *       -Infinity are numbers; pl_scan_is_finite() tells them apart
 *   N4  after a problem every call returns false and the first problem stays
 * A tree parser would refuse 1e999 in an ignored key, stop at its own limits, and hold a copy of
 * every row; what a person needs to hear about a broken row is also more than "syntax error".
 * Use: struct pl_scan s = {.text = line, .n = n};
 *      if (pl_scan_enter(&s))
 *          while (pl_scan_next_key(&s, &key)) pl_scan_skip(&s); */
#ifndef PL_ESTIMATOR_BASE_JSON_SCAN_H
#define PL_ESTIMATOR_BASE_JSON_SCAN_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_SCAN_DEPTH 512

enum pl_scan_kind {
    PL_SCAN_NONE, /* end of the text, or no value begins here */
    PL_SCAN_OBJECT,
    PL_SCAN_ARRAY,
    PL_SCAN_STRING,
    PL_SCAN_NUMBER,
    PL_SCAN_BOOLEAN,
    PL_SCAN_NULL,
};

struct pl_scan {
    const char *text;
    size_t n, at;
    bool ends_file;    /* the text runs to the end of its file: an early end means truncation */
    const char *whole; /* the name of the text in messages; NULL = "the row" */
    bool inside;       /* a member was read: the next one needs a comma */
    bool replaces;     /* a lone surrogate of a string becomes U+FFFD instead of a problem */
    pl_err err;        /* PL_ERR_OK, or the problem at byte `where` */
    size_t where;
    char what[160];
    const char *hint; /* NULL = the default of the code */
};

/* Returns a scan of a whole document. It passes over a byte order mark; a text that is empty or not
 * JSON has a problem from the start. */
struct pl_scan pl_scan_file(const char *text, size_t n);

/* Records a problem at byte `where`; returns false. */
bool pl_scan_fail(struct pl_scan *s, pl_err err, size_t where, const char *hint, const char *fmt,
                  ...) PL_PRINTF(5, 6);

/* Returns the kind of value that begins at the next byte that is not space. */
enum pl_scan_kind pl_scan_peek(struct pl_scan *s);
const char *pl_scan_kind_name(enum pl_scan_kind kind); /* e.g. "a string" */

/* Reads the members of the object at the cursor: enter once, then next_key until it returns false;
 * it replaces `key` by the decoded name. After a key the caller reads or skips exactly one value.
 * At the closing brace next_key returns false without a problem. */
bool pl_scan_enter(struct pl_scan *s);
bool pl_scan_next_key(struct pl_scan *s, struct pl_text *key);
/* Reads the elements of the array at the cursor, in the same way. */
bool pl_scan_enter_array(struct pl_scan *s);
bool pl_scan_next_element(struct pl_scan *s);

/* Appends the decoded string to `out` (NULL: only checks it). */
bool pl_scan_string(struct pl_scan *s, struct pl_text *out);
/* Sets [*begin, *begin + *n) to the text of the number at the cursor. */
bool pl_scan_number(struct pl_scan *s, const char **begin, size_t *n);
/* True unless the text is NaN, Infinity or -Infinity. */
bool pl_scan_is_finite(const char *digits, size_t n);
/* Passes over a value. Returns 0 or 1 if it is that number or boolean, -1 for any other. */
int pl_scan_flag(struct pl_scan *s);
/* Passes over one value of any kind. */
bool pl_scan_skip(struct pl_scan *s);
/* True if nothing but space is left; else records a problem. */
bool pl_scan_end(struct pl_scan *s);

#define PL_SHOWN 64
/* Writes at most 60 bytes of `text` into buf, cut between characters, control characters as `?`. */
const char *pl_scan_show(const char *text, size_t n, char buf[PL_SHOWN]);

#endif
