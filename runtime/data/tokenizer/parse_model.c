/* parse_model.c - vocabulary and merges of a model of type BPE, and the choice of the type. */
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/model_pieces.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xE2\x96\x81";
#define METASPACE_BYTES 3

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the vocabulary of a tokenizer");
}

/* --- vocabulary ------------------------------------------------------------------------------- */

/* Digits of an id; false for every other value, which is passed over. */
static bool read_id(struct pl_scan *s, uint32_t *out) {
    const char *digits;
    size_t n;
    uint32_t v = 0;
    if (pl_scan_peek(s) != PL_SCAN_NUMBER) return pl_scan_skip(s) && false;
    if (!pl_scan_number(s, &digits, &n)) return false;
    for (size_t i = 0; i < n; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        v = 10 * v + (uint32_t)(digits[i] - '0');
        if (v >= PL_VOCAB_MOST_IDS) return false;
    }
    *out = v;
    return true;
}

static pl_err add_piece(struct pl_tokenizer *t, const struct pl_text *piece, struct pl_scan *id,
                        struct pl_diag *d) {
    uint32_t v;
    if (piece->failed) return no_memory(d);
    if (read_id(id, &v)) return pl_tokenizer_put_piece(t, piece, v, d);
    return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                       "`model.vocab` gives `%.60s` an id that is no integer below %u",
                       pl_text_str(piece), PL_VOCAB_MOST_IDS);
}

static pl_err read_vocab(struct pl_tokenizer *t, const struct pl_fields *f,
                         const struct pl_tokenizer_document *doc) {
    const json_t *vocab = pl_fields_get(f, "vocab");
    struct pl_text piece = {0};
    pl_err err = PL_ERR_OK;
    if (!json_is_object(vocab))
        return pl_fields_wrong(f, "vocab", vocab ? "is no object" : "is missing");
    struct pl_scan s = pl_tokenizer_list_scan(doc, &doc->vocab);
    for (bool more = pl_scan_enter(&s); more && err == PL_ERR_OK;)
        if ((more = pl_scan_next_key(&s, &piece))) err = add_piece(t, &piece, &s, f->d);
    pl_text_finish(&piece);
    return err;
}

/* Byte-level: the pieces as bytes. One that is not in the alphabet cannot be reached by merging. */
static pl_err make_bytes(struct pl_tokenizer *t, struct pl_diag *d) {
    char *bytes = pl_malloc(PL_VOCAB_MOST_BYTES);
    pl_err err = bytes ? PL_ERR_OK : no_memory(d);
    for (uint32_t id = 0; err == PL_ERR_OK && id < t->model.size; id++) {
        size_t n, n_bytes;
        const char *s = pl_vocab_piece(&t->model, id, &n);
        if (!s || !pl_byte_chars_decode(s, n, bytes, &n_bytes)) continue;
        if (!pl_vocab_put(&t->bytes, id, bytes, n_bytes)) err = no_memory(d);
    }
    free(bytes);
    return err;
}

/* --- merges ----------------------------------------------------------------------------------- */

struct merge_text {
    struct pl_text whole, right;
    const char *s[2]; /* of the two */
    size_t n[2];
};

/* The pair between the brackets at the cursor. */
static bool read_pair(struct pl_scan *s, struct merge_text *m) {
    struct pl_text *const sides[] = {&m->whole, &m->right};
    if (!pl_scan_enter_array(s)) return false;
    for (size_t i = 0; i < 2; i++) {
        if (!pl_scan_next_element(s) || pl_scan_peek(s) != PL_SCAN_STRING) return false;
        sides[i]->len = 0;
        if (!pl_scan_string(s, sides[i])) return false;
        m->s[i] = pl_text_str(sides[i]);
        m->n[i] = sides[i]->len;
    }
    return !pl_scan_next_element(s);
}

/* "left right" at the cursor. */
static bool read_words(struct pl_scan *s, struct merge_text *m, bool *comment) {
    m->whole.len = 0;
    if (pl_scan_peek(s) != PL_SCAN_STRING || !pl_scan_string(s, &m->whole)) return false;
    const char *text = pl_text_str(&m->whole), *end = text + m->whole.len;
    const char *space = m->whole.len ? memchr(text, ' ', m->whole.len) : NULL;
    *comment = strncmp(text, "#version", 8) == 0;
    if (*comment) return true;
    if (!space || memchr(space + 1, ' ', (size_t)(end - space - 1))) return false;
    m->s[0] = text;
    m->n[0] = (size_t)(space - text);
    m->s[1] = space + 1;
    m->n[1] = (size_t)(end - space - 1);
    return true;
}

