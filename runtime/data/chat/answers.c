/* answers.c - rows rendered by a program: their values, where answers stand, what was left out. */
#include "runtime/data/chat/own.h"
#include "runtime/data/jinja/chars.h"

#include <string.h>

void pl_chat_own_finish(struct pl_chat_own *o) {
    pl_chat_program_finish(&o->program);
    pl_jinja_memory_finish(&o->memory);
    pl_text_finish(&o->part);
    pl_jinja_spans_finish(&o->marked);
    *o = (struct pl_chat_own){0};
}

/* --- values of a row -------------------------------------------------------------------------- */
static pl_err no_room(struct pl_diag *d) {
    return pl_host_oom(d, "the messages of a row");
}

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

pl_err pl_chat_own_take(struct pl_chat_own *o, struct pl_conversation *c, struct pl_diag *d) {
    const struct pl_chat_message *m = pl_conversation_messages(c);
    struct pl_chat_request *r = &o->request;
    pl_jinja_begin(&o->memory);
    struct pl_jinja_list *list = pl_jinja_list_new(&o->memory.arena, c->n);
    struct pl_jinja_value v;
    if (!list) return no_room(d);
    for (size_t i = 0; i < c->n; i++) {
        const struct pl_jinja_value said = pl_jinja_string(m[i].content, m[i].n);
        const char *role = pl_chat_role_name(m[i].role);
        PL_TRY(c->json[i].end ? read_span(&o->memory, c->row, &c->json[i], &v, d)
                              : pl_chat_make_message(&o->memory, role, &said, &v, d));
        if (!pl_jinja_list_add(&o->memory.arena, list, &v)) return no_room(d);
    }
    r->messages = pl_jinja_list(list, PL_JINJA_PLAIN);
    PL_TRY(take_tools(o, c, d));
    PL_TRY(read_span(&o->memory, c->row, &c->documents, &r->documents, d));
    PL_TRY(read_span(&o->memory, c->row, &c->more, &r->more, d));
    if (r->more.kind != PL_JINJA_ABSENT && r->more.kind != PL_JINJA_MAP)
        return pl_diag_set(d, PL_ERR_DATA_FIELD, "`chat_template_kwargs` is not an object");
    return pl_chat_alias_reasoning(&o->memory, &r->messages, d);
}

/* --- renders of parts ------------------------------------------------------------------------- */
/* The first n messages into o->part. */
static pl_err render_first(struct pl_chat_own *o, size_t n, bool generate, struct pl_diag *d) {
    struct pl_chat_request r = o->request;
    struct pl_jinja_list part = *r.messages.list;
    part.n = n;
    r.messages = pl_jinja_list(&part, PL_JINJA_PLAIN);
    r.generate = generate;
    return pl_chat_program_render(&o->program, &o->memory, &r, &o->part, NULL, d);
}

static bool begins_with(const struct pl_text *whole, const struct pl_text *part) {
    return part->len <= whole->len && memcmp(whole->data, part->data, part->len) == 0;
}

static pl_err not_found(const struct pl_conversation *c, size_t i, const char *why,
                        struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                "message %zu (%s) cannot be found in what the template "
                "renders: %s",
                i, pl_chat_role_name(c->messages[i].role), why);
    pl_diag_hint(d, "use a template that marks answers by {%% generation %%}, or give `prompt` and "
                    "`completion` as text");
    return PL_ERR_DATA_TEMPLATE;
}

/* Where an answer begins: the header that asks for it is rendered already. A first message has
 * nothing before it to render; its own words are looked for then. */
static pl_err find_begin(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                         const struct pl_text *whole, size_t *begin, struct pl_diag *d) {
    struct pl_diag refused = {0};
    pl_err err = render_first(o, i, c->messages[i].role == PL_CHAT_ASSISTANT, &refused);
    *begin = o->part.len;
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", refused.message);
    if (err == PL_ERR_OK && begins_with(whole, &o->part)) return PL_ERR_OK;
    *begin = 0;
    if (i == 0) return PL_ERR_OK;
    return not_found(c, i,
                     err == PL_ERR_OK ? "the messages before it are rendered differently with it"
                                      : refused.message,
                     d);
}

/* The longest end of s[0, n) that t[0, m) begins with. */
static size_t overlap(const char *s, size_t n, const char *t, size_t m) {
    for (size_t k = n < m ? n : m; k; k--)
        if (memcmp(s + n - k, t, k) == 0) return k;
    return 0;
}

/* Past the first place of the words of message i after byte `from`; 0 = they are not there. */
static size_t past_words(const struct pl_conversation *c, size_t i, const struct pl_text *whole,
                         size_t from) {
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    pl_jinja_strip(&said, NULL, true, true);
    ptrdiff_t at = pl_jinja_find(whole->data + from, whole->len - from, said.s, said.n);
    return at < 0 ? 0 : from + (size_t)at + said.n;
}

/* What o->part and the whole have in common: it ends message i where it reaches past its words to
 * what ends the turn. */
