/* encode_chat.c - conversations as tokens and labels. */
#include "runtime/data/encode.h"
#include "estimator/base/alloc.h"
#include "runtime/data/chat/said.h"
#include "runtime/data/jinja/chars.h"

#include <string.h>

/* --- rendering -------------------------------------------------------------------------------- */
/* A message whose words the template leaves out is not trained on as if it had not been there. */
static pl_err check_lost(const struct pl_encoder *e, const struct pl_chat_message *m, size_t n,
                         struct pl_diag *d) {
    for (size_t i = 0; i < n; i++) {
        if (!e->rendered.spans[i].lost || !m[i].n) continue;
        pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "template %s leaves out message %zu (%s)",
                    pl_chat_name(e->chat), i, pl_chat_role_name(m[i].role));
        if (e->chat == pl_chat_find("mistral"))
            pl_diag_hint(d, "`chat_template: mistral_sysfirst` writes the system text before the "
                            "first question, where answers can be trained on");
        return PL_ERR_DATA_TEMPLATE;
    }
    return PL_ERR_OK;
}

/* True if the message itself, or else `train_on`, trains message i. */
static bool is_trained(const struct pl_encoder *e, const struct pl_conversation *c, size_t i,
                       size_t n_prompt, size_t last_answer) {
    if (c->train[i] != PL_MESSAGE_BY_ROLE) return c->train[i] == PL_MESSAGE_TRAINED;
    if (e->train_on == PL_TRAIN_ON_ALL) return true;
    if (c->messages[i].role != PL_CHAT_ASSISTANT || i < n_prompt) return false;
    return e->train_on == PL_TRAIN_ON_RESPONSES || i == last_answer;
}

static size_t last_answer_of(const struct pl_conversation *c) {
    size_t last = c->n;
    for (size_t i = 0; i < c->n; i++)
        if (c->messages[i].role == PL_CHAT_ASSISTANT) last = i;
    return last;
}

/* Renders by the program: only messages that differ from the rest of the row have to be found in
 * its text. */
static pl_err render_own(struct pl_encoder *e, struct pl_conversation *c, size_t n_prompt,
                         struct pl_diag *d) {
    bool all = e->train_on == PL_TRAIN_ON_ALL;
    size_t last = last_answer_of(c);
    bool *wanted = pl_realloc(e->wanted, (c->n ? c->n : 1) * sizeof *wanted);
    if (!wanted)
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a row of %zu messages", c->n);
    e->wanted = wanted;
    for (size_t i = 0; i < c->n; i++)
        wanted[i] = is_trained(e, c, i, n_prompt, last) != all;
    PL_TRY(pl_chat_own_take(&e->own, c, d));
    return pl_chat_own_render(&e->own, c, wanted, &e->rendered, &e->ends_loose, d);
}

/* Answers whose reasoning a template leaves out by design are counted; the last one is not to lose
 * any. */
static pl_err check_said(struct pl_encoder *e, const struct pl_conversation *c, struct pl_diag *d) {
    const char *text = pl_text_str(&e->rendered.text);
    const size_t last = last_answer_of(c);
    for (size_t i = 0; i < c->n; i++) {
        const struct pl_chat_message *m = &c->messages[i];
        const struct pl_chat_span *span = &e->rendered.spans[i];
        if (m->role != PL_CHAT_ASSISTANT ||
            pl_chat_is_said(text + span->begin, span->end - span->begin, m->content, m->n))
            continue;
        if (i == last)
            return pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                               "template %s leaves out a part of message %zu (assistant)",
                               pl_chat_name(e->chat), i);
        pl_row_traits_add(&e->traits, PL_TRAIT_CUT_TEXT, 1);
    }
    return PL_ERR_OK;
}

