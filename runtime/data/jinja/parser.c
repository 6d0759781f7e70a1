/* parser.c - what the readers of statements and of expressions share: tokens, nodes and names. */
#include "runtime/data/jinja/parse.h"
#include "runtime/data/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_SYMBOLS 4096

/* --- tokens ----------------------------------------------------------------------------------- */
bool pl_jinja_token_is(const struct pl_jinja_token *t, enum pl_jinja_token_kind kind,
                       const char *text) {
    return t->kind == kind && pl_jinja_named(t->s, t->n, text);
}

bool pl_jinja_sees(const struct pl_jinja_parser *p, const char *op) {
    return pl_jinja_token_is(pl_jinja_peek(p), PL_JINJA_TOKEN_OPERATOR, op);
}

bool pl_jinja_sees_name(const struct pl_jinja_parser *p, const char *name) {
    return pl_jinja_token_is(pl_jinja_peek(p), PL_JINJA_TOKEN_NAME, name);
}

bool pl_jinja_takes(struct pl_jinja_parser *p, const char *op) {
    bool seen = pl_jinja_sees(p, op);
    p->at += seen;
    return seen;
}

bool pl_jinja_takes_name(struct pl_jinja_parser *p, const char *name) {
    bool seen = pl_jinja_sees_name(p, name);
    p->at += seen;
    return seen;
}

void *pl_jinja_refuse_at(struct pl_jinja_parser *p, const struct pl_jinja_token *t, const char *fmt,
                         ...) {
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    pl_diag_at(p->d, PL_ERR_DATA_TEMPLATE, p->program->name, t->line, t->column, "%s", what);
    return NULL;
}

void *pl_jinja_refuse(struct pl_jinja_parser *p, const char *fmt, ...) {
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return pl_jinja_refuse_at(p, pl_jinja_peek(p), "%s", what);
}

bool pl_jinja_expects(struct pl_jinja_parser *p, const char *op) {
    return pl_jinja_takes(p, op) || pl_jinja_refuse(p, "`%s` is expected", op);
}

bool pl_jinja_expects_name(struct pl_jinja_parser *p, const char *name) {
    return pl_jinja_takes_name(p, name) || pl_jinja_refuse(p, "`%s` is expected", name);
}

const struct pl_jinja_token *pl_jinja_name(struct pl_jinja_parser *p) {
    const struct pl_jinja_token *t = pl_jinja_peek(p);
    if (t->kind != PL_JINJA_TOKEN_NAME) return pl_jinja_refuse(p, "a name is expected");
    p->at++;
    return t;
}

/* --- nodes ------------------------------------------------------------------------------------ */
bool pl_jinja_deepen(struct pl_jinja_parser *p) {
    return ++p->depth <= PL_JINJA_TREE_DEPTH || pl_jinja_refuse(p, "nested too deeply");
}

struct pl_jinja_node *pl_jinja_node_new(struct pl_jinja_parser *p, int kind,
                                        const struct pl_jinja_token *at) {
    struct pl_jinja_node *n = pl_jinja_alloc(&p->program->arena, sizeof *n);
    if (!n) return pl_jinja_refuse_at(p, at, "no memory for the template");
    n->kind = (uint8_t)kind;
    n->line = at->line;
    n->column = at->column;
    return n;
}

bool pl_jinja_chain_add(struct pl_jinja_chain *c, struct pl_jinja_node *n) {
    if (!n) return false;
    *c->last = n;
    c->last = &n->next;
    return true;
}

bool pl_jinja_add_symbol(struct pl_jinja *program, const char *name, size_t n) {
    const struct pl_jinja_value key = pl_jinja_string(name, n);
    const struct pl_jinja_value number = pl_jinja_int((int64_t)program->n_symbols);
    if (!program->by_name) program->by_name = pl_jinja_map_new(&program->arena, 0);
    if (!program->by_name || !pl_jinja_map_set(&program->arena, program->by_name, &key, &number))
        return false;
    if (program->n_symbols == program->cap_symbols) {
        size_t cap = program->cap_symbols ? 2 * program->cap_symbols : 64;
        struct pl_jinja_symbol *all = pl_jinja_alloc_array(&program->arena, cap, sizeof *all);
        if (!all) return false;
        if (program->n_symbols) memcpy(all, program->symbols, program->n_symbols * sizeof *all);
        program->symbols = all;
        program->cap_symbols = cap;
    }
    program->symbols[program->n_symbols++] =
        (struct pl_jinja_symbol){name, n, pl_jinja_find_function(pl_jinja_globals(), name, n)};
    return true;
}

bool pl_jinja_intern(struct pl_jinja_parser *p, const struct pl_jinja_token *name, uint32_t *out) {
    struct pl_jinja *program = p->program;
    const struct pl_jinja_value key = pl_jinja_string(name->s, name->n);
    const struct pl_jinja_value *known =
        pl_jinja_map_get(&program->arena.meter, program->by_name, &key);
    *out = known ? (uint32_t)known->i : (uint32_t)program->n_symbols;
    if (known) return true;
    return (program->n_symbols < MAX_SYMBOLS && pl_jinja_add_symbol(program, name->s, name->n)) ||
           pl_jinja_refuse_at(p, name, "the template has too many names");
}
