/* run.h - one rendering: what the parts of the evaluator share.
 *
 * In: a program, variables.  Out: text, or the first failure with its place in the program.
 * Needs: tree, chars.
 *   R1  every function that can fail returns false after recording why; callers only pass it on
 *   R2  work, memory, output and depth have limits, so a program ends soon whatever it says; the
 *       functions below pay for themselves, and those that would not are poisoned at the end
 * A program sees what it is given and a date; it reads nothing else.
 * Use: if (!pl_jinja_spend(r, PL_JINJA_CHARACTER_UNITS * n)) return false; */
#ifndef PL_RUNTIME_DATA_JINJA_RUN_H
#define PL_RUNTIME_DATA_JINJA_RUN_H

#include "estimator/base/text.h"
#include "runtime/data/jinja/chars.h"
#include "runtime/data/jinja/jinja.h"
#include "runtime/data/jinja/tree.h"

#define PL_JINJA_PARAMETERS 4

struct pl_jinja_slot {
    uint32_t symbol;
    struct pl_jinja_value value;
};

/* The variables of a block that has its own. */
struct pl_jinja_scope {
    struct pl_jinja_scope *parent;
    struct pl_jinja_slot *slots; /* [n] */
    uint32_t n, cap;
    bool kept; /* a macro refers to it */
};

struct pl_jinja_run {
    const struct pl_jinja *program;
    struct pl_jinja_arena *arena;
    struct pl_text *out;
    struct pl_jinja_spans *spans;
    const struct pl_jinja_inputs *inputs;
    /* Tables, for filters and tests that are given the name of another. */
    const struct pl_jinja_function *filters, *tests;
    struct pl_jinja_value *globals; /* [n_symbols]: the outermost scope */
    struct pl_jinja_scope *scope;   /* NULL: that one */
    const struct pl_jinja_node *at; /* what is being evaluated */
    uint64_t most_output;           /* bytes */
    uint32_t depth;
    uint32_t captures; /* blocks whose text goes into a value */
    struct pl_diag *d;
};

/* The arguments of a filter, test, method or function. */
struct pl_jinja_call {
    struct pl_jinja_value self;                     /* left of the bar or the dot */
    struct pl_jinja_value arg[PL_JINJA_PARAMETERS]; /* by parameter; ABSENT = not given */
    const struct pl_jinja_value *positional;        /* [n]: the arguments as they were written */
    size_t n;
    const struct pl_jinja_map *keywords; /* NULL: none */
};

/* A row of the tables of filters, tests, methods and functions. */
struct pl_jinja_function {
    const char *name;
    bool (*call)(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                 struct pl_jinja_value *out); /* NULL: known to Python, not supported */
    int required;                             /* parameters; -1: any arguments, not bound */
    const char *parameters[PL_JINJA_PARAMETERS];
};

struct pl_jinja_bound {
    struct pl_jinja_value self;
    const struct pl_jinja_function *function;
};

struct pl_jinja_macro {
    const struct pl_jinja_node *node;
    struct pl_jinja_scope *scope;
};

/* --- failures and limits (run.c) ------------------------------------------------------------- */
bool pl_jinja_fail(struct pl_jinja_run *r, const char *fmt, ...) PL_PRINTF(2, 3);
bool pl_jinja_fail_memory(struct pl_jinja_run *r);
/* A limit of rendering: what was too much. */
bool pl_jinja_fail_limit(struct pl_jinja_run *r, const char *fmt, ...) PL_PRINTF(2, 3);
static inline struct pl_jinja_meter *pl_jinja_meter(const struct pl_jinja_run *r) {
    return &r->arena->meter;
}
/* A level deeper, to be left by pl_jinja_leave; false: too deep, and it is not to be left. */
bool pl_jinja_enter(struct pl_jinja_run *r);
static inline void pl_jinja_leave(struct pl_jinja_run *r) {
    r->depth--;
}
/* Pays these units; with 0, false where a function that takes the meter paid too much. */
bool pl_jinja_spend(struct pl_jinja_run *r, uint64_t units);
/* Using an undefined value. */
bool pl_jinja_fail_undefined(struct pl_jinja_run *r, const struct pl_jinja_value *v);

