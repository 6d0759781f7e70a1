/* tests.c - what `is` asks. */
#include "runtime/data/jinja/run.h"

#define SELF(name)                                                                                 \
    static bool is_##name(struct pl_jinja_run *r, const struct pl_jinja_call *c,                   \
                          struct pl_jinja_value *out)

static bool answer(struct pl_jinja_value *out, bool b) {
    *out = pl_jinja_bool(b);
    return true;
}

/* --- kinds ------------------------------------------------------------------------------------ */
#define KIND_TEST(name, test)                                                                      \
    SELF(name) {                                                                                   \
        const struct pl_jinja_value *v = &c->self;                                                 \
        (void)r;                                                                                   \
        return answer(out, test);                                                                  \
    }
KIND_TEST(defined, v->kind != PL_JINJA_UNDEFINED)
KIND_TEST(undefined, v->kind == PL_JINJA_UNDEFINED)
KIND_TEST(none, v->kind == PL_JINJA_NONE)
KIND_TEST(boolean, v->kind == PL_JINJA_BOOL)
KIND_TEST(yes, v->kind == PL_JINJA_BOOL && v->b)
KIND_TEST(no, v->kind == PL_JINJA_BOOL && !v->b)
KIND_TEST(integer, v->kind == PL_JINJA_INT)
KIND_TEST(float, v->kind == PL_JINJA_FLOAT)
KIND_TEST(number, pl_jinja_is_number(v))
KIND_TEST(string, v->kind == PL_JINJA_STRING)
KIND_TEST(mapping, v->kind == PL_JINJA_MAP)
KIND_TEST(iterable, v->kind == PL_JINJA_UNDEFINED || v->kind == PL_JINJA_STRING ||
                        v->kind == PL_JINJA_LIST || v->kind == PL_JINJA_MAP ||
                        v->kind == PL_JINJA_ITERATOR || v->kind == PL_JINJA_LOOP)
/* has a length and items by number or key; views of a dict have no items */
KIND_TEST(sequence, v->kind == PL_JINJA_UNDEFINED || v->kind == PL_JINJA_STRING ||
                        v->kind == PL_JINJA_MAP ||
                        (v->kind == PL_JINJA_LIST && v->sequence <= PL_JINJA_RANGE))
KIND_TEST(callable, v->kind == PL_JINJA_UNDEFINED || v->kind >= PL_JINJA_LOOP)
KIND_TEST(escaped, v->markup)

/* --- comparisons ------------------------------------------------------------------------------ */
static bool compare(struct pl_jinja_run *r, const struct pl_jinja_call *c, enum pl_jinja_op op,
                    struct pl_jinja_value *out) {
    bool holds;
    return pl_jinja_compare(r, op, &c->self, &c->arg[0], &holds) && answer(out, holds);
}
SELF(equal) {
    return compare(r, c, PL_JINJA_EQ, out);
}
SELF(unequal) {
    return compare(r, c, PL_JINJA_NE, out);
}
SELF(less) {
    return compare(r, c, PL_JINJA_LT, out);
}
SELF(less_or_equal) {
    return compare(r, c, PL_JINJA_LE, out);
}
SELF(greater) {
    return compare(r, c, PL_JINJA_GT, out);
}
SELF(greater_or_equal) {
    return compare(r, c, PL_JINJA_GE, out);
}
SELF(in) {
    return compare(r, c, PL_JINJA_IN, out);
}

/* Only what Python has one object of is surely the same one. */
SELF(sameas) {
    const struct pl_jinja_value *a = &c->self, *b = &c->arg[0];
    if (a->kind != b->kind) return answer(out, false);
    if (a->kind == PL_JINJA_NONE) return answer(out, true);
    if (a->kind == PL_JINJA_BOOL) return answer(out, a->b == b->b);
    return pl_jinja_fail(r, "`sameas` of a %s is not supported", pl_jinja_type_name(a));
}

