/* operators.c - arithmetic, comparisons and slices, as Python does them. */
#include "runtime/data/jinja/run.h"
#include "runtime/data/tokenizer/utf8.h"

#include <math.h>
#include <stdio.h>

static const char *const signs[] = {
    [PL_JINJA_ADD] = "+",    [PL_JINJA_SUB] = "-", [PL_JINJA_MUL] = "*",  [PL_JINJA_DIV] = "/",
    [PL_JINJA_FLOOR] = "//", [PL_JINJA_MOD] = "%", [PL_JINJA_POW] = "**", [PL_JINJA_LT] = "<",
    [PL_JINJA_LE] = "<=",    [PL_JINJA_GT] = ">",  [PL_JINJA_GE] = ">="};

static bool unsupported(struct pl_jinja_run *r, enum pl_jinja_op op, const struct pl_jinja_value *a,
                        const struct pl_jinja_value *b) {
    if (a->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, a);
    if (b->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, b);
    return pl_jinja_fail(r, "`%s` between '%s' and '%s'", signs[op], pl_jinja_type_name(a),
                         pl_jinja_type_name(b));
}

/* --- numbers ---------------------------------------------------------------------------------- */
/* Rounded towards minus infinity, as Python's // and %. */
static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q - (a % b != 0 && (a < 0) != (b < 0));
}

static bool power(int64_t a, int64_t b, int64_t *out) {
    *out = 1;
    if (a == 0 || a == 1 || a == -1) {
        *out = b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a;
        return true;
    }
    for (; b > 0; b--)
        if (__builtin_mul_overflow(*out, a, out)) return false;
    return true;
}

/* False: an overflow. */
static bool integer_result(enum pl_jinja_op op, int64_t a, int64_t b, int64_t *out) {
    bool overflows = a == INT64_MIN && b == -1;
    switch (op) {
    case PL_JINJA_ADD:
        return !__builtin_add_overflow(a, b, out);
    case PL_JINJA_SUB:
        return !__builtin_sub_overflow(a, b, out);
    case PL_JINJA_MUL:
        return !__builtin_mul_overflow(a, b, out);
    case PL_JINJA_FLOOR:
        *out = overflows ? 0 : floor_div(a, b);
        return !overflows;
    case PL_JINJA_MOD:
        *out = overflows ? 0 : a - floor_div(a, b) * b;
        return true;
    default:
        return power(a, b, out);
    }
}

static double float_mod(double a, double b) {
    double m = fmod(a, b);
    return m != 0 && (m < 0) != (b < 0) ? m + b : m != 0 ? m : copysign(0, b);
}

static double float_result(enum pl_jinja_op op, double a, double b) {
    switch (op) {
    case PL_JINJA_ADD:
        return a + b;
    case PL_JINJA_SUB:
        return a - b;
    case PL_JINJA_MUL:
        return a * b;
    case PL_JINJA_DIV:
        return a / b;
    case PL_JINJA_FLOOR:
        return floor((a - float_mod(a, b)) / b + 0.5);
    case PL_JINJA_MOD:
        return float_mod(a, b);
    default:
        return pow(a, b);
    }
}

static bool number_binary(struct pl_jinja_run *r, enum pl_jinja_op op,
                          const struct pl_jinja_value *a, const struct pl_jinja_value *b,
                          struct pl_jinja_value *out) {
    int64_t x, y, i;
    double f, g;
    pl_jinja_number(a, &f);
    pl_jinja_number(b, &g);
    if (op >= PL_JINJA_FLOOR && !pl_jinja_spend(r, PL_JINJA_NUMBER_UNITS)) return false;
    bool divides = op == PL_JINJA_DIV || op == PL_JINJA_FLOOR || op == PL_JINJA_MOD;
    if (divides && g == 0) return pl_jinja_fail(r, "division by zero");
    bool whole = pl_jinja_integer(a, &x) && pl_jinja_integer(b, &y);
    if (whole && op != PL_JINJA_DIV && !(op == PL_JINJA_POW && y < 0)) {
        if (!integer_result(op, x, y, &i))
            return pl_jinja_fail(r, "integers beyond 64 bits are not supported");
        *out = pl_jinja_int(i);
        return true;
    }
    if (op == PL_JINJA_POW && ((f == 0 && g < 0) || (f < 0 && g != floor(g))))
        return pl_jinja_fail(r, "this power is not supported");
    *out = pl_jinja_float(float_result(op, f, g));
    if (op == PL_JINJA_POW && isinf(out->f) && isfinite(f) && isfinite(g))
        return pl_jinja_fail(r, "the result of ** is too large");
    return true;
}

