/* methods.c - methods of strings, dicts and lists. */
#include "runtime/data/jinja/filters.h"
#include "runtime/data/tokenizer/utf8.h"

#define METHOD(name)                                                                               \
    static bool name(struct pl_jinja_run *r, const struct pl_jinja_call *c,                        \
                     struct pl_jinja_value *out)

static bool absent(const struct pl_jinja_value *v) {
    return v->kind == PL_JINJA_ABSENT || v->kind == PL_JINJA_NONE;
}

static bool need_string(struct pl_jinja_run *r, const struct pl_jinja_value *v) {
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    return v->kind == PL_JINJA_STRING ||
           pl_jinja_fail(r, "a string is expected, not a %s", pl_jinja_type_name(v));
}

/* An integer argument; `fallback` where it is not given. */
static bool number_or(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t fallback,
                      int64_t *out) {
    *out = fallback;
    return v->kind == PL_JINJA_ABSENT || pl_jinja_integer(v, out) ||
           pl_jinja_fail(r, "an integer is expected, not a %s", pl_jinja_type_name(v));
}

static bool spend_characters(struct pl_jinja_run *r, const struct pl_jinja_value *v) {
    return pl_jinja_spend(r, PL_JINJA_CHARACTER_UNITS * (uint64_t)v->n);
}

static bool say(struct pl_jinja_value *out, bool b) {
    *out = pl_jinja_bool(b);
    return true;
}

/* --- shared with filters ---------------------------------------------------------------------- */
bool pl_jinja_change_case(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                          enum pl_jinja_case how, struct pl_jinja_value *out) {
    uint32_t unknown;
    bool markup = v->markup;
    if (!pl_jinja_recase(r->arena, v, how, out, &unknown))
        return unknown ? pl_jinja_fail(r, "the case of U+%04X is not supported", unknown)
                       : pl_jinja_fail_memory(r);
    out->markup = markup;
    return true;
}

bool pl_jinja_replace(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      const struct pl_jinja_value *old, const struct pl_jinja_value *new,
                      int64_t count, struct pl_jinja_value *out) {
    struct pl_jinja_value s = pl_jinja_literal("");
    size_t at = 0, plain = 0;
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    for (; count != 0 && at <= v->n; count--) {
        ptrdiff_t found = pl_jinja_search(meter, v->s + at, v->n - at, old->s, old->n, false);
        if (found < 0) break;
        size_t here = at + (size_t)found;
        if (!pl_jinja_grow(r, &s, v->s + plain, here - plain) ||
            !pl_jinja_grow(r, &s, new->s, new->n))
            return false;
        plain = here + old->n;
        /* the empty text is found before every character and at the end */
        at = old->n ? plain : here + (here < v->n ? pl_utf8_length(v->s[here]) : 1);
    }
    if (!pl_jinja_grow(r, &s, v->s + plain, v->n - plain)) return false;
    *out = s;
    return true;
}

/* Bytes of the line break at s, 0 = there is none. */
static size_t line_break(const char *s, size_t n) {
    uint32_t c;
    if (!n) return 0;
    if (s[0] == '\r' && n > 1 && s[1] == '\n') return 2;
    size_t length = pl_utf8_next(s, &c);
    bool is = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
              c == 0x2029;
    return is ? length : 0;
}

bool pl_jinja_split_lines(struct pl_jinja_run *r, const struct pl_jinja_value *v, bool one_more,
                          struct pl_jinja_list **out) {
    struct pl_jinja_value line;
    size_t begin = 0;
    if (!pl_jinja_make_list(r, 0, out) || !spend_characters(r, v)) return false;
    for (size_t i = 0; i < v->n;) {
        size_t n = line_break(v->s + i, v->n - i);
        if (!n) {
            i += pl_utf8_length(v->s[i]);
            continue;
        }
        line = pl_jinja_string(v->s + begin, i - begin);
        if (!pl_jinja_push(r, *out, &line)) return false;
        begin = i += n;
    }
    line = pl_jinja_string(v->s + begin, v->n - begin);
    return (begin == v->n && !one_more) || pl_jinja_push(r, *out, &line);
}

