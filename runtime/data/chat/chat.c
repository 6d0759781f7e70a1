/* chat.c - renders conversations by the rows of templates.c. */
#include "runtime/data/chat/chat.h"
#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "runtime/data/chat/render.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void pl_chat_text_finish(struct pl_chat_text *t) {
    pl_text_finish(&t->text);
    free(t->spans);
    *t = (struct pl_chat_text){0};
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
