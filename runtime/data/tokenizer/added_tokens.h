/* added_tokens.h - tokens that are found in the text before anything else is done to it.
 *
 * In: added tokens with their flags; a text.  Out: the places where they stand.  Needs: utf8.h.
 *   A1  found left to right; of those that begin at one place the longest is taken, and the search
 *       continues after it, whether or not its flags accept it
 *   A2  single_word wants no word character on either side; lstrip and rstrip take the space
 *       next to the token with it
 * A set matches either the text as it came or the normalized text, never both.
 * Use: pl_added_set_sort(&set); at = 0; while (pl_added_next(&set, text, n, &walk)) ... */
#ifndef PL_RUNTIME_DATA_TOKENIZER_ADDED_TOKENS_H
#define PL_RUNTIME_DATA_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_ADDED_MOST_BYTES 4096u

struct pl_added_token {
    char *s; /* [n], what is looked for; owned */
    uint32_t n;
    int32_t id;
    bool single_word, lstrip, rstrip;
};

struct pl_added_set {
    struct pl_added_token *tokens; /* [n], sorted by their bytes */
    uint32_t n, cap;
    uint32_t first[257]; /* tokens that begin with byte b: first[b] to first[b + 1] */
};

/* Copies s[0, n), n > 0. False: out of memory. */
bool pl_added_set_put(struct pl_added_set *set, const struct pl_added_token *token);
/* To be called after the last put. False: two tokens look for the same text, the second is in
 * *twin. */
bool pl_added_set_sort(struct pl_added_set *set, const struct pl_added_token **twin);
void pl_added_set_finish(struct pl_added_set *set);

struct pl_added_walk { /* {0} before the first call */
    const struct pl_added_token *token;
    size_t begin, end; /* with the space it took; begin may lie before `taken` */
    size_t taken;      /* end of the token before */
    size_t from;       /* where the search continues */
};
/* The next token in text[0, n), valid UTF-8; false: there is none. */
bool pl_added_next(const struct pl_added_set *set, const char *text, size_t n,
                   struct pl_added_walk *w);

#endif
