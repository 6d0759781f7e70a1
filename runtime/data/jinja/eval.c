/* eval.c - expressions. */
#include "runtime/data/jinja/run.h"

/* --- variables -------------------------------------------------------------------------------- */
/* The slot of the symbol in this scope. */
static struct pl_jinja_slot *slot_of(struct pl_jinja_run *r, const struct pl_jinja_scope *s,
                                     uint32_t symbol) {
    uint32_t i = 0;
    while (i < s->n && s->slots[i].symbol != symbol)
        i++;
    pl_jinja_pay(pl_jinja_meter(r), PL_JINJA_ITEM_UNITS + 2 * (uint64_t)i);
    return i < s->n ? &s->slots[i] : NULL;
}

void pl_jinja_get_variable(struct pl_jinja_run *r, uint32_t symbol, struct pl_jinja_value *out) {
    for (const struct pl_jinja_scope *s = r->scope; s; s = s->parent) {
        const struct pl_jinja_slot *slot = slot_of(r, s, symbol);
        if (!slot) continue;
        *out = slot->value;
        return;
    }
    const struct pl_jinja_symbol *name = &r->program->symbols[symbol];
    *out = r->globals[symbol];
    if (out->kind != PL_JINJA_ABSENT) return;
    *out = name->global
               ? (struct pl_jinja_value){.kind = PL_JINJA_FUNCTION, .function = name->global}
               : (struct pl_jinja_value){
                     .kind = PL_JINJA_UNDEFINED, .s = name->name, .n = (uint32_t)name->n};
}

bool pl_jinja_set_variable(struct pl_jinja_run *r, uint32_t symbol,
                           const struct pl_jinja_value *v) {
    struct pl_jinja_scope *s = r->scope;
    if (!s) {
        r->globals[symbol] = *v;
        return true;
    }
    struct pl_jinja_slot *slot = slot_of(r, s, symbol);
    if (slot) {
        slot->value = *v;
        return true;
    }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? 2 * s->cap : 4;
        struct pl_jinja_slot *slots = pl_jinja_alloc_array(r->arena, cap, sizeof *slots);
        if (!slots) return pl_jinja_fail_memory(r);
        if (s->n) memcpy(slots, s->slots, s->n * sizeof *slots);
        s->slots = slots;
        s->cap = cap;
    }
    s->slots[s->n++] = (struct pl_jinja_slot){symbol, *v};
    return true;
}

/* --- literals --------------------------------------------------------------------------------- */
static bool eval_const(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                       struct pl_jinja_value *out) {
    (void)r;
    *out = n->value;
    return true;
}

static bool eval_name(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    pl_jinja_get_variable(r, n->symbol, out);
    return true;
}

static bool eval_elements(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                          struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    struct pl_jinja_value v;
    if (!pl_jinja_make_list(r, 0, &l)) return false;
    for (const struct pl_jinja_node *item = n->a; item; item = item->next)
        if (!pl_jinja_eval(r, item, &v) || !pl_jinja_push(r, l, &v)) return false;
    *out = pl_jinja_list(l, n->kind == PL_JINJA_NODE_TUPLE ? PL_JINJA_TUPLE : PL_JINJA_PLAIN);
    return true;
}

static bool eval_dict(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    struct pl_jinja_map *m;
    struct pl_jinja_value key, value;
    if (!pl_jinja_make_map(r, 0, &m)) return false;
    for (const struct pl_jinja_node *k = n->a; k; k = k->next->next)
        if (!pl_jinja_eval(r, k, &key) || !pl_jinja_eval(r, k->next, &value) ||
            !pl_jinja_put(r, m, &key, &value))
            return false;
    *out = pl_jinja_map(m);
    return true;
}

/* --- members ---------------------------------------------------------------------------------- */
static bool eval_attr(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    struct pl_jinja_value of;
    return pl_jinja_eval(r, n->a, &of) && pl_jinja_attr(r, &of, n->value.s, n->value.n, out);
}

static bool eval_item(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    struct pl_jinja_value of, key;
    return pl_jinja_eval(r, n->a, &of) && pl_jinja_eval(r, n->b, &key) &&
           pl_jinja_item(r, &of, &key, out);
}

static bool eval_slice(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                       struct pl_jinja_value *out) {
    const struct pl_jinja_node *const parts[] = {n->b, n->c, n->d};
    struct pl_jinja_value of, range[3] = {{0}, {0}, {0}};
    if (!pl_jinja_eval(r, n->a, &of)) return false;
    for (size_t i = 0; i < 3; i++)
        if (parts[i] && !pl_jinja_eval(r, parts[i], &range[i])) return false;
    return pl_jinja_slice(r, &of, range, out);
}

/* --- calls ------------------------------------------------------------------------------------ */
/* Arguments as they are collected. */
struct arguments {
    struct pl_jinja_list *positional;
    struct pl_jinja_map *keywords; /* NULL until there is one */
};

