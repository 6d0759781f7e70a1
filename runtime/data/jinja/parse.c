/* parse.c - statements, by the grammar of jinja2/parser.py. */
#include "runtime/data/jinja/parse.h"
#include "estimator/base/alloc.h"
#include "runtime/data/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_TEXT_BYTES (1 << 20)
#define MAX_TREE_BYTES (UINT64_C(12) << 20)

/* --- targets ---------------------------------------------------------------------------------- */
static struct pl_jinja_node *read_target(struct pl_jinja_parser *p, bool attributes) {
    static const char *const constants[] = {"true", "True", "false", "False", "none", "None"};
    const struct pl_jinja_token *t = pl_jinja_name(p);
    struct pl_jinja_node *n = t ? pl_jinja_node_new(p, PL_JINJA_NODE_TARGET, t) : NULL;
    if (!n || !pl_jinja_intern(p, t, &n->symbol)) return NULL;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (pl_jinja_token_is(t, PL_JINJA_TOKEN_NAME, constants[i]))
            return pl_jinja_refuse_at(p, t, "`%s` cannot be set", constants[i]);
    if (!attributes || !pl_jinja_takes(p, ".")) return n;
    if (!(t = pl_jinja_name(p))) return NULL;
    n->value = pl_jinja_string(t->s, t->n);
    return n;
}

static struct pl_jinja_node *read_targets(struct pl_jinja_parser *p, bool attributes);

static struct pl_jinja_node *read_target_or_group(struct pl_jinja_parser *p, bool attributes) {
    if (!pl_jinja_takes(p, "(")) return read_target(p, attributes);
    if (!pl_jinja_deepen(p)) return NULL;
    struct pl_jinja_node *n = read_targets(p, attributes);
    p->depth--;
    return n && pl_jinja_expects(p, ")") ? n : NULL;
}

/* One target, or a TUPLE of them. */
static struct pl_jinja_node *read_targets(struct pl_jinja_parser *p, bool attributes) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *first = read_target_or_group(p, attributes);
    if (!first || !pl_jinja_sees(p, ",")) return first;
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_TUPLE, t);
    if (!n) return NULL;
    struct pl_jinja_chain items = {NULL, &n->a};
    pl_jinja_chain_add(&items, first);
    while (pl_jinja_takes(p, ",")) {
        if (pl_jinja_peek(p)->kind != PL_JINJA_TOKEN_NAME && !pl_jinja_sees(p, "(")) break;
        if (pl_jinja_sees_name(p, "in")) break;
        if (!pl_jinja_chain_add(&items, read_target_or_group(p, attributes))) return NULL;
    }
    return n;
}

/* --- blocks ----------------------------------------------------------------------------------- */
static bool read_statements(struct pl_jinja_parser *p, const char *const *ends,
                            struct pl_jinja_node **out);

static bool block_end(struct pl_jinja_parser *p) {
    if (pl_jinja_peek(p)->kind != PL_JINJA_TOKEN_BLOCK_END)
        return pl_jinja_refuse(p, "the end of the block is expected");
    p->at++;
    return true;
}

/* The rest of a tag, its body, and the tag `end`, whose name is passed over. */
static bool read_body(struct pl_jinja_parser *p, const char *end, struct pl_jinja_node **out) {
    const char *const ends[] = {end, NULL};
    if (!block_end(p) || !read_statements(p, ends, out)) return false;
    p->at++;
    return true;
}

/* A body with variables of its own: a condition around does not count, a break cannot leave it. */
static bool read_scoped_body(struct pl_jinja_parser *p, const char *end,
                             struct pl_jinja_node **out) {
    bool conditional = p->conditional;
    uint32_t loops = p->loops;
    p->conditional = false;
    p->loops = 0;
    bool ok = read_body(p, end, out);
    p->conditional = conditional;
    p->loops = loops;
    return ok;
}

