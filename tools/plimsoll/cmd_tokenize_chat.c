/* cmd_tokenize_chat.c - `plimsoll tokenize --chat-template NAME`: conversations as text. */
#include "tools/plimsoll/cmd_tokenize.h"

#include "estimator/base/json_tree.h"
#include "runtime/data/chat/conversation.h"
#include "runtime/data/chat/own.h"
#include "runtime/data/row_keys.h"
#include "runtime/data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* One line of input: the keys of Hugging Face's apply_chat_template, tools aside. */
struct request {
    struct pl_conversation conversation;
    struct pl_text key, bos, eos, date;
    bool generate, plain, has_bos, has_eos, has_messages;
};

struct chat_session {
    const struct pl_chat_template *t; /* NULL: `program` renders */
    struct pl_chat_program program;
    struct pl_jinja_memory memory;
    struct pl_tokenizer *tokenizer; /* the one of --tokenizer, else NULL */
    struct pl_chat_options options; /* from the command line */
    struct request r;
    struct pl_chat_text out;
    bool json;
};

static bool read_flag(struct pl_scan *s, bool *out) {
    enum pl_scan_kind kind = pl_scan_peek(s);
    size_t at = s->at;
    if (kind != PL_SCAN_BOOLEAN)
        return pl_scan_fail(s, PL_ERR_DATA_FIELD, at, NULL, "%s where true or false is expected",
                            pl_scan_kind_name(kind));
    *out = s->text[at] == 't';
    return pl_scan_skip(s);
}

static bool read_word(struct pl_scan *s, struct pl_text *out, bool *has) {
    out->len = 0;
    *has = pl_scan_peek(s) != PL_SCAN_NULL;
    return *has ? pl_scan_string(s, out) : pl_scan_skip(s);
}

static bool read_member(struct request *r, struct pl_scan *s) {
    const char *key = pl_text_str(&r->key);
    bool on = true, has_date;
    if (strcmp(key, "messages") == 0) {
        r->has_messages = true;
        return pl_conversation_read(&r->conversation, s, PL_SPELLING_OPENAI);
    }
    if (strcmp(key, "add_generation_prompt") == 0) return read_flag(s, &r->generate);
    if (strcmp(key, "bos_token") == 0) return read_word(s, &r->bos, &r->has_bos);
    if (strcmp(key, "eos_token") == 0) return read_word(s, &r->eos, &r->has_eos);
    if (strcmp(key, "date") == 0) return read_word(s, &r->date, &has_date);
    if (strcmp(key, "tools") == 0)
        return pl_row_key_refuse(s, key, "templates are rendered without tools");
    if (strcmp(key, "enable_thinking") != 0) return pl_scan_skip(s);
    if (!read_flag(s, &on)) return false;
    r->plain = !on;
    return true;
}

static bool read_request(struct request *r, struct pl_scan *s) {
    pl_conversation_start(&r->conversation);
    r->generate = r->plain = r->has_bos = r->has_eos = r->has_messages = false;
    r->date.len = 0;
    if (!pl_scan_enter(s)) return false;
    while (pl_scan_next_key(s, &r->key))
        if (!read_member(r, s)) return false;
    if (!pl_scan_end(s)) return false;
    if (r->key.failed || r->bos.failed || r->eos.failed || r->date.failed)
        return pl_scan_fail(s, PL_ERR_HOST_OOM, 0, NULL, "no memory for the line");
    return r->has_messages ||
           pl_scan_fail(s, PL_ERR_DATA_FIELD, 0, NULL, "key `messages` is missing");
}

static pl_err render(struct chat_session *s, struct pl_diag *d) {
    const struct request *r = &s->r;
    const struct pl_chat_template *t = r->plain ? pl_chat_without_reasoning(s->t) : s->t;
    struct pl_chat_options o = s->options;
    struct pl_conversation *c = &s->r.conversation;
    o.generate = r->generate;
    if (r->has_bos) o.bos = pl_text_str(&r->bos);
    if (r->has_eos) o.eos = pl_text_str(&r->eos);
    if (r->date.len && !pl_chat_date_parse(pl_text_str(&r->date), &o.date))
        return pl_diag_set(d, PL_ERR_DATA_FIELD, "`date` is not a day such as 2025-01-31");
    return pl_chat_render(t ? t : s->t, &o, pl_conversation_messages(c), c->n, &s->out, d);
}

