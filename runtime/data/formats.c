/* formats.c - data formats and the row parser. */
#include "runtime/data/formats.h"
#include "estimator/base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key_use { OPTIONAL, REQUIRED, REFUSED };
#define KIND(name) (1u << PL_SCAN_##name)

struct format_key {
    const char *name; /* NULL ends the list */
    enum key_use use;
    unsigned kinds;                        /* KIND()s of its value */
    const char *expected;                  /* the same in words; of a refused key, the hint */
    bool (*read)(struct pl_row_parser *p); /* NULL: `complete` reads it, from p->at */
};

struct pl_format {
    const char *name;
    uint32_t id; /* PL_FORMAT_* of a job */
    struct format_key keys[PL_FORMAT_MAX_KEYS];
    bool needs_tokenizer, needs_chat, may_need_chat;
    bool (*complete)(struct pl_row_parser *p); /* after the last key */
};

static bool no_memory(struct pl_row_parser *p) {
    return pl_scan_fail(&p->scan, PL_ERR_HOST_OOM, p->scan.at, NULL, "no memory for the row");
}

/* "`text` is a number, expected a string" */
static bool wrong_type(struct pl_row_parser *p, const char *key, const char *expected) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan); /* no value at all: says so */
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at,
                        kind == PL_SCAN_ARRAY ? "one object per row, not columns of values" : NULL,
                        "`%s` is %s, expected %s", key, pl_scan_kind_name(kind), expected);
}

/* What an encoder said about the value of key k. */
static bool fail_with_problem(struct pl_row_parser *p, int k) {
    return pl_scan_fail(&p->scan, p->problem.err, p->at[k],
                        p->problem.hint[0] ? p->problem.hint : NULL, "%s", p->problem.message);
}

/* Sets the scanner back to the value of key k, which was passed over before. */
static void go_to(struct pl_row_parser *p, int k) {
    p->scan.at = p->at[k];
}

/* Appends the string of key k to p->text; nothing where the key is absent or null. */
static bool add_string(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return true;
    go_to(p, k);
    if (pl_scan_peek(&p->scan) == PL_SCAN_NULL) return true;
    return pl_scan_string(&p->scan, &p->text);
}

static bool encode(struct pl_row_parser *p, int k, size_t prompt_bytes) {
    if (p->text.failed) return no_memory(p);
    return pl_encode_text(&p->encoder, pl_text_str(&p->text), p->text.len, prompt_bytes, p->out,
                          &p->problem) == PL_ERR_OK ||
           fail_with_problem(p, k);
}

static bool encode_messages(struct pl_row_parser *p, int k, size_t n_prompt) {
    return pl_encode_conversation(&p->encoder, &p->conversation, n_prompt, p->out, &p->problem) ==
               PL_ERR_OK ||
           fail_with_problem(p, k);
}

/* --- text ------------------------------------------------------------------------------------- */
static bool complete_text(struct pl_row_parser *p) {
    return add_string(p, 0) && encode(p, 0, 0);
}

/* --- tokens ----------------------------------------------------------------------------------- */
/* An integer as written; *v saturates far outside any vocabulary. False: a problem was recorded. */
static bool read_integer(struct pl_row_parser *p, const char *what, uint64_t index, int64_t *v) {
    const char *digits;
    char shown[PL_SHOWN];
    size_t n, i = 0;
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    size_t start = p->scan.at;
    if (kind == PL_SCAN_NONE) return pl_scan_skip(&p->scan);
    if (kind != PL_SCAN_NUMBER)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start,
                            kind == PL_SCAN_ARRAY ? "one row per line: this looks like a batch"
                                                  : NULL,
                            "%s %llu is %s, expected an integer", what, (unsigned long long)index,
                            pl_scan_kind_name(kind));
    if (!pl_scan_number(&p->scan, &digits, &n)) return false;
    bool negative = digits[0] == '-';
    *v = 0;
    for (i = negative; i < n && digits[i] >= '0' && digits[i] <= '9'; i++)
        if (*v < INT64_MAX / 16) *v = *v * 10 + (digits[i] - '0');
    if (i < n)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, start, NULL,
                            "%s %llu is %s, expected an integer without point or exponent", what,
                            (unsigned long long)index, pl_scan_show(digits, n, shown));
    if (negative) *v = -*v;
    return true;
}

