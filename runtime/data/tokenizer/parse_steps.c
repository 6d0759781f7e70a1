/* parse_steps.c - normalizer, pre_tokenizer and decoder of a tokenizer.json as lists of steps. */
#include "estimator/base/alloc.h"
#include "runtime/data/tokenizer/json_fields.h"
#include "runtime/data/tokenizer/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NESTING 8

/* The regular expression that is built into ByteLevel (openai/gpt-2, src/encoder.py). */
static const char gpt2_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct parser {
    struct pl_tokenizer *t;
    struct pl_diag *d;
    const char *name;  /* of the part */
    const char *items; /* key of the list of a Sequence */
    uint32_t depth;
    pl_err (*read)(struct parser *p, const struct pl_fields *f, const char *type);
};

static pl_err too_many(const struct parser *p) {
    return pl_diag_set(p->d, PL_ERR_TOKENIZER_UNSUPPORTED, "`%s` has too many steps", p->name);
}

/* One component, or a Sequence of them. */
static pl_err read_component(struct parser *p, const json_t *v) {
    struct pl_fields f;
    const char *type;
    const json_t *list;
    if (!v || json_is_null(v)) return PL_ERR_OK;
    PL_TRY(pl_fields_open(&f, v, p->name, &type, p->d));
    if (strcmp(type, "Sequence") != 0) return p->read(p, &f, type);
    if (++p->depth > MOST_NESTING) return too_many(p);
    PL_TRY(pl_fields_known(&f, "type", p->items, NULL));
    PL_TRY(pl_fields_array(&f, p->items, &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (json_is_null(item)) return pl_fields_wrong(&f, p->items, "holds null");
        PL_TRY(read_component(p, item));
    }
    p->depth--;
    return PL_ERR_OK;
}

/* {"String": s} or {"Regex": s}. */
static pl_err read_pattern(const struct pl_fields *f, struct pl_pattern **out) {
    const json_t *v = pl_fields_get(f, "pattern");
    const json_t *s = json_object_get(v, "String"), *regex = json_object_get(v, "Regex");
    if (json_object_size(v) != 1 || !(json_is_string(s) || json_is_string(regex)))
        return pl_fields_wrong(f, "pattern", "is neither a String nor a Regex");
    if (regex)
        return pl_pattern_compile(out, json_string_value(regex), json_string_length(regex), f->d);
    if (!json_string_length(s)) return pl_fields_wrong(f, "pattern", "is empty");
    return pl_pattern_literal(out, json_string_value(s), json_string_length(s), f->d);
}

static pl_err read_content(const struct pl_fields *f, const char *key, char **out, size_t *n) {
    const char *s;
    PL_TRY(pl_fields_string(f, key, &s, n));
    if (*n > 64) return pl_fields_wrong(f, key, "is longer than 64 bytes");
    *out = pl_malloc(*n + 1);
    if (!*out) return pl_diag_set(f->d, PL_ERR_HOST_OOM, "no memory for `%s.%s`", f->name, key);
    memcpy(*out, s, *n);
    return PL_ERR_OK;
}

/* --- normalizer ------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    enum pl_normalizer_kind kind;
} normalizers[] = {
    {"NFC", PL_NORMALIZER_NFC},         {"NFD", PL_NORMALIZER_NFD},
    {"NFKC", PL_NORMALIZER_NFKC},       {"NFKD", PL_NORMALIZER_NFKD},
    {"Prepend", PL_NORMALIZER_PREPEND}, {"Replace", PL_NORMALIZER_REPLACE},
    {"Strip", PL_NORMALIZER_STRIP},
};

static pl_err read_normalizer_fields(const struct pl_fields *f, struct pl_normalizer_step *step) {
    switch (step->kind) {
    case PL_NORMALIZER_PREPEND:
        PL_TRY(pl_fields_known(f, "type", "prepend", NULL));
        return read_content(f, "prepend", &step->content, &step->n_content);
    case PL_NORMALIZER_REPLACE:
        PL_TRY(pl_fields_known(f, "type", "pattern", "content", NULL));
        PL_TRY(read_content(f, "content", &step->content, &step->n_content));
        return read_pattern(f, &step->pattern);
    case PL_NORMALIZER_STRIP:
        PL_TRY(pl_fields_known(f, "type", "strip_left", "strip_right", NULL));
        PL_TRY(pl_fields_bool(f, "strip_left", &step->left));
        return pl_fields_bool(f, "strip_right", &step->right);
    default:
        return pl_fields_known(f, "type", NULL);
    }
}

static pl_err read_normalizer(struct parser *p, const struct pl_fields *f, const char *type) {
    struct pl_normalizer *n = &p->t->normalizer;
    for (size_t i = 0; i < sizeof normalizers / sizeof *normalizers; i++) {
        if (strcmp(type, normalizers[i].type) != 0) continue;
        if (n->n == PL_NORMALIZER_MOST_STEPS) return too_many(p);
        struct pl_normalizer_step *step = &n->steps[n->n++];
        *step = (struct pl_normalizer_step){.kind = normalizers[i].kind};
        return read_normalizer_fields(f, step);
    }
    return pl_fields_unsupported(f, type);
}

/* --- pre_tokenizer ---------------------------------------------------------------------------- */

static pl_err add_cut(struct parser *p, enum pl_pretokenizer_kind kind,
                      struct pl_pretokenizer_step **out) {
    struct pl_pretokenizer *w = &p->t->pretokenizer;
    if (p->t->bpe.byte_level)
        return pl_diag_set(p->d, PL_ERR_TOKENIZER_UNSUPPORTED,
                           "`pre_tokenizer` has steps after ByteLevel");
    /* the last place is kept for the cut that only makes it faster */
    if (w->n == PL_PRETOKENIZER_MOST_STEPS - 1) return too_many(p);
    *out = &w->steps[w->n++];
    **out = (struct pl_pretokenizer_step){.kind = kind};
    return PL_ERR_OK;
}

static const char *const behaviors[] = {
    [PL_SPLIT_ISOLATED] = "Isolated",
    [PL_SPLIT_REMOVED] = "Removed",
    [PL_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [PL_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
    [PL_SPLIT_CONTIGUOUS] = "Contiguous",
};

static pl_err read_behavior(const struct pl_fields *f, enum pl_split_behavior *out) {
    const char *behavior;
    size_t n;
    PL_TRY(pl_fields_string(f, "behavior", &behavior, &n));
    for (size_t i = 0; i < sizeof behaviors / sizeof *behaviors; i++) {
        if (strcmp(behavior, behaviors[i]) != 0) continue;
        *out = (enum pl_split_behavior)i;
        return PL_ERR_OK;
    }
    return pl_fields_wrong(f, "behavior", "is none of the five known");
}

static pl_err read_split(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(pl_fields_known(f, "type", "pattern", "behavior", "invert", NULL));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_SPLIT, &step));
    PL_TRY(read_behavior(f, &step->behavior));
    PL_TRY(pl_fields_bool(f, "invert", &step->invert));
    return read_pattern(f, &step->pattern);
}

static pl_err read_digits(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    bool individual = false;
    PL_TRY(pl_fields_known(f, "type", "individual_digits", NULL));
    PL_TRY(pl_fields_bool(f, "individual_digits", &individual));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_DIGITS, &step));
    step->behavior = individual ? PL_SPLIT_ISOLATED : PL_SPLIT_CONTIGUOUS;
    return PL_ERR_OK;
}