/* --- text and lists --------------------------------------------------------------------------- */
static bool concat_lists(struct pl_jinja_run *r, const struct pl_jinja_value *a,
                         const struct pl_jinja_value *b, struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    if (!pl_jinja_make_list(r, a->list->n + b->list->n, &l)) return false;
    for (size_t i = 0; i < a->list->n + b->list->n; i++)
        if (!pl_jinja_push(r, l,
                           i < a->list->n ? &a->list->items[i] : &b->list->items[i - a->list->n]))
            return false;
    *out = pl_jinja_list(l, a->sequence);
    return true;
}

/* Text that `safe` let through escapes what is added to it. */
bool pl_jinja_escape(struct pl_jinja_run *r, struct pl_jinja_value *v) {
    static const char marks[] = "&<>'\"";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct pl_jinja_value s = pl_jinja_literal("");
    if (v->markup) return true;
    for (size_t i = 0; i < v->n; i++) {
        const char *at = v->s[i] ? strchr(marks, v->s[i]) : NULL;
        const char *text = at ? escaped[at - marks] : &v->s[i];
        if (!pl_jinja_grow(r, &s, text, at ? strlen(text) : 1)) return false;
    }
    *v = s;
    v->markup = true;
    return true;
}

/* The text that is there is doubled until the rest is shorter. */
static bool repeat_text(struct pl_jinja_run *r, const struct pl_jinja_value *v, uint64_t times,
                        struct pl_jinja_value *out) {
    char *text = pl_jinja_alloc_array(r->arena, times, v->n);
    if (!text) return pl_jinja_fail_memory(r);
    size_t all = (size_t)times * v->n, have = all ? v->n : 0;
    if (have) memcpy(text, v->s, have);
    for (size_t n; have < all; have += n) {
        n = have < all - have ? have : all - have;
        memcpy(text + have, text, n);
    }
    *out = pl_jinja_string(text, all);
    out->markup = v->markup;
    return true;
}

static bool repeat(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t times,
                   struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    if (times < 0) times = 0;
    if (v->kind == PL_JINJA_STRING) return repeat_text(r, v, (uint64_t)times, out);
    if (!pl_jinja_make_list(r, 0, &l)) return false;
    for (int64_t i = 0; v->list->n && i < times; i++)
        for (size_t k = 0; k < v->list->n; k++)
            if (!pl_jinja_push(r, l, &v->list->items[k])) return false;
    *out = pl_jinja_list(l, v->sequence);
    return true;
}

/* One conversion of `format % values`, with the value it takes. */
static bool add_conversion(struct pl_jinja_run *r, struct pl_jinja_value *s, char type,
                           const struct pl_jinja_value *v) {
    struct pl_jinja_value text;
    char digits[32];
    int64_t i;
    if (type == 's') return pl_jinja_str(r, v, &text) && pl_jinja_grow(r, s, text.s, text.n);
    if (type == 'r') return pl_jinja_add_repr(r, s, v);
    if (type != 'd' && type != 'i') return pl_jinja_fail(r, "%%%c is not supported", type);
    if (!pl_jinja_integer(v, &i)) return pl_jinja_fail(r, "%%d takes integers only");
    snprintf(digits, sizeof digits, "%lld", (long long)i);
    return pl_jinja_spend(r, PL_JINJA_STEP_UNITS) && pl_jinja_grow(r, s, digits, strlen(digits));
}

static bool format_string(struct pl_jinja_run *r, const struct pl_jinja_value *a,
                          const struct pl_jinja_value *b, struct pl_jinja_value *out) {
    struct pl_jinja_value s = pl_jinja_literal("");
    bool tuple = b->kind == PL_JINJA_LIST && b->sequence == PL_JINJA_TUPLE;
    size_t n = tuple ? b->list->n : 1, used = 0;
    if (a->markup || b->kind == PL_JINJA_MAP || (b->kind == PL_JINJA_LIST && !tuple))
        return pl_jinja_fail(r, "formatting a %s is not supported", pl_jinja_type_name(b));
    for (size_t i = 0; i < a->n; i++) {
        bool mark = a->s[i] == '%', more = i + 1 < a->n;
        if (mark && !more) return pl_jinja_fail(r, "incomplete format");
        if (!mark || a->s[i + 1] == '%') {
            if (!pl_jinja_grow(r, &s, &a->s[i], 1)) return false;
            i += mark;
            continue;
        }
        if (used == n) return pl_jinja_fail(r, "not enough arguments for format string");
        const struct pl_jinja_value *v = tuple ? &b->list->items[used] : b;
        if (!add_conversion(r, &s, a->s[++i], v)) return false;
        used++;
    }
    if (used < n) return pl_jinja_fail(r, "not all arguments converted during string formatting");
    *out = s;
    return true;
}