static struct pl_jinja_node *read_if(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct pl_jinja_node *first = pl_jinja_node_new(p, PL_JINJA_NODE_IF, t), *n = first;
    bool conditional = p->conditional;
    p->conditional = true;
    while (n) {
        n->a = pl_jinja_parse_tuple(p, false, NULL);
        if (!n->a || !block_end(p) || !read_statements(p, ends, &n->body)) return NULL;
        t = pl_jinja_peek(p);
        if (!pl_jinja_takes_name(p, "elif")) break;
        n->c = pl_jinja_node_new(p, PL_JINJA_NODE_IF, t);
        n = n->c;
    }
    if (!n) return NULL;
    if (!pl_jinja_takes_name(p, "else"))
        p->at++;
    else if (!read_body(p, "endif", &n->otherwise))
        return NULL;
    p->conditional = conditional;
    return first;
}

static bool read_loop_body(struct pl_jinja_parser *p, struct pl_jinja_node *n) {
    static const char *const ends[] = {"endfor", "else", NULL};
    if (!block_end(p)) return false;
    p->loops++;
    bool ok = read_statements(p, ends, &n->body);
    p->loops--;
    if (!ok) return false;
    if (pl_jinja_takes_name(p, "else")) return read_body(p, "endfor", &n->otherwise);
    p->at++;
    return true;
}

static struct pl_jinja_node *read_for(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_FOR, t);
    bool conditional = p->conditional;
    if (!n || !(n->a = read_targets(p, false)) || !pl_jinja_expects_name(p, "in") ||
        !(n->b = pl_jinja_parse_tuple(p, false, "recursive")))
        return NULL;
    p->conditional = false;
    if (pl_jinja_takes_name(p, "if") && !(n->c = pl_jinja_parse_expression(p, true))) return NULL;
    if (pl_jinja_sees_name(p, "recursive"))
        return pl_jinja_refuse(p, "recursive loops are not supported");
    if (!read_loop_body(p, n)) return NULL;
    p->conditional = conditional;
    return n;
}

static struct pl_jinja_node *read_set(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_SET, t);
    if (!n || !(n->a = read_targets(p, true))) return NULL;
    if (pl_jinja_takes(p, "=")) {
        n->b = pl_jinja_parse_tuple(p, true, NULL);
        return n->b ? n : NULL;
    }
    n->kind = PL_JINJA_NODE_SET_BLOCK;
    if (pl_jinja_takes(p, "|") && !(n->b = pl_jinja_parse_filters(p, NULL))) return NULL;
    return read_scoped_body(p, "endset", &n->body) ? n : NULL;
}

static bool read_parameter(struct pl_jinja_parser *p, struct pl_jinja_chain *to, bool *defaults) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    struct pl_jinja_node *n = read_target(p, false);
    if (!n) return false;
    n->kind = PL_JINJA_NODE_PARAMETER;
    n->value = pl_jinja_string(t->s, t->n);
    if (n->symbol < PL_JINJA_SYMBOL_varargs + 1u && n->symbol != PL_JINJA_SYMBOL_loop)
        return pl_jinja_refuse_at(p, t, "a parameter called `%.*s` is not supported", (int)t->n,
                                  t->s);
    if (pl_jinja_takes(p, "=")) {
        *defaults = true;
        n->a = pl_jinja_parse_expression(p, true);
        return n->a && pl_jinja_chain_add(to, n);
    }
    if (*defaults) return pl_jinja_refuse_at(p, t, "a parameter without a default after one");
    return pl_jinja_chain_add(to, n);
}

/* Past the opening bracket. */
static bool read_parameters(struct pl_jinja_parser *p, struct pl_jinja_node **out) {
    struct pl_jinja_chain items = {NULL, out};
    bool defaults = false;
    while (!pl_jinja_sees(p, ")")) {
        if (items.last != out && !pl_jinja_expects(p, ",")) return false;
        if (!read_parameter(p, &items, &defaults)) return false;
    }
    p->at++;
    return true;
}

/* The parameters and the body of the macro n, whose end is called `end`. */
static bool read_macro_body(struct pl_jinja_parser *p, struct pl_jinja_node *n, const char *end) {
    if (p->n_macros == PL_JINJA_MACROS_DEPTH) return pl_jinja_refuse(p, "nested too deeply");
    p->macros[p->n_macros++] = n;
    bool ok = read_scoped_body(p, end, &n->body);
    p->n_macros--;
    return ok;
}

static struct pl_jinja_node *read_macro(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_MACRO, t);
    if (!n || !(t = pl_jinja_name(p)) || !pl_jinja_intern(p, t, &n->symbol)) return NULL;
    n->value = pl_jinja_string(t->s, t->n);
    if (!pl_jinja_expects(p, "(") || !read_parameters(p, &n->a)) return NULL;
    return read_macro_body(p, n, "endmacro") ? n : NULL;
}

