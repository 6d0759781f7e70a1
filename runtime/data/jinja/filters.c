/* filters.c - filters of one value, and the table of all. */
#include "runtime/data/jinja/filters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- text ------------------------------------------------------------------------------------- */
/* str(v), but what `safe` made stays that. */
static bool soft_str(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                     struct pl_jinja_value *out) {
    bool markup = v->kind == PL_JINJA_STRING && v->markup;
    if (!pl_jinja_str(r, v, out)) return false;
    out->markup = markup;
    return true;
}

FILTER(string) {
    return soft_str(r, &c->self, out);
}

FILTER(safe) {
    if (!pl_jinja_str(r, &c->self, out)) return false;
    out->markup = true;
    return true;
}

/* A string that `safe` made is not escaped again. */
FILTER(escape) {
    return soft_str(r, &c->self, out) && pl_jinja_escape(r, out);
}
FILTER(forceescape) {
    if (!pl_jinja_str(r, &c->self, out)) return false;
    out->markup = false;
    return pl_jinja_escape(r, out);
}

/* self % arguments, as a tuple */
FILTER(format) {
    struct pl_jinja_value text, values;
    struct pl_jinja_list *l;
    if (c->keywords && c->keywords->n)
        return pl_jinja_fail(r, "format: names of values are not supported");
    if (!soft_str(r, &c->self, &text) || !pl_jinja_make_list(r, c->n, &l)) return false;
    for (size_t i = 0; i < c->n; i++)
        if (!pl_jinja_push(r, l, &c->positional[i])) return false;
    values = pl_jinja_list(l, PL_JINJA_TUPLE);
    return pl_jinja_binary(r, PL_JINJA_MOD, &text, &values, out);
}

static bool recase(struct pl_jinja_run *r, const struct pl_jinja_call *c, enum pl_jinja_case how,
                   struct pl_jinja_value *out) {
    struct pl_jinja_value text;
    return soft_str(r, &c->self, &text) && pl_jinja_change_case(r, &text, how, out);
}
FILTER(upper) {
    return recase(r, c, PL_JINJA_UPPER, out);
}
FILTER(lower) {
    return recase(r, c, PL_JINJA_LOWER, out);
}
FILTER(capitalize) {
    return recase(r, c, PL_JINJA_CAPITALIZE, out);
}

/* Words begin after white space and after - ( { [ <. */
FILTER(title) {
    struct pl_jinja_value text, word, s = pl_jinja_literal("");
    if (!soft_str(r, &c->self, &text) ||
        !pl_jinja_spend(r, PL_JINJA_CHARACTER_UNITS * (uint64_t)text.n))
        return false;
    for (size_t begin = 0, i = 0; i < text.n; begin = i) {
        bool between = true;
        while (i < text.n && between) {
            size_t space = pl_jinja_space_at(text.s + i, text.n - i, false);
            between = space || strchr("-({[<", text.s[i] ? text.s[i] : 'x');
            if (between) i += space ? space : 1;
        }
        if (!pl_jinja_grow(r, &s, text.s + begin, i - begin)) return false;
        for (begin = i; i < text.n && !pl_jinja_space_at(text.s + i, text.n - i, false) &&
                        !strchr("-({[<", text.s[i] ? text.s[i] : 'x');)
            i++;
        word = pl_jinja_string(text.s + begin, i - begin);
        if (!pl_jinja_change_case(r, &word, PL_JINJA_CAPITALIZE, &word) ||
            !pl_jinja_grow(r, &s, word.s, word.n))
            return false;
    }
    *out = s;
    return true;
}

FILTER(trim) {
    const struct pl_jinja_value *set = &c->arg[0];
    bool given = set->kind != PL_JINJA_ABSENT && set->kind != PL_JINJA_NONE;
    if (given && set->kind != PL_JINJA_STRING)
        return pl_jinja_fail(r, "trim: a string of characters is expected");
    if (!soft_str(r, &c->self, out)) return false;
    pl_jinja_trim(pl_jinja_meter(r), out, given ? set : NULL, true, true);
    return pl_jinja_spend(r, 0);
}

