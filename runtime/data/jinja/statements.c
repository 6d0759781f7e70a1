/* statements.c - what a program does: output, branches, loops, variables, macros. */
#include "runtime/data/jinja/loop.h"
#include "estimator/base/alloc.h"

#include <stdlib.h>

enum flow { NEXT, BREAK, CONTINUE, FAILED };

static enum flow run_all(struct pl_jinja_run *r, const struct pl_jinja_node *first);

static enum flow flow_of(bool ok) {
    return ok ? NEXT : FAILED;
}

/* --- output ----------------------------------------------------------------------------------- */
static bool put(struct pl_jinja_run *r, const char *s, size_t n) {
    if (n > r->most_output - r->out->len)
        return pl_jinja_fail_limit(r, "the template renders more than %llu MiB",
                                   (unsigned long long)(r->most_output >> 20));
    pl_text_addn(r->out, s, n);
    return pl_jinja_spend(r, n);
}

static enum flow run_text(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    return flow_of(put(r, n->value.s, n->value.n));
}

static enum flow run_print(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v, text;
    return flow_of(pl_jinja_eval(r, n->a, &v) && pl_jinja_str(r, &v, &text) &&
                   put(r, text.s, text.n));
}

/* --- scopes ----------------------------------------------------------------------------------- */
static struct pl_jinja_scope *open_scope(struct pl_jinja_run *r, struct pl_jinja_scope *parent) {
    struct pl_jinja_scope *s = pl_jinja_alloc(r->arena, sizeof *s);
    if (!s) {
        pl_jinja_fail_memory(r);
        return NULL;
    }
    s->parent = parent;
    return s;
}

/* Statements with variables of their own. */
static enum flow run_scoped(struct pl_jinja_run *r, const struct pl_jinja_node *body,
                            struct pl_jinja_scope *scope) {
    struct pl_jinja_scope *outer = r->scope;
    if (!scope) return FAILED;
    r->scope = scope;
    enum flow flow = run_all(r, body);
    r->scope = outer;
    return flow;
}

bool pl_jinja_capture(struct pl_jinja_run *r, const struct pl_jinja_node *body,
                      struct pl_jinja_scope *scope, struct pl_jinja_value *out) {
    size_t begin = r->out->len;
    r->captures++;
    enum flow flow = run_scoped(r, body, scope);
    r->captures--;
    if (flow == FAILED || r->out->failed) return false;
    if (!pl_jinja_copy(r, r->out->data + begin, r->out->len - begin, out)) return false;
    r->out->len = begin;
    return true;
}

/* --- branches and variables ------------------------------------------------------------------- */
static enum flow run_if(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v;
    for (;;) {
        if (!pl_jinja_eval(r, n->a, &v)) return FAILED;
        if (pl_jinja_truth(&v)) return run_all(r, n->body);
        if (!n->c) return run_all(r, n->otherwise);
        n = n->c;
    }
}

/* An attribute can be set of namespaces only, which is looked at before the value is worked out. */
static bool check_target(struct pl_jinja_run *r, const struct pl_jinja_node *t) {
    struct pl_jinja_value v;
    if (t->kind == PL_JINJA_NODE_TUPLE) {
        for (t = t->a; t; t = t->next)
            if (!check_target(r, t)) return false;
        return true;
    }
    if (t->value.kind == PL_JINJA_ABSENT) return true;
    pl_jinja_get_variable(r, t->symbol, &v);
    return v.kind == PL_JINJA_NAMESPACE ||
           pl_jinja_fail(r, "cannot assign attribute on non-namespace object");
}

static bool assign_each(struct pl_jinja_run *r, const struct pl_jinja_node *targets,
                        const struct pl_jinja_value *v) {
    struct pl_jinja_list *l;
    size_t n = 0;
    for (const struct pl_jinja_node *t = targets; t; t = t->next)
        n++;
    if (!pl_jinja_list_of(r, v, &l)) return false;
    if (l->n != n) return pl_jinja_fail(r, "%zu values to unpack into %zu names", l->n, n);
    for (const struct pl_jinja_node *t = targets; t; t = t->next)
        if (!pl_jinja_assign(r, t, &l->items[l->n - n--])) return false;
    return true;
}

bool pl_jinja_assign(struct pl_jinja_run *r, const struct pl_jinja_node *target,
                     const struct pl_jinja_value *v) {
    struct pl_jinja_value of;
    if (target->kind == PL_JINJA_NODE_TUPLE) return assign_each(r, target->a, v);
    if (target->value.kind == PL_JINJA_ABSENT) return pl_jinja_set_variable(r, target->symbol, v);
    pl_jinja_get_variable(r, target->symbol, &of);
    if (target->value.s[0] == '_')
        return pl_jinja_fail(r, "a namespace cannot store names that begin with _");
    return pl_jinja_put(r, of.map, &target->value, v);
}

