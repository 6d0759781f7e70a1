#include "runtime/data/row_keys.h"

#include <stdio.h>
#include <string.h>

#define OF(FORMAT) (1u << PL_FORMAT_##FORMAT)
#define ROWS       (~(PL_KEYS_OF_MESSAGE | PL_KEYS_OF_PART))
#define ANYWHERE   (~0u)
#define CHATS      (OF(MESSAGES) | OF(SHAREGPT) | OF(PROMPT_COMPLETION))
/* Formats whose reader decides what the prompt is; with `prompt_format` the user does. */
#define PROMPTS  (OF(ALPACA) | OF(PROMPT_COMPLETION))
#define RENDERED (CHATS | OF(ALPACA) | OF(PREFERENCE))

static const char hint_media[] = "only text is supported: leave such rows out";
static const char hint_preference[] = "preference data is for `stage: dpo`; or write the better "
                                      "answer as `completion`";
static const char hint_kto[] =
    "KTO (`stage: kto`) trains away from such an answer; otherwise leave the row out";
static const char hint_prompt[] = "write it into `prompt`, or name the column with `field_prompt`";
static const char hint_packed[] = "the row packs several samples: give each a row of its own, and "
                                  "set `packing: true`";
static const char hint_tools[] = "named templates do not render it: `chat_template: auto` is the "
                                 "model's own, FILE.jinja that of a file";
static const char hint_functions[] = "write them as `tools`, in the form that the model's own "
                                     "template renders";
static const char hint_arguments[] = "write it into `chat_template_kwargs` of the row";
static const char hint_history[] = "write the row as `messages`, the earlier turns first";
static const char hint_context[] = "`field_input: context` reads it as the input; `prompt_format` "
                                   "puts columns where you want them";
static const char hint_detail[] =
    "a message is trained on or masked as a whole; write what is not to be "
    "learned as a message of its own";
static const char hint_tree[] = "the row is one message of a tree: write each conversation as "
                                "`messages`";

/* X(name, of, meaning, hint). The first row of a name that fits decides. */
#define REFUSED_KEYS(X)                                                                            \
    X("chosen", ROWS, REFUSED, hint_preference)                                                    \
    X("rejected", ROWS, REFUSED, hint_preference)                                                  \
    X("chosen_response", ROWS, REFUSED, hint_preference)                                           \
    X("rejected_response", ROWS, REFUSED, hint_preference)                                         \
    X("chosen_input_ids", ROWS, REFUSED, hint_preference)                                          \
    X("rejected_input_ids", ROWS, REFUSED, hint_preference)                                        \
    X("chosen_ids", ROWS, REFUSED, hint_preference)                                                \
    X("rejected_ids", ROWS, REFUSED, hint_preference)                                              \
    X("label", CHATS | OF(ALPACA), REFUSED_FALSE, hint_kto)                                        \
    X("kto_tag", ROWS, REFUSED_FALSE, hint_kto)                                                    \
    X("instruction", OF(PREFERENCE), REFUSED, hint_prompt)                                         \
    X("input", OF(PREFERENCE), REFUSED, hint_prompt)                                               \
    X("question", OF(PREFERENCE), REFUSED, hint_prompt)                                            \
    X("query", OF(PREFERENCE), REFUSED, hint_prompt)                                               \
    X("system", OF(PREFERENCE), REFUSED, hint_prompt)                                              \
    X("messages", OF(PREFERENCE), REFUSED, hint_prompt)                                            \
    X("conversations", OF(PREFERENCE), REFUSED, hint_prompt)                                       \
    X("image", ANYWHERE, REFUSED, hint_media)                                                      \
    X("images", ANYWHERE, REFUSED, hint_media)                                                     \
    X("image_url", ANYWHERE, REFUSED, hint_media)                                                  \
    X("video", ANYWHERE, REFUSED, hint_media)                                                      \
    X("videos", ANYWHERE, REFUSED, hint_media)                                                     \
    X("video_url", ANYWHERE, REFUSED, hint_media)                                                  \
    X("audio", ANYWHERE, REFUSED, hint_media)                                                      \
    X("audios", ANYWHERE, REFUSED, hint_media)                                                     \
    X("input_audio", ANYWHERE, REFUSED, hint_media)                                                \
    X("pixel_values", ROWS, REFUSED, hint_media)                                                   \
    X("cu_seqlens", OF(TOKENS), REFUSED, hint_packed)                                              \
    X("sequence_ids", OF(TOKENS), REFUSED, hint_packed)                                            \
    X("segment_ids", OF(TOKENS), REFUSED, hint_packed)                                             \
    X("document_ids", OF(TOKENS), REFUSED, hint_packed)                                            \
    X("tools", RENDERED, REFUSED, hint_tools)                                                      \
    X("functions", RENDERED, REFUSED, hint_functions)                                              \
    X("tool_calls", RENDERED, REFUSED, hint_tools)                                                 \
    X("function_call", RENDERED, REFUSED, hint_tools)                                              \
    X("chat_template_kwargs", CHATS, REFUSED, hint_tools)                                          \
    X("enable_thinking", CHATS, REFUSED, hint_arguments)                                           \
    X("documents", RENDERED, REFUSED, hint_tools)                                                  \
    X("train_detail", PL_KEYS_OF_MESSAGE, REFUSED, hint_detail)                                    \
    X("training_detail", PL_KEYS_OF_MESSAGE, REFUSED, hint_detail)                                 \
    X("history", RENDERED, REFUSED, hint_history)                                                  \
    X("context", PROMPTS, COLUMN, hint_context)                                                    \
    X("role", OF(TEXT), REFUSED, hint_tree)                                                        \
    X("parent_id", OF(TEXT), REFUSED, hint_tree)                                                   \
    X("message_tree_id", OF(TEXT), REFUSED, hint_tree)

