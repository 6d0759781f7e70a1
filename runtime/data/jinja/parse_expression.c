/* parse_expression.c - expressions, by the grammar of jinja2/parser.py. */
#include "runtime/data/jinja/parse.h"
#include "runtime/data/jinja/run.h"
#include "runtime/data/tokenizer/utf8.h"

#include <errno.h>
#include <stdlib.h>

typedef struct pl_jinja_node *reader(struct pl_jinja_parser *p);

/* --- literals --------------------------------------------------------------------------------- */
/* One of \n, \', ... as its character, 0 = it is none. */
static char simple_escape(char c) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char *at = c ? strchr(from, c) : NULL;
    return at ? to[at - from] : 0;
}

static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads up to `most` digits at *s into *code; returns their number. */
static size_t take_digits(const char *s, size_t n, size_t most, int base, uint32_t *code) {
    size_t i = 0;
    for (*code = 0; i < most && i < n && digit_of(s[i]) < base; i++)
        *code = *code * (uint32_t)base + (uint32_t)digit_of(s[i]);
    return i;
}

/* The escape at s, which begins with a backslash, appended to *to. Returns its length, 0 = it is
 * not supported or wrong. Unknown ones stand for themselves (Python's unicode-escape). */
static size_t unescape_one(const char *s, size_t n, char **to) {
    static const struct {
        char letter;
        size_t digits;
    } coded[] = {{'x', 2}, {'u', 4}, {'U', 8}};
    uint32_t code;
    char c = n > 1 ? s[1] : 0, simple = simple_escape(c);
    if (simple) *(*to)++ = simple;
    if (simple || c == '\n') return 2;
    if (c == 'N') return 0;
    for (size_t i = 0; i < sizeof coded / sizeof *coded; i++) {
        if (c != coded[i].letter) continue;
        if (take_digits(s + 2, n - 2, coded[i].digits, 16, &code) < coded[i].digits ||
            code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
            return 0;
        *to += pl_utf8_put(code, *to);
        return 2 + coded[i].digits;
    }
    size_t octal = take_digits(s + 1, n - 1, 3, 8, &code);
    if (octal) {
        *to += pl_utf8_put(code, *to);
        return 1 + octal;
    }
    *(*to)++ = '\\';
    return 1;
}

/* The text of a string token, appended to what *v holds. */
static bool add_string(struct pl_jinja_parser *p, const struct pl_jinja_token *t,
                       struct pl_jinja_value *v) {
    /* an escape never gets longer, but for octal ones above 0x7F: 4 bytes to 2 */
    char *text = pl_jinja_alloc(&p->program->arena, t->n + v->n + 1), *to = text;
    if (!text) return pl_jinja_refuse_at(p, t, "no memory for the template");
    if (v->n) memcpy(to, v->s, v->n);
    to += v->n;
    for (size_t i = 0, used; i < t->n; i += used) {
        used = 1;
        if (t->s[i] != '\\')
            *to++ = t->s[i];
        else if ((used = unescape_one(t->s + i, t->n - i, &to)) == 0)
            return pl_jinja_refuse_at(p, t, "an escape in the string is not supported");
    }
    *v = pl_jinja_string(text, (size_t)(to - text));
    return true;
}

static struct pl_jinja_node *read_strings(struct pl_jinja_parser *p) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_CONST, pl_jinja_peek(p));
    if (!n) return NULL;
    n->value = pl_jinja_literal("");
    for (; pl_jinja_peek(p)->kind == PL_JINJA_TOKEN_STRING; p->at++)
        if (!add_string(p, pl_jinja_peek(p), &n->value)) return NULL;
    return n;
}

static struct pl_jinja_node *read_number(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_CONST, t);
    char digits[64];
    size_t used = 0;
    if (!n) return NULL;
    for (size_t i = 0; i < t->n && used < sizeof digits - 1; i++)
        if (t->s[i] != '_') digits[used++] = t->s[i];
    digits[used] = 0;
    errno = 0;
    n->value = t->kind == PL_JINJA_TOKEN_FLOAT ? pl_jinja_float(strtod(digits, NULL))
                                               : pl_jinja_int(strtoll(digits, NULL, 10));
    if (used == sizeof digits - 1 || (errno && t->kind == PL_JINJA_TOKEN_INTEGER))
        return pl_jinja_refuse(p, "integers beyond 64 bits are not supported");
    p->at++;
    return n;
}

