/* conversation.c - reads messages. */
#include "runtime/data/chat/conversation.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/data/row_keys.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *list, *message, *role, *content, *speaker, *known;
} spellings[] = {
    [PL_SPELLING_OPENAI] = {"messages", "message", "role", "content", "role",
                            "known roles: system, user, assistant; `role_assistant: WORD` in the "
                            "file's entry adds a word"},
    [PL_SPELLING_SHAREGPT] = {"conversations", "turn", "from", "value", "speaker",
                              "known speakers: system, human, gpt; `role_assistant: WORD` in the "
                              "file's entry adds a word"},
};

static const struct {
    const char *name;
    enum pl_chat_role role;
} roles[] = {
    {"system", PL_CHAT_SYSTEM},       {"user", PL_CHAT_USER},     {"human", PL_CHAT_USER},
    {"assistant", PL_CHAT_ASSISTANT}, {"gpt", PL_CHAT_ASSISTANT},
};

static const char *const tool_roles[] = {"tool",        "function",      "ipython",
                                         "observation", "function_call", "tool_call"};

static const char hint_tools[] =
    "named templates do not render tools: `chat_template: auto` is the "
    "model's own, FILE.jinja that of a file";
static const char hint_names[] = "where they have other names: `message_field_role: KEY` and "
                                 "`message_field_content: KEY` in the file's entry";
static const char hint_thoughts[] = "write the reasoning into the content, as the template "
                                    "expects it: <think>...</think>";

enum field { ROLE, CONTENT, QUESTION, ANSWER, TRAIN, MASK, TOOLS, THOUGHTS, N_FIELDS };
static const struct {
    const char *key;
    enum field field;
} fields[] = {
    {"role", ROLE},           {"from", ROLE},         {"content", CONTENT},
    {"value", CONTENT},       {"weight", TRAIN},      {"loss_weight", TRAIN},
    {"loss_scale", TRAIN},    {"train", TRAIN},       {"training", TRAIN},
    {"trainable", TRAIN},     {"loss", TRAIN},        {"masked", MASK},
    {"input", QUESTION},      {"output", ANSWER},     {"tool_calls", TOOLS},
    {"function_call", TOOLS}, {"tools", TOOLS},       {"reasoning_content", THOUGHTS},
    {"reasoning", THOUGHTS},  {"thinking", THOUGHTS},
};

/* Roles that only some programs know; they are rendered as they stand, and never trained on. */
static const char *const other_roles[] = {"developer", "environment",   "documents",
                                          "context",   "tool_response", "tool_result"};

/* Types of content parts that are text. */
static const char *const text_types[] = {"text", "input_text", "output_text"};

static bool is_word(const struct pl_text *t, const char *word) {
    return t->len == strlen(word) && memcmp(t->data, word, t->len) == 0;
}

static bool is_one_of(const struct pl_text *t, const char *const *words, size_t n) {
    size_t i = 0;
    while (i < n && !is_word(t, words[i]))
        i++;
    return i < n;
}
#define IS_ONE_OF(t, words) is_one_of(t, words, sizeof(words) / sizeof *(words))

void pl_conversation_start(struct pl_conversation *c) {
    c->n = 0;
    c->strange = 0;
    c->tools = c->documents = c->more = (struct pl_json_span){0, 0};
    c->text.len = 0;
    c->text.failed = c->key.failed = false;
}

void pl_conversation_finish(struct pl_conversation *c) {
    free(c->messages);
    free(c->train);
    free(c->begins);
    free(c->json);
    pl_text_finish(&c->text);
    pl_text_finish(&c->key);
    *c = (struct pl_conversation){0};
}

static bool no_memory(struct pl_scan *s) {
    return pl_scan_fail(s, PL_ERR_HOST_OOM, s->at, NULL, "no memory for the messages of the row");
}

static bool reserve(struct pl_conversation *c, size_t cap) {
    uint64_t bytes;
    if (!pl_u64_mul(cap, sizeof *c->messages, &bytes) || bytes > SIZE_MAX) return false;
    struct pl_chat_message *messages = pl_realloc(c->messages, (size_t)bytes);
    if (messages) c->messages = messages;
    enum pl_message_train *train = messages ? pl_realloc(c->train, cap * sizeof *train) : NULL;
    if (train) c->train = train;
    size_t *begins = train ? pl_realloc(c->begins, cap * sizeof *begins) : NULL;
    if (begins) c->begins = begins;
    struct pl_json_span *json = begins ? pl_realloc(c->json, cap * sizeof *json) : NULL;
    if (!json) return false;
    c->json = json;
    c->cap = cap;
    return true;
}

