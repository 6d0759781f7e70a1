/* represent.c - str() and repr() of values. */
#include "runtime/data/jinja/run.h"
#include "runtime/data/tokenizer/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The shortest digits that read back as f, and the exponent of the first. */
static int shortest(struct pl_jinja_meter *m, double f, char digits[PL_JINJA_FLOAT_ROOM]) {
    char text[PL_JINJA_FLOAT_ROOM];
    for (int precision = 0; precision < 17; precision++) {
        pl_jinja_pay(m, PL_JINJA_NUMBER_UNITS);
        snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f) break;
    }
    size_t n = 0;
    const char *e = strchr(text, 'e');
    for (const char *c = text; c < e; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    digits[n] = 0;
    return atoi(e + 1);
}

size_t pl_jinja_float_repr(struct pl_jinja_meter *m, double f, char out[PL_JINJA_FLOAT_ROOM]) {
    char d[PL_JINJA_FLOAT_ROOM];
    const char *sign = signbit(f) ? "-" : "";
    if (isnan(f)) return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "nan");
    if (isinf(f)) return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "%sinf", sign);
    int e = shortest(m, fabs(f), d), n = (int)strlen(d);
    if (e < -4 || e >= 16)
        return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "%s%c%s%se%c%02d", sign, d[0],
                                n > 1 ? "." : "", d + 1, e < 0 ? '-' : '+', abs(e));
    if (e < 0)
        return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "%s0.%.*s%s", sign, -e - 1, "0000", d);
    if (n <= e + 1)
        return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "%s%s%.*s.0", sign, d, e + 1 - n,
                                "0000000000000000");
    return (size_t)snprintf(out, PL_JINJA_FLOAT_ROOM, "%s%.*s.%s", sign, e + 1, d, d + e + 1);
}

/* --- repr ------------------------------------------------------------------------------------- */
static bool add(struct pl_jinja_run *r, struct pl_jinja_value *s, const char *text) {
    return pl_jinja_grow(r, s, text, strlen(text));
}

static size_t escape(uint32_t c, char quote, char out[16]) {
    static const char plain[] = "\n\r\t", letters[] = "nrt";
    const char *at = c && c < 0x80 ? strchr(plain, (char)c) : NULL;
    if (at) return (size_t)snprintf(out, 16, "\\%c", letters[at - plain]);
    if (c == (unsigned char)quote || c == '\\') return (size_t)snprintf(out, 16, "\\%c", (char)c);
    if (pl_jinja_is_printable(c)) return 0;
    return (size_t)snprintf(out, 16,
                            c < 0x100     ? "\\x%02x"
                            : c < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                            c);
}

static bool add_string(struct pl_jinja_run *r, struct pl_jinja_value *s,
                       const struct pl_jinja_value *v) {
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    bool single = pl_jinja_search(meter, v->s, v->n, "'", 1, false) >= 0;
    bool both = single && pl_jinja_search(meter, v->s, v->n, "\"", 1, false) >= 0;
    const char quote[2] = {single && !both ? '"' : '\'', 0};
    char escaped[16];
    size_t plain = 0;
    uint32_t c;
    if (!pl_jinja_spend(r, PL_JINJA_CHARACTER_UNITS * (uint64_t)v->n) || !add(r, s, quote))
        return false;
    for (size_t i = 0, length; i < v->n; i += length) {
        length = pl_utf8_next(v->s + i, &c);
        size_t n = escape(c, *quote, escaped);
        if (!n) continue;
        if (!pl_jinja_grow(r, s, v->s + plain, i - plain) || !pl_jinja_grow(r, s, escaped, n))
            return false;
        plain = i + length;
    }
    return pl_jinja_grow(r, s, v->s + plain, v->n - plain) && add(r, s, quote);
}

static bool add_range(struct pl_jinja_run *r, struct pl_jinja_value *s,
                      const struct pl_jinja_list *l) {
    char text[80];
    int64_t step = l->n > 1 ? l->items[1].i - l->items[0].i : 1;
    if (!l->n) return pl_jinja_fail(r, "printing an empty range is not supported");
    int64_t begin = l->items[0].i, end = l->items[l->n - 1].i + (step > 0 ? 1 : -1);
    if (step != 1) return pl_jinja_fail(r, "printing a range with a step is not supported");
    snprintf(text, sizeof text, "range(%lld, %lld)", (long long)begin, (long long)end);
    return add(r, s, text);
}