static struct pl_jinja_node *read_call_block(struct pl_jinja_parser *p,
                                             const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_CALL_BLOCK, t);
    if (!n || !(n->b = pl_jinja_node_new(p, PL_JINJA_NODE_MACRO, t))) return NULL;
    n->b->value = pl_jinja_literal("caller");
    if (pl_jinja_takes(p, "(") && !read_parameters(p, &n->b->a)) return NULL;
    t = pl_jinja_peek(p);
    if (!(n->a = pl_jinja_parse_expression(p, true))) return NULL;
    if (n->a->kind != PL_JINJA_NODE_CALL) return pl_jinja_refuse_at(p, t, "a call is expected");
    return read_macro_body(p, n->b, "endcall") ? n : NULL;
}

static struct pl_jinja_node *read_filtered(struct pl_jinja_parser *p,
                                           const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_FILTERED, t);
    if (!n || !(n->b = pl_jinja_parse_filters(p, NULL))) return NULL;
    return read_scoped_body(p, "endfilter", &n->body) ? n : NULL;
}

static struct pl_jinja_node *read_with(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_WITH, t);
    if (!n) return NULL;
    struct pl_jinja_chain targets = {NULL, &n->a}, values = {NULL, &n->b};
    while (pl_jinja_peek(p)->kind != PL_JINJA_TOKEN_BLOCK_END) {
        if (n->a && !pl_jinja_expects(p, ",")) return NULL;
        if (!pl_jinja_chain_add(&targets, read_target(p, false)) || !pl_jinja_expects(p, "=") ||
            !pl_jinja_chain_add(&values, pl_jinja_parse_expression(p, true)))
            return NULL;
    }
    return read_scoped_body(p, "endwith", &n->body) ? n : NULL;
}

static struct pl_jinja_node *read_generation(struct pl_jinja_parser *p,
                                             const struct pl_jinja_token *t) {
    struct pl_jinja_node *n = pl_jinja_node_new(p, PL_JINJA_NODE_GENERATION, t);
    p->program->marks_answers = true;
    return n && read_scoped_body(p, "endgeneration", &n->body) ? n : NULL;
}

static struct pl_jinja_node *read_jump(struct pl_jinja_parser *p, const struct pl_jinja_token *t) {
    bool is_break = pl_jinja_token_is(t, PL_JINJA_TOKEN_NAME, "break");
    if (!p->loops) return pl_jinja_refuse_at(p, t, "`%.*s` outside of a loop", (int)t->n, t->s);
    return pl_jinja_node_new(p, is_break ? PL_JINJA_NODE_BREAK : PL_JINJA_NODE_CONTINUE, t);
}

static const struct {
    const char *name;
    struct pl_jinja_node *(*read)(struct pl_jinja_parser *p, const struct pl_jinja_token *t);
} statements[] = {
    {"if", read_if},           {"for", read_for},
    {"set", read_set},         {"macro", read_macro},
    {"call", read_call_block}, {"filter", read_filtered},
    {"with", read_with},       {"generation", read_generation},
    {"break", read_jump},      {"continue", read_jump},
};

static struct pl_jinja_node *read_statement(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_name(p);
    struct pl_jinja_node *n = NULL;
    if (!t || !pl_jinja_deepen(p)) return NULL;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!pl_jinja_token_is(t, PL_JINJA_TOKEN_NAME, statements[i].name)) continue;
        n = statements[i].read(p, t);
        p->depth--;
        return n && block_end(p) ? n : NULL;
    }
    return pl_jinja_refuse_at(p, t, "the statement `%.*s` is not supported",
                              t->n < 64 ? (int)t->n : 64, t->s);
}

static struct pl_jinja_node *read_text_or_print(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    bool text = t->kind == PL_JINJA_TOKEN_TEXT;
    struct pl_jinja_node *n =
        pl_jinja_node_new(p, text ? PL_JINJA_NODE_TEXT : PL_JINJA_NODE_PRINT, t);
    if (!n) return NULL;
    p->at++;
    if (text) {
        n->value = pl_jinja_string(t->s, t->n);
        return n;
    }
    if (!(n->a = pl_jinja_parse_tuple(p, true, NULL))) return NULL;
    if (pl_jinja_peek(p)->kind != PL_JINJA_TOKEN_PRINT_END)
        return pl_jinja_refuse(p, "`}}` is expected");
    p->at++;
    return n;
}