/* --- primaries -------------------------------------------------------------------------------- */
static void note_macro_name(struct pl_jinja_parser *p, uint32_t symbol) {
    static const uint8_t uses[] = {[PL_JINJA_SYMBOL_caller] = PL_JINJA_USES_CALLER,
                                   [PL_JINJA_SYMBOL_kwargs] = PL_JINJA_USES_KWARGS,
                                   [PL_JINJA_SYMBOL_varargs] = PL_JINJA_USES_VARARGS};
    for (size_t i = 0; symbol < sizeof uses && i < p->n_macros; i++)
        p->macros[i]->op |= uses[symbol];
}

static struct pl_jinja_node *read_name(struct pl_jinja_parser *p) {
    static const struct {
        const char *name;
        struct pl_jinja_value value;
    } constants[] = {
        {"true", {.kind = PL_JINJA_BOOL, .b = true}},
        {"True", {.kind = PL_JINJA_BOOL, .b = true}},
        {"false", {.kind = PL_JINJA_BOOL, .b = false}},
        {"False", {.kind = PL_JINJA_BOOL}},
        {"none", {.kind = PL_JINJA_NONE}},
        {"None", {.kind = PL_JINJA_NONE}},
    };
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_NAME, t);
    if (!n) return NULL;
    p->at++;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!pl_jinja_token_is(t, PL_JINJA_TOKEN_NAME, constants[i].name)) continue;
        n->kind = PL_JINJA_NODE_CONST;
        n->value = constants[i].value;
        return n;
    }
    if (!pl_jinja_intern(p, t, &n->symbol)) return NULL;
    note_macro_name(p, n->symbol);
    return n;
}

static struct pl_jinja_node *read_list(struct pl_jinja_parser *p) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_LIST, pl_jinja_peek(p));
    if (!n) return NULL;
    struct pl_jinja_chain items = {NULL, &n->a};
    p->at++;
    while (!pl_jinja_sees(p, "]")) {
        if (items.last != &n->a && !pl_jinja_expects(p, ",")) return NULL;
        if (pl_jinja_sees(p, "]")) break;
        if (!pl_jinja_chain_add(&items, pl_jinja_parse_expression(p, true))) return NULL;
    }
    p->at++;
    return n;
}

static struct pl_jinja_node *read_dict(struct pl_jinja_parser *p) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_DICT, pl_jinja_peek(p));
    if (!n) return NULL;
    struct pl_jinja_chain items = {NULL, &n->a};
    p->at++;
    while (!pl_jinja_sees(p, "}")) {
        if (items.last != &n->a && !pl_jinja_expects(p, ",")) return NULL;
        if (pl_jinja_sees(p, "}")) break;
        if (!pl_jinja_chain_add(&items, pl_jinja_parse_expression(p, true)) ||
            !pl_jinja_expects(p, ":") ||
            !pl_jinja_chain_add(&items, pl_jinja_parse_expression(p, true)))
            return NULL;
    }
    p->at++;
    return n;
}

static struct pl_jinja_node *read_brackets(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    p->at++;
    if (pl_jinja_takes(p, ")")) return pl_jinja_node_new(p, PL_JINJA_NODE_TUPLE, t);
    struct pl_jinja_node *n = pl_jinja_parse_tuple(p, true, NULL);
    return n && pl_jinja_expects(p, ")") ? n : NULL;
}

static struct pl_jinja_node *read_primary(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    switch (t->kind) {
    case PL_JINJA_TOKEN_NAME:
        return read_name(p);
    case PL_JINJA_TOKEN_STRING:
        return read_strings(p);
    case PL_JINJA_TOKEN_INTEGER:
    case PL_JINJA_TOKEN_FLOAT:
        return read_number(p);
    default:
        break;
    }
    if (pl_jinja_sees(p, "(")) return read_brackets(p);
    if (pl_jinja_sees(p, "[")) return read_list(p);
    if (pl_jinja_sees(p, "{")) return read_dict(p);
    return pl_jinja_refuse(p, "an expression is expected");
}

