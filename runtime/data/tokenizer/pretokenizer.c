/* pretokenizer.c - the steps that cut text into words, each calling the next for every piece. */
#include "runtime/data/tokenizer/pretokenizer.h"
#include "runtime/data/tokenizer/punctuation.h"
#include "runtime/data/tokenizer/utf8.h"

#include <string.h>

void pl_pretokenizer_finish(struct pl_pretokenizer *p) {
    for (uint32_t i = 0; i < p->n; i++)
        pl_pattern_destroy(&p->steps[i].pattern);
    *p = (struct pl_pretokenizer){0};
}

void pl_pretokenizer_scratch_finish(struct pl_pretokenizer_scratch *s) {
    for (size_t i = 0; i < PL_PRETOKENIZER_MOST_STEPS; i++)
        pl_span_buf_finish(&s->bufs[i]);
}

struct walk {
    const struct pl_pretokenizer *p;
    struct pl_pretokenizer_scratch *s;
    struct pl_pattern_scratch *ps;
    pl_word_fn take;
    void *ctx;
    struct pl_diag *d;
};

static pl_err run_from(const struct walk *w, uint32_t step, const struct pl_span *in);

/* Hands bytes [from, to) of `in` to the step after `step`. */
static pl_err hand_on(const struct walk *w, uint32_t step, const struct pl_span *in, size_t from,
                      size_t to) {
    struct pl_span part = pl_span_slice(in, from, to);
    return part.n ? run_from(w, step + 1, &part) : PL_ERR_OK;
}

/* Matches and what lies between them come one after the other and are joined by the behaviour. */
struct joiner {
    const struct walk *w;
    uint32_t step;
    const struct pl_span *in;
    bool held;       /* [from, to) waits for its neighbour */
    bool last_match; /* the part before was a match */
    size_t from, to;
};

static pl_err release(struct joiner *j) {
    if (!j->held) return PL_ERR_OK;
    j->held = false;
    return hand_on(j->w, j->step, j->in, j->from, j->to);
}

/* True if a part belongs to the held one before it. */
static bool joins(const struct joiner *j, bool match) {
    if (!j->held) return false;
    switch (j->w->p->steps[j->step].behavior) {
    case PL_SPLIT_CONTIGUOUS:
        return match == j->last_match;
    case PL_SPLIT_MERGED_WITH_PREVIOUS:
        return match && !j->last_match;
    case PL_SPLIT_MERGED_WITH_NEXT:
        return !match && j->last_match;
    default:
        return false;
    }
}

static pl_err join(struct joiner *j, size_t from, size_t to, bool match) {
    enum pl_split_behavior behavior = j->w->p->steps[j->step].behavior;
    if (behavior == PL_SPLIT_ISOLATED || behavior == PL_SPLIT_REMOVED)
        return behavior == PL_SPLIT_REMOVED && match ? PL_ERR_OK
                                                     : hand_on(j->w, j->step, j->in, from, to);
    if (joins(j, match)) {
        j->to = to;
    } else {
        PL_TRY(release(j));
        j->held = true;
        j->from = from;
        j->to = to;
    }
    j->last_match = match;
    return PL_ERR_OK;
}

static pl_err split_by_pattern(const struct walk *w, uint32_t step, const struct pl_span *in) {
    const struct pl_pretokenizer_step *t = &w->p->steps[step];
    struct joiner j = {.w = w, .step = step, .in = in};
    struct pl_pattern_walk m = {0};
    size_t done = 0;
    for (;;) {
        PL_TRY(pl_pattern_next(t->pattern, w->ps, in->s, in->n, &m, w->d));
        size_t until = m.found ? m.begin : in->n;
        if (until > done) PL_TRY(join(&j, done, until, t->invert));
        if (!m.found) return release(&j);
        PL_TRY(join(&j, m.begin, m.end, !t->invert));
        done = m.end;
    }
}

/* Every character of the class is a match. */
static pl_err split_by_class(const struct walk *w, uint32_t step, const struct pl_span *in,
                             bool (*is_match)(uint32_t c)) {
    struct joiner j = {.w = w, .step = step, .in = in};
    size_t done = 0;
    uint32_t c;
    for (size_t i = 0, n; i < in->n; i += n) {
        n = pl_utf8_next(in->s + i, &c);
        if (!is_match(c)) continue;
        if (i > done) PL_TRY(join(&j, done, i, false));
        PL_TRY(join(&j, i, i + n, true));
        done = i + n;
    }
    if (in->n > done) PL_TRY(join(&j, done, in->n, false));
    return release(&j);
}

enum char_class { CLASS_SPACE, CLASS_WORD, CLASS_OTHER };

static enum char_class class_at(const char *s, size_t *n) {
    uint32_t c;
    *n = pl_utf8_next(s, &c);
    return pl_utf8_is_word(c) ? CLASS_WORD : pl_utf8_is_space(c) ? CLASS_SPACE : CLASS_OTHER;
}