/* --- strings: ends and parts ------------------------------------------------------------------ */
static bool strip(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool left, bool right,
                  struct pl_jinja_value *out) {
    const struct pl_jinja_value *set = absent(&c->arg[0]) ? NULL : &c->arg[0];
    if (set && !need_string(r, set)) return false;
    *out = c->self;
    pl_jinja_trim(pl_jinja_meter(r), out, set, left, right);
    return pl_jinja_spend(r, 0);
}
METHOD(str_strip) {
    return strip(r, c, true, true, out);
}
METHOD(str_lstrip) {
    return strip(r, c, true, false, out);
}
METHOD(str_rstrip) {
    return strip(r, c, false, true, out);
}

static bool ends_with(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      const struct pl_jinja_value *part, bool at_end) {
    const char *s = at_end && v->n > part->n ? v->s + v->n - part->n : v->s;
    const struct pl_jinja_value end = pl_jinja_string(s, part->n < v->n ? part->n : v->n);
    return pl_jinja_equal(pl_jinja_meter(r), &end, part);
}

/* startswith and endswith: one string, or any of a tuple. */
static bool has_end(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool at_end,
                    struct pl_jinja_value *out) {
    const struct pl_jinja_value *any = &c->arg[0];
    bool tuple = any->kind == PL_JINJA_LIST && any->sequence == PL_JINJA_TUPLE, holds = false;
    size_t n = tuple ? any->list->n : 1;
    if (c->n > 1) return pl_jinja_fail(r, "startswith within a part is not supported");
    for (size_t i = 0; i < n; i++) {
        const struct pl_jinja_value *part = tuple ? &any->list->items[i] : any;
        if (!need_string(r, part)) return false;
        holds |= ends_with(r, &c->self, part, at_end);
    }
    return say(out, holds);
}
METHOD(str_startswith) {
    return has_end(r, c, false, out);
}
METHOD(str_endswith) {
    return has_end(r, c, true, out);
}

static bool remove_end(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool at_end,
                       struct pl_jinja_value *out) {
    if (!need_string(r, &c->arg[0])) return false;
    *out = c->self;
    if (!ends_with(r, out, &c->arg[0], at_end)) return true;
    out->n -= c->arg[0].n;
    if (!at_end) out->s += c->arg[0].n;
    return true;
}
METHOD(str_removeprefix) {
    return remove_end(r, c, false, out);
}
METHOD(str_removesuffix) {
    return remove_end(r, c, true, out);
}

static bool push_part(struct pl_jinja_run *r, struct pl_jinja_list *l,
                      const struct pl_jinja_value *of, size_t begin, size_t end) {
    struct pl_jinja_value part = pl_jinja_string(of->s + begin, end - begin);
    part.markup = of->markup;
    return pl_jinja_push(r, l, &part);
}

static size_t past_space(const struct pl_jinja_value *v, size_t at) {
    for (size_t n; (n = pl_jinja_space_at(v->s + at, v->n - at, false)) != 0;)
        at += n;
    return at;
}

/* Words between white space, at most `most` cuts; the rest keeps what is in it. */
static bool split_words(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t most,
                        struct pl_jinja_list *l) {
    if (!spend_characters(r, v)) return false;
    size_t at = past_space(v, 0);
    for (; at < v->n && most != 0; most--) {
        size_t end = at;
        while (end < v->n && !pl_jinja_space_at(v->s + end, v->n - end, false))
            end += pl_utf8_length(v->s[end]);
        if (!push_part(r, l, v, at, end)) return false;
        at = past_space(v, end);
    }
    if (at == v->n) return true;
    struct pl_jinja_value rest = pl_jinja_string(v->s + at, v->n - at);
    pl_jinja_trim(pl_jinja_meter(r), &rest, NULL, false, true);
    return push_part(r, l, v, at, at + rest.n);
}

static bool split_by(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                     const struct pl_jinja_value *by, int64_t most, struct pl_jinja_list *l) {
    size_t at = 0;
    for (; most != 0; most--) {
        ptrdiff_t found =
            pl_jinja_search(pl_jinja_meter(r), v->s + at, v->n - at, by->s, by->n, false);
        if (found < 0) break;
        if (!push_part(r, l, v, at, at + (size_t)found)) return false;
        at += (size_t)found + by->n;
    }
    return push_part(r, l, v, at, v->n);
}