static pl_err render(struct pl_encoder *e, struct pl_conversation *c, size_t n_prompt,
                     struct pl_diag *d) {
    if (e->by_program) {
        PL_TRY(render_own(e, c, n_prompt, d));
        pl_row_traits_add(&e->traits, PL_TRAIT_CUT_TEXT, e->own.cut_texts);
        pl_row_traits_add(&e->traits, PL_TRAIT_QUOTED_ARGUMENTS, e->own.quoted_arguments);
        return PL_ERR_OK;
    }
    e->ends_loose = false;
    PL_TRY(pl_chat_render(e->chat, &e->options, c->messages, c->n, &e->rendered, d));
    PL_TRY(check_lost(e, c->messages, c->n, d));
    return check_said(e, c, d);
}

/* --- ends of turns ---------------------------------------------------------------------------- */
static size_t end_of_token(const struct pl_encoder *e, uint64_t i) {
    return i + 1 < e->tokens.n ? e->tokens.starts[i + 1] : e->rendered.text.len;
}

static bool is_blank_token(const struct pl_encoder *e, uint64_t i) {
    const size_t begin = e->tokens.starts[i], end = end_of_token(e, i);
    const struct pl_jinja_value token =
        pl_jinja_string(pl_text_str(&e->rendered.text) + begin, end > begin ? end - begin : 0);
    return end >= begin && pl_jinja_is_blank(&token);
}

/* The token is one of the first n of those that end a turn. */
static bool is_stop(const struct pl_encoder *e, uint64_t i, uint32_t n) {
    for (uint32_t k = 0; k < n; k++)
        if (e->tokens.ids[i] == e->stops[k]) return true;
    return false;
}

/* The end of a span without the white space after the token that ends the turn, which belongs to
 * the form of the conversation and is never generated. A mark that is in it by half is not. */
static size_t tight_end(const struct pl_encoder *e, const struct pl_chat_span *span) {
    for (uint64_t i = pl_encode_token_at(e, span->end); i && e->tokens.starts[i - 1] >= span->begin;
         i--) {
        const size_t end = end_of_token(e, i - 1);
        const bool special = pl_tokenizer_is_special(e->tokenizer, e->tokens.ids[i - 1]);
        if (special && end > span->end) continue;
        if (special) return end;
        if (!is_blank_token(e, i - 1)) break;
    }
    const uint64_t next = pl_encode_token_at(e, span->end);
    const bool stops =
        next < e->tokens.n && e->tokens.starts[next] == span->end && is_stop(e, next, e->n_stops);
    return stops ? end_of_token(e, next) : span->end;
}

/* Returns the end of a turn that a program wrote: after the first token that ends a text and comes
 * after the words, since more would be the header of the next turn. */
static size_t turn_end(const struct pl_encoder *e, const struct pl_chat_message *m,
                       const struct pl_chat_span *span) {
    size_t length, from = span->begin;
    const size_t said = pl_chat_find_said(pl_text_str(&e->rendered.text) + span->begin,
                                          span->end - span->begin, m->content, m->n, &length);
    if (said != SIZE_MAX) from += said + length;
    for (uint64_t i = pl_encode_token_at(e, from);
         i < e->tokens.n && e->tokens.starts[i] < span->end; i++)
        if (is_stop(e, i, e->n_ends) && end_of_token(e, i) <= span->end) return end_of_token(e, i);
    return tight_end(e, span);
}

/* The last token of the span, white space aside, ends a turn. */
static bool is_closed(const struct pl_encoder *e, size_t begin, size_t end) {
    uint64_t i = pl_encode_token_at(e, end);
    while (i && e->tokens.starts[i - 1] >= begin && is_blank_token(e, i - 1))
        i--;
    return i && e->tokens.starts[i - 1] >= begin &&
           (is_stop(e, i - 1, e->n_stops) ||
            pl_tokenizer_is_special(e->tokenizer, e->tokens.ids[i - 1]));
}