/* The matches of the library's `\w+|[^\w\s]+`, inverted and removed. */
static pl_err split_words(const struct walk *w, uint32_t step, const struct pl_span *in) {
    for (size_t from = 0, to, n; from < in->n; from = to) {
        const enum char_class class = class_at(in->s + from, &n);
        for (to = from + n; to < in->n && class_at(in->s + to, &n) == class;)
            to += n;
        if (class != CLASS_SPACE) PL_TRY(hand_on(w, step, in, from, to));
    }
    return PL_ERR_OK;
}

static pl_err changed(const struct walk *w, const struct pl_span_buf *b) {
    if (!b->failed) return PL_ERR_OK;
    return pl_host_oom(w->d, "the words of a text");
}

/* Cuts before every replacement character; all but the first word begin with it. runs_stay: not
 * between two of them, so that a run stays with the word after it. */
static pl_err split_before(const struct walk *w, uint32_t step, const struct pl_span *in,
                           bool runs_stay) {
    const struct pl_pretokenizer_step *t = &w->p->steps[step];
    size_t done = 0;
    for (size_t i = 0; i < in->n;) {
        const char *hit = memmem(in->s + i, in->n - i, t->replacement, t->n_replacement);
        if (!hit) break;
        size_t at = (size_t)(hit - in->s);
        if (at > done && (at > i || !runs_stay)) {
            PL_TRY(hand_on(w, step, in, done, at));
            done = at;
        }
        i = at + t->n_replacement;
    }
    return hand_on(w, step, in, done, in->n);
}

static pl_err run_metaspace(const struct walk *w, uint32_t step, const struct pl_span *in) {
    const struct pl_pretokenizer_step *t = &w->p->steps[step];
    struct pl_span_buf *b = &w->s->bufs[step];
    bool prepends = t->prepend == PL_PREPEND_ALWAYS ||
                    (t->prepend == PL_PREPEND_FIRST && pl_span_origin(in, 0) == 0);
    b->n = 0;
    const bool marked =
        in->n >= t->n_replacement && memcmp(in->s, t->replacement, t->n_replacement) == 0;
    if (prepends && in->s[0] != ' ' && !marked)
        pl_span_buf_add(b, t->replacement, t->n_replacement, pl_span_origin(in, 0));
    for (size_t i = 0; i < in->n;) {
        const char *space = memchr(in->s + i, ' ', in->n - i);
        size_t until = space ? (size_t)(space - in->s) : in->n;
        struct pl_span kept = pl_span_slice(in, i, until);
        pl_span_buf_copy(b, &kept);
        if (space) pl_span_buf_add(b, t->replacement, t->n_replacement, pl_span_origin(in, until));
        i = until + 1;
    }
    PL_TRY(changed(w, b));
    struct pl_span out = pl_span_of(b);
    return t->split ? split_before(w, step, &out, false) : run_from(w, step + 1, &out);
}

static pl_err run_byte_level(const struct walk *w, uint32_t step, const struct pl_span *in) {
    struct pl_span_buf *b = &w->s->bufs[step];
    if (in->s[0] == ' ') return run_from(w, step + 1, in);
    b->n = 0;
    pl_span_buf_add(b, " ", 1, pl_span_origin(in, 0));
    pl_span_buf_copy(b, in);
    PL_TRY(changed(w, b));
    struct pl_span out = pl_span_of(b);
    return run_from(w, step + 1, &out);
}

static pl_err run_from(const struct walk *w, uint32_t step, const struct pl_span *in) {
    if (step == w->p->n) return w->take(w->ctx, in, w->d);
    switch (w->p->steps[step].kind) {
    case PL_PRETOKENIZER_SPLIT:
        return split_by_pattern(w, step, in);
    case PL_PRETOKENIZER_DIGITS:
        return split_by_class(w, step, in, pl_utf8_is_numeric);
    case PL_PRETOKENIZER_PUNCTUATION:
        return split_by_class(w, step, in, pl_is_punctuation);
    case PL_PRETOKENIZER_SPACES:
        return split_by_class(w, step, in, pl_utf8_is_space);
    case PL_PRETOKENIZER_WORDS:
        return split_words(w, step, in);
    case PL_PRETOKENIZER_METASPACE:
        return run_metaspace(w, step, in);
    case PL_PRETOKENIZER_BYTE_LEVEL:
        return run_byte_level(w, step, in);
    case PL_PRETOKENIZER_BOUNDARY:
        return split_before(w, step, in, true);
    }
    return PL_ERR_OK;
}

pl_err pl_pretokenizer_run(const struct pl_pretokenizer *p, struct pl_pretokenizer_scratch *s,
                           struct pl_pattern_scratch *ps, const struct pl_span *in, pl_word_fn take,
                           void *ctx, struct pl_diag *d) {
    struct walk w = {p, s, ps, take, ctx, d};
    return run_from(&w, 0, in);
}