static bool rsplit_by(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      const struct pl_jinja_value *by, int64_t most, struct pl_jinja_list *l) {
    size_t end = v->n;
    for (; most != 0; most--) {
        ptrdiff_t found = pl_jinja_search(pl_jinja_meter(r), v->s, end, by->s, by->n, true);
        if (found < 0) break;
        if (!push_part(r, l, v, (size_t)found + by->n, end)) return false;
        end = (size_t)found;
    }
    if (!push_part(r, l, v, 0, end)) return false;
    for (size_t i = 0; i < l->n / 2; i++) {
        struct pl_jinja_value part = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = part;
    }
    return true;
}

static bool split(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool from_end,
                  struct pl_jinja_value *out) {
    const struct pl_jinja_value *by = &c->arg[0];
    struct pl_jinja_list *l;
    int64_t most;
    if (!number_or(r, &c->arg[1], -1, &most) || !pl_jinja_make_list(r, 0, &l)) return false;
    if (absent(by) && from_end && most >= 0)
        return pl_jinja_fail(r, "rsplit at white space with a limit is not supported");
    if (!absent(by) && (!need_string(r, by) || (!by->n && !pl_jinja_fail(r, "empty separator"))))
        return false;
    *out = pl_jinja_list(l, PL_JINJA_PLAIN);
    return absent(by) ? split_words(r, &c->self, most, l)
           : from_end ? rsplit_by(r, &c->self, by, most, l)
                      : split_by(r, &c->self, by, most, l);
}
METHOD(str_split) {
    return split(r, c, false, out);
}
METHOD(str_rsplit) {
    return split(r, c, true, out);
}

METHOD(str_splitlines) {
    struct pl_jinja_list *l;
    if (pl_jinja_truth(&c->arg[0])) return pl_jinja_fail(r, "keepends is not supported");
    if (!pl_jinja_split_lines(r, &c->self, false, &l)) return false;
    *out = pl_jinja_list(l, PL_JINJA_PLAIN);
    return true;
}

static bool partition(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool from_end,
                      struct pl_jinja_value *out) {
    const struct pl_jinja_value *v = &c->self, *by = &c->arg[0];
    struct pl_jinja_list *l;
    if (!need_string(r, by) || !pl_jinja_make_list(r, 3, &l)) return false;
    if (!by->n) return pl_jinja_fail(r, "empty separator");
    ptrdiff_t found = pl_jinja_search(pl_jinja_meter(r), v->s, v->n, by->s, by->n, from_end);
    size_t begin = found >= 0 ? (size_t)found : from_end ? 0 : v->n;
    size_t end = found >= 0 ? begin + by->n : begin;
    *out = pl_jinja_list(l, PL_JINJA_TUPLE);
    return push_part(r, l, v, 0, begin) && push_part(r, l, v, begin, end) &&
           push_part(r, l, v, end, v->n);
}
METHOD(str_partition) {
    return partition(r, c, false, out);
}
METHOD(str_rpartition) {
    return partition(r, c, true, out);
}

/* --- strings: looking for --------------------------------------------------------------------- */
static bool find_part(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool from_end,
                      bool must_be_there, struct pl_jinja_value *out) {
    const struct pl_jinja_value *v = &c->self, *part = &c->arg[0];
    int64_t begin;
    if (!need_string(r, part) || !number_or(r, &c->arg[1], 0, &begin)) return false;
    if (begin < 0 || c->arg[2].kind != PL_JINJA_ABSENT)
        return pl_jinja_fail(r, "find within a part is not supported");
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    size_t from = pl_jinja_byte_of(meter, v->s, v->n, (size_t)begin);
    bool beyond = begin && pl_jinja_count(meter, v->s, v->n) < (uint64_t)begin;
    ptrdiff_t found =
        beyond ? -1 : pl_jinja_search(meter, v->s + from, v->n - from, part->s, part->n, from_end);
    if (found < 0 && must_be_there) return pl_jinja_fail(r, "substring not found");
    *out =
        pl_jinja_int(found < 0 ? -1 : (int64_t)pl_jinja_count(meter, v->s, from + (size_t)found));
    return pl_jinja_spend(r, 0);
}
METHOD(str_find) {
    return find_part(r, c, false, false, out);
}
METHOD(str_rfind) {
    return find_part(r, c, true, false, out);
}
METHOD(str_index) {
    return find_part(r, c, false, true, out);
}
METHOD(str_rindex) {
    return find_part(r, c, true, true, out);
}

