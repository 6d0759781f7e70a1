/* run.c - limits, failures, and the rendering of a program from outside. */
#include "runtime/data/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Limits; what comes in raises them, so that they are about programs and not about rows. */
#define MOST_WORK        (UINT64_C(1) << 29) /* of a row; half a second or less */
#define MOST_WORK_RENDER (UINT64_C(1) << 20) /* more of each time that a row is rendered */
#define MOST_WORK_BYTE   128                 /* and for each byte that came in */
#define MOST_VALUES      (UINT64_C(24) << 20)
#define MOST_VALUES_BYTE 8
#define MOST_OUTPUT      (UINT64_C(8) << 20) /* growing it takes three times that */
#define MOST_OUTPUT_BYTE 4

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

/* --- memory and results ----------------------------------------------------------------------- */
void pl_jinja_begin(struct pl_jinja_memory *m) {
    m->input_bytes = 0;
    m->arena.limit_bytes = MOST_VALUES;
    m->arena.meter = (struct pl_jinja_meter){.limit = MOST_WORK};
    pl_jinja_arena_empty(&m->arena);
}

void pl_jinja_admit(struct pl_jinja_memory *m, uint64_t bytes) {
    m->input_bytes += bytes;
    m->arena.limit_bytes += MOST_VALUES_BYTE * bytes;
    m->arena.meter.limit += MOST_WORK_BYTE * bytes;
}

void pl_jinja_memory_finish(struct pl_jinja_memory *m) {
    pl_jinja_arena_finish(&m->arena);
}

void pl_jinja_spans_finish(struct pl_jinja_spans *s) {
    free(s->items);
    *s = (struct pl_jinja_spans){0};
}

/* Variables of the inputs by the symbols of the program. */
static bool set_globals(struct pl_jinja_run *r) {
    const struct pl_jinja_map *given = r->inputs->variables;
    r->globals = pl_jinja_alloc_array(r->arena, r->program->n_symbols, sizeof *r->globals);
    if (!r->globals) return pl_jinja_fail_memory(r);
    for (size_t i = 0; given && i < r->program->n_symbols; i++) {
        const struct pl_jinja_symbol *s = &r->program->symbols[i];
        const struct pl_jinja_value name = pl_jinja_string(s->name, s->n);
        const struct pl_jinja_value *v = pl_jinja_map_get(pl_jinja_meter(r), given, &name);
        if (v) r->globals[i] = *v;
    }
    return true;
}

pl_err pl_jinja_render(const struct pl_jinja *program, struct pl_jinja_memory *m,
                       const struct pl_jinja_inputs *in, struct pl_text *out,
                       struct pl_jinja_spans *spans, struct pl_diag *d) {
    struct pl_diag ignored = {0};
    struct pl_jinja_run r = {.program = program,
                             .arena = &m->arena,
                             .out = out,
                             .spans = spans,
                             .inputs = in,
                             .most_output = MOST_OUTPUT + MOST_OUTPUT_BYTE * m->input_bytes,
                             .d = d ? d : &ignored};
    m->arena.meter.limit += MOST_WORK_RENDER + MOST_WORK_BYTE * m->input_bytes;
    out->len = 0;
    out->failed = false;
    pl_text_addn(out, "", 0); /* a text without bytes has an address too */
    if (spans) spans->n = 0;
    if (in->parts) memset(in->parts, 0, in->n_parts * sizeof *in->parts);
    if (!set_globals(&r) || !pl_jinja_run_program(&r)) return r.d->err;
    return out->failed ? pl_host_oom(d, "a rendered conversation") : PL_ERR_OK;
}
