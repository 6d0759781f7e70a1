/* normalizer.c - the steps of a normalizer. */
#include "runtime/data/tokenizer/normalizer.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

void pl_normalizer_finish(struct pl_normalizer *n) {
    for (uint32_t i = 0; i < n->n; i++) {
        free(n->steps[i].content);
        pl_pattern_destroy(&n->steps[i].pattern);
    }
    *n = (struct pl_normalizer){0};
}

void pl_normalizer_scratch_finish(struct pl_normalizer_scratch *s) {
    pl_span_buf_finish(&s->bufs[0]);
    pl_span_buf_finish(&s->bufs[1]);
    pl_form_scratch_finish(&s->form);
}

static pl_err replace(const struct pl_normalizer_step *step, struct pl_span_buf *to,
                      struct pl_pattern_scratch *ps, const struct pl_span *in, struct pl_diag *d) {
    struct pl_pattern_walk w = {0};
    size_t done = 0;
    for (;;) {
        PL_TRY(pl_pattern_next(step->pattern, ps, in->s, in->n, &w, d));
        size_t until = w.found ? w.begin : in->n;
        struct pl_span kept = pl_span_slice(in, done, until);
        pl_span_buf_copy(to, &kept);
        if (!w.found) return PL_ERR_OK;
        uint64_t origin =
            w.begin < in->n ? pl_span_origin(in, w.begin) : pl_span_origin(in, in->n - 1);
        pl_span_buf_add(to, step->content, step->n_content, origin);
        done = w.end;
    }
}

static struct pl_span strip(const struct pl_normalizer_step *step, const struct pl_span *in) {
    size_t from = 0, to = in->n;
    uint32_t c;
    while (step->left && from < to) {
        size_t n = pl_utf8_next(in->s + from, &c);
        if (!pl_utf8_is_space(c)) break;
        from += n;
    }
    while (step->right && to > from) {
        size_t at = pl_utf8_before(in->s, to);
        pl_utf8_next(in->s + at, &c);
        if (!pl_utf8_is_space(c)) break;
        to = at;
    }
    return pl_span_slice(in, from, to);
}

static bool is_ascii(const struct pl_span *t) {
    for (size_t i = 0; i < t->n; i++)
        if ((unsigned char)t->s[i] >= 0x80) return false;
    return true;
}

static const unsigned forms[] = {
    [PL_NORMALIZER_NFC] = PL_FORM_COMPOSE,
    [PL_NORMALIZER_NFD] = 0,
    [PL_NORMALIZER_NFKC] = PL_FORM_COMPOSE | PL_FORM_COMPAT,
    [PL_NORMALIZER_NFKD] = PL_FORM_COMPAT,
};

static pl_err run_step(const struct pl_normalizer_step *step, struct pl_normalizer_scratch *s,
                       struct pl_span_buf *to, struct pl_pattern_scratch *ps, struct pl_span *t,
                       struct pl_diag *d) {
    to->n = 0;
    switch (step->kind) {
    case PL_NORMALIZER_STRIP:
        *t = strip(step, t);
        return PL_ERR_OK;
    case PL_NORMALIZER_REPLACE:
        PL_TRY(replace(step, to, ps, t, d));
        break;
    case PL_NORMALIZER_PREPEND:
        pl_span_buf_add(to, step->content, step->n_content, pl_span_origin(t, 0));
        pl_span_buf_copy(to, t);
        break;
    default:
        if (is_ascii(t)) return PL_ERR_OK;
        if (!pl_unicode_form(to, t, forms[step->kind], &s->form)) to->failed = true;
    }
    if (to->failed) return pl_host_oom(d, "normalized text");
    *t = pl_span_of(to);
    return PL_ERR_OK;
}

pl_err pl_normalizer_run(const struct pl_normalizer *n, struct pl_normalizer_scratch *s,
                         struct pl_pattern_scratch *ps, const struct pl_span *in,
                         struct pl_span *out, struct pl_diag *d) {
    size_t most = PL_NORMALIZER_MOST_GROWTH * (in->n + 256);
    unsigned turn = 0;
    *out = *in;
    for (uint32_t i = 0; i < n->n && out->n; i++) {
        struct pl_span_buf *to = &s->bufs[turn];
        PL_TRY(run_step(&n->steps[i], s, to, ps, out, d));
        if (out->s == to->s) turn ^= 1; /* a step may also leave the text where it was */
        if (out->n > most)
            return pl_diag_set(d, PL_ERR_TOKENIZER_INPUT, "the normalizer makes %zu bytes of %zu",
                               out->n, in->n);
    }
    return PL_ERR_OK;
}
