/* chat.c - renders conversations by the rows of templates.c. */
#include "runtime/data/chat/chat.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/data/chat/render.h"
#include "runtime/data/jinja/chars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *pl_chat_role_name(enum pl_chat_role role) {
    static const char *const names[] = {"system", "user", "assistant"};
    return names[role];
}

void pl_chat_text_finish(struct pl_chat_text *t) {
    pl_text_finish(&t->text);
    free(t->spans);
    *t = (struct pl_chat_text){0};
}

/* --- dates ----------------------------------------------------------------------------------- */
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

static int days_of(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

bool pl_chat_date_parse(const char *text, struct pl_chat_date *out) {
    static const char form[] = "dddd-dd-dd";
    int v[3] = {0, 0, 0}, part = 0;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        if (form[i] == '-') {
            if (text[i] != '-') return false;
            part++;
        } else {
            if (text[i] < '0' || text[i] > '9') return false;
            v[part] = v[part] * 10 + (text[i] - '0');
        }
    }
    if (text[sizeof form - 1] || v[0] < 1 || v[1] < 1 || v[1] > 12) return false;
    if (v[2] < 1 || v[2] > days_of(v[0], v[1])) return false;
    *out = (struct pl_chat_date){v[0], v[1], v[2]};
    return true;
}

struct pl_chat_date pl_chat_today(void) {
    time_t now = time(NULL);
    struct tm tm;
    if (!localtime_r(&now, &tm)) return (struct pl_chat_date){1970, 1, 1};
    return (struct pl_chat_date){tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday};
}

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

/* --- rendering ------------------------------------------------------------------------------- */
static void put_message(struct pl_chat_render *r, size_t i) {
    const struct pl_chat_template *t = r->t;
    bool first_system = i == 0 && r->m[i].role == PL_CHAT_SYSTEM && t->first_system.before;
    if (i && t->between) pl_chat_put(r, t->between);
    if (t->special && t->special(r, i)) return;
    pl_chat_put_turn(r, first_system ? &t->first_system : &t->turn[r->m[i].role], i,
                     pl_chat_content(&r->m[i]));
}

static void put_all(struct pl_chat_render *r) {
    const struct pl_chat_template *t = r->t;
    pl_chat_put(r, t->open);
    if (t->begin) t->begin(r);
    if (t->default_system && r->m[0].role != PL_CHAT_SYSTEM) {
        const struct pl_chat_turn *turn =
            t->first_system.before ? &t->first_system : &t->turn[PL_CHAT_SYSTEM];
        pl_chat_put(r, turn->before);
        pl_chat_put(r, t->default_system);
        pl_chat_put(r, turn->end);
        pl_chat_put(r, turn->after);
    }
    for (size_t i = 0; i < r->n; i++)
        put_message(r, i);
    const char *header = r->reasons || !t->generate_plain ? t->generate : t->generate_plain;
    if (r->o->generate && header) pl_chat_put(r, header);
    if (!r->o->generate && t->close) pl_chat_put(r, t->close);
}

bool pl_chat_reserve_spans(struct pl_chat_text *out, size_t n) {
    uint64_t bytes;
    if (n > out->cap_spans) {
        struct pl_chat_span *spans = NULL;
        if (pl_u64_mul(n, sizeof *spans, &bytes) && bytes <= SIZE_MAX)
            spans = pl_realloc(out->spans, (size_t)bytes);
        if (!spans) return false;
        out->spans = spans;
        out->cap_spans = n;
    }
    if (n) memset(out->spans, 0, n * sizeof *out->spans);
    out->n_spans = n;
    return true;
}

pl_err pl_chat_render(const struct pl_chat_template *t, const struct pl_chat_options *o,
                      const struct pl_chat_message *messages, size_t n, struct pl_chat_text *out,
                      struct pl_diag *d) {
    out->text.len = 0;
    out->text.failed = false;
    out->n_spans = 0;
    if (!n) return pl_diag_set(d, PL_ERR_DATA_TEMPLATE, "a conversation without messages");
    if (!pl_chat_reserve_spans(out, n))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for %zu messages", n);
    struct pl_chat_render r = {t,     o, messages, n, &out->text, out->spans, .reasons = t->reasons,
                               .d = d};
    if (t->check) PL_TRY(t->check(&r));
    put_all(&r);
    if (out->text.failed) return pl_host_oom(d, "a rendered conversation");
    return PL_ERR_OK;
}

/* --- the table ------------------------------------------------------------------------------- */
const struct pl_chat_template *pl_chat_find(const char *name) {
    for (size_t i = 0; i < pl_chat_table_rows; i++)
        if (strcmp(pl_chat_table[i].name, name) == 0) return &pl_chat_table[i];
    return NULL;
}

const struct pl_chat_template *pl_chat_nth(size_t i) {
    return i < pl_chat_table_rows ? &pl_chat_table[i] : NULL;
}

size_t pl_chat_number(const struct pl_chat_template *t) {
    return (size_t)(t - pl_chat_table);
}

const char *pl_chat_name(const struct pl_chat_template *t) {
    return t->name;
}

void pl_chat_list_names(struct pl_text *out) {
    for (size_t i = 0; i < pl_chat_table_rows; i++)
        pl_text_addf(out, "%s%s", i ? ", " : "", pl_chat_table[i].name);
}

const struct pl_chat_template *pl_chat_without_reasoning(const struct pl_chat_template *t) {
    char name[64];
    snprintf(name, sizeof name, "%s_nothink", t->name);
    return pl_chat_find(name);
}

const char *pl_chat_turn_end(const struct pl_chat_template *t) {
    const char *end = t->turn[PL_CHAT_ASSISTANT].end;
    return strchr(end, *PL_CHAT_EOS) ? t->eos : end;
}

bool pl_chat_writes_eos(const struct pl_chat_template *t) {
    return strchr(t->turn[PL_CHAT_ASSISTANT].end, *PL_CHAT_EOS) ||
           (t->close && strchr(t->close, *PL_CHAT_EOS));
}

bool pl_chat_shows_date(const struct pl_chat_template *t) {
    return t->date != PL_CHAT_DATE_NONE;
}
