/* parse_added.c - added tokens and post-processor of a tokenizer.json, and the byte tokenizer. */
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/byte_chars.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"
#include "runtime/data/tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NESTING 8

static pl_err no_memory(struct pl_diag *d) {
    return pl_host_oom(d, "the added tokens of a tokenizer");
}

/* --- added tokens ----------------------------------------------------------------------------- */

struct noted {
    uint32_t n, id; /* how many; of the first */
    const char *first;
};

struct adder {
    struct pl_tokenizer *t;
    struct pl_normalizer_scratch normalizer;
    struct pl_pattern_scratch *patterns;
    struct pl_added_list list; /* one entry an id */
    uint32_t *place;           /* [n_place], by id: 1 + its entry of the list; 0: none */
    uint32_t n_place;
    uint32_t next;                    /* id of the next token that is not in the vocabulary */
    struct noted lacking, renumbered; /* tokens of the configuration */
};

static void note_one(struct noted *noted, const struct pl_added_said *token, uint32_t id) {
    if (noted->n++) return;
    noted->first = token->s;
    noted->id = id;
}

bool pl_added_list_put(struct pl_added_list *list, const struct pl_added_said *token) {
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? 2 * list->cap : 64;
        struct pl_added_said *all = pl_realloc(list->all, cap * sizeof *all);
        if (!all) return false;
        list->all = all;
        list->cap = cap;
    }
    list->all[list->n++] = *token;
    return true;
}

pl_err pl_added_read(const struct pl_fields *f, struct pl_added_said *a) {
    PL_TRY(pl_fields_string(f, "content", &a->s, &a->n));
    PL_TRY(pl_fields_bool(f, "single_word", &a->single_word));
    PL_TRY(pl_fields_bool(f, "lstrip", &a->lstrip));
    PL_TRY(pl_fields_bool(f, "rstrip", &a->rstrip));
    PL_TRY(pl_fields_bool(f, "special", &a->special));
    a->normalized = !a->special;
    PL_TRY(pl_fields_bool(f, "normalized", &a->normalized));
    if (a->n && a->n <= PL_ADDED_MOST_BYTES) return PL_ERR_OK;
    return pl_fields_wrong(f, "content", a->n ? "is too long" : "is empty");
}

static bool reach(struct adder *a, uint32_t id) {
    if (id < a->n_place) return true;
    uint32_t n = id + 1 > 2 * a->n_place ? id + 1 : 2 * a->n_place;
    uint32_t *place = pl_realloc(a->place, n * sizeof *place);
    if (!place) return false;
    memset(place + a->n_place, 0, (n - a->n_place) * sizeof *place);
    a->place = place;
    a->n_place = n;
    return true;
}

static uint32_t id_of(const struct adder *a, const struct pl_added_said *token) {
    int32_t id = pl_vocab_find(&a->t->added, token->s, token->n);
    if (id < 0) id = pl_vocab_find(&a->t->model, token->s, token->n);
    return id >= 0 ? (uint32_t)id : a->next;
}

/* Does as add_tokens of the library: a token that is there takes the new flags, and what was
 * special once stays so. */
static pl_err place_token(struct adder *a, const struct pl_added_said *token, struct pl_diag *d) {
    struct pl_added_said said = *token;
    said.id = id_of(a, token);
    if (said.id >= PL_VOCAB_MOST_IDS)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`added_tokens` has too many tokens");
    if (!reach(a, said.id)) return no_memory(d);
    if (a->place[said.id]) {
        struct pl_added_said *old = &a->list.all[a->place[said.id] - 1];
        said.special |= old->special;
        *old = said;
        return PL_ERR_OK;
    }
    if (!pl_added_list_put(&a->list, &said) || !pl_vocab_put(&a->t->added, said.id, said.s, said.n))
        return no_memory(d);
    a->place[said.id] = a->list.n;
    a->next += said.id == a->next;
    return PL_ERR_OK;
}

static bool flag(struct pl_tokenizer *t, uint32_t id, uint8_t bits) {
    if (id >= t->n_flags) {
        uint8_t *flags = pl_realloc(t->flags, (size_t)id + 1);
        if (!flags) return false;
        memset(flags + t->n_flags, 0, id + 1 - t->n_flags);
        t->flags = flags;
        t->n_flags = id + 1;
    }
    t->flags[id] |= bits;
    return true;
}

/* Adds the text that is looked for: the content, or its normalized form, which decoding then sees
 * too. */
