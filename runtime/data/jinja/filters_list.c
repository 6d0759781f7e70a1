/* filters_list.c - filters of lists: what gives lists, and what goes through them one by one. */
#include "runtime/data/jinja/filters.h"
#include "runtime/data/tokenizer/utf8.h"

static bool given(const struct pl_jinja_value *v) {
    return v->kind != PL_JINJA_ABSENT && v->kind != PL_JINJA_NONE;
}

static bool give_iterator(struct pl_jinja_iterator *it, struct pl_jinja_value *out) {
    *out = (struct pl_jinja_value){.kind = PL_JINJA_ITERATOR, .iterator = it};
    return true;
}

static bool new_iterator(struct pl_jinja_run *r, struct pl_jinja_iterator **out) {
    *out = pl_jinja_alloc(r->arena, sizeof **out);
    return *out || pl_jinja_fail_memory(r);
}

/* --- attributes of elements ------------------------------------------------------------------- */
static bool is_index(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9') return false;
    return n > 0 && n < 18;
}

/* v by the path `a.b.0`, or by one index. */
static bool by_path(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                    const struct pl_jinja_value *path, struct pl_jinja_value *out) {
    struct pl_jinja_value now = *v, key;
    if (path->kind != PL_JINJA_STRING) return pl_jinja_item(r, v, path, out);
    for (size_t begin = 0; begin <= path->n;) {
        const char *s = path->s + begin;
        ptrdiff_t dot = pl_jinja_search(pl_jinja_meter(r), s, path->n - begin, ".", 1, false);
        size_t n = dot >= 0 ? (size_t)dot : path->n - begin;
        key = pl_jinja_string(s, n);
        if (is_index(s, n)) {
            key = pl_jinja_int(0);
            for (size_t i = 0; i < n; i++)
                key.i = key.i * 10 + (s[i] - '0');
        }
        if (!pl_jinja_item(r, &now, &key, out)) return false;
        now = *out;
        begin += n + 1;
    }
    return true;
}

/* The key that elements are compared by: an attribute perhaps, without case perhaps. */
static bool sort_key(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                     const struct pl_jinja_value *attribute, bool with_case,
                     struct pl_jinja_value *out) {
    *out = *v;
    if (given(attribute) && !by_path(r, v, attribute, out)) return false;
    if (out->kind != PL_JINJA_STRING || with_case) return true;
    struct pl_jinja_value text = *out;
    return pl_jinja_change_case(r, &text, PL_JINJA_LOWER, out);
}

/* --- one by one ------------------------------------------------------------------------------- */
/* The arguments of `c` after the first `skip`, for a filter or test named among them. */
static bool pass_on(struct pl_jinja_run *r, const struct pl_jinja_function *f,
                    const struct pl_jinja_call *c, size_t skip, const struct pl_jinja_value *self,
                    struct pl_jinja_value *out) {
    struct pl_jinja_call to = {.self = *self, .keywords = c->keywords};
    to.positional = c->n > skip ? c->positional + skip : NULL;
    to.n = c->n > skip ? c->n - skip : 0;
    return pl_jinja_invoke(r, f, &to, out);
}

/* An iterator over self that keeps the call. Nothing is looked at before the first element is
 * asked for, not even whether self can be gone through. */
static bool open_lazy(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                      struct pl_jinja_iterator **out) {
    struct pl_jinja_call *kept = pl_jinja_alloc(r->arena, sizeof *kept);
    if (!kept) return pl_jinja_fail_memory(r);
    *kept = *c;
    if (!new_iterator(r, out)) return false;
    (*out)->call = kept;
    return true;
}

/* The next element of self; nothing where self is false. */
static bool next_source(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                        struct pl_jinja_value *out, bool *done) {
    *done = !it->source && !pl_jinja_truth(&it->call->self);
    if (*done) return true;
    if (!it->source && !pl_jinja_iterate(r, &it->call->self, &it->source)) return false;
    return pl_jinja_next(r, it->source, out, done);
}

/* The filter or test that the argument `i` of the call names, looked for once. */
static bool named(struct pl_jinja_run *r, struct pl_jinja_iterator *it, size_t i, const char *what,
                  const struct pl_jinja_function *table) {
    const struct pl_jinja_value *name = &it->call->positional[i];
    if (it->function) return true;
    if (name->kind != PL_JINJA_STRING)
        return pl_jinja_fail(r, "the name of a %s is expected", what);
    it->function = pl_jinja_find_function(table, name->s, name->n);
    if (!it->function)
        return pl_jinja_fail(r, "there is no %s `%.*s`", what, pl_jinja_whole(name, 64), name->s);
    return it->function->call ||
           pl_jinja_fail(r, "the %s `%s` is not supported", what, it->function->name);
}