/* Values, with the failure recorded. */
bool pl_jinja_make_list(struct pl_jinja_run *r, size_t cap, struct pl_jinja_list **out);
bool pl_jinja_push(struct pl_jinja_run *r, struct pl_jinja_list *l, const struct pl_jinja_value *v);
bool pl_jinja_make_map(struct pl_jinja_run *r, size_t cap, struct pl_jinja_map **out);
bool pl_jinja_put(struct pl_jinja_run *r, struct pl_jinja_map *m, const struct pl_jinja_value *key,
                  const struct pl_jinja_value *value);
/* A string of its own. */
bool pl_jinja_copy(struct pl_jinja_run *r, const char *s, size_t n, struct pl_jinja_value *out);
bool pl_jinja_join(struct pl_jinja_run *r, const struct pl_jinja_value *a,
                   const struct pl_jinja_value *b, struct pl_jinja_value *out);
/* Appends to *s, which is a string or ABSENT. */
bool pl_jinja_grow(struct pl_jinja_run *r, struct pl_jinja_value *s, const char *more, size_t n);

/* --- text of values (represent.c) ------------------------------------------------------------ */
bool pl_jinja_str(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                  struct pl_jinja_value *out);
/* Appends repr(v) to *s. */
bool pl_jinja_add_repr(struct pl_jinja_run *r, struct pl_jinja_value *s,
                       const struct pl_jinja_value *v);
#define PL_JINJA_FLOAT_ROOM 40
size_t pl_jinja_float_repr(struct pl_jinja_meter *m, double f, char out[PL_JINJA_FLOAT_ROOM]);
bool pl_jinja_add_json(struct pl_jinja_run *r, struct pl_jinja_value *s,
                       const struct pl_jinja_value *v, const struct pl_jinja_call *how);

/* --- iteration (iterate.c) ------------------------------------------------------------------- */
/* Sets *done at the end. */
struct pl_jinja_iterator {
    bool (*next)(struct pl_jinja_run *r, struct pl_jinja_iterator *it, struct pl_jinja_value *out,
                 bool *done);
    struct pl_jinja_value over; /* what it goes through */
    size_t at;
    struct pl_jinja_iterator *source; /* of one that changes what another gives */
    const struct pl_jinja_function *function;
    const struct pl_jinja_call *call;
    const struct pl_jinja_node *node; /* of loops with a condition */
    struct pl_jinja_scope *scope;
    struct pl_jinja_map *seen; /* keys that `unique` gave */
    bool by_attribute, reject; /* of select and its kind */
};
bool pl_jinja_iterate(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      struct pl_jinja_iterator **out);
bool pl_jinja_next(struct pl_jinja_run *r, struct pl_jinja_iterator *it, struct pl_jinja_value *out,
                   bool *done);
/* list(v) */
bool pl_jinja_list_of(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      struct pl_jinja_list **out);
/* len(v); false without a failure recorded: it has none. */
bool pl_jinja_length(struct pl_jinja_meter *m, const struct pl_jinja_value *v, size_t *out);
/* separator.join of the str() of each (represent.c). */
bool pl_jinja_join_all(struct pl_jinja_run *r, const struct pl_jinja_value *separator,
                       struct pl_jinja_iterator *it, bool strings_only, struct pl_jinja_value *out);
/* Stable, by the keys. */
bool pl_jinja_sort(struct pl_jinja_run *r, struct pl_jinja_entry *all, size_t n, bool reverse);

/* --- operators (operators.c) ----------------------------------------------------------------- */
bool pl_jinja_binary(struct pl_jinja_run *r, enum pl_jinja_op op, const struct pl_jinja_value *a,
                     const struct pl_jinja_value *b, struct pl_jinja_value *out);