static pl_err print_json_line(json_t *o, struct pl_diag *d) {
    char *line = o ? pl_json_dump(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!line) return pl_host_oom(d, "the answer");
    puts(line);
    free(line);
    return PL_ERR_OK;
}

static pl_err print_rendered(const struct chat_session *s, struct pl_diag *d) {
    const struct pl_text *text = &s->out.text;
    if (s->json)
        return print_json_line(
            json_pack("{s:o}", "rendered", json_stringn(pl_text_str(text), text->len)), d);
    if (text->len) fwrite(text->data, 1, text->len, stdout);
    putchar('\n');
    return PL_ERR_OK;
}

/* --- by a program ----------------------------------------------------------------------------- */
static pl_err scan_failure(const struct pl_scan *scan, struct pl_diag *d) {
    pl_err err = pl_diag_at(d, scan->err, NULL, 0, scan->where + 1, "%s", scan->what);
    if (scan->hint) pl_diag_hint(d, "%s", scan->hint);
    return err;
}

static pl_err take_member(struct pl_jinja_memory *m, struct pl_chat_request *r,
                          const struct pl_jinja_entry *e, struct pl_diag *d) {
    const struct pl_jinja_value *key = &e->key, *v = &e->value;
    struct pl_jinja_value *const known = pl_jinja_is(key, "messages")    ? &r->messages
                                         : pl_jinja_is(key, "tools")     ? &r->tools
                                         : pl_jinja_is(key, "documents") ? &r->documents
                                                                         : NULL;
    if (known) {
        *known = *v;
    } else if (pl_jinja_is(key, "add_generation_prompt")) {
        r->generate = pl_jinja_truth(v);
    } else if (pl_jinja_is(key, "date")) {
        char day[16] = "";
        if (v->kind == PL_JINJA_NONE) return PL_ERR_OK; /* null counts as absent */
        if (v->kind == PL_JINJA_STRING && v->n < sizeof day) memcpy(day, v->s, v->n);
        if (!pl_chat_date_parse(day, &r->date))
            return pl_diag_set(d, PL_ERR_DATA_FIELD, "`date` is not a day such as 2025-01-31");
    } else if (!pl_jinja_map_set(&m->arena, r->more.map, key, v)) {
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the line");
    }
    return PL_ERR_OK;
}

static pl_err read_values(struct chat_session *s, const char *line, size_t n,
                          struct pl_chat_request *r, struct pl_diag *d) {
    struct pl_scan scan = {.text = line, .n = n};
    struct pl_jinja_value all;
    if (!pl_jinja_read_json(&s->memory, &scan, &all) || !pl_scan_end(&scan))
        return scan_failure(&scan, d);
    struct pl_jinja_map *more = pl_jinja_map_new(&s->memory.arena, 0);
    if (!more) return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the line");
    r->more = pl_jinja_map(more);
    for (size_t i = 0; all.kind == PL_JINJA_MAP && i < all.map->n; i++)
        PL_TRY(take_member(&s->memory, r, &all.map->entries[i], d));
    return r->messages.kind == PL_JINJA_LIST
               ? pl_chat_prepare_messages(&s->memory, &r->messages, d)
               : pl_diag_set(d, PL_ERR_DATA_FIELD, "key `messages` is missing");
}

static pl_err render_by_program(struct chat_session *s, const char *line, size_t n,
                                struct pl_diag *d) {
    struct pl_chat_request r = {
        .bos = s->options.bos, .eos = s->options.eos, .date = s->options.date};
    pl_jinja_begin(&s->memory);
    PL_TRY(read_values(s, line, n, &r, d));
    return pl_chat_program_render(&s->program, &s->memory, &r, &s->out.text, NULL, d);
}

