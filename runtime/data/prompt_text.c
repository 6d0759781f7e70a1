#include "runtime/data/prompt_text.h"

#include "estimator/base/alloc.h"
#include "estimator/config/job.h"
#include "runtime/data/chat/own.h"

#include <stdlib.h>
#include <string.h>

pl_err pl_prompt_text_open(struct pl_prompt_text *t, const char *path, struct pl_diag *d) {
    *t = (struct pl_prompt_text){0};
    pl_err err = pl_tokenizer_open(path, &t->tokenizer, d);
    if (err == PL_ERR_OK) err = pl_tokenizer_scratch_create(t->tokenizer, &t->scratch, d);
    if (err != PL_ERR_OK) pl_prompt_text_close(t);
    return err;
}

void pl_prompt_text_close(struct pl_prompt_text *t) {
    pl_tokenizer_scratch_destroy(&t->scratch);
    pl_tokenizer_close(&t->tokenizer);
    pl_token_list_finish(&t->prompt);
    free(t->ids);
    *t = (struct pl_prompt_text){0};
}

/* ---- prompts ---- */

static const char *special_piece(const struct pl_tokenizer *t, int64_t id) {
    return id < 0 ? NULL : pl_tokenizer_piece(t, (int32_t)id);
}

/* The first special token that the program writes after an answer ends it. */
static pl_err find_own_turn_end(struct pl_prompt_text *t, struct pl_chat_own *own,
                                const struct pl_text *prompt, struct pl_diag *d) {
    static const struct pl_jinja_value word = {.kind = PL_JINJA_STRING, .s = "x", .n = 1};
    struct pl_jinja_value answer;
    pl_err err = PL_ERR_OK;
    PL_TRY(pl_chat_make_message(&own->memory, "assistant", &word, &answer, d));
    if (!pl_jinja_list_add(&own->memory.arena, own->request.messages.list, &answer))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the prompt");
    own->request.generate = false;
    PL_TRY(pl_chat_program_render(&own->program, &own->memory, &own->request, &own->part, NULL, d));
    size_t from = own->part.len > prompt->len ? prompt->len : 0;
    PL_TRY(pl_tokenizer_encode(t->tokenizer, t->scratch, own->part.data + from,
                               own->part.len - from, false, &t->prompt, d));
    for (uint64_t i = 0; i < t->prompt.n && !t->ends_turns; i++) {
        t->ends_turns = pl_tokenizer_is_special(t->tokenizer, t->prompt.ids[i]);
        if (t->ends_turns) t->turn_end = t->prompt.ids[i];
    }
    return err;
}

static pl_err add_messages(struct pl_chat_own *own, const struct pl_chat_message *messages,
                           size_t n, struct pl_jinja_list *list, struct pl_diag *d) {
    for (size_t i = 0; i < n; i++) {
        const struct pl_jinja_value content = {
            .kind = PL_JINJA_STRING, .s = messages[i].content, .n = messages[i].n};
        struct pl_jinja_value message;
        PL_TRY(pl_chat_make_message(&own->memory, pl_chat_role_name(messages[i].role), &content,
                                    &message, d));
        if (!pl_jinja_list_add(&own->memory.arena, list, &message))
            return pl_host_oom(d, "the prompt");
    }
    return PL_ERR_OK;
}

/* Renders by the model's own program, or that of a file. */
static pl_err render_own(struct pl_prompt_text *t, struct pl_chat_own *own,
                         const struct pl_chat_message *messages, size_t n, struct pl_text *out,
                         struct pl_diag *d) {
    pl_jinja_begin(&own->memory);
    struct pl_jinja_list *list = pl_jinja_list_new(&own->memory.arena, n + 1);
    if (!list) return pl_host_oom(d, "the prompt");
    PL_TRY(add_messages(own, messages, n, list, d));
    own->request =
        (struct pl_chat_request){.messages = pl_jinja_list(list, PL_JINJA_PLAIN),
                                 .bos = special_piece(t->tokenizer, pl_tokenizer_bos(t->tokenizer)),
                                 .eos = special_piece(t->tokenizer, pl_tokenizer_eos(t->tokenizer)),
                                 .date = t->date,
                                 .generate = true};
    PL_TRY(pl_chat_program_render(&own->program, &own->memory, &own->request, out, NULL, d));
    return t->ends_turns ? PL_ERR_OK : find_own_turn_end(t, own, out, d);
}

static pl_err render_named(struct pl_prompt_text *t, const struct pl_chat_template *by,
                           const struct pl_chat_message *messages, size_t n,
                           struct pl_chat_text *out, struct pl_diag *d) {
    const struct pl_chat_options how = {
        .bos = special_piece(t->tokenizer, pl_tokenizer_bos(t->tokenizer)),
        .eos = special_piece(t->tokenizer, pl_tokenizer_eos(t->tokenizer)),
        .date = t->date,
        .generate = true};
    /* Only a mark that is one token to this tokenizer ends a turn. */
    const char *mark = pl_chat_turn_end(by);
    const int64_t id = mark ? pl_tokenizer_id(t->tokenizer, mark) : -1;
    t->ends_turns = id >= 0;
    t->turn_end = t->ends_turns ? (int32_t)id : 0;
    return pl_chat_render(by, &how, messages, n, out, d);
}

