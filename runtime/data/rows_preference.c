/* rows_preference.c - rows that prefer: a prompt with a chosen and a rejected answer, or with one
 * answer and a label.
 *
 * Token for token as TRL 1.16 makes them. DPO and KTO encode the prompt and the whole text, and an
 * answer begins where the two part, so that characters of the prompt that a merge takes belong to
 * the answer; ORPO and SimPO (its CPO trainer) cut the text first, and put the marks of the
 * tokenizer where they are missing. Both answers have one prompt: where the second one would begin
 * later, the first decides. */
#include "runtime/data/format_rows.h"

#include "estimator/base/json_tree.h"
#include "runtime/data/row_keys.h"

#include <string.h>

static const char *const names[][3] = {{"prompt", "chosen", "rejected"},
                                       {"prompt", "completion", "label"}};

static bool of_pairs(const struct pl_row_parser *p) {
    return p->rule.stage != PL_STAGE_KTO;
}

static uint32_t answers_of(const struct pl_row_parser *p) {
    return of_pairs(p) ? 2 : 1;
}

static bool fail(struct pl_row_parser *p, int k, const char *hint, const char *what) {
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[k], hint, "`%s` %s",
                        names[!of_pairs(p)][k], what);
}

/* --- parts ------------------------------------------------------------------------------------ */

/* Appends one sample of the row; its answer begins at token `answer` of ids. */
static bool add_part(struct pl_row_parser *p, const struct pl_sample *ids, uint64_t answer,
                     unsigned flags) {
    struct pl_sample *out = p->out;
    const uint64_t most = p->rule.max_tokens, n = ids->n < most ? ids->n : most;
    const bool keeps_end = p->rule.truncation == PL_TRUNCATION_KEEP_END;
    const uint64_t from = keeps_end ? ids->n - n : 0;
    const uint64_t begin = answer > from ? answer - from : 0;
    if (!pl_sample_reserve(out, out->n + n)) return pl_row_no_memory(p);
    out->beyond += ids->n - n;
    out->dropped |= begin >= n;
    for (uint64_t i = 0; i < n; i++) {
        const int32_t id = ids->ids[from + i];
        out->ids[out->n + i] = id;
        out->labels[out->n + i] = i < begin ? PL_LABEL_MASKED : id;
    }
    if (n) out->labels[out->n] = PL_LABEL_PART(flags | (begin ? 0 : PL_PART_ANSWERS));
    out->n += n;
    return true;
}

static bool equal(const struct pl_sample *a, const struct pl_sample *b) {
    return a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
}

/* Reads the label of a row of KTO. */
static bool read_label(struct pl_row_parser *p, unsigned *flags) {
    pl_row_go_to(p, PL_PREFERENCE_LABEL);
    const int label = pl_scan_flag(&p->scan);
    if (p->scan.err != PL_ERR_OK) return false;
    if (label < 0) return fail(p, PL_PREFERENCE_LABEL, NULL, "is neither true nor false");
    *flags = label ? 0 : PL_PART_UNDESIRED;
    return true;
}

/* The row's samples, once part[1] and part[2] are whole texts whose answers begin at begin[]. */
static bool add_parts(struct pl_row_parser *p, const uint64_t begin[3]) {
    unsigned flags = 0;
    if (!of_pairs(p) && !read_label(p, &flags)) return false;
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        if (begin[k] >= p->part[k].n)
            return fail(p, (int)k, "leave such rows out", "holds no answer");
        if (k == 2 && equal(&p->part[1], &p->part[2]))
            return fail(p, 2, "leave such rows out", "is the same answer as `chosen`");
    }
    for (uint32_t k = 1; k <= answers_of(p); k++)
        if (!add_part(p, &p->part[k], begin[k], flags)) return false;
    return true;
}

/* --- rows of tokens --------------------------------------------------------------------------- */

bool pl_preference_read_ids(struct pl_row_parser *p, int k) {
    struct pl_sample *out = p->out;
    p->out = &p->part[k];
    const bool ok = pl_tokens_read_ids(p, k);
    p->out = out;
    return ok;
}

