/* jinja.h - Jinja programs as chat templates: parsed once, rendered often.
 *
 * In: the text of a program, variables.  Out: the text it renders, as Jinja 3.1 does in the
 * environment of Hugging Face's transformers.  Needs: base, json_scan.
 * The language is what chat templates use; whatever else Jinja knows is refused by line and column,
 * when the program is parsed or when the place is reached. Nothing is rendered differently.
 *   J1  the result is that of transformers to the byte, or a failure
 *   J2  a program cannot hang, nor take more than 64 MiB and 20 times the bytes that come in: it is
 *       stopped by PL_ERR_TEMPLATE_LIMIT, within a second for rows of a few megabytes
 *   J3  one program may be rendered by several threads, each with a memory of its own
 * Use: pl_jinja_parse(text, n, "model's template", &program, &d);
 *      struct pl_jinja_memory m = {0};
 *      struct pl_jinja_inputs in = {0};
 *      pl_jinja_begin(&m); pl_jinja_read_json(&m, &scan, &value); ...
 *      pl_jinja_render(program, &m, &in, &out, NULL, &d);
 *      pl_jinja_memory_finish(&m); pl_jinja_close(&program); */
#ifndef PL_RUNTIME_DATA_JINJA_JINJA_H
#define PL_RUNTIME_DATA_JINJA_JINJA_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "runtime/data/jinja/value.h"
#include "estimator/base/json_scan.h"

struct pl_jinja;

/* PL_ERR_DATA_TEMPLATE with file, line and column: it is no Jinja program, or needs what is not
 * supported. `name` stands for the file in messages. */
pl_err pl_jinja_parse(const char *text, size_t n, const char *name, struct pl_jinja **out,
                      struct pl_diag *d);
void pl_jinja_close(struct pl_jinja **program); /* frees; leaves NULL */
/* It marks what a model writes by {% generation %}. */
bool pl_jinja_marks_answers(const struct pl_jinja *program);
/* It mentions a variable of this name. */
bool pl_jinja_mentions(const struct pl_jinja *program, const char *name, size_t n);

/* The memory of the values of one row, and the work that the programs that render it may spend. */
struct pl_jinja_memory {
    struct pl_jinja_arena arena;
    uint64_t input_bytes;
};
void pl_jinja_begin(struct pl_jinja_memory *m); /* forgets the values, and what was spent */
/* So many bytes of a row come in, which raises the limits: long rows are honest work. */
void pl_jinja_admit(struct pl_jinja_memory *m, uint64_t bytes);
void pl_jinja_memory_finish(struct pl_jinja_memory *m);

/* The value at the cursor, which is admitted. Its strings may be parts of the text that is
 * scanned. False: s says why; integers beyond 64 bits are not supported. */
bool pl_jinja_read_json(struct pl_jinja_memory *m, struct pl_scan *s, struct pl_jinja_value *out);

struct pl_jinja_span {
    size_t begin, end; /* bytes of the text */
};

struct pl_jinja_inputs {
    const struct pl_jinja_map *variables; /* messages, tools, bos_token, ... */
    int year, month, day;                 /* of strftime_now; month 1 to 12 */
    /* [n_parts], borrowed, nullable: gets what is written while a loop is at the map of this part;
     * empty where that is nothing, or not in one place. */
    struct pl_jinja_span *parts;
    size_t n_parts;
};

struct pl_jinja_spans {
    struct pl_jinja_span *items; /* [n], owned */
    size_t n, cap;
};
void pl_jinja_spans_finish(struct pl_jinja_spans *s);

/* Replaces *out. spans (nullable) gets the parts that generation blocks mark. PL_ERR_DATA_TEMPLATE:
 * the program raised an error; PL_ERR_TEMPLATE_LIMIT: it met a limit. */
pl_err pl_jinja_render(const struct pl_jinja *program, struct pl_jinja_memory *m,
                       const struct pl_jinja_inputs *in, struct pl_text *out,
                       struct pl_jinja_spans *spans, struct pl_diag *d);

#endif