static bool add_keyword(struct pl_jinja_run *r, struct arguments *a,
                        const struct pl_jinja_value *name, const struct pl_jinja_value *v) {
    if (!a->keywords && !pl_jinja_make_map(r, 4, &a->keywords)) return false;
    if (name->kind != PL_JINJA_STRING) return pl_jinja_fail(r, "keywords must be strings");
    if (pl_jinja_map_get(pl_jinja_meter(r), a->keywords, name))
        return pl_jinja_fail(r, "a keyword argument twice");
    return pl_jinja_put(r, a->keywords, name, v);
}

static bool add_spread(struct pl_jinja_run *r, struct arguments *a, bool map,
                       const struct pl_jinja_value *v) {
    struct pl_jinja_list *l;
    if (!map) {
        if (!pl_jinja_list_of(r, v, &l)) return false;
        for (size_t i = 0; i < l->n; i++)
            if (!pl_jinja_push(r, a->positional, &l->items[i])) return false;
        return true;
    }
    if (v->kind != PL_JINJA_MAP) return pl_jinja_fail(r, "a mapping is expected after **");
    for (size_t i = 0; i < v->map->n; i++)
        if (!add_keyword(r, a, &v->map->entries[i].key, &v->map->entries[i].value)) return false;
    return true;
}

static bool add_argument(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                         struct arguments *a) {
    bool named = n->kind == PL_JINJA_NODE_KEYWORD, spread = n->kind == PL_JINJA_NODE_SPREAD;
    struct pl_jinja_value v;
    if (!pl_jinja_eval(r, named || spread ? n->a : n, &v)) return false;
    if (named) return add_keyword(r, a, &n->value, &v);
    return spread ? add_spread(r, a, n->op == PL_JINJA_POW, &v)
                  : pl_jinja_push(r, a->positional, &v);
}

static bool eval_arguments(struct pl_jinja_run *r, const struct pl_jinja_node *first,
                           const struct pl_jinja_value *caller, struct pl_jinja_call *c) {
    const struct pl_jinja_value name = pl_jinja_literal("caller");
    struct arguments a = {NULL, NULL};
    if (!first && !caller) return true;
    if (!pl_jinja_make_list(r, 4, &a.positional)) return false;
    for (const struct pl_jinja_node *n = first; n; n = n->next)
        if (!add_argument(r, n, &a)) return false;
    if (caller && !add_keyword(r, &a, &name, caller)) return false;
    c->positional = a.positional->items;
    c->n = a.positional->n;
    c->keywords = a.keywords;
    return true;
}

bool pl_jinja_eval_call(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        const struct pl_jinja_value *caller, struct pl_jinja_value *out) {
    struct pl_jinja_call c = {.n = 0};
    struct pl_jinja_value of;
    if (!pl_jinja_eval(r, n->a, &of) || !eval_arguments(r, n->b, caller, &c)) return false;
    switch ((enum pl_jinja_kind)of.kind) {
    case PL_JINJA_MACRO:
        return pl_jinja_call_macro(r, of.macro, &c, out);
    case PL_JINJA_FUNCTION:
        return pl_jinja_invoke(r, of.function, &c, out);
    case PL_JINJA_METHOD:
        c.self = of.method->self;
        return pl_jinja_invoke(r, of.method->function, &c, out);
    case PL_JINJA_UNDEFINED:
        return pl_jinja_fail_undefined(r, &of);
    case PL_JINJA_LOOP:
        return pl_jinja_fail(r, "recursive loops are not supported");
    default:
        return pl_jinja_fail(r, "'%s' object is not callable", pl_jinja_type_name(&of));
    }
}

static bool eval_call(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    return pl_jinja_eval_call(r, n, NULL, out);
}

bool pl_jinja_eval_filters(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                           const struct pl_jinja_value *text, struct pl_jinja_value *out) {
    struct pl_jinja_call c = {.n = 0};
    if (n->kind == PL_JINJA_NODE_UNKNOWN)
        return pl_jinja_fail(r, "there is no filter or test `%.*s`", (int)n->value.n, n->value.s);
    c.self = *text;
    if (n->a && text->kind != PL_JINJA_ABSENT) {
        if (!pl_jinja_enter(r)) return false;
        bool inner = pl_jinja_eval_filters(r, n->a, text, &c.self);
        pl_jinja_leave(r);
        if (!inner) return false;
    }
    if (text->kind == PL_JINJA_ABSENT && !pl_jinja_eval(r, n->a, &c.self)) return false;
    const struct pl_jinja_node *outer = r->at;
    r->at = n;
    bool ok = eval_arguments(r, n->b, NULL, &c) && pl_jinja_invoke(r, n->function, &c, out);
    r->at = outer;
    return ok;
}

static bool eval_filter(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        struct pl_jinja_value *out) {
    static const struct pl_jinja_value none = {.kind = PL_JINJA_ABSENT};
    return pl_jinja_eval_filters(r, n, &none, out);
}

static bool eval_unknown(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                         struct pl_jinja_value *out) {
    (void)out;
    return pl_jinja_fail(r, "there is no filter or test `%.*s`", (int)n->value.n, n->value.s);
}

/* --- operators -------------------------------------------------------------------------------- */
static bool eval_not(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                     struct pl_jinja_value *out) {
    struct pl_jinja_value v;
    if (!pl_jinja_eval(r, n->a, &v)) return false;
    *out = pl_jinja_bool(!pl_jinja_truth(&v));
    return true;
}

