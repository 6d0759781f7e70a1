/* text.h - a growable byte string.
 *
 * `failed` is sticky: append as much as you like, check once at the end. `data` is always
 * NUL-terminated once anything was appended, and never NULL after pl_text_str(). A text in memory
 * of the caller's asks for none: PL_TEXT_FIXED. */
#ifndef PL_ESTIMATOR_BASE_TEXT_H
#define PL_ESTIMATOR_BASE_TEXT_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

struct pl_text {
    char *data;
    size_t len, cap;
    bool failed; /* an allocation failed; content is a prefix of what was asked for */
    bool fixed;  /* data is the caller's and does not grow */
};
/* Initialises a text in the array `room`, for messages when there is no memory. */
#define PL_TEXT_FIXED(room) PL_TEXT_IN(room, sizeof(room))
#define PL_TEXT_IN(room, bytes)                                                                    \
    { .data = (room), .cap = (bytes), .fixed = true }

void pl_text_add(struct pl_text *t, const char *s);
void pl_text_addn(struct pl_text *t, const char *s, size_t n);
void pl_text_addf(struct pl_text *t, const char *fmt, ...) PL_PRINTF(2, 3);
const char *pl_text_str(const struct pl_text *t); /* "" when empty */
void pl_text_finish(struct pl_text *t);           /* frees; leaves {0} */

/* Returns the Levenshtein-nearest of `names` to `word`, NULL if none is near (distance > 1 +
 * len/3). */
const char *pl_text_nearest(const char *word, const char *const *names, size_t n);
/* Writes the `most` nearest names into out[], nearest first, ignoring letter case; names farther
 * than half the length of `word` are left out. Returns their number. */
size_t pl_text_nearest_few(const char *word, const char *const *names, size_t n, const char **out,
                           size_t most);

#endif