static pl_err add_to_set(struct adder *a, const struct pl_added_said *token, struct pl_diag *d) {
    struct pl_tokenizer *t = a->t;
    struct pl_span s = {.s = token->s, .n = token->n};
    if (token->normalized) {
        PL_TRY(pl_normalizer_run(&t->normalizer, &a->normalizer, a->patterns, &s, &s, d));
        if (!s.n || s.n > PL_ADDED_MOST_BYTES)
            return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                               "`added_tokens`: `%.60s` normalized has %zu bytes", token->s, s.n);
        bool same = s.n == token->n && memcmp(s.s, token->s, s.n) == 0;
        if (!same && !pl_vocab_put(&t->shown, token->id, s.s, s.n)) return no_memory(d);
    }
    struct pl_added_token found = {.s = (char *)(uintptr_t)s.s,
                                   .n = (uint32_t)s.n,
                                   .id = (int32_t)token->id,
                                   .single_word = token->single_word,
                                   .lstrip = token->lstrip,
                                   .rstrip = token->rstrip};
    return pl_added_set_put(token->normalized ? &t->normalized : &t->raw, &found) ? PL_ERR_OK
                                                                                  : no_memory(d);
}

/* A token of tokenizer.json has the id that it is given there, and stands there once. */
static pl_err add_of_file(struct adder *a, const json_t *v, struct pl_diag *d) {
    struct pl_fields f;
    struct pl_added_said token = {.normalized = true};
    const char *type;
    uint64_t said = 0;
    PL_TRY(pl_fields_open(&f, v, "added_tokens", &type, d));
    PL_TRY(pl_fields_known(&f, "id", "content", "single_word", "lstrip", "rstrip", "normalized",
                           "special", NULL));
    if (!pl_fields_get(&f, "id")) return pl_fields_wrong(&f, "id", "is missing");
    PL_TRY(pl_fields_uint(&f, "id", PL_VOCAB_MOST_IDS - 1, &said));
    PL_TRY(pl_added_read(&f, &token));
    if (!pl_fields_get(&f, "normalized")) token.normalized = true;
    if (pl_vocab_find(&a->t->added, token.s, token.n) >= 0)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`added_tokens` has `%.60s` twice", token.s);
    if (id_of(a, &token) != said)
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                           "`added_tokens` gives `%.60s` the id %llu; by the vocabulary it is %u",
                           token.s, (unsigned long long)said, id_of(a, &token));
    return place_token(a, &token, d);
}

/* A token of tokenizer_config.json, and of the files that older versions wrote with it. */
static pl_err add_of_config(struct adder *a, const struct pl_added_said *token, struct pl_diag *d) {
    if (token->unless_known && pl_vocab_find(&a->t->added, token->s, token->n) >= 0)
        return PL_ERR_OK;
    const uint32_t id = id_of(a, token);
    if (id == a->next) note_one(&a->lacking, token, id);
    if (token->has_id && token->id != id) note_one(&a->renumbered, token, id);
    return place_token(a, token, d);
}

static pl_err add_notes(const struct adder *a, struct pl_diag *d) {
    const struct noted *lacking = &a->lacking, *other = &a->renumbered;
    struct pl_text *notes = &a->t->notes;
    if (lacking->n)
        pl_text_addf(notes,
                     "tokenizer_config.json adds %u token%s that tokenizer.json lacks: `%.60s`, id "
                     "%u%s\n",
                     lacking->n, lacking->n == 1 ? "" : "s", lacking->first, lacking->id,
                     lacking->n == 1 ? "" : ", is the first");
    if (other->n)
        pl_text_addf(notes,
                     "tokenizer_config.json gives %u token%s another id than transformers does, "
                     "which is used: `%.60s` has id %u\n",
                     other->n, other->n == 1 ? "" : "s", other->first, other->id);
    return notes->failed ? no_memory(d) : PL_ERR_OK;
}

static pl_err add_whole_list(struct adder *a, const json_t *list,
                             const struct pl_added_list *config, struct pl_diag *d) {
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(add_of_file(a, json_array_get(list, i), d));
    a->t->n_of_file = (uint32_t)pl_tokenizer_size(a->t);
    for (uint32_t i = 0; i < config->n; i++)
        PL_TRY(add_of_config(a, &config->all[i], d));
    PL_TRY(add_notes(a, d));
    for (uint32_t i = 0; i < a->list.n; i++) {
        const struct pl_added_said *token = &a->list.all[i];
        if (!flag(a->t, token->id,
                  (uint8_t)(PL_TOKEN_ADDED | (token->special ? PL_TOKEN_SPECIAL : 0))))
            return no_memory(d);
        PL_TRY(add_to_set(a, token, d));
    }
    return PL_ERR_OK;
}

