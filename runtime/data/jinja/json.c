/* json.c - values into JSON as Python's json.dumps writes it. */
#include "runtime/data/jinja/run.h"
#include "runtime/data/tokenizer/utf8.h"

#include <math.h>
#include <stdio.h>

enum { ENSURE_ASCII, INDENT, SEPARATORS, SORT_KEYS }; /* parameters of tojson */

struct writer {
    struct pl_jinja_run *r;
    struct pl_jinja_value *s;
    struct pl_jinja_value item, colon; /* separators */
    struct pl_jinja_value indent;      /* of one level; ABSENT: all in one line */
    bool ascii, sorted;
    uint32_t level;
};

static bool add(struct writer *w, const char *text, size_t n) {
    return pl_jinja_grow(w->r, w->s, text, n);
}

static bool add_value(struct writer *w, const struct pl_jinja_value *v) {
    return add(w, v->s, v->n);
}

/* The escape of c in JSON; 0 = it stands for itself. */
static size_t escape(uint32_t c, bool ascii, char out[16]) {
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *at = c && c < 0x80 ? strchr(plain, (char)c) : NULL;
    if (at) return (size_t)snprintf(out, 16, "\\%c", letters[at - plain]);
    if (c >= 0x20 && (c < 0x7F || !ascii)) return 0;
    if (c < 0x10000) return (size_t)snprintf(out, 16, "\\u%04x", c);
    c -= 0x10000;
    return (size_t)snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
}

static bool write_string(struct writer *w, const struct pl_jinja_value *v) {
    char escaped[16];
    size_t plain = 0;
    uint32_t c;
    if (!pl_jinja_spend(w->r, PL_JINJA_CHARACTER_UNITS * (uint64_t)v->n) || !add(w, "\"", 1))
        return false;
    for (size_t i = 0, length; i < v->n; i += length) {
        length = pl_utf8_next(v->s + i, &c);
        size_t n = escape(c, w->ascii, escaped);
        if (!n) continue;
        if (!add(w, v->s + plain, i - plain) || !add(w, escaped, n)) return false;
        plain = i + length;
    }
    return add(w, v->s + plain, v->n - plain) && add(w, "\"", 1);
}

static bool new_line(struct writer *w) {
    if (w->indent.kind == PL_JINJA_ABSENT) return true;
    if (!add(w, "\n", 1)) return false;
    for (uint32_t i = 0; i < w->level; i++)
        if (!add_value(w, &w->indent)) return false;
    return true;
}

static bool write_value(struct writer *w, const struct pl_jinja_value *v);

static bool write_list(struct writer *w, const struct pl_jinja_list *l) {
    if (!l->n) return add(w, "[]", 2);
    if (!add(w, "[", 1)) return false;
    w->level++;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !add_value(w, &w->item)) || !new_line(w) || !write_value(w, &l->items[i]))
            return false;
    w->level--;
    return new_line(w) && add(w, "]", 1);
}

static bool write_key(struct writer *w, const struct pl_jinja_value *key) {
    struct pl_jinja_value text = {.kind = PL_JINJA_ABSENT};
    switch ((enum pl_jinja_kind)key->kind) {
    case PL_JINJA_STRING:
        return write_string(w, key);
    case PL_JINJA_NONE:
        text = pl_jinja_literal("null");
        break;
    case PL_JINJA_BOOL:
        text = pl_jinja_literal(key->b ? "true" : "false");
        break;
    case PL_JINJA_INT:
    case PL_JINJA_FLOAT:
        if (!pl_jinja_str(w->r, key, &text)) return false;
        break;
    default:
        return pl_jinja_fail(w->r, "a %s is no key in JSON", pl_jinja_type_name(key));
    }
    return add(w, "\"", 1) && add_value(w, &text) && add(w, "\"", 1);
}

