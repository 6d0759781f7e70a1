/* gguf_parse.c - a header is hostile until every length in it was checked. */
#include "estimator/gguf/gguf_parse.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ALIGN_DEFAULT 32
#define ALIGN_MOST    (1u << 20)
#define KEY_LEAST     13 /* bytes: a length, a kind, one byte of value */
#define ENTRY_LEAST   24 /* bytes: a length, a rank, a type, an offset */

struct parser {
    const char *path;
    const unsigned char *bytes;
    uint64_t n, at, file_bytes;
    bool cut;
    struct pl_diag *d;
};

PL_PRINTF(2, 3)
static pl_err refuse_header(const struct parser *p, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pl_diag_at(p->d, PL_ERR_MODEL_SYNTAX, p->path, 0, 0, "%s", text);
    pl_diag_hint(p->d, "the file is damaged, or a download was cut short: get it again");
    return PL_ERR_MODEL_SYNTAX;
}

/* Takes `bytes` bytes; where they are not in memory the header is cut, and where the file has not
 * that many it is damaged. */
static pl_err take_bytes(struct parser *p, uint64_t bytes, const unsigned char **out) {
    *out = NULL;
    if (bytes > p->file_bytes - p->at)
        return refuse_header(p, "the file ends in its header, at byte %llu",
                             (unsigned long long)p->file_bytes);
    if (bytes > p->n - p->at) {
        p->cut = true;
        return PL_ERR_MODEL_SYNTAX;
    }
    *out = p->bytes + p->at;
    p->at += bytes;
    return PL_ERR_OK;
}

static pl_err take_uint(struct parser *p, size_t bytes, uint64_t *out) {
    const unsigned char *at;
    PL_TRY(take_bytes(p, bytes, &at));
    *out = pl_gguf_load(at, bytes);
    return PL_ERR_OK;
}

/* Makes room for a list of n items of at least `least` bytes each, which must be in memory: a
 * number in the file asks for no more memory than the file has taken. */
static pl_err take_list(struct parser *p, uint64_t n, uint64_t least, size_t each, void **out) {
    if (n > (p->file_bytes - p->at) / least)
        return refuse_header(p, "the file is shorter than its header says");
    if (n > (p->n - p->at) / least) {
        p->cut = true;
        return PL_ERR_MODEL_SYNTAX;
    }
    *out = pl_calloc(n + 1, each);
    return *out ? PL_ERR_OK : pl_host_oom(p->d, "the header of a GGUF file");
}

static pl_err take_string(struct parser *p, struct pl_gguf_string *out) {
    const unsigned char *at;
    uint64_t n;
    PL_TRY(take_uint(p, 8, &n));
    PL_TRY(take_bytes(p, n, &at));
    *out = (struct pl_gguf_string){(const char *)at, (size_t)n};
    return PL_ERR_OK;
}

/* Items of one kind; numbers are taken at one time, strings one after the other. */
static pl_err take_items(struct parser *p, const struct pl_gguf_string *key,
                         struct pl_gguf_value *v) {
    const size_t each = pl_gguf_kind_bytes(v->kind);
    const unsigned char *at;
    struct pl_gguf_string text;
    uint64_t bytes;
    v->at = p->bytes + p->at;
    if (v->kind == PL_GGUF_STRING) {
        for (uint64_t i = 0; i < v->n; i++)
            PL_TRY(take_string(p, &text));
        return PL_ERR_OK;
    }
    if (!each)
        return refuse_header(p, "key `%.*s` has a value of an unknown kind, %d",
                             (int)pl_u64_min(key->n, 100), key->s, (int)v->kind);
    if (!pl_u64_mul(each, v->n, &bytes)) bytes = UINT64_MAX;
    return take_bytes(p, bytes, &at);
}

static pl_err take_value(struct parser *p, const struct pl_gguf_string *key,
                         struct pl_gguf_value *v) {
    uint64_t kind;
    PL_TRY(take_uint(p, 4, &kind));
    *v = (struct pl_gguf_value){.n = 1, .list = kind == PL_GGUF_ARRAY};
    if (v->list) {
        PL_TRY(take_uint(p, 4, &kind));
        PL_TRY(take_uint(p, 8, &v->n));
    }
    v->kind = kind < PL_GGUF_KINDS ? (enum pl_gguf_kind)kind : PL_GGUF_KINDS;
    PL_TRY(take_items(p, key, v));
    v->bytes = (size_t)(p->bytes + p->at - v->at);
    return PL_ERR_OK;
}

