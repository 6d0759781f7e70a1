/* parse.h - the parser's state: parser.c, on which parse_expression.c stands, and on that parse.c,
 * which reads statements.
 *
 * In: tokens.  Out: nodes.  Needs: lex, tree.
 *   G1  a function returns NULL after recording why; a list that may be empty is asked for by bool
 *   G2  what Jinja reads and this program does not is refused at its token
 * Use: struct pl_jinja_node *n = pl_jinja_parse_expression(p, true); */
#ifndef PL_RUNTIME_DATA_JINJA_PARSE_H
#define PL_RUNTIME_DATA_JINJA_PARSE_H

#include "runtime/data/jinja/lex.h"
#include "runtime/data/jinja/tree.h"

#define PL_JINJA_MACROS_DEPTH 32

struct pl_jinja_parser {
    struct pl_jinja *program;
    struct pl_jinja_tokens tokens;
    size_t at;
    uint32_t depth;
    uint32_t loops;   /* that a break would leave */
    bool conditional; /* in an `if`: a filter that is not known fails only when it is reached */
    const struct pl_jinja_token *unknown; /* the first one that is not in one; NULL = none */
    struct pl_jinja_node *macros[PL_JINJA_MACROS_DEPTH]; /* that stand around */
    size_t n_macros;
    struct pl_diag *d;
};

/* A list of nodes under construction. */
struct pl_jinja_chain {
    struct pl_jinja_node *first, **last;
};

static inline const struct pl_jinja_token *pl_jinja_peek(const struct pl_jinja_parser *p) {
    return &p->tokens.items[p->at];
}
bool pl_jinja_token_is(const struct pl_jinja_token *t, enum pl_jinja_token_kind kind,
                       const char *text);
/* The next token is this operator, or this name. */
bool pl_jinja_sees(const struct pl_jinja_parser *p, const char *op);
bool pl_jinja_sees_name(const struct pl_jinja_parser *p, const char *name);
/* The same, and passes over it. */
bool pl_jinja_takes(struct pl_jinja_parser *p, const char *op);
bool pl_jinja_takes_name(struct pl_jinja_parser *p, const char *name);
/* The same, else a failure. */
bool pl_jinja_expects(struct pl_jinja_parser *p, const char *op);
bool pl_jinja_expects_name(struct pl_jinja_parser *p, const char *name);

/* Records a problem at the next token; returns NULL. */
void *pl_jinja_refuse(struct pl_jinja_parser *p, const char *fmt, ...) PL_PRINTF(2, 3);
void *pl_jinja_refuse_at(struct pl_jinja_parser *p, const struct pl_jinja_token *t, const char *fmt,
                         ...) PL_PRINTF(3, 4);
/* Goes one level deeper, unless that is too deep; callers count p->depth down. */
bool pl_jinja_deepen(struct pl_jinja_parser *p);

struct pl_jinja_node *pl_jinja_node_new(struct pl_jinja_parser *p, int kind,
                                        const struct pl_jinja_token *at);
/* Appends n to c; false where n is NULL. */
bool pl_jinja_chain_add(struct pl_jinja_chain *c, struct pl_jinja_node *n);
/* A name that is not among the symbols yet. False: no memory. */
bool pl_jinja_add_symbol(struct pl_jinja *program, const char *name, size_t n);
/* The number of a name among the symbols of the program. */
bool pl_jinja_intern(struct pl_jinja_parser *p, const struct pl_jinja_token *name, uint32_t *out);
/* The name token that comes next. NULL: it is another. */
const struct pl_jinja_token *pl_jinja_name(struct pl_jinja_parser *p);

/* choice: `a if b else c` may stand there. */
struct pl_jinja_node *pl_jinja_parse_expression(struct pl_jinja_parser *p, bool choice);
/* Expressions by commas: one of them, or a TUPLE. `stop`: a name that ends it, or NULL. */
struct pl_jinja_node *pl_jinja_parse_tuple(struct pl_jinja_parser *p, bool choice,
                                           const char *stop);
struct pl_jinja_node *pl_jinja_parse_postfix(struct pl_jinja_parser *p, struct pl_jinja_node *n);
/* The filters that follow; `n` NULL: of a block, the first one without its bar. */
struct pl_jinja_node *pl_jinja_parse_filters(struct pl_jinja_parser *p, struct pl_jinja_node *n);
struct pl_jinja_node *pl_jinja_parse_unary(struct pl_jinja_parser *p, bool filters);

#endif