/* A conversation that the template refuses is an answer like another; a line that is no
 * conversation ends the command. */
static pl_err answer_line(void *session, const char *line, size_t n, struct pl_diag *d) {
    struct chat_session *s = session;
    struct pl_scan scan = {.text = line, .n = n};
    pl_err err = !s->t                        ? render_by_program(s, line, n, d)
                 : read_request(&s->r, &scan) ? render(s, d)
                                              : scan_failure(&scan, d);
    if (err == PL_ERR_OK) return print_rendered(s, d);
    bool refused = err == PL_ERR_DATA_TEMPLATE || err == PL_ERR_TEMPLATE_LIMIT;
    if (!refused || !s->json) return err;
    struct pl_diag refusal = *d;
    *d = (struct pl_diag){0};
    return print_json_line(pl_cli_failure_json(&refusal), d);
}

/* --- the command ------------------------------------------------------------------------------ */
static const char *piece(const struct pl_tokenizer *t, int64_t id) {
    const char *spelled = id < 0 ? NULL : pl_tokenizer_piece(t, (int32_t)id);
    return spelled ? spelled : "";
}

static pl_err open_tokenizer(const struct pl_cli *cli, struct chat_session *s, struct pl_diag *d) {
    const char *path = cli->flag[PL_FLAG_TOKENIZER];
    if (!path) return PL_ERR_OK;
    PL_TRY(pl_tokenizer_open(path, &s->tokenizer, d));
    if (strcmp(path, "byte") == 0) return PL_ERR_OK; /* has no marks: the template's stay */
    s->options.bos = piece(s->tokenizer, pl_tokenizer_bos(s->tokenizer));
    s->options.eos = piece(s->tokenizer, pl_tokenizer_eos(s->tokenizer));
    return PL_ERR_OK;
}

static pl_err choose_template(const struct pl_cli *cli, struct chat_session *s, struct pl_diag *d) {
    const char *name = cli->flag[PL_FLAG_CHAT_TEMPLATE];
    struct pl_text names = {0};
    size_t length = strlen(name);
    if (length > 6 && strcmp(name + length - 6, ".jinja") == 0)
        return pl_chat_program_read(&s->program, name, NULL, d);
    if (strcmp(name, "auto") == 0)
        return s->tokenizer ? pl_chat_program_take(&s->program, s->tokenizer, d)
                            : pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                                          "--chat-template auto needs --tokenizer PATH");
    s->t = pl_chat_find(name);
    if (s->t) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "--chat-template %.40s is not known", name);
    pl_chat_list_names(&names);
    pl_diag_hint(d, "known templates: %s; or auto, or FILE.jinja", pl_text_str(&names));
    pl_text_finish(&names);
    return d->err;
}

static pl_err choose_date(const struct pl_cli *cli, struct chat_session *s, struct pl_diag *d) {
    const char *day = cli->flag[PL_FLAG_CHAT_DATE];
    if (!day || pl_chat_date_parse(day, &s->options.date)) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_USAGE, "--chat-date %.40s is not a day such as 2025-01-31", day);
}

static void close_session(struct chat_session *s) {
    struct request *r = &s->r;
    pl_conversation_finish(&r->conversation);
    pl_text_finish(&r->key);
    pl_text_finish(&r->bos);
    pl_text_finish(&r->eos);
    pl_text_finish(&r->date);
    pl_chat_text_finish(&s->out);
    pl_chat_program_finish(&s->program);
    pl_jinja_memory_finish(&s->memory);
    pl_tokenizer_close(&s->tokenizer);
}

pl_err pl_tokenize_chat(const struct pl_cli *cli, struct pl_diag *d) {
    struct chat_session s = {.json = pl_cli_has(cli, PL_FLAG_JSON)};
    pl_err err;
    PL_TRY_GOTO(open_tokenizer(cli, &s, d), out);
    PL_TRY_GOTO(choose_template(cli, &s, d), out);
    PL_TRY_GOTO(choose_date(cli, &s, d), out);
    err = pl_tokenize_lines(answer_line, &s, d);
out:
    close_session(&s);
    return err;
}