/* Statements up to a tag of one of these names; the cursor is left at the name. `ends` NULL: up to
 * the end of the program. */
static bool read_statements(struct pl_jinja_parser *p, const char *const *ends,
                            struct pl_jinja_node **out) {
    struct pl_jinja_chain items = {NULL, out};
    for (;;) {
        enum pl_jinja_token_kind kind = pl_jinja_peek(p)->kind;
        struct pl_jinja_node *n;
        if (kind == PL_JINJA_TOKEN_END) {
            return !ends || pl_jinja_refuse(p, "`%s` is expected before the template ends",
                                            ends[ends[1] && ends[2] ? 2 : 0]);
        } else if (kind == PL_JINJA_TOKEN_BLOCK_BEGIN) {
            p->at++;
            for (const char *const *end = ends; end && *end; end++)
                if (pl_jinja_sees_name(p, *end)) return true;
            n = read_statement(p);
        } else {
            n = read_text_or_print(p);
        }
        if (!pl_jinja_chain_add(&items, n)) return false;
    }
}

/* --- programs --------------------------------------------------------------------------------- */
static pl_err parse(struct pl_jinja_parser *p) {
#define X(name) #name,
    static const char *const known[] = {PL_JINJA_SYMBOLS(X)};
#undef X
    struct pl_jinja_node *root = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!pl_jinja_add_symbol(p->program, known[i], strlen(known[i])))
            return pl_host_oom(p->d, "the chat template");
    if (!read_statements(p, NULL, &root)) return PL_ERR_DATA_TEMPLATE;
    p->program->root = root;
    if (!p->unknown) return PL_ERR_OK;
    pl_jinja_refuse_at(p, p->unknown, "there is no filter or test `%.*s`",
                       p->unknown->n < 64 ? (int)p->unknown->n : 64, p->unknown->s);
    return PL_ERR_DATA_TEMPLATE;
}

static pl_err open_program(const char *text, size_t n, const char *name, struct pl_jinja *program,
                           struct pl_diag *d) {
    struct pl_jinja_parser p = {.program = program, .d = d};
    program->arena.limit_bytes = MAX_TREE_BYTES;
    program->arena.meter.limit = UINT64_MAX; /* the work is in proportion to the text */
    char *copy = pl_jinja_alloc(&program->arena, strlen(name) + 1);
    if (!copy) return pl_host_oom(d, "the chat template");
    program->name = strcpy(copy, name);
    if (n > MAX_TEXT_BYTES)
        return pl_diag_at(d, PL_ERR_DATA_TEMPLATE, name, 0, 0,
                          "a chat template of %zu bytes is too large", n);
    pl_err err = pl_jinja_lex(&program->arena, text, n, name, &p.tokens, d);
    return err == PL_ERR_OK ? parse(&p) : err;
}

pl_err pl_jinja_parse(const char *text, size_t n, const char *name, struct pl_jinja **out,
                      struct pl_diag *d) {
    struct pl_diag ignored = {0};
    if (!d) d = &ignored;
    *out = pl_calloc(1, sizeof **out);
    if (!*out) return pl_host_oom(d, "the chat template");
    pl_err err = open_program(text, n, name, *out, d);
    if (err != PL_ERR_OK) pl_jinja_close(out);
    return err;
}

void pl_jinja_close(struct pl_jinja **program) {
    if (!*program) return;
    pl_jinja_arena_finish(&(*program)->arena);
    free(*program);
    *program = NULL;
}

bool pl_jinja_marks_answers(const struct pl_jinja *program) {
    return program->marks_answers;
}

bool pl_jinja_mentions(const struct pl_jinja *program, const char *name, size_t n) {
    struct pl_jinja_meter meter = {.limit = UINT64_MAX};
    const struct pl_jinja_value key = pl_jinja_string(name, n);
    const struct pl_jinja_value *known = pl_jinja_map_get(&meter, program->by_name, &key);
    return known && known->i > PL_JINJA_SYMBOL_varargs;
}
