/* rendering.c - a program rendered from outside: its memory, its limits and its result. */
#include "runtime/data/jinja/run.h"

#include <stdlib.h>

/* Limits; what comes in raises them, so that they are about programs and not about rows. */
#define MOST_WORK        (UINT64_C(1) << 29) /* of a row; half a second or less */
#define MOST_WORK_RENDER (UINT64_C(1) << 20) /* more of each time that a row is rendered */
#define MOST_WORK_BYTE   128                 /* and for each byte that came in */
#define MOST_VALUES      (UINT64_C(24) << 20)
#define MOST_VALUES_BYTE 8
#define MOST_OUTPUT      (UINT64_C(8) << 20) /* growing it takes three times that */
#define MOST_OUTPUT_BYTE 4

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
                             .filters = pl_jinja_filters(),
                             .tests = pl_jinja_tests(),
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
