/* formats.c - data formats, and the driver of their readers. */
#include "runtime/data/formats.h"

#include "estimator/config/datasets.h"
#include "runtime/data/format_rows.h"
#include "runtime/data/row_keys.h"

#include <stdio.h>
#include <string.h>

/* "`text` is a number, expected a string" */
static bool wrong_type(struct pl_row_parser *p, const char *key, const char *expected) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan); /* no value at all: says so */
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at,
                        kind == PL_SCAN_ARRAY ? "one object per row, not columns of values" : NULL,
                        "`%s` is %s, expected %s", key, pl_scan_kind_name(kind), expected);
}

/* --- the table -------------------------------------------------------------------------------- */
#define TEXT(key, slot)                                                                            \
    {                                                                                              \
        .name = key, .use = PL_KEY_REQUIRED, .kinds = PL_KIND(STRING), .expected = "a string",     \
        .column = PL_COLUMN_##slot                                                                 \
    }
#define TEXT_OR_NOT(key, other, slot)                                                              \
    {                                                                                              \
        .name = key, .kinds = PL_KIND(STRING) | PL_KIND(NULL), .expected = "a string",             \
        .also = other, .column = PL_COLUMN_##slot                                                  \
    }
#define LIST(key, reader, slot)                                                                    \
    {                                                                                              \
        .name = key, .use = PL_KEY_REQUIRED, .kinds = PL_KIND(ARRAY), .expected = "an array",      \
        .read = reader, .column = PL_COLUMN_##slot                                                 \
    }
#define LIST_OR_NOT(key, reader)                                                                   \
    {                                                                                              \
        .name = key, .kinds = PL_KIND(ARRAY) | PL_KIND(NULL), .expected = "an array",              \
        .read = reader, .column = PL_COLUMN_COUNT                                                  \
    }
#define TEXT_OR_LIST(key, slot)                                                                    \
    {                                                                                              \
        .name = key, .use = PL_KEY_REQUIRED, .kinds = PL_KIND(STRING) | PL_KIND(ARRAY),            \
        .expected = "a string or a list of messages", .column = PL_COLUMN_##slot                   \
    }
#define FLAG(key, slot)                                                                            \
    {                                                                                              \
        .name = key, .use = PL_KEY_REQUIRED, .kinds = PL_KIND(BOOLEAN) | PL_KIND(NUMBER),          \
        .expected = "true or false", .column = PL_COLUMN_##slot                                    \
    }
#define PROMPT_OR_NOT                                                                              \
    {                                                                                              \
        .name = "prompt", .kinds = PL_KIND(STRING) | PL_KIND(ARRAY) | PL_KIND(NULL),               \
        .expected = "a string or a list of messages", .column = PL_COLUMN_PROMPT                   \
    }
#define WEIGHT_OR_NOT                                                                              \
    {                                                                                              \
        .name = "weight", .kinds = PL_KIND(NUMBER) | PL_KIND(STRING) | PL_KIND(NULL),              \
        .expected = "a number", .read = pl_row_read_weight, .column = PL_COLUMN_WEIGHT             \
    }
#define ANSWER(key, slot)                                                                          \
    {                                                                                              \
        .name = key, .use = PL_KEY_REQUIRED,                                                       \
        .kinds = PL_KIND(STRING) | PL_KIND(ARRAY) | PL_KIND(OBJECT),                               \
        .expected = "a string, a message or a list of messages", .column = PL_COLUMN_##slot        \
    }
#define TURNS_OR_NOT                                                                               \
    {                                                                                              \
        .name = "conversations", .kinds = PL_KIND(ARRAY) | PL_KIND(NULL),                          \
        .expected = "a list of messages", .column = PL_COLUMN_MESSAGES                             \
    }
#define SYSTEM_OR_NOT TEXT_OR_NOT("system", "system_prompt", SYSTEM)

#define OF_STAGE(id) (1u << PL_STAGE_##id)
#define PAIRS        (OF_STAGE(DPO) | OF_STAGE(ORPO) | OF_STAGE(SIMPO))
#define LABELLED     OF_STAGE(KTO)

