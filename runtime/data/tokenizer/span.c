/* span.c - growing buffers of text with origins. */
#include "runtime/data/tokenizer/span.h"
#include "estimator/base/alloc.h"

#include <stdlib.h>
#include <string.h>

static bool reserve(struct pl_span_buf *b, size_t extra) {
    if (b->failed) return false;
    if (extra <= b->cap - b->n) return true;
    size_t cap = b->cap ? b->cap : 1024;
    while (cap - b->n < extra) {
        if (cap > SIZE_MAX / (2 * sizeof *b->origin)) return !(b->failed = true);
        cap *= 2;
    }
    char *s = pl_realloc(b->s, cap);
    if (s) b->s = s;
    uint32_t *origin = s ? pl_realloc(b->origin, cap * sizeof *origin) : NULL;
    if (!origin) return !(b->failed = true);
    b->origin = origin;
    b->cap = cap;
    return true;
}

void pl_span_buf_add(struct pl_span_buf *b, const char *s, size_t n, uint64_t origin) {
    if (!n || !reserve(b, n)) return;
    memcpy(b->s + b->n, s, n);
    for (size_t i = 0; i < n; i++)
        b->origin[b->n + i] = (uint32_t)origin;
    b->n += n;
}

void pl_span_buf_copy(struct pl_span_buf *b, const struct pl_span *t) {
    if (!t->n || !reserve(b, t->n)) return;
    memcpy(b->s + b->n, t->s, t->n);
    for (size_t i = 0; i < t->n; i++)
        b->origin[b->n + i] = (uint32_t)pl_span_origin(t, i);
    b->n += t->n;
}

void pl_span_buf_finish(struct pl_span_buf *b) {
    free(b->s);
    free(b->origin);
    *b = (struct pl_span_buf){0};
}
