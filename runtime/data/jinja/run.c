/* run.c - failures, limits, and values whose memory may run out. */
#include "runtime/data/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>

#define MAX_DEPTH 800 /* nodes within nodes, macros within macros, iterators over iterators */

/* --- failures --------------------------------------------------------------------------------- */
static bool fail(struct pl_jinja_run *r, pl_err err, const char *fmt, va_list ap) {
    char what[sizeof r->d->message];
    vsnprintf(what, sizeof what, fmt, ap);
    pl_diag_at(r->d, err, r->program->name, r->at ? r->at->line : 0, r->at ? r->at->column : 0,
               "%s", what);
    return false;
}

bool pl_jinja_fail(struct pl_jinja_run *r, const char *fmt, ...) {
    va_list ap;
    if (r->arena->meter.spent > r->arena->meter.limit) return pl_jinja_spend(r, 0);
    va_start(ap, fmt);
    fail(r, PL_ERR_DATA_TEMPLATE, fmt, ap);
    va_end(ap);
    return false;
}

bool pl_jinja_fail_limit(struct pl_jinja_run *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(r, PL_ERR_TEMPLATE_LIMIT, fmt, ap);
    va_end(ap);
    return false;
}

bool pl_jinja_fail_memory(struct pl_jinja_run *r) {
    if (r->arena->shortage == PL_JINJA_TOO_DEEP)
        return pl_jinja_fail_limit(r, "values are nested too deeply");
    if (r->arena->shortage == PL_JINJA_OVER_WORK) return pl_jinja_spend(r, 0);
    if (r->arena->shortage == PL_JINJA_OVER_LIMIT)
        return pl_jinja_fail_limit(r, "the template needs more than %llu MiB for its values",
                                   (unsigned long long)(r->arena->limit_bytes >> 20));
    pl_diag_set(r->d, PL_ERR_HOST_OOM, "no memory for a rendered conversation");
    return false;
}

bool pl_jinja_enter(struct pl_jinja_run *r) {
    if (r->depth >= MAX_DEPTH) return pl_jinja_fail_limit(r, "nested too deeply");
    r->depth++;
    return true;
}

bool pl_jinja_spend(struct pl_jinja_run *r, uint64_t units) {
    return pl_jinja_pay(&r->arena->meter, units) ||
           pl_jinja_fail_limit(
               r, "the template does not come to an end (%llu million steps)",
               (unsigned long long)(r->arena->meter.limit / PL_JINJA_STEP_UNITS / 1000000));
}

bool pl_jinja_fail_undefined(struct pl_jinja_run *r, const struct pl_jinja_value *v) {
    int n = pl_jinja_whole(v, 128);
    if (!v->n) return pl_jinja_fail(r, "a value is undefined");
    if (!v->sequence) return pl_jinja_fail(r, "'%.*s' is undefined", n, v->s);
    struct pl_jinja_value owner = {.kind = (uint8_t)(v->sequence - 1)};
    if (owner.kind == PL_JINJA_NONE)
        return pl_jinja_fail(r, "'None' has no attribute '%.*s'", n, v->s);
    return pl_jinja_fail(r, "'%s object' has no attribute '%.*s'", pl_jinja_type_name(&owner), n,
                         v->s);
}

/* --- values ----------------------------------------------------------------------------------- */
bool pl_jinja_make_list(struct pl_jinja_run *r, size_t cap, struct pl_jinja_list **out) {
    *out = pl_jinja_list_new(r->arena, cap);
    return *out || pl_jinja_fail_memory(r);
}

bool pl_jinja_push(struct pl_jinja_run *r, struct pl_jinja_list *l,
                   const struct pl_jinja_value *v) {
    return pl_jinja_list_add(r->arena, l, v) || pl_jinja_fail_memory(r);
}

bool pl_jinja_make_map(struct pl_jinja_run *r, size_t cap, struct pl_jinja_map **out) {
    *out = pl_jinja_map_new(r->arena, cap);
    return *out || pl_jinja_fail_memory(r);
}

bool pl_jinja_put(struct pl_jinja_run *r, struct pl_jinja_map *m, const struct pl_jinja_value *key,
                  const struct pl_jinja_value *value) {
    if (key->kind == PL_JINJA_UNDEFINED) return pl_jinja_fail_undefined(r, key);
    if (!pl_jinja_hashable(pl_jinja_meter(r), key))
        return pl_jinja_fail(r, "a %s cannot be a key", pl_jinja_type_name(key));
    return pl_jinja_map_set(r->arena, m, key, value) || pl_jinja_fail_memory(r);
}

static bool joined(struct pl_jinja_run *r, const char *s, size_t n, const char *more, size_t m,
                   struct pl_jinja_value *out) {
    const char *text = pl_jinja_alloc_joined(r->arena, s, n, more, m);
    if (!text) return pl_jinja_fail_memory(r);
    *out = pl_jinja_string(text, n + m);
    return true;
}

bool pl_jinja_copy(struct pl_jinja_run *r, const char *s, size_t n, struct pl_jinja_value *out) {
    return joined(r, NULL, 0, s, n, out);
}

bool pl_jinja_join(struct pl_jinja_run *r, const struct pl_jinja_value *a,
                   const struct pl_jinja_value *b, struct pl_jinja_value *out) {
    bool markup = a->markup;
    if (!joined(r, a->s, a->n, b->s, b->n, out)) return false;
    out->markup = markup;
    return true;
}

bool pl_jinja_grow(struct pl_jinja_run *r, struct pl_jinja_value *s, const char *more, size_t n) {
    size_t had = s->kind == PL_JINJA_STRING ? s->n : 0;
    const char *text = pl_jinja_alloc_joined(r->arena, had ? s->s : NULL, had, more, n);
    if (!text) return pl_jinja_fail_memory(r);
    *s = pl_jinja_string(text, had + n);
    return true;
}