static enum flow run_set(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v;
    r->at = n;
    return flow_of(check_target(r, n->a) && pl_jinja_eval(r, n->b, &v) &&
                   pl_jinja_assign(r, n->a, &v));
}

static enum flow run_set_block(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v;
    r->at = n;
    if (!check_target(r, n->a)) return FAILED;
    if (!pl_jinja_capture(r, n->body, open_scope(r, r->scope), &v)) return FAILED;
    if (n->b && !pl_jinja_eval_filters(r, n->b, &v, &v)) return FAILED;
    return flow_of(pl_jinja_assign(r, n->a, &v));
}

static enum flow run_filtered(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v, text;
    return flow_of(pl_jinja_capture(r, n->body, open_scope(r, r->scope), &v) &&
                   pl_jinja_eval_filters(r, n->b, &v, &v) && pl_jinja_str(r, &v, &text) &&
                   put(r, text.s, text.n));
}

static enum flow run_with(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_scope *scope = open_scope(r, r->scope), *outer = r->scope;
    const struct pl_jinja_node *value = n->b;
    struct pl_jinja_value v;
    if (!scope) return FAILED;
    for (const struct pl_jinja_node *t = n->a; t; t = t->next, value = value->next) {
        if (!pl_jinja_eval(r, value, &v)) return FAILED; /* the names around, not those before */
        r->scope = scope;
        bool ok = pl_jinja_assign(r, t, &v);
        r->scope = outer;
        if (!ok) return FAILED;
    }
    return run_scoped(r, n->body, scope);
}

/* --- macros ----------------------------------------------------------------------------------- */
static bool make_macro(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                       struct pl_jinja_value *out) {
    struct pl_jinja_macro *m = pl_jinja_alloc(r->arena, sizeof *m);
    if (!m) return pl_jinja_fail_memory(r);
    *m = (struct pl_jinja_macro){n, r->scope};
    for (struct pl_jinja_scope *s = r->scope; s && !s->kept; s = s->parent)
        s->kept = true; /* those around one that is kept are kept */
    *out = (struct pl_jinja_value){.kind = PL_JINJA_MACRO, .macro = m};
    return true;
}

static enum flow run_macro(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value v;
    return flow_of(make_macro(r, n, &v) && pl_jinja_set_variable(r, n->symbol, &v));
}

static enum flow run_call_block(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_value caller, v, text;
    return flow_of(make_macro(r, n->b, &caller) && pl_jinja_eval_call(r, n->a, &caller, &v) &&
                   pl_jinja_str(r, &v, &text) && put(r, text.s, text.n));
}

static bool add_span(struct pl_jinja_run *r, size_t begin, size_t end) {
    struct pl_jinja_spans *s = r->spans;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct pl_jinja_span *items = pl_realloc(s->items, cap * sizeof *items);
        if (!items) {
            r->arena->shortage = PL_JINJA_NO_MEMORY;
            return pl_jinja_fail_memory(r);
        }
        s->items = items;
        s->cap = cap;
    }
    s->items[s->n++] = (struct pl_jinja_span){begin, end};
    return true;
}

static enum flow run_generation(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    size_t begin = r->out->len;
    r->at = n;
    if (r->spans && r->captures) {
        pl_jinja_fail(r, "a generation block whose text goes into a value is not supported");
        return FAILED;
    }
    enum flow flow = run_scoped(r, n->body, open_scope(r, r->scope));
    return flow == NEXT && r->spans ? flow_of(add_span(r, begin, r->out->len)) : flow;
}

/* --- loops ------------------------------------------------------------------------------------ */
/* The elements of another iterator for which the condition of the loop holds. */
static bool next_wanted(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                        struct pl_jinja_value *out, bool *done) {
    struct pl_jinja_scope *outer = r->scope;
    struct pl_jinja_value holds = {0};
    bool ok = true;
    do {
        *done = false;
        if (!pl_jinja_next(r, it->source, out, done)) return false;
        if (*done) return true;
        it->scope->n = 0;
        r->scope = it->scope;
        ok = pl_jinja_assign(r, it->node->a, out) && pl_jinja_eval(r, it->node->c, &holds);
        r->scope = outer;
    } while (ok && !pl_jinja_truth(&holds));
    return ok;
}