static bool outside(struct pl_row_parser *p, size_t where, const char *what, uint64_t index,
                    int64_t v, const char *or_masked) {
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, where,
                        "the rows must come from this model's own tokenizer",
                        "%s %llu is %s%lld, expected an id from 0 to %llu%s", what,
                        (unsigned long long)index, v >= INT64_MAX / 16 ? "above " : "",
                        (long long)v, (unsigned long long)p->vocab - 1, or_masked);
}

static bool read_ids(struct pl_row_parser *p) {
    int64_t v = 0;
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->out->n = 0; pl_scan_next_element(&p->scan); p->out->n++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "id", p->out->n, &v)) return false;
        if (v < 0 || (uint64_t)v >= p->vocab) return outside(p, where, "id", p->out->n, v, "");
        if (!pl_sample_reserve(p->out, p->out->n + 1)) return no_memory(p);
        p->out->ids[p->out->n] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

static bool read_labels(struct pl_row_parser *p) {
    int64_t v = 0;
    if (!pl_scan_enter_array(&p->scan)) return false;
    for (p->n_labels = 0; pl_scan_next_element(&p->scan); p->n_labels++) {
        pl_scan_peek(&p->scan);
        size_t where = p->scan.at;
        if (!read_integer(p, "label", p->n_labels, &v)) return false;
        if (v != PL_LABEL_MASKED && (v < 0 || (uint64_t)v >= p->vocab))
            return outside(p, where, "label", p->n_labels, v, ", or -100");
        if (!pl_sample_reserve(p->out, p->n_labels + 1)) return no_memory(p);
        p->out->labels[p->n_labels] = (int32_t)v;
    }
    return p->scan.err == PL_ERR_OK;
}

static bool complete_tokens(struct pl_row_parser *p) {
    struct pl_sample *out = p->out;
    if (!p->seen[1]) {
        if (out->n) memcpy(out->labels, out->ids, (size_t)out->n * sizeof *out->ids);
        return true;
    }
    if (p->n_labels == out->n) return true;
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[1], NULL,
                        "%llu labels for %llu input_ids", (unsigned long long)p->n_labels,
                        (unsigned long long)out->n);
}

/* --- alpaca ----------------------------------------------------------------------------------- */
enum { ALPACA_INSTRUCTION, ALPACA_OUTPUT, ALPACA_INPUT, ALPACA_SYSTEM };

/* The prompt of stanford_alpaca (tatsu-lab/stanford_alpaca, train.py, PROMPT_DICT). A system text,
 * which its rows do not have, takes the place of the first paragraph. */
static bool add_alpaca_prompt(struct pl_row_parser *p) {
    static const char plain[] = "Below is an instruction that describes a task. Write a response "
                                "that appropriately completes the request.";
    static const char with_input[] =
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.";
    p->text.len = 0;
    if (!add_string(p, ALPACA_INPUT)) return false;
    bool input = p->text.len > 0;
    p->text.len = 0;
    if (!add_string(p, ALPACA_SYSTEM)) return false;
    if (!p->text.len) pl_text_add(&p->text, input ? with_input : plain);
    pl_text_add(&p->text, "\n\n### Instruction:\n");
    if (!add_string(p, ALPACA_INSTRUCTION)) return false;
    if (input) pl_text_add(&p->text, "\n\n### Input:\n");
    if (!add_string(p, ALPACA_INPUT)) return false;
    pl_text_add(&p->text, "\n\n### Response:");
    return true;
}

static bool complete_alpaca(struct pl_row_parser *p) {
    if (!add_alpaca_prompt(p)) return false;
    size_t prompt_bytes = p->text.len;
    return add_string(p, ALPACA_OUTPUT) && encode(p, ALPACA_OUTPUT, prompt_bytes);
}

/* --- conversations ---------------------------------------------------------------------------- */
static bool complete_messages(struct pl_row_parser *p) {
    go_to(p, 0);
    return pl_conversation_read(&p->conversation, &p->scan, PL_SPELLING_OPENAI) &&
           encode_messages(p, 0, 0);
}

enum { SHAREGPT_CONVERSATIONS, SHAREGPT_SYSTEM };