static bool eval_sign(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                      struct pl_jinja_value *out) {
    struct pl_jinja_value v;
    const struct pl_jinja_value zero = pl_jinja_int(0), minus = pl_jinja_int(-1);
    if (!pl_jinja_eval(r, n->a, &v)) return false;
    if (v.kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, &v);
    if (!pl_jinja_is_number(&v))
        return pl_jinja_fail(r, "bad operand type for a sign: '%s'", pl_jinja_type_name(&v));
    return n->op == PL_JINJA_SUB      ? pl_jinja_binary(r, PL_JINJA_MUL, &v, &minus, out)
           : v.kind == PL_JINJA_FLOAT ? (*out = v, true)
                                      : pl_jinja_binary(r, PL_JINJA_ADD, &v, &zero, out);
}

static bool eval_binary(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        struct pl_jinja_value *out) {
    struct pl_jinja_value a, b;
    return pl_jinja_eval(r, n->a, &a) && pl_jinja_eval(r, n->b, &b) &&
           pl_jinja_binary(r, (enum pl_jinja_op)n->op, &a, &b, out);
}

static bool eval_concat(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        struct pl_jinja_value *out) {
    struct pl_jinja_value all = pl_jinja_literal(""), v, text;
    for (const struct pl_jinja_node *item = n->a; item; item = item->next) {
        if (!pl_jinja_eval(r, item, &v) || !pl_jinja_str(r, &v, &text)) return false;
        if (item == n->a)
            all = text; /* a text that grows stays where it is */
        else if (!pl_jinja_grow(r, &all, text.s, text.n))
            return false;
    }
    *out = all;
    return true;
}

static bool eval_compare(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                         struct pl_jinja_value *out) {
    struct pl_jinja_value a, b;
    bool holds = true;
    if (!pl_jinja_eval(r, n->a, &a)) return false;
    for (const struct pl_jinja_node *o = n->b; o && holds; o = o->next, a = b)
        if (!pl_jinja_eval(r, o->a, &b) ||
            !pl_jinja_compare(r, (enum pl_jinja_op)o->op, &a, &b, &holds))
            return false;
    *out = pl_jinja_bool(holds);
    return true;
}

static bool eval_and(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                     struct pl_jinja_value *out) {
    return pl_jinja_eval(r, n->a, out) && (!pl_jinja_truth(out) || pl_jinja_eval(r, n->b, out));
}

static bool eval_or(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                    struct pl_jinja_value *out) {
    return pl_jinja_eval(r, n->a, out) && (pl_jinja_truth(out) || pl_jinja_eval(r, n->b, out));
}

static bool eval_choice(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                        struct pl_jinja_value *out) {
    struct pl_jinja_value v;
    if (!pl_jinja_eval(r, n->a, &v)) return false;
    if (pl_jinja_truth(&v)) return pl_jinja_eval(r, n->b, out);
    if (n->c) return pl_jinja_eval(r, n->c, out);
    *out = (struct pl_jinja_value){.kind = PL_JINJA_UNDEFINED, .s = "if without else", .n = 15};
    return true;
}

/* --- all of them ------------------------------------------------------------------------------ */
typedef bool evaluator(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                       struct pl_jinja_value *out);

static evaluator *const evaluators[] = {
    [PL_JINJA_NODE_CONST] = eval_const,     [PL_JINJA_NODE_NAME] = eval_name,
    [PL_JINJA_NODE_LIST] = eval_elements,   [PL_JINJA_NODE_TUPLE] = eval_elements,
    [PL_JINJA_NODE_DICT] = eval_dict,       [PL_JINJA_NODE_ATTR] = eval_attr,
    [PL_JINJA_NODE_ITEM] = eval_item,       [PL_JINJA_NODE_SLICE] = eval_slice,
    [PL_JINJA_NODE_CALL] = eval_call,       [PL_JINJA_NODE_FILTER] = eval_filter,
    [PL_JINJA_NODE_TEST] = eval_filter,     [PL_JINJA_NODE_UNKNOWN] = eval_unknown,
    [PL_JINJA_NODE_NOT] = eval_not,         [PL_JINJA_NODE_SIGN] = eval_sign,
    [PL_JINJA_NODE_BINARY] = eval_binary,   [PL_JINJA_NODE_CONCAT] = eval_concat,
    [PL_JINJA_NODE_COMPARE] = eval_compare, [PL_JINJA_NODE_AND] = eval_and,
    [PL_JINJA_NODE_OR] = eval_or,           [PL_JINJA_NODE_CHOICE] = eval_choice,
};

bool pl_jinja_eval(struct pl_jinja_run *r, const struct pl_jinja_node *n,
                   struct pl_jinja_value *out) {
    const struct pl_jinja_node *outer = r->at;
    r->at = n;
    if (!pl_jinja_enter(r)) return false;
    bool ok = pl_jinja_spend(r, PL_JINJA_STEP_UNITS) && evaluators[n->kind](r, n, out);
    pl_jinja_leave(r);
    r->at = outer;
    return ok;
}