static bool open_loop(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_loop *l) {
    struct pl_jinja_value over;
    if (!pl_jinja_eval(r, n->b, &over) || !pl_jinja_iterate(r, &over, &l->it)) return false;
    if (!n->c) return true;
    struct pl_jinja_iterator *it = pl_jinja_alloc(r->arena, sizeof *it);
    if (!it) return pl_jinja_fail_memory(r);
    it->next = next_wanted;
    it->source = l->it;
    it->node = n;
    it->scope = open_scope(r, r->scope);
    l->it = it;
    return it->scope != NULL;
}

/* The text written since `begin` belongs to the element, if that is a part. */
static void add_part(const struct pl_jinja_run *r, const struct pl_jinja_value *element,
                     size_t begin) {
    const size_t end = r->out->len;
    if (!r->inputs->parts || r->captures || element->kind != PL_JINJA_MAP || begin >= end) return;
    if (!element->map->part || element->map->part > r->inputs->n_parts) return;
    struct pl_jinja_span *part = &r->inputs->parts[element->map->part - 1];
    if (!part->end)
        *part = (struct pl_jinja_span){begin, end};
    else if (part->end == begin)
        part->end = end;
    else
        *part = (struct pl_jinja_span){SIZE_MAX, SIZE_MAX};
}

static enum flow run_iterations(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                                struct pl_jinja_loop *l, struct pl_jinja_scope *outer) {
    const struct pl_jinja_value loop = {.kind = PL_JINJA_LOOP, .loop = l};
    struct pl_jinja_scope *scope = NULL;
    enum flow flow = NEXT;
    bool done;
    for (;;) {
        r->scope = outer;
        if (!pl_jinja_loop_advance(r, l, &done)) return FAILED;
        if (done) return NEXT;
        if (!scope || scope->kept) scope = open_scope(r, outer);
        if (!scope) return FAILED;
        scope->n = 0;
        r->scope = scope;
        if (!pl_jinja_set_variable(r, PL_JINJA_SYMBOL_loop, &loop) ||
            !pl_jinja_assign(r, n->a, &l->current))
            return FAILED;
        const size_t begin = r->out->len;
        flow = run_all(r, n->body);
        add_part(r, &l->current, begin);
        if (flow == BREAK || flow == FAILED) return flow;
        l->completed |= flow == NEXT; /* Jinja's own: one left by `continue` does not count */
    }
}

static enum flow run_for(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    struct pl_jinja_scope *outer = r->scope;
    struct pl_jinja_loop *l = pl_jinja_alloc(r->arena, sizeof *l);
    if (!l) {
        pl_jinja_fail_memory(r);
        return FAILED;
    }
    l->index0 = -1;
    r->at = n;
    if (!open_loop(r, n, l)) return FAILED;
    enum flow flow = run_iterations(r, n, l, outer);
    r->scope = outer;
    if (flow == FAILED) return FAILED;
    if (!l->completed) return run_scoped(r, n->otherwise, open_scope(r, outer));
    return NEXT;
}

static enum flow run_break(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    (void)r, (void)n;
    return BREAK;
}

static enum flow run_continue(struct pl_jinja_run *r, const struct pl_jinja_node *n) {
    (void)r, (void)n;
    return CONTINUE;
}

/* --- all of them ------------------------------------------------------------------------------ */
typedef enum flow runner(struct pl_jinja_run *r, const struct pl_jinja_node *n);
#define AT(name) [PL_JINJA_NODE_##name - PL_JINJA_NODE_TEXT]

static runner *const runners[] = {
    AT(TEXT) = run_text,
    AT(PRINT) = run_print,
    AT(IF) = run_if,
    AT(FOR) = run_for,
    AT(SET) = run_set,
    AT(SET_BLOCK) = run_set_block,
    AT(MACRO) = run_macro,
    AT(CALL_BLOCK) = run_call_block,
    AT(FILTERED) = run_filtered,
    AT(WITH) = run_with,
    AT(GENERATION) = run_generation,
    AT(BREAK) = run_break,
    AT(CONTINUE) = run_continue,
};

static enum flow run_all(struct pl_jinja_run *r, const struct pl_jinja_node *first) {
    const struct pl_jinja_node *outer = r->at;
    enum flow flow = NEXT;
    if (!pl_jinja_enter(r)) return FAILED;
    for (const struct pl_jinja_node *n = first; n && flow == NEXT; n = n->next) {
        r->at = n;
        flow = flow_of(pl_jinja_spend(r, PL_JINJA_STEP_UNITS));
        if (flow == NEXT) flow = runners[n->kind - PL_JINJA_NODE_TEXT](r, n);
    }
    pl_jinja_leave(r);
    r->at = outer;
    return flow;
}

bool pl_jinja_run_program(struct pl_jinja_run *r) {
    return run_all(r, r->program->root) != FAILED;
}
