#include "estimator/gguf/gguf_merges.h"

#include "estimator/base/alloc.h"

#include <string.h>

#define NONE UINT32_MAX

/* Tokens by their bytes: open addressing over a table that is at most half full. */
struct index {
    const struct pl_gguf_string *tokens;
    uint32_t *slots; /* owned */
    uint64_t mask;
};

/* FNV-1a (Fowler, Noll, Vo), which is short and good enough for words. */
static uint64_t hash(const char *s, size_t n) {
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* The slot of these bytes, or the free one where they would stand. */
static uint32_t *find_slot(const struct index *x, const char *s, size_t n) {
    for (uint64_t at = hash(s, n);; at++) {
        uint32_t *slot = &x->slots[at & x->mask];
        if (*slot == NONE) return slot;
        if (x->tokens[*slot].n == n && memcmp(x->tokens[*slot].s, s, n) == 0) return slot;
    }
}

static pl_err make_index(struct index *x, const struct pl_gguf_string *tokens, uint32_t n,
                         struct pl_diag *d) {
    uint64_t size = 16;
    while (size < 2 * (uint64_t)n)
        size *= 2;
    *x = (struct index){tokens, pl_malloc(size * sizeof *x->slots), size - 1};
    if (!x->slots) return pl_host_oom(d, "the merges of a vocabulary");
    memset(x->slots, 0xff, size * sizeof *x->slots);
    for (uint32_t i = 0; i < n; i++)
        *find_slot(x, tokens[i].s, tokens[i].n) = i; /* the last of equal ones, as in a dict */
    return PL_ERR_OK;
}

struct list {
    struct pl_gguf_merge *items; /* owned */
    uint64_t n, cap;
};

static pl_err append(struct list *l, const struct pl_gguf_merge *m, struct pl_diag *d) {
    if (l->n == l->cap) {
        const uint64_t cap = l->cap ? 2 * l->cap : 4096;
        struct pl_gguf_merge *grown = pl_realloc(l->items, cap * sizeof *grown);
        if (!grown) return pl_host_oom(d, "the merges of a vocabulary");
        l->items = grown;
        l->cap = cap;
    }
    l->items[l->n++] = *m;
    return PL_ERR_OK;
}

static bool begins_char(char c) {
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* The longest tokens that are cut; a vocabulary of longer ones would take time in the square. */
#define LONGEST 4096

static pl_err cut_token(const struct index *x, uint32_t of, double score, struct list *out,
                        struct pl_diag *d) {
    const struct pl_gguf_string *t = &x->tokens[of];
    if (t->n > LONGEST || *find_slot(x, t->s, t->n) != of) return PL_ERR_OK;
    uint32_t chars = 0, left_chars = 0;
    for (size_t i = 0; i < t->n; i++)
        chars += begins_char(t->s[i]);
    for (size_t i = 1; i < t->n; i++) {
        if (!begins_char(t->s[i])) continue;
        left_chars++;
        const uint32_t left = *find_slot(x, t->s, i), right = *find_slot(x, t->s + i, t->n - i);
        const struct pl_gguf_merge m = {left, right, of, left_chars, chars - left_chars, score};
        if (left != NONE && right != NONE) PL_TRY(append(out, &m, d));
    }
    return PL_ERR_OK;
}

static int descending(uint32_t a, uint32_t b) {
    return (a < b) - (a > b);
}

/* No two are equal: a token is cut at one place into these two. */
static int in_order(const void *a, const void *b) {
    const struct pl_gguf_merge *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    int order = descending(x->left_chars, y->left_chars);
    if (!order) order = descending(x->right_chars, y->right_chars);
    if (!order) order = descending(y->of, x->of);
    if (!order) order = descending(y->left, x->left);
    return order;
}

pl_err pl_gguf_make_merges(const struct pl_gguf_string *tokens, const double *scores, uint32_t n,
                           struct pl_gguf_merge **out, uint64_t *n_out, struct pl_diag *d) {
    struct index x = {0};
    struct list l = {0};
    pl_err err = make_index(&x, tokens, n, d);
    for (uint32_t i = 0; i < n && err == PL_ERR_OK; i++)
        err = cut_token(&x, i, scores[i], &l, d);
    free(x.slots);
    if (err != PL_ERR_OK) {
        free(l.items);
        return err;
    }
    if (l.n) qsort(l.items, l.n, sizeof *l.items, in_order);
    *out = l.items;
    *n_out = l.n;
    return PL_ERR_OK;
}
