/* calls.c - functions, methods and macros with their arguments. */
#include "runtime/data/jinja/run.h"

static bool bind_keywords(struct pl_jinja_run *r, const struct pl_jinja_function *f,
                          struct pl_jinja_call *c) {
    for (size_t i = 0; c->keywords && i < c->keywords->n; i++) {
        const struct pl_jinja_entry *e = &c->keywords->entries[i];
        size_t k = 0;
        while (k < PL_JINJA_PARAMETERS && f->parameters[k] &&
               !pl_jinja_is(&e->key, f->parameters[k]))
            k++;
        if (k == PL_JINJA_PARAMETERS || !f->parameters[k] || c->arg[k].kind != PL_JINJA_ABSENT)
            return pl_jinja_fail(r, "%s() takes no keyword argument '%.*s'", f->name, (int)e->key.n,
                                 e->key.s);
        c->arg[k] = e->value;
    }
    return true;
}

bool pl_jinja_invoke(struct pl_jinja_run *r, const struct pl_jinja_function *f,
                     struct pl_jinja_call *c, struct pl_jinja_value *out) {
    if (!pl_jinja_spend(r, PL_JINJA_STEP_UNITS)) return false;
    if (!f->call) return pl_jinja_fail(r, "`%s` is not supported", f->name);
    if (f->required < 0) return f->call(r, c, out);
    size_t most = 0;
    while (most < PL_JINJA_PARAMETERS && f->parameters[most])
        most++;
    if (c->n > most) return pl_jinja_fail(r, "%s(): too many arguments", f->name);
    for (size_t i = 0; i < c->n; i++)
        c->arg[i] = c->positional[i];
    if (!bind_keywords(r, f, c)) return false;
    for (int k = 0; k < f->required; k++)
        if (c->arg[k].kind == PL_JINJA_ABSENT)
            return pl_jinja_fail(r, "%s(): the argument '%s' is missing", f->name,
                                 f->parameters[k]);
    return f->call(r, c, out);
}

/* --- macros ----------------------------------------------------------------------------------- */
/* Arguments of one call while they are handed out. */
struct binding {
    const struct pl_jinja_call *c;
    size_t positional, keywords; /* used so far */
    struct pl_jinja_map *rest;   /* keywords that are no parameters */
};

static const struct pl_jinja_value *keyword(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                                            const struct pl_jinja_value *name) {
    return c->keywords ? pl_jinja_map_get(pl_jinja_meter(r), c->keywords, name) : NULL;
}

static bool bind_parameter(struct pl_jinja_run *r, struct binding *b,
                           const struct pl_jinja_node *p) {
    struct pl_jinja_value v = {.kind = PL_JINJA_UNDEFINED, .s = p->value.s, .n = p->value.n};
    const struct pl_jinja_value *named = NULL;
    if (b->positional < b->c->n)
        v = b->c->positional[b->positional++];
    else if ((named = keyword(r, b->c, &p->value)) != NULL)
        v = *named;
    else if (p->a && !pl_jinja_eval(r, p->a, &v))
        return false;
    b->keywords += named != NULL;
    return pl_jinja_set_variable(r, p->symbol, &v);
}

static bool is_parameter(struct pl_jinja_run *r, const struct pl_jinja_node *macro,
                         const struct pl_jinja_value *name, size_t given) {
    size_t i = 0;
    for (const struct pl_jinja_node *p = macro->a; p; p = p->next, i++)
        if (pl_jinja_equal(pl_jinja_meter(r), &p->value, name) && i >= given) return true;
    return false;
}

static bool bind_caller(struct pl_jinja_run *r, struct binding *b) {
    struct pl_jinja_value none = {.kind = PL_JINJA_UNDEFINED, .s = "caller", .n = 6};
    const struct pl_jinja_value name = pl_jinja_literal("caller"), *v = keyword(r, b->c, &name);
    b->keywords += v != NULL;
    if (!v || v->kind == PL_JINJA_NONE) v = &none;
    return pl_jinja_set_variable(r, PL_JINJA_SYMBOL_caller, v);
}

static bool bind_rest(struct pl_jinja_run *r, struct binding *b,
                      const struct pl_jinja_node *macro) {
    struct pl_jinja_map *rest;
    if (!pl_jinja_make_map(r, 0, &rest)) return false;
    for (size_t i = 0; b->c->keywords && i < b->c->keywords->n; i++) {
        const struct pl_jinja_entry *e = &b->c->keywords->entries[i];
        bool caller = (macro->op & PL_JINJA_USES_CALLER) && pl_jinja_is(&e->key, "caller");
        if (caller || is_parameter(r, macro, &e->key, b->c->n)) continue;
        if (!pl_jinja_put(r, rest, &e->key, &e->value)) return false;
    }
    const struct pl_jinja_value v = pl_jinja_map(rest);
    return pl_jinja_set_variable(r, PL_JINJA_SYMBOL_kwargs, &v);
}

static bool bind_varargs(struct pl_jinja_run *r, const struct binding *b) {
    struct pl_jinja_list *l;
    if (!pl_jinja_make_list(r, 0, &l)) return false;
    for (size_t i = b->positional; i < b->c->n; i++)
        if (!pl_jinja_push(r, l, &b->c->positional[i])) return false;
    const struct pl_jinja_value v = pl_jinja_list(l, PL_JINJA_TUPLE);
    return pl_jinja_set_variable(r, PL_JINJA_SYMBOL_varargs, &v);
}

static bool bind_all(struct pl_jinja_run *r, const struct pl_jinja_node *macro,
                     const struct pl_jinja_call *c) {
    struct binding b = {.c = c};
    for (const struct pl_jinja_node *p = macro->a; p; p = p->next)
        if (!bind_parameter(r, &b, p)) return false;
    if ((macro->op & PL_JINJA_USES_CALLER) && !bind_caller(r, &b)) return false;
    if (macro->op & PL_JINJA_USES_KWARGS) {
        if (!bind_rest(r, &b, macro)) return false;
    } else if (c->keywords && b.keywords < c->keywords->n) {
        return pl_jinja_fail(r, "macro '%.*s' takes no such keyword argument", (int)macro->value.n,
                             macro->value.s);
    }
    if (macro->op & PL_JINJA_USES_VARARGS) return bind_varargs(r, &b);
    return b.positional == c->n ||
           pl_jinja_fail(r, "macro '%.*s' takes not more than %zu argument(s)", (int)macro->value.n,
                         macro->value.s, b.positional);
}

bool pl_jinja_call_macro(struct pl_jinja_run *r, const struct pl_jinja_macro *m,
                         const struct pl_jinja_call *c, struct pl_jinja_value *out) {
    struct pl_jinja_scope scope = {.parent = m->scope}, *outer = r->scope;
    struct pl_jinja_scope *own = pl_jinja_alloc(r->arena, sizeof *own);
    if (!own) return pl_jinja_fail_memory(r);
    *own = scope;
    r->scope = own;
    bool ok = bind_all(r, m->node, c) && pl_jinja_capture(r, m->node->body, own, out);
    r->scope = outer;
    return ok;
}