int pl_gguf_compare(const struct pl_gguf_string *a, const struct pl_gguf_string *b) {
    const int first = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);
    return first ? first : (a->n > b->n) - (a->n < b->n);
}

int pl_gguf_by_name(const void *a, const void *b) {
    return pl_gguf_compare(a, b);
}

static pl_err check_names(const struct parser *p, const void *items, uint64_t n, size_t each,
                          const char *what) {
    for (uint64_t i = 1; i < n; i++) {
        const struct pl_gguf_string *s =
            (const struct pl_gguf_string *)(const void *)((const char *)items + i * each);
        const struct pl_gguf_string *before =
            (const struct pl_gguf_string *)(const void *)((const char *)s - each);
        if (pl_gguf_compare(before, s) == 0)
            return refuse_header(p, "%s `%.*s` is there twice", what, (int)pl_u64_min(s->n, 100),
                                 s->s);
    }
    return PL_ERR_OK;
}

static pl_err take_keys(struct parser *p, struct pl_gguf_header *h, uint64_t n) {
    void *keys;
    PL_TRY(take_list(p, n, KEY_LEAST, sizeof *h->keys, &keys));
    h->keys = keys;
    for (; h->n_keys < n; h->n_keys++) {
        PL_TRY(take_string(p, &h->keys[h->n_keys].name));
        PL_TRY(take_value(p, &h->keys[h->n_keys].name, &h->keys[h->n_keys].value));
    }
    qsort(h->keys, h->n_keys, sizeof *h->keys, pl_gguf_by_name);
    return check_names(p, h->keys, h->n_keys, sizeof *h->keys, "key");
}

/* Whole blocks lie in the first dimension. */
static pl_err check_extent(const struct parser *p, struct pl_gguf_entry *e) {
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t i = 0; i < e->rank; i++)
        fits = fits && e->ne[i] > 0 && pl_u64_mul(elements, e->ne[i], &elements);
    e->type = pl_gguf_type(e->type_id);
    if (fits && !e->type) return PL_ERR_OK;
    fits = fits && e->ne[0] % e->type->elements == 0 &&
           pl_u64_mul(elements / e->type->elements, e->type->bytes, &e->bytes);
    if (fits && e->bytes <= INT64_MAX) return PL_ERR_OK;
    return refuse_header(p, "tensor `%.*s` has a shape that its type does not allow",
                         (int)pl_u64_min(e->name.n, 100), e->name.s);
}

static pl_err take_entry(struct parser *p, struct pl_gguf_entry *e) {
    uint64_t rank, type;
    PL_TRY(take_string(p, &e->name));
    PL_TRY(take_uint(p, 4, &rank));
    if (rank < 1 || rank > PL_GGUF_DIMS)
        return refuse_header(p, "tensor `%.*s` has %llu dimensions",
                             (int)pl_u64_min(e->name.n, 100), e->name.s, (unsigned long long)rank);
    e->rank = (uint32_t)rank;
    for (uint32_t i = 0; i < PL_GGUF_DIMS; i++) {
        e->ne[i] = 1;
        if (i < e->rank) PL_TRY(take_uint(p, 8, &e->ne[i]));
    }
    PL_TRY(take_uint(p, 4, &type));
    PL_TRY(take_uint(p, 8, &e->offset));
    e->type_id = (uint32_t)type;
    return check_extent(p, e);
}