#define INERT_KEYS(X)                                                                              \
    X("id")                                                                                        \
    X("_id")                                                                                       \
    X("ids") X("idx") X("index") X("uid") X("uuid") X("guid") X("row_id") X("prompt_id")           \
        X("question_id") X("conversation_id") X("message_id") X("hash") X("name") X("source")      \
            X("sources") X("origin") X("url") X("dataset") X("dataset_name") X("split")            \
                X("subset") X("task") X("task_type") X("task_name") X("type") X("kind")            \
                    X("category") X("categories") X("topic") X("domain") X("tag") X("tags")        \
                        X("language") X("lang") X("license") X("licence") X("author") X("date")    \
                            X("time") X("timestamp") X("created") X("created_at") X("updated_at")  \
                                X("version") X("meta") X("metadata") X("info") X("model")          \
                                    X("model_name") X("generator") X("annotator") X("score")       \
                                        X("quality") X("difficulty") X("length") X("n_tokens")     \
                                            X("num_tokens") X("token_count") X("num_turns")        \
                                                X("turn") X("redacted") X("toxic")                 \
                                                    X("openai_moderation") X("token_type_ids")     \
                                                        X("special_tokens_mask")

static const struct pl_row_key table[] = {
#define X(name, of, meaning, hint) {name, of, PL_ROW_KEY_##meaning, hint},
    REFUSED_KEYS(X)
#undef X
#define X(name) {name, ANYWHERE, PL_ROW_KEY_INERT, NULL},
        INERT_KEYS(X)
#undef X
};

const struct pl_row_key *pl_row_key_find(const char *name, size_t n, unsigned of) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].of & of && strlen(table[i].name) == n && !memcmp(table[i].name, name, n))
            return &table[i];
    return NULL;
}

bool pl_row_value_skip(struct pl_scan *s, bool *empty) {
    enum pl_scan_kind kind = pl_scan_peek(s);
    size_t start = s->at;
    bool pair = kind == PL_SCAN_OBJECT || kind == PL_SCAN_ARRAY || kind == PL_SCAN_STRING;
    if (!pl_scan_skip(s)) return false;
    size_t end = s->at - 1; /* of what stands between the two characters of a pair */
    while (end > start + 1 && strchr(" \t\r\n", s->text[end - 1]))
        end--;
    *empty = kind == PL_SCAN_NULL || (pair && end == start + 1);
    return true;
}

bool pl_row_key_refuse(struct pl_scan *s, const char *key, const char *hint) {
    (void)pl_scan_peek(s);
    size_t start = s->at;
    bool empty;
    if (!pl_row_value_skip(s, &empty)) return false;
    if (empty) return true;
    return pl_scan_fail(s, PL_ERR_DATA_FIELD, start, hint, "`%s` is not supported", key);
}

bool pl_row_key_check(const struct pl_row_key *key, struct pl_scan *s) {
    enum pl_scan_kind kind = pl_scan_peek(s);
    size_t start = s->at;
    if (key->meaning == PL_ROW_KEY_REFUSED || key->meaning == PL_ROW_KEY_COLUMN)
        return pl_row_key_refuse(s, key->name, key->hint);
    if (!pl_scan_skip(s)) return false;
    if (key->meaning == PL_ROW_KEY_INERT || kind != PL_SCAN_BOOLEAN || s->text[start] == 't')
        return true;
    return pl_scan_fail(s, PL_ERR_DATA_FIELD, start, key->hint, "`%s` is false", key->name);
}

void pl_told_keys_add(struct pl_told_keys *t, const char *where, const char *name, size_t n,
                      uint64_t line) {
    char part[PL_SHOWN], shown[PL_TOLD_NAME];
    uint64_t i = 0;
    snprintf(shown, sizeof shown, "%s%s", where, pl_scan_show(name, n, part));
    while (i < t->n && strcmp(t->keys[i].name, shown) != 0)
        i++;
    if (i == PL_TOLD_KEYS) {
        t->more++;
        return;
    }
    struct pl_told_key *key = &t->keys[i];
    if (i == t->n) {
        *key = (struct pl_told_key){.line = line};
        memcpy(key->name, shown, strlen(shown));
        t->n++;
    }
    if (!key->n || key->last != line) key->n++;
    key->last = line;
}

void pl_told_keys_note(const struct pl_told_keys *t, const char *path, const char *reader,
                       struct pl_text *notes) {
    for (uint64_t i = 0; i < t->n; i++) {
        const struct pl_told_key *key = &t->keys[i];
        pl_text_addf(notes,
                     "%s:%llu: %llu row%s with a key `%s` that %s does not read; this is the "
                     "first\n",
                     path, (unsigned long long)key->line, (unsigned long long)key->n,
                     key->n == 1 ? "" : "s", key->name, reader);
    }
    if (t->more)
        pl_text_addf(notes, "%s: %llu more keys of rows that %s does not read\n", path,
                     (unsigned long long)t->more, reader);
}