static pl_err add_merge(struct pl_tokenizer *t, const struct merge_text *m, uint64_t number,
                        char *joined, struct pl_diag *d) {
    int32_t result = -1, left = pl_vocab_find(&t->model, m->s[0], m->n[0]);
    int32_t right = pl_vocab_find(&t->model, m->s[1], m->n[1]);
    if (left >= 0 && right >= 0 && m->n[0] + m->n[1] <= PL_VOCAB_MOST_BYTES) {
        memcpy(joined, m->s[0], m->n[0]);
        memcpy(joined + m->n[0], m->s[1], m->n[1]);
        result = pl_vocab_find(&t->model, joined, m->n[0] + m->n[1]);
    }
    if (result < 0)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`model.merges`, number %llu: `%.*s`, `%.60s` or both together are not "
                           "in the vocabulary",
                           (unsigned long long)number, m->n[0] < 60 ? (int)m->n[0] : 60, m->s[0],
                           m->s[1]);
    pl_bpe_add_merge(&t->bpe, left, right, result);
    return PL_ERR_OK;
}

static pl_err read_merge(struct pl_tokenizer *t, struct pl_scan *s, struct merge_text *m,
                         uint64_t number, char *joined, struct pl_diag *d) {
    bool comment = false;
    const bool sound =
        pl_scan_peek(s) == PL_SCAN_ARRAY ? read_pair(s, m) : read_words(s, m, &comment);
    if (m->whole.failed || m->right.failed) return no_memory(d);
    if (!sound)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`model.merges`, number %llu is not a pair",
                           (unsigned long long)number);
    return comment ? PL_ERR_OK : add_merge(t, m, number, joined, d);
}

static pl_err read_merges(struct pl_tokenizer *t, const struct pl_fields *f,
                          const struct pl_tokenizer_document *doc) {
    const json_t *list;
    struct merge_text m = {0};
    pl_err err = PL_ERR_OK;
    uint64_t number = 0;
    PL_TRY(pl_fields_array(f, "merges", &list));
    if (doc->merges.elements > PL_BPE_MOST_MERGES)
        return pl_fields_wrong(f, "merges", "is too long");
    struct pl_scan s = pl_tokenizer_list_scan(doc, &doc->merges);
    char *joined = pl_malloc(PL_VOCAB_MOST_BYTES);
    if (!joined || !pl_bpe_reserve(&t->bpe, (uint32_t)doc->merges.elements)) err = no_memory(f->d);
    for (bool more = pl_scan_enter_array(&s); more && err == PL_ERR_OK; number++)
        if ((more = pl_scan_next_element(&s))) err = read_merge(t, &s, &m, number, joined, f->d);
    pl_text_finish(&m.whole);
    pl_text_finish(&m.right);
    free(joined);
    return err;
}

/* --- the model -------------------------------------------------------------------------------- */

static pl_err read_unknown(struct pl_tokenizer *t, const struct pl_fields *f) {
    const char *s;
    size_t n;
    t->bpe.unk = -1;
    if (!pl_fields_get(f, "unk_token")) return PL_ERR_OK;
    PL_TRY(pl_fields_string(f, "unk_token", &s, &n));
    t->bpe.unk = pl_vocab_find(&t->model, s, n);
    bool covers_all = t->bpe.byte_level;
    for (unsigned c = 0; c < 256 && covers_all; c++)
        covers_all = t->bpe.single[c] >= 0;
    if (t->bpe.unk >= 0 || covers_all) return PL_ERR_OK;
    return pl_fields_wrong(f, "unk_token", "is not in the vocabulary");
}

/* Absent, null or "": any other text goes into the look-up of every character. */
static pl_err check_empty(const struct pl_fields *f, const char *key) {
    const json_t *v = pl_fields_get(f, key);
    if (!v || (json_is_string(v) && !json_string_length(v))) return PL_ERR_OK;
    return pl_diag_set(f->d, PL_ERR_TOKENIZER_UNSUPPORTED, "`model.%s` is not supported", key);
}

