/* read_json.c - JSON into values: strings are parts of the row, lists and maps have the size that
 * they need, so that a row of long texts costs little more than its bytes. */
#include "estimator/base/alloc.h"
#include "runtime/data/jinja/jinja.h"

#include <errno.h>
#include <stdlib.h>

static bool short_of_memory(struct pl_jinja_memory *m, struct pl_scan *s) {
    bool limit = m->arena.shortage != PL_JINJA_NO_MEMORY;
    return pl_scan_fail(s, limit ? PL_ERR_TEMPLATE_LIMIT : PL_ERR_HOST_OOM, s->at, NULL,
                        limit ? "the row is too large for a chat template"
                              : "no memory for the row");
}

/* Without escapes a string is a part of the row. */
static bool read_string(struct pl_jinja_memory *m, struct pl_scan *s, struct pl_jinja_value *out) {
    struct pl_text text = {0};
    (void)pl_scan_peek(s);
    const char *begin = s->text + s->at + 1;
    if (!pl_scan_string(s, NULL)) return false;
    size_t n = (size_t)(s->text + s->at - 1 - begin);
    *out = pl_jinja_string(begin, n);
    if (n > UINT32_MAX) m->arena.shortage = PL_JINJA_OVER_LIMIT;
    if (n > UINT32_MAX) return short_of_memory(m, s);
    if (!memchr(begin, '\\', n)) return true;
    s->at = (size_t)(begin - 1 - s->text);
    bool ok = pl_scan_string(s, &text);
    char *copy = ok && !text.failed
                     ? pl_jinja_alloc_joined(&m->arena, NULL, 0, pl_text_str(&text), text.len)
                     : NULL;
    if (ok && !copy) {
        if (text.failed) m->arena.shortage = PL_JINJA_NO_MEMORY;
        ok = short_of_memory(m, s);
    }
    if (ok) *out = pl_jinja_string(copy, text.len);
    pl_text_finish(&text);
    return ok;
}

static bool read_number(struct pl_scan *s, struct pl_jinja_value *out) {
    char text[512], shown[PL_SHOWN];
    const char *digits;
    size_t n, at = s->at;
    if (!pl_scan_number(s, &digits, &n)) return false;
    bool whole = pl_scan_is_finite(digits, n) && !memchr(digits, '.', n) &&
                 !memchr(digits, 'e', n) && !memchr(digits, 'E', n);
    if (n >= sizeof text)
        return pl_scan_fail(s, PL_ERR_DATA_FIELD, at, NULL, "a number of %zu digits", n);
    memcpy(text, digits, n);
    text[n] = 0;
    errno = 0;
    *out = whole ? pl_jinja_int(strtoll(text, NULL, 10)) : pl_jinja_float(strtod(text, NULL));
    if (!whole || !errno) return true;
    return pl_scan_fail(s, PL_ERR_DATA_FIELD, at, "write it as a string",
                        "the integer %s does not fit 64 bits", pl_scan_show(digits, n, shown));
}

/* Values that are read and do not have their list or map yet: those have the size they need. */
struct reader {
    struct pl_jinja_memory *m;
    struct pl_scan *s;
    struct pl_jinja_value *pending; /* [n], owned */
    size_t n, cap;
    uint32_t depth;
};

static bool keep(struct reader *x, const struct pl_jinja_value *v) {
    if (x->n == x->cap) {
        size_t cap = x->cap ? 2 * x->cap : 64;
        struct pl_jinja_value *more = pl_realloc(x->pending, cap * sizeof *more);
        if (!more) {
            x->m->arena.shortage = PL_JINJA_NO_MEMORY;
            return short_of_memory(x->m, x->s);
        }
        x->pending = more;
        x->cap = cap;
    }
    x->pending[x->n++] = *v;
    return true;
}

static bool read_value(struct reader *x, struct pl_jinja_value *out);

static bool read_array(struct reader *x, struct pl_jinja_value *out) {
    size_t first = x->n;
    struct pl_jinja_value v;
    if (!pl_scan_enter_array(x->s)) return false;
    while (pl_scan_next_element(x->s))
        if (!read_value(x, &v) || !keep(x, &v)) return false;
    if (x->s->err != PL_ERR_OK) return false;
    struct pl_jinja_list *l = pl_jinja_list_new(&x->m->arena, x->n - first);
    if (!l) return short_of_memory(x->m, x->s);
    for (size_t i = first; i < x->n; i++)
        if (!pl_jinja_list_add(&x->m->arena, l, &x->pending[i])) return short_of_memory(x->m, x->s);
    x->n = first;
    *out = pl_jinja_list(l, PL_JINJA_PLAIN);
    return true;
}

/* The cursor is at a key, whose value follows. */
static bool read_member(struct reader *x, const struct pl_text *name) {
    struct pl_jinja_value v;
    char *copy = pl_jinja_alloc_joined(&x->m->arena, NULL, 0, pl_text_str(name), name->len);
    if (name->failed) x->m->arena.shortage = PL_JINJA_NO_MEMORY;
    if (!copy || name->failed) return short_of_memory(x->m, x->s);
    const struct pl_jinja_value key = pl_jinja_string(copy, name->len);
    return keep(x, &key) && read_value(x, &v) && keep(x, &v);
}

static bool read_object(struct reader *x, struct pl_jinja_value *out) {
    size_t first = x->n;
    struct pl_text name = {0};
    bool ok = pl_scan_enter(x->s);
    while (ok && pl_scan_next_key(x->s, &name))
        ok = read_member(x, &name);
    pl_text_finish(&name);
    if (!ok || x->s->err != PL_ERR_OK) return false;
    struct pl_jinja_map *map = pl_jinja_map_new(&x->m->arena, (x->n - first) / 2);
    if (!map) return short_of_memory(x->m, x->s);
    for (size_t i = first; i < x->n; i += 2)
        if (!pl_jinja_map_set(&x->m->arena, map, &x->pending[i], &x->pending[i + 1]))
            return short_of_memory(x->m, x->s);
    x->n = first;
    *out = pl_jinja_map(map);
    return true;
}

static bool read_nested(struct reader *x, bool object, struct pl_jinja_value *out) {
    if (x->depth == PL_SCAN_DEPTH)
        return pl_scan_fail(x->s, PL_ERR_DATA_SYNTAX, x->s->at, NULL,
                            "nested deeper than %d levels", PL_SCAN_DEPTH);
    x->depth++;
    bool ok = object ? read_object(x, out) : read_array(x, out);
    x->depth--;
    return ok;
}

static bool read_value(struct reader *x, struct pl_jinja_value *out) {
    enum pl_scan_kind kind = pl_scan_peek(x->s);
    switch (kind) {
    case PL_SCAN_STRING:
        return read_string(x->m, x->s, out);
    case PL_SCAN_NUMBER:
        return read_number(x->s, out);
    case PL_SCAN_ARRAY:
    case PL_SCAN_OBJECT:
        return read_nested(x, kind == PL_SCAN_OBJECT, out);
    case PL_SCAN_BOOLEAN:
        *out = pl_jinja_bool(x->s->text[x->s->at] == 't');
        break;
    default:
        *out = pl_jinja_none();
        break;
    }
    return pl_scan_skip(x->s);
}

bool pl_jinja_read_json(struct pl_jinja_memory *m, struct pl_scan *s, struct pl_jinja_value *out) {
    struct reader x = {.m = m, .s = s};
    struct pl_scan end = *s; /* only what is read is admitted */
    if (pl_scan_skip(&end)) pl_jinja_admit(m, end.at - s->at);
    bool ok = read_value(&x, out);
    free(x.pending);
    return ok;
}
