/* iterate.c - going through values. */
#include "runtime/data/jinja/run.h"
#include "runtime/data/tokenizer/utf8.h"

static bool next_item(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                      struct pl_jinja_value *out, bool *done) {
    const struct pl_jinja_list *l = it->over.list;
    *done = it->at >= l->n;
    if (!*done) *out = l->items[it->at++];
    (void)r;
    return true;
}

static bool next_key(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                     struct pl_jinja_value *out, bool *done) {
    const struct pl_jinja_map *m = it->over.map;
    *done = it->at >= m->n;
    if (!*done) *out = m->entries[it->at++].key;
    (void)r;
    return true;
}

static bool next_character(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                           struct pl_jinja_value *out, bool *done) {
    *done = it->at >= it->over.n;
    if (*done) return true;
    const char *s = it->over.s + it->at;
    *out = pl_jinja_string(s, pl_utf8_length(*s));
    out->markup = it->over.markup;
    it->at += out->n;
    (void)r;
    return true;
}

static bool next_nothing(struct pl_jinja_run *r, struct pl_jinja_iterator *it,
                         struct pl_jinja_value *out, bool *done) {
    (void)r, (void)it, (void)out;
    *done = true;
    return true;
}

bool pl_jinja_next(struct pl_jinja_run *r, struct pl_jinja_iterator *it, struct pl_jinja_value *out,
                   bool *done) {
    *done = false;
    if (!pl_jinja_spend(r, PL_JINJA_STEP_UNITS) || !pl_jinja_enter(r)) return false;
    bool ok = it->next(r, it, out, done);
    pl_jinja_leave(r);
    return ok;
}

bool pl_jinja_iterate(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      struct pl_jinja_iterator **out) {
    if (v->kind == PL_JINJA_ITERATOR) {
        *out = v->iterator;
        return true;
    }
    struct pl_jinja_iterator *it = pl_jinja_alloc(r->arena, sizeof *it);
    if (!it) return pl_jinja_fail_memory(r);
    it->over = *v;
    *out = it;
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_LIST:
        it->next = next_item;
        return true;
    case PL_JINJA_MAP:
        it->next = next_key;
        return true;
    case PL_JINJA_STRING:
        it->next = next_character;
        return true;
    case PL_JINJA_UNDEFINED:
        it->next = next_nothing;
        return true;
    default:
        return pl_jinja_fail(r, "'%s' object is not iterable", pl_jinja_type_name(v));
    }
}

bool pl_jinja_list_of(struct pl_jinja_run *r, const struct pl_jinja_value *v,
                      struct pl_jinja_list **out) {
    struct pl_jinja_iterator *it;
    struct pl_jinja_value item;
    bool done;
    if (!pl_jinja_iterate(r, v, &it) || !pl_jinja_make_list(r, 0, out)) return false;
    for (;;) {
        if (!pl_jinja_next(r, it, &item, &done)) return false;
        if (done) return true;
        if (!pl_jinja_push(r, *out, &item)) return false;
    }
}

bool pl_jinja_length(struct pl_jinja_meter *m, const struct pl_jinja_value *v, size_t *out) {
    switch ((enum pl_jinja_kind)v->kind) {
    case PL_JINJA_LIST:
        *out = v->list->n;
        return true;
    case PL_JINJA_MAP:
        *out = v->map->n;
        return true;
    case PL_JINJA_STRING:
        *out = pl_jinja_count(m, v->s, v->n);
        return true;
    case PL_JINJA_UNDEFINED:
        *out = 0;
        return true;
    default:
        return false;
    }
}
