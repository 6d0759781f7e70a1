/* answers.c - rows rendered by a program: where answers stand in its text. */
#include "runtime/data/chat/own.h"
#include "estimator/base/alloc.h"
#include "runtime/data/chat/own_row.h"
#include "runtime/data/jinja/chars.h"

#include <stdlib.h>
#include <string.h>

/* The work that any row may have: so many bytes, and so many renders of the whole row. */
#define LEAST_BUDGET (UINT64_C(1) << 26)
#define BUDGET_RATIO 32

/* The first so many answers of a row are found by rendering the messages before each, and of the
 * others those whose number is a power of two; the rest by the rule that was found. */
#define FOUND_ALONE 16

void pl_chat_own_finish(struct pl_chat_own *o) {
    pl_chat_program_finish(&o->program);
    pl_jinja_memory_finish(&o->memory);
    pl_text_finish(&o->part);
    pl_jinja_spans_finish(&o->marked);
    free(o->turns);
    *o = (struct pl_chat_own){0};
}

/* --- renders of parts ------------------------------------------------------------------------- */
/* The first n messages into o->part. */
static pl_err render_first(struct pl_chat_own *o, size_t n, bool generate, struct pl_diag *refused,
                           struct pl_diag *d) {
    const struct pl_chat_part part = {.n = n, .generate = generate};
    return pl_chat_own_render_part(o, &part, refused, d);
}

static bool begins_with(const struct pl_text *whole, const struct pl_text *part) {
    return part->len <= whole->len && memcmp(whole->data, part->data, part->len) == 0;
}

static pl_err not_found(const struct pl_conversation *c, size_t i, const char *why,
                        struct pl_diag *d) {
    pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                "message %zu (%s) cannot be found in what the template "
                "renders: %s",
                i, pl_chat_role_name(c->messages[i].role), why);
    pl_diag_hint(d, "use a template that marks answers by {%% generation %%}, or give `prompt` and "
                    "`completion` as text");
    return PL_ERR_DATA_TEMPLATE;
}

/* Finds the begin of an answer: the header that asks for it is rendered already. A first message
 * has nothing before it to render, so its own words are searched for. */
static pl_err find_begin(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                         const struct pl_text *whole, size_t *begin, struct pl_diag *d) {
    struct pl_diag refused;
    PL_TRY(render_first(o, i, c->messages[i].role == PL_CHAT_ASSISTANT, &refused, d));
    *begin = o->part.len;
    if (refused.err == PL_ERR_OK && begins_with(whole, &o->part)) return PL_ERR_OK;
    *begin = 0;
    if (i == 0) return PL_ERR_OK;
    return not_found(c, i,
                     refused.err == PL_ERR_OK
                         ? "the messages before it are rendered differently with it"
                         : refused.message,
                     d);
}

/* Past the first place of the words of message i after byte `from`; 0 = they are not there. */
static size_t past_words(const struct pl_conversation *c, size_t i, const struct pl_text *whole,
                         size_t from) {
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    pl_jinja_strip(&said, NULL, true, true);
    ptrdiff_t at = pl_jinja_find(whole->data + from, whole->len - from, said.s, said.n);
    return at < 0 ? 0 : from + (size_t)at + said.n;
}

/* Compares o->part with the whole text: their common part ends message i if it reaches beyond its
 * words to the end of the turn. */
static bool find_shared_end(const struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                            const struct pl_text *whole, size_t begin, size_t *end) {
    size_t same = 0, said = past_words(c, i, whole, begin);
    while (same < whole->len && same < o->part.len && whole->data[same] == o->part.data[same])
        same++;
    if (!said || same <= said) return false;
    const struct pl_jinja_value after = pl_jinja_string(whole->data + said, same - said);
    if (pl_jinja_is_blank(&after)) return false;
    *end = same;
    return true;
}

/* The last message ends with the text, unless a question after it shows that something else ends
 * the conversation: what ends the turn stands in both. */
static pl_err find_last_end(struct pl_chat_own *o, const struct pl_conversation *c,
                            const struct pl_text *whole, size_t begin, size_t *end,
                            struct pl_diag *d) {
    const struct pl_jinja_value word = pl_jinja_literal("x");
    struct pl_jinja_list *list = o->request.messages.list;
    struct pl_jinja_value question;
    struct pl_diag refused;
    *end = whole->len;
    PL_TRY(pl_chat_make_message(&o->memory, "user", &word, &question, d));
    if (!pl_jinja_list_add(&o->memory.arena, list, &question)) return pl_chat_own_no_room(d);
    pl_err err = render_first(o, list->n, false, &refused, d);
    list->n--;
    if (err == PL_ERR_OK && refused.err == PL_ERR_OK)
        find_shared_end(o, c, c->n - 1, whole, begin, end);
    return err;
}