static int by_offset(const void *a, const void *b) {
    const struct pl_gguf_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* P2. Offsets become those in the file. */
static pl_err check_offsets(const struct parser *p, struct pl_gguf_header *h, uint64_t align) {
    uint64_t begin, end;
    if (!pl_u64_align(p->at, align, &begin))
        return refuse_header(p, "its header overflows 64 bits");
    qsort(h->entries, h->n_entries, sizeof *h->entries, by_offset);
    end = begin;
    for (uint64_t i = 0; i < h->n_entries; i++) {
        struct pl_gguf_entry *e = &h->entries[i];
        const int shown = (int)pl_u64_min(e->name.n, 100);
        if (!pl_u64_add(begin, e->offset, &e->offset) || e->offset % align != 0 || e->offset < end)
            return refuse_header(p, "tensor `%.*s` does not begin after the one before it", shown,
                                 e->name.s);
        if (!pl_u64_add(e->offset, e->bytes, &end) || end > p->file_bytes)
            return refuse_header(
                p, "the file is truncated: tensor `%.*s` ends at byte %llu of %llu", shown,
                e->name.s, (unsigned long long)end, (unsigned long long)p->file_bytes);
    }
    return PL_ERR_OK;
}

static pl_err take_entries(struct parser *p, struct pl_gguf_header *h, uint64_t n, uint32_t part) {
    void *entries;
    PL_TRY(take_list(p, n, ENTRY_LEAST, sizeof *h->entries, &entries));
    h->entries = entries;
    for (; h->n_entries < n; h->n_entries++) {
        h->entries[h->n_entries].part = part;
        PL_TRY(take_entry(p, &h->entries[h->n_entries]));
    }
    return PL_ERR_OK;
}

static pl_err read_align(const struct parser *p, const struct pl_gguf_header *h, uint64_t *out) {
    static const char name[] = "general.alignment";
    *out = ALIGN_DEFAULT;
    for (uint64_t i = 0; i < h->n_keys; i++) {
        const struct pl_gguf_key *k = &h->keys[i];
        if (k->name.n != sizeof name - 1 || memcmp(k->name.s, name, k->name.n) != 0) continue;
        if (!pl_gguf_uint(&k->value, out) || *out == 0 || *out > ALIGN_MOST || *out % 8 != 0)
            return refuse_header(p, "`%s` is not an alignment", name);
    }
    return PL_ERR_OK;
}

static pl_err check_version(const struct parser *p, uint64_t version) {
    if (version == 2 || version == 3) return PL_ERR_OK;
    const bool swapped = version >= 1u << 24;
    pl_diag_at(p->d, PL_ERR_MODEL_UNSUPPORTED, p->path, 0, 0,
               swapped ? "a GGUF file in the byte order of big-endian machines"
                       : "version %llu of GGUF; versions 2 and 3 are read",
               (unsigned long long)version);
    pl_diag_hint(p->d, swapped ? "gguf_convert_endian.py of llama.cpp turns it round"
                               : "write it again with a llama.cpp of this year");
    return PL_ERR_MODEL_UNSUPPORTED;
}

static pl_err parse(struct parser *p, uint32_t part, struct pl_gguf_header *h) {
    const unsigned char *magic;
    uint64_t version, n_entries, n_keys, align;
    PL_TRY(take_bytes(p, 4, &magic));
    if (memcmp(magic, "GGUF", 4) != 0) return refuse_header(p, "not a GGUF file");
    PL_TRY(take_uint(p, 4, &version));
    PL_TRY(check_version(p, version));
    PL_TRY(take_uint(p, 8, &n_entries));
    PL_TRY(take_uint(p, 8, &n_keys));
    PL_TRY(take_keys(p, h, n_keys));
    PL_TRY(take_entries(p, h, n_entries, part));
    PL_TRY(read_align(p, h, &align));
    PL_TRY(check_offsets(p, h, align));
    qsort(h->entries, h->n_entries, sizeof *h->entries, pl_gguf_by_name);
    return check_names(p, h->entries, h->n_entries, sizeof *h->entries, "tensor");
}

pl_err pl_gguf_parse(const char *path, const unsigned char *bytes, uint64_t n, uint64_t file_bytes,
                     uint32_t part, struct pl_gguf_header *out, bool *cut, struct pl_diag *d) {
    struct parser p = {.path = path, .bytes = bytes, .n = n, .file_bytes = file_bytes, .d = d};
    *out = (struct pl_gguf_header){0};
    const pl_err err = parse(&p, part, out);
    *cut = p.cut;
    if (err != PL_ERR_OK) pl_gguf_header_finish(out);
    return p.cut ? PL_ERR_OK : err;
}

void pl_gguf_header_finish(struct pl_gguf_header *h) {
    free(h->keys);
    free(h->entries);
    *h = (struct pl_gguf_header){0};
}