/* Decoding leaves a token out when what it sees of it is the content of a special token. */
static void mark_skipped(struct pl_tokenizer *t) {
    for (uint32_t id = 0; id < t->n_flags; id++) {
        size_t n;
        const char *s = pl_vocab_piece(&t->shown, id, &n);
        if (!s) s = pl_vocab_piece(&t->added, id, &n);
        int32_t same = s ? pl_vocab_find(&t->added, s, n) : -1;
        if (same >= 0 && t->flags[same] & PL_TOKEN_SPECIAL) t->flags[id] |= PL_TOKEN_SKIPPED;
    }
}

static pl_err sort_sets(struct pl_tokenizer *t, struct pl_diag *d) {
    const struct pl_added_token *twin;
    if (pl_added_set_sort(&t->raw, &twin) && pl_added_set_sort(&t->normalized, &twin))
        return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD,
                       "`added_tokens`: two tokens look for `%.*s` in normalized text",
                       twin->n < 60 ? (int)twin->n : 60, twin->s);
}

pl_err pl_tokenizer_parse_added(struct pl_tokenizer *t, const json_t *root,
                                const struct pl_added_list *config, struct pl_diag *d) {
    struct adder a = {.t = t, .next = t->model.n_pieces};
    const json_t *list = json_object_get(root, "added_tokens");
    pl_err err;
    if (list && !json_is_null(list) && !json_is_array(list))
        return pl_diag_set(d, PL_ERR_TOKENIZER_FIELD, "`added_tokens` is no list");
    PL_TRY_GOTO(pl_pattern_scratch_create(&a.patterns, d), out);
    PL_TRY_GOTO(add_whole_list(&a, list, config, d), out);
    PL_TRY_GOTO(sort_sets(t, d), out);
    mark_skipped(t);
out:
    pl_pattern_scratch_destroy(&a.patterns);
    pl_normalizer_scratch_finish(&a.normalizer);
    free(a.list.all);
    free(a.place);
    return err;
}

/* --- post-processor --------------------------------------------------------------------------- */

/* The ids that a template's special token stands for. */
static pl_err add_special(struct pl_tokenizer *t, const struct pl_fields *f, const json_t *item,
                          int32_t *side, uint32_t *n) {
    const char *name = json_string_value(json_object_get(item, "id"));
    const json_t *known = pl_fields_get(f, "special_tokens");
    const json_t *ids = name ? json_object_get(json_object_get(known, name), "ids") : NULL;
    if (!json_is_array(ids)) return pl_fields_wrong(f, "special_tokens", "lacks a token's ids");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || (uint64_t)id >= pl_tokenizer_size(t) ||
            !pl_tokenizer_piece(t, (int32_t)id))
            return pl_fields_wrong(f, "special_tokens", "has an id that is no token");
        if (*n == PL_TOKENIZER_MOST_TEMPLATE) return pl_fields_wrong(f, "single", "is too long");
        side[(*n)++] = (int32_t)id;
    }
    return PL_ERR_OK;
}

/* The tokens that stood around the text before go inside those that this template puts around
 * it. */
static pl_err wrap(struct pl_token_template *outer, const struct pl_token_template *inner,
                   const struct pl_fields *f) {
    if (outer->n_before + inner->n_before > PL_TOKENIZER_MOST_TEMPLATE ||
        outer->n_after + inner->n_after > PL_TOKENIZER_MOST_TEMPLATE)
        return pl_fields_wrong(f, "single", "is too long");
    memcpy(outer->before + outer->n_before, inner->before, inner->n_before * sizeof *inner->before);
    memmove(outer->after + inner->n_after, outer->after, outer->n_after * sizeof *outer->after);
    memcpy(outer->after, inner->after, inner->n_after * sizeof *inner->after);
    outer->n_before += inner->n_before;
    outer->n_after += inner->n_after;
    return PL_ERR_OK;
}