static bool find_shared_end(const struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                            const struct pl_text *whole, size_t begin, size_t *end) {
    size_t same = 0, said = past_words(c, i, whole, begin);
    while (same < whole->len && same < o->part.len && whole->data[same] == o->part.data[same])
        same++;
    if (!said || same <= said) return false;
    const struct pl_jinja_value after = pl_jinja_string(whole->data + said, same - said);
    if (pl_jinja_is_blank(&after)) return false;
    *end = same;
    return true;
}

/* The last message ends with the text, unless a question after it shows that something else ends
 * the conversation: what ends the turn stands in both. */
static pl_err find_last_end(struct pl_chat_own *o, const struct pl_conversation *c,
                            const struct pl_text *whole, size_t begin, size_t *end,
                            struct pl_diag *d) {
    const struct pl_jinja_value word = pl_jinja_literal("x");
    struct pl_jinja_list *list = o->request.messages.list;
    struct pl_jinja_value question;
    struct pl_diag refused = {0};
    *end = whole->len;
    PL_TRY(pl_chat_make_message(&o->memory, "user", &word, &question, d));
    if (!pl_jinja_list_add(&o->memory.arena, list, &question)) return no_room(d);
    pl_err err = render_first(o, list->n, false, &refused);
    list->n--;
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", refused.message);
    if (err == PL_ERR_OK) find_shared_end(o, c, c->n - 1, whole, begin, end);
    return PL_ERR_OK;
}

/* Where a message ends. Rendered last it may carry more than in the middle, such as the reasoning
 * that later turns leave out; what both have in common must reach into its own words. */
static pl_err find_end(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                       const struct pl_text *whole, size_t begin, size_t *end, struct pl_diag *d) {
    struct pl_diag refused = {0};
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    if (i + 1 == c->n) return find_last_end(o, c, whole, begin, end, d);
    if (render_first(o, i + 1, false, &refused) != PL_ERR_OK)
        return not_found(c, i, refused.message, d);
    *end = o->part.len;
    if (begins_with(whole, &o->part)) return PL_ERR_OK;
    if (find_shared_end(o, c, i, whole, begin, end)) return PL_ERR_OK;
    if (o->part.len < begin) return not_found(c, i, "it is rendered differently alone", d);
    const char *last = o->part.data + begin;
    size_t n = o->part.len - begin;
    size_t common = overlap(last, n, whole->data + begin, whole->len - begin);
    pl_jinja_strip(&said, NULL, true, true);
    ptrdiff_t at = said.n ? pl_jinja_rfind(last, n, said.s, said.n) : (ptrdiff_t)n;
    size_t after = at < 0 ? n : n - (size_t)at - said.n;
    if (at < 0 || !common || common < after + (said.n > 0))
        return not_found(c, i, "it is rendered differently before other messages", d);
    *end = begin + common;
    return PL_ERR_OK;
}

/* Of others than answers, and where nothing stands before one, the words without the header. */
static pl_err find_words(const struct pl_conversation *c, size_t i, const struct pl_text *whole,
                         struct pl_chat_span *span, struct pl_diag *d) {
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    if (c->messages[i].role == PL_CHAT_ASSISTANT && span->begin) return PL_ERR_OK;
    pl_jinja_strip(&said, NULL, true, true);
    ptrdiff_t at =
        pl_jinja_find(whole->data + span->begin, span->end - span->begin, said.s, said.n);
    if (at < 0 || !said.n) return not_found(c, i, "its text is not there", d);
    span->begin += (size_t)at;
    return PL_ERR_OK;
}

static pl_err find_span(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                        const struct pl_text *whole, struct pl_chat_span *span, struct pl_diag *d) {
    PL_TRY(find_begin(o, c, i, whole, &span->begin, d));
    PL_TRY(find_end(o, c, i, whole, span->begin, &span->end, d));
    if (span->end < span->begin) return not_found(c, i, "it ends before it begins", d);
    return find_words(c, i, whole, span, d);
}

/* --- what was left out ------------------------------------------------------------------------ */
/* Whether the render changes when `with` stands for `one` of the request's values. */
static pl_err is_read(struct pl_chat_own *o, struct pl_jinja_value *one, struct pl_jinja_value with,
                      const struct pl_text *whole, bool *out, struct pl_diag *d) {
    const struct pl_jinja_value kept = *one;
    struct pl_diag refused = {0};
    *one = with;
    pl_err err =
        pl_chat_program_render(&o->program, &o->memory, &o->request, &o->part, NULL, &refused);
    *one = kept;
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", refused.message);
    *out = err != PL_ERR_OK || whole->len != o->part.len || !begins_with(whole, &o->part);
    return PL_ERR_OK;
}

/* The map without some of its keys. */
static pl_err without(struct pl_jinja_memory *m, const struct pl_jinja_value *map,
                      const char *const *keys, struct pl_jinja_value *out, struct pl_diag *d) {
    struct pl_jinja_map *less = pl_jinja_map_new(&m->arena, 0);
    if (!less) return no_room(d);
    for (size_t i = 0; i < map->map->n; i++) {
        const struct pl_jinja_entry *e = &map->map->entries[i];
        bool drop = false;
        for (const char *const *k = keys; *k; k++)
            drop |= pl_jinja_is(&e->key, *k);
        if (!drop && !pl_jinja_map_set(&m->arena, less, &e->key, &e->value)) return no_room(d);
    }
    *out = pl_jinja_map(less);
    return PL_ERR_OK;
}