/* --- members, calls, filters, tests ----------------------------------------------------------- */
static struct pl_jinja_node *read_dot(struct pl_jinja_parser *p, struct pl_jinja_node *of) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    bool name = t->kind == PL_JINJA_TOKEN_NAME;
    struct pl_jinja_node *n =
        pl_jinja_node_new(p, name ? PL_JINJA_NODE_ATTR : PL_JINJA_NODE_ITEM, t);
    if (!n) return NULL;
    n->a = of;
    if (name) {
        n->value = pl_jinja_string(t->s, t->n);
        p->at++;
        return n;
    }
    if (t->kind != PL_JINJA_TOKEN_INTEGER) return pl_jinja_refuse(p, "a name is expected");
    n->b = read_number(p);
    return n->b ? n : NULL;
}

/* One part of a slice; *part stays NULL where it is left out. */
static bool read_slice_part(struct pl_jinja_parser *p, struct pl_jinja_node **part) {
    if (pl_jinja_sees(p, ":") || pl_jinja_sees(p, "]") || pl_jinja_sees(p, ",")) return true;
    *part = pl_jinja_parse_expression(p, true);
    return *part != NULL;
}

static struct pl_jinja_node *read_subscript(struct pl_jinja_parser *p, struct pl_jinja_node *of) {
    const struct pl_jinja_token *t = &p->tokens.items[p->at - 1];
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_ITEM, t);
    if (!n) return NULL;
    n->a = of;
    if (pl_jinja_sees(p, "]")) return pl_jinja_refuse(p, "an expression is expected");
    if (!read_slice_part(p, &n->b)) return NULL;
    if (pl_jinja_takes(p, ":")) {
        n->kind = PL_JINJA_NODE_SLICE;
        if (!read_slice_part(p, &n->c)) return NULL;
        if (pl_jinja_takes(p, ":") && !read_slice_part(p, &n->d)) return NULL;
    }
    if (pl_jinja_sees(p, ",")) return pl_jinja_refuse(p, "several subscripts are not supported");
    return pl_jinja_expects(p, "]") ? n : NULL;
}

static struct pl_jinja_node *read_keyword(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_KEYWORD, t);
    if (!n) return NULL;
    n->value = pl_jinja_string(t->s, t->n);
    p->at += 2;
    n->a = pl_jinja_parse_expression(p, true);
    return n->a ? n : NULL;
}

static struct pl_jinja_node *read_spread(struct pl_jinja_parser *p, bool map) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_SPREAD, pl_jinja_peek(p));
    if (!n) return NULL;
    n->op = map ? PL_JINJA_POW : PL_JINJA_MUL;
    p->at++;
    n->a = pl_jinja_parse_expression(p, true);
    return n->a ? n : NULL;
}

/* Kinds of arguments in the order they may stand in. */
enum argument { POSITIONAL, BY_NAME, FROM_LIST, FROM_MAP };

static enum argument argument_kind(const struct pl_jinja_parser *p) {
    if (pl_jinja_sees(p, "*")) return FROM_LIST;
    if (pl_jinja_sees(p, "**")) return FROM_MAP;
    return pl_jinja_peek(p)->kind == PL_JINJA_TOKEN_NAME &&
                   pl_jinja_token_is(pl_jinja_peek(p) + 1, PL_JINJA_TOKEN_OPERATOR, "=")
               ? BY_NAME
               : POSITIONAL;
}

/* Past the opening bracket: arguments and the closing one. */
static bool read_arguments(struct pl_jinja_parser *p, struct pl_jinja_node **out) {
    struct pl_jinja_chain items = {NULL, out};
    enum argument before = POSITIONAL;
    while (!pl_jinja_sees(p, ")")) {
        if (items.last != out && !pl_jinja_expects(p, ",")) return false;
        if (pl_jinja_sees(p, ")")) break;
        enum argument kind = argument_kind(p);
        bool after_list = kind == BY_NAME && before == FROM_LIST;
        if ((kind < before && !after_list) || (kind == before && kind >= FROM_LIST))
            return pl_jinja_refuse(p, "arguments in this order are not supported");
        if (!after_list) before = kind;
        struct pl_jinja_node *n = kind == POSITIONAL ? pl_jinja_parse_expression(p, true)
                                  : kind == BY_NAME  ? read_keyword(p)
                                                     : read_spread(p, kind == FROM_MAP);
        if (!pl_jinja_chain_add(&items, n)) return false;
    }
    p->at++;
    return true;
}

static struct pl_jinja_node *read_call(struct pl_jinja_parser *p, struct pl_jinja_node *of) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_CALL, &p->tokens.items[p->at - 1]);
    if (!n) return NULL;
    n->a = of;
    return read_arguments(p, &n->b) ? n : NULL;
}

