/* own.h - a model's own chat template: one Jinja program or two, and its variables.
 *
 * In: the text of templates, values of a row.  Out: text and the parts of answers.  Needs: jinja.
 *   P1  a program gets the variables of transformers' apply_chat_template: messages, tools,
 *       documents, add_generation_prompt, the tokenizer's marks, and the row's own
 *       chat_template_kwargs
 *   P2  `tool_use` renders rows with tools where a model has such a template, `default` all others
 * Use: pl_chat_program_add(&p, NULL, text, n, "chat_template.jinja", &d);
 *      pl_chat_program_render(&p, &memory, &request, &text, NULL, &d); ...
 *      pl_chat_program_finish(&p); */
#ifndef PL_RUNTIME_DATA_CHAT_OWN_H
#define PL_RUNTIME_DATA_CHAT_OWN_H

#include "runtime/data/chat/conversation.h"
#include "runtime/data/jinja/jinja.h"
#include "runtime/data/tokenizer/tokenizer.h"

struct pl_chat_program {
    struct pl_jinja *plain, *with_tools; /* owned; with_tools NULL: plain renders those rows too */
    uint64_t identity;                   /* digest of their texts */
};

/* Adds a program. kind: NULL or "default", "tool_use"; others are ignored. Messages name
 * `where`. */
pl_err pl_chat_program_add(struct pl_chat_program *p, const char *kind, const char *text, size_t n,
                           const char *where, struct pl_diag *d);
/* Reads the program of a file; its text replaces *text (nullable). */
pl_err pl_chat_program_read(struct pl_chat_program *p, const char *path, struct pl_text *text,
                            struct pl_diag *d);
/* Takes the programs that came with a tokenizer. PL_ERR_DATA_TEMPLATE: there are none. */
pl_err pl_chat_program_take(struct pl_chat_program *p, const struct pl_tokenizer *t,
                            struct pl_diag *d);
void pl_chat_program_finish(struct pl_chat_program *p); /* leaves {0} */

/* The variables of a render. Values live in the memory that they were made in. */
struct pl_chat_request {
    struct pl_jinja_value messages;         /* a list of maps */
    struct pl_jinja_value tools, documents; /* ABSENT = none */
    struct pl_jinja_value more;             /* a map of further variables; ABSENT = none */
    const char *bos, *eos;                  /* NULL = the tokenizer has none */
    struct pl_chat_date date;               /* not set: pl_chat_today() */
    bool generate;                          /* ends with the header of an answer */
    struct pl_jinja_span *turns; /* [messages], nullable; receives the text that is written for each
                                    of them */
};

/* Makes {"role": role, "content": content}. */
pl_err pl_chat_make_message(struct pl_jinja_memory *m, const char *role,
                            const struct pl_jinja_value *content, struct pl_jinja_value *out,
                            struct pl_diag *d);
/* Prepares messages as transformers does: keys that are null are removed, and reasoning under any
 * of its names is present under all names that templates read. Works in place; a list of messages
 * is passed to it once. */
pl_err pl_chat_prepare_messages(struct pl_jinja_memory *m, struct pl_jinja_value *messages,
                                struct pl_diag *d);
/* Returns the program that renders rows with or without tools. */
const struct pl_jinja *pl_chat_program_for(const struct pl_chat_program *p, bool tools);
/* Replaces *out; spans are those of pl_jinja_render. */
pl_err pl_chat_program_render(const struct pl_chat_program *p, struct pl_jinja_memory *m,
                              const struct pl_chat_request *r, struct pl_text *out,
                              struct pl_jinja_spans *spans, struct pl_diag *d);

/* A program with the state that it needs from one row to the next. */
struct pl_chat_own {
    struct pl_chat_program program;
    struct pl_jinja_memory memory;
    struct pl_chat_request request; /* bos, eos and date are set by the caller */
    struct pl_text part;            /* renders of parts of a conversation */
    struct pl_jinja_spans marked;
    struct pl_jinja_span *turns; /* [2 * cap_turns], owned: of the row, and of a shorter render of
                                    it */
    size_t cap_turns;
    uint64_t spent, budget; /* work of rendering parts of the row, and of searching all of it */
    size_t said_to;         /* in the text: end of the last part that was found outside of its
                               turn */
    uint64_t cut_texts;     /* messages of the row that the template writes only in part, by
                               design */
    uint64_t
        quoted_arguments; /* messages whose calls have JSON in a string that it writes quoted */
};
void pl_chat_own_finish(struct pl_chat_own *o); /* leaves {0} */

/* Converts a conversation that was read as `whole` into o->request. Tools may be a list or JSON in
 * a string, as data sets store them. */
pl_err pl_chat_own_take(struct pl_chat_own *o, struct pl_conversation *c, struct pl_diag *d);

/* Renders the row that was taken: text and spans of the messages of c, of which the `wanted` ones
 * are searched for; the other spans are left empty. A span is the part that a generation block
 * marks, else the difference between the renders of the messages before and of those up to it
 * (`ends_loose` is set: white space after the token that ends the turn belongs to it still).
 * PL_ERR_DATA_TEMPLATE: the program refuses the conversation, leaves a part of it out, or renders
 * it so that an answer cannot be found. */
pl_err pl_chat_own_render(struct pl_chat_own *o, struct pl_conversation *c, const bool *wanted,
                          struct pl_chat_text *out, bool *ends_loose, struct pl_diag *d);

#endif