/* A new message with the content that is still to come. */
static bool add_message(struct pl_conversation *c, struct pl_scan *s, enum pl_chat_role role) {
    if (c->n == c->cap && !reserve(c, c->cap ? 2 * c->cap : 16)) return no_memory(s);
    c->messages[c->n] = (struct pl_chat_message){.role = role};
    c->train[c->n] = PL_MESSAGE_BY_ROLE;
    c->json[c->n] = (struct pl_json_span){0, 0};
    c->begins[c->n++] = c->text.len;
    return true;
}

const struct pl_chat_message *pl_conversation_messages(struct pl_conversation *c) {
    const char *text = pl_text_str(&c->text);
    for (size_t i = 0; i < c->n; i++) {
        c->messages[i].content = text + c->begins[i];
        c->messages[i].n = (i + 1 < c->n ? c->begins[i + 1] : c->text.len) - c->begins[i];
    }
    return c->messages;
}

bool pl_conversation_join_system(struct pl_conversation *c) {
    const struct pl_chat_message *m = pl_conversation_messages(c);
    if (c->n < 2 || m[0].role != PL_CHAT_SYSTEM || m[1].role != PL_CHAT_SYSTEM) return true;
    if (m[0].n != m[1].n || memcmp(m[0].content, m[1].content, m[0].n) != 0) return false;
    c->n--;
    memmove(c->messages, c->messages + 1, c->n * sizeof *c->messages);
    memmove(c->train, c->train + 1, c->n * sizeof *c->train);
    memmove(c->begins, c->begins + 1, c->n * sizeof *c->begins);
    memmove(c->json, c->json + 1, c->n * sizeof *c->json);
    return true;
}

bool pl_conversation_takes(const struct pl_text *key) {
    return is_word(key, "tools") || is_word(key, "documents") ||
           is_word(key, "chat_template_kwargs");
}

bool pl_conversation_note(struct pl_conversation *c, struct pl_scan *s, const char *key) {
    struct pl_json_span *to = strcmp(key, "tools") == 0       ? &c->tools
                              : strcmp(key, "documents") == 0 ? &c->documents
                                                              : &c->more;
    pl_scan_peek(s);
    to->begin = s->at;
    if (!pl_scan_skip(s)) return false;
    to->end = s->at;
    c->row = s->text;
    return true;
}

/* The message `index` of the list that is being read, and the positions of its parts. */
struct reading {
    struct pl_conversation *c;
    struct pl_scan *s;
    enum pl_spelling spelling;
    size_t index, begins_at, null_at;
    size_t at[N_FIELDS]; /* positions of the values */
    bool seen[N_FIELDS], null_content;
    bool foreign;   /* its role or content has a name that programs do not read */
    bool says_more; /* by keys besides role and content */
    bool strange;   /* its role is unknown */
};

static const char *own_name(const struct pl_conversation *c, enum pl_column column) {
    return c->columns ? c->columns->name[column] : NULL;
}

/* The word is one of `words`, which commas separate. */
static bool is_among(const char *word, size_t n, const char *words) {
    for (const char *w = words; w; w = strchr(w, ',') ? strchr(w, ',') + 1 : NULL)
        if (strcspn(w, ",") == n && memcmp(w, word, n) == 0) return true;
    return false;
}

bool pl_conversation_role(const struct pl_conversation *c, const char *word, size_t n,
                          enum pl_chat_role *out) {
    static const struct {
        enum pl_column column;
        enum pl_chat_role role;
    } own[] = {{PL_COLUMN_USER_WORDS, PL_CHAT_USER},
               {PL_COLUMN_ASSISTANT_WORDS, PL_CHAT_ASSISTANT},
               {PL_COLUMN_SYSTEM_WORDS, PL_CHAT_SYSTEM}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!is_among(word, n, own_name(c, own[i].column))) continue;
        *out = own[i].role;
        return true;
    }
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strlen(roles[i].name) != n || memcmp(roles[i].name, word, n) != 0) continue;
        *out = roles[i].role;
        return true;
    }
    return false;
}

/* The message reaches the program as it stands: `whole`, and under its own names. */
static bool passes_on(const struct reading *r) {
    return r->c->whole && r->spelling == PL_SPELLING_OPENAI && !own_name(r->c, PL_COLUMN_ROLE) &&
           !own_name(r->c, PL_COLUMN_CONTENT);
}