FILTER(replace) {
    struct pl_jinja_value text, old, new;
    int64_t count = -1;
    if (c->arg[2].kind != PL_JINJA_ABSENT && c->arg[2].kind != PL_JINJA_NONE &&
        !pl_jinja_integer(&c->arg[2], &count))
        return pl_jinja_fail(r, "replace: a count is a number");
    return pl_jinja_str(r, &c->self, &text) && pl_jinja_str(r, &c->arg[0], &old) &&
           pl_jinja_str(r, &c->arg[1], &new) && pl_jinja_replace(r, &text, &old, &new, count, out);
}

FILTER(tojson) {
    struct pl_jinja_value s = pl_jinja_literal("");
    if (!pl_jinja_add_json(r, &s, &c->self, c)) return false;
    *out = s;
    return true;
}

/* Lines after the first one move right; empty ones do not, unless they are asked to. */
FILTER(indent) {
    const struct pl_jinja_value *width = &c->arg[0], blank = pl_jinja_literal(" ");
    const struct pl_jinja_value four = pl_jinja_int(4);
    struct pl_jinja_value by, s = pl_jinja_literal("");
    bool first = pl_jinja_truth(&c->arg[1]), blanks = pl_jinja_truth(&c->arg[2]);
    struct pl_jinja_list *lines;
    if (width->kind == PL_JINJA_ABSENT) width = &four;
    if (c->self.kind != PL_JINJA_STRING)
        return c->self.kind == PL_JINJA_UNDEFINED
                   ? pl_jinja_fail_undefined(r, &c->self)
                   : pl_jinja_fail(r, "indent of a %s", pl_jinja_type_name(&c->self));
    if (width->kind == PL_JINJA_STRING)
        by = *width;
    else if (!pl_jinja_binary(r, PL_JINJA_MUL, &blank, width, &by))
        return false;
    if (!pl_jinja_split_lines(r, &c->self, true, &lines)) return false;
    for (size_t i = 0; i < lines->n; i++) {
        const struct pl_jinja_value *line = &lines->items[i];
        bool moved = i ? line->n || blanks : first;
        if ((i && !pl_jinja_grow(r, &s, "\n", 1)) || (moved && !pl_jinja_grow(r, &s, by.s, by.n)) ||
            !pl_jinja_grow(r, &s, line->s, line->n))
            return false;
    }
    *out = s;
    return true;
}

/* --- numbers ---------------------------------------------------------------------------------- */
/* Python's float(text); false: it is none. */
static bool parse_float(struct pl_jinja_run *r, const struct pl_jinja_value *v, double *out) {
    struct pl_jinja_value s = *v;
    char text[128], *end;
    pl_jinja_trim(pl_jinja_meter(r), &s, NULL, true, true);
    pl_jinja_pay(pl_jinja_meter(r), PL_JINJA_NUMBER_UNITS);
    if (!s.n || s.n >= sizeof text) return false;
    memcpy(text, s.s, s.n);
    text[s.n] = 0;
    if (strspn(text, "0123456789+-.eE") != s.n) return false; /* neither 0x1p3 nor nan(1) */
    *out = strtod(text, &end);
    return *end == 0;
}

static bool parse_int(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t *out) {
    struct pl_jinja_value s = *v;
    char text[32], *end;
    pl_jinja_trim(pl_jinja_meter(r), &s, NULL, true, true);
    if (!s.n || s.n >= sizeof text) return false;
    memcpy(text, s.s, s.n);
    text[s.n] = 0;
    if (strspn(text, "0123456789+-") != s.n) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == 0 && end > text && errno == 0;
}

/* A string that Python might read as a number and that is not read here. */
static bool is_odd_number(struct pl_jinja_run *r, const struct pl_jinja_value *v) {
    if (v->n >= 24) return true;
    for (size_t i = 0; i < v->n; i++)
        if ((unsigned char)v->s[i] >= 0x80 || v->s[i] == '_') return true;
    struct pl_jinja_value s = *v;
    pl_jinja_trim(pl_jinja_meter(r), &s, NULL, true, true);
    for (; s.n && strchr("+-", *s.s ? *s.s : 'x'); s.n--)
        s.s++;
    return s.n && strchr("iInN", *s.s ? *s.s : 'x'); /* inf, nan */
}