METHOD(str_count) {
    const struct pl_jinja_value *v = &c->self, *part = &c->arg[0];
    int64_t n = 0;
    if (!need_string(r, part)) return false;
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    if (!part->n) n = (int64_t)pl_jinja_count(meter, v->s, v->n) + 1;
    for (size_t at = 0; part->n && at < v->n; n++) {
        ptrdiff_t found = pl_jinja_search(meter, v->s + at, v->n - at, part->s, part->n, false);
        if (found < 0) break;
        at += (size_t)found + part->n;
    }
    *out = pl_jinja_int(n);
    return pl_jinja_spend(r, 0);
}

METHOD(str_replace) {
    int64_t count;
    if (!need_string(r, &c->arg[0]) || !need_string(r, &c->arg[1]) ||
        !number_or(r, &c->arg[2], -1, &count))
        return false;
    if (c->self.markup) return pl_jinja_fail(r, "replace after `safe` is not supported");
    return pl_jinja_replace(r, &c->self, &c->arg[0], &c->arg[1], count, out);
}

METHOD(str_join) {
    struct pl_jinja_iterator *it;
    if (c->self.markup) return pl_jinja_fail(r, "join after `safe` is not supported");
    return pl_jinja_iterate(r, &c->arg[0], &it) && pl_jinja_join_all(r, &c->self, it, true, out);
}

/* --- strings: cases, classes, widths ---------------------------------------------------------- */
#define CASE_METHOD(name, how)                                                                     \
    METHOD(name) {                                                                                 \
        return pl_jinja_change_case(r, &c->self, how, out);                                        \
    }
CASE_METHOD(str_lower, PL_JINJA_LOWER)
CASE_METHOD(str_upper, PL_JINJA_UPPER)
CASE_METHOD(str_title, PL_JINJA_TITLE)
CASE_METHOD(str_capitalize, PL_JINJA_CAPITALIZE)
CASE_METHOD(str_swapcase, PL_JINJA_SWAPCASE)

static bool classify(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                     enum pl_jinja_class class, struct pl_jinja_value *out) {
    uint32_t unknown;
    bool holds;
    if (!pl_jinja_classify(pl_jinja_meter(r), &c->self, class, &holds, &unknown))
        return pl_jinja_fail(r, "whether U+%04X is a digit is not known", unknown);
    return say(out, holds) && pl_jinja_spend(r, 0);
}
#define CLASS_METHOD(name, class)                                                                  \
    METHOD(name) {                                                                                 \
        return classify(r, c, class, out);                                                         \
    }
CLASS_METHOD(str_isalpha, PL_JINJA_ALPHA)
CLASS_METHOD(str_isalnum, PL_JINJA_ALNUM)
CLASS_METHOD(str_isdigit, PL_JINJA_DIGIT)
CLASS_METHOD(str_isdecimal, PL_JINJA_DECIMAL)
CLASS_METHOD(str_isspace, PL_JINJA_SPACE)
CLASS_METHOD(str_islower, PL_JINJA_IS_LOWER)
CLASS_METHOD(str_isupper, PL_JINJA_IS_UPPER)
CLASS_METHOD(str_isascii, PL_JINJA_ASCII)

static bool justify(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool right,
                    struct pl_jinja_value *out) {
    struct pl_jinja_value fill = pl_jinja_literal(" "), pad;
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    int64_t width, have = (int64_t)pl_jinja_count(meter, c->self.s, c->self.n);
    if (!number_or(r, &c->arg[0], 0, &width)) return false;
    if (c->arg[1].kind != PL_JINJA_ABSENT) fill = c->arg[1];
    if (!need_string(r, &fill)) return false;
    if (pl_jinja_count(meter, fill.s, fill.n) != 1)
        return pl_jinja_fail(r, "one character to fill with");
    const struct pl_jinja_value times = pl_jinja_int(width > have ? width - have : 0);
    return pl_jinja_binary(r, PL_JINJA_MUL, &fill, &times, &pad) &&
           pl_jinja_join(r, right ? &pad : &c->self, right ? &c->self : &pad, out);
}
METHOD(str_ljust) {
    return justify(r, c, false, out);
}
METHOD(str_rjust) {
    return justify(r, c, true, out);
}