/* part[k] becomes the prompt with the answer k after it. */
static bool put_prompt_before(struct pl_row_parser *p, uint32_t k) {
    const struct pl_sample *prompt = &p->part[0];
    struct pl_sample *s = &p->part[k];
    if (!pl_sample_reserve(s, s->n + prompt->n)) return pl_row_no_memory(p);
    memmove(s->ids + prompt->n, s->ids, (size_t)s->n * sizeof *s->ids);
    if (prompt->n) memcpy(s->ids, prompt->ids, (size_t)prompt->n * sizeof *s->ids);
    s->n += prompt->n;
    return true;
}

bool pl_preference_complete_tokens(struct pl_row_parser *p) {
    const uint64_t n = p->part[0].n, begin[3] = {0, n, n};
    for (uint32_t k = 1; k <= answers_of(p); k++)
        if (!put_prompt_before(p, k)) return false;
    return add_parts(p, begin);
}

/* --- texts ------------------------------------------------------------------------------------ */

/* Encodes the first n bytes of text k into part[0]. An empty text may get marks, too. */
static bool encode(struct pl_row_parser *p, uint32_t k, size_t n, bool special) {
    struct pl_encoder *e = &p->encoder;
    const struct pl_text *text = &p->texts[k];
    if (text->failed) return pl_row_no_memory(p);
    pl_err err = pl_tokenizer_encode(e->tokenizer, e->scratch, pl_text_str(text), n, special,
                                     &e->tokens, &p->problem);
    if (err == PL_ERR_OK) err = pl_encode_take_tokens(e, true, &p->part[0], &p->problem);
    return err == PL_ERR_OK || pl_row_fail_with_problem(p, (int)(k ? k : 1));
}

static uint64_t common_ids(const struct pl_sample *a, const struct pl_sample *b) {
    uint64_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n])
        n++;
    return n;
}

static size_t common_bytes(const struct pl_text *a, const struct pl_text *b) {
    const char *x = pl_text_str(a), *y = pl_text_str(b);
    size_t n = 0;
    while (n < a->len && n < b->len && x[n] == y[n])
        n++;
    while (n && n < a->len && ((unsigned char)x[n] & 0xC0) == 0x80)
        n--; /* within a character */
    return n;
}

static void swap_parts(struct pl_row_parser *p, uint32_t a, uint32_t b) {
    const struct pl_sample s = p->part[a];
    p->part[a] = p->part[b];
    p->part[b] = s;
}

/* The end of the sequence as it is written; NULL: there is none, or it has no spelling. */
static const char *end_mark(const struct pl_encoder *e) {
    return e->eos >= 0 ? pl_tokenizer_piece(e->tokenizer, (int32_t)e->eos) : NULL;
}

/* A text that is no conversation ends with the end of the sequence. */
static void end_text(struct pl_row_parser *p, uint32_t k) {
    const char *end = end_mark(&p->encoder);
    struct pl_text *text = &p->texts[k];
    const size_t n = end ? strlen(end) : 0;
    const bool ended =
        n <= text->len && !memcmp(pl_text_str(text) + text->len - n, end ? end : "", n);
    if (end && !ended) pl_text_addn(text, end, n);
}

/* The answers begin where the tokens of the prompt and of the whole part, the earlier place of the
 * two. */
static bool split_by_tokens(struct pl_row_parser *p, bool plain, uint64_t begin[3]) {
    const struct pl_encoder *e = &p->encoder;
    struct pl_sample *s = &p->part[0];
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        if (plain) end_text(p, k);
        if (!encode(p, k, p->texts[k].len, plain)) return false;
        /* The end of tokens may have no spelling, as under `tokenizer: byte`; there is room. */
        if (plain && e->eos >= 0 && !end_mark(e)) s->ids[s->n++] = (int32_t)e->eos;
        swap_parts(p, 0, k);
    }
    if (!encode(p, 0, p->texts[0].len, plain)) return false;
    uint64_t least = UINT64_MAX;
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        const uint64_t n = common_ids(&p->part[0], &p->part[k]);
        if (n < least) least = n;
    }
    begin[1] = begin[2] = least;
    return true;
}

