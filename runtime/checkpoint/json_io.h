/* json_io.h - small JSON files, read with their place in every error, written crash-safe. */
#ifndef PL_RUNTIME_CHECKPOINT_JSON_IO_H
#define PL_RUNTIME_CHECKPOINT_JSON_IO_H

#include "runtime/checkpoint/durable.h"

#include <jansson.h>

/* A value of a parsed tree takes up to 25 times the bytes of its text. Of the largest published
 * files the index has 10^5 tensors, a header 10^6 values. */
#define PL_JSON_MOST_VALUES 4000000u
/* True if text[0, n) can hold no more than PL_JSON_MOST_VALUES, by its commas and brackets. */
bool pl_json_is_small(const char *text, uint64_t n);
#define PL_JSON_LIMIT 100000000u /* bytes, as for a safetensors header */
/* Parses text[0, bytes), which is an object; errors name `path`. */
pl_err pl_json_parse(const char *path, const char *text, uint64_t bytes, json_t **out,
                     struct pl_diag *d);
/* Reads a file, which is an object; the caller owns *out. PL_ERR_CHECKPOINT_FILE, or
 * PL_ERR_CHECKPOINT_FORMAT with line and column. Of a key that stands twice the last counts, as in
 * Python. */
pl_err pl_json_read(const char *path, json_t **out, struct pl_diag *d);
/* Returns the text as Hugging Face writes it: sorted keys, indent 2, one newline at the end.
 * malloc'd; NULL when out of memory. */
char *pl_json_text(const json_t *value);
/* Writes that text as a file. A NULL value is reported as out of memory, since building it failed
 * for that. */
pl_err pl_json_put(struct pl_outbox *o, const char *name, const json_t *value, struct pl_diag *d);

#endif