static pl_err check_settings(const struct pl_fields *f) {
    const json_t *dropout = pl_fields_get(f, "dropout");
    if (dropout && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return pl_diag_set(f->d, PL_ERR_TOKENIZER_UNSUPPORTED,
                           "`model.dropout` is not supported: tokens would be random");
    PL_TRY(check_empty(f, "continuing_subword_prefix"));
    return check_empty(f, "end_of_word_suffix");
}

/* True if no merge joins something and a U+2581 after it. */
static bool metaspace_begins_words(const struct pl_tokenizer *t) {
    const struct pl_bpe *b = &t->bpe;
    for (uint32_t i = 0; i < b->n_merges; i++) {
        size_t n;
        const char *s = pl_vocab_piece(&t->model, b->result[i], &n);
        bool inside = false;
        for (size_t at = 0; at < n; at += pl_utf8_length(s[at])) {
            bool is = n - at >= METASPACE_BYTES && memcmp(s + at, metaspace, METASPACE_BYTES) == 0;
            if (is && inside) return false;
            inside = inside || !is;
        }
    }
    return true;
}

/* A text in one piece is cut into words where no merge reaches across: the tokens are the same, and
 * words that come again are found in the cache. U+2581 must be a piece, so that it ends a run of
 * unknown characters with and without the cut. */
static void add_boundary(struct pl_tokenizer *t) {
    struct pl_pretokenizer *p = &t->pretokenizer;
    if (t->bpe.byte_level || t->bpe.ignore_merges ||
        pl_vocab_find(&t->model, metaspace, METASPACE_BYTES) < 0 || !metaspace_begins_words(t))
        return;
    struct pl_pretokenizer_step *step = &p->steps[p->n++];
    *step = (struct pl_pretokenizer_step){.kind = PL_PRETOKENIZER_BOUNDARY,
                                          .n_replacement = METASPACE_BYTES};
    memcpy(step->replacement, metaspace, METASPACE_BYTES);
}

static pl_err parse_bpe(struct pl_tokenizer *t, const struct pl_fields *f,
                        const struct pl_tokenizer_document *doc) {
    bool fallback = false;
    PL_TRY(pl_fields_known(f, "type", "dropout", "unk_token", "continuing_subword_prefix",
                           "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                           "vocab", "merges", NULL));
    PL_TRY(check_settings(f));
    PL_TRY(pl_fields_bool(f, "fuse_unk", &t->bpe.fuse_unk));
    PL_TRY(pl_fields_bool(f, "ignore_merges", &t->bpe.ignore_merges));
    PL_TRY(pl_fields_bool(f, "byte_fallback", &fallback));
    PL_TRY(read_vocab(t, f, doc));
    PL_TRY(read_merges(t, f, doc));
    t->bpe.vocab = &t->model;
    if (t->bpe.byte_level) {
        PL_TRY(make_bytes(t, f->d));
        t->bpe.vocab = &t->bytes;
    }
    for (unsigned c = 0; c < 256; c++) {
        const bool single = c < 0x80 || t->bpe.byte_level;
        t->bpe.single[c] = single ? pl_vocab_find(t->bpe.vocab, &(char){(char)c}, 1) : -1;
    }
    pl_tokenizer_byte_pieces(t->bpe.vocab, fallback, t->bpe.fallback);
    PL_TRY(read_unknown(t, f));
    add_boundary(t);
    pl_bpe_find_joins(&t->bpe);
    return PL_ERR_OK;
}

pl_err pl_tokenizer_parse_model(struct pl_tokenizer *t, const struct pl_tokenizer_document *doc,
                                struct pl_diag *d) {
    struct pl_fields f;
    const char *type;
    PL_TRY(pl_fields_open(&f, json_object_get(doc->root, "model"), "model", &type, d));
    if (strcmp(type, "Unigram") == 0) return pl_tokenizer_parse_unigram(t, &f, doc);
    /* old files name no type; a model with vocabulary and merges is BPE */
    if (*type && strcmp(type, "BPE") != 0) return pl_fields_unsupported(&f, type);
    return parse_bpe(t, &f, doc);
}
