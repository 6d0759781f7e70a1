/* row_keys.h - the keys that rows of data files have besides those that a reader reads: which say
 * nothing about training, and which would change what is trained on.
 *
 * In: the name of a key, and what it is a key of.  Out: its row in the table, or that it is told.
 * Needs: json_scan, job.
 *   K1  a key is read, inert, refused or told: none is passed over without one of these
 *   K2  what is refused says why, and what to do; a value that says nothing (null, "", [] or {}) is
 *       not refused
 *   K3  what is told is bounded: PL_TOLD_KEYS names a file, and how many more there were
 * A key that readers learn to read loses its row here and gets one in their format.
 * Use: const struct pl_row_key *k = pl_row_key_find(name, n, 1u << PL_FORMAT_TEXT);
 *      if (!k) pl_told_keys_add(&told, "", name, n, line); */
#ifndef PL_RUNTIME_DATA_ROW_KEYS_H
#define PL_RUNTIME_DATA_ROW_KEYS_H

#include "estimator/config/job.h"
#include "estimator/base/json_scan.h"

/* What a key may be a key of: a row of a format, 1u << PL_FORMAT_*, or one of these. */
#define PL_KEYS_OF_PROMPTED (1u << 29) /* a row that `prompt_format` reads */
#define PL_KEYS_OF_MESSAGE  (1u << 30)
#define PL_KEYS_OF_PART     (1u << 31) /* a part of a message's content */

enum pl_row_key_meaning {
    PL_ROW_KEY_INERT,
    PL_ROW_KEY_REFUSED,       /* unless its value says nothing */
    PL_ROW_KEY_COLUMN,        /* the same; an entry of `datasets` may give it a place */
    PL_ROW_KEY_REFUSED_FALSE, /* its value false */
};

struct pl_row_key {
    const char *name;
    unsigned of; /* what it has this meaning in */
    enum pl_row_key_meaning meaning;
    const char *hint; /* of a refusal */
};

/* NULL: a key that is told. */
const struct pl_row_key *pl_row_key_find(const char *name, size_t n, unsigned of);
/* Passes over a value; *empty: it is absent in meaning: null, "", [] or {}. */
bool pl_row_value_skip(struct pl_scan *s, bool *empty);
/* Passes over a value that must be absent in meaning. Else fails with "`key` is not supported" and
 * the hint. */
bool pl_row_key_refuse(struct pl_scan *s, const char *key, const char *hint);
/* Passes over the value at the cursor if the key may have it. False: s says why not. */
bool pl_row_key_check(const struct pl_row_key *key, struct pl_scan *s);

#define PL_TOLD_KEYS 16
#define PL_TOLD_NAME (PL_SHOWN + 16)
struct pl_told_key {
    char name[PL_TOLD_NAME];
    uint64_t line, last, n; /* of the first row and of the last; how many */
};
struct pl_told_keys {
    struct pl_told_key keys[PL_TOLD_KEYS];
    uint64_t n, more; /* more: further ones, each time they occur */
};
/* WHERE and name[0, n), such as "messages[]." and "colour". */
void pl_told_keys_add(struct pl_told_keys *t, const char *where, const char *name, size_t n,
                      uint64_t line);
/* One line for each; `reader` is "format text". */
void pl_told_keys_note(const struct pl_told_keys *t, const char *path, const char *reader,
                       struct pl_text *notes);

#endif