static bool complete_sharegpt(struct pl_row_parser *p) {
    if (p->seen[SHAREGPT_SYSTEM]) {
        go_to(p, SHAREGPT_SYSTEM);
        if (pl_scan_peek(&p->scan) == PL_SCAN_STRING &&
            !pl_conversation_read_text(&p->conversation, &p->scan, PL_CHAT_SYSTEM))
            return false;
        if (p->conversation.text.len == 0) p->conversation.n = 0; /* empty says nothing */
    }
    go_to(p, SHAREGPT_CONVERSATIONS);
    return pl_conversation_read(&p->conversation, &p->scan, PL_SPELLING_SHAREGPT) &&
           encode_messages(p, SHAREGPT_CONVERSATIONS, 0);
}

/* --- prompt and completion -------------------------------------------------------------------- */
enum { PAIR_PROMPT, PAIR_COMPLETION };

static bool pair_of_messages(struct pl_row_parser *p) {
    if (p->no_chat.err != PL_ERR_OK) {
        p->problem = p->no_chat;
        return fail_with_problem(p, PAIR_PROMPT);
    }
    go_to(p, PAIR_PROMPT);
    if (!pl_conversation_read(&p->conversation, &p->scan, PL_SPELLING_OPENAI)) return false;
    size_t n_prompt = p->conversation.n;
    go_to(p, PAIR_COMPLETION);
    return pl_conversation_read(&p->conversation, &p->scan, PL_SPELLING_OPENAI) &&
           encode_messages(p, PAIR_PROMPT, n_prompt);
}

static bool complete_pair(struct pl_row_parser *p) {
    static const char *const kinds[] = {"a string", "a list of messages"};
    bool list[2];
    for (int k = PAIR_PROMPT; k <= PAIR_COMPLETION; k++) {
        go_to(p, k);
        list[k] = pl_scan_peek(&p->scan) == PL_SCAN_ARRAY;
    }
    if (list[0] != list[1])
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PAIR_COMPLETION], NULL,
                            "`prompt` is %s but `completion` %s", kinds[list[0]], kinds[list[1]]);
    if (list[0]) return pair_of_messages(p);
    if (!add_string(p, PAIR_PROMPT)) return false;
    size_t prompt_bytes = p->text.len;
    return add_string(p, PAIR_COMPLETION) && encode(p, PAIR_PROMPT, prompt_bytes);
}

/* --- the table -------------------------------------------------------------------------------- */
static const char hint_tools[] = "tools are not rendered: give `prompt` and `completion`, or "
                                 "`input_ids`, with the tools written out";
static const char hint_history[] = "write the row as `messages`, the earlier turns first";

#define TEXT(key)                                                                                  \
    { key, REQUIRED, KIND(STRING), "a string", NULL }
#define TEXT_OR_NOT(key)                                                                           \
    { key, OPTIONAL, KIND(STRING) | KIND(NULL), "a string", NULL }
#define LIST(key)                                                                                  \
    { key, REQUIRED, KIND(ARRAY), "an array", NULL }
#define TOOLS                                                                                      \
    { "tools", REFUSED, 0, hint_tools, NULL }

/* In the order of detection: a row that brings its tokens is not tokenised again, one with turns is
 * not read as a text, and a text beside a pair is what somebody made of the pair. */