static bool unknown_role(struct reading *r, const char *shown) {
    return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, r->at[ROLE], spellings[r->spelling].known,
                        "%s %zu: unknown %s `%s`", spellings[r->spelling].message, r->index,
                        spellings[r->spelling].speaker, shown);
}

static bool read_role(struct reading *r) {
    struct pl_text *word = &r->c->key;
    char shown[PL_SHOWN];
    enum pl_scan_kind kind = pl_scan_peek(r->s);
    size_t at = r->s->at;
    const char *key = spellings[r->spelling].role, *message = spellings[r->spelling].message;
    if (kind != PL_SCAN_STRING && kind != PL_SCAN_NONE)
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, at, NULL,
                            "%s %zu: `%s` is %s, expected a string", message, r->index, key,
                            pl_scan_kind_name(kind));
    word->len = 0;
    if (!pl_scan_string(r->s, word)) return false;
    if (word->failed) return no_memory(r->s);
    r->at[ROLE] = at;
    if (pl_conversation_role(r->c, pl_text_str(word), word->len, &r->c->messages[r->c->n - 1].role))
        return true;
    r->strange = !IS_ONE_OF(word, tool_roles) && !IS_ONE_OF(word, other_roles);
    if (passes_on(r)) { /* any role is the program's business; the first strange one is told */
        if (r->strange && !r->c->strange++)
            pl_scan_show(pl_text_str(word), word->len, r->c->strange_role);
        return true;
    }
    if (IS_ONE_OF(word, tool_roles))
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, at, hint_tools,
                            "%s %zu: tool messages are not supported (`%s`)", message, r->index,
                            pl_scan_show(pl_text_str(word), word->len, shown));
    return unknown_role(r, pl_scan_show(pl_text_str(word), word->len, shown));
}

static bool wrong_content(struct reading *r, enum pl_scan_kind kind, const char *expected) {
    if (kind == PL_SCAN_NONE) return pl_scan_skip(r->s);
    return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, r->s->at, NULL, "%s %zu: `%s` is %s, expected %s",
                        spellings[r->spelling].message, r->index, spellings[r->spelling].content,
                        pl_scan_kind_name(kind), expected);
}

/* The value of the key in c->key, which is not read: told as WHERE and its name. */
static bool pass_over(struct pl_conversation *c, struct pl_scan *s, unsigned of,
                      const char *where) {
    const struct pl_row_key *known = pl_row_key_find(c->key.data, c->key.len, of);
    if (known) return pl_row_key_check(known, s);
    if (c->told) pl_told_keys_add(c->told, where, c->key.data, c->key.len, c->line);
    return pl_scan_skip(s);
}

/* {"type": "text", "text": "..."} or the string alone, appended to the contents. */
static bool read_part(struct reading *r) {
    struct pl_scan *s = r->s;
    struct pl_text *word = &r->c->key;
    char shown[PL_SHOWN];
    bool found = false;
    enum pl_scan_kind kind = pl_scan_peek(s);
    size_t start = s->at;
    if (kind == PL_SCAN_STRING) return pl_scan_string(s, &r->c->text);
    if (kind != PL_SCAN_OBJECT) return wrong_content(r, kind, "text parts in the list");
    if (!pl_scan_enter(s)) return false;
    while (pl_scan_next_key(s, word)) {
        bool type = is_word(word, "type"), text = is_word(word, "text");
        if (!(type || text) || pl_scan_peek(s) != PL_SCAN_STRING) {
            if (!pass_over(r->c, s, PL_KEYS_OF_PART, "content[].")) return false;
            continue;
        }
        size_t at = s->at;
        word->len = 0;
        found |= text;
        if (!pl_scan_string(s, text ? &r->c->text : word)) return false;
        if (type && !IS_ONE_OF(word, text_types))
            return pl_scan_fail(s, PL_ERR_DATA_FIELD, at, NULL,
                                "%s %zu: a content part of type `%s` is not text",
                                spellings[r->spelling].message, r->index,
                                pl_scan_show(pl_text_str(word), word->len, shown));
    }
    if (s->err != PL_ERR_OK || found) return s->err == PL_ERR_OK;
    return pl_scan_fail(
        s, PL_ERR_DATA_FIELD, start, "a part is {\"type\": \"text\", \"text\": ...}",
        "%s %zu: a content part without `text`", spellings[r->spelling].message, r->index);
}