/* --- binary ----------------------------------------------------------------------------------- */
static bool can_repeat(const struct pl_jinja_value *v) {
    return v->kind == PL_JINJA_STRING ||
           (v->kind == PL_JINJA_LIST && v->sequence <= PL_JINJA_TUPLE);
}

bool pl_jinja_binary(struct pl_jinja_run *r, enum pl_jinja_op op, const struct pl_jinja_value *a,
                     const struct pl_jinja_value *b, struct pl_jinja_value *out) {
    int64_t times;
    bool strings = a->kind == PL_JINJA_STRING && b->kind == PL_JINJA_STRING;
    bool lists = can_repeat(a) && can_repeat(b) && a->kind == b->kind && a->sequence == b->sequence;
    if (pl_jinja_is_number(a) && pl_jinja_is_number(b)) return number_binary(r, op, a, b, out);
    if (op == PL_JINJA_ADD && strings) {
        struct pl_jinja_value x = *a, y = *b;
        if ((a->markup || b->markup) && (!pl_jinja_escape(r, &x) || !pl_jinja_escape(r, &y)))
            return false;
        return pl_jinja_join(r, &x, &y, out);
    }
    if (op == PL_JINJA_ADD && lists) return concat_lists(r, a, b, out);
    if (op == PL_JINJA_MUL && can_repeat(a) && pl_jinja_integer(b, &times))
        return repeat(r, a, times, out);
    if (op == PL_JINJA_MUL && can_repeat(b) && pl_jinja_integer(a, &times))
        return repeat(r, b, times, out);
    if (op == PL_JINJA_MOD && a->kind == PL_JINJA_STRING) return format_string(r, a, b, out);
    return unsupported(r, op, a, b);
}

/* --- comparisons ------------------------------------------------------------------------------ */
static bool contains(struct pl_jinja_run *r, const struct pl_jinja_value *a,
                     const struct pl_jinja_value *b, bool *out) {
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    struct pl_jinja_iterator *it;
    struct pl_jinja_value item;
    bool done;
    *out = false;
    if (b->kind == PL_JINJA_STRING) {
        if (a->kind != PL_JINJA_STRING)
            return pl_jinja_fail(r, "'in <string>' requires string as left operand, not %s",
                                 pl_jinja_type_name(a));
        *out = pl_jinja_search(meter, b->s, b->n, a->s, a->n, false) >= 0;
        return pl_jinja_spend(r, 0);
    }
    if (b->kind == PL_JINJA_MAP) {
        if (!pl_jinja_hashable(meter, a))
            return pl_jinja_fail(r, "a %s cannot be a key", pl_jinja_type_name(a));
        *out = pl_jinja_map_get(meter, b->map, a) != NULL;
        return pl_jinja_spend(r, 0);
    }
    if (!pl_jinja_iterate(r, b, &it)) return false;
    while (!*out) {
        if (!pl_jinja_next(r, it, &item, &done)) return false;
        if (done) break;
        *out = pl_jinja_equal(meter, a, &item);
    }
    return pl_jinja_spend(r, 0);
}

bool pl_jinja_compare(struct pl_jinja_run *r, enum pl_jinja_op op, const struct pl_jinja_value *a,
                      const struct pl_jinja_value *b, bool *out) {
    int order;
    if (op == PL_JINJA_EQ || op == PL_JINJA_NE) {
        *out = pl_jinja_equal(pl_jinja_meter(r), a, b) == (op == PL_JINJA_EQ);
        return pl_jinja_spend(r, 0);
    }
    if (op == PL_JINJA_IN || op == PL_JINJA_NOT_IN) {
        if (!contains(r, a, b, out)) return false;
        *out = *out == (op == PL_JINJA_IN);
        return true;
    }
    if (!pl_jinja_order(pl_jinja_meter(r), a, b, &order)) return unsupported(r, op, a, b);
    *out = op == PL_JINJA_LT   ? order < 0
           : op == PL_JINJA_LE ? order <= 0
           : op == PL_JINJA_GT ? order > 0
                               : order >= 0;
    return pl_jinja_spend(r, 0);
}

