/* complete.c - rows rendered by a program: what of a row its text leaves out. */
#include "runtime/data/chat/own.h"
#include "runtime/data/chat/own_row.h"
#include "runtime/data/chat/said.h"

#include <string.h>

/* --- renders of a row that says less ---------------------------------------------------------- */
/* *out: the render changes when `with` stands for `one` of the request's values. */
static pl_err is_read(struct pl_chat_own *o, struct pl_jinja_value *one, struct pl_jinja_value with,
                      const struct pl_text *whole, bool *out, struct pl_diag *d) {
    const struct pl_jinja_value kept = *one;
    struct pl_diag refused;
    *one = with;
    const struct pl_chat_part all = {.n = o->request.messages.list->n};
    pl_err err = pl_chat_own_render_part(o, &all, &refused, d);
    *one = kept;
    *out = refused.err != PL_ERR_OK || whole->len != o->part.len ||
           memcmp(whole->data, o->part.data, whole->len) != 0;
    return err;
}

/* The map without some of its keys. */
static pl_err without(struct pl_jinja_memory *m, const struct pl_jinja_value *map,
                      const char *const *keys, struct pl_jinja_value *out, struct pl_diag *d) {
    struct pl_jinja_map *less = pl_jinja_map_new(&m->arena, 0);
    if (!less) return pl_chat_own_no_room(d);
    for (size_t i = 0; i < map->map->n; i++) {
        const struct pl_jinja_entry *e = &map->map->entries[i];
        bool drop = false;
        for (const char *const *k = keys; *k; k++)
            drop |= pl_jinja_is(&e->key, *k);
        if (!drop && !pl_jinja_map_set(&m->arena, less, &e->key, &e->value))
            return pl_chat_own_no_room(d);
    }
    *out = pl_jinja_map(less);
    return PL_ERR_OK;
}

static const char *const words_keys[] = {"content", NULL};
static const char *const call_keys[] = {"tool_calls", NULL};
static const char *const thought_keys[] = {"reasoning_content", "thinking", "reasoning", NULL};

static const struct pl_jinja_value *member(const struct pl_jinja_value *message, const char *key) {
    return message->kind == PL_JINJA_MAP ? pl_jinja_map_find(message->map, key, strlen(key)) : NULL;
}

/* --- messages --------------------------------------------------------------------------------- */
/* Says whether message i needs a second look: true if what its keys say may be left out. */
typedef bool suspect(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                     const struct pl_text *whole);

/* The text of the content stands in text[0, n): as a whole, or part by part. */
static bool has_content(const struct pl_jinja_value *content, const char *text, size_t n) {
    size_t from = 0;
    if (content->kind == PL_JINJA_STRING) return pl_chat_is_said(text, n, content->s, content->n);
    for (size_t i = 0; content->kind == PL_JINJA_LIST && i < content->list->n; i++) {
        const struct pl_jinja_value *said = member(&content->list->items[i], "text");
        if (said && !pl_chat_has_words(text, n, said->s, said->n, &from)) return false;
    }
    return true;
}

/* Most texts are found where their message is written. What is elsewhere, such as a system text
 * that goes into the first question, is mostly found after the one before it. */
static bool lacks_words(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                        const struct pl_text *whole) {
    const struct pl_chat_message *m = &c->messages[i];
    const struct pl_jinja_value *content = member(&o->request.messages.list->items[i], "content");
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    size_t length, from = i ? o->said_to : 0;
    o->said_to = from;
    if (!content || !m->n) return false;
    if (turn && has_content(content, whole->data + turn->begin, turn->end - turn->begin))
        return false;
    if (turn && m->role == PL_CHAT_ASSISTANT) return true;
    const size_t at =
        pl_chat_find_said(whole->data + from, whole->len - from, m->content, m->n, &length);
    if (at != SIZE_MAX) {
        o->said_to = from + at + length;
        return false;
    }
    o->spent += whole->len;
    return turn ? pl_chat_find_said(whole->data, whole->len, m->content, m->n, &length) == SIZE_MAX
                : !has_content(content, whole->data, whole->len);
}

static bool has_calls(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                      const struct pl_text *whole) {
    (void)c, (void)whole;
    const struct pl_jinja_value *calls = member(&o->request.messages.list->items[i], "tool_calls");
    return calls && pl_jinja_truth(calls);
}

/* One render in which all suspects say less, for the turns that it changes; *refused where the
 * program cannot do without what is left out. */
