/* own_row.c - renders of parts of a row, and their count. */
#include "runtime/data/chat/own_row.h"

pl_err pl_chat_own_afford(const struct pl_chat_own *o, struct pl_diag *d) {
    if (o->spent <= o->budget) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                "the row has too many messages to find each of them in what the template renders");
    pl_diag_hint(d, "use a template that marks answers by {%% generation %%}, or split the row");
    return PL_ERR_DATA_TEMPLATE;
}

pl_err pl_chat_own_render_part(struct pl_chat_own *o, const struct pl_chat_part *part,
                               struct pl_diag *refused, struct pl_diag *d) {
    struct pl_chat_request r = o->request;
    struct pl_jinja_list first = *r.messages.list;
    first.n = part->n;
    r.messages = pl_jinja_list(&first, PL_JINJA_PLAIN);
    r.generate = part->generate;
    r.turns = part->turns;
    *refused = (struct pl_diag){0};
    pl_err err = pl_chat_program_render(&o->program, &o->memory, &r, &o->part, NULL, refused);
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", refused->message);
    o->spent += o->part.len + PL_CHAT_MESSAGE_COST * (uint64_t)part->n;
    return pl_chat_own_afford(o, d);
}

const struct pl_jinja_span *pl_chat_own_turn(const struct pl_chat_own *o, size_t i,
                                             const struct pl_text *whole) {
    const struct pl_jinja_span *turn = &o->turns[i];
    return turn->begin < turn->end && turn->end <= whole->len ? turn : NULL;
}