static const struct pl_jinja_value *keyword(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                                            const char *name) {
    const struct pl_jinja_value key = pl_jinja_literal(name);
    return c->keywords ? pl_jinja_map_get(pl_jinja_meter(r), c->keywords, &key) : NULL;
}

/* map(attribute=...), with a default perhaps. */
static bool map_attribute(struct pl_jinja_run *r, const struct pl_jinja_call *c,
                          const struct pl_jinja_value *v, struct pl_jinja_value *out) {
    const struct pl_jinja_value *fallback = keyword(r, c, "default");
    if (c->keywords->n > 1u + (fallback != NULL))
        return pl_jinja_fail(r, "map: unexpected keyword argument");
    if (!by_path(r, v, keyword(r, c, "attribute"), out)) return false;
    if (out->kind == PL_JINJA_UNDEFINED && fallback && given(fallback)) *out = *fallback;
    return true;
}

static bool next_mapped(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                        struct pl_jinja_value *out, bool *done) {
    const struct pl_jinja_call *c = it->call;
    struct pl_jinja_value v;
    if (!next_source(r, it, &v, done)) return false;
    if (*done) return true;
    if (!c->n && keyword(r, c, "attribute")) return map_attribute(r, c, &v, out);
    if (!c->n) return pl_jinja_fail(r, "map requires a filter argument");
    return named(r, it, 0, "filter", r->filters) && pass_on(r, it->function, c, 1, &v, out);
}

FILTER(map) {
    struct pl_jinja_iterator *it;
    if (!open_lazy(r, c, &it)) return false;
    it->next = next_mapped;
    return give_iterator(it, out);
}

/* True in *out if an element is wanted: by itself or its attribute, by a test or its truth. */
static bool is_wanted(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                      const struct pl_jinja_value *element, bool *out) {
    const struct pl_jinja_call *c = it->call;
    size_t skip = it->by_attribute;
    struct pl_jinja_value v = *element, holds;
    if (c->n < skip) return pl_jinja_fail(r, "an attribute is expected");
    if (skip && !by_path(r, element, &c->positional[0], &v)) return false;
    holds = v;
    if (c->n > skip && (!named(r, it, skip, "test", r->tests) ||
                        !pass_on(r, it->function, c, skip + 1, &v, &holds)))
        return false;
    *out = pl_jinja_truth(&holds) != it->reject;
    return true;
}

static bool next_selected(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                          struct pl_jinja_value *out, bool *done) {
    bool wanted = false;
    while (!wanted) {
        if (!next_source(r, it, out, done)) return false;
        if (*done) return true;
        if (!is_wanted(r, it, out, &wanted)) return false;
    }
    return true;
}

/* select, reject: the first argument is a test; selectattr, rejectattr: the second. */
static bool select_by(struct pl_jinja_run *r, const struct pl_jinja_call *c, bool attribute,
                      bool reject, struct pl_jinja_value *out) {
    struct pl_jinja_iterator *it;
    if (!open_lazy(r, c, &it)) return false;
    it->next = next_selected;
    it->by_attribute = attribute;
    it->reject = reject;
    return give_iterator(it, out);
}
FILTER(select) {
    return select_by(r, c, false, false, out);
}
FILTER(reject) {
    return select_by(r, c, false, true, out);
}
FILTER(selectattr) {
    return select_by(r, c, true, false, out);
}
FILTER(rejectattr) {
    return select_by(r, c, true, true, out);
}

static bool pair(struct pl_jinja_run *r, const struct pl_jinja_entry *e,
                 struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    if (!pl_jinja_make_list(r, 2, &l) || !pl_jinja_push(r, l, &e->key) ||
        !pl_jinja_push(r, l, &e->value))
        return false;
    *out = pl_jinja_list(l, PL_JINJA_TUPLE);
    return true;
}

static bool next_pair(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                      struct pl_jinja_value *out, bool *done) {
    *done = it->over.kind == PL_JINJA_UNDEFINED;
    if (*done) return true;
    if (it->over.kind != PL_JINJA_MAP)
        return pl_jinja_fail(r, "Can only get item pairs from a mapping.");
    *done = it->at >= it->over.map->n;
    return *done || pair(r, &it->over.map->entries[it->at++], out);
}

FILTER(items) {
    struct pl_jinja_iterator *it;
    if (!new_iterator(r, &it)) return false;
    it->next = next_pair;
    it->over = c->self;
    return give_iterator(it, out);
}