/* Puts a mark before the prompt and one after the answer where another token stands there. */
static bool add_marks(struct pl_row_parser *p, uint32_t k, uint64_t *begin) {
    const struct pl_encoder *e = &p->encoder;
    const int64_t bos = pl_tokenizer_bos(e->tokenizer);
    struct pl_sample *s = &p->part[k];
    if (!pl_sample_reserve(s, s->n + 2)) return pl_row_no_memory(p);
    if (e->eos >= 0 && (s->n == *begin || s->ids[s->n - 1] != e->eos))
        s->ids[s->n++] = (int32_t)e->eos;
    if (bos < 0 || (*begin && s->ids[0] == bos)) return true;
    memmove(s->ids + 1, s->ids, (size_t)s->n * sizeof *s->ids);
    s->ids[0] = (int32_t)bos;
    s->n++;
    ++*begin;
    return true;
}

/* The answers begin where the texts part; the tokens before are those of the text up to there, or
 * all but the last of them where a merge reaches over it. */
static bool split_by_text(struct pl_row_parser *p, uint64_t begin[3]) {
    size_t start = SIZE_MAX;
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        const size_t n = common_bytes(&p->texts[0], &p->texts[k]);
        if (n < start) start = n;
    }
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        if (!encode(p, k, p->texts[k].len, false)) return false;
        swap_parts(p, 0, k);
        if (!encode(p, k, start, false)) return false;
        const uint64_t n = p->part[0].n;
        if (n > p->part[k].n)
            return fail(p, (int)k, "leave such rows out",
                        "merges with the prompt into fewer tokens than the prompt alone has");
        const bool is_beginning = common_ids(&p->part[0], &p->part[k]) == n;
        begin[k] = is_beginning || !n ? n : n - 1;
        if (!add_marks(p, k, &begin[k])) return false;
    }
    return true;
}

/* --- strings ---------------------------------------------------------------------------------- */

static bool read_text(struct pl_row_parser *p, int k, struct pl_text *out) {
    out->len = 0;
    pl_row_go_to(p, k);
    return pl_scan_string(&p->scan, out) && (!out->failed || pl_row_no_memory(p));
}

static bool put_text_before(struct pl_row_parser *p, int k) {
    struct pl_text *text = &p->texts[k];
    text->len = 0;
    pl_text_addn(text, pl_text_str(&p->texts[0]), p->texts[0].len);
    pl_row_go_to(p, k);
    return pl_scan_string(&p->scan, text) && (!text->failed || pl_row_no_memory(p));
}

/* Fails where a text became no token, so that nothing but the end of the sequence is left of it. */
static bool check_tokens(struct pl_row_parser *p, const uint64_t begin[3]) {
    if (of_pairs(p) && equal(&p->part[1], &p->part[2])) return true; /* which is said of them */
    for (uint32_t k = 1; k <= answers_of(p); k++) {
        const struct pl_sample *s = &p->part[k];
        if (s->n != begin[k] + 1 || s->ids[begin[k]] != p->encoder.eos) continue;
        return fail(p, (int)k, "leave such rows out", "has no token but the end of the sequence");
    }
    return true;
}

static bool complete_strings(struct pl_row_parser *p, bool has_prompt) {
    uint64_t begin[3];
    if (has_prompt && !read_text(p, PL_PREFERENCE_PROMPT, &p->texts[0])) return false;
    for (int k = 1; k <= (int)answers_of(p); k++) {
        const bool whole = !has_prompt;
        if (whole ? !read_text(p, k, &p->texts[k]) : !put_text_before(p, k)) return false;
        if (!whole && p->texts[k].len == p->texts[0].len)
            return fail(p, k, "leave such rows out", "is empty");
    }
    if (!has_prompt) { /* it is the beginning of both answers, without a blank before they part */
        const char *text = pl_text_str(&p->texts[1]);
        size_t n = common_bytes(&p->texts[1], &p->texts[2]);
        if (n && text[n - 1] == ' ') n--;
        p->texts[0].len = 0;
        pl_text_addn(&p->texts[0], text, n);
    }
    const bool by_tokens = p->rule.stage == PL_STAGE_DPO || p->rule.stage == PL_STAGE_KTO;
    return (by_tokens ? split_by_tokens(p, true, begin) : split_by_text(p, begin)) &&
           check_tokens(p, begin) && add_parts(p, begin);
}