/* Formats are in the order of detection: a row that has its tokens is not tokenised again, one with
 * turns is not read as a text, and a text next to a pair was made from the pair. */
static const struct pl_format formats[] = {
    {.name = "tokens",
     .id = PL_FORMAT_TOKENS,
     .meanings = 1u << PL_FORMAT_TOKENS,
     .keys = {[PL_TOKENS_IDS] = LIST("input_ids", pl_tokens_read_ids, COUNT),
              [PL_TOKENS_LABELS] = LIST_OR_NOT("labels", pl_tokens_read_labels),
              [PL_TOKENS_ATTENTION] = LIST_OR_NOT("attention_mask", NULL),
              [PL_TOKENS_ASSISTANT] = LIST_OR_NOT("assistant_masks", NULL),
              [PL_TOKENS_COMPLETION] = LIST_OR_NOT("completion_mask", NULL),
              [PL_TOKENS_LOSS] = LIST_OR_NOT("loss_mask", NULL),
              [PL_TOKENS_POSITIONS] = LIST_OR_NOT("position_ids", NULL),
              [PL_TOKENS_LENGTHS] = LIST_OR_NOT("seq_lengths", NULL),
              [PL_TOKENS_WEIGHT] = WEIGHT_OR_NOT},
     .complete = pl_tokens_complete},
    {.name = "messages",
     .id = PL_FORMAT_MESSAGES,
     .meanings = 1u << PL_FORMAT_MESSAGES,
     .keys = {LIST("messages", NULL, MESSAGES), SYSTEM_OR_NOT, WEIGHT_OR_NOT},
     .needs_tokenizer = true,
     .needs_chat = true,
     .complete = pl_messages_complete},
    {.name = "sharegpt",
     .id = PL_FORMAT_SHAREGPT,
     .meanings = 1u << PL_FORMAT_SHAREGPT,
     .keys = {LIST("conversations", NULL, MESSAGES), SYSTEM_OR_NOT, WEIGHT_OR_NOT},
     .needs_tokenizer = true,
     .needs_chat = true,
     .complete = pl_sharegpt_complete},
    {.name = "prompt_completion",
     .id = PL_FORMAT_PROMPT_COMPLETION,
     .meanings = 1u << PL_FORMAT_PROMPT_COMPLETION,
     .keys = {TEXT_OR_LIST("prompt", PROMPT), TEXT_OR_LIST("completion", COMPLETION), SYSTEM_OR_NOT,
              WEIGHT_OR_NOT},
     .needs_tokenizer = true,
     .may_need_chat = true,
     .complete = pl_pair_complete},
    {.name = "alpaca",
     .id = PL_FORMAT_ALPACA,
     .meanings = 1u << PL_FORMAT_ALPACA,
     .keys = {TEXT("instruction", INSTRUCTION), TEXT("output", OUTPUT),
              TEXT_OR_NOT("input", NULL, INPUT), SYSTEM_OR_NOT, WEIGHT_OR_NOT},
     .needs_tokenizer = true,
     .complete = pl_alpaca_complete},
    {.name = "text",
     .id = PL_FORMAT_TEXT,
     .meanings = 1u << PL_FORMAT_TEXT,
     .keys = {TEXT("text", TEXT), WEIGHT_OR_NOT},
     .needs_tokenizer = true,
     .complete = pl_text_complete},
    {.name = "tokens of pairs",
     .id = PL_FORMAT_TOKENS,
     .stages = PAIRS,
     .meanings = 1u << PL_FORMAT_PREFERENCE,
     .keys = {LIST("prompt_ids", pl_preference_read_ids, COUNT),
              LIST("chosen_ids", pl_preference_read_ids, COUNT),
              LIST("rejected_ids", pl_preference_read_ids, COUNT)},
     .complete = pl_preference_complete_tokens},
    {.name = "preference",
     .id = PL_FORMAT_PREFERENCE,
     .stages = PAIRS,
     .meanings = 1u << PL_FORMAT_PREFERENCE,
     .keys = {[PL_PREFERENCE_PROMPT] = PROMPT_OR_NOT,
              [PL_PREFERENCE_CHOSEN] = ANSWER("chosen", CHOSEN),
              [PL_PREFERENCE_REJECTED] = ANSWER("rejected", REJECTED),
              [PL_PREFERENCE_TURNS] = TURNS_OR_NOT,
              [PL_PREFERENCE_INSTRUCTION] = TEXT_OR_NOT("instruction", NULL, INSTRUCTION),
              [PL_PREFERENCE_INPUT] = TEXT_OR_NOT("input", NULL, INPUT),
              [PL_PREFERENCE_SYSTEM] = SYSTEM_OR_NOT},
     .needs_tokenizer = true,
     .may_need_chat = true,
     .complete = pl_preference_complete},
    {.name = "tokens with a label",
     .id = PL_FORMAT_TOKENS,
     .stages = LABELLED,
     .meanings = 1u << PL_FORMAT_PREFERENCE,
     .keys = {LIST("prompt_ids", pl_preference_read_ids, COUNT),
              LIST("completion_ids", pl_preference_read_ids, COUNT), FLAG("label", LABEL)},
     .complete = pl_preference_complete_tokens},
    {.name = "preference",
     .id = PL_FORMAT_PREFERENCE,
     .stages = LABELLED,
     .meanings = 1u << PL_FORMAT_PREFERENCE,
     .keys = {TEXT_OR_LIST("prompt", PROMPT), TEXT_OR_LIST("completion", COMPLETION),
              FLAG("label", LABEL)},
     .needs_tokenizer = true,
     .may_need_chat = true,
     .complete = pl_preference_complete},
};
/* Rows that `prompt_format` reads; its other keys are those in braces. */
static const struct pl_format prompted = {
    .name = "of `prompt_format`",
    .id = PL_FORMAT_AUTO,
    .meanings = PL_KEYS_OF_PROMPTED,
    .keys = {TEXT("output", OUTPUT), WEIGHT_OR_NOT},
    .needs_tokenizer = true,
    .complete = pl_prompted_complete,
};
/* Rows that `question_format` reads, as a question and its answer. */
static const struct pl_format asked = {
    .name = "of `question_format`",
    .id = PL_FORMAT_AUTO,
    .meanings = PL_KEYS_OF_PROMPTED,
    .keys = {TEXT("output", OUTPUT), SYSTEM_OR_NOT, WEIGHT_OR_NOT},
    .needs_tokenizer = true,
    .needs_chat = true,
    .complete = pl_asked_complete,
};
#define N_FORMATS  (sizeof formats / sizeof *formats)
#define ANY_FORMAT (1u << PL_FORMAT_AUTO) /* meanings that a key has in rows of every format */

