#include "runtime/data/column_hint.h"

#include "estimator/config/datasets.h"
#include "runtime/data/row_members.h"

#include <ctype.h>
#include <string.h>

/* --- what columns are called ------------------------------------------------------------------ */
/* The most telling first. */
static const char *const asks[] = {
    "instruction", "question",   "query",    "prompt",   "problem",    "request",     "user",
    "human",       "user_input", "input",    "inputs",   "input_text", "source_text", "source",
    "article",     "document",   "dialogue", "sentence", "passage",    "context",     NULL};
static const char *const answers[] = {"output",
                                      "response",
                                      "answer",
                                      "completion",
                                      "solution",
                                      "target",
                                      "reply",
                                      "assistant",
                                      "gpt",
                                      "bot",
                                      "outputs",
                                      "responses",
                                      "answers",
                                      "final_answer",
                                      "summary",
                                      "highlights",
                                      "label",
                                      "expected_output",
                                      "ground_truth",
                                      "target_text",
                                      "model_answer",
                                      "accepted_answer",
                                      "sql",
                                      "code",
                                      NULL};
static const char *const adds[] = {"input", "context", "passage", NULL};
static const char *const systems[] = {"system_message", "system_instruction", NULL};
static const char *const texts[] = {"content",  "body",     "article", "document",
                                    "story",    "markdown", "code",    "raw",
                                    "raw_text", "sentence", "passage", NULL};
static const char *const chats[] = {
    "messages", "conversations", "conversation", "dialog",  "dialogue", "chat", "turns",
    "dialogs",  "thread",        "chat_history", "history", "data",     NULL};
/* Objects that hold the row, as servers of rows send them. */
static const char *const wraps[] = {"row", "example", "sample", "record", "item", "fields", NULL};

/* --- lines of YAML ---------------------------------------------------------------------------- */
/* A plain scalar where nothing in it means something to YAML. */
static void add_scalar(struct pl_text *out, const char *value) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
    const bool word = isalpha((unsigned char)*value) || *value == '_' || *value == '/' ||
                      (*value == '.' && value[1]);
    if (word && strspn(value, plain) == strlen(value) && !pl_member_named(value, "null") &&
        !pl_member_named(value, "true") && !pl_member_named(value, "false")) {
        pl_text_add(out, value);
        return;
    }
    pl_text_add(out, "\"");
    for (; *value; value++)
        pl_text_addf(out, "%s%c", strchr("\"\\", *value) ? "\\" : "", *value);
    pl_text_add(out, "\"");
}

/* A path that leaves no room for the lines after it is written as a word for it. */
static void begin_entry(struct pl_text *out, const char *path) {
    pl_text_add(out, "name its columns in its entry of `datasets`:\n  - path: ");
    add_scalar(out, strlen(path) < 200 ? path : "FILE");
}

static void add_line(struct pl_text *out, enum pl_column column, const char *name) {
    pl_text_addf(out, "\n    %s: ", pl_column_key(column));
    add_scalar(out, name);
}

static bool hint_pair(const struct pl_members *r, const char *path, uint32_t format,
                      struct pl_text *out) {
    const struct pl_member *ask = pl_member_pick(r, asks, PL_SCAN_STRING, NULL);
    const struct pl_member *answer = pl_member_pick(r, answers, PL_SCAN_STRING, ask);
    if (!ask || !answer) return false;
    const struct pl_member *add = pl_member_pick(r, adds, PL_SCAN_STRING, ask);
    const struct pl_member *system = pl_member_pick(r, systems, PL_SCAN_STRING, NULL);
    const bool plain = !add && !system && format != PL_FORMAT_ALPACA;
    begin_entry(out, path);
    if (format == PL_FORMAT_PROMPT_COMPLETION || (plain && pl_member_named(ask->name, "prompt"))) {
        add_line(out, PL_COLUMN_PROMPT, ask->name);
        add_line(out, PL_COLUMN_COMPLETION, answer->name);
        return true;
    }
    add_line(out, PL_COLUMN_INSTRUCTION, ask->name);
    if (add && add != answer) add_line(out, PL_COLUMN_INPUT, add->name);
    add_line(out, PL_COLUMN_OUTPUT, answer->name);
    if (system) add_line(out, PL_COLUMN_SYSTEM, system->name);
    return true;
}