static bool next_unique(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                        struct pl_jinja_value *out, bool *done) {
    struct pl_jinja_value key;
    const struct pl_jinja_value none = pl_jinja_none();
    bool seen;
    if (!it->source && !pl_jinja_iterate(r, &it->call->self, &it->source)) return false;
    do {
        if (!pl_jinja_next(r, it->source, out, done)) return false;
        if (*done) return true;
        if (!sort_key(r, out, &it->call->arg[1], pl_jinja_truth(&it->call->arg[0]), &key))
            return false;
        if (!pl_jinja_hashable(pl_jinja_meter(r), &key))
            return pl_jinja_fail(r, "unhashable type: '%s'", pl_jinja_type_name(&key));
        seen = pl_jinja_map_get(pl_jinja_meter(r), it->seen, &key) != NULL;
    } while (seen);
    return pl_jinja_map_set(r->arena, it->seen, &key, &none) || pl_jinja_fail_memory(r);
}

FILTER(unique) {
    struct pl_jinja_iterator *it;
    if (!open_lazy(r, c, &it) || !pl_jinja_make_map(r, 0, &it->seen)) return false;
    it->next = next_unique;
    return give_iterator(it, out);
}

/* --- ends and sums ---------------------------------------------------------------------------- */
static bool nothing(const char *what, struct pl_jinja_value *out) {
    *out =
        (struct pl_jinja_value){.kind = PL_JINJA_UNDEFINED, .s = what, .n = (uint32_t)strlen(what)};
    return true;
}

FILTER(first) {
    struct pl_jinja_iterator *it;
    bool done;
    if (!pl_jinja_iterate(r, &c->self, &it) || !pl_jinja_next(r, it, out, &done)) return false;
    return !done || nothing("first", out);
}

FILTER(last) {
    const struct pl_jinja_value *v = &c->self;
    if (v->kind == PL_JINJA_LIST && v->list->n) {
        *out = v->list->items[v->list->n - 1];
    } else if (v->kind == PL_JINJA_MAP && v->map->n) {
        *out = v->map->entries[v->map->n - 1].key;
    } else if (v->kind == PL_JINJA_STRING && v->n) {
        size_t at = pl_utf8_before(v->s, v->n);
        *out = pl_jinja_string(v->s + at, v->n - at);
        out->markup = v->markup;
    } else if (v->kind == PL_JINJA_LIST || v->kind == PL_JINJA_MAP || v->kind == PL_JINJA_STRING) {
        return nothing("last", out);
    } else {
        return pl_jinja_fail(r, "'%s' object is not reversible", pl_jinja_type_name(v));
    }
    return true;
}