static void or_default(const struct pl_jinja_value *given, struct pl_jinja_value fallback,
                       struct pl_jinja_value *out) {
    *out = given->kind == PL_JINJA_ABSENT ? fallback : *given;
}

static bool float_to_int(struct pl_jinja_run *r, double f, struct pl_jinja_value *out) {
    if (!(f > -0x1p63 && f < 0x1p63))
        return pl_jinja_fail(r, "integers beyond 64 bits are not supported");
    *out = pl_jinja_int((int64_t)f);
    return true;
}

FILTER(int) {
    const struct pl_jinja_value *v = &c->self;
    int64_t i;
    double f;
    if (c->arg[1].kind != PL_JINJA_ABSENT) return pl_jinja_fail(r, "int(base) is not supported");
    or_default(&c->arg[0], pl_jinja_int(0), out);
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    if (v->kind == PL_JINJA_FLOAT) return float_to_int(r, v->f, out);
    if (pl_jinja_integer(v, &i) || (v->kind == PL_JINJA_STRING && parse_int(r, v, &i))) {
        *out = pl_jinja_int(i);
        return true;
    }
    if (v->kind != PL_JINJA_STRING) return true;
    if (parse_float(r, v, &f)) return float_to_int(r, f, out);
    return !is_odd_number(r, v) || pl_jinja_fail(r, "int: this number is not supported");
}

FILTER(float) {
    const struct pl_jinja_value *v = &c->self;
    double f;
    or_default(&c->arg[0], pl_jinja_float(0), out);
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    if (pl_jinja_number(v, &f) || (v->kind == PL_JINJA_STRING && parse_float(r, v, &f))) {
        *out = pl_jinja_float(f);
        return true;
    }
    return v->kind != PL_JINJA_STRING || !is_odd_number(r, v) ||
           pl_jinja_fail(r, "float: this number is not supported");
}

FILTER(abs) {
    const struct pl_jinja_value zero = pl_jinja_int(0);
    bool negative;
    if (c->self.kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, &c->self);
    if (!pl_jinja_is_number(&c->self))
        return pl_jinja_fail(r, "abs of a %s", pl_jinja_type_name(&c->self));
    if (c->self.kind == PL_JINJA_FLOAT) {
        *out = pl_jinja_float(fabs(c->self.f));
        return true;
    }
    return pl_jinja_compare(r, PL_JINJA_LT, &c->self, &zero, &negative) &&
           pl_jinja_binary(r, negative ? PL_JINJA_SUB : PL_JINJA_ADD, &zero, &c->self, out);
}

FILTER(round) {
    char text[400];
    int64_t precision = 0;
    if (c->arg[1].kind != PL_JINJA_ABSENT && !pl_jinja_is(&c->arg[1], "common"))
        return pl_jinja_fail(r, "round: this method is not supported");
    if (c->arg[0].kind != PL_JINJA_ABSENT && !pl_jinja_integer(&c->arg[0], &precision))
        return pl_jinja_fail(r, "round: a precision is an integer");
    if (c->self.kind != PL_JINJA_FLOAT || precision < 0 || precision > 20)
        return pl_jinja_fail(r, "round of a %s to %lld digits is not supported",
                             pl_jinja_type_name(&c->self), (long long)precision);
    if (!pl_jinja_spend(r, sizeof text * PL_JINJA_CHARACTER_UNITS)) return false;
    snprintf(text, sizeof text, "%.*f", (int)precision, c->self.f);
    *out = pl_jinja_float(strtod(text, NULL));
    return true;
}

/* --- anything --------------------------------------------------------------------------------- */
FILTER(default) {
    (void)r;
    bool missing = c->self.kind == PL_JINJA_UNDEFINED ||
                   (pl_jinja_truth(&c->arg[1]) && !pl_jinja_truth(&c->self));
    *out = c->self;
    if (missing) or_default(&c->arg[0], pl_jinja_literal(""), out);
    return true;
}

