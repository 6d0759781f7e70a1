/* tokenizer.c - encoding and decoding by the parts of an open tokenizer. */
#include "runtime/data/tokenizer/tokenizer.h"
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_MOST_BYTES ((size_t)1 << 30)

struct pl_tokenizer_scratch {
    struct pl_bpe_scratch bpe;
    struct pl_unigram_scratch unigram;
    struct pl_normalizer_scratch normalizer;
    struct pl_pretokenizer_scratch pretokenizer;
    struct pl_pattern_scratch *patterns;
};

void pl_tokenizer_close(struct pl_tokenizer **t) {
    struct pl_tokenizer *k = *t;
    *t = NULL;
    if (!k) return;
    pl_bpe_finish(&k->bpe);
    pl_unigram_finish(&k->unigram);
    pl_vocab_finish(&k->model);
    pl_vocab_finish(&k->bytes);
    pl_vocab_finish(&k->added);
    pl_vocab_finish(&k->shown);
    pl_added_set_finish(&k->raw);
    pl_added_set_finish(&k->normalized);
    pl_normalizer_finish(&k->normalizer);
    pl_pretokenizer_finish(&k->pretokenizer);
    pl_piece_decoder_finish(&k->decoder);
    free(k->flags);
    pl_text_finish(&k->notes);
    pl_tokenizer_free_templates(k);
    free(k);
}

pl_err pl_tokenizer_scratch_create(const struct pl_tokenizer *t, struct pl_tokenizer_scratch **out,
                                   struct pl_diag *d) {
    (void)t;
    struct pl_tokenizer_scratch *s = pl_calloc(1, sizeof *s);
    *out = s;
    if (!s) return pl_host_oom(d, "the buffers of a tokenizer");
    pl_err err = pl_pattern_scratch_create(&s->patterns, d);
    if (err != PL_ERR_OK) pl_tokenizer_scratch_destroy(out);
    return err;
}

void pl_tokenizer_scratch_destroy(struct pl_tokenizer_scratch **out) {
    struct pl_tokenizer_scratch *s = *out;
    *out = NULL;
    if (!s) return;
    pl_bpe_scratch_finish(&s->bpe);
    pl_unigram_scratch_finish(&s->unigram);
    pl_normalizer_scratch_finish(&s->normalizer);
    pl_pretokenizer_scratch_finish(&s->pretokenizer);
    pl_pattern_scratch_destroy(&s->patterns);
    free(s);
}

/* --- encoding --------------------------------------------------------------------------------- */

struct encoder {
    const struct pl_tokenizer *t;
    struct pl_tokenizer_scratch *s;
    struct pl_token_list *out;
    struct pl_diag *d;
};

static pl_err add_id(struct encoder *e, int32_t id, uint64_t start) {
    if (!pl_token_list_reserve(e->out, 1)) return pl_host_oom(e->d, "tokens");
    pl_token_list_push(e->out, id, start);
    return PL_ERR_OK;
}

static pl_err take_word(void *ctx, const struct pl_span *word, struct pl_diag *d) {
    struct encoder *e = ctx;
    if (e->t->unigram.pieces)
        return pl_unigram_encode(&e->t->unigram, &e->s->unigram, word, e->out, d);
    return pl_bpe_encode(&e->t->bpe, &e->s->bpe, word, e->out, d);
}

static pl_err cut_words(struct encoder *e, const struct pl_span *part) {
    if (!part->n) return PL_ERR_OK;
    return pl_pretokenizer_run(&e->t->pretokenizer, &e->s->pretokenizer, e->s->patterns, part,
                               take_word, e, e->d);
}

/* Finds the tokens of `set` in `text`; what lies between them goes to `rest`. */
static pl_err find_added(struct encoder *e, const struct pl_added_set *set,
                         const struct pl_span *text,
                         pl_err (*rest)(struct encoder *e, const struct pl_span *part)) {
    struct pl_added_walk w = {0};
    size_t done = 0;
    struct pl_span part;
    while (pl_added_next(set, text->s, text->n, &w)) {
        if (w.begin > done) {
            part = pl_span_slice(text, done, w.begin);
            PL_TRY(rest(e, &part));
        }
        /* a token inside of the space that the one before took still stands */
        size_t at = w.begin < text->n ? w.begin : text->n - 1;
        PL_TRY(add_id(e, w.token->id, pl_span_origin(text, at)));
        done = w.end;
    }
    part = pl_span_slice(text, done, text->n);
    return part.n ? rest(e, &part) : PL_ERR_OK;
}

