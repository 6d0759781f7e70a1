/* pretokenizer.h - cuts normalized text into the words that the model sees one at a time.
 *
 * In: a span.  Out: words, in order, to a function.  Needs: span.h, pattern.h, utf8.h.
 *   W1  steps run in the order of the file; each cuts what the step before it gave, and none sees
 *       beyond it
 *   W2  words are never empty; a step that adds text (a prefix) changes a copy
 * Nothing is collected: a word is handed on as soon as it is known.
 * Use: pl_pretokenizer_run(&p, &scratch, patterns, &span, take_word, ctx, &d) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_PRETOKENIZER_H
#define PL_RUNTIME_DATA_TOKENIZER_PRETOKENIZER_H

#include "runtime/data/tokenizer/pattern.h"
#include "runtime/data/tokenizer/span.h"

#include <stdint.h>

#define PL_PRETOKENIZER_MOST_STEPS 16

enum pl_pretokenizer_kind {
    PL_PRETOKENIZER_SPLIT,       /* by pattern */
    PL_PRETOKENIZER_DIGITS,      /* by characters of category N */
    PL_PRETOKENIZER_PUNCTUATION, /* by characters of the library's table */
    PL_PRETOKENIZER_SPACES,      /* by white space */
    PL_PRETOKENIZER_WORDS,       /* into runs of \w and of neither \w nor \s; \s is left out */
    PL_PRETOKENIZER_METASPACE,   /* spaces become a character, words begin with it */
    PL_PRETOKENIZER_BYTE_LEVEL,  /* the prefix of ByteLevel; its regular expression is a split */
    PL_PRETOKENIZER_BOUNDARY,    /* a cut that no merge crosses: for speed, changes no token */
};

/* The fate of matches, by the names of the library. */
enum pl_split_behavior {
    PL_SPLIT_ISOLATED,
    PL_SPLIT_REMOVED,
    PL_SPLIT_MERGED_WITH_PREVIOUS,
    PL_SPLIT_MERGED_WITH_NEXT,
    PL_SPLIT_CONTIGUOUS,
};

enum pl_prepend { PL_PREPEND_ALWAYS, PL_PREPEND_FIRST, PL_PREPEND_NEVER };

#define PL_REPLACEMENT_BYTES 4

struct pl_pretokenizer_step {
    enum pl_pretokenizer_kind kind;
    enum pl_split_behavior behavior;        /* split, digits, punctuation, spaces */
    bool invert;                            /* split: what lies between matches is the match */
    struct pl_pattern *pattern;             /* split, owned */
    char replacement[PL_REPLACEMENT_BYTES]; /* metaspace, boundary: one character */
    size_t n_replacement;
    enum pl_prepend prepend; /* metaspace */
    bool split;              /* metaspace: also cut before the character */
};

struct pl_pretokenizer {
    struct pl_pretokenizer_step steps[PL_PRETOKENIZER_MOST_STEPS];
    uint32_t n;
};
void pl_pretokenizer_finish(struct pl_pretokenizer *p);

struct pl_pretokenizer_scratch {
    struct pl_span_buf bufs[PL_PRETOKENIZER_MOST_STEPS]; /* one a step: all are in use at a time */
};
void pl_pretokenizer_scratch_finish(struct pl_pretokenizer_scratch *s);

typedef pl_err (*pl_word_fn)(void *ctx, const struct pl_span *word, struct pl_diag *d);

/* Stops at the first failure of `take`. `in` is not empty. */
pl_err pl_pretokenizer_run(const struct pl_pretokenizer *p, struct pl_pretokenizer_scratch *s,
                           struct pl_pattern_scratch *ps, const struct pl_span *in, pl_word_fn take,
                           void *ctx, struct pl_diag *d);

#endif
