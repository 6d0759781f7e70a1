/* parts.c - content that is a list of text parts, for programs that read such lists and for those
 * that take texts only. */
#include "runtime/data/chat/own.h"
#include "runtime/data/chat/own_row.h"

#include <string.h>

static const struct pl_jinja_value *content_of(const struct pl_jinja_value *message) {
    const struct pl_jinja_value *content =
        message->kind == PL_JINJA_MAP ? pl_jinja_map_find(message->map, "content", 7) : NULL;
    return content && content->kind == PL_JINJA_LIST ? content : NULL;
}

static bool set(struct pl_jinja_memory *m, struct pl_jinja_map *map, const char *key,
                const struct pl_jinja_value *v) {
    const struct pl_jinja_value name = pl_jinja_literal(key);
    return pl_jinja_map_set(&m->arena, map, &name, v);
}

/* {"type": "text", "text": ...} of a part in another spelling: a string, one without a type, and
 * those of other programming interfaces. */
static bool spell_part(struct pl_jinja_memory *m, struct pl_jinja_value *part) {
    const struct pl_jinja_value type = pl_jinja_literal("text");
    const struct pl_jinja_value *text =
        part->kind == PL_JINJA_MAP ? pl_jinja_map_find(part->map, "text", 4) : part;
    if (!text) return true; /* the reader has refused such parts */
    struct pl_jinja_map *map = pl_jinja_map_new(&m->arena, 2);
    if (!map || !set(m, map, "type", &type) || !set(m, map, "text", text)) return false;
    for (size_t i = 0; part->kind == PL_JINJA_MAP && i < part->map->n; i++) {
        const struct pl_jinja_entry *e = &part->map->entries[i];
        if (!pl_jinja_is(&e->key, "type") && !pl_jinja_is(&e->key, "text") &&
            !pl_jinja_map_set(&m->arena, map, &e->key, &e->value))
            return false;
    }
    *part = pl_jinja_map(map);
    return true;
}

pl_err pl_chat_own_spell_parts(struct pl_chat_own *o, struct pl_jinja_value *message,
                               struct pl_diag *d) {
    const struct pl_jinja_value *content = content_of(message);
    for (size_t i = 0; content && i < content->list->n; i++)
        if (!spell_part(&o->memory, &content->list->items[i])) return pl_chat_own_no_room(d);
    return PL_ERR_OK;
}

bool pl_chat_own_has_parts(const struct pl_chat_own *o) {
    const struct pl_jinja_list *messages = o->request.messages.list;
    size_t i = 0;
    while (i < messages->n && !content_of(&messages->items[i]))
        i++;
    return i < messages->n;
}

bool pl_chat_own_shows_parts(const struct pl_text *whole) {
    static const char *const shown[] = {"{'type': 'text', 'text': ",
                                        "{\"type\": \"text\", \"text\": "};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (memmem(whole->data, whole->len, shown[i], strlen(shown[i]))) return true;
    return false;
}

pl_err pl_chat_own_join_parts(struct pl_chat_own *o, const struct pl_conversation *c,
                              struct pl_diag *d) {
    for (size_t i = 0; i < c->n; i++) {
        struct pl_jinja_value *message = &o->request.messages.list->items[i];
        const struct pl_jinja_value said =
            pl_jinja_string(c->messages[i].content, c->messages[i].n);
        if (content_of(message) && !set(&o->memory, message->map, "content", &said))
            return pl_chat_own_no_room(d);
    }
    return PL_ERR_OK;
}
