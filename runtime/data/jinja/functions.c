/* functions.c - functions that every program has: range, namespace, raise_exception, ... */
#include "runtime/data/jinja/run.h"

#include <time.h>

#define RANGE_MOST 100000 /* of Jinja's sandbox */

static bool call_range(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                       struct pl_jinja_value *out) {
    int64_t v[3] = {0, 0, 1};
    struct pl_jinja_list *l;
    struct pl_jinja_value item;
    if (c->keywords || c->n < 1 || c->n > 3) return pl_jinja_fail(r, "range(): 1 to 3 numbers");
    for (size_t i = 0; i < c->n; i++)
        if (!pl_jinja_integer(&c->positional[i], &v[c->n == 1 ? 1 : i]))
            return pl_jinja_fail(r, "range(): '%s' object cannot be interpreted as an integer",
                                 pl_jinja_type_name(&c->positional[i]));
    if (v[2] == 0) return pl_jinja_fail(r, "range() arg 3 must not be zero");
    if (!pl_jinja_make_list(r, 0, &l)) return false;
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        item = pl_jinja_int(i);
        if (l->n == RANGE_MOST) return pl_jinja_fail(r, "Range too big");
        if (!pl_jinja_push(r, l, &item)) return false;
        if (__builtin_add_overflow(i, v[2], &i)) break;
    }
    *out = pl_jinja_list(l, PL_JINJA_RANGE);
    return true;
}

/* A dict from another one, pairs, and keywords. */
static bool fill_map(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                     struct pl_jinja_map **out) {
    if (!pl_jinja_make_map(r, 0, out)) return false;
    if (c->n > 1) return pl_jinja_fail(r, "dict expected at most 1 argument");
    if (c->n && c->positional[0].kind != PL_JINJA_MAP)
        return pl_jinja_fail(r, "dict() of a %s is not supported",
                             pl_jinja_type_name(&c->positional[0]));
    const struct pl_jinja_map *const from[] = {c->n ? c->positional[0].map : NULL, c->keywords};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; from[k] && i < from[k]->n; i++)
            if (!pl_jinja_put(r, *out, &from[k]->entries[i].key, &from[k]->entries[i].value))
                return false;
    return true;
}

static bool call_dict(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                      struct pl_jinja_value *out) {
    struct pl_jinja_map *m;
    if (!fill_map(r, c, &m)) return false;
    *out = pl_jinja_map(m);
    return true;
}

static bool call_namespace(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                           struct pl_jinja_value *out) {
    struct pl_jinja_map *m;
    if (!fill_map(r, c, &m)) return false;
    for (size_t i = 0; i < m->n; i++)
        if (m->entries[i].key.kind == PL_JINJA_STRING && m->entries[i].key.n &&
            m->entries[i].key.s[0] == '_')
            return pl_jinja_fail(r, "a namespace cannot store names that begin with _");
    *out = (struct pl_jinja_value){.kind = PL_JINJA_NAMESPACE, .map = m};
    return true;
}

static bool call_raise(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                       struct pl_jinja_value *out) {
    struct pl_jinja_value text;
    (void)out;
    if (!pl_jinja_str(r, &c->arg[0], &text) || !pl_jinja_spend(r, text.n)) return false;
    struct pl_jinja_value seen = pl_jinja_string(text.s, strnlen(text.s, text.n));
    pl_jinja_trim(pl_jinja_meter(r), &seen, NULL, true, true);
    if (!seen.n) return pl_jinja_fail(r, "the template raises an exception without a text");
    return pl_jinja_fail(r, "%.*s", pl_jinja_whole(&text, 900), text.s);
}

/* datetime.now() at midnight: a run has a day, and no hours. */
static bool call_strftime_now(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                              struct pl_jinja_value *out) {
    const struct pl_jinja_inputs *in = r->inputs;
    struct tm tm = {
        .tm_year = in->year - 1900, .tm_mon = in->month - 1, .tm_mday = in->day, .tm_isdst = -1};
    char format[128], text[512];
    if (c->arg[0].kind != PL_JINJA_STRING)
        return pl_jinja_fail(r, "strftime_now(): a string is expected");
    if (c->arg[0].n >= sizeof format || strnlen(c->arg[0].s, c->arg[0].n) < c->arg[0].n)
        return pl_jinja_fail(r, "strftime_now(): this format is not supported");
    if (!pl_jinja_spend(r, sizeof text * PL_JINJA_CHARACTER_UNITS)) return false;
    memcpy(format, c->arg[0].s, c->arg[0].n);
    format[c->arg[0].n] = 0;
    for (const char *p = format; (p = strchr(p, '%')) != NULL; p += 2)
        if (!p[1] || !strchr("aAbBdHIjmMpSuwyYFTDe%", p[1]))
            return pl_jinja_fail(r, "strftime_now(): %%%c is not supported", p[1] ? p[1] : ' ');
    if (timegm(&tm) == (time_t)-1) return pl_jinja_fail(r, "strftime_now(): no such day");
    return pl_jinja_copy(r, text, strftime(text, sizeof text, format, &tm), out);
}

static const struct pl_jinja_function functions[] = {
    {"namespace", call_namespace, -1, {NULL}},
    {"raise_exception", call_raise, 1, {"message"}},
    {"range", call_range, -1, {NULL}},
    {"strftime_now", call_strftime_now, 1, {"format"}},
    {"dict", call_dict, -1, {NULL}},
    {"lipsum", NULL, 0, {NULL}},
    {"cycler", NULL, 0, {NULL}},
    {"joiner", NULL, 0, {NULL}},
    {NULL, NULL, 0, {NULL}},
};

const struct pl_jinja_function *pl_jinja_globals(void) {
    return functions;
}

const struct pl_jinja_function *pl_jinja_find_function(const struct pl_jinja_function *f,
                                                       const char *name, size_t n) {
    for (; f && f->name; f++)
        if (pl_jinja_named(name, n, f->name)) return f;
    return NULL;
}
