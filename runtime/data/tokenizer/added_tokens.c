/* added_tokens.c - finding added tokens: a sorted list, narrowed byte by byte. */
#include "runtime/data/tokenizer/added_tokens.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

bool pl_added_set_put(struct pl_added_set *set, const struct pl_added_token *token) {
    if (set->n == set->cap) {
        uint32_t cap = set->cap ? 2 * set->cap : 64;
        struct pl_added_token *tokens = pl_realloc(set->tokens, cap * sizeof *tokens);
        if (!tokens) return false;
        set->tokens = tokens;
        set->cap = cap;
    }
    char *s = pl_malloc(token->n);
    if (!s) return false;
    memcpy(s, token->s, token->n);
    set->tokens[set->n] = *token;
    set->tokens[set->n++].s = s;
    return true;
}

static int by_bytes(const void *a, const void *b) {
    const struct pl_added_token *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

bool pl_added_set_sort(struct pl_added_set *set, const struct pl_added_token **twin) {
    if (set->n) qsort(set->tokens, set->n, sizeof *set->tokens, by_bytes);
    for (uint32_t i = 1; i < set->n; i++) {
        if (by_bytes(&set->tokens[i - 1], &set->tokens[i]) != 0) continue;
        *twin = &set->tokens[i];
        return false;
    }
    for (uint32_t b = 0, i = 0; b <= 256; b++) {
        while (i < set->n && (unsigned char)set->tokens[i].s[0] < b)
            i++;
        set->first[b] = i;
    }
    return true;
}

void pl_added_set_finish(struct pl_added_set *set) {
    for (uint32_t i = 0; i < set->n; i++)
        free(set->tokens[i].s);
    free(set->tokens);
    *set = (struct pl_added_set){0};
}

/* The first of tokens [low, high), which agree on `depth` bytes, whose next byte is at least `b`;
 * one that ends at `depth` comes before all others. */
static uint32_t lower_bound(const struct pl_added_set *set, uint32_t low, uint32_t high,
                            size_t depth, unsigned b) {
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct pl_added_token *t = &set->tokens[middle];
        if (t->n > depth && (unsigned char)t->s[depth] >= b)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The longest token that stands at text[0, n); NULL: none does. */
static const struct pl_added_token *longest_at(const struct pl_added_set *set, const char *text,
                                               size_t n) {
    const struct pl_added_token *best = NULL;
    unsigned b = (unsigned char)text[0];
    uint32_t low = set->first[b], high = set->first[b + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (set->tokens[low].n == depth) best = &set->tokens[low++];
        if (depth == n) break;
        b = (unsigned char)text[depth];
        low = lower_bound(set, low, high, depth, b);
        high = lower_bound(set, low, high, depth, b + 1);
    }
    return best;
}

static bool is_single_word(const char *text, size_t n, size_t begin, size_t end) {
    uint32_t c;
    if (begin) {
        pl_utf8_next(text + pl_utf8_before(text, begin), &c);
        if (pl_utf8_is_word(c)) return false;
    }
    if (end == n) return true;
    pl_utf8_next(text + end, &c);
    return !pl_utf8_is_word(c);
}

static size_t space_before(const char *text, size_t at, size_t least) {
    uint32_t c;
    while (at > least) {
        size_t before = pl_utf8_before(text, at);
        pl_utf8_next(text + before, &c);
        if (!pl_utf8_is_space(c)) break;
        at = before;
    }
    return at;
}

static size_t space_after(const char *text, size_t n, size_t at) {
    uint32_t c;
    while (at < n) {
        size_t length = pl_utf8_next(text + at, &c);
        if (!pl_utf8_is_space(c)) break;
        at += length;
    }
    return at;
}

bool pl_added_next(const struct pl_added_set *set, const char *text, size_t n,
                   struct pl_added_walk *w) {
    if (!set->n) return false;
    w->taken = w->end;
    while (w->from < n) {
        unsigned b = (unsigned char)text[w->from];
        const struct pl_added_token *t = NULL;
        if (set->first[b] < set->first[b + 1]) t = longest_at(set, text + w->from, n - w->from);
        if (!t) {
            w->from++;
            continue;
        }
        w->token = t;
        w->begin = w->from;
        w->end = w->from += t->n;
        if (t->single_word && !is_single_word(text, n, w->begin, w->end)) continue;
        if (t->lstrip) {
            size_t begin = space_before(text, w->begin, w->taken < w->begin ? w->taken : w->begin);
            w->begin = begin > w->taken ? begin : w->taken;
        }
        if (t->rstrip) w->end = space_after(text, n, w->end);
        return true;
    }
    return false;
}
