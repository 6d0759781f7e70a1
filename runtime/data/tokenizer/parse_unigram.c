/* parse_unigram.c - pieces and scores of a model of type Unigram. */
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/model_pieces.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A character without a piece scores so much less than the piece of the lowest score. */
#define UNKNOWN_PENALTY 10.0

#define MOST_POWER 308 /* of ten, that is finite */

struct list_reader {
    struct pl_tokenizer *t;
    struct pl_diag *d;
    struct pl_text piece;
    double powers[MOST_POWER + 1];
    double least; /* of the scores */
};

/* --- scores ----------------------------------------------------------------------------------- */

/* The digits of a number as an integer of 64 bits, and the power of ten that belongs to it. */
struct decimal {
    uint64_t digits;
    int64_t power;
    bool full; /* the next digit did not fit; none after it counts */
};

static void add_digit(struct decimal *v, char c, bool fraction) {
    unsigned digit = (unsigned)(c - '0');
    v->full = v->full || v->digits > (UINT64_MAX - digit) / 10;
    if (v->full) {
        v->power += !fraction;
    } else {
        v->digits = 10 * v->digits + digit;
        v->power -= fraction;
    }
}

/* A number of JSON. */
static struct decimal read_decimal(const char *s, size_t n) {
    struct decimal v = {0};
    bool fraction = false;
    size_t i = *s == '-';
    for (; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.')
            fraction = true;
        else
            add_digit(&v, s[i], fraction);
    }
    if (i == n) return v;
    bool minus = s[++i] == '-';
    int64_t exponent = 0;
    for (i += s[i] == '-' || s[i] == '+'; i < n; i++)
        if (exponent < INT32_MAX) exponent = 10 * exponent + (s[i] - '0');
    v.power += minus ? -exponent : exponent;
    return v;
}

/* The score as the library reads it: digits times or divided by a power of ten, which rounds twice.
 * One of eight scores of 17 digits is not the nearest double; which of two equally good cuts is
 * taken hangs on the last bit. Infinite: too large. */
static double read_score(const struct list_reader *r, const char *s, size_t n) {
    if (!pl_scan_is_finite(s, n)) return INFINITY;
    struct decimal v = read_decimal(s, n);
    double score = (double)v.digits;
    for (; score != 0 && v.power < -MOST_POWER; v.power += MOST_POWER)
        score /= r->powers[MOST_POWER];
    if (score != 0 && v.power > MOST_POWER) return INFINITY;
    if (score != 0) score = v.power < 0 ? score / r->powers[-v.power] : score * r->powers[v.power];
    return *s == '-' ? -score : score;
}

/* --- pieces ----------------------------------------------------------------------------------- */

static pl_err no_pair(const struct list_reader *r, uint32_t number, const char *what) {
    return pl_diag_set(r->d, PL_ERR_TOKENIZER_FIELD, "`model.vocab`, number %u %s", number, what);
}

/* ["piece", score] at the cursor. */
static pl_err read_pair(struct list_reader *r, struct pl_scan *s, uint32_t id) {
    struct pl_unigram *u = &r->t->unigram;
    const char *digits;
    size_t n;
    r->piece.len = 0;
    if (pl_scan_peek(s) != PL_SCAN_ARRAY || !pl_scan_enter_array(s) || !pl_scan_next_element(s) ||
        pl_scan_peek(s) != PL_SCAN_STRING || !pl_scan_string(s, &r->piece) ||
        !pl_scan_next_element(s) || pl_scan_peek(s) != PL_SCAN_NUMBER ||
        !pl_scan_number(s, &digits, &n))
        return no_pair(r, id, "is no piece with a score");
    double score = read_score(r, digits, n);
    if (pl_scan_next_element(s)) return no_pair(r, id, "has more than a piece and a score");
    if (!isfinite(score)) return no_pair(r, id, "has a score that is too large");
    if (r->piece.len > PL_UNIGRAM_MOST_BYTES) return no_pair(r, id, "has a piece above 512 bytes");
    PL_TRY(pl_tokenizer_put_piece(r->t, &r->piece, id, r->d));
    u->pieces[u->n++] = (struct pl_unigram_piece){.n = r->piece.len, .score = score, .id = (int)id};
    if (score < r->least) r->least = score;
    return PL_ERR_OK;
}

static pl_err read_pairs(struct list_reader *r, const struct pl_tokenizer_document *doc) {
    struct pl_scan s = pl_tokenizer_list_scan(doc, &doc->vocab);
    pl_err err = PL_ERR_OK;
    uint32_t id = 0;
    for (bool more = pl_scan_enter_array(&s); more && err == PL_ERR_OK; id++)
        if ((more = pl_scan_next_element(&s))) err = read_pair(r, &s, id);
    return err;
}

static pl_err read_list(struct list_reader *r, const struct pl_fields *f,
                        const struct pl_tokenizer_document *doc) {
    struct pl_unigram *u = &r->t->unigram;
    const json_t *list;
    PL_TRY(pl_fields_array(f, "vocab", &list));
    if (!doc->vocab.elements) return pl_fields_wrong(f, "vocab", "is empty");
    if (doc->vocab.elements > PL_VOCAB_MOST_IDS) return pl_fields_wrong(f, "vocab", "is too long");
    u->pieces = pl_calloc(doc->vocab.elements, sizeof *u->pieces);
    if (!u->pieces) return pl_host_oom(r->d, "the vocabulary of a tokenizer");
    for (int i = 0; i <= MOST_POWER; i++) {
        char text[16];
        snprintf(text, sizeof text, "1e%d", i);
        r->powers[i] = strtod(text, NULL);
    }
    pl_err err = read_pairs(r, doc);
    pl_text_finish(&r->piece);
    /* the block of the vocabulary stays where it is from here on */
    for (uint32_t i = 0; i < u->n; i++)
        u->pieces[i].s = pl_vocab_piece(&r->t->model, u->pieces[i].id, NULL);
    return err;
}

pl_err pl_tokenizer_parse_unigram(struct pl_tokenizer *t, const struct pl_fields *f,
                                  const struct pl_tokenizer_document *doc) {
    struct list_reader r = {.t = t, .d = f->d, .least = INFINITY};
    struct pl_unigram *u = &t->unigram;
    bool fallback = false;
    uint64_t unk = UINT64_MAX;
    PL_TRY(pl_fields_known(f, "type", "unk_id", "vocab", "byte_fallback", NULL));
    if (t->bpe.byte_level)
        return pl_diag_set(f->d, PL_ERR_TOKENIZER_UNSUPPORTED,
                           "`pre_tokenizer` of type `ByteLevel` is not supported with Unigram");
    PL_TRY(pl_fields_bool(f, "byte_fallback", &fallback));
    PL_TRY(read_list(&r, f, doc));
    PL_TRY(pl_fields_uint(f, "unk_id", u->n - 1, &unk));
    u->vocab = &t->model;
    u->unk = unk == UINT64_MAX ? -1 : (int32_t)unk;
    u->unknown = r.least - UNKNOWN_PENALTY;
    pl_tokenizer_byte_pieces(&t->model, fallback, u->fallback);
    pl_unigram_sort(u);
    return PL_ERR_OK;
}
