/* formats.c - data formats and the row parser. */
#include "runtime/data/formats.h"
#include "estimator/base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pl_sample_finish(struct pl_sample *s) {
    free(s->ids);
    free(s->labels);
    *s = (struct pl_sample){0};
}

bool pl_sample_reserve(struct pl_sample *s, uint64_t n) {
    uint64_t cap = s->cap ? s->cap : 256, bytes;
    if (n <= s->cap) return true;
    while (cap < n)
        if (!pl_u64_mul(cap, 2, &cap)) return false;
    if (!pl_u64_mul(cap, sizeof(int32_t), &bytes) || bytes > SIZE_MAX) return false;
    int32_t *ids = realloc(s->ids, (size_t)bytes);
    if (ids) s->ids = ids;
    int32_t *labels = ids ? realloc(s->labels, (size_t)bytes) : NULL;
    if (!labels) return false;
    s->labels = labels;
    s->cap = cap;
    return true;
}

static bool no_memory(struct pl_row_parser *p) {
    return pl_scan_fail(&p->scan, PL_ERR_HOST_OOM, p->scan.at, NULL, "no memory for the row");
}

/* "`text` is a number, expected a string" */
static bool wrong_type(struct pl_row_parser *p, const char *key, const char *expected) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan); /* no value at all: says so */
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at,
                        kind == PL_SCAN_ARRAY ? "one object per row, not columns of values" : NULL,
                        "`%s` is %s, expected %s", key, pl_scan_kind_name(kind), expected);
}

/* The byte tokenizer: an id is a byte of the UTF-8 text; the model's eos ends a row. */
static bool read_text(struct pl_row_parser *p) {
    size_t start = p->scan.at;
    struct pl_sample *out = p->out;
    if (pl_scan_peek(&p->scan) != PL_SCAN_STRING) return wrong_type(p, "text", "a string");
    p->text.len = 0;
    if (!pl_scan_string(&p->scan, &p->text)) return false;
    if (p->text.failed || !pl_sample_reserve(out, (uint64_t)p->text.len + 1)) return no_memory(p);
    for (size_t i = 0; i < p->text.len; i++) {
        unsigned char byte = (unsigned char)p->text.data[i];
        if (byte >= p->vocab)
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start, NULL,
                                "byte 0x%02X is outside the vocabulary of %llu tokens", byte,
                                (unsigned long long)p->vocab);
        out->ids[i] = byte;
    }
    out->n = p->text.len;
    if (p->eos >= 0) out->ids[out->n++] = (int32_t)p->eos;
    return true;
}

static bool complete_text(struct pl_row_parser *p) {
    if (p->out->n) memcpy(p->out->labels, p->out->ids, (size_t)p->out->n * sizeof *p->out->ids);
    return true;
}

/* An integer as written; *v saturates far outside any vocabulary. False: a problem was recorded. */
static bool read_integer(struct pl_row_parser *p, const char *what, uint64_t index, int64_t *v) {
    const char *digits;
    char shown[PL_SHOWN];
    size_t n, i = 0;
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    size_t start = p->scan.at;
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan);
    if (kind != PL_SCAN_NUMBER)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start,
                            kind == PL_SCAN_ARRAY ? "one row per line: this looks like a batch"
                                                  : NULL,
                            "%s %llu is %s, expected an integer", what, (unsigned long long)index,
                            pl_scan_kind_name(kind));
    if (!pl_scan_number(&p->scan, &digits, &n)) return false;
    bool negative = digits[0] == '-';
    *v = 0;
    for (i = negative; i < n && digits[i] >= '0' && digits[i] <= '9'; i++)
        if (*v < INT64_MAX / 16) *v = *v * 10 + (digits[i] - '0');
    if (i < n)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start, NULL,
                            "%s %llu is %s, expected an integer without point or exponent", what,
                            (unsigned long long)index, pl_scan_show(digits, n, shown));
    if (negative) *v = -*v;
    return true;
}

static bool outside(struct pl_row_parser *p, size_t where, const char *what, uint64_t index,
                    int64_t v, const char *or_masked) {
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where,
                        "the rows must come from this model's own tokenizer",
                        "%s %llu is %s%lld, expected an id from 0 to %llu%s", what,
                        (unsigned long long)index, v >= INT64_MAX / 16 ? "above " : "",
                        (long long)v, (unsigned long long)p->vocab - 1, or_masked);
}

static bool read_ids(struct pl_row_parser *p) {
    int64_t v = 0;
    if (pl_scan_peek(&p->scan) != PL_SCAN_ARRAY) return wrong_type(p, "input_ids", "an array");
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->out->n = 0; pl_scan_next_element(&p->scan); p->out->n++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "id", p->out->n, &v)) return false;
        if (v < 0 || (uint64_t)v >= p->vocab) return outside(p, where, "id", p->out->n, v, "");
        if (!pl_sample_reserve(p->out, p->out->n + 1)) return no_memory(p);
        p->out->ids[p->out->n] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

static bool read_labels(struct pl_row_parser *p) {
    int64_t v = 0;
    if (pl_scan_peek(&p->scan) != PL_SCAN_ARRAY) return wrong_type(p, "labels", "an array");
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->n_labels = 0; pl_scan_next_element(&p->scan); p->n_labels++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "label", p->n_labels, &v)) return false;
        if (v != PL_LABEL_MASKED && (v < 0 || (uint64_t)v >= p->vocab))
            return outside(p, where, "label", p->n_labels, v, ", or -100");
        if (!pl_sample_reserve(p->out, p->n_labels + 1)) return no_memory(p);
        p->out->labels[p->n_labels] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

