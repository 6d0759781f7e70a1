#include "runtime/data/tokenizer/unigram.h"

#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

#define NO_PIECE (-1)

/* --- pieces by their bytes -------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const struct pl_unigram_piece *x = a, *y = b;
    int order = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

void pl_unigram_sort(struct pl_unigram *u) {
    qsort(u->pieces, u->n, sizeof *u->pieces, by_bytes);
    uint32_t at = 0;
    while (at < u->n && !u->pieces[at].n) /* the empty piece is never found */
        at++;
    for (unsigned c = 0; c <= 256; c++) {
        while (c && at < u->n && (unsigned char)u->pieces[at].s[0] < c)
            at++;
        u->first[c] = at;
    }
}

void pl_unigram_finish(struct pl_unigram *u) {
    free(u->pieces);
    *u = (struct pl_unigram){0};
}

void pl_unigram_scratch_finish(struct pl_unigram_scratch *s) {
    free(s->ends);
    *s = (struct pl_unigram_scratch){0};
}

/* Pieces that begin with the bytes read so far. */
struct range {
    uint32_t low, high;
};

/* The first of `r` whose byte at `depth` is not below `c`; a piece that ends there is below all. */
static uint32_t bound(const struct pl_unigram *u, struct range r, size_t depth, unsigned c) {
    while (r.low < r.high) {
        uint32_t middle = r.low + (r.high - r.low) / 2;
        const struct pl_unigram_piece *p = &u->pieces[middle];
        if (p->n <= depth || (unsigned char)p->s[depth] < c)
            r.low = middle + 1;
        else
            r.high = middle;
    }
    return r.low;
}

static struct range narrow(const struct pl_unigram *u, struct range r, size_t depth, char byte) {
    unsigned c = (unsigned char)byte;
    if (!depth) return (struct range){u->first[c], u->first[c + 1]};
    return (struct range){bound(u, r, depth, c), bound(u, r, depth, c + 1)};
}

/* --- the best path ---------------------------------------------------------------------------- */

static void offer(struct pl_unigram_end *end, double score, uint32_t from, int32_t id) {
    if (end->id != NO_PIECE && !(score > end->score)) return;
    *end = (struct pl_unigram_end){score, from, id};
}

static pl_err offer_unknown(const struct pl_unigram *u, struct pl_unigram_end *end, double score,
                            uint32_t from, struct pl_diag *d) {
    if (u->unk >= 0 || (end->id != NO_PIECE && !(score > end->score))) {
        offer(end, score, from, u->unk);
        return PL_ERR_OK;
    }
    return pl_diag_set(d, PL_ERR_TOKENIZER_INPUT,
                       "the text has a character that is no piece, and the model no `unk_id`");
}

/* All pieces that begin at byte `from`. */
static pl_err extend(const struct pl_unigram *u, struct pl_unigram_end *ends, const char *text,
                     size_t n, size_t from, struct pl_diag *d) {
    double before = ends[from].score;
    size_t character = pl_utf8_length(text[from]);
    bool single = false;
    struct range r = {0, u->n};
    for (size_t depth = 0; from + depth < n;) {
        r = narrow(u, r, depth, text[from + depth]);
        if (r.low == r.high) break;
        depth++;
        const struct pl_unigram_piece *p = &u->pieces[r.low];
        if (p->n != depth) continue; /* the shortest is the first */
        offer(&ends[from + depth], p->score + before, (uint32_t)from, p->id);
        if (depth == character) single = true;
    }
    if (single) return PL_ERR_OK;
    return offer_unknown(u, &ends[from + character], u->unknown + before, (uint32_t)from, d);
}

/* Links that lead back are turned around: ends[i].link is where the piece that begins at i ends. */
static void turn_around(struct pl_unigram_end *ends, size_t n) {
    uint32_t at = (uint32_t)n, after = 0;
    while (at) {
        uint32_t before = ends[at].link;
        ends[at].link = after;
        after = at;
        at = before;
    }
    ends[0].link = after;
}

static bool find_path(const struct pl_unigram *u, struct pl_unigram_scratch *s,
                      const struct pl_span *word, pl_err *err, struct pl_diag *d) {
    if (word->n + 1 > s->cap) {
        size_t cap = word->n + word->n / 2 + 64;
        struct pl_unigram_end *ends = pl_realloc(s->ends, cap * sizeof *ends);
        if (!ends) return false;
        s->ends = ends;
        s->cap = cap;
    }
    for (size_t i = 0; i <= word->n; i++)
        s->ends[i] = (struct pl_unigram_end){.id = NO_PIECE};
    for (size_t i = 0; i < word->n && *err == PL_ERR_OK; i += pl_utf8_length(word->s[i]))
        *err = extend(u, s->ends, word->s, word->n, i, d);
    if (*err == PL_ERR_OK) turn_around(s->ends, word->n);
    return true;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* A stretch of unknown characters: a piece that it happens to be, else its bytes if each has a
 * piece, else the unknown token. */
static bool add_unknown(const struct pl_unigram *u, const struct pl_span *word, size_t from,
                        size_t to, struct pl_token_list *out) {
    bool all = true;
    int32_t id = pl_vocab_find(u->vocab, word->s + from, to - from);
    for (size_t i = from; i < to && all; i++)
        all = u->fallback[(unsigned char)word->s[i]] >= 0;
    if (!pl_token_list_reserve(out, to - from)) return false;
    if (id >= 0 || !all) {
        pl_token_list_push(out, id >= 0 ? id : u->unk, pl_span_origin(word, from));
        return true;
    }
    for (size_t i = from; i < to; i++)
        pl_token_list_push(out, u->fallback[(unsigned char)word->s[i]], pl_span_origin(word, i));
    return true;
}

static bool add_path(const struct pl_unigram *u, const struct pl_unigram_end *ends,
                     const struct pl_span *word, struct pl_token_list *out) {
    for (size_t from = 0, to; from < word->n; from = to) {
        to = ends[from].link;
        int32_t id = ends[to].id;
        if (id == u->unk) {
            while (to < word->n && ends[ends[to].link].id == u->unk)
                to = ends[to].link;
            if (!add_unknown(u, word, from, to, out)) return false;
        } else {
            if (!pl_token_list_reserve(out, 1)) return false;
            pl_token_list_push(out, id, pl_span_origin(word, from));
        }
    }
    return true;
}

pl_err pl_unigram_encode(const struct pl_unigram *u, struct pl_unigram_scratch *s,
                         const struct pl_span *word, struct pl_token_list *out, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    if (!find_path(u, s, word, &err, d) || (err == PL_ERR_OK && !add_path(u, s->ends, word, out)))
        return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for a word of %zu bytes", word->n);
    return err;
}