static const char preferences_known[] =
    "rows of preferences by their keys: {prompt, chosen, rejected}, {chosen, rejected}, "
    "{conversations, chosen, rejected}, {instruction, chosen, rejected}, {prompt_ids, chosen_ids, "
    "rejected_ids}; of `stage: kto` {prompt, completion, label}, "
    "{prompt_ids, completion_ids, label}";
static const char formats_of_text[] =
    "formats by their keys: text {text}, messages {messages}, sharegpt {conversations}, alpaca "
    "{instruction, input, output}, prompt_completion {prompt, completion}, tokens {input_ids, "
    "labels}";

static const char *formats_known(const struct pl_row_parser *p) {
    return p->rule.stage == PL_STAGE_SFT ? formats_of_text : preferences_known;
}

static bool is_of_stage(const struct pl_format *f, uint32_t stage) {
    return (f->stages ? f->stages : OF_STAGE(SFT)) >> stage & 1;
}

const struct pl_format *pl_format_find(uint32_t id, uint32_t stage) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].id == id && is_of_stage(&formats[i], stage)) return &formats[i];
    return NULL;
}

const char *pl_format_name(const struct pl_format *f) {
    return f->name;
}

uint32_t pl_format_id(const struct pl_format *f) {
    return f->id;
}

bool pl_format_needs_tokenizer(const struct pl_format *f) {
    return f->needs_tokenizer;
}

