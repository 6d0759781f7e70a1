/* row_keys.h - keys of rows that no reader reads: some say nothing about training, others would
 * change what is trained on.
 *
 * In: the name of a key, and what it is a key of.  Out: its row in the table, or NULL: the key is
 * told.
 * Needs: json_scan, job.
 *   K1  a key is read, inert, refused or told: none is passed over without one of these
 *   K2  a refusal has a reason and a hint; a value that says nothing (null, "", [] or {}) is not
 *       refused
 *   K3  told keys are bounded: PL_TOLD_KEYS names a file, and the number of further ones
 * A key that readers learn to read loses its row here and gets one in their format.
 * Use: const struct pl_row_key *k = pl_row_key_find(name, n, 1u << PL_FORMAT_TEXT);
 *      if (!k) pl_told_keys_add(&told, "", name, n, line); */
#ifndef PL_RUNTIME_DATA_ROW_KEYS_H
#define PL_RUNTIME_DATA_ROW_KEYS_H

#include "estimator/config/job.h"
#include "estimator/base/json_scan.h"

/* The owners of a key, as bits: a row of a format, 1u << PL_FORMAT_*, or one of these. */
#define PL_KEYS_OF_PROMPTED (1u << 29) /* a row that `prompt_format` reads */
#define PL_KEYS_OF_MESSAGE  (1u << 30)
#define PL_KEYS_OF_PART     (1u << 31) /* a part of a message's content */

enum pl_row_key_meaning {
    PL_ROW_KEY_INERT,
    PL_ROW_KEY_REFUSED,       /* refused unless its value says nothing */
    PL_ROW_KEY_COLUMN,        /* the same; an entry of `datasets` may name it as a column */
    PL_ROW_KEY_REFUSED_FALSE, /* refused if its value is false */
};

struct pl_row_key {
    const char *name;
    unsigned of; /* the owners in which it has this meaning */
    enum pl_row_key_meaning meaning;
    const char *hint; /* hint of a refusal */
};

/* Returns NULL for a key that is told. */
const struct pl_row_key *pl_row_key_find(const char *name, size_t n, unsigned of);
/* Passes over a value; *empty is true for null, "", [] and {}. */
bool pl_row_value_skip(struct pl_scan *s, bool *empty);
/* Passes over a value that must be empty in that sense. Else fails with "`key` is not supported"
 * and the hint. */
bool pl_row_key_refuse(struct pl_scan *s, const char *key, const char *hint);
/* Passes over the value at the cursor if the key may have it. False: s holds the reason. */
bool pl_row_key_check(const struct pl_row_key *key, struct pl_scan *s);

#define PL_TOLD_KEYS 16
#define PL_TOLD_NAME (PL_SHOWN + 16)
struct pl_told_key {
    char name[PL_TOLD_NAME];
    uint64_t line, last, n; /* lines of the first and the last row; number of rows */
};
struct pl_told_keys {
    struct pl_told_key keys[PL_TOLD_KEYS];
    uint64_t n, more; /* more: further ones, counted each time */
};
/* Adds WHERE and name[0, n), such as "messages[]." and "colour". */
void pl_told_keys_add(struct pl_told_keys *t, const char *where, const char *name, size_t n,
                      uint64_t line);
/* Writes one line for each; `reader` is e.g. "format text". */
void pl_told_keys_note(const struct pl_told_keys *t, const char *path, const char *reader,
                       struct pl_text *notes);

#endif
