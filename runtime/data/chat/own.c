/* own.c - chat templates that are Jinja programs. */
#include "runtime/data/chat/own.h"
#include "estimator/base/digest.h"
#include "runtime/data/tokenizer/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FILE_MOST (1 << 20)

pl_err pl_chat_program_add(struct pl_chat_program *p, const char *kind, const char *text, size_t n,
                           const char *where, struct pl_diag *d) {
    bool tools = kind && strcmp(kind, "tool_use") == 0;
    if (kind && !tools && strcmp(kind, "default") != 0) return PL_ERR_OK;
    struct pl_jinja **to = tools ? &p->with_tools : &p->plain;
    if (pl_utf8_valid_bytes(text, n) != n)
        return pl_diag_at(d, PL_ERR_DATA_TEMPLATE, where, 0, 0, "the template is not UTF-8");
    pl_jinja_close(to);
    struct pl_digest h;
    pl_digest_init(&h, p->identity + tools);
    pl_digest_add(&h, text, n);
    p->identity = pl_digest_value(&h);
    return pl_jinja_parse(text, n, where, to, d);
}

static pl_err read_file(const char *path, struct pl_text *out, struct pl_diag *d) {
    char buf[4096];
    FILE *f = fopen(path, "rb");
    if (!f)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_TEMPLATE), path, 0, 0, "cannot open: %s",
                          strerror(errno));
    for (size_t n; out->len <= FILE_MOST && (n = fread(buf, 1, sizeof buf, f)) != 0;)
        pl_text_addn(out, buf, n);
    bool failed = ferror(f) != 0;
    fclose(f);
    if (failed)
        return pl_diag_at(d, pl_err_of_errno(PL_ERR_DATA_TEMPLATE), path, 0, 0, "cannot read: %s",
                          strerror(errno));
    return out->failed ? pl_host_oom(d, path) : PL_ERR_OK;
}

pl_err pl_chat_program_read(struct pl_chat_program *p, const char *path, struct pl_text *text,
                            struct pl_diag *d) {
    struct pl_text own = {0};
    if (!text) text = &own;
    text->len = 0;
    pl_err err = read_file(path, text, d);
    if (err == PL_ERR_OK)
        err = pl_chat_program_add(p, NULL, pl_text_str(text), text->len, path, d);
    pl_text_finish(&own);
    return err;
}

pl_err pl_chat_program_take(struct pl_chat_program *p, const struct pl_tokenizer *tokenizer,
                            struct pl_diag *d) {
    const struct pl_tokenizer_template *t;
    for (size_t i = 0; (t = pl_tokenizer_template(tokenizer, i)) != NULL; i++)
        PL_TRY(pl_chat_program_add(p, t->name, t->text, strlen(t->text), t->where, d));
    if (p->plain || p->with_tools) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the tokenizer brings no chat template");
}

void pl_chat_program_finish(struct pl_chat_program *p) {
    pl_jinja_close(&p->plain);
    pl_jinja_close(&p->with_tools);
    p->identity = 0;
}

const struct pl_jinja *pl_chat_program_for(const struct pl_chat_program *p, bool tools) {
    return tools && p->with_tools ? p->with_tools : p->plain;
}

/* --- variables -------------------------------------------------------------------------------- */
static bool put_member(struct pl_jinja_memory *m, struct pl_jinja_map *map, const char *name,
                       struct pl_jinja_value v) {
    const struct pl_jinja_value key = pl_jinja_literal(name);
    return pl_jinja_map_set(&m->arena, map, &key, &v);
}

static struct pl_jinja_value or_none(struct pl_jinja_value v) {
    return v.kind == PL_JINJA_ABSENT ? pl_jinja_none() : v;
}

pl_err pl_chat_make_message(struct pl_jinja_memory *m, const char *role,
                            const struct pl_jinja_value *content, struct pl_jinja_value *out,
                            struct pl_diag *d) {
    struct pl_jinja_map *map = pl_jinja_map_new(&m->arena, 2);
    pl_jinja_admit(m, content->kind == PL_JINJA_STRING ? content->n : 0);
    if (!map || !put_member(m, map, "role", pl_jinja_literal(role)) ||
        !put_member(m, map, "content", *content))
        return pl_host_oom(d, "a message");
    *out = pl_jinja_map(map);
    return PL_ERR_OK;
}