bool pl_format_needs_chat(const struct pl_format *f) {
    return f->needs_chat;
}

const struct pl_format *pl_format_written(const struct pl_columns *columns) {
    const enum pl_column prompt = pl_columns_prompt(columns);
    if (prompt == PL_COLUMN_COUNT) return NULL;
    return prompt == PL_COLUMN_PROMPT_FORMAT ? &prompted : &asked;
}

/* True if a text of the entry makes the prompt, and names its columns in braces. */
static bool is_written(const struct pl_format *f) {
    return f == &prompted || f == &asked;
}

/* --- columns ---------------------------------------------------------------------------------- */
/* True if rows of the format have a column of this kind. */
static bool has_column(const struct pl_format *f, enum pl_column column) {
    bool of_messages = column >= PL_COLUMN_ROLE && column <= PL_COLUMN_SYSTEM_WORDS;
    if (of_messages) return f->needs_chat || f->may_need_chat;
    if (column == PL_COLUMN_PROMPT_FORMAT) return f == &prompted;
    if (column == PL_COLUMN_QUESTION_FORMAT) return f == &asked;
    if (column == PL_COLUMN_NO_INPUT_FORMAT) return is_written(f);
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        if (f->keys[k].column == column) return true;
    return false;
}

/* The first column that is named and that the format does not have, PL_COLUMN_COUNT = none. */
static enum pl_column first_strange(const struct pl_format *f, const struct pl_columns *c) {
    int i = 0;
    while (i < PL_COLUMN_COUNT && (!c->name[i] || has_column(f, (enum pl_column)i)))
        i++;
    return (enum pl_column)i;
}

/* No format of the stage has them all: names two that do not go together, or one of no format. */
static pl_err no_format_has(const struct pl_job *job, const struct pl_dataset *entry,
                            struct pl_diag *d) {
    const struct pl_columns *c = &entry->columns;
    int first = 0;
    while (!c->name[first])
        first++;
    enum pl_column other = PL_COLUMN_COUNT;
    for (size_t i = 0; i < N_FORMATS && other == PL_COLUMN_COUNT; i++)
        if (is_of_stage(&formats[i], job->stage) && has_column(&formats[i], (enum pl_column)first))
            other = first_strange(&formats[i], c);
    if (other == PL_COLUMN_COUNT)
        return pl_diag_at(d, PL_ERR_CONFIG_CONFLICT, job->path, entry->line, entry->column,
                          "no format of this `stage` has the column of `%s`",
                          pl_column_key((enum pl_column)first));
    return pl_diag_at(d, PL_ERR_CONFIG_CONFLICT, job->path, entry->line, entry->column,
                      "no format has the columns of both `%s` and `%s`",
                      pl_column_key((enum pl_column)first), pl_column_key(other));
}

pl_err pl_format_check_columns(const struct pl_format *f, const struct pl_job *job,
                               const struct pl_dataset *entry, struct pl_diag *d) {
    struct pl_text list = {0};
    for (size_t i = 0; !f && i < N_FORMATS; i++)
        if (is_of_stage(&formats[i], job->stage) &&
            first_strange(&formats[i], &entry->columns) == PL_COLUMN_COUNT)
            return PL_ERR_OK;
    if (!f) return no_format_has(job, entry, d);
    enum pl_column strange = first_strange(f, &entry->columns);
    if (strange == PL_COLUMN_COUNT) return PL_ERR_OK;
    pl_diag_at(d, PL_ERR_CONFIG_CONFLICT, job->path, entry->line, entry->column,
               "`%s` names a column that %s%s does not have", pl_column_key(strange),
               is_written(f) ? "" : "format ", is_written(f) ? f->name + strlen("of ") : f->name);
    for (int i = 0; i < PL_COLUMN_COUNT; i++)
        if (has_column(f, (enum pl_column)i))
            pl_text_addf(&list, "%s`%s`", list.len ? ", " : "", pl_column_key((enum pl_column)i));
    pl_diag_hint(d, "an entry of this format may have %s",
                 list.len ? pl_text_str(&list) : "no names of columns");
    pl_text_finish(&list);
    return PL_ERR_CONFIG_CONFLICT;
}