static bool complete_tokens(struct pl_row_parser *p) {
    if (!p->seen[1]) return complete_text(p);
    if (p->n_labels == p->out->n) return true;
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[1], NULL,
                        "%llu labels for %llu input_ids", (unsigned long long)p->n_labels,
                        (unsigned long long)p->out->n);
}

/* In the order of detection: a row that brings its tokens is not tokenised again. */
static const struct pl_format formats[] = {
    {"tokens",
     PL_FORMAT_TOKENS,
     {"input_ids", "labels"},
     false,
     {read_ids, read_labels},
     complete_tokens},
    {"text", PL_FORMAT_TEXT, {"text"}, true, {read_text}, complete_text},
};
#define N_FORMATS (sizeof formats / sizeof *formats)

static const char formats_known[] = "formats: text with the key `text`, tokens with the key "
                                    "`input_ids` and, if wanted, `labels`";

const struct pl_format *pl_format_find(uint32_t id) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].id == id) return &formats[i];
    return NULL;
}

/* Scans the row again for its key names, once something is missing: `k1`, `k2`, ... Returns the
 * name nearest to `wanted`, in p->text; NULL when none is near. */
static const char *list_keys(struct pl_row_parser *p, const char *text, size_t n,
                             const char *wanted, char list[128]) {
    struct pl_scan s = {.text = text, .n = n};
    char shown[PL_SHOWN];
    bool near = false;
    size_t len = 0;
    list[0] = 0;
    if (!pl_scan_enter(&s)) return NULL;
    while (pl_scan_next_key(&s, &p->key) && pl_scan_skip(&s)) {
        const char *name = pl_text_str(&p->key);
        pl_scan_show(name, p->key.len, shown);
        if (len + strlen(shown) + 5 < 128) {
            len += (size_t)snprintf(list + len, 128 - len, "%s`%s`", len ? ", " : "", shown);
        }
        if (near || !wanted || !pl_text_nearest(wanted, &name, 1)) continue;
        near = true;
        p->text.len = 0;
        pl_text_add(&p->text, shown);
    }
    if (!len) snprintf(list, 128, "none");
    return near ? pl_text_str(&p->text) : NULL;
}

static bool missing_key(struct pl_row_parser *p, const struct pl_format *f) {
    char list[128];
    const char *near = list_keys(p, p->scan.text, p->scan.n, f->keys[0], list);
    const char *origin = p->detected ? "; the file began as format " : "";
    const char *name = p->detected ? f->name : "";
    if (near)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, NULL,
                            "key `%s` is missing; the nearest is `%s`%s%s", f->keys[0], near,
                            origin, name);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known,
                        "key `%s` is missing; the row has %s%s%s", f->keys[0], list, origin, name);
}

static bool expect_object(struct pl_row_parser *p) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (kind == PL_SCAN_OBJECT) return pl_scan_enter(&p->scan);
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at, formats_known,
                        "the row is %s, expected an object", pl_scan_kind_name(kind));
}

static bool key_is(const struct pl_row_parser *p, const char *name) {
    return p->key.len == strlen(name) && memcmp(p->key.data, name, p->key.len) == 0;
}

/* The value of the key in p->key: by the format when it is one of its keys, else passed over. */
static bool read_member(struct pl_row_parser *p, const struct pl_format *f, size_t key_at) {
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k]; k++) {
        if (!key_is(p, f->keys[k])) continue;
        if (p->seen[k])
            return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, key_at, "keep one of them",
                                "key `%s` twice in one row", f->keys[k]);
        p->seen[k] = true;
        pl_scan_peek(&p->scan);
        p->at[k] = p->scan.at;
        return f->read[k](p);
    }
    return pl_scan_skip(&p->scan);
}

static void start(struct pl_row_parser *p, const char *text, size_t n, bool ends_file) {
    p->scan = (struct pl_scan){.text = text, .n = n, .ends_file = ends_file};
    memset(p->seen, 0, sizeof p->seen);
    p->n_labels = 0;
}

bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out) {
    start(p, text, n, ends_file);
    p->out = out;
    out->n = 0;
    if (!expect_object(p)) return false;
    for (size_t key_at = 0; pl_scan_next_key(&p->scan, &p->key); key_at = p->scan.at) {
        if (p->key.failed) return no_memory(p);
        if (!read_member(p, f, key_at)) return false;
    }
    if (!pl_scan_end(&p->scan)) return false;
    return p->seen[0] ? f->complete(p) : missing_key(p, f);
}

const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file) {
    const struct pl_format *found = NULL;
    char list[128];
    start(p, text, n, ends_file);
    if (!expect_object(p)) return NULL;
    while (pl_scan_next_key(&p->scan, &p->key) && pl_scan_skip(&p->scan)) {
        for (size_t i = 0; i < N_FORMATS; i++) {
            if (key_is(p, formats[i].keys[0]) && (!found || &formats[i] < found))
                found = &formats[i];
        }
    }
    if (found || p->scan.err != PL_ERR_OK || !pl_scan_end(&p->scan)) return found;
    list_keys(p, text, n, NULL, list);
    pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known,
                 "the format is not recognised; the row has %s", list);
    return NULL;
}

void pl_row_parser_finish(struct pl_row_parser *p) {
    pl_text_finish(&p->key);
    pl_text_finish(&p->text);
}