static const struct pl_format formats[] = {
    {.name = "tokens",
     .id = PL_FORMAT_TOKENS,
     .keys = {{"input_ids", REQUIRED, KIND(ARRAY), "an array", read_ids},
              {"labels", OPTIONAL, KIND(ARRAY), "an array", read_labels}},
     .complete = complete_tokens},
    {.name = "messages",
     .id = PL_FORMAT_MESSAGES,
     .keys = {LIST("messages"), TOOLS},
     .needs_tokenizer = true,
     .needs_chat = true,
     .complete = complete_messages},
    {.name = "sharegpt",
     .id = PL_FORMAT_SHAREGPT,
     .keys = {LIST("conversations"), TEXT_OR_NOT("system"), TOOLS},
     .needs_tokenizer = true,
     .needs_chat = true,
     .complete = complete_sharegpt},
    {.name = "prompt_completion",
     .id = PL_FORMAT_PROMPT_COMPLETION,
     .keys = {{"prompt", REQUIRED, KIND(STRING) | KIND(ARRAY), "a string or a list of messages",
               NULL},
              {"completion", REQUIRED, KIND(STRING) | KIND(ARRAY), "a string or a list of messages",
               NULL},
              TOOLS},
     .needs_tokenizer = true,
     .may_need_chat = true,
     .complete = complete_pair},
    {.name = "alpaca",
     .id = PL_FORMAT_ALPACA,
     .keys = {TEXT("instruction"),
              TEXT("output"),
              TEXT_OR_NOT("input"),
              TEXT_OR_NOT("system"),
              {"history", REFUSED, 0, hint_history, NULL}},
     .needs_tokenizer = true,
     .complete = complete_alpaca},
    {.name = "text",
     .id = PL_FORMAT_TEXT,
     .keys = {TEXT("text")},
     .needs_tokenizer = true,
     .complete = complete_text},
};
#define N_FORMATS (sizeof formats / sizeof *formats)

static const char formats_known[] =
    "formats by their keys: text {text}, messages {messages}, sharegpt {conversations}, alpaca "
    "{instruction, input, output}, prompt_completion {prompt, completion}, tokens {input_ids, "
    "labels}";

const struct pl_format *pl_format_find(uint32_t id) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].id == id) return &formats[i];
    return NULL;
}

const char *pl_format_name(const struct pl_format *f) {
    return f->name;
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
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->scan.at, formats_known,
                        "the row is %s, expected an object", pl_scan_kind_name(kind));
}

static bool key_is(const struct pl_row_parser *p, const char *name) {
    return p->key.len == strlen(name) && memcmp(p->key.data, name, p->key.len) == 0;
}

/* The key in p->key as a key of the format, -1 = it is none. */
static int key_of(const struct pl_row_parser *p, const struct pl_format *f) {
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        if (key_is(p, f->keys[k].name)) return k;
    return -1;
}

/* What the keys of a row say about its format. */
struct guess {
    unsigned required[N_FORMATS]; /* bit k: required key k is there */
};

static unsigned all_required(const struct pl_format *f) {
    unsigned all = 0;
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        all |= (unsigned)(f->keys[k].use == REQUIRED) << k;
    return all;
}

/* The first format all of whose required keys are there, else the first whose first one is. */
static const struct pl_format *best_guess(const struct guess *g) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (g->required[i] == all_required(&formats[i])) return &formats[i];
    for (size_t i = 0; i < N_FORMATS; i++)
        if (g->required[i] & 1) return &formats[i];
    return NULL;
}

/* Scans the members of the object that s has entered. */
static const struct pl_format *guess_format(struct pl_row_parser *p, struct pl_scan *s) {
    struct guess g = {{0}};
    while (pl_scan_next_key(s, &p->key) && pl_scan_skip(s)) {
        for (size_t i = 0; i < N_FORMATS; i++) {
            int k = key_of(p, &formats[i]);
            if (k >= 0 && formats[i].keys[k].use == REQUIRED) g.required[i] |= 1u << k;
        }
    }
    return s->err == PL_ERR_OK ? best_guess(&g) : NULL;
}

/* A required key is not there: names what is, and the format the row seems to have. */
static bool missing_key(struct pl_row_parser *p, const struct pl_format *f, const char *wanted) {
    struct pl_scan again = {.text = p->scan.text, .n = p->scan.n};
    char list[128];
    const struct pl_format *other = pl_scan_enter(&again) ? guess_format(p, &again) : NULL;
    const char *near = list_keys(p, p->scan.text, p->scan.n, wanted, list);
    if (p->detected && other && other != f)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, "one format a file: split the file",
                            "the row has the keys of format %s, the file began as format %s",
                            other->name, f->name);
    if (near)
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, NULL,
                            "key `%s` is missing; the nearest is `%s`", wanted, near);
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known,
                        "key `%s` is missing; format %s needs it, the row has %s", wanted, f->name,
                        list);
}

/* The value of key k: read now, or checked for its kind and passed over. */
static bool read_value(struct pl_row_parser *p, const struct format_key *key) {
    enum pl_scan_kind kind = pl_scan_peek(&p->scan);
    if (key->use == REFUSED) return pl_conversation_refuse(&p->scan, key->name, key->expected);
    if (!(key->kinds >> kind & 1)) return wrong_type(p, key->name, key->expected);
    return key->read ? key->read(p) : pl_scan_skip(&p->scan);
}