/* The name that the file has for key k of the format, NULL = none of its own. */
static const char *own_name(const struct pl_row_parser *p, const struct pl_format_key *key) {
    if (!p->shape || key->column == PL_COLUMN_COUNT) return NULL;
    return p->shape->columns.name[key->column];
}

static const char *name_of(const struct pl_row_parser *p, const struct pl_format_key *key) {
    const char *own = own_name(p, key);
    return own ? own : key->name;
}

/* --- rows ------------------------------------------------------------------------------------- */
/* Scans the row again for its key names, once something is missing: `k1`, `k2`, ... Returns the
 * name nearest to `wanted`, in p->text; NULL when none is near. */
static const char *list_keys(struct pl_row_parser *p, const char *text, size_t n,
                             const char *wanted, char list[128]) {
    struct pl_scan s = {.text = text, .n = n};
    char shown[PL_SHOWN];
    bool near = false;
    size_t len = 0;
    list[0] = 0;
    if (!pl_scan_enter(&s)) return NULL;
    while (pl_scan_next_key(&s, &p->key) && pl_scan_skip(&s)) {
        const char *name = pl_text_str(&p->key);
        pl_scan_show(name, p->key.len, shown);
        if (len + strlen(shown) + 5 < 128) {
            len += (size_t)snprintf(list + len, 128 - len, "%s`%s`", len ? ", " : "", shown);
        }
        if (near || !wanted || !pl_text_nearest(wanted, &name, 1)) continue;
        near = true;
        p->text.len = 0;
        pl_text_add(&p->text, shown);
    }
    if (!len) snprintf(list, 128, "none");
    return near ? pl_text_str(&p->text) : NULL;
}

static bool expect_object(struct pl_row_parser *p) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (kind == PL_SCAN_OBJECT) return pl_scan_enter(&p->scan);
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at, formats_known(p),
                        "the row is %s, expected an object", pl_scan_kind_name(kind));
}

static bool key_is(const struct pl_row_parser *p, const char *name) {
    return p->key.len == strlen(name) && memcmp(p->key.data, name, p->key.len) == 0;
}

/* The key in p->key as one that stands in braces, -1 = it is none. */
static int key_in_braces(const struct pl_row_parser *p) {
    for (uint32_t j = 0; j < p->shape->n_names; j++) {
        const struct pl_span *name = &p->shape->names[j];
        if (p->key.len == name->n && memcmp(p->key.data, name->at, name->n) == 0)
            return PL_PROMPTED_KEY(j);
    }
    return -1;
}

/* The key in p->key as a key of the format, -1 = it is none. A column in braces is no weight. */
static int key_of(const struct pl_row_parser *p, const struct pl_format *f) {
    const int named = is_written(f) ? key_in_braces(p) : -1;
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++) {
        const struct pl_format_key *key = &f->keys[k];
        const bool weighs = key->column == PL_COLUMN_WEIGHT;
        if (weighs && (named >= 0 || p->ignores_weights)) continue;
        if (key_is(p, name_of(p, key)) || (key->also && !own_name(p, key) && key_is(p, key->also)))
            return k;
    }
    return named;
}

bool pl_format_takes(struct pl_row_parser *p, const struct pl_format *f, const char *column) {
    p->key.len = 0;
    pl_text_add(&p->key, column);
    bool takes = f && key_of(p, f) >= 0;
    for (size_t i = 0; !f && i < N_FORMATS; i++)
        takes = takes || key_of(p, &formats[i]) >= 0;
    return takes;
}

bool pl_format_reads(struct pl_row_parser *p, const struct pl_format *f, const char *column) {
    if (pl_format_takes(p, f, column) || pl_conversation_takes(&p->key)) return true;
    const struct pl_row_key *known =
        pl_row_key_find(column, strlen(column), f ? f->meanings : ANY_FORMAT);
    return known && known->meaning != PL_ROW_KEY_INERT;
}

