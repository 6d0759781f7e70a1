/* unicode_forms.c - NFC, NFD, NFKC, NFKD by utf8proc's tables, cluster by cluster. */
#include "runtime/data/tokenizer/unicode_forms.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MOST_PARTS 18 /* U+FDFA decomposes into as many, the most of all */

void pl_form_scratch_finish(struct pl_form_scratch *s) {
    free(s->cluster);
    free(s->sorted);
    *s = (struct pl_form_scratch){0};
}

static bool reserve(struct pl_form_scratch *s, size_t extra) {
    if (extra <= s->cap - s->n) return true;
    size_t cap = 2 * (s->cap + extra);
    int32_t *cluster = pl_realloc(s->cluster, cap * sizeof *cluster);
    if (cluster) s->cluster = cluster;
    int32_t *sorted = cluster ? pl_realloc(s->sorted, cap * sizeof *sorted) : NULL;
    if (!sorted) return false;
    s->sorted = sorted;
    s->cap = cap;
    return true;
}

static unsigned class_of(int32_t c) {
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

/* Nothing before the character can compose with it or be put after it. Marks and the vowels and
 * final consonants of Hangul can; no other character is the second half of a composition. */
static bool begins_cluster(int32_t c) {
    if (c < 0x300) return true;
    if (c >= 0x1160 && c <= 0x11FF) return false;
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return p->combining_class == 0 && p->category != UTF8PROC_CATEGORY_MN &&
           p->category != UTF8PROC_CATEGORY_MC && p->category != UTF8PROC_CATEGORY_ME;
}

/* Stable sort of marks [from, to) by combining class (the canonical ordering algorithm, D109). */
static void order_marks(struct pl_form_scratch *s, size_t from, size_t to) {
    size_t starts[256] = {0}, n = 0;
    bool ordered = true;
    for (size_t i = from; i + 1 < to && ordered; i++)
        ordered = class_of(s->cluster[i]) <= class_of(s->cluster[i + 1]);
    if (ordered) return;
    for (size_t i = from; i < to; i++)
        starts[class_of(s->cluster[i])]++;
    for (size_t k = 0; k < 256; k++) {
        size_t count = starts[k];
        starts[k] = n;
        n += count;
    }
    for (size_t i = from; i < to; i++)
        s->sorted[starts[class_of(s->cluster[i])]++] = s->cluster[i];
    memcpy(s->cluster + from, s->sorted, n * sizeof *s->cluster);
}

static void put_cluster(struct pl_span_buf *out, struct pl_form_scratch *s, unsigned form,
                        uint64_t origin) {
    char c[4];
    for (size_t i = 0, j; i < s->n; i = j) {
        for (j = i + 1; j < s->n && class_of(s->cluster[j]);)
            j++;
        order_marks(s, class_of(s->cluster[i]) ? i : i + 1, j);
    }
    utf8proc_ssize_t n = (utf8proc_ssize_t)s->n;
    /* STABLE is what makes utf8proc respect the exclusions from composition */
    if (form & PL_FORM_COMPOSE && n > 1)
        n = utf8proc_normalize_utf32(s->cluster, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < n; i++)
        pl_span_buf_add(out, c, pl_utf8_put((uint32_t)s->cluster[i], c), origin);
    s->n = 0;
}

static size_t decompose(int32_t c, int32_t parts[MOST_PARTS], unsigned form) {
    int boundclass = UTF8PROC_BOUNDCLASS_START;
    utf8proc_option_t options = UTF8PROC_DECOMPOSE | UTF8PROC_STABLE;
    if (form & PL_FORM_COMPAT) options |= UTF8PROC_COMPAT;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, MOST_PARTS, options, &boundclass);
    if (n > 0 && n <= MOST_PARTS) return (size_t)n;
    parts[0] = c;
    return 1;
}

/* Characters that are their own form in all four and that nothing acts on: ASCII before ASCII. */
static size_t plain_prefix(const struct pl_span *in, size_t from) {
    size_t i = from;
    while (i < in->n && (unsigned char)in->s[i] < 0x80)
        i++;
    return i < in->n && i > from ? i - 1 - from : i - from;
}

bool pl_unicode_form(struct pl_span_buf *out, const struct pl_span *in, unsigned form,
                     struct pl_form_scratch *s) {
    int32_t parts[MOST_PARTS];
    uint32_t c;
    uint64_t origin = 0;
    s->n = 0;
    for (size_t i = 0; i < in->n;) {
        size_t plain = plain_prefix(in, i);
        if (plain) {
            put_cluster(out, s, form, origin);
            struct pl_span part = pl_span_slice(in, i, i + plain);
            pl_span_buf_copy(out, &part);
            i += plain;
            continue;
        }
        size_t at = i;
        i += pl_utf8_next(in->s + i, &c);
        size_t n = decompose((int32_t)c, parts, form);
        if (begins_cluster(parts[0])) {
            put_cluster(out, s, form, origin);
            origin = pl_span_origin(in, at);
        } else if (!s->n) {
            origin = pl_span_origin(in, at);
        }
        if (!reserve(s, n)) return false;
        memcpy(s->cluster + s->n, parts, n * sizeof *parts);
        s->n += n;
    }
    put_cluster(out, s, form, origin);
    return !out->failed;
}