/* The value of the key in p->key: by the format when it is one of its keys, else passed over. */
static bool read_member(struct pl_row_parser *p, const struct pl_format *f, size_t key_at) {
    int k = key_of(p, f);
    if (k < 0) return pl_scan_skip(&p->scan);
    if (p->seen[k])
        return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, key_at, "keep one of them",
                            "key `%s` twice in one row", f->keys[k].name);
    p->seen[k] = true;
    pl_scan_peek(&p->scan);
    p->at[k] = p->scan.at;
    return read_value(p, &f->keys[k]);
}

static void start(struct pl_row_parser *p, const char *text, size_t n, bool ends_file) {
    p->scan = (struct pl_scan){.text = text, .n = n, .ends_file = ends_file};
    memset(p->seen, 0, sizeof p->seen);
    p->n_labels = 0;
    p->text.len = 0;
    p->text.failed = false;
    p->problem = (struct pl_diag){0};
    pl_conversation_start(&p->conversation);
}

bool pl_row_parse(struct pl_row_parser *p, const struct pl_format *f, const char *text, size_t n,
                  bool ends_file, struct pl_sample *out) {
    start(p, text, n, ends_file);
    p->out = out;
    out->n = 0;
    if (!expect_object(p)) return false;
    for (size_t key_at = 0; pl_scan_next_key(&p->scan, &p->key); key_at = p->scan.at) {
        if (p->key.failed) return no_memory(p);
        if (!read_member(p, f, key_at)) return false;
    }
    if (!pl_scan_end(&p->scan)) return false;
    for (int k = 0; k < PL_FORMAT_MAX_KEYS && f->keys[k].name; k++)
        if (f->keys[k].use == REQUIRED && !p->seen[k]) return missing_key(p, f, f->keys[k].name);
    return f->complete(p);
}

const struct pl_format *pl_format_detect(struct pl_row_parser *p, const char *text, size_t n,
                                         bool ends_file) {
    char list[128];
    start(p, text, n, ends_file);
    if (!expect_object(p)) return NULL;
    const struct pl_format *found = guess_format(p, &p->scan);
    if (found || p->scan.err != PL_ERR_OK || !pl_scan_end(&p->scan)) return found;
    list_keys(p, text, n, NULL, list);
    pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, 0, formats_known,
                 "the format is not recognised; the row has %s", list);
    return NULL;
}

pl_err pl_row_parser_prepare(struct pl_row_parser *p, const struct pl_format *f,
                             const struct pl_job *job, const struct pl_model *m,
                             struct pl_text *notes, struct pl_diag *d) {
    p->vocab = m->vocab;
    if (!f->needs_tokenizer) return PL_ERR_OK;
    PL_TRY(pl_encoder_open(&p->encoder, job, m, d));
    if (f->needs_chat) return pl_encoder_choose_chat(&p->encoder, job, notes, d);
    if (!f->may_need_chat) return PL_ERR_OK;
    p->no_chat = (struct pl_diag){0};
    pl_encoder_choose_chat(&p->encoder, job, notes, &p->no_chat);
    return p->no_chat.err == PL_ERR_HOST_OOM
               ? pl_diag_set(d, PL_ERR_HOST_OOM, "%s", p->no_chat.message)
               : PL_ERR_OK;
}

void pl_row_parser_add_facts(const struct pl_row_parser *p, const struct pl_format *f,
                             struct pl_text *out) {
    pl_text_addf(out, "format %s, vocabulary %llu\n", f->name, (unsigned long long)p->vocab);
    if (f->needs_tokenizer) pl_encoder_add_facts(&p->encoder, out);
}

bool pl_row_parser_is_costly(const struct pl_row_parser *p, const struct pl_format *f) {
    return f->needs_tokenizer && !p->encoder.bytes;
}

void pl_row_parser_finish(struct pl_row_parser *p) {
    pl_text_finish(&p->key);
    pl_text_finish(&p->text);
    pl_conversation_finish(&p->conversation);
    pl_encoder_finish(&p->encoder);
}