FILTER(length) {
    size_t n;
    if (!pl_jinja_length(pl_jinja_meter(r), &c->self, &n))
        return pl_jinja_fail(r, "object of type '%s' has no len()", pl_jinja_type_name(&c->self));
    *out = pl_jinja_int((int64_t)n);
    return pl_jinja_spend(r, 0);
}

/* Attributes alone, no items. */
FILTER(attr) {
    const struct pl_jinja_value *name = &c->arg[0];
    if (c->self.kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, &c->self);
    if (name->kind != PL_JINJA_STRING) return pl_jinja_fail(r, "attr: a name is expected");
    if (!pl_jinja_member(r, &c->self, name->s, name->n, out)) return false;
    if (out->kind == PL_JINJA_ABSENT)
        *out = (struct pl_jinja_value){.kind = PL_JINJA_UNDEFINED, .s = name->s, .n = name->n};
    return true;
}

/* --- table ------------------------------------------------------------------------------------ */
#define F(name, required, ...)                                                                     \
    {                                                                                              \
#name, pl_jinja_filter_##name, required, {                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define NOT_SUPPORTED(name)                                                                        \
    {                                                                                              \
#name, NULL, -1, {                                                                         \
            NULL                                                                                   \
        }                                                                                          \
    }

static const struct pl_jinja_function filters[] = {
    F(tojson, 0, "ensure_ascii", "indent", "separators", "sort_keys"),
    F(trim, 0, "chars"),
    F(length, 0, NULL),
    {"count", pl_jinja_filter_length, 0, {NULL}},
    F(string, 0, NULL),
    F(default, 0, "default_value", "boolean"),
    {"d", pl_jinja_filter_default, 0, {"default_value", "boolean"}},
    F(items, 0, NULL),
    F(join, 0, "d", "attribute"),
    F(list, 0, NULL),
    F(map, -1, NULL),
    F(select, -1, NULL),
    F(reject, -1, NULL),
    F(selectattr, -1, NULL),
    F(rejectattr, -1, NULL),
    F(safe, 0, NULL),
    F(escape, 0, NULL),
    {"e", pl_jinja_filter_escape, 0, {NULL}},
    F(forceescape, 0, NULL),
    F(format, -1, NULL),
    F(lower, 0, NULL),
    F(upper, 0, NULL),
    F(title, 0, NULL),
    F(capitalize, 0, NULL),
    F(dictsort, 0, "case_sensitive", "by", "reverse"),
    F(sort, 0, "reverse", "case_sensitive", "attribute"),
    F(unique, 0, "case_sensitive", "attribute"),
    F(min, 0, "case_sensitive", "attribute"),
    F(max, 0, "case_sensitive", "attribute"),
    F(sum, 0, "attribute", "start"),
    F(first, 0, NULL),
    F(last, 0, NULL),
    F(reverse, 0, NULL),
    F(replace, 2, "old", "new", "count"),
    F(indent, 0, "width", "first", "blank"),
    F(int, 0, "default", "base"),
    F(float, 0, "default"),
    F(abs, 0, NULL),
    F(round, 0, "precision", "method"),
    F(attr, 1, "name"),
    NOT_SUPPORTED(batch),
    NOT_SUPPORTED(center),
    NOT_SUPPORTED(filesizeformat),
    NOT_SUPPORTED(groupby),
    NOT_SUPPORTED(pprint),
    NOT_SUPPORTED(random),
    NOT_SUPPORTED(slice),
    NOT_SUPPORTED(striptags),
    NOT_SUPPORTED(truncate),
    NOT_SUPPORTED(urlencode),
    NOT_SUPPORTED(urlize),
    NOT_SUPPORTED(wordcount),
    NOT_SUPPORTED(wordwrap),
    NOT_SUPPORTED(xmlattr),
    {NULL, NULL, 0, {NULL}},
};

const struct pl_jinja_function *pl_jinja_filters(void) {
    return filters;
}