struct pl_jinja_node *pl_jinja_parse_postfix(struct pl_jinja_parser *p, struct pl_jinja_node *n) {
    while (n) {
        if (pl_jinja_takes(p, "."))
            n = read_dot(p, n);
        else if (pl_jinja_takes(p, "["))
            n = read_subscript(p, n);
        else if (pl_jinja_takes(p, "("))
            n = read_call(p, n);
        else
            break;
    }
    return n;
}

/* Finds the filter or test that n stands for, named t. */
static struct pl_jinja_node *resolve(struct pl_jinja_parser *p, struct pl_jinja_node *n,
                                     const struct pl_jinja_token *t, const char *what) {
    bool filter = n->kind == PL_JINJA_NODE_FILTER;
    n->function =
        pl_jinja_find_function(filter ? pl_jinja_filters() : pl_jinja_tests(), t->s, t->n);
    if (n->function && !n->function->call)
        return pl_jinja_refuse_at(p, t, "the %s `%.*s` is not supported", what, (int)t->n, t->s);
    if (n->function) return n;
    if (!p->conditional && !p->unknown) p->unknown = t;
    n->kind = PL_JINJA_NODE_UNKNOWN;
    n->value = pl_jinja_string(t->s, t->n);
    return n;
}

static struct pl_jinja_node *read_filter(struct pl_jinja_parser *p, struct pl_jinja_node *of) {
    const struct pl_jinja_token *t = pl_jinja_name(p);
    struct pl_jinja_node *n = t ? pl_jinja_node_new(p, PL_JINJA_NODE_FILTER, t) : NULL;
    if (!n) return NULL;
    n->a = of;
    if (pl_jinja_sees(p, ".")) return pl_jinja_refuse(p, "names of filters have no dots");
    if (pl_jinja_takes(p, "(") && !read_arguments(p, &n->b)) return NULL;
    return resolve(p, n, t, "filter");
}

struct pl_jinja_node *pl_jinja_parse_filters(struct pl_jinja_parser *p, struct pl_jinja_node *n) {
    if (!n && !(n = read_filter(p, NULL))) return NULL;
    while (n && pl_jinja_takes(p, "|"))
        n = read_filter(p, n);
    return n;
}

/* `x is divisibleby 3`: one argument may stand without brackets. */
static bool has_bare_argument(const struct pl_jinja_parser *p) {
    static const char *const none[] = {"else", "or", "and"};
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    if (t->kind == PL_JINJA_TOKEN_STRING || t->kind == PL_JINJA_TOKEN_INTEGER ||
        t->kind == PL_JINJA_TOKEN_FLOAT)
        return true;
    if (pl_jinja_sees(p, "[") || pl_jinja_sees(p, "{")) return true;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (pl_jinja_sees_name(p, none[i])) return false;
    return t->kind == PL_JINJA_TOKEN_NAME;
}

static bool read_test_argument(struct pl_jinja_parser *p, struct pl_jinja_node *n) {
    if (pl_jinja_takes(p, "(")) return read_arguments(p, &n->b);
    if (!has_bare_argument(p)) return true;
    if (pl_jinja_sees_name(p, "is")) return pl_jinja_refuse(p, "tests cannot be chained with `is`");
    n->b = pl_jinja_parse_postfix(p, read_primary(p));
    return n->b != NULL;
}

static struct pl_jinja_node *read_test(struct pl_jinja_parser *p, struct pl_jinja_node *of) {
    bool negated = pl_jinja_takes_name(p, "not");
    const struct pl_jinja_token *t = pl_jinja_name(p);
    struct pl_jinja_node *n = t ? pl_jinja_node_new(p, PL_JINJA_NODE_TEST, t) : NULL;
    if (!n) return NULL;
    n->a = of;
    if (!read_test_argument(p, n) || !resolve(p, n, t, "test")) return NULL;
    if (!negated) return n;
    struct pl_jinja_node *not = pl_jinja_node_new(p, PL_JINJA_NODE_NOT, t);
    if (not ) not ->a = n;
    return not ;
}

static struct pl_jinja_node *read_filters_and_tests(struct pl_jinja_parser *p,
                                                    struct pl_jinja_node *n) {
    while (n) {
        if (pl_jinja_takes(p, "|"))
            n = read_filter(p, n);
        else if (pl_jinja_takes_name(p, "is"))
            n = read_test(p, n);
        else if (pl_jinja_takes(p, "("))
            n = read_call(p, n);
        else
            break;
    }
    return n;
}

