/* tree.h - a parsed Jinja program.
 *
 * In: the parser's calls.  Out: nodes, as the evaluator walks them.  Needs: value.
 *   T1  a tree that the parser handed out is whole: every node has the parts its row below names,
 *       filters, tests and functions exist, loops hold their breaks
 *   T2  nesting is at most PL_JINJA_TREE_DEPTH; chains of operators may be longer
 * Use: for (const struct pl_jinja_node *n = program->root; n; n = n->next) ... */
#ifndef PL_RUNTIME_DATA_JINJA_TREE_H
#define PL_RUNTIME_DATA_JINJA_TREE_H

#include "runtime/data/jinja/value.h"

#define PL_JINJA_TREE_DEPTH 200

/* name, and what a, b, c and the rest hold; lists are linked by `next` */
#define PL_JINJA_EXPRESSIONS(X)                                                                    \
    X(CONST)   /* value */                                                                         \
    X(NAME)    /* symbol */                                                                        \
    X(LIST)    /* a: elements */                                                                   \
    X(TUPLE)   /* a: elements */                                                                   \
    X(DICT)    /* a: keys and values in turn */                                                    \
    X(ATTR)    /* a.value */                                                                       \
    X(ITEM)    /* a[b] */                                                                          \
    X(SLICE)   /* a[b:c:d], each but a may be missing */                                           \
    X(CALL)    /* a(b...) */                                                                       \
    X(KEYWORD) /* value=a, among arguments */                                                      \
    X(SPREAD)  /* *a, or **a where op is POW, after them */                                        \
    X(FILTER)  /* a|function(b...); a is missing where a block is filtered */                      \
    X(TEST)    /* a is function(b...) */                                                           \
    X(UNKNOWN) /* a filter or test that is not known, refused when it is reached: value */         \
    X(NOT)     /* not a */                                                                         \
    X(SIGN)    /* op a */                                                                          \
    X(BINARY)  /* a op b */                                                                        \
    X(CONCAT)  /* a ~ ...: elements */                                                             \
    X(COMPARE) /* a, b: comparisons */                                                             \
    X(OPERAND) /* op a, among comparisons */                                                       \
    X(AND)     /* a and b */                                                                       \
    X(OR)      /* a or b */                                                                        \
    X(CHOICE)  /* b if a else c; c may be missing */

#define PL_JINJA_STATEMENTS(X)                                                                     \
    X(TEXT)       /* value */                                                                      \
    X(PRINT)      /* a */                                                                          \
    X(IF)         /* if a: body; c: the next IF of an elif; otherwise */                           \
    X(FOR)        /* for a in b if c: body; otherwise */                                           \
    X(SET)        /* a = b */                                                                      \
    X(SET_BLOCK)  /* a = body, through the filters b */                                            \
    X(MACRO)      /* symbol, value: the name; a: parameters; body; op: PL_JINJA_USES_* */          \
    X(CALL_BLOCK) /* a: the call; b: the MACRO that `caller` is */                                 \
    X(FILTERED)   /* body, through the filters b */                                                \
    X(WITH)       /* a: targets, b: values; body */                                                \
    X(GENERATION) /* body: what a model wrote */                                                   \
    X(BREAK)                                                                                       \
    X(CONTINUE)

enum pl_jinja_node_kind {
#define X(name) PL_JINJA_NODE_##name,
    PL_JINJA_EXPRESSIONS(X) PL_JINJA_STATEMENTS(X)
#undef X
        PL_JINJA_NODES,
    PL_JINJA_NODE_TARGET = PL_JINJA_NODES, /* symbol; value: of a namespace, the attribute */
    PL_JINJA_NODE_PARAMETER                /* symbol, value: the name; a: the default or nothing */
};

enum pl_jinja_op {
    PL_JINJA_ADD,
    PL_JINJA_SUB,
    PL_JINJA_MUL,
    PL_JINJA_DIV,
    PL_JINJA_FLOOR,
    PL_JINJA_MOD,
    PL_JINJA_POW,
    PL_JINJA_EQ,
    PL_JINJA_NE,
    PL_JINJA_LT,
    PL_JINJA_LE,
    PL_JINJA_GT,
    PL_JINJA_GE,
    PL_JINJA_IN,
    PL_JINJA_NOT_IN,
};

/* The names that the body of a macro asks for. */
enum { PL_JINJA_USES_CALLER = 1, PL_JINJA_USES_KWARGS = 2, PL_JINJA_USES_VARARGS = 4 };

struct pl_jinja_node {
    uint8_t kind, op;
    uint32_t line, column; /* 1-based */
    uint32_t symbol;
    struct pl_jinja_node *next, *a, *b, *c, *d, *body, *otherwise;
    struct pl_jinja_value value;
    const struct pl_jinja_function *function;
};

/* Symbols every program has; those of its own follow. */
#define PL_JINJA_SYMBOLS(X) X(loop) X(caller) X(kwargs) X(varargs)
enum {
#define X(name) PL_JINJA_SYMBOL_##name,
    PL_JINJA_SYMBOLS(X)
#undef X
};

struct pl_jinja_symbol {
    const char *name; /* [n] */
    size_t n;
    const struct pl_jinja_function *global; /* of the environment, NULL = none */
};

struct pl_jinja {
    struct pl_jinja_arena arena; /* of all that follows */
    const char *name;            /* for messages: where the program comes from */
    const struct pl_jinja_node *root;
    struct pl_jinja_symbol *symbols; /* [n_symbols] */
    size_t n_symbols, cap_symbols;
    struct pl_jinja_map *by_name; /* their numbers */
    bool marks_answers;           /* has a `generation` block */
};

#endif