/* --- conversations ---------------------------------------------------------------------------- */

static enum pl_scan_kind kind_of(struct pl_row_parser *p, int k) {
    if (!p->seen[k]) return PL_SCAN_NULL;
    pl_row_go_to(p, k);
    return pl_scan_peek(&p->scan);
}

/* True if the key is there and says something. */
static bool says(struct pl_row_parser *p, int k) {
    bool empty = true;
    if (!p->seen[k]) return false;
    pl_row_go_to(p, k);
    return pl_row_value_skip(&p->scan, &empty) && !empty;
}

/* True if the row has a list of turns for its prompt. */
static bool has_list(struct pl_row_parser *p) {
    return of_pairs(p) && says(p, PL_PREFERENCE_TURNS);
}

/* True if the prompt is such a list, or an instruction with its input, which becomes a turn. */
static bool has_turns(struct pl_row_parser *p) {
    if (!of_pairs(p) || says(p, PL_PREFERENCE_PROMPT)) return false;
    return has_list(p) || says(p, PL_PREFERENCE_INSTRUCTION);
}

/* Forgets the messages, and keeps what the row says besides. */
static void start_conversation(struct pl_row_parser *p) {
    struct pl_conversation *c = &p->conversation;
    const struct pl_json_span tools = c->tools, documents = c->documents, more = c->more;
    const char *row = c->row;
    pl_conversation_start(c);
    c->tools = tools;
    c->documents = documents;
    c->more = more;
    c->row = row;
}

/* Reads the messages of key k: a list, one message, or the text of an answer. */
static bool read_messages(struct pl_row_parser *p, int k) {
    struct pl_conversation *c = &p->conversation;
    const enum pl_spelling spelling = has_list(p) ? PL_SPELLING_SHAREGPT : PL_SPELLING_OPENAI;
    const enum pl_scan_kind kind = kind_of(p, k);
    if (kind == PL_SCAN_OBJECT) return pl_conversation_read_one(c, &p->scan, spelling);
    if (kind == PL_SCAN_STRING) return pl_conversation_read_text(c, &p->scan, PL_CHAT_ASSISTANT);
    return pl_conversation_read(c, &p->scan, spelling);
}

/* Reads a text as a message; an empty one says nothing. */
static bool read_turn(struct pl_row_parser *p, int k, enum pl_chat_role role) {
    struct pl_conversation *c = &p->conversation;
    if (kind_of(p, k) != PL_SCAN_STRING) return true;
    const size_t before = c->text.len;
    if (!pl_conversation_read_text(c, &p->scan, role)) return false;
    if (c->text.len == before) c->n--;
    return true;
}

/* The instruction, a line feed and the input: one question, as LLaMA-Factory joins them. */
static bool read_question(struct pl_row_parser *p) {
    struct pl_conversation *c = &p->conversation;
    const size_t before = c->n;
    if (!read_turn(p, PL_PREFERENCE_INSTRUCTION, PL_CHAT_USER)) return false;
    if (c->n == before) return read_turn(p, PL_PREFERENCE_INPUT, PL_CHAT_USER);
    const size_t end = c->text.len;
    if (kind_of(p, PL_PREFERENCE_INPUT) != PL_SCAN_STRING) return true;
    pl_text_add(&c->text, "\n");
    if (!pl_scan_string(&p->scan, &c->text)) return false;
    if (c->text.len == end + 1) c->text.len = end;
    return !c->text.failed || pl_row_no_memory(p);
}