static pl_err render_less(struct pl_chat_own *o, const struct pl_conversation *c,
                          suspect *is_suspect, const char *const *keys, const struct pl_text *whole,
                          size_t *suspects, struct pl_diag *refused, struct pl_diag *d) {
    const struct pl_jinja_value kept = o->request.messages;
    struct pl_jinja_list *less = pl_jinja_list_new(&o->memory.arena, kept.list->n);
    *suspects = 0;
    if (!less) return pl_chat_own_no_room(d);
    for (size_t i = 0; i < kept.list->n; i++) {
        struct pl_jinja_value v = kept.list->items[i];
        if (is_suspect(o, c, i, whole)) {
            PL_TRY(without(&o->memory, &v, keys, &v, d));
            ++*suspects;
        }
        if (!pl_jinja_list_add(&o->memory.arena, less, &v)) return pl_chat_own_no_room(d);
        PL_TRY(pl_chat_own_afford(o, d));
    }
    if (!*suspects) return PL_ERR_OK;
    const struct pl_chat_part all = {.n = less->n, .turns = o->turns + o->cap_turns};
    o->request.messages = pl_jinja_list(less, PL_JINJA_PLAIN);
    pl_err err = pl_chat_own_render_part(o, &all, refused, d);
    o->request.messages = kept;
    return err;
}

/* The turn of message i changed when it and others said less. */
static bool is_changed(const struct pl_chat_own *o, size_t i, const struct pl_text *whole) {
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    const struct pl_jinja_span *less = &o->turns[o->cap_turns + i];
    if (!turn || less->end > o->part.len || less->begin > less->end) return false;
    const size_t n = turn->end - turn->begin;
    return less->end - less->begin != n ||
           memcmp(whole->data + turn->begin, o->part.data + less->begin, n) != 0;
}

/* Part of the words of a message is left out. Earlier answers lose their reasoning by design, and
 * system messages their flags. */
static pl_err judge_part(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                         struct pl_diag *d) {
    const enum pl_chat_role role = c->messages[i].role;
    size_t end = c->n; /* of the last answer */
    while (end && c->messages[end - 1].role != PL_CHAT_ASSISTANT)
        end--;
    const bool earlier = role == PL_CHAT_ASSISTANT && i + 1 < end;
    if (!earlier && role != PL_CHAT_SYSTEM) {
        pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out a part of message %zu (%s)",
                    i, pl_chat_role_name(role));
        pl_diag_hint(d, "choose a `chat_template` that writes all of it, or remove that part from "
                        "the row");
        return PL_ERR_DATA_TEMPLATE;
    }
    o->cut_texts++;
    return PL_ERR_OK;
}

/* The messages that say something by these keys must not render as ones without them. */
static pl_err check_parts(struct pl_chat_own *o, const struct pl_conversation *c,
                          suspect *is_suspect, const char *const *keys, const struct pl_text *whole,
                          struct pl_diag *d) {
    struct pl_diag refused = {0};
    size_t suspects;
    bool *read = NULL;
    PL_TRY(render_less(o, c, is_suspect, keys, whole, &suspects, &refused, d));
    if (!suspects) return PL_ERR_OK;
    read = pl_jinja_alloc_array(&o->memory.arena, c->n, sizeof *read);
    if (!read) return pl_chat_own_no_room(d);
    for (size_t i = 0; i < c->n; i++)
        read[i] = refused.err != PL_ERR_OK || is_changed(o, i, whole);
    for (size_t i = 0; i < c->n; i++) {
        struct pl_jinja_value *message = &o->request.messages.list->items[i], less;
        if (!is_suspect(o, c, i, whole)) continue;
        PL_TRY(without(&o->memory, message, keys, &less, d));
        if (!read[i]) PL_TRY(is_read(o, message, less, whole, &read[i], d));
        if (!read[i] && keys == words_keys)
            return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out message %zu", i);
        if (!read[i])
            return pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                               "the template leaves out `%s` of message %zu", keys[0], i);
        if (keys == words_keys) PL_TRY(judge_part(o, c, i, d));
    }
    return PL_ERR_OK;
}