static pl_err read_template(struct pl_tokenizer *t, const struct pl_fields *f) {
    struct pl_token_template outer = {0};
    const json_t *single;
    bool text = false;
    PL_TRY(pl_fields_known(f, "type", "single", "pair", "special_tokens", NULL));
    PL_TRY(pl_fields_array(f, "single", &single));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        const json_t *special = json_object_get(item, "SpecialToken");
        const char *sequence =
            json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
        if (special) {
            PL_TRY(add_special(t, f, special, text ? outer.after : outer.before,
                               text ? &outer.n_after : &outer.n_before));
        } else if (sequence && strcmp(sequence, "A") == 0 && !text) {
            text = true;
        } else {
            return pl_fields_wrong(f, "single", "is not tokens around one sequence A");
        }
    }
    if (!text) return pl_fields_wrong(f, "single", "is not tokens around one sequence A");
    PL_TRY(wrap(&outer, &t->around, f));
    t->around = outer;
    return PL_ERR_OK;
}

static pl_err read_processor(struct pl_tokenizer *t, const json_t *v, uint32_t depth,
                             struct pl_diag *d) {
    struct pl_fields f;
    const char *type;
    const json_t *list;
    PL_TRY(pl_fields_open(&f, v, "post_processor", &type, d));
    /* ByteLevel trims offsets, which nobody asks for here */
    if (strcmp(type, "ByteLevel") == 0)
        return pl_fields_known(&f, "type", "add_prefix_space", "trim_offsets", "use_regex", NULL);
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(t, &f);
    if (strcmp(type, "Sequence") != 0 || depth == MOST_NESTING)
        return pl_fields_unsupported(&f, type);
    PL_TRY(pl_fields_known(&f, "type", "processors", NULL));
    PL_TRY(pl_fields_array(&f, "processors", &list));
    for (size_t i = 0; i < json_array_size(list); i++)
        PL_TRY(read_processor(t, json_array_get(list, i), depth + 1, d));
    return PL_ERR_OK;
}

pl_err pl_tokenizer_parse_template(struct pl_tokenizer *t, const json_t *root, struct pl_diag *d) {
    const json_t *v = json_object_get(root, "post_processor");
    return !v || json_is_null(v) ? PL_ERR_OK : read_processor(t, v, 0, d);
}

/* --- whole ------------------------------------------------------------------------------------ */

pl_err pl_tokenizer_parse(struct pl_tokenizer *t, const struct pl_tokenizer_document *doc,
                          const struct pl_added_list *config, struct pl_diag *d) {
    const json_t *root = doc->root;
    struct pl_fields f;
    const char *type;
    PL_TRY(pl_fields_open(&f, root, "tokenizer.json", &type, d));
    PL_TRY(pl_fields_known(&f, "version", "truncation", "padding", "added_tokens", "normalizer",
                           "pre_tokenizer", "post_processor", "decoder", "model", NULL));
    const json_t *version = pl_fields_get(&f, "version");
    if (version && !(json_is_string(version) && strcmp(json_string_value(version), "1.0") == 0))
        return pl_diag_set(d, PL_ERR_TOKENIZER_UNSUPPORTED,
                           "`version` of tokenizer.json is not 1.0");
    /* truncation and padding say nothing about a text: transformers turns both off */
    PL_TRY(pl_tokenizer_parse_steps(t, root, d));
    PL_TRY(pl_tokenizer_parse_model(t, doc, d));
    PL_TRY(pl_tokenizer_parse_added(t, root, config, d));
    return pl_tokenizer_parse_template(t, root, d);
}

pl_err pl_tokenizer_make_byte(struct pl_tokenizer *t, struct pl_diag *d) {
    char s[4];
    t->bpe = (struct pl_bpe){.vocab = &t->bytes, .byte_level = true, .unk = -1};
    if (!pl_bpe_reserve(&t->bpe, 0)) return no_memory(d);
    for (uint32_t b = 0; b < 256; b++) {
        char byte = (char)b;
        size_t n = pl_utf8_put(pl_byte_char((uint8_t)b), s);
        if (!pl_vocab_put(&t->model, b, s, n) || !pl_vocab_put(&t->bytes, b, &byte, 1))
            return no_memory(d);
        t->bpe.single[b] = (int32_t)b;
        t->bpe.fallback[b] = -1;
    }
    pl_bpe_find_joins(&t->bpe);
    t->decoder = (struct pl_piece_decoder){.steps = {{.kind = PL_DECODER_BYTE_LEVEL}}, .n = 1};
    return PL_ERR_OK;
}
