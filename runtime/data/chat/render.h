/* render.h - the parts of a chat template; shared by the table and the renderer alone.
 *
 * In: a row of the table.  Out: text and spans.  Needs: message.h.
 *   Literals of a row may hold the marks below; each stands for a text that is known when
 *   rendering. A row whose turns are header, content, end needs no code; `special` takes over
 *   single messages of the others.
 * Use: see templates.c. */
#ifndef PL_RUNTIME_DATA_CHAT_RENDER_H
#define PL_RUNTIME_DATA_CHAT_RENDER_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "runtime/data/chat/message.h"

#define PL_CHAT_BOS  "\1"
#define PL_CHAT_EOS  "\2"
#define PL_CHAT_DATE "\3"

/* One message as text: before | lead content end | after; the middle part is its span. */
struct pl_chat_turn {
    const char *before; /* NULL: the template leaves such messages out */
    const char *lead;   /* NULL: none */
    bool strip;         /* applies Python's str.strip() to the content */
    const char *end, *after;
};

enum pl_chat_date_style {
    PL_CHAT_DATE_NONE,
    PL_CHAT_DATE_ABBREVIATED, /* strftime %d %b %Y: 02 Jan 2025 */
    PL_CHAT_DATE_LONG,        /* %d %B %Y: 02 January 2025 */
    PL_CHAT_DATE_ISO,         /* %Y-%m-%d: 2025-01-02 */
};

struct pl_chat_render {
    const struct pl_chat_template *t;
    const struct pl_chat_options *o;
    const struct pl_chat_message *m;
    size_t n;
    struct pl_text *text;
    struct pl_chat_span *spans; /* [n] */
    bool reasons;               /* initially as the row says */
    size_t last_question;       /* for rows that keep reasoning only after it */
    struct pl_diag *d;
};

struct pl_chat_template {
    const char *name;
    const char *bos, *eos; /* tokens of the model that the template belongs to */
    const char *open;      /* begins every text */
    /* system content for a conversation without one, put before it; NULL = none */
    const char *default_system;
    struct pl_chat_turn first_system; /* `before` NULL: like any other system message */
    struct pl_chat_turn turn[PL_CHAT_ROLES];
    const char *between;        /* two messages; NULL = nothing */
    const char *close;          /* ends a text that no answer follows; NULL = nothing */
    const char *generate;       /* the header of the answer that follows; NULL = nothing */
    const char *generate_plain; /* the header of an answer without reasoning */
    enum pl_chat_date_style date;
    bool reasons; /* answers begin with reasoning unless the conversation says otherwise */
    const char *program; /* in Jinja, for a row with code; NULL: row_program.c writes it */
    pl_err (*check)(struct pl_chat_render *r);           /* NULL: every order is valid */
    void (*begin)(struct pl_chat_render *r);             /* after `open`; NULL = nothing */
    bool (*special)(struct pl_chat_render *r, size_t i); /* false: message i is an ordinary turn */
};

extern const struct pl_chat_template pl_chat_table[];
extern const size_t pl_chat_table_rows;

/* --- building blocks ------------------------------------------------------------------------- */
struct pl_chat_piece {
    const char *s;
    size_t n;
};
static inline struct pl_chat_piece pl_chat_content(const struct pl_chat_message *m) {
    return (struct pl_chat_piece){m->content, m->n};
}
/* Appends a literal, marks replaced. */
void pl_chat_put(struct pl_chat_render *r, const char *literal);
void pl_chat_put_piece(struct pl_chat_render *r, struct pl_chat_piece p);
/* Appends one ordinary turn around `content`; message `i` gets the span. */
void pl_chat_put_turn(struct pl_chat_render *r, const struct pl_chat_turn *turn, size_t i,
                      struct pl_chat_piece content);
/* str.strip() and str.rstrip() of Python: they strip every character with White_Space and U+001C to
 * U+001F. */
struct pl_chat_piece pl_chat_strip(struct pl_chat_piece p);
struct pl_chat_piece pl_chat_rstrip(struct pl_chat_piece p);
/* str.strip('\n'), on the chosen sides. */
struct pl_chat_piece pl_chat_strip_lines(struct pl_chat_piece p, bool left, bool right);
/* Return the first and the last position of `word`, -1 = it is absent. */
ptrdiff_t pl_chat_find_word(struct pl_chat_piece p, const char *word);
ptrdiff_t pl_chat_find_last_word(struct pl_chat_piece p, const char *word);
/* Appends p without every `word` to *out (str.replace(word, "")). */
void pl_chat_add_without(struct pl_text *out, struct pl_chat_piece p, const char *word);
pl_err pl_chat_refuse(struct pl_chat_render *r, size_t i, const char *why);

#endif