static pl_err normalize(struct encoder *e, const struct pl_span *part) {
    struct pl_span changed;
    PL_TRY(pl_normalizer_run(&e->t->normalizer, &e->s->normalizer, e->s->patterns, part, &changed,
                             e->d));
    return changed.n ? find_added(e, &e->t->normalized, &changed, cut_words) : PL_ERR_OK;
}

static pl_err add_around(struct encoder *e, const int32_t *ids, uint32_t n, uint64_t start) {
    for (uint32_t i = 0; i < n; i++)
        PL_TRY(add_id(e, ids[i], start));
    return PL_ERR_OK;
}

pl_err pl_tokenizer_encode(const struct pl_tokenizer *t, struct pl_tokenizer_scratch *s,
                           const char *text, size_t n, bool special, struct pl_token_list *out,
                           struct pl_diag *d) {
    struct encoder e = {t, s, out, d};
    struct pl_span all = {.s = text, .n = n};
    out->n = out->all = 0;
    if (n > TEXT_MOST_BYTES)
        return pl_diag_set(d, PL_ERR_TOKENIZER_INPUT, "a text of %zu bytes; at most 1 GiB", n);
    size_t valid = pl_utf8_valid_bytes(text, n);
    if (valid < n)
        return pl_diag_set(d, PL_ERR_TOKENIZER_INPUT, "the text is not UTF-8 at byte %zu", valid);
    pl_pattern_begin_text(s->patterns, n);
    if (special) PL_TRY(add_around(&e, t->around.before, t->around.n_before, 0));
    if (n) PL_TRY(find_added(&e, &t->raw, &all, normalize));
    if (special) PL_TRY(add_around(&e, t->around.after, t->around.n_after, n));
    return PL_ERR_OK;
}

/* --- decoding --------------------------------------------------------------------------------- */

pl_err pl_tokenizer_decode(const struct pl_tokenizer *t, const int32_t *ids, uint64_t n,
                           bool skip_special, struct pl_text *out, struct pl_diag *d) {
    struct pl_piece_list list = {0};
    pl_err err = PL_ERR_OK;
    for (uint64_t i = 0; i < n; i++) {
        size_t length;
        const char *s = pl_vocab_piece(&t->shown, ids[i], &length);
        if (!s) s = pl_vocab_piece(&t->added, ids[i], &length);
        if (!s) s = pl_vocab_piece(&t->model, ids[i], &length);
        if (!s) {
            err = pl_diag_set(d, PL_ERR_TOKENIZER_INPUT, "id %ld, number %llu, is no token",
                              (long)ids[i], (unsigned long long)i);
            goto out;
        }
        bool known = (uint32_t)ids[i] < t->n_flags;
        if (skip_special && known && t->flags[ids[i]] & PL_TOKEN_SKIPPED) continue;
        pl_piece_list_add(&list, s, length);
    }
    err = pl_piece_decoder_run(&t->decoder, &list, out, d);
out:
    pl_piece_list_finish(&list);
    return err;
}

/* --- questions -------------------------------------------------------------------------------- */

uint64_t pl_tokenizer_size(const struct pl_tokenizer *t) {
    return t->model.size > t->added.size ? t->model.size : t->added.size;
}

uint64_t pl_tokenizer_file_size(const struct pl_tokenizer *t) {
    return t->n_of_file ? t->n_of_file : pl_tokenizer_size(t);
}

const char *pl_tokenizer_notes(const struct pl_tokenizer *t) {
    return pl_text_str(&t->notes);
}

int64_t pl_tokenizer_id(const struct pl_tokenizer *t, const char *content) {
    size_t n = strlen(content);
    int32_t id = pl_vocab_find(&t->added, content, n);
    return id >= 0 ? id : pl_vocab_find(&t->model, content, n);
}

const char *pl_tokenizer_piece(const struct pl_tokenizer *t, int32_t id) {
    const char *s = pl_vocab_piece(&t->added, id, NULL);
    return s ? s : pl_vocab_piece(&t->model, id, NULL);
}

bool pl_tokenizer_is_special(const struct pl_tokenizer *t, int32_t id) {
    return id >= 0 && (uint32_t)id < t->n_flags && t->flags[id] & PL_TOKEN_SPECIAL;
}

int64_t pl_tokenizer_bos(const struct pl_tokenizer *t) {
    return t->bos;
}

int64_t pl_tokenizer_eos(const struct pl_tokenizer *t) {
    return t->eos;
}