/* Reads the messages before an answer. */
static bool read_prompt(struct pl_row_parser *p) {
    if (!has_turns(p)) return read_messages(p, PL_PREFERENCE_PROMPT);
    if (!read_turn(p, PL_PREFERENCE_SYSTEM, PL_CHAT_SYSTEM)) return false;
    const bool has_system = p->conversation.n > 0;
    if (!has_list(p)) return read_question(p);
    if (!read_messages(p, PL_PREFERENCE_TURNS)) return false;
    if (!has_system || pl_conversation_join_system(&p->conversation)) return true;
    return pl_scan_fail(&p->scan, PL_ERR_DATA_FIELD, p->at[PL_PREFERENCE_SYSTEM],
                        "keep one of them",
                        "the row has a `system` and a system message that differs");
}

/* Renders the messages that were read; `asks`: up to where an answer begins. */
static bool render(struct pl_row_parser *p, int k, bool asks) {
    struct pl_encoder *e = &p->encoder;
    struct pl_chat_own *o = &e->own;
    struct pl_text *out = &p->texts[k];
    pl_err err = pl_chat_own_take(o, &p->conversation, &p->problem);
    struct pl_chat_request request = o->request;
    request.generate = asks;
    request.turns = NULL;
    out->len = 0;
    if (err == PL_ERR_OK)
        err = pl_chat_program_render(&o->program, &o->memory, &request, out, NULL, &p->problem);
    return err == PL_ERR_OK || pl_row_fail_with_problem(p, k ? k : 1);
}

/* The element at the cursor as a value; NULL: a problem was recorded. */
static json_t *take_element(struct pl_row_parser *p, struct pl_scan *s) {
    (void)pl_scan_peek(s);
    const size_t at = s->at;
    if (!pl_scan_skip(s)) return NULL;
    json_t *v = pl_json_load(s->text + at, s->at - at, JSON_DECODE_ANY, NULL);
    if (!v) (void)pl_row_no_memory(p);
    return v;
}

/* Counts the messages that both answers begin with. */
static bool count_common(struct pl_row_parser *p, size_t *n) {
    struct pl_scan a = p->scan, b = p->scan;
    bool same = true;
    a.at = p->at[1];
    b.at = p->at[2];
    *n = 0;
    if (!pl_scan_enter_array(&a) || !pl_scan_enter_array(&b)) return true;
    while (same && pl_scan_next_element(&a) && pl_scan_next_element(&b)) {
        json_t *x = take_element(p, &a), *y = x ? take_element(p, &b) : NULL;
        same = x && y && json_equal(x, y);
        const bool failed = !x || !y;
        json_decref(x);
        json_decref(y);
        if (failed) return false;
        *n += same;
    }
    return true;
}

/* True if a message has keys besides its role and its content, such as calls of tools. */
static bool has_more(const struct pl_conversation *c, size_t i, bool *failed) {
    const struct pl_json_span *span = &c->json[i];
    if (!span->end) return false;
    json_t *v = pl_json_load(c->row + span->begin, span->end - span->begin, JSON_DECODE_ANY, NULL);
    *failed |= !v;
    const bool more = json_object_size(v) > 2;
    json_decref(v);
    return more;
}

/* Fails where the messages from `first` on, an answer, say nothing. */
static bool check_answer(struct pl_row_parser *p, int k, size_t first) {
    struct pl_conversation *c = &p->conversation;
    const struct pl_chat_message *m = pl_conversation_messages(c);
    bool failed = false;
    if (c->n <= first)
        return fail(p, k, "leave such rows out", "has no message after those of the other answer");
    while (first < c->n && !m[first].n && !has_more(c, first, &failed))
        first++;
    if (failed) return pl_row_no_memory(p);
    return first < c->n || fail(p, k, "leave such rows out", "is empty");
}

/* The messages of answer k: with those of the prompt before them, or, with `common`, so many of its
 * own are the prompt. */
static bool render_answer(struct pl_row_parser *p, int k, bool has_prompt, size_t common) {
    start_conversation(p);
    if (has_prompt && !read_prompt(p)) return false;
    const size_t first = has_prompt ? p->conversation.n : common;
    if (!read_messages(p, k)) return false;
    return check_answer(p, k, first) && render(p, k, false);
}