static pl_err read_punctuation(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(pl_fields_known(f, "type", "behavior", NULL));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_PUNCTUATION, &step));
    step->behavior = PL_SPLIT_ISOLATED;
    return pl_fields_get(f, "behavior") ? read_behavior(f, &step->behavior) : PL_ERR_OK;
}

static pl_err read_words(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(pl_fields_known(f, "type", NULL));
    return add_cut(p, PL_PRETOKENIZER_WORDS, &step);
}

static pl_err read_spaces(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(pl_fields_known(f, "type", NULL));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_SPACES, &step));
    step->behavior = PL_SPLIT_REMOVED;
    return PL_ERR_OK;
}

static pl_err read_bert(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(read_spaces(p, f));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_PUNCTUATION, &step));
    step->behavior = PL_SPLIT_ISOLATED;
    return PL_ERR_OK;
}

static pl_err read_delimiter(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    char character[PL_REPLACEMENT_BYTES];
    size_t n;
    PL_TRY(pl_fields_known(f, "type", "delimiter", NULL));
    PL_TRY(pl_fields_character(f, "delimiter", character, &n));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_SPLIT, &step));
    step->behavior = PL_SPLIT_REMOVED;
    return pl_pattern_literal(&step->pattern, character, n, p->d);
}

static const char *const schemes[] = {
    [PL_PREPEND_ALWAYS] = "always", [PL_PREPEND_FIRST] = "first", [PL_PREPEND_NEVER] = "never"};