/* Rendered last a message may carry more than in the middle, such as the reasoning that later turns
 * leave out; what both have in common must reach into its own words. */
static pl_err find_common_end(const struct pl_chat_own *o, const struct pl_conversation *c,
                              size_t i, const struct pl_text *whole, size_t begin, size_t *end,
                              struct pl_diag *d) {
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    if (o->part.len < begin) return not_found(c, i, "it is rendered differently alone", d);
    const char *last = o->part.data + begin;
    const size_t n = o->part.len - begin;
    /* the longest end of this text that the whole goes on with */
    size_t common = n < whole->len - begin ? n : whole->len - begin;
    while (common && memcmp(last + n - common, whole->data + begin, common) != 0)
        common--;
    pl_jinja_strip(&said, NULL, true, true);
    const ptrdiff_t at = said.n ? pl_jinja_rfind(last, n, said.s, said.n) : (ptrdiff_t)n;
    const size_t after = at < 0 ? n : n - (size_t)at - said.n;
    if (at < 0 || !common || common < after + (said.n > 0))
        return not_found(c, i, "it is rendered differently before other messages", d);
    *end = begin + common;
    return PL_ERR_OK;
}

static pl_err find_end(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                       const struct pl_text *whole, size_t begin, size_t *end, struct pl_diag *d) {
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    struct pl_diag refused;
    if (i + 1 == c->n) return find_last_end(o, c, whole, begin, end, d);
    if (turn && turn->begin <= begin && begin <= turn->end) {
        *end = turn->end;
        return PL_ERR_OK;
    }
    PL_TRY(render_first(o, i + 1, false, &refused, d));
    if (refused.err != PL_ERR_OK) return not_found(c, i, refused.message, d);
    *end = o->part.len;
    if (begins_with(whole, &o->part)) return PL_ERR_OK;
    return find_shared_end(o, c, i, whole, begin, end)
               ? PL_ERR_OK
               : find_common_end(o, c, i, whole, begin, end, d);
}

/* The span of others than answers, and of an answer with nothing before it, is the words without
 * the header. */
static pl_err find_words(const struct pl_conversation *c, size_t i, const struct pl_text *whole,
                         struct pl_chat_span *span, struct pl_diag *d) {
    struct pl_jinja_value said = pl_jinja_string(c->messages[i].content, c->messages[i].n);
    if (c->messages[i].role == PL_CHAT_ASSISTANT && span->begin) return PL_ERR_OK;
    pl_jinja_strip(&said, NULL, true, true);
    ptrdiff_t at =
        pl_jinja_find(whole->data + span->begin, span->end - span->begin, said.s, said.n);
    if (at < 0 || !said.n) return not_found(c, i, "its text is not there", d);
    span->begin += (size_t)at;
    return PL_ERR_OK;
}

/* --- the rule of many turns ------------------------------------------------------------------- */
/* The common shape of the messages found so far: the program writes each at one place, first the
 * header, then the span. */
struct turn_rule {
    size_t found;
    const char *header; /* [n], in the whole; NULL: no message was found yet */
    size_t n;
    bool broken; /* a message was found elsewhere */
};

static bool apply_rule(const struct pl_chat_own *o, const struct turn_rule *rule, size_t i,
                       const struct pl_text *whole, struct pl_chat_span *span) {
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    if (rule->broken || !rule->header || !turn || turn->end - turn->begin < rule->n) return false;
    if (memcmp(whole->data + turn->begin, rule->header, rule->n) != 0) return false;
    *span = (struct pl_chat_span){.begin = turn->begin + rule->n, .end = turn->end};
    return true;
}

static bool is_found_alone(const struct turn_rule *rule, const struct pl_conversation *c,
                           size_t i) {
    const size_t k = rule->found;
    return k < FOUND_ALONE || (k & (k - 1)) == 0 || i + 1 == c->n;
}

/* Message i was found at the span: that is the rule, or breaks it. */
static void learn(const struct pl_chat_own *o, struct turn_rule *rule, size_t i,
                  const struct pl_text *whole, const struct pl_chat_span *span) {
    const struct pl_jinja_span *turn = pl_chat_own_turn(o, i, whole);
    struct pl_chat_span same;
    if (apply_rule(o, rule, i, whole, &same)) {
        rule->broken = same.begin != span->begin || same.end != span->end;
    } else if (!rule->header && turn && turn->begin <= span->begin && turn->end == span->end) {
        rule->header = whole->data + turn->begin;
        rule->n = span->begin - turn->begin;
    }
}