/* --- operators -------------------------------------------------------------------------------- */
static struct pl_jinja_node *node_of(struct pl_jinja_parser *p, int kind,
                                     const struct pl_jinja_token *t, struct pl_jinja_node *a,
                                     struct pl_jinja_node *b) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, kind, t);
    if (!n || !a) return NULL;
    n->a = a;
    n->b = b;
    return n;
}

struct pl_jinja_node *pl_jinja_parse_unary(struct pl_jinja_parser *p, bool filters) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n;
    if (!pl_jinja_deepen(p)) return NULL;
    bool minus = pl_jinja_takes(p, "-");
    if (minus || pl_jinja_takes(p, "+")) {
        n = node_of(p, PL_JINJA_NODE_SIGN, t, pl_jinja_parse_unary(p, false), NULL);
        if (n) n->op = minus ? PL_JINJA_SUB : PL_JINJA_ADD;
    } else {
        n = read_primary(p);
    }
    n = pl_jinja_parse_postfix(p, n);
    p->depth--;
    return filters ? read_filters_and_tests(p, n) : n;
}

static struct pl_jinja_node *read_unary(struct pl_jinja_parser *p) {
    return pl_jinja_parse_unary(p, true);
}

struct operator_name {
    const char *text;
    enum pl_jinja_op op;
};

/* Operands by `next` with the operators of one level between them, from the left. */
static struct pl_jinja_node *read_level(struct pl_jinja_parser *p, reader *next,
                                        const struct operator_name *ops, size_t n_ops) {
    struct pl_jinja_node *left = next(p);
    for (size_t i = 0; left && i < n_ops; i++) {
        const struct pl_jinja_token *t = pl_jinja_peek(p);
        if (!pl_jinja_takes(p, ops[i].text)) continue;
        struct pl_jinja_node *right = next(p);
        left = right ? node_of(p, PL_JINJA_NODE_BINARY, t, left, right) : NULL;
        if (left) left->op = (uint8_t)ops[i].op;
        i = (size_t)-1; /* again from the first operator */
    }
    return left;
}
#define LEVEL(p, next, ops) read_level(p, next, ops, sizeof(ops) / sizeof *(ops))

static struct pl_jinja_node *read_power(struct pl_jinja_parser *p) {
    static const struct operator_name ops[] = {{"**", PL_JINJA_POW}};
    return LEVEL(p, read_unary, ops);
}

static struct pl_jinja_node *read_product(struct pl_jinja_parser *p) {
    static const struct operator_name ops[] = {
        {"*", PL_JINJA_MUL}, {"/", PL_JINJA_DIV}, {"//", PL_JINJA_FLOOR}, {"%", PL_JINJA_MOD}};
    return LEVEL(p, read_power, ops);
}

static struct pl_jinja_node *read_concat(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *first = read_product(p);
    if (!first || !pl_jinja_sees(p, "~")) return first;
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_CONCAT, t);
    if (!n) return NULL;
    struct pl_jinja_chain items = {NULL, &n->a};
    pl_jinja_chain_add(&items, first);
    while (pl_jinja_takes(p, "~"))
        if (!pl_jinja_chain_add(&items, read_product(p))) return NULL;
    return n;
}

static struct pl_jinja_node *read_sum(struct pl_jinja_parser *p) {
    static const struct operator_name ops[] = {{"+", PL_JINJA_ADD}, {"-", PL_JINJA_SUB}};
    return LEVEL(p, read_concat, ops);
}

/* The comparison that comes next; false: there is none. */
static bool take_comparison(struct pl_jinja_parser *p, enum pl_jinja_op *op) {
    static const struct operator_name ops[] = {{"==", PL_JINJA_EQ}, {"!=", PL_JINJA_NE},
                                               {"<", PL_JINJA_LT},  {"<=", PL_JINJA_LE},
                                               {">", PL_JINJA_GT},  {">=", PL_JINJA_GE}};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        *op = ops[i].op;
        if (pl_jinja_takes(p, ops[i].text)) return true;
    }
    *op = PL_JINJA_IN;
    if (pl_jinja_takes_name(p, "in")) return true;
    *op = PL_JINJA_NOT_IN;
    if (!pl_jinja_sees_name(p, "not") ||
        !pl_jinja_token_is(pl_jinja_peek(p) + 1, PL_JINJA_TOKEN_NAME, "in"))
        return false;
    p->at += 2;
    return true;
}