/* The evidence for a format in the keys of a row. */
struct guess {
    unsigned required[N_FORMATS]; /* bit k: required key k is there */
};

static unsigned all_required(const struct pl_format *f) {
    unsigned all = 0;
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        all |= (unsigned)(f->keys[k].use == PL_KEY_REQUIRED) << k;
    return all;
}

/* True if the format has every column that the file has a name for. */
static bool may_be(const struct pl_row_parser *p, const struct pl_format *f) {
    return is_of_stage(f, p->rule.stage) &&
           (!p->shape || first_strange(f, &p->shape->columns) == PL_COLUMN_COUNT);
}

/* The first format all of whose required keys are there, else the first whose first one is. */
static const struct pl_format *best_guess(const struct pl_row_parser *p, const struct guess *g) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (may_be(p, &formats[i]) && g->required[i] == all_required(&formats[i]))
            return &formats[i];
    for (size_t i = 0; i < N_FORMATS; i++)
        if (may_be(p, &formats[i]) && g->required[i] & 1) return &formats[i];
    return NULL;
}

/* Scans the members of the object that s has entered. */
static const struct pl_format *guess_format(struct pl_row_parser *p, struct pl_scan *s) {
    struct guess g = {{0}};
    while (pl_scan_next_key(s, &p->key) && pl_scan_skip(s)) {
        for (size_t i = 0; i < N_FORMATS; i++) {
            int k = key_of(p, &formats[i]);
            if (k >= 0 && formats[i].keys[k].use == PL_KEY_REQUIRED) g.required[i] |= 1u << k;
        }
    }
    return s->err == PL_ERR_OK ? best_guess(p, &g) : NULL;
}

/* A required key is not there: names what is, and the format the row seems to have. */
static bool missing_key(struct pl_row_parser *p, const struct pl_format *f, const char *wanted) {
    struct pl_scan again = {.text = p->scan.text, .n = p->scan.n};
    char list[128];
    const struct pl_format *other = pl_scan_enter(&again) ? guess_format(p, &again) : NULL;
    const char *near = list_keys(p, p->scan.text, p->scan.n, wanted, list);
    p->strange = true;
    if (p->detected && other && other != f)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, "one format a file: split the file",
                            "the row has the keys of format %s, the file began as format %s",
                            other->name, f->name);
    if (near)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, NULL,
                            "key `%s` is missing; the nearest is `%s`", wanted, near);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known(p),
                        "key `%s` is missing; format %s needs it, the row has %s", wanted, f->name,
                        list);
}

/* A value that the keys of other rows have: a list written as a text, or a column of values. */
static bool is_of_other_shape(struct pl_scan s, const struct pl_format_key *key) {
    const enum pl_scan_kind kind = pl_scan_peek(&s);
    const bool takes_list = key->kinds >> PL_SCAN_ARRAY & 1;
    if (kind != PL_SCAN_ARRAY)
        return !(key->kinds >> kind & 1) && (takes_list || kind == PL_SCAN_OBJECT);
    if (!pl_scan_enter_array(&s) || !pl_scan_next_element(&s)) return !takes_list;
    const enum pl_scan_kind first = pl_scan_peek(&s);
    return !takes_list || (!key->read && (first == PL_SCAN_ARRAY || first == PL_SCAN_STRING));
}

/* The value of key k: read now, or checked for its kind and passed over. */
static bool read_value(struct pl_row_parser *p, const struct pl_format_key *key, int k) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    char shown[PL_SHOWN];
    p->strange = p->strange || is_of_other_shape(p->scan, key);
    if (!(key->kinds >> kind & 1))
        return wrong_type(p, pl_scan_show(p->key.data, p->key.len, shown), key->expected);
    return key->read ? key->read(p, k) : pl_scan_skip(&p->scan);
}