static pl_err read_scheme(const struct pl_fields *f, enum pl_prepend *out) {
    bool prefix = true;
    const char *s = "always";
    size_t n;
    if (pl_fields_get(f, "prepend_scheme")) PL_TRY(pl_fields_string(f, "prepend_scheme", &s, &n));
    PL_TRY(pl_fields_bool(f, "add_prefix_space", &prefix));
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (strcmp(s, schemes[i]) != 0) continue;
        *out = (enum pl_prepend)i;
        if (prefix || *out == PL_PREPEND_NEVER) return PL_ERR_OK;
        return pl_fields_wrong(f, "add_prefix_space", "contradicts prepend_scheme");
    }
    return pl_fields_wrong(f, "prepend_scheme", "is neither always, first nor never");
}

static pl_err read_metaspace(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    PL_TRY(pl_fields_known(f, "type", "replacement", "prepend_scheme", "add_prefix_space", "split",
                           "str_rep", NULL));
    PL_TRY(add_cut(p, PL_PRETOKENIZER_METASPACE, &step));
    step->split = true;
    PL_TRY(pl_fields_character(f, "replacement", step->replacement, &step->n_replacement));
    PL_TRY(pl_fields_bool(f, "split", &step->split));
    return read_scheme(f, &step->prepend);
}

static pl_err byte_level_known(const struct pl_fields *f) {
    return pl_fields_known(f, "type", "add_prefix_space", "trim_offsets", "use_regex", NULL);
}

static pl_err read_byte_level(struct parser *p, const struct pl_fields *f) {
    struct pl_pretokenizer_step *step;
    bool prefix = true, regex = true;
    PL_TRY(byte_level_known(f));
    PL_TRY(pl_fields_bool(f, "add_prefix_space", &prefix));
    PL_TRY(pl_fields_bool(f, "use_regex", &regex));
    if (prefix) PL_TRY(add_cut(p, PL_PRETOKENIZER_BYTE_LEVEL, &step));
    if (regex) {
        PL_TRY(add_cut(p, PL_PRETOKENIZER_SPLIT, &step));
        PL_TRY(pl_pattern_compile(&step->pattern, gpt2_regex, sizeof gpt2_regex - 1, p->d));
    }
    p->t->bpe.byte_level = true;
    return PL_ERR_OK;
}

static const struct {
    const char *type;
    pl_err (*read)(struct parser *p, const struct pl_fields *f);
} pretokenizers[] = {
    {"Split", read_split},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_words},
    {"WhitespaceSplit", read_spaces},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {"Metaspace", read_metaspace},
    {"ByteLevel", read_byte_level},
};

