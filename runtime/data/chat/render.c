/* render.c - what the rows of templates.c build texts with. */
#include "runtime/data/chat/render.h"
#include "runtime/data/jinja/chars.h"

#include <string.h>

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

/* Month names are English whatever the locale, as the templates' Python runs in the C locale. */
static void put_date(struct pl_chat_render *r) {
    struct pl_chat_date d = r->o->date.year ? r->o->date : pl_chat_today();
    const char *month = months[d.month - 1];
    if (r->t->date == PL_CHAT_DATE_ISO)
        pl_text_addf(r->text, "%04d-%02d-%02d", d.year, d.month, d.day);
    else
        pl_text_addf(r->text, "%02d %.*s %04d", d.day, r->t->date == PL_CHAT_DATE_LONG ? 9 : 3,
                     month, d.year);
}

/* --- building blocks ------------------------------------------------------------------------- */
void pl_chat_put_piece(struct pl_chat_render *r, struct pl_chat_piece p) {
    pl_text_addn(r->text, p.s, p.n);
}

void pl_chat_put(struct pl_chat_render *r, const char *literal) {
    static const char marks[] = PL_CHAT_BOS PL_CHAT_EOS PL_CHAT_DATE;
    while (*literal) {
        size_t plain = strcspn(literal, marks);
        pl_text_addn(r->text, literal, plain);
        literal += plain;
        if (!*literal) return;
        if (*literal == *PL_CHAT_BOS)
            pl_text_add(r->text, r->o->bos ? r->o->bos : r->t->bos);
        else if (*literal == *PL_CHAT_EOS)
            pl_text_add(r->text, r->o->eos ? r->o->eos : r->t->eos);
        else
            put_date(r);
        literal++;
    }
}

void pl_chat_put_turn(struct pl_chat_render *r, const struct pl_chat_turn *turn, size_t i,
                      struct pl_chat_piece content) {
    if (!turn->before) {
        r->spans[i].lost = true;
        return;
    }
    pl_chat_put(r, turn->before);
    r->spans[i].begin = r->text->len;
    if (turn->lead) pl_chat_put(r, turn->lead);
    pl_chat_put_piece(r, turn->strip ? pl_chat_strip(content) : content);
    pl_chat_put(r, turn->end);
    r->spans[i].end = r->text->len;
    pl_chat_put(r, turn->after);
}

struct pl_chat_piece pl_chat_rstrip(struct pl_chat_piece p) {
    for (size_t n; (n = pl_jinja_space_at(p.s, p.n, true)) != 0;)
        p.n -= n;
    return p;
}

struct pl_chat_piece pl_chat_strip(struct pl_chat_piece p) {
    for (size_t n; (n = pl_jinja_space_at(p.s, p.n, false)) != 0; p.n -= n)
        p.s += n;
    return pl_chat_rstrip(p);
}

struct pl_chat_piece pl_chat_strip_lines(struct pl_chat_piece p, bool left, bool right) {
    for (; left && p.n && p.s[0] == '\n'; p.n--)
        p.s++;
    while (right && p.n && p.s[p.n - 1] == '\n')
        p.n--;
    return p;
}

ptrdiff_t pl_chat_find_word(struct pl_chat_piece p, const char *word) {
    const char *at = p.n ? memmem(p.s, p.n, word, strlen(word)) : NULL;
    return at ? at - p.s : -1;
}

ptrdiff_t pl_chat_find_last_word(struct pl_chat_piece p, const char *word) {
    size_t n = strlen(word);
    for (size_t at = p.n; at >= n; at--)
        if (memcmp(p.s + at - n, word, n) == 0) return (ptrdiff_t)(at - n);
    return -1;
}

void pl_chat_add_without(struct pl_text *out, struct pl_chat_piece p, const char *word) {
    for (ptrdiff_t at; (at = pl_chat_find_word(p, word)) >= 0;) {
        size_t past = (size_t)at + strlen(word);
        pl_text_addn(out, p.s, (size_t)at);
        p.s += past;
        p.n -= past;
    }
    pl_text_addn(out, p.s, p.n);
}

pl_err pl_chat_refuse(struct pl_chat_render *r, size_t i, const char *why) {
    return pl_diag_set(r->d, PL_ERR_DATA_TEMPLATE, "template %s refuses message %zu (%s): %s",
                       r->t->name, i, pl_chat_role_name(r->m[i].role), why);
}