/* --- labels ----------------------------------------------------------------------------------- */
/* The special tokens in the words of message i, which stand where it is written. */
static uint64_t count_special(const struct pl_encoder *e, const struct pl_conversation *c,
                              size_t i) {
    const struct pl_chat_message *m = &c->messages[i];
    const struct pl_chat_span *span = &e->rendered.spans[i];
    const struct pl_jinja_span *turn = e->by_program ? &e->own.turns[i] : NULL;
    const size_t begin = turn ? turn->begin : span->begin, end = turn ? turn->end : span->end;
    uint64_t n = 0;
    size_t length;
    if (begin >= end || end > e->rendered.text.len) return 0;
    const size_t at = pl_chat_find_said(pl_text_str(&e->rendered.text) + begin, end - begin,
                                        m->content, m->n, &length);
    if (at == SIZE_MAX) return 0;
    for (uint64_t k = pl_encode_token_at(e, begin + at);
         k < e->tokens.n && e->tokens.starts[k] < begin + at + length; k++)
        n += pl_tokenizer_is_special(e->tokenizer, e->tokens.ids[k]);
    return n;
}

/* The span that is trained or masked. Where a program marks answers, the token that holds the first
 * character of one belongs to it, as in transformers. */
static struct pl_chat_span fit_span(struct pl_encoder *e, const struct pl_chat_message *m,
                                    struct pl_chat_span span) {
    const bool answer = m->role == PL_CHAT_ASSISTANT;
    if (e->ends_loose || (e->by_program && !answer)) {
        span.end = turn_end(e, m, &span);
    } else if (e->by_program && span.begin < span.end && pl_encode_is_inside(e, span.begin)) {
        span.begin = e->tokens.starts[pl_encode_token_at(e, span.begin) - 1];
    }
    return span;
}

/* Counts traits of an answer that is trained on. */
static void note_answer(struct pl_encoder *e, const struct pl_chat_span *span) {
    if (span->begin >= span->end || pl_encode_is_beyond(e, span->end)) return;
    if (pl_encode_is_inside(e, span->begin))
        pl_row_traits_add(&e->traits, PL_TRAIT_INSIDE_TOKEN, 1);
    if (!e->bytes && !is_closed(e, span->begin, span->end))
        pl_row_traits_add(&e->traits, PL_TRAIT_OPEN_ANSWER, 1);
}

static void label_messages(struct pl_encoder *e, const struct pl_conversation *c, size_t n_prompt,
                           struct pl_sample *out) {
    const bool all = e->train_on == PL_TRAIN_ON_ALL;
    const size_t last = last_answer_of(c);
    for (size_t i = 0; i < c->n; i++) {
        const bool trained = is_trained(e, c, i, n_prompt, last);
        pl_row_traits_add(&e->traits, PL_TRAIT_SPECIAL_TEXT, count_special(e, c, i));
        if (e->by_program && trained == all) continue;
        const struct pl_chat_span span = fit_span(e, &c->messages[i], e->rendered.spans[i]);
        pl_encode_label(e, out, span.begin, span.end, trained);
        if (trained && c->messages[i].role == PL_CHAT_ASSISTANT) note_answer(e, &span);
    }
}

pl_err pl_encode_conversation(struct pl_encoder *e, struct pl_conversation *c, size_t n_prompt,
                              struct pl_sample *out, struct pl_diag *d) {
    (void)pl_conversation_messages(c);
    out->n = 0;
    if (c->strange) {
        pl_row_traits_add(&e->traits, PL_TRAIT_UNKNOWN_ROLE, c->strange);
        memcpy(e->traits.role, c->strange_role, sizeof e->traits.role);
    }
    PL_TRY(render(e, c, n_prompt, d));
    PL_TRY(pl_tokenizer_encode(e->tokenizer, e->scratch, pl_text_str(&e->rendered.text),
                               e->rendered.text.len, false, &e->tokens, d));
    PL_TRY(pl_encode_take_tokens(e, e->train_on == PL_TRAIN_ON_ALL, out, d));
    label_messages(e, c, n_prompt, out);
    return PL_ERR_OK;
}