static const char *const words_keys[] = {"content", NULL};
static const char *const call_keys[] = {"tool_calls", NULL};
static const char *const thought_keys[] = {"reasoning_content", "thinking", "reasoning", NULL};

/* A message that says something by these keys must not render as one without them. */
static pl_err check_part(struct pl_chat_own *o, size_t i, const char *const *keys,
                         const struct pl_text *whole, struct pl_diag *d) {
    struct pl_jinja_value *message = &o->request.messages.list->items[i], less;
    bool read;
    PL_TRY(without(&o->memory, message, keys, &less, d));
    PL_TRY(is_read(o, message, less, whole, &read, d));
    if (read) return PL_ERR_OK;
    return keys == words_keys
               ? pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out message %zu", i)
               : pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the template leaves out `%s` of message %zu",
                             keys[0], i);
}

static const struct pl_jinja_value *member(const struct pl_jinja_value *message, const char *key) {
    return message->kind == PL_JINJA_MAP ? pl_jinja_map_find(message->map, key, strlen(key)) : NULL;
}

/* Most texts are found as they are; only those that are not cost another render. */
static bool is_written(const struct pl_text *whole, const char *s, size_t n) {
    struct pl_jinja_value said = pl_jinja_string(s, n);
    pl_jinja_strip(&said, NULL, true, true);
    return !said.n || pl_jinja_find(whole->data, whole->len, said.s, said.n) >= 0;
}

/* Reasoning of earlier turns is left out by design: some of it must be read. */
static pl_err check_thoughts(struct pl_chat_own *o, const struct pl_text *whole,
                             struct pl_diag *d) {
    const struct pl_jinja_value kept = o->request.messages;
    struct pl_jinja_list *less = pl_jinja_list_new(&o->memory.arena, kept.list->n);
    bool any = false, read;
    if (!less) return no_room(d);
    for (size_t i = 0; i < kept.list->n; i++) {
        struct pl_jinja_value v = kept.list->items[i];
        const struct pl_jinja_value *thought = member(&v, "reasoning_content");
        any |= thought && pl_jinja_truth(thought);
        if (thought) PL_TRY(without(&o->memory, &v, thought_keys, &v, d));
        if (!pl_jinja_list_add(&o->memory.arena, less, &v)) return no_room(d);
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

static pl_err check_complete(struct pl_chat_own *o, const struct pl_conversation *c,
                             const struct pl_text *whole, struct pl_diag *d) {
    for (size_t i = 0; i < c->n; i++) {
        const struct pl_jinja_value *calls =
            member(&o->request.messages.list->items[i], "tool_calls");
        if (!is_written(whole, c->messages[i].content, c->messages[i].n))
            PL_TRY(check_part(o, i, words_keys, whole, d));
        if (calls && pl_jinja_truth(calls)) PL_TRY(check_part(o, i, call_keys, whole, d));
    }
    PL_TRY(check_thoughts(o, whole, d));
    return check_row(o, whole, d);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* One generation block an answer, in their order. */
static pl_err take_marked(const struct pl_chat_own *o, const struct pl_conversation *c,
                          struct pl_chat_text *out, struct pl_diag *d) {
    size_t answers = 0, k = 0;
    for (size_t i = 0; i < c->n; i++)
        answers += c->messages[i].role == PL_CHAT_ASSISTANT;
    if (answers != o->marked.n)
        return pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                           "the template marks %zu answers, the conversation has %zu", o->marked.n,
                           answers);
    for (size_t i = 0; i < c->n; i++) {
        if (c->messages[i].role != PL_CHAT_ASSISTANT) continue;
        out->spans[i].begin = o->marked.items[k].begin;
        out->spans[i].end = o->marked.items[k++].end;
    }
    return PL_ERR_OK;
}

pl_err pl_chat_own_render(struct pl_chat_own *o, struct pl_conversation *c, const bool *wanted,
                          struct pl_chat_text *out, bool *ends_loose, struct pl_diag *d) {
    bool tools = o->request.tools.kind == PL_JINJA_LIST;
    const struct pl_jinja *program = pl_chat_program_for(&o->program, tools);
    bool marks = program && pl_jinja_marks_answers(program);
    if (!pl_chat_reserve_spans(out, c->n)) return no_room(d);
    (void)pl_conversation_messages(c);
    PL_TRY(pl_chat_program_render(&o->program, &o->memory, &o->request, &out->text,
                                  marks ? &o->marked : NULL, d));
    PL_TRY(check_complete(o, c, &out->text, d));
    *ends_loose = !marks;
    if (marks) PL_TRY(take_marked(o, c, out, d));
    for (size_t i = 0; i < c->n; i++)
        if (wanted[i] && !(marks && c->messages[i].role == PL_CHAT_ASSISTANT))
            PL_TRY(find_span(o, c, i, &out->text, &out->spans[i], d));
    return PL_ERR_OK;
}