static pl_err read_pretokenizer(struct parser *p, const struct pl_fields *f, const char *type) {
    for (size_t i = 0; i < sizeof pretokenizers / sizeof *pretokenizers; i++)
        if (strcmp(type, pretokenizers[i].type) == 0) return pretokenizers[i].read(p, f);
    return pl_fields_unsupported(f, type);
}

/* --- decoder ---------------------------------------------------------------------------------- */

static pl_err decode_byte_level(const struct pl_fields *f, struct pl_decoder_step *step) {
    (void)step;
    return byte_level_known(f);
}

static pl_err decode_plain(const struct pl_fields *f, struct pl_decoder_step *step) {
    (void)step;
    return pl_fields_known(f, "type", NULL);
}

static pl_err decode_replace(const struct pl_fields *f, struct pl_decoder_step *step) {
    PL_TRY(pl_fields_known(f, "type", "pattern", "content", NULL));
    PL_TRY(read_content(f, "content", &step->content, &step->n_content));
    return read_pattern(f, &step->pattern);
}

static pl_err decode_strip(const struct pl_fields *f, struct pl_decoder_step *step) {
    uint64_t start = 0, stop = 0;
    PL_TRY(pl_fields_known(f, "type", "content", "start", "stop", NULL));
    PL_TRY(pl_fields_character(f, "content", step->character, &step->n_character));
    PL_TRY(pl_fields_uint(f, "start", UINT32_MAX, &start));
    PL_TRY(pl_fields_uint(f, "stop", UINT32_MAX, &stop));
    step->start = (uint32_t)start;
    step->stop = (uint32_t)stop;
    return PL_ERR_OK;
}

static pl_err decode_metaspace(const struct pl_fields *f, struct pl_decoder_step *step) {
    enum pl_prepend prepend = PL_PREPEND_ALWAYS;
    PL_TRY(pl_fields_known(f, "type", "replacement", "prepend_scheme", "add_prefix_space", "split",
                           "str_rep", NULL));
    PL_TRY(pl_fields_character(f, "replacement", step->character, &step->n_character));
    PL_TRY(read_scheme(f, &prepend));
    step->drops_first = prepend != PL_PREPEND_NEVER;
    return PL_ERR_OK;
}

static const struct {
    const char *type;
    enum pl_decoder_kind kind;
    pl_err (*read)(const struct pl_fields *f, struct pl_decoder_step *step);
} decoders[] = {
    {"ByteLevel", PL_DECODER_BYTE_LEVEL, decode_byte_level},
    {"Replace", PL_DECODER_REPLACE, decode_replace},
    {"ByteFallback", PL_DECODER_BYTE_FALLBACK, decode_plain},
    {"Fuse", PL_DECODER_FUSE, decode_plain},
    {"Strip", PL_DECODER_STRIP, decode_strip},
    {"Metaspace", PL_DECODER_METASPACE, decode_metaspace},
};

static pl_err read_decoder(struct parser *p, const struct pl_fields *f, const char *type) {
    struct pl_piece_decoder *list = &p->t->decoder;
    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++) {
        if (strcmp(type, decoders[i].type) != 0) continue;
        if (list->n == PL_DECODER_MOST_STEPS) return too_many(p);
        struct pl_decoder_step *step = &list->steps[list->n++];
        *step = (struct pl_decoder_step){.kind = decoders[i].kind};
        return decoders[i].read(f, step);
    }
    return pl_fields_unsupported(f, type);
}

pl_err pl_tokenizer_parse_steps(struct pl_tokenizer *t, const json_t *root, struct pl_diag *d) {
    struct parser parsers[] = {
        {t, d, "normalizer", "normalizers", 0, read_normalizer},
        {t, d, "pre_tokenizer", "pretokenizers", 0, read_pretokenizer},
        {t, d, "decoder", "decoders", 0, read_decoder},
    };
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        PL_TRY(read_component(&parsers[i], json_object_get(root, parsers[i].name)));
    return PL_ERR_OK;
}
