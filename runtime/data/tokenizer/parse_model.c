/* parse_model.c - vocabulary, merges, added tokens and post-processor of a tokenizer.json. */
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xE2\x96\x81";
#define METASPACE_BYTES 3

static pl_err no_memory(struct pl_diag *d) {
    return pl_diag_set(d, PL_ERR_HOST_OOM, "no memory for the vocabulary of a tokenizer");
}

/* --- vocabulary ------------------------------------------------------------------------------- */

static pl_err add_piece(struct pl_tokenizer *t, const char *s, size_t n, const json_t *id,
                        struct pl_diag *d) {
    json_int_t v = json_integer_value(id);
    if (!json_is_integer(id) || v < 0 || v >= PL_VOCAB_MOST_IDS)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`model.vocab` gives `%.60s` an id that is no integer below %u", s,
                           PL_VOCAB_MOST_IDS);
    if (n > PL_VOCAB_MOST_BYTES)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`model.vocab` has a piece of %zu bytes", n);
    const char *twin = pl_vocab_piece(&t->model, v, NULL);
    if (twin)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`model.vocab` gives `%.60s` and `%.60s` the id %lld", twin, s,
                           (long long)v);
    return pl_vocab_put(&t->model, (uint32_t)v, s, n) ? PL_ERR_OK : no_memory(d);
}

static pl_err read_vocab(struct pl_tokenizer *t, const struct pl_fields *f) {
    json_t *vocab = (json_t *)(uintptr_t)pl_fields_get(f, "vocab");
    if (!json_is_object(vocab))
        return pl_fields_wrong(f, "vocab", vocab ? "is no object" : "is missing");
    for (void *i = json_object_iter(vocab); i; i = json_object_iter_next(vocab, i)) {
        const char *s = json_object_iter_key(i);
        PL_TRY(add_piece(t, s, strlen(s), json_object_iter_value(i), f->d));
    }
    return PL_ERR_OK;
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
    const char *left, *right;
    size_t n_left, n_right;
};

/* "left right", or ["left", "right"]. */
static bool split_merge(const json_t *v, struct merge_text *m) {
    if (json_is_array(v)) {
        const json_t *left = json_array_get(v, 0), *right = json_array_get(v, 1);
        if (json_array_size(v) != 2 || !json_is_string(left) || !json_is_string(right))
            return false;
        *m = (struct merge_text){json_string_value(left), json_string_value(right),
                                 json_string_length(left), json_string_length(right)};
        return true;
    }
    const char *s = json_string_value(v), *space = s ? strchr(s, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    size_t n = json_string_length(v), n_left = (size_t)(space - s);
    *m = (struct merge_text){s, space + 1, n_left, n - n_left - 1};
    return true;
}

static pl_err add_merge(struct pl_tokenizer *t, const struct merge_text *m, size_t number,
                        char *joined, struct pl_diag *d) {
    int32_t result = -1, left = pl_vocab_find(&t->model, m->left, m->n_left);
    int32_t right = pl_vocab_find(&t->model, m->right, m->n_right);
    if (left >= 0 && right >= 0 && m->n_left + m->n_right <= PL_VOCAB_MOST_BYTES) {
        memcpy(joined, m->left, m->n_left);
        memcpy(joined + m->n_left, m->right, m->n_right);
        result = pl_vocab_find(&t->model, joined, m->n_left + m->n_right);
    }
    if (result < 0)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`model.merges`, number %zu: `%.60s`, `%.60s` or both together are not "
                           "in the vocabulary",
                           number, m->left, m->right);
    pl_bpe_add_merge(&t->bpe, left, right, result);
    return PL_ERR_OK;
}

static pl_err read_merges(struct pl_tokenizer *t, const struct pl_fields *f) {
    const json_t *list;
    struct merge_text m;
    pl_err err = PL_ERR_OK;
    PL_TRY(pl_fields_array(f, "merges", &list));
    size_t n = json_array_size(list);
    if (n > PL_BPE_MOST_MERGES) return pl_fields_wrong(f, "merges", "is too long");
    char *joined = pl_malloc(PL_VOCAB_MOST_BYTES);
    if (!joined || !pl_bpe_reserve(&t->bpe, (uint32_t)n)) err = no_memory(f->d);
    for (size_t i = 0; err == PL_ERR_OK && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_string(v) && strncmp(json_string_value(v), "#version", 8) == 0) continue;
        if (split_merge(v, &m))
            err = add_merge(t, &m, i, joined, f->d);
        else
            err = pl_diag_set(f->d, PL_ERR_TOKENIZER_FIELD,
                              "`model.merges`, number %zu is not a pair", i);
    }
    free(joined);
    return err;
}

/* --- the model -------------------------------------------------------------------------------- */

static void fill_singles(struct pl_bpe *b, bool fallback) {
    for (unsigned c = 0; c < 256; c++) {
        char code[8], byte = (char)c;
        snprintf(code, sizeof code, "<0x%02X>", c);
        b->single[c] = c < 0x80 || b->byte_level ? pl_vocab_find(b->vocab, &byte, 1) : -1;
        b->fallback[c] = fallback ? pl_vocab_find(b->vocab, code, 6) : -1;
    }
}

static bool covers_all_bytes(const struct pl_bpe *b) {
    for (unsigned c = 0; c < 256; c++)
        if (b->single[c] < 0) return false;
    return b->byte_level;
}

static pl_err read_unknown(struct pl_tokenizer *t, const struct pl_fields *f) {
    const char *s;
    size_t n;
    t->bpe.unk = -1;
    if (!pl_fields_get(f, "unk_token")) return PL_ERR_OK;
    PL_TRY(pl_fields_string(f, "unk_token", &s, &n));
    t->bpe.unk = pl_vocab_find(&t->model, s, n);
    if (t->bpe.unk >= 0 || covers_all_bytes(&t->bpe)) return PL_ERR_OK;
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

/* Whether no merge joins something and a U+2581 behind it. */
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

pl_err pl_tokenizer_parse_model(struct pl_tokenizer *t, const json_t *root, struct pl_diag *d) {
    struct pl_fields f;
    const char *type;
    bool fallback = false;
    PL_TRY(pl_fields_open(&f, json_object_get(root, "model"), "model", &type, d));
    /* old files name no type; a model with vocabulary and merges is BPE */
    if (*type && strcmp(type, "BPE") != 0) return pl_fields_unsupported(&f, type);
    PL_TRY(pl_fields_known(&f, "type", "dropout", "unk_token", "continuing_subword_prefix",
                           "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
                           "vocab", "merges", NULL));
    PL_TRY(check_settings(&f));
    PL_TRY(pl_fields_bool(&f, "fuse_unk", &t->bpe.fuse_unk));
    PL_TRY(pl_fields_bool(&f, "ignore_merges", &t->bpe.ignore_merges));
    PL_TRY(pl_fields_bool(&f, "byte_fallback", &fallback));
    PL_TRY(read_vocab(t, &f));
    PL_TRY(read_merges(t, &f));
    t->bpe.vocab = &t->model;
    if (t->bpe.byte_level) {
        PL_TRY(make_bytes(t, d));
        t->bpe.vocab = &t->bytes;
    }
    fill_singles(&t->bpe, fallback);
    PL_TRY(read_unknown(t, &f));
    add_boundary(t);
    return PL_ERR_OK;
}
