/* text.c - growable byte string and spelling hints. */
#include "estimator/base/text.h"
#include "estimator/base/alloc.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_reserve(struct pl_text *t, size_t extra) {
    if (t->failed) return false;
    if (extra < t->cap - t->len) return true;
    if (t->fixed) return !(t->failed = true);
    size_t cap = t->cap ? t->cap : 256;
    while (cap - t->len <= extra) {
        if (cap > SIZE_MAX / 2) return !(t->failed = true);
        cap *= 2;
    }
    char *data = pl_realloc(t->data, cap);
    if (!data) return !(t->failed = true);
    t->data = data;
    t->cap = cap;
    return true;
}

void pl_text_addn(struct pl_text *t, const char *s, size_t n) {
    if (!text_reserve(t, n)) return;
    memcpy(t->data + t->len, s, n);
    t->len += n;
    t->data[t->len] = 0;
}

void pl_text_add(struct pl_text *t, const char *s) { pl_text_addn(t, s, strlen(s)); }

void pl_text_addf(struct pl_text *t, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        t->failed = true;
    } else if (text_reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, fmt, again);
        t->len += (size_t)n;
    }
    va_end(again);
}

const char *pl_text_str(const struct pl_text *t) { return t->data ? t->data : ""; }

void pl_text_finish(struct pl_text *t) {
    if (!t->fixed) free(t->data);
    *t = (struct pl_text){0};
}

#define NEAREST_MAX 64 /* longer words are not keys */
#define NEAREST_FEW 16 /* at most so many names are asked for */

static size_t edit_distance(const char *a, const char *b) {
    size_t row[NEAREST_MAX + 1], la = strlen(a), lb = strlen(b);
    if (la > NEAREST_MAX || lb > NEAREST_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb];
}

const char *pl_text_nearest(const char *word, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t best_distance = 2 + strlen(word) / 3;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

static void lower(const char *s, char out[NEAREST_MAX + 2]) {
    size_t n = strnlen(s, NEAREST_MAX + 1);
    for (size_t i = 0; i < n; i++)
        out[i] = (char)tolower((unsigned char)s[i]);
    out[n] = 0;
}

size_t pl_text_nearest_few(const char *word, const char *const *names, size_t n, const char **out,
                           size_t most) {
    char a[NEAREST_MAX + 2], b[NEAREST_MAX + 2];
    size_t distances[NEAREST_FEW], found = 0, length = strlen(word), limit = 1 + length / 2;
    if (length > NEAREST_MAX || most > NEAREST_FEW) return 0;
    lower(word, a);
    for (size_t i = 0; i < n; i++) {
        lower(names[i], b);
        size_t d = edit_distance(a, b), at = found;
        if (d > limit) continue;
        while (at > 0 && distances[at - 1] > d) /* equal ones keep the order of the table */
            at--;
        if (at == most) continue;
        found += found < most;
        memmove(out + at + 1, out + at, (found - at - 1) * sizeof *out);
        memmove(distances + at + 1, distances + at, (found - at - 1) * sizeof *distances);
        out[at] = names[i];
        distances[at] = d;
    }
    return found;
}
