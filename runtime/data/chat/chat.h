/* chat.h - renders conversations by named templates.
 *
 * In: messages (role, UTF-8 content), a template's name.  Out: the rendered text, and for every
 * message the bytes that its speaker wrote.  Needs: base.
 * Models bring their template as a Jinja program, which own.h renders.  The templates of this table
 * need none: each is a row, byte for byte equal to what its program renders without tools, and
 * rendered faster.
 *   H1  a conversation that the Jinja program refuses is refused, with the message at fault
 *   H2  spans[i] is the part that an author of message i writes: the content and the token that
 *       ends the turn, without the header before and the line feed after it; for an answer it is
 *       exactly the text that generation would produce
 *   H3  a template that leaves a message out says so: spans[i].lost
 * Use: const struct pl_chat_template *t = pl_chat_find("chatml");
 *      struct pl_chat_text out = {0};
 *      pl_chat_render(t, &(struct pl_chat_options){0}, messages, n, &out, &d); ...
 *      pl_chat_text_finish(&out); */
#ifndef PL_RUNTIME_DATA_CHAT_CHAT_H
#define PL_RUNTIME_DATA_CHAT_CHAT_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "runtime/data/chat/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_chat_text {
    struct pl_text text;
    struct pl_chat_span *spans; /* [n_spans], owned: one for each message */
    size_t n_spans, cap_spans;
};
void pl_chat_text_finish(struct pl_chat_text *t); /* frees; leaves {0} */
/* Makes n empty spans. False: no memory. */
bool pl_chat_reserve_spans(struct pl_chat_text *t, size_t n);

struct pl_chat_template;

/* Returns NULL if there is no such template. */
const struct pl_chat_template *pl_chat_find(const char *name);
/* Returns the templates in the order of the choices of `chat_template` after `auto`. */
const struct pl_chat_template *pl_chat_nth(size_t i);
size_t pl_chat_number(const struct pl_chat_template *t); /* inverse of pl_chat_nth */
const char *pl_chat_name(const struct pl_chat_template *t);
/* Returns the variant of a template without reasoning ("qwen3" -> "qwen3_nothink"); NULL = it has
 * none. */
const struct pl_chat_template *pl_chat_without_reasoning(const struct pl_chat_template *t);
/* Appends "chatml, llama2, ...", for messages. */
void pl_chat_list_names(struct pl_text *out);
/* Returns the text that ends an answer, as the template's own model spells it ("<|im_end|>"). */
const char *pl_chat_turn_end(const struct pl_chat_template *t);
/* True if the template writes the model's eos, which must then be given. */
bool pl_chat_writes_eos(const struct pl_chat_template *t);
/* True if the text depends on the day on which it is rendered. */
bool pl_chat_shows_date(const struct pl_chat_template *t);

/* Replaces *out. PL_ERR_DATA_TEMPLATE: the template refuses the conversation. */
pl_err pl_chat_render(const struct pl_chat_template *t, const struct pl_chat_options *o,
                      const struct pl_chat_message *messages, size_t n, struct pl_chat_text *out,
                      struct pl_diag *d);

#endif