/* The value of a key that the format does not read (K1). */
static bool pass_over(struct pl_row_parser *p, const struct pl_format *f) {
    bool has_chat = f->needs_chat || f->may_need_chat;
    if (has_chat && p->conversation.whole && pl_conversation_takes(&p->key))
        return pl_conversation_note(&p->conversation, &p->scan, p->key.data);
    const struct pl_row_key *known = pl_row_key_find(p->key.data, p->key.len, f->meanings);
    if (known) {
        const bool ok = pl_row_key_check(known, &p->scan);
        p->strange = p->strange || (!ok && known->meaning == PL_ROW_KEY_COLUMN);
        return ok;
    }
    if (p->told) pl_told_keys_add(p->told, "", p->key.data, p->key.len, p->line);
    return pl_scan_skip(&p->scan);
}

static bool key_twice(struct pl_row_parser *p, const struct pl_format_key *key, size_t key_at) {
    char shown[PL_SHOWN];
    pl_scan_show(p->key.data, p->key.len, shown);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, key_at, "keep one of them",
                        key->also && !own_name(p, key)
                            ? "key `%s` comes after another key of its meaning"
                            : "key `%s` twice in one row",
                        shown);
}

/* A column that stands in braces. */
static const struct pl_format_key in_braces = {
    .use = PL_KEY_REQUIRED,
    .kinds = PL_KIND(STRING) | PL_KIND(NUMBER) | PL_KIND(NULL),
    .expected = "a string or a number",
    .column = PL_COLUMN_COUNT,
};

/* The value of the key in p->key: by the format when it is one of its keys, else passed over. */
static bool read_member(struct pl_row_parser *p, const struct pl_format *f, size_t key_at) {
    int k = key_of(p, f);
    if (k < 0) return pass_over(p, f);
    const struct pl_format_key *key = k < PL_FORMAT_MAX_KEYS ? &f->keys[k] : &in_braces;
    if (p->seen[k]) return key_twice(p, key, key_at);
    p->seen[k] = true;
    pl_scan_peek(&p->scan);
    p->at[k] = p->scan.at;
    return read_value(p, key, k);
}

static void start(struct pl_row_parser *p, const char *text, size_t n, bool ends_file) {
    p->scan = (struct pl_scan){.text = text, .n = n, .ends_file = ends_file};
    memset(p->seen, 0, sizeof p->seen);
    p->n_labels = 0;
    p->text.len = 0;
    p->text.failed = false;
    p->problem = (struct pl_diag){0};
    p->encoder.traits = (struct pl_row_traits){.n = {0}};
    p->strange = false;
    pl_conversation_start(&p->conversation);
    p->conversation.told = p->told;
    p->conversation.line = p->line;
    p->conversation.columns = p->shape ? &p->shape->columns : NULL;
}

bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out) {
    char shown[PL_SHOWN];
    start(p, text, n, ends_file);
    p->out = out;
    out->n = out->beyond = 0;
    out->trained_beyond = out->dropped = out->weighted = false;
    for (size_t i = 0; i < sizeof p->part / sizeof *p->part; i++)
        p->part[i].n = 0;
    if (!expect_object(p)) return false;
    for (size_t key_at = 0; pl_scan_next_key(&p->scan, &p->key); key_at = p->scan.at) {
        if (p->key.failed) return pl_row_no_memory(p);
        if (!read_member(p, f, key_at)) return false;
    }
    if (!pl_scan_end(&p->scan)) return false;
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        if (f->keys[k].use == PL_KEY_REQUIRED && !p->seen[k])
            return missing_key(p, f, name_of(p, &f->keys[k]));
    for (uint32_t j = 0; is_written(f) && j < p->shape->n_names; j++)
        if (!p->seen[PL_PROMPTED_KEY(j)] && !p->shape->may_be_empty[j])
            return missing_key(p, f,
                               pl_scan_show(p->shape->names[j].at, p->shape->names[j].n, shown));
    return f->complete(p);
}