/* Marks of HTML in a string, unless `safe` made it. */
bool pl_jinja_escape(struct pl_jinja_run *r, struct pl_jinja_value *v);
bool pl_jinja_compare(struct pl_jinja_run *r, enum pl_jinja_op op, const struct pl_jinja_value *a,
                      const struct pl_jinja_value *b, bool *out);
/* v[range[0]:range[1]:range[2]]; ABSENT parts are left out. */
bool pl_jinja_slice(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                    const struct pl_jinja_value range[3], struct pl_jinja_value *out);

/* --- members and calls (members.c, calls.c) -------------------------------------------------- */
/* v.name and v[key], as Jinja looks for them: one of either, else undefined. */
bool pl_jinja_attr(struct pl_jinja_run *r, const struct pl_jinja_value *v, const char *name,
                   size_t n, struct pl_jinja_value *out);
bool pl_jinja_item(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                   const struct pl_jinja_value *key, struct pl_jinja_value *out);
/* A member that is no item: a method, an attribute of a namespace or a loop; ABSENT = none. */
bool pl_jinja_member(struct pl_jinja_run *r, const struct pl_jinja_value *v, const char *name,
                     size_t n, struct pl_jinja_value *out);
/* Binds positional and keyword arguments to the parameters of f, and calls it. */
bool pl_jinja_invoke(struct pl_jinja_run *r, const struct pl_jinja_function *f,
                     struct pl_jinja_call *c, struct pl_jinja_value *out);
bool pl_jinja_call_macro(struct pl_jinja_run *r, const struct pl_jinja_macro *m,
                         const struct pl_jinja_call *c, struct pl_jinja_value *out);

/* --- evaluation (eval.c, statements.c) ------------------------------------------------------- */
bool pl_jinja_eval(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                   struct pl_jinja_value *out);
/* The filters of a block: node is FILTER, `text` what its innermost one is applied to. */
bool pl_jinja_eval_filters(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                           const struct pl_jinja_value *text, struct pl_jinja_value *out);
bool pl_jinja_eval_call(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        const struct pl_jinja_value *caller, struct pl_jinja_value *out);
/* Values of names; set stores in the innermost scope. */
void pl_jinja_get_variable(struct pl_jinja_run *r, uint32_t symbol, struct pl_jinja_value *out);
bool pl_jinja_set_variable(struct pl_jinja_run *r, uint32_t symbol, const struct pl_jinja_value *v);
/* v into a TARGET or a TUPLE of them. */
bool pl_jinja_assign(struct pl_jinja_run *r, const struct pl_jinja_node *target,
                     const struct pl_jinja_value *v);
/* Statements in the scope given, their text into *out instead of the output. */
bool pl_jinja_capture(struct pl_jinja_run *r, const struct pl_jinja_node *body,
                      struct pl_jinja_scope *scope, struct pl_jinja_value *out);
bool pl_jinja_run_program(struct pl_jinja_run *r);

/* --- tables ---------------------------------------------------------------------------------- */
/* Each ends with a row without a name. Methods: NULL = values of this kind have none. */
const struct pl_jinja_function *pl_jinja_filters(void);
const struct pl_jinja_function *pl_jinja_tests(void);
const struct pl_jinja_function *pl_jinja_globals(void);
const struct pl_jinja_function *pl_jinja_methods(const struct pl_jinja_value *v);
/* The row of this name; NULL: there is none. */
const struct pl_jinja_function *pl_jinja_find_function(const struct pl_jinja_function *table,
                                                       const char *name, size_t n);

/* Their work depends on texts and is not metered: a program goes through pl_jinja_search and its
 * kind, pl_jinja_map_get, pl_jinja_equal, pl_jinja_copy. */
#pragma GCC poison memchr memcmp memmem pl_jinja_find pl_jinja_rfind pl_jinja_strip
#pragma GCC poison pl_jinja_is_blank pl_jinja_map_find

#endif