/* --- slices ----------------------------------------------------------------------------------- */
/* One end of a slice of n elements, as PySlice_AdjustIndices does it. */
static bool slice_end(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t n,
                      int64_t absent, int64_t lowest, int64_t highest, int64_t *out) {
    *out = absent;
    if (v->kind == PL_JINJA_ABSENT || v->kind == PL_JINJA_NONE) return true;
    if (!pl_jinja_integer(v, out))
        return pl_jinja_fail(r, "slice indices must be integers or None");
    if (*out < 0) *out = *out < -n ? lowest : *out + n;
    if (*out > highest) *out = highest;
    return true;
}

static bool slice_list(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t begin,
                       int64_t end, int64_t step, struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    if (!pl_jinja_make_list(r, 0, &l)) return false;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step)
        if (!pl_jinja_push(r, l, &v->list->items[i])) return false;
    *out = pl_jinja_list(l, v->sequence);
    return true;
}

/* The first byte of the character that stands so many before the one at byte `at`. */
static size_t before(struct pl_jinja_run *r, const struct pl_jinja_value *v, size_t at,
                     size_t characters) {
    size_t from = at;
    for (; characters && at; characters--)
        at = pl_utf8_before(v->s, at);
    pl_jinja_pay(pl_jinja_meter(r), PL_JINJA_SEARCH_UNITS * (uint64_t)(from - at));
    return at;
}

static bool slice_string(struct pl_jinja_run *r, const struct pl_jinja_value *v, int64_t begin,
                         int64_t end, int64_t step, struct pl_jinja_value *out) {
    struct pl_jinja_meter *meter = pl_jinja_meter(r);
    struct pl_jinja_value s = pl_jinja_literal("");
    size_t at = pl_jinja_byte_of(meter, v->s, v->n, (size_t)(begin < 0 ? 0 : begin));
    if (step == 1) {
        size_t most = end > begin ? (size_t)(end - begin) : 0;
        *out = pl_jinja_string(v->s + at, pl_jinja_byte_of(meter, v->s + at, v->n - at, most));
        out->markup = v->markup;
        return pl_jinja_spend(r, 0);
    }
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
        if (!pl_jinja_grow(r, &s, v->s + at, pl_utf8_length(v->s[at]))) return false;
        at = step > 0 ? at + pl_jinja_byte_of(meter, v->s + at, v->n - at, (size_t)step)
                      : before(r, v, at, (size_t)-step);
    }
    *out = s;
    out->markup = v->markup;
    return true;
}

bool pl_jinja_slice(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                    const struct pl_jinja_value range[3], struct pl_jinja_value *out) {
    size_t length = 0;
    int64_t begin, end, step = 1;
    if (v->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, v);
    bool sequence = v->kind == PL_JINJA_LIST && v->sequence <= PL_JINJA_TUPLE;
    if (!sequence && v->kind != PL_JINJA_STRING)
        return pl_jinja_fail(r,
                             v->kind == PL_JINJA_LIST ? "slicing a %s is not supported"
                                                      : "'%s' object is not subscriptable",
                             pl_jinja_type_name(v));
    pl_jinja_length(pl_jinja_meter(r), v, &length);
    int64_t n = (int64_t)length;
    bool every = range[2].kind == PL_JINJA_ABSENT || range[2].kind == PL_JINJA_NONE;
    if (!every && !pl_jinja_integer(&range[2], &step))
        return pl_jinja_fail(r, "slice indices must be integers or None");
    if (step == 0) return pl_jinja_fail(r, "slice step cannot be zero");
    if (step > n + 1) step = n + 1; /* beyond the end all the same, without overflow */
    if (step < -n - 1) step = -n - 1;
    bool back = step < 0;
    if (!slice_end(r, &range[0], n, back ? n - 1 : 0, back ? -1 : 0, back ? n - 1 : n, &begin) ||
        !slice_end(r, &range[1], n, back ? -1 : n, back ? -1 : 0, back ? n - 1 : n, &end))
        return false;
    return v->kind == PL_JINJA_STRING ? slice_string(r, v, begin, end, step, out)
                                      : slice_list(r, v, begin, end, step, out);
}