FILTER(reverse) {
    struct pl_jinja_value s = pl_jinja_literal(""), list;
    struct pl_jinja_list *l;
    if (c->self.kind == PL_JINJA_STRING) {
        for (size_t at = c->self.n, to; at; at = to) {
            to = pl_utf8_before(c->self.s, at);
            if (!pl_jinja_grow(r, &s, c->self.s + to, at - to)) return false;
        }
        *out = s;
        return true;
    }
    if (c->self.kind == PL_JINJA_UNDEFINED || !pl_jinja_list_of(r, &c->self, &l))
        return pl_jinja_fail(r, "argument must be iterable");
    for (size_t i = 0; i < l->n / 2; i++) {
        struct pl_jinja_value v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
    list = pl_jinja_list(l, PL_JINJA_PLAIN);
    if (c->self.kind == PL_JINJA_ITERATOR) { /* Python gives a list where it cannot go backwards */
        *out = list;
        return true;
    }
    struct pl_jinja_iterator *it;
    return pl_jinja_iterate(r, &list, &it) && give_iterator(it, out);
}

FILTER(list) {
    struct pl_jinja_list *l;
    if (!pl_jinja_list_of(r, &c->self, &l)) return false;
    *out = pl_jinja_list(l, PL_JINJA_PLAIN);
    return true;
}

static bool next_attribute(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                           struct pl_jinja_value *out, bool *done) {
    struct pl_jinja_value v;
    if (!pl_jinja_next(r, it->source, &v, done)) return false;
    return *done || by_path(r, &v, &it->over, out);
}

FILTER(join) {
    struct pl_jinja_value separator = pl_jinja_literal("");
    struct pl_jinja_iterator *it, *of;
    if (c->arg[0].kind != PL_JINJA_ABSENT && !pl_jinja_str(r, &c->arg[0], &separator)) return false;
    if (!pl_jinja_iterate(r, &c->self, &it)) return false;
    if (given(&c->arg[1])) {
        if (!new_iterator(r, &of)) return false;
        of->next = next_attribute;
        of->source = it;
        of->over = c->arg[1];
        it = of;
    }
    return pl_jinja_join_all(r, &separator, it, false, out);
}

FILTER(sum) {
    struct pl_jinja_iterator *it;
    struct pl_jinja_value v, sum;
    bool done;
    *out = c->arg[1].kind == PL_JINJA_ABSENT ? pl_jinja_int(0) : c->arg[1];
    if (out->kind == PL_JINJA_STRING) return pl_jinja_fail(r, "sum() can't sum strings");
    if (!pl_jinja_iterate(r, &c->self, &it)) return false;
    for (;;) {
        if (!pl_jinja_next(r, it, &v, &done)) return false;
        if (done) return true;
        if (given(&c->arg[0]) && !by_path(r, &v, &c->arg[0], &v)) return false;
        if (!pl_jinja_binary(r, PL_JINJA_ADD, out, &v, &sum)) return false;
        *out = sum;
    }
}

/* --- order ------------------------------------------------------------------------------------ */
/* The values by the keys they are paired with. */
static bool give_sorted(struct pl_jinja_run *r, struct pl_jinja_entry *all, size_t n, bool reverse,
                        struct pl_jinja_value *out) {
    struct pl_jinja_list *l;
    if (!pl_jinja_sort(r, all, n, reverse) || !pl_jinja_make_list(r, n, &l)) return false;
    for (size_t i = 0; i < n; i++)
        if (!pl_jinja_push(r, l, &all[i].value)) return false;
    *out = pl_jinja_list(l, PL_JINJA_PLAIN);
    return true;
}

FILTER(sort) {
    struct pl_jinja_list *l;
    if (!pl_jinja_list_of(r, &c->self, &l)) return false;
    struct pl_jinja_entry *all = pl_jinja_alloc_array(r->arena, l->n, sizeof *all);
    if (!all) return pl_jinja_fail_memory(r);
    const struct pl_jinja_value *by = &c->arg[2];
    if (by->kind == PL_JINJA_STRING &&
        pl_jinja_search(pl_jinja_meter(r), by->s, by->n, ",", 1, false) >= 0)
        return pl_jinja_fail(r, "sort by several attributes is not supported");
    for (size_t i = 0; i < l->n; i++) {
        all[i].value = l->items[i];
        if (!sort_key(r, &l->items[i], &c->arg[2], pl_jinja_truth(&c->arg[1]), &all[i].key))
            return false;
    }
    return give_sorted(r, all, l->n, pl_jinja_truth(&c->arg[0]), out);
}

FILTER(dictsort) {
    static const struct pl_jinja_value none = {.kind = PL_JINJA_ABSENT};
    bool by_value = pl_jinja_is(&c->arg[1], "value");
    if (c->self.kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, &c->self);
    if (c->self.kind != PL_JINJA_MAP)
        return pl_jinja_fail(r, "'%s' object has no attribute 'items'",
                             pl_jinja_type_name(&c->self));
    if (!by_value && c->arg[1].kind != PL_JINJA_ABSENT && !pl_jinja_is(&c->arg[1], "key"))
        return pl_jinja_fail(r, "You can only sort by either \"key\" or \"value\"");
    const struct pl_jinja_map *m = c->self.map;
    struct pl_jinja_entry *all = pl_jinja_alloc_array(r->arena, m->n, sizeof *all);
    if (!all) return pl_jinja_fail_memory(r);
    for (size_t i = 0; i < m->n; i++) {
        const struct pl_jinja_entry *e = &m->entries[i];
        if (!pair(r, e, &all[i].value) || !sort_key(r, by_value ? &e->value : &e->key, &none,
                                                    pl_jinja_truth(&c->arg[0]), &all[i].key))
            return false;
    }
    return give_sorted(r, all, m->n, pl_jinja_truth(&c->arg[2]), out);
}

static bool extreme(struct pl_jinja_run *r, const struct pl_jinja_call *c, enum pl_jinja_op better,
                    struct pl_jinja_value *out) {
    struct pl_jinja_iterator *it;
    struct pl_jinja_value v, key, best;
    bool done, wins = true;
    if (!pl_jinja_iterate(r, &c->self, &it)) return false;
    nothing("max", out);
    for (bool first = true;; first = false) {
        if (!pl_jinja_next(r, it, &v, &done)) return false;
        if (done) return true;
        if (!sort_key(r, &v, &c->arg[1], pl_jinja_truth(&c->arg[0]), &key)) return false;
        if (!first && !pl_jinja_compare(r, better, &key, &best, &wins)) return false;
        if (!wins) continue;
        best = key;
        *out = v;
    }
}
FILTER(min) {
    return extreme(r, c, PL_JINJA_LT, out);
}
FILTER(max) {
    return extreme(r, c, PL_JINJA_GT, out);
}