/* Arguments of a call that are JSON in a string: templates that write objects put it in quotes. */
static bool has_quoted_arguments(struct pl_chat_own *o, size_t i, const struct pl_text *whole) {
    const struct pl_jinja_value *calls = member(&o->request.messages.list->items[i], "tool_calls");
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    const struct pl_jinja_span in = turn ? *turn : (struct pl_jinja_span){0, whole->len};
    for (size_t k = 0; calls && calls->kind == PL_JINJA_LIST && k < calls->list->n; k++) {
        const struct pl_jinja_value *f = member(&calls->list->items[k], "function");
        const struct pl_jinja_value *said = member(f ? f : &calls->list->items[k], "arguments");
        size_t length;
        o->spent += turn ? 0 : whole->len;
        if (said && said->kind == PL_JINJA_STRING &&
            pl_chat_find_said(whole->data + in.begin, in.end - in.begin, said->s, said->n,
                              &length) == SIZE_MAX)
            return true;
    }
    return false;
}

/* Reasoning in a field of its own that is not in the turn: earlier turns leave it out by design. */
static bool lacks_thought(const struct pl_chat_own *o, size_t i, const struct pl_text *whole) {
    const struct pl_jinja_value *thought =
        member(&o->request.messages.list->items[i], "reasoning_content");
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    return turn && thought && thought->kind == PL_JINJA_STRING &&
           !pl_chat_is_said(whole->data + turn->begin, turn->end - turn->begin, thought->s,
                            thought->n);
}

/* --- the row ---------------------------------------------------------------------------------- */
/* Reasoning of earlier turns is left out by design: some of it must be read. */
static pl_err check_thoughts(struct pl_chat_own *o, const struct pl_text *whole,
                             struct pl_diag *d) {
    const struct pl_jinja_value kept = o->request.messages;
    struct pl_jinja_list *less = pl_jinja_list_new(&o->memory.arena, kept.list->n);
    bool any = false, read;
    if (!less) return pl_chat_own_no_room(d);
    for (size_t i = 0; i < kept.list->n; i++) {
        struct pl_jinja_value v = kept.list->items[i];
        const struct pl_jinja_value *thought = member(&v, "reasoning_content");
        any |= thought && pl_jinja_truth(thought);
        if (thought) PL_TRY(without(&o->memory, &v, thought_keys, &v, d));
        if (!pl_jinja_list_add(&o->memory.arena, less, &v)) return pl_chat_own_no_room(d);
    }
    if (!any) return PL_ERR_OK;
    PL_TRY(is_read(o, &o->request.messages, pl_jinja_list(less, PL_JINJA_PLAIN), whole, &read, d));
    return read ? PL_ERR_OK
                : pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out reasoning_content");
}

static pl_err check_row(struct pl_chat_own *o, const struct pl_text *whole, struct pl_diag *d) {
    const struct pl_chat_request *r = &o->request;
    bool read = true;
    if (r->tools.kind == PL_JINJA_LIST)
        PL_TRY(is_read(o, &o->request.tools, pl_jinja_none(), whole, &read, d));
    if (!read) return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out the tools");
    if (r->documents.kind != PL_JINJA_ABSENT)
        PL_TRY(is_read(o, &o->request.documents, pl_jinja_none(), whole, &read, d));
    if (!read) return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out documents");
    const struct pl_jinja *program =
        pl_chat_program_for(&o->program, r->tools.kind == PL_JINJA_LIST);
    for (size_t i = 0; r->more.kind == PL_JINJA_MAP && i < r->more.map->n; i++) {
        const struct pl_jinja_value *key = &r->more.map->entries[i].key;
        if (!pl_jinja_mentions(program, key->s, key->n))
            return pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                               "the template does not know `%.*s` of chat_template_kwargs",
                               key->n < 64 ? (int)key->n : 64, key->s);
    }
    return PL_ERR_OK;
}

pl_err pl_chat_own_check(struct pl_chat_own *o, const struct pl_conversation *c,
                         const struct pl_text *whole, struct pl_diag *d) {
    o->cut_texts = o->quoted_arguments = 0;
    for (size_t i = 0; i < c->n; i++) {
        o->quoted_arguments += has_quoted_arguments(o, i, whole);
        o->cut_texts += lacks_thought(o, i, whole);
        PL_TRY(pl_chat_own_afford(o, d));
    }
    PL_TRY(check_parts(o, c, lacks_words, words_keys, whole, d));
    PL_TRY(check_parts(o, c, has_calls, call_keys, whole, d));
    PL_TRY(check_thoughts(o, whole, d));
    return check_row(o, whole, d);
}