/* A row of no format may be of a kind that is known and refused. */
static bool is_refused_kind(struct pl_row_parser *p, const char *text, size_t n) {
    struct pl_scan s = {.text = text, .n = n};
    if (!pl_scan_enter(&s)) return false;
    while (pl_scan_next_key(&s, &p->key)) {
        const struct pl_row_key *known = pl_row_key_find(p->key.data, p->key.len, ANY_FORMAT);
        if (!(known ? pl_row_key_check(known, &s) : pl_scan_skip(&s))) break;
    }
    if (s.err == PL_ERR_OK) return false;
    p->scan = s;
    return true;
}

const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file) {
    char list[128];
    start(p, text, n, ends_file);
    if (!expect_object(p)) return NULL;
    const struct pl_format *found = guess_format(p, &p->scan);
    if (found || p->scan.err != PL_ERR_OK || !pl_scan_end(&p->scan)) return found;
    if (is_refused_kind(p, text, n)) return NULL;
    list_keys(p, text, n, NULL, list);
    p->strange = true;
    pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known(p),
                 "the format is not recognised; the row has %s", list);
    return NULL;
}

pl_err pl_row_parser_prepare(struct pl_row_parser *p, const struct pl_format *f,
                             const struct pl_job *job, const struct pl_model *m,
                             struct pl_text *notes, struct pl_diag *d) {
    p->vocab = m->vocab;
    if (!f->needs_tokenizer) return PL_ERR_OK;
    const bool is_new = !p->encoder.tokenizer;
    PL_TRY(pl_encoder_open(&p->encoder, job, m, d));
    if (is_new) pl_encoder_note_tokenizer(&p->encoder, job, notes);
    p->conversation.whole = false;
    if (!f->needs_chat && !f->may_need_chat) return PL_ERR_OK;
    p->no_chat = (struct pl_diag){0};
    pl_err err = pl_encoder_choose_chat(&p->encoder, job, notes, f->needs_chat ? d : &p->no_chat);
    if (err == PL_ERR_OK && job->stage != PL_STAGE_SFT)
        err = pl_encoder_take_program(&p->encoder, &p->no_chat);
    p->conversation.whole = p->encoder.by_program;
    if (f->needs_chat) return err;
    return p->no_chat.err == PL_ERR_HOST_OOM
               ? pl_diag_set(d, PL_ERR_HOST_OOM, "%s", p->no_chat.message)
               : PL_ERR_OK;
}

enum pl_prompt_form pl_row_parser_form(const struct pl_row_parser *p, const struct pl_format *f) {
    const bool has_chat = p->encoder.chat || p->encoder.by_program;
    if (!f) return PL_PROMPT_PLAIN;
    if (f->id == PL_FORMAT_ALPACA) return PL_PROMPT_ALPACA;
    return f->needs_chat || (f->id == PL_FORMAT_PREFERENCE && has_chat) ? PL_PROMPT_CHAT
                                                                        : PL_PROMPT_PLAIN;
}

void pl_row_parser_add_facts(const struct pl_row_parser *p, const struct pl_format *f,
                             struct pl_text *out) {
    pl_text_addf(out, "format %s, vocabulary %llu\n", f->name, (unsigned long long)p->vocab);
    if (p->shape) pl_columns_write(&p->shape->columns, out);
    if (p->ignores_weights) pl_text_add(out, "without weights\n");
    if (p->rule.stage != PL_STAGE_SFT)
        pl_text_addf(out, "stage %u, truncation %u\n", p->rule.stage, p->rule.truncation);
    if (f->needs_tokenizer) pl_encoder_add_facts(&p->encoder, out);
}

bool pl_row_parser_is_costly(const struct pl_row_parser *p, const struct pl_format *f) {
    return f->needs_tokenizer && !p->encoder.bytes;
}

void pl_row_parser_finish(struct pl_row_parser *p) {
    pl_text_finish(&p->key);
    pl_text_finish(&p->text);
    for (size_t i = 0; i < sizeof p->part / sizeof *p->part; i++) {
        pl_sample_finish(&p->part[i]);
        pl_text_finish(&p->texts[i]);
    }
    pl_conversation_finish(&p->conversation);
    pl_encoder_finish(&p->encoder);
}
