/* pattern.h - the regular expressions and fixed strings that a tokenizer.json splits and replaces
 * by.
 *
 * In: a pattern as the file spells it, written for Oniguruma's Ruby syntax.  Out: matches.
 * Needs: base, PCRE2 (8 bit, UTF, JIT where there is one).
 *   R1  a pattern is translated: what the two engines read differently is spelled out for PCRE2
 *       (\s is White_Space, \v one character), what cannot be is refused by name
 *   R2  matches are those of Oniguruma's find_iter: leftmost, not overlapping, no empty match where
 *       the last match ended
 *   R3  a compiled pattern is immutable; what a match needs lies in the scratch of one thread
 *   R4  all matches in a text of n bytes together take at most PL_PATTERN_MOST_WORK + n *
 *       PL_PATTERN_BYTE_WORK steps, or are an error: counted, so that it is the same everywhere;
 *       what the quick code finds in a few steps close by is not counted, and is linear
 * Use: pl_pattern_compile(&p, regex, n, &d); pl_pattern_begin_text(scratch, n);
 *      while (pl_pattern_next(p, scratch, text, n, &walk, &d) == PL_ERR_OK && walk.found) ... */
#ifndef PL_RUNTIME_DATA_TOKENIZER_PATTERN_H
#define PL_RUNTIME_DATA_TOKENIZER_PATTERN_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stddef.h>

#define PL_PATTERN_MOST_BYTES 4096u
#define PL_PATTERN_MOST_WORK  50000000u
#define PL_PATTERN_BYTE_WORK  100u

struct pl_pattern;
struct pl_pattern_scratch;

/* regex[0, n) is UTF-8. PL_ERR_TOKENIZER_UNSUPPORTED names what cannot be matched exactly,
 * PL_ERR_TOKENIZER_FIELD what is no regular expression. */
pl_err pl_pattern_compile(struct pl_pattern **out, const char *regex, size_t n, struct pl_diag *d);
/* A fixed string, not empty. */
pl_err pl_pattern_literal(struct pl_pattern **out, const char *s, size_t n, struct pl_diag *d);
void pl_pattern_destroy(struct pl_pattern **p);

pl_err pl_pattern_scratch_create(struct pl_pattern_scratch **out, struct pl_diag *d);
void pl_pattern_scratch_destroy(struct pl_pattern_scratch **s);

/* A text of n bytes begins: what its matches may take. */
void pl_pattern_begin_text(struct pl_pattern_scratch *s, size_t n);

struct pl_pattern_walk { /* {0} before the first call */
    size_t begin, end;   /* of the match */
    size_t from;         /* where the search continues */
    bool found, any;     /* any: there was a match before */
};
/* The next match in text[0, n), valid UTF-8. */
pl_err pl_pattern_next(const struct pl_pattern *p, struct pl_pattern_scratch *s, const char *text,
                       size_t n, struct pl_pattern_walk *w, struct pl_diag *d);

#endif
