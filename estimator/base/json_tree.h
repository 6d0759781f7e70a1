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
 *   JN2  what is refused: all that json_scan refuses, NUL in a key, integers beyond 63 bits, reals
 *        beyond a double, nesting beyond PL_SCAN_DEPTH, and what the flags forbid
 *   JN3  no state of jansson is touched: a host that embeds libplimsoll keeps its allocator
 *
 * Use: struct pl_json_error e;
 *      json_t *root = pl_json_load(text, n, 0, &e);
 *      if (!root) return pl_json_refuse(&e, PL_ERR_MODEL_SYNTAX, path, d); */
#ifndef PL_ESTIMATOR_BASE_JSON_TREE_H
#define PL_ESTIMATOR_BASE_JSON_TREE_H

#include "estimator/base/diag.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PL_JSON_NUL = 1,  /* strings, but not keys, may hold NUL */
    PL_JSON_ONCE = 2, /* a key twice in an object is a mistake; without it the last one counts */
};

struct pl_json_error {
    bool no_memory;
    uint64_t at, line, column; /* bytes from 0; lines and their bytes from 1 */
    char what[160];
};

/* NULL: *e (nullable) says why. */
json_t *pl_json_load(const char *text, size_t n, unsigned flags, struct pl_json_error *e);
/* Records PL_ERR_HOST_OOM, or `syntax` with the place in `file`; returns it. */
pl_err pl_json_refuse(const struct pl_json_error *e, pl_err syntax, const char *file,
                      struct pl_diag *d);

/* json_dumps, which leaves out a key when its buffer cannot grow; this one is whole or NULL. The
 * caller frees it with free(). */
char *pl_json_dump(const json_t *v, size_t flags);

/* Builders of an answer. A container that cannot take a member, or is handed none, is freed and
 * NULL, and stays NULL whatever else is put into it: json_pack refuses it, and so the answer fails
 * as a whole instead of losing a row. A member is taken in any case. */
void pl_json_append(json_t **array, json_t *member);
void pl_json_set(json_t **object, const char *key, json_t *member);
/* All members of `from`, which stays the caller's. */
void pl_json_merge(json_t **object, json_t *from);

#endif
