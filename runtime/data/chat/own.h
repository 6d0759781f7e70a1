/* own.h - a model's own chat template: one Jinja program or two, and what it is given.
 *
 * In: the text of templates, values of a row.  Out: text and the parts of answers.  Needs: jinja.
 *   P1  a program sees what transformers' apply_chat_template gives it: messages, tools, documents,
 *       add_generation_prompt, the tokenizer's marks, and the row's own chat_template_kwargs
 *   P2  `tool_use` renders rows with tools where a model has such a template, `default` all others
 * Use: pl_chat_program_add(&p, NULL, text, n, "chat_template.jinja", &d);
 *      pl_chat_program_render(&p, &memory, &request, &text, NULL, &d); ...
 *      pl_chat_program_finish(&p); */
#ifndef PL_RUNTIME_DATA_CHAT_OWN_H
#define PL_RUNTIME_DATA_CHAT_OWN_H

#include "runtime/data/chat/chat.h"
#include "runtime/data/jinja/jinja.h"

struct pl_chat_program {
    struct pl_jinja *plain, *with_tools; /* owned; with_tools NULL: plain renders those rows too */
};

/* kind: NULL or "default", "tool_use"; others are passed over. `where` is named in messages. */
pl_err pl_chat_program_add(struct pl_chat_program *p, const char *kind, const char *text, size_t n,
                           const char *where, struct pl_diag *d);
/* The program of a file. */
pl_err pl_chat_program_read(struct pl_chat_program *p, const char *path, struct pl_diag *d);
void pl_chat_program_finish(struct pl_chat_program *p); /* leaves {0} */

/* Values live in the memory they were made in. */
struct pl_chat_request {
    struct pl_jinja_value messages;         /* a list of maps */
    struct pl_jinja_value tools, documents; /* ABSENT = none */
    struct pl_jinja_value more;             /* a map of further variables; ABSENT = none */
    const char *bos, *eos;                  /* NULL = the tokenizer has none */
    struct pl_chat_date date;               /* none: pl_chat_today() */
    bool generate;                          /* end with the header of an answer */
};

/* Reasoning under any of its names, under all that templates read, as transformers does it. In
 * place; a list of messages is given to it once. */
pl_err pl_chat_alias_reasoning(struct pl_jinja_memory *m, struct pl_jinja_value *messages,
                               struct pl_diag *d);
/* The program that renders rows with or without tools. */
const struct pl_jinja *pl_chat_program_for(const struct pl_chat_program *p, bool tools);
/* Replaces *out; spans as of pl_jinja_render. */
pl_err pl_chat_program_render(const struct pl_chat_program *p, struct pl_jinja_memory *m,
                              const struct pl_chat_request *r, struct pl_text *out,
                              struct pl_jinja_spans *spans, struct pl_diag *d);

#endif