/* --- commands --------------------------------------------------------------------------------- */
/* `row` is Python's expression of a new row; @ in it is the value of the column, # its name. */
static bool hint_command(const struct pl_row_source *src, const char *what, const char *name,
                         const char *row, struct pl_text *out) {
    struct pl_text filled = {0};
    for (; *row; row++) {
        if (*row == '@')
            pl_text_addf(&filled, "r['%s']", name);
        else if (*row == '#')
            pl_text_add(&filled, name);
        else
            pl_text_addf(&filled, "%c", *row);
    }
    pl_text_addf(out, "`%s` %s: ", name, what);
    pl_row_command(src, "for r in @", pl_text_str(&filled), out);
    pl_text_finish(&filled);
    return true;
}

/* The keys of messages that are read without being named. */
static bool is_usual(const struct pl_member *list) {
    static const char *const usual[][2] = {
        {"role", "content"}, {"from", "value"}, {"input", "output"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!strcmp(list->role, usual[i][0]) && !strcmp(list->content, usual[i][1])) return true;
    return false;
}

static bool hint_chat(const struct pl_members *r, const struct pl_row_source *src,
                      struct pl_text *out) {
    const struct pl_member *list = pl_member_pick(r, chats, PL_SCAN_ARRAY, NULL);
    if (list && list->role) {
        begin_entry(out, src->path);
        add_line(out, PL_COLUMN_MESSAGES, list->name);
        if (is_usual(list)) return true;
        add_line(out, PL_COLUMN_ROLE, list->role);
        add_line(out, PL_COLUMN_CONTENT, list->content);
        return true;
    }
    if (list && list->first == PL_SCAN_STRING)
        return hint_command(
            src, "is a list of texts; as turns of a user and an assistant", list->name,
            "{'messages': [{'role': ('user', 'assistant')[i % 2], 'content': t} for "
            "i, t in enumerate(@)]}",
            out);
    const struct pl_member *text = pl_member_pick(r, chats, PL_SCAN_STRING, NULL);
    if (text && text->holds_chat)
        return hint_command(src, "is a list written as a text; as a list", text->name,
                            src->kind == PL_SOURCE_TABLE ? "{'messages': ast.literal_eval(@)}"
                                                         : "{'messages': json.loads(@)}",
                            out);
    const struct pl_member *row = pl_member_pick(r, wraps, PL_SCAN_OBJECT, NULL);
    for (int i = 0; i < r->n && !row; i++)
        if (r->m[i].kind == PL_SCAN_OBJECT && r->m[i].holds_chat) row = &r->m[i];
    return row && hint_command(src, "holds the row; as rows of their own", row->name, "@", out);
}

/* `answers` of SQuAD: {"text": [...], "answer_start": [...]}, or a list of texts. */
static bool hint_answers(const struct pl_members *r, const struct pl_row_source *src,
                         struct pl_text *out) {
    if (!pl_member_pick(r, asks, PL_SCAN_STRING, NULL)) return false;
    const struct pl_member *object = pl_member_pick(r, answers, PL_SCAN_OBJECT, NULL);
    if (object && object->first == PL_SCAN_ARRAY)
        return hint_command(src, "is an object; with its first text in its place", object->name,
                            "{**r, '#': (@['text'] or [''])[0]}", out);
    const struct pl_member *list = pl_member_pick(r, answers, PL_SCAN_ARRAY, NULL);
    return list && list->first == PL_SCAN_STRING &&
           hint_command(src, "is a list; with its first text in its place", list->name,
                        "{**r, '#': (@ or [''])[0]}", out);
}

static bool hint_text(const struct pl_members *r, const char *path, struct pl_text *out) {
    const struct pl_member *text = pl_member_pick(r, texts, PL_SCAN_STRING, NULL);
    if (!text) return false;
    begin_entry(out, path);
    add_line(out, PL_COLUMN_TEXT, text->name);
    return true;
}

bool pl_column_hint(const char *text, size_t n, const struct pl_row_source *src,
                    const struct pl_format *f, struct pl_text *out) {
    const uint32_t format = f ? pl_format_id(f) : PL_FORMAT_AUTO;
    const bool any = format == PL_FORMAT_AUTO;
    const bool chat = format == PL_FORMAT_MESSAGES || format == PL_FORMAT_SHAREGPT;
    const bool pair = format == PL_FORMAT_ALPACA || format == PL_FORMAT_PROMPT_COMPLETION;
    struct pl_members r;
    if (!pl_members_read(text, n, &r)) return false;
    if ((any || chat) && hint_chat(&r, src, out)) return true;
    if ((any || pair) && hint_pair(&r, src->path, format, out)) return true;
    if ((any || pair) && hint_answers(&r, src, out)) return true;
    return (any || format == PL_FORMAT_TEXT) && hint_text(&r, src->path, out);
}