static pl_err find_span(struct pl_chat_own *o, const struct pl_conversation *c, size_t i,
                        const struct pl_text *whole, struct turn_rule *rule,
                        struct pl_chat_span *span, struct pl_diag *d) {
    if (is_found_alone(rule, c, i) || !apply_rule(o, rule, i, whole, span)) {
        PL_TRY(find_begin(o, c, i, whole, &span->begin, d));
        PL_TRY(find_end(o, c, i, whole, span->begin, &span->end, d));
        if (span->end < span->begin) return not_found(c, i, "it ends before it begins", d);
        if (i + 1 < c->n) learn(o, rule, i, whole, span);
    }
    rule->found++;
    return find_words(c, i, whole, span, d);
}

/* --- the whole -------------------------------------------------------------------------------- */
/* One generation block an answer, in their order. */
static pl_err take_marked(const struct pl_chat_own *o, const struct pl_conversation *c,
                          struct pl_chat_text *out, struct pl_diag *d) {
    size_t answers = 0, k = 0;
    for (size_t i = 0; i < c->n; i++)
        answers += c->messages[i].role == PL_CHAT_ASSISTANT;
    if (answers != o->marked.n)
        return pl_diag_set(d, PL_ERR_DATA_TEMPLATE,
                           "the template marks %zu answers, the conversation has %zu", o->marked.n,
                           answers);
    for (size_t i = 0; i < c->n; i++) {
        if (c->messages[i].role != PL_CHAT_ASSISTANT) continue;
        out->spans[i].begin = o->marked.items[k].begin;
        out->spans[i].end = o->marked.items[k++].end;
    }
    return PL_ERR_OK;
}

/* Room for the turns of the row, and those of one that it is compared with. */
static bool reserve_turns(struct pl_chat_own *o, size_t n) {
    if (n <= o->cap_turns) return true;
    struct pl_jinja_span *turns = pl_realloc(o->turns, 2 * n * sizeof *turns);
    if (!turns) return false;
    o->turns = turns;
    o->cap_turns = n;
    return true;
}

/* Content that is a list is joined for a program that fails at one, or writes it as it is. */
static pl_err render_with_parts(struct pl_chat_own *o, const struct pl_conversation *c,
                                struct pl_text *out, struct pl_jinja_spans *marked,
                                struct pl_diag *d) {
    struct pl_chat_request r = o->request;
    struct pl_diag refused = {0};
    const bool parts = pl_chat_own_has_parts(o);
    r.turns = o->turns;
    const pl_err err =
        pl_chat_program_render(&o->program, &o->memory, &r, out, marked, parts ? &refused : d);
    if (!parts || (err == PL_ERR_OK && !pl_chat_own_shows_parts(out))) return err;
    if (err == PL_ERR_HOST_OOM) return pl_diag_set(d, err, "%s", refused.message);
    PL_TRY(pl_chat_own_join_parts(o, c, d));
    return pl_chat_program_render(&o->program, &o->memory, &r, out, marked, d);
}

static pl_err render_whole(struct pl_chat_own *o, const struct pl_conversation *c,
                           struct pl_text *out, struct pl_jinja_spans *marked, struct pl_diag *d) {
    const struct pl_chat_request r = o->request;
    PL_TRY(render_with_parts(o, c, out, marked, d));
    const uint64_t cost = out->len + PL_CHAT_MESSAGE_COST * (uint64_t)r.messages.list->n;
    o->spent = 0;
    o->budget = LEAST_BUDGET + BUDGET_RATIO * cost;
    return PL_ERR_OK;
}

pl_err pl_chat_own_render(struct pl_chat_own *o, struct pl_conversation *c, const bool *wanted,
                          struct pl_chat_text *out, bool *ends_loose, struct pl_diag *d) {
    bool tools = o->request.tools.kind == PL_JINJA_LIST;
    const struct pl_jinja *program = pl_chat_program_for(&o->program, tools);
    bool marks = program && pl_jinja_marks_answers(program);
    struct turn_rule rules[2] = {{0}, {0}}; /* for answers, and for others */
    if (!pl_chat_reserve_spans(out, c->n) || !reserve_turns(o, c->n)) return pl_chat_own_no_room(d);
    (void)pl_conversation_messages(c);
    PL_TRY(render_whole(o, c, &out->text, marks ? &o->marked : NULL, d));
    PL_TRY(pl_chat_own_check(o, c, &out->text, d));
    *ends_loose = !marks;
    if (marks) PL_TRY(take_marked(o, c, out, d));
    for (size_t i = 0; i < c->n; i++) {
        const bool answer = c->messages[i].role == PL_CHAT_ASSISTANT;
        if (wanted[i] && !(marks && answer))
            PL_TRY(find_span(o, c, i, &out->text, &rules[!answer], &out->spans[i], d));
    }
    return PL_ERR_OK;
}