static bool read_content(struct reading *r) {
    enum pl_scan_kind kind = pl_scan_peek(r->s);
    if (kind == PL_SCAN_STRING) return pl_scan_string(r->s, &r->c->text);
    if (kind == PL_SCAN_NULL) { /* reported at the end: with tool calls it is not the error */
        r->null_content = true;
        r->null_at = r->s->at;
        return pl_scan_skip(r->s);
    }
    if (kind != PL_SCAN_ARRAY) return wrong_content(r, kind, "a string or a list of text parts");
    if (!pl_scan_enter_array(r->s)) return false;
    while (pl_scan_next_element(r->s))
        if (!read_part(r)) return false;
    return r->s->err == PL_ERR_OK;
}

/* A key that says whether the message is trained on; `mask` says the opposite. All that say
 * something say the same. */
static bool read_train(struct reading *r, const char *key, bool mask) {
    enum pl_message_train *train = &r->c->train[r->c->n - 1], says;
    const char *message = spellings[r->spelling].message;
    enum pl_scan_kind kind = pl_scan_peek(r->s);
    char shown[PL_SHOWN];
    size_t at = r->s->at;
    const char *value = r->s->text + at;
    int flag = pl_scan_flag(r->s);
    size_t n = r->s->at - at;
    if (r->s->err != PL_ERR_OK) return false;
    if (kind == PL_SCAN_NULL) return true;
    if (flag < 0)
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, at,
                            mask ? "1 or true masks the message, 0 or false trains it"
                                 : "1 or true trains the message, 0 or false masks it",
                            "%s %zu: `%s` is %s; only 0 and 1 are known", message, r->index, key,
                            pl_scan_show(value, n, shown));
    says = (flag == 1) != mask ? PL_MESSAGE_TRAINED : PL_MESSAGE_MASKED;
    if (*train != PL_MESSAGE_BY_ROLE && *train != says)
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, at, "keep one of them",
                            "%s %zu: `%s` says the opposite of a key before it", message, r->index,
                            key);
    *train = says;
    return true;
}

static bool read_field(struct reading *r, enum field field, const char *key, size_t key_at) {
    bool empty;
    if (field >= TOOLS && passes_on(r)) { /* it reaches the program as it is */
        if (!pl_row_value_skip(r->s, &empty)) return false;
        r->says_more |= !empty;
        return true;
    }
    if (r->seen[field] && field <= ANSWER)
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, key_at, "keep one of them",
                            "%s %zu: key `%s` comes after another of its meaning",
                            spellings[r->spelling].message, r->index, key);
    r->seen[field] = true;
    pl_scan_peek(r->s);
    r->at[field] = r->s->at;
    switch (field) {
    case ROLE:
        return read_role(r);
    case CONTENT:
        return read_content(r);
    case TRAIN:
    case MASK:
        return read_train(r, key, field == MASK);
    case QUESTION:
    case ANSWER:
        return pl_scan_skip(r->s); /* read in their order, once both are known */
    case TOOLS:
        return pl_row_key_refuse(r->s, key, hint_tools);
    case THOUGHTS:
    case N_FIELDS:
        break;
    }
    return pl_row_key_refuse(r->s, key, hint_thoughts);
}

static bool read_member(struct reading *r, size_t key_at) {
    static const enum pl_column own[] = {[ROLE] = PL_COLUMN_ROLE, [CONTENT] = PL_COLUMN_CONTENT};
    for (enum field f = ROLE; f <= CONTENT; f++) {
        const char *name = own_name(r->c, own[f]);
        if (name && is_word(&r->c->key, name)) return read_field(r, f, name, key_at);
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        enum field f = fields[i].field;
        if (!is_word(&r->c->key, fields[i].key) || (f <= CONTENT && own_name(r->c, own[f])))
            continue;
        r->foreign |= f <= CONTENT && strcmp(fields[i].key, spellings[r->spelling].role) != 0 &&
                      strcmp(fields[i].key, spellings[r->spelling].content) != 0;
        return read_field(r, f, fields[i].key, key_at);
    }
    r->says_more |= pl_scan_peek(r->s) != PL_SCAN_NULL &&
                    !pl_row_key_find(r->c->key.data, r->c->key.len, PL_KEYS_OF_MESSAGE);
    return pass_over(r->c, r->s, PL_KEYS_OF_MESSAGE, "messages[].");
}

static bool is_pair(const struct reading *r) {
    return r->seen[QUESTION] && r->seen[ANSWER] && !r->seen[ROLE] && !r->seen[CONTENT];
}

/* A turn of `input` and `output`: two messages. */
static bool complete_pair(struct reading *r) {
    size_t end = r->s->at;
    r->s->at = r->at[QUESTION];
    if (!pl_scan_string(r->s, &r->c->text)) return false;
    if (!add_message(r->c, r->s, PL_CHAT_ASSISTANT)) return false;
    r->s->at = r->at[ANSWER];
    if (!pl_scan_string(r->s, &r->c->text)) return false;
    r->s->at = end;
    return !r->c->text.failed || no_memory(r->s);
}