/* Names that reasoning is stored under; the first one is what templates read. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

static const struct pl_jinja_value *reasoning_of(const struct pl_jinja_map *message) {
    for (size_t i = 0; i < sizeof reasoning_names / sizeof *reasoning_names; i++) {
        const struct pl_jinja_value *v =
            pl_jinja_map_find(message, reasoning_names[i], strlen(reasoning_names[i]));
        if (v && v->kind != PL_JINJA_NONE) return v;
    }
    return NULL;
}

/* {k: v for k, v in message.items() if v is not None} */
static bool without_nulls(struct pl_jinja_memory *m, struct pl_jinja_value *message) {
    const struct pl_jinja_map *old = message->kind == PL_JINJA_MAP ? message->map : NULL;
    size_t nulls = 0;
    for (size_t i = 0; old && i < old->n; i++)
        nulls += old->entries[i].value.kind == PL_JINJA_NONE;
    if (!nulls) return true;
    struct pl_jinja_map *map = pl_jinja_map_new(&m->arena, old->n);
    for (size_t i = 0; map && i < old->n; i++)
        if (old->entries[i].value.kind != PL_JINJA_NONE &&
            !pl_jinja_map_set(&m->arena, map, &old->entries[i].key, &old->entries[i].value))
            return false;
    *message = pl_jinja_map(map);
    return map != NULL;
}

/* {"thinking": reasoning, **message, "reasoning_content": reasoning}, in this order. */
static bool with_aliases(struct pl_jinja_memory *m, struct pl_jinja_value *message) {
    const struct pl_jinja_value *reasoning =
        message->kind == PL_JINJA_MAP ? reasoning_of(message->map) : NULL;
    if (!reasoning) return true;
    const struct pl_jinja_map *old = message->map;
    struct pl_jinja_map *map = pl_jinja_map_new(&m->arena, old->n + 2);
    bool ok = map && put_member(m, map, "thinking", *reasoning);
    for (size_t i = 0; ok && i < old->n; i++)
        ok = pl_jinja_map_set(&m->arena, map, &old->entries[i].key, &old->entries[i].value);
    if (!ok || !put_member(m, map, "reasoning_content", *reasoning)) return false;
    *message = pl_jinja_map(map);
    return true;
}

pl_err pl_chat_prepare_messages(struct pl_jinja_memory *m, struct pl_jinja_value *messages,
                                struct pl_diag *d) {
    for (size_t i = 0; messages->kind == PL_JINJA_LIST && i < messages->list->n; i++)
        if (!without_nulls(m, &messages->list->items[i]) ||
            !with_aliases(m, &messages->list->items[i]))
            return pl_host_oom(d, "the messages");
    return PL_ERR_OK;
}

/* Variables of the row override the tokenizer's marks, as in transformers. */
static struct pl_jinja_map *variables(struct pl_jinja_memory *m, const struct pl_chat_request *r) {
    struct pl_jinja_map *map = pl_jinja_map_new(&m->arena, 16);
    bool ok = map != NULL;
    if (r->bos) ok = ok && put_member(m, map, "bos_token", pl_jinja_literal(r->bos));
    if (r->eos) ok = ok && put_member(m, map, "eos_token", pl_jinja_literal(r->eos));
    const struct pl_jinja_map *more = r->more.kind == PL_JINJA_MAP ? r->more.map : NULL;
    for (size_t i = 0; ok && more && i < more->n; i++)
        ok = pl_jinja_map_set(&m->arena, map, &more->entries[i].key, &more->entries[i].value);
    ok = ok && put_member(m, map, "messages", r->messages);
    ok = ok && put_member(m, map, "tools", or_none(r->tools));
    ok = ok && put_member(m, map, "documents", or_none(r->documents));
    ok = ok && put_member(m, map, "add_generation_prompt", pl_jinja_bool(r->generate));
    return ok ? map : NULL;
}

pl_err pl_chat_program_render(const struct pl_chat_program *p, struct pl_jinja_memory *m,
                              const struct pl_chat_request *r, struct pl_text *out,
                              struct pl_jinja_spans *spans, struct pl_diag *d) {
    bool tools = r->tools.kind != PL_JINJA_ABSENT && r->tools.kind != PL_JINJA_NONE;
    const struct pl_jinja_mark mark = pl_jinja_arena_mark(&m->arena);
    const struct pl_chat_date day = r->date.year ? r->date : pl_chat_today();
    struct pl_jinja_inputs in = {.year = day.year, .month = day.month, .day = day.day};
    const struct pl_jinja *program = pl_chat_program_for(p, tools);
    const struct pl_jinja_map *map = variables(m, r);
    if (!program)
        return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "the model has no chat template `default`");
    if (!map)
        return pl_diag_set(
            d, m->arena.shortage == PL_JINJA_NO_MEMORY ? PL_ERR_HOST_OOM : PL_ERR_DATA_TEMPLATE,
            "no room for the variables of a chat template");
    in.variables = map;
    if (r->turns && r->messages.kind == PL_JINJA_LIST) {
        in.parts = r->turns;
        in.n_parts = r->messages.list->n;
        /* numbers let the program find the message that a loop is at */
        for (size_t i = 0; i < in.n_parts; i++)
            if (r->messages.list->items[i].kind == PL_JINJA_MAP)
                r->messages.list->items[i].map->part = (uint32_t)i + 1;
    }
    pl_err err = pl_jinja_render(program, m, &in, out, spans, d);
    pl_jinja_arena_release(&m->arena, &mark);
    return err;
}
