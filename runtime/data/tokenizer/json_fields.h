/* json_fields.h - typed reads of the objects of a tokenizer.json; every refusal names the field.
 *
 * In: a parsed JSON object and its name.  Out: values, or TOKENIZER_FIELD / TOKENIZER_UNSUPPORTED.
 * Needs: base, jansson.
 *   J1  a key that the reader does not know is refused: it may change tokens
 *   J2  null is as good as absent, as it is to the library
 *   J3  strings have lengths: they may hold NUL
 * Use: PL_TRY(pl_fields_known(&f, "type", "content", NULL));
 *      PL_TRY(pl_fields_string(&f, "content", &s, &n)); */
#ifndef PL_RUNTIME_DATA_TOKENIZER_JSON_FIELDS_H
#define PL_RUNTIME_DATA_TOKENIZER_JSON_FIELDS_H

#include "estimator/base/diag.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_fields {
    const json_t *object;
    const char *name; /* "pre_tokenizer" */
    struct pl_diag *d;
};

/* *f is an object; its `type` goes to *type, "" where there is none. */
pl_err pl_fields_open(struct pl_fields *f, const json_t *v, const char *name, const char **type,
                      struct pl_diag *d);
/* Names of the keys that may stand there, NULL at the end. */
pl_err pl_fields_known(const struct pl_fields *f, ...) __attribute__((sentinel));
/* The value, NULL when absent or null. */
const json_t *pl_fields_get(const struct pl_fields *f, const char *key);
/* Absent: *out keeps what it holds. */
pl_err pl_fields_bool(const struct pl_fields *f, const char *key, bool *out);
pl_err pl_fields_uint(const struct pl_fields *f, const char *key, uint64_t most, uint64_t *out);
/* Required. */
pl_err pl_fields_string(const struct pl_fields *f, const char *key, const char **s, size_t *n);
/* Required: a string of one character, of at most 4 bytes. */
pl_err pl_fields_character(const struct pl_fields *f, const char *key, char out[4], size_t *n);
pl_err pl_fields_array(const struct pl_fields *f, const char *key, const json_t **out);

/* "`name.key` what" */
pl_err pl_fields_wrong(const struct pl_fields *f, const char *key, const char *what);
/* "`type` in `name` is not supported" */
pl_err pl_fields_unsupported(const struct pl_fields *f, const char *type);

#endif