/* The template writes what the tokenizer would add. */
pl_err pl_prompt_text_encode_chat(struct pl_prompt_text *t, const struct pl_chat_message *messages,
                                  size_t n, const struct pl_template_choice *choice,
                                  struct pl_diag *d) {
    struct pl_chat_own own = {.part = {0}};
    struct pl_chat_text text = {0};
    pl_err err;
    if (choice->choice == PL_CHAT_TEMPLATE_FILE)
        PL_TRY_GOTO(pl_chat_program_read(&own.program, choice->path, NULL, d), out);
    else if (choice->choice == PL_CHAT_TEMPLATE_AUTO)
        PL_TRY_GOTO(pl_chat_program_take(&own.program, t->tokenizer, d), out);
    if (own.program.plain || own.program.with_tools)
        PL_TRY_GOTO(render_own(t, &own, messages, n, &text.text, d), out);
    else
        PL_TRY_GOTO(render_named(t, pl_chat_nth(choice->choice - 1), messages, n, &text, d), out);
    err = pl_tokenizer_encode(t->tokenizer, t->scratch, pl_text_str(&text.text), text.text.len,
                              false, &t->prompt, d);
out:
    pl_chat_text_finish(&text);
    pl_chat_own_finish(&own);
    return err;
}

pl_err pl_prompt_text_encode(struct pl_prompt_text *t, const char *prompt, size_t n,
                             struct pl_diag *d) {
    pl_err err = pl_tokenizer_encode(t->tokenizer, t->scratch, prompt, n, true, &t->prompt, d);
    if (err != PL_ERR_OK || t->prompt.n) return err;
    return pl_diag_set(d, PL_ERR_USAGE, "the prompt has no token");
}

static pl_err encode_alpaca(struct pl_prompt_text *t, const char *prompt, struct pl_diag *d) {
    struct pl_text text = {0};
    pl_prompt_add_alpaca(&text, prompt, strlen(prompt));
    const pl_err err = text.failed ? pl_host_oom(d, "the prompt")
                                   : pl_prompt_text_encode(t, text.data, text.len, d);
    pl_text_finish(&text);
    return err;
}

pl_err pl_prompt_text_encode_as(struct pl_prompt_text *t, enum pl_prompt_form form,
                                const char *prompt, const struct pl_template_choice *choice,
                                struct pl_diag *d) {
    const struct pl_chat_message message = {PL_CHAT_USER, prompt, strlen(prompt)};
    if (form == PL_PROMPT_CHAT) return pl_prompt_text_encode_chat(t, &message, 1, choice, d);
    return form == PL_PROMPT_ALPACA ? encode_alpaca(t, prompt, d)
                                    : pl_prompt_text_encode(t, prompt, message.n, d);
}

/* ---- answers ---- */

/* Vocabularies are padded: ids that no tokenizer knows can be generated, and have no text. */
pl_err pl_prompt_text_decode(const struct pl_prompt_text *t, const int32_t *ids, uint64_t n,
                             struct pl_text *out, struct pl_diag *d) {
    uint64_t known = 0;
    int32_t *list = pl_malloc((size_t)(n ? n : 1) * sizeof *list);
    if (!list) return pl_host_oom(d, "an answer");
    for (uint64_t i = 0; i < n; i++)
        if (pl_tokenizer_piece(t->tokenizer, ids[i])) list[known++] = ids[i];
    pl_err err = pl_tokenizer_decode(t->tokenizer, list, known, true, out, d);
    free(list);
    return err;
}

static bool ends_open(const struct pl_text *text) {
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD: a character not complete yet */
    return text->len >= 3 && memcmp(text->data + text->len - 3, replacement, 3) == 0;
}

/* Decoders look at neighbours (a leading space goes, bytes make characters), so a token's text is
 * the difference between the texts with and without it, of a window that begins where the last
 * written part began. */
static void write_new(struct pl_prompt_text *t, bool all, FILE *out) {
    struct pl_text before = {0}, now = {0};
    const int32_t *window = t->ids + t->settled;
    pl_err err = pl_prompt_text_decode(t, window, t->read - t->settled, &before, NULL);
    if (err == PL_ERR_OK) err = pl_prompt_text_decode(t, window, t->n - t->settled, &now, NULL);
    if (err == PL_ERR_OK && !now.failed && now.len > before.len && (all || !ends_open(&now))) {
        fwrite(now.data + before.len, 1, now.len - before.len, out);
        fflush(out);
        t->settled = t->read;
        t->read = t->n;
    }
    pl_text_finish(&before);
    pl_text_finish(&now);
}

static bool append(struct pl_prompt_text *t, int32_t id) {
    if (t->n == t->cap) {
        uint64_t cap = t->cap ? 2 * t->cap : 256;
        int32_t *bigger = pl_realloc(t->ids, (size_t)cap * sizeof *bigger);
        if (!bigger) return false;
        t->ids = bigger;
        t->cap = cap;
    }
    t->ids[t->n++] = id;
    return true;
}

void pl_prompt_text_begin(struct pl_prompt_text *t) {
    t->n = t->settled = t->read = 0;
}

/* If memory is missing the text on the screen ends early; the answer itself does not depend on
 * it. */
void pl_prompt_text_put(struct pl_prompt_text *t, int32_t id, FILE *out) {
    if (append(t, id)) write_new(t, false, out);
}

void pl_prompt_text_flush(struct pl_prompt_text *t, FILE *out) {
    if (t->n > t->read) write_new(t, true, out);
}