static bool render_prompt(struct pl_row_parser *p, bool has_prompt, size_t common) {
    start_conversation(p);
    if (!(has_prompt ? read_prompt(p) : read_messages(p, 1))) return false;
    if (!has_prompt) p->conversation.n = common;
    p->texts[0].len = 0;
    return p->conversation.n == 0 || render(p, 0, true);
}

static bool complete_messages(struct pl_row_parser *p, bool has_prompt) {
    uint64_t begin[3];
    size_t common = 0;
    if (p->no_chat.err != PL_ERR_OK) {
        p->problem = p->no_chat;
        return pl_row_fail_with_problem(p, 1);
    }
    if (!p->encoder.by_program)
        return fail(p, 1, "name a tokenizer with special tokens, or write the row as strings",
                    "is a conversation, and `tokenizer: byte` has no template for preferences");
    if (!has_prompt && !count_common(p, &common)) return false;
    if (!render_prompt(p, has_prompt, common)) return false;
    for (int k = 1; k <= (int)answers_of(p); k++)
        if (!render_answer(p, k, has_prompt, common)) return false;
    const bool by_tokens = p->rule.stage == PL_STAGE_DPO || p->rule.stage == PL_STAGE_KTO;
    return (by_tokens ? split_by_tokens(p, false, begin) : split_by_text(p, begin)) &&
           add_parts(p, begin);
}

/* --- all of it -------------------------------------------------------------------------------- */

/* Refuses the keys of a prompt in turns that this prompt does not take. */
static bool refuse_others(struct pl_row_parser *p, bool turns) {
    static const struct {
        int key;
        const char *name;
        bool by_list, by_instruction; /* taken by a prompt of that kind */
    } keys[] = {{PL_PREFERENCE_TURNS, "conversations", true, false},
                {PL_PREFERENCE_INSTRUCTION, "instruction", false, true},
                {PL_PREFERENCE_INPUT, "input", false, true},
                {PL_PREFERENCE_SYSTEM, "system", true, true}};
    const bool list = turns && has_list(p);
    for (size_t i = 0; of_pairs(p) && i < sizeof keys / sizeof *keys; i++) {
        const char *name = keys[i].name;
        const bool taken = turns && (list ? keys[i].by_list : keys[i].by_instruction);
        if (taken || !says(p, keys[i].key)) continue;
        pl_row_go_to(p, keys[i].key);
        return pl_row_key_check(pl_row_key_find(name, strlen(name), 1u << PL_FORMAT_PREFERENCE),
                                &p->scan);
    }
    return true;
}

/* An answer that is one message is read like a list of it. */
static enum pl_scan_kind kind_of_part(struct pl_row_parser *p, int k) {
    const enum pl_scan_kind kind = kind_of(p, k);
    return kind == PL_SCAN_OBJECT ? PL_SCAN_ARRAY : kind;
}

/* A prompt that is a string next to conversations repeats what they begin with. */
bool pl_preference_complete(struct pl_row_parser *p) {
    const enum pl_scan_kind prompt = kind_of(p, PL_PREFERENCE_PROMPT), first = kind_of_part(p, 1);
    bool has_prompt = prompt != PL_SCAN_NULL;
    const bool turns = has_turns(p);
    if (!refuse_others(p, turns)) return false;
    if (of_pairs(p) && kind_of_part(p, 2) != first)
        return fail(p, 2, NULL, "and `chosen` are of different kinds: text, or messages");
    if (turns) return complete_messages(p, true);
    if (!has_prompt && kind_of(p, 1) == PL_SCAN_OBJECT)
        return fail(p, 1, "say the prompt as `prompt` or `conversations`",
                    "is one message, and the row has no prompt");
    if (has_prompt && prompt != first) {
        if (!of_pairs(p) || first != PL_SCAN_ARRAY)
            return fail(p, 1, NULL, "and `prompt` are of different kinds: text, or messages");
        has_prompt = false;
    }
    return first == PL_SCAN_ARRAY ? complete_messages(p, has_prompt)
                                  : complete_strings(p, has_prompt);
}