/* --- numbers and text ------------------------------------------------------------------------- */
static bool remainder_is(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                         const struct pl_jinja_value *by, int64_t wanted,
                         struct pl_jinja_value *out) {
    const struct pl_jinja_value want = pl_jinja_int(wanted);
    struct pl_jinja_value rest;
    return pl_jinja_binary(r, PL_JINJA_MOD, v, by, &rest) &&
           answer(out, pl_jinja_equal(pl_jinja_meter(r), &rest, &want));
}
SELF(divisibleby) {
    return remainder_is(r, &c->self, &c->arg[0], 0, out);
}
SELF(even) {
    const struct pl_jinja_value two = pl_jinja_int(2);
    return remainder_is(r, &c->self, &two, 0, out);
}
SELF(odd) {
    const struct pl_jinja_value two = pl_jinja_int(2);
    return remainder_is(r, &c->self, &two, 1, out);
}

static bool has_case(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                     enum pl_jinja_class class, struct pl_jinja_value *out) {
    struct pl_jinja_value text;
    uint32_t unknown;
    bool holds;
    if (!pl_jinja_str(r, &c->self, &text)) return false;
    pl_jinja_classify(pl_jinja_meter(r), &text, class, &holds, &unknown);
    return answer(out, holds) && pl_jinja_spend(r, 0);
}
SELF(lower) {
    return has_case(r, c, PL_JINJA_IS_LOWER, out);
}
SELF(upper) {
    return has_case(r, c, PL_JINJA_IS_UPPER, out);
}

static bool names(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                  const struct pl_jinja_function *table, struct pl_jinja_value *out) {
    return pl_jinja_spend(r, PL_JINJA_NUMBER_UNITS) &&
           answer(out, v->kind == PL_JINJA_STRING && pl_jinja_find_function(table, v->s, v->n));
}
SELF(filter) {
    return names(r, &c->self, r->filters, out);
}
SELF(test) {
    return names(r, &c->self, r->tests, out);
}

/* --- table ------------------------------------------------------------------------------------ */
#define PLAIN(name)                                                                                \
    {                                                                                              \
#name, is_##name, 0, {                                                                     \
            NULL                                                                                   \
        }                                                                                          \
    }
#define OTHER(name, function)                                                                      \
    {                                                                                              \
        name, is_##function, 1, {                                                                  \
            "other"                                                                                \
        }                                                                                          \
    }

static const struct pl_jinja_function tests[] = {
    PLAIN(defined),
    PLAIN(string),
    PLAIN(none),
    PLAIN(mapping),
    PLAIN(iterable),
    PLAIN(sequence),
    PLAIN(undefined),
    PLAIN(boolean),
    {"true", is_yes, 0, {NULL}},
    {"false", is_no, 0, {NULL}},
    PLAIN(integer),
    PLAIN(float),
    PLAIN(number),
    PLAIN(callable),
    PLAIN(escaped),
    PLAIN(even),
    PLAIN(odd),
    PLAIN(lower),
    PLAIN(upper),
    PLAIN(filter),
    PLAIN(test),
    OTHER("==", equal),
    OTHER("eq", equal),
    OTHER("equalto", equal),
    OTHER("!=", unequal),
    OTHER("ne", unequal),
    OTHER("<", less),
    OTHER("lt", less),
    OTHER("lessthan", less),
    OTHER("<=", less_or_equal),
    OTHER("le", less_or_equal),
    OTHER(">", greater),
    OTHER("gt", greater),
    OTHER("greaterthan", greater),
    OTHER(">=", greater_or_equal),
    OTHER("ge", greater_or_equal),
    {"in", is_in, 1, {"seq"}},
    OTHER("sameas", sameas),
    {"divisibleby", is_divisibleby, 1, {"num"}},
    {NULL, NULL, 0, {NULL}},
};

const struct pl_jinja_function *pl_jinja_tests(void) {
    return tests;
}