/* A message whose keys programs do not read is handed to them as role and content. */
static bool complete_foreign(struct reading *r) {
    if (r->strange) return unknown_role(r, r->c->strange_role);
    if (!r->says_more) return true;
    return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, r->begins_at,
                        "name them `role` and `content`, as chat templates do",
                        "%s %zu: `from` and `value` with keys that a chat template reads",
                        spellings[r->spelling].message, r->index);
}

static bool complete_message(struct reading *r) {
    const char *message = spellings[r->spelling].message;
    const char *own_role = own_name(r->c, PL_COLUMN_ROLE);
    const char *own_content = own_name(r->c, PL_COLUMN_CONTENT);
    const char *role = own_role ? own_role : spellings[r->spelling].role;
    const char *content = own_content ? own_content : spellings[r->spelling].content;
    if (r->s->err != PL_ERR_OK) return false;
    if (r->c->text.failed) return no_memory(r->s);
    if (is_pair(r)) return complete_pair(r);
    /* a program is given what has no content, unless it is an answer of nothing */
    const bool any = passes_on(r) && !r->foreign &&
                     (r->says_more || r->c->messages[r->c->n - 1].role != PL_CHAT_ASSISTANT);
    for (enum field f = ROLE; f <= CONTENT; f++)
        if (!r->seen[f] && !(any && f == CONTENT))
            return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, r->begins_at, hint_names,
                                "%s %zu has no `%s`", message, r->index,
                                f == ROLE ? role : content);
    if (r->null_content && !any)
        return pl_scan_fail(r->s, PL_ERR_DATA_FIELD, r->null_at, NULL, "%s %zu: `%s` is null",
                            message, r->index, content);
    return !passes_on(r) || !r->foreign || complete_foreign(r);
}

static bool read_message(struct pl_conversation *c, struct pl_scan *s, enum pl_spelling spelling,
                         size_t index) {
    struct reading r = {.c = c, .s = s, .spelling = spelling, .index = index};
    enum pl_scan_kind kind = pl_scan_peek(s);
    r.begins_at = s->at;
    if (kind == PL_SCAN_NONE) return pl_scan_skip(s);
    if (kind != PL_SCAN_OBJECT)
        return pl_scan_fail(s, PL_ERR_DATA_FIELD, s->at, NULL, "%s %zu is %s, expected an object",
                            spellings[spelling].message, index, pl_scan_kind_name(kind));
    if (!add_message(c, s, PL_CHAT_USER) || !pl_scan_enter(s)) return false;
    for (size_t key_at = s->at; pl_scan_next_key(s, &c->key); key_at = s->at) {
        if (c->key.failed) return no_memory(s);
        if (!read_member(&r, key_at)) return false;
    }
    if (passes_on(&r) && !is_pair(&r) && !r.foreign) {
        c->json[c->n - 1] = (struct pl_json_span){r.begins_at, s->at};
        c->row = s->text;
    }
    return complete_message(&r);
}

bool pl_conversation_read(struct pl_conversation *c, struct pl_scan *s, enum pl_spelling spelling) {
    size_t start = s->at, index = 0;
    if (!pl_scan_enter_array(s)) return false;
    for (; pl_scan_next_element(s); index++)
        if (!read_message(c, s, spelling, index)) return false;
    if (s->err != PL_ERR_OK || index) return s->err == PL_ERR_OK;
    return pl_scan_fail(s, PL_ERR_DATA_FIELD, start, NULL, "`%s` is empty: the row has no %ss",
                        spellings[spelling].list, spellings[spelling].message);
}

bool pl_conversation_read_one(struct pl_conversation *c, struct pl_scan *s,
                              enum pl_spelling spelling) {
    return read_message(c, s, spelling, 0);
}

bool pl_conversation_read_text(struct pl_conversation *c, struct pl_scan *s,
                               enum pl_chat_role role) {
    if (!add_message(c, s, role) || !pl_scan_string(s, &c->text)) return false;
    return !c->text.failed || no_memory(s);
}

bool pl_conversation_add(struct pl_conversation *c, struct pl_scan *s, enum pl_chat_role role,
                         const struct pl_text *text) {
    if (!add_message(c, s, role)) return false;
    pl_text_addn(&c->text, pl_text_str(text), text->len);
    return !c->text.failed || no_memory(s);
}
