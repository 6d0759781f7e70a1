/* own_row.h - one row of a program: what the files that render it share; internal to chat/.
 *
 * In: a request that was taken.  Out: renders of parts of it.  Needs: own.h.
 *   R1  rendering parts is counted (o->spent): a row whose answers are not found within the limit
 *       is refused, so that no row costs the product of its answers and its length */
#ifndef PL_RUNTIME_DATA_CHAT_OWN_ROW_H
#define PL_RUNTIME_DATA_CHAT_OWN_ROW_H

#include "runtime/data/chat/own.h"

#define PL_CHAT_MESSAGE_COST 128 /* bytes that rendering a message is worth */

/* A refusal of the program is in *refused; the result says what ends the row: missing memory, or
 * R1. */
struct pl_chat_part {
    size_t n;                    /* messages */
    bool generate;               /* end with the header of an answer */
    struct pl_jinja_span *turns; /* [n], nullable */
};
pl_err pl_chat_own_render_part(struct pl_chat_own *o, const struct pl_chat_part *part,
                               struct pl_diag *refused, struct pl_diag *d);

pl_err pl_chat_own_afford(const struct pl_chat_own *o, struct pl_diag *d); /* R1 */

/* The text that the program wrote for message i; NULL: nothing, or not in one place. */
const struct pl_jinja_span *pl_chat_own_turn(const struct pl_chat_own *o, size_t i,
                                             const struct pl_text *whole);

/* PL_ERR_DATA_TEMPLATE: a part of the row is not in the text. Earlier answers and system messages
 * may be written in part, and are counted in o->cut_texts. */
pl_err pl_chat_own_check(struct pl_chat_own *o, const struct pl_conversation *c,
                         const struct pl_text *whole, struct pl_diag *d);

/* Text parts of a message's content, in the one spelling that programs read. */
pl_err pl_chat_own_spell_parts(struct pl_chat_own *o, struct pl_jinja_value *message,
                               struct pl_diag *d);
bool pl_chat_own_has_parts(const struct pl_chat_own *o); /* some content is a list */
/* The text has a list of parts as Python or JSON writes it: the program takes texts only. */
bool pl_chat_own_shows_parts(const struct pl_text *whole);
/* Every list becomes the text that its parts make together. */
pl_err pl_chat_own_join_parts(struct pl_chat_own *o, const struct pl_conversation *c,
                              struct pl_diag *d);

static inline pl_err pl_chat_own_no_room(struct pl_diag *d) {
    return pl_host_oom(d, "the messages of a row");
}

#endif
