/* span.h - a stretch of text that still knows where in the user's text each byte came from.
 *
 * In: text.  Out: slices of it, and changed copies.  Needs: base.
 *   S1  without `origin`, byte i came from base + i; with it, from origin[i]
 *   S2  origins never decrease along a span
 * A buffer that failed stays failed; callers check once after a series of additions.
 * Use: pl_span_buf_add(&b, "x", 1, where); pl_span_buf_copy(&b, &span); ... pl_span_of(&b) */
#ifndef PL_RUNTIME_DATA_TOKENIZER_SPAN_H
#define PL_RUNTIME_DATA_TOKENIZER_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_span {
    const char *s;
    size_t n;
    const uint32_t *origin; /* [n], or NULL; texts have at most 1 GiB */
    uint64_t base;
};

struct pl_span_buf {
    char *s;
    uint32_t *origin;
    size_t n, cap;
    bool failed;
};

/* The place that byte i (i < n) came from. */
static inline uint64_t pl_span_origin(const struct pl_span *t, size_t i) {
    return t->origin ? t->origin[i] : t->base + i;
}

/* Bytes [from, to) of t. */
static inline struct pl_span pl_span_slice(const struct pl_span *t, size_t from, size_t to) {
    return (struct pl_span){t->s + from, to - from, t->origin ? t->origin + from : NULL,
                            t->base + from};
}

void pl_span_buf_add(struct pl_span_buf *b, const char *s, size_t n, uint64_t origin);
void pl_span_buf_copy(struct pl_span_buf *b, const struct pl_span *t);
void pl_span_buf_finish(struct pl_span_buf *b);
/* All of the buffer; valid until it changes. */
static inline struct pl_span pl_span_of(const struct pl_span_buf *b) {
    return (struct pl_span){b->s, b->n, b->origin, 0};
}

#endif
