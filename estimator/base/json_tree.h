/* json_tree.h - JSON text into a tree of jansson's values, or what is wrong and where.
 *
 * In:    the bytes of a whole document.
 * Out:   an object or an array, a new reference.
 * Needs: json_scan, jansson for the values.
 *
 *   JN1  every request for memory may fail, at any byte, and is then told apart from a mistake in
 *        the text. jansson's own parser (2.14) continues after its buffer could not grow: it loses
 *        letters of a string and then copies past its end. Its printer leaves out keys. Its
 *        values check their requests
 *   JN2  what is refused: all that json_scan refuses, NUL in a key, nesting beyond PL_SCAN_DEPTH,
 *        and what the flags forbid
 *   JN3  no state of jansson is touched: a host that embeds libplimsoll keeps its allocator
 *   JN4  a number is never taken for another one: an integer beyond 63 bits is a real, and NaN,
 *        Infinity and what no double holds is the object that transformers writes for it,
 *        {"__float__": "NaN"}. Where an integer or a number is expected, neither is one
 *
 * Use: struct pl_json_error e;
 *      json_t *root = pl_json_load(text, n, 0, &e);
 *      if (!root) return pl_json_refuse(&e, PL_ERR_MODEL_SYNTAX, path, d); */
#ifndef PL_ESTIMATOR_BASE_JSON_TREE_H
#define PL_ESTIMATOR_BASE_JSON_TREE_H

#include "estimator/base/json_scan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    /* Strings are texts that matter: they, but not keys, may hold NUL, and a surrogate without its
     * other half is a mistake; without this flag it is read as U+FFFD. */
    PL_JSON_TEXT = 1,
    PL_JSON_ONCE = 2, /* a key twice in an object is a mistake; without it the last one counts */
    PL_JSON_ONE_VALUE = 4, /* a key twice in an object with different values is a mistake */
};
#define PL_JSON_FLOAT "__float__"

struct pl_json_error {
    bool no_memory;
    uint64_t at, line, column; /* bytes from 0; lines and their bytes from 1 */
    char what[160];
    const char *hint; /* nullable */
};

/* Returns NULL on failure; *e (nullable) holds the reason. */
json_t *pl_json_load(const char *text, size_t n, unsigned flags, struct pl_json_error *e);
/* Sets line and column of *e from e->at in the text. */
void pl_json_place(const char *text, size_t n, struct pl_json_error *e);
/* Fills *e from the problem that a scan of a whole document ended with. */
void pl_json_explain(const struct pl_scan *s, struct pl_json_error *e);
/* Returns "NaN", "Infinity" or "-Infinity" if the value stands for such a number, else NULL. */
const char *pl_json_not_finite(const json_t *v);
/* Records PL_ERR_HOST_OOM, or `syntax` with the place in `file` and a hint; returns it. */
pl_err pl_json_refuse(const struct pl_json_error *e, pl_err syntax, const char *file,
                      struct pl_diag *d);

/* Bounds the memory of a tree before it is made: 1 for every comma of the text and
 * PL_JSON_BRACKET_WEIGHT for every opening bracket, those in strings included. A node takes at most
 * 100 bytes for each. A value of two bytes becomes a node of up to 100, an empty object one of 230,
 * so that a text of some megabytes can ask for hundreds of them. Real files spend bytes on names
 * and words. */
uint64_t pl_json_weight(const char *text, uint64_t n);
#define PL_JSON_BRACKET_WEIGHT 4

/* json_dumps leaves out a key when its buffer cannot grow; this returns the whole text or NULL.
 * The caller frees it with free(). */
char *pl_json_dump(const json_t *v, size_t flags);

/* Returns a string of any bytes: those that are not UTF-8 become `?`. NULL = no memory. */
json_t *pl_json_string(const char *s);

/* These build an answer. A container that cannot take a member, or is given NULL, is freed and
 * becomes NULL, and stays NULL whatever else is put into it. json_pack refuses NULL, so the answer
 * fails as a whole instead of losing a row. The member is taken in any case. */
void pl_json_append(json_t **array, json_t *member);
void pl_json_set(json_t **object, const char *key, json_t *member);
/* Adds all members of `from`, which stays the caller's. */
void pl_json_merge(json_t **object, json_t *from);

#endif
