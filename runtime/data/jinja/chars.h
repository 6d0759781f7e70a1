/* chars.h - what Python's str knows of characters.
 *
 * In: valid UTF-8.  Out: classes, cases, lengths in code points.  Needs: value, utf8proc.
 *   C1  where Python's tables and these might differ, the functions say so instead of guessing
 *   C2  a function that takes a meter pays for the bytes that it visits
 * Use: pl_jinja_trim(&meter, &v, NULL, true, true); */
#ifndef PL_RUNTIME_DATA_JINJA_CHARS_H
#define PL_RUNTIME_DATA_JINJA_CHARS_H

#include "runtime/data/jinja/value.h"

/* Bytes of the white space (str.isspace) at the start or end of s[0, n), 0 = there is none. */
size_t pl_jinja_space_at(const char *s, size_t n, bool at_end);
/* str.isspace() of one code point. */
bool pl_jinja_is_space(uint32_t c);
bool pl_jinja_is_printable(uint32_t c);
/* Code points of s[0, n), and the byte where the one at `index` begins (n beyond the last). */
size_t pl_jinja_count(struct pl_jinja_meter *m, const char *s, size_t n);
size_t pl_jinja_byte_of(struct pl_jinja_meter *m, const char *s, size_t n, size_t index);

/* Bytes of the whole characters of a text within `most` bytes, for "%.*s". */
int pl_jinja_whole(const struct pl_jinja_value *text, size_t most);

/* str.strip(set) on the chosen sides; set NULL: white space. v becomes a part of itself. */
void pl_jinja_trim(struct pl_jinja_meter *m, struct pl_jinja_value *v,
                   const struct pl_jinja_value *set, bool left, bool right);
/* First or last place of `part` in s[0, n), -1 = it is not there. The work is n + m at most. */
ptrdiff_t pl_jinja_search(struct pl_jinja_meter *meter, const char *s, size_t n, const char *part,
                          size_t m, bool from_end);

/* The same from outside of programs, where nothing is metered. */
void pl_jinja_strip(struct pl_jinja_value *v, const struct pl_jinja_value *set, bool left,
                    bool right);
ptrdiff_t pl_jinja_find(const char *s, size_t n, const char *part, size_t m);
ptrdiff_t pl_jinja_rfind(const char *s, size_t n, const char *part, size_t m);
/* Nothing but white space. */
bool pl_jinja_is_blank(const struct pl_jinja_value *v);

/* str.lower(), upper(), title(), capitalize(), swapcase() */
enum pl_jinja_case {
    PL_JINJA_LOWER,
    PL_JINJA_UPPER,
    PL_JINJA_TITLE,
    PL_JINJA_CAPITALIZE,
    PL_JINJA_SWAPCASE
};
/* False: *unknown is a character whose case is not known here, or 0 where the arena is short. */
bool pl_jinja_recase(struct pl_jinja_arena *a, const struct pl_jinja_value *v,
                     enum pl_jinja_case how, struct pl_jinja_value *out, uint32_t *unknown);

enum pl_jinja_class {
    PL_JINJA_ALPHA,
    PL_JINJA_ALNUM,
    PL_JINJA_DECIMAL,
    PL_JINJA_DIGIT,
    PL_JINJA_SPACE,
    PL_JINJA_IS_LOWER,
    PL_JINJA_IS_UPPER,
    PL_JINJA_ASCII
};
/* str.isalpha() and its kind. False: as above. */
bool pl_jinja_classify(struct pl_jinja_meter *m, const struct pl_jinja_value *v,
                       enum pl_jinja_class class, bool *out, uint32_t *unknown);

#endif