static bool write_map(struct writer *w, const struct pl_jinja_map *m) {
    const struct pl_jinja_entry *entries = m->entries;
    if (!m->n) return add(w, "{}", 2);
    if (w->sorted) {
        struct pl_jinja_entry *sorted = pl_jinja_alloc_array(w->r->arena, m->n, sizeof *sorted);
        if (!sorted) return pl_jinja_fail_memory(w->r);
        memcpy(sorted, m->entries, m->n * sizeof *sorted);
        if (!pl_jinja_sort(w->r, sorted, m->n, false)) return false;
        entries = sorted;
    }
    if (!add(w, "{", 1)) return false;
    w->level++;
    for (size_t i = 0; i < m->n; i++)
        if ((i && !add_value(w, &w->item)) || !new_line(w) || !write_key(w, &entries[i].key) ||
            !add_value(w, &w->colon) || !write_value(w, &entries[i].value))
            return false;
    w->level--;
    return new_line(w) && add(w, "}", 1);
}

static bool write_value(struct writer *w, const struct pl_jinja_value *v) {
    char text[PL_JINJA_FLOAT_ROOM];
    bool list = v->kind == PL_JINJA_LIST && v->sequence <= PL_JINJA_TUPLE;
    if (!pl_jinja_spend(w->r, PL_JINJA_STEP_UNITS)) return false;
    if (list) return write_list(w, v->list);
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_NONE:
        return add(w, "null", 4);
    case PL_JINJA_BOOL:
        return add(w, v->b ? "true" : "false", v->b ? 4 : 5);
    case PL_JINJA_INT:
        return add(w, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v->i));
    case PL_JINJA_FLOAT:
        if (isnan(v->f)) return add(w, "NaN", 3);
        if (isinf(v->f)) return add(w, v->f > 0 ? "Infinity" : "-Infinity", v->f > 0 ? 8 : 9);
        return add(w, text, pl_jinja_float_repr(pl_jinja_meter(w->r), v->f, text));
    case PL_JINJA_STRING:
        return write_string(w, v);
    case PL_JINJA_MAP:
        return write_map(w, v->map);
    default:
        return pl_jinja_fail(w->r, "Object of type %s is not JSON serializable",
                             pl_jinja_type_name(v));
    }
}

static bool is_given(const struct pl_jinja_value *v) {
    return v->kind != PL_JINJA_ABSENT && v->kind != PL_JINJA_NONE;
}

/* indent=4 or indent="  " */
static bool set_indent(struct writer *w, const struct pl_jinja_value *v) {
    const struct pl_jinja_value blank = pl_jinja_literal(" ");
    const struct pl_jinja_value *times = v;
    int64_t n;
    if (!is_given(v)) return true;
    w->item = pl_jinja_literal(",");
    w->indent = *v;
    if (v->kind == PL_JINJA_STRING) return true;
    if (!pl_jinja_integer(v, &n)) return pl_jinja_fail(w->r, "indent: an integer or a string");
    return pl_jinja_binary(w->r, PL_JINJA_MUL, &blank, times, &w->indent);
}

static bool set_separators(struct writer *w, const struct pl_jinja_value *v) {
    if (!is_given(v)) return true;
    if (v->kind != PL_JINJA_LIST || v->list->n != 2 || v->list->items[0].kind != PL_JINJA_STRING ||
        v->list->items[1].kind != PL_JINJA_STRING)
        return pl_jinja_fail(w->r, "separators: two strings are expected");
    w->item = v->list->items[0];
    w->colon = v->list->items[1];
    return true;
}

bool pl_jinja_add_json(struct pl_jinja_run *r, struct pl_jinja_value *s,
                       const struct pl_jinja_value *v, const struct pl_jinja_call *how) {
    struct writer w = {.r = r,
                       .s = s,
                       .item = pl_jinja_literal(", "),
                       .colon = pl_jinja_literal(": "),
                       .ascii = pl_jinja_truth(&how->arg[ENSURE_ASCII]),
                       .sorted = pl_jinja_truth(&how->arg[SORT_KEYS])};
    return set_indent(&w, &how->arg[INDENT]) && set_separators(&w, &how->arg[SEPARATORS]) &&
           write_value(&w, v);
}
