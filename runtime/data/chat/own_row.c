/* own_row.c - the values of a row, as a program of its own is given them; renders of parts of the
 * row, and their count. */
#include "runtime/data/chat/own.h"
#include "runtime/data/chat/own_row.h"

#include <string.h>

static pl_err read_text(struct pl_jinja_memory *m, const char *text, size_t n,
                        struct pl_jinja_value *out, struct pl_diag *d) {
    struct pl_scan s = {.text = text, .n = n};
    if (pl_jinja_read_json(m, &s, out)) return PL_ERR_OK;
    pl_diag_set(d, s.err, "%s", s.what);
    if (s.hint) pl_diag_hint(d, "%s", s.hint);
    return s.err;
}

static pl_err read_span(struct pl_jinja_memory *m, const char *row, const struct pl_json_span *at,
                        struct pl_jinja_value *out, struct pl_diag *d) {
    *out = (struct pl_jinja_value){0};
    if (!at->end) return PL_ERR_OK;
    PL_TRY(read_text(m, row + at->begin, at->end - at->begin, out, d));
    if (out->kind == PL_JINJA_NONE) *out = (struct pl_jinja_value){0};
    return PL_ERR_OK;
}

static pl_err take_tools(struct pl_chat_own *o, const struct pl_conversation *c,
                         struct pl_diag *d) {
    struct pl_jinja_value *tools = &o->request.tools;
    PL_TRY(read_span(&o->memory, c->row, &c->tools, tools, d));
    if (tools->kind == PL_JINJA_STRING && !tools->n) *tools = (struct pl_jinja_value){0};
    if (tools->kind == PL_JINJA_STRING) {
        const struct pl_jinja_value text = *tools;
        PL_TRY(read_text(&o->memory, text.s, text.n, tools, d));
    }
    if (tools->kind == PL_JINJA_ABSENT || tools->kind == PL_JINJA_NONE) return PL_ERR_OK;
    if (tools->kind != PL_JINJA_LIST)
        return pl_diag_set(d, PL_ERR_DATA_FIELD, "`tools` is not a list of tools");
    if (!tools->list->n) *tools = (struct pl_jinja_value){0};
    return PL_ERR_OK;
}

/* A role in another word that is known reaches the program under its name. */
static pl_err spell_role(struct pl_chat_own *o, const struct pl_conversation *c,
                         struct pl_jinja_value *message, struct pl_diag *d) {
    const struct pl_jinja_value key = pl_jinja_literal("role");
    struct pl_jinja_value *word = message->kind == PL_JINJA_MAP
                                      ? pl_jinja_map_get(&o->memory.arena.meter, message->map, &key)
                                      : NULL;
    enum pl_chat_role role;
    if (!word || word->kind != PL_JINJA_STRING ||
        !pl_conversation_role(c, word->s, word->n, &role) ||
        pl_jinja_is(word, pl_chat_role_name(role)))
        return PL_ERR_OK;
    const struct pl_jinja_value name = pl_jinja_literal(pl_chat_role_name(role));
    return pl_jinja_map_set(&o->memory.arena, message->map, &key, &name) ? PL_ERR_OK
                                                                         : pl_chat_own_no_room(d);
}

pl_err pl_chat_own_take(struct pl_chat_own *o, struct pl_conversation *c, struct pl_diag *d) {
    const struct pl_chat_message *m = pl_conversation_messages(c);
    struct pl_chat_request *r = &o->request;
    pl_jinja_begin(&o->memory);
    struct pl_jinja_list *list = pl_jinja_list_new(&o->memory.arena, c->n);
    struct pl_jinja_value v;
    if (!list) return pl_chat_own_no_room(d);
    for (size_t i = 0; i < c->n; i++) {
        const struct pl_jinja_value said = pl_jinja_string(m[i].content, m[i].n);
        const char *role = pl_chat_role_name(m[i].role);
        PL_TRY(c->json[i].end ? read_span(&o->memory, c->row, &c->json[i], &v, d)
                              : pl_chat_make_message(&o->memory, role, &said, &v, d));
        PL_TRY(spell_role(o, c, &v, d));
        PL_TRY(pl_chat_own_spell_parts(o, &v, d));
        if (!pl_jinja_list_add(&o->memory.arena, list, &v)) return pl_chat_own_no_room(d);
    }
    r->messages = pl_jinja_list(list, PL_JINJA_PLAIN);
    PL_TRY(take_tools(o, c, d));
    PL_TRY(read_span(&o->memory, c->row, &c->documents, &r->documents, d));
    PL_TRY(read_span(&o->memory, c->row, &c->more, &r->more, d));
    if (r->more.kind != PL_JINJA_ABSENT && r->more.kind != PL_JINJA_MAP)
        return pl_diag_set(d, PL_ERR_DATA_FIELD, "`chat_template_kwargs` is not an object");
    return pl_chat_prepare_messages(&o->memory, &r->messages, d);
}

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