/* --- dicts and lists -------------------------------------------------------------------------- */
METHOD(map_get) {
    const struct pl_jinja_value *v;
    *out = c->arg[1].kind == PL_JINJA_ABSENT ? pl_jinja_none() : c->arg[1];
    if (!pl_jinja_hashable(pl_jinja_meter(r), &c->arg[0]))
        return pl_jinja_fail(r, "unhashable type: '%s'", pl_jinja_type_name(&c->arg[0]));
    if ((v = pl_jinja_map_get(pl_jinja_meter(r), c->self.map, &c->arg[0])) != NULL) *out = *v;
    return pl_jinja_spend(r, 0);
}

/* A view of a dict: its keys, its values or pairs of both. */
static bool view(struct pl_jinja_run *r, const struct pl_jinja_call *c, enum pl_jinja_sequence what,
                 struct pl_jinja_value *out) {
    const struct pl_jinja_map *m = c->self.map;
    struct pl_jinja_list *l, *pair;
    if (!pl_jinja_make_list(r, m->n, &l)) return false;
    for (size_t i = 0; i < m->n; i++) {
        const struct pl_jinja_entry *e = &m->entries[i];
        struct pl_jinja_value v = what == PL_JINJA_KEYS ? e->key : e->value;
        if (what == PL_JINJA_ITEMS) {
            if (!pl_jinja_make_list(r, 2, &pair) || !pl_jinja_push(r, pair, &e->key) ||
                !pl_jinja_push(r, pair, &e->value))
                return false;
            v = pl_jinja_list(pair, PL_JINJA_TUPLE);
        }
        if (!pl_jinja_push(r, l, &v)) return false;
    }
    *out = pl_jinja_list(l, what);
    return true;
}
METHOD(map_items) {
    return view(r, c, PL_JINJA_ITEMS, out);
}
METHOD(map_keys) {
    return view(r, c, PL_JINJA_KEYS, out);
}
METHOD(map_values) {
    return view(r, c, PL_JINJA_VALUES, out);
}

/* Values do not change, so a copy is the value itself. */
METHOD(copy) {
    (void)r;
    *out = c->self;
    return true;
}

METHOD(list_count) {
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++)
        n += pl_jinja_equal(pl_jinja_meter(r), &c->self.list->items[i], &c->arg[0]);
    *out = pl_jinja_int(n);
    return pl_jinja_spend(r, 0);
}

METHOD(list_index) {
    for (size_t i = 0; i < c->self.list->n; i++) {
        if (!pl_jinja_equal(pl_jinja_meter(r), &c->self.list->items[i], &c->arg[0])) continue;
        *out = pl_jinja_int((int64_t)i);
        return true;
    }
    return pl_jinja_fail(r, "the value is not in the list");
}

/* --- tables ----------------------------------------------------------------------------------- */
#define NOT_SUPPORTED(name)                                                                        \
    {                                                                                              \
#name, NULL, 0, {                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, NULL, 0, {                                                                           \
            NULL                                                                                   \
        }                                                                                          \
    }