static bool add_list(struct pl_jinja_run *r, struct pl_jinja_value *s,
                     const struct pl_jinja_value *v) {
    static const char *const marks[PL_JINJA_SEQUENCES][2] = {
        [PL_JINJA_PLAIN] = {"[", "]"},
        [PL_JINJA_TUPLE] = {"(", ")"},
        [PL_JINJA_KEYS] = {"dict_keys([", "])"},
        [PL_JINJA_VALUES] = {"dict_values([", "])"},
        [PL_JINJA_ITEMS] = {"dict_items([", "])"}};
    const struct pl_jinja_list *l = v->list;
    if (v->sequence == PL_JINJA_RANGE) return add_range(r, s, l);
    if (!add(r, s, marks[v->sequence][0])) return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i && !add(r, s, ", ")) || !pl_jinja_add_repr(r, s, &l->items[i])) return false;
    if (v->sequence == PL_JINJA_TUPLE && l->n == 1 && !add(r, s, ",")) return false;
    return add(r, s, marks[v->sequence][1]);
}

static bool add_map(struct pl_jinja_run *r, struct pl_jinja_value *s,
                    const struct pl_jinja_map *m) {
    if (!add(r, s, "{")) return false;
    for (size_t i = 0; i < m->n; i++)
        if ((i && !add(r, s, ", ")) || !pl_jinja_add_repr(r, s, &m->entries[i].key) ||
            !add(r, s, ": ") || !pl_jinja_add_repr(r, s, &m->entries[i].value))
            return false;
    return add(r, s, "}");
}

bool pl_jinja_add_repr(struct pl_jinja_run *r, struct pl_jinja_value *s,
                       const struct pl_jinja_value *v) {
    char text[PL_JINJA_FLOAT_ROOM];
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_UNDEFINED:
        return add(r, s, "Undefined");
    case PL_JINJA_NONE:
        return add(r, s, "None");
    case PL_JINJA_BOOL:
        return add(r, s, v->b ? "True" : "False");
    case PL_JINJA_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->i);
        return pl_jinja_spend(r, PL_JINJA_STEP_UNITS) && add(r, s, text);
    case PL_JINJA_FLOAT:
        return pl_jinja_grow(r, s, text, pl_jinja_float_repr(pl_jinja_meter(r), v->f, text));
    case PL_JINJA_STRING:
        return v->markup ? add(r, s, "Markup(") && add_string(r, s, v) && add(r, s, ")")
                         : add_string(r, s, v);
    case PL_JINJA_LIST:
        return add_list(r, s, v);
    case PL_JINJA_MAP:
        return add_map(r, s, v->map);
    default:
        return pl_jinja_fail(r, "printing a %s is not supported", pl_jinja_type_name(v));
    }
}

bool pl_jinja_str(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                  struct pl_jinja_value *out) {
    struct pl_jinja_value s = pl_jinja_literal("");
    if (v->kind == PL_JINJA_STRING) {
        *out = *v;
        out->markup = false;
        return true;
    }
    if (v->kind != PL_JINJA_UNDEFINED && !pl_jinja_add_repr(r, &s, v)) return false;
    *out = s;
    return true;
}

bool pl_jinja_join_all(struct pl_jinja_run *r, const struct pl_jinja_value *separator,
                       struct pl_jinja_iterator *it, bool strings_only,
                       struct pl_jinja_value *out) {
    struct pl_jinja_value s = pl_jinja_literal(""), v, text;
    bool done;
    for (bool first = true;; first = false) {
        if (!pl_jinja_next(r, it, &v, &done)) return false;
        if (done) break;
        if (strings_only && v.kind != PL_JINJA_STRING)
            return pl_jinja_fail(r, "join: expected str instance, %s found",
                                 pl_jinja_type_name(&v));
        if (!pl_jinja_str(r, &v, &text) ||
            (!first && !pl_jinja_grow(r, &s, separator->s, separator->n)) ||
            !pl_jinja_grow(r, &s, text.s, text.n))
            return false;
    }
    *out = s;
    return true;
}