static struct pl_jinja_node *read_comparison(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n = NULL, *left = read_sum(p);
    struct pl_jinja_chain operands = {NULL, NULL};
    enum pl_jinja_op op;
    while (left && (t = pl_jinja_peek(p), take_comparison(p, &op))) {
        if (!n) {
            if (!(n = node_of(p, PL_JINJA_NODE_COMPARE, t, left, NULL))) return NULL;
            operands.last = &n->b;
        }
        struct pl_jinja_node *operand = node_of(p, PL_JINJA_NODE_OPERAND, t, read_sum(p), NULL);
        if (!pl_jinja_chain_add(&operands, operand)) return NULL;
        operand->op = (uint8_t)op;
    }
    return n ? n : left;
}

static struct pl_jinja_node *read_not(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    if (!pl_jinja_takes_name(p, "not")) return read_comparison(p);
    if (!pl_jinja_deepen(p)) return NULL;
    struct pl_jinja_node *n = node_of(p, PL_JINJA_NODE_NOT, t, read_not(p), NULL);
    p->depth--;
    return n;
}

static struct pl_jinja_node *read_logic(struct pl_jinja_parser *p, reader *next, const char *word,
                                        int kind) {
    struct pl_jinja_node *left = next(p);
    while (left) {
        const struct pl_jinja_token *t = pl_jinja_peek(p);
        if (!pl_jinja_takes_name(p, word)) break;
        struct pl_jinja_node *right = next(p);
        left = right ? node_of(p, kind, t, left, right) : NULL;
    }
    return left;
}

static struct pl_jinja_node *read_and(struct pl_jinja_parser *p) {
    return read_logic(p, read_not, "and", PL_JINJA_NODE_AND);
}

static struct pl_jinja_node *read_or(struct pl_jinja_parser *p) {
    return read_logic(p, read_and, "or", PL_JINJA_NODE_OR);
}

static struct pl_jinja_node *read_choice(struct pl_jinja_parser *p) {
    size_t begin = p->at;
    bool choice = false;
    struct pl_jinja_node *n = read_or(p);
    while (n) {
        const struct pl_jinja_token *t = pl_jinja_peek(p);
        if (!pl_jinja_takes_name(p, "if")) break;
        choice = true;
        struct pl_jinja_node *test = read_or(p);
        if (!(n = node_of(p, PL_JINJA_NODE_CHOICE, t, test, n))) return NULL;
        if (!pl_jinja_takes_name(p, "else")) continue;
        if (!pl_jinja_deepen(p)) return NULL;
        n->c = read_choice(p);
        p->depth--;
        if (!n->c) return NULL;
    }
    /* what nobody knows fails only when it is reached, in all three parts */
    if (choice && p->unknown >= &p->tokens.items[begin]) p->unknown = NULL;
    return n;
}

struct pl_jinja_node *pl_jinja_parse_expression(struct pl_jinja_parser *p, bool choice) {
    if (!pl_jinja_deepen(p)) return NULL;
    struct pl_jinja_node *n = choice ? read_choice(p) : read_or(p);
    p->depth--;
    return n;
}

static bool tuple_ends(const struct pl_jinja_parser *p, const char *stop) {
    enum pl_jinja_token_kind kind = pl_jinja_peek(p)->kind;
    return kind == PL_JINJA_TOKEN_PRINT_END || kind == PL_JINJA_TOKEN_BLOCK_END ||
           kind == PL_JINJA_TOKEN_END || pl_jinja_sees(p, ")") ||
           (stop && pl_jinja_sees_name(p, stop));
}

struct pl_jinja_node *pl_jinja_parse_tuple(struct pl_jinja_parser *p, bool choice,
                                           const char *stop) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *first = pl_jinja_parse_expression(p, choice);
    if (!first || !pl_jinja_sees(p, ",")) return first;
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_TUPLE, t);
    if (!n) return NULL;
    struct pl_jinja_chain items = {NULL, &n->a};
    pl_jinja_chain_add(&items, first);
    while (pl_jinja_takes(p, ",") && !tuple_ends(p, stop))
        if (!pl_jinja_chain_add(&items, pl_jinja_parse_expression(p, choice))) return NULL;
    return n;
}