static const struct pl_jinja_function of_string[] = {
    {"split", str_split, 0, {"sep", "maxsplit"}},
    {"strip", str_strip, 0, {"chars"}},
    {"lstrip", str_lstrip, 0, {"chars"}},
    {"rstrip", str_rstrip, 0, {"chars"}},
    {"startswith", str_startswith, 1, {"prefix", "start", "end"}},
    {"endswith", str_endswith, 1, {"suffix", "start", "end"}},
    {"replace", str_replace, 2, {"old", "new", "count"}},
    {"lower", str_lower, 0, {NULL}},
    {"upper", str_upper, 0, {NULL}},
    {"title", str_title, 0, {NULL}},
    {"capitalize", str_capitalize, 0, {NULL}},
    {"swapcase", str_swapcase, 0, {NULL}},
    {"join", str_join, 1, {"iterable"}},
    {"find", str_find, 1, {"sub", "start", "end"}},
    {"rfind", str_rfind, 1, {"sub", "start", "end"}},
    {"index", str_index, 1, {"sub", "start", "end"}},
    {"rindex", str_rindex, 1, {"sub", "start", "end"}},
    {"count", str_count, 1, {"sub"}},
    {"rsplit", str_rsplit, 0, {"sep", "maxsplit"}},
    {"splitlines", str_splitlines, 0, {"keepends"}},
    {"partition", str_partition, 1, {"sep"}},
    {"rpartition", str_rpartition, 1, {"sep"}},
    {"removeprefix", str_removeprefix, 1, {"prefix"}},
    {"removesuffix", str_removesuffix, 1, {"suffix"}},
    {"isalpha", str_isalpha, 0, {NULL}},
    {"isalnum", str_isalnum, 0, {NULL}},
    {"isdigit", str_isdigit, 0, {NULL}},
    {"isdecimal", str_isdecimal, 0, {NULL}},
    {"isspace", str_isspace, 0, {NULL}},
    {"islower", str_islower, 0, {NULL}},
    {"isupper", str_isupper, 0, {NULL}},
    {"isascii", str_isascii, 0, {NULL}},
    {"ljust", str_ljust, 1, {"width", "fillchar"}},
    {"rjust", str_rjust, 1, {"width", "fillchar"}},
    NOT_SUPPORTED(casefold),
    NOT_SUPPORTED(center),
    NOT_SUPPORTED(encode),
    NOT_SUPPORTED(expandtabs),
    NOT_SUPPORTED(format),
    NOT_SUPPORTED(format_map),
    NOT_SUPPORTED(isidentifier),
    NOT_SUPPORTED(isnumeric),
    NOT_SUPPORTED(isprintable),
    NOT_SUPPORTED(istitle),
    NOT_SUPPORTED(maketrans),
    NOT_SUPPORTED(translate),
    NOT_SUPPORTED(zfill),
    END,
};

static const struct pl_jinja_function of_map[] = {
    {"items", map_items, 0, {NULL}},
    {"get", map_get, 1, {"key", "default"}},
    {"keys", map_keys, 0, {NULL}},
    {"values", map_values, 0, {NULL}},
    {"copy", copy, 0, {NULL}},
    NOT_SUPPORTED(fromkeys),
    END,
};

static const struct pl_jinja_function of_list[] = {
    {"index", list_index, 1, {"value"}},
    {"count", list_count, 1, {"value"}},
    {"copy", copy, 0, {NULL}},
    END,
};

static const struct pl_jinja_function of_tuple[] = {
    {"index", list_index, 1, {"value"}}, {"count", list_count, 1, {"value"}}, END};

static const struct pl_jinja_function of_view[] = {
    NOT_SUPPORTED(isdisjoint), NOT_SUPPORTED(mapping), NOT_SUPPORTED(start), NOT_SUPPORTED(stop),
    NOT_SUPPORTED(step),       NOT_SUPPORTED(index),   NOT_SUPPORTED(count), END};

static const struct pl_jinja_function of_number[] = {
    NOT_SUPPORTED(real),       NOT_SUPPORTED(imag),
    NOT_SUPPORTED(numerator),  NOT_SUPPORTED(denominator),
    NOT_SUPPORTED(conjugate),  NOT_SUPPORTED(bit_length),
    NOT_SUPPORTED(bit_count),  NOT_SUPPORTED(to_bytes),
    NOT_SUPPORTED(from_bytes), NOT_SUPPORTED(as_integer_ratio),
    NOT_SUPPORTED(is_integer), NOT_SUPPORTED(hex),
    NOT_SUPPORTED(fromhex),    END};

const struct pl_jinja_function *pl_jinja_methods(const struct pl_jinja_value *v) {
    static const struct pl_jinja_function *const of_sequence[PL_JINJA_SEQUENCES] = {
        of_list, of_tuple, of_view, of_view, of_view, of_view};
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_STRING:
        return of_string;
    case PL_JINJA_MAP:
        return of_map;
    case PL_JINJA_LIST:
        return of_sequence[v->sequence];
    case PL_JINJA_BOOL:
    case PL_JINJA_INT:
    case PL_JINJA_FLOAT:
        return of_number;
    default:
        return NULL;
    }
}
