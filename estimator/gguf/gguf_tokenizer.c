#include "estimator/gguf/gguf_tokenizer.h"

#include "estimator/base/alloc.h"
#include "estimator/base/checked.h"
#include "estimator/base/json_write.h"
#include "estimator/gguf/gguf_merges.h"

#include <math.h>
#include <string.h>

#define TOKENS_MOST (UINT32_C(1) << 24) /* as a model's vocabulary */
#define UNDERLINE   "\xE2\x96\x81"      /* U+2581, SentencePiece's space */

/* `tokenizer.ggml.token_type` */
enum { TYPE_CONTROL = 3, TYPE_USER = 4 };

/* The kinds of vocabularies, by `tokenizer.ggml.model`; Gemma and Phi-3 have the file of `llama`,
 * and a normalizer of their own. */
enum kind { KIND_BYTES, KIND_LLAMA, KIND_PHI3, KIND_GEMMA };

/* How texts are split before byte-level merges: the names of `tokenizer.ggml.pre`.
 * Source: github.com/ggml-org/llama.cpp, src/llama-vocab.cpp, and the tokenizer.json that each name
 * stands for. */
struct pre {
    const char *name;
    const char *regex; /* each match is a word; NULL: the pattern of GPT-2 */
    bool digits;       /* each digit is a word before that */
    bool whole_words;  /* a word that is a token is not put together by merges */
};

#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS      "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3                                                                                     \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "                                     \
                "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define QWEN2                                                                                      \
    SHORT_FORMS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SHORT_FORMS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER      \
    "+" LOWER "*" SHORT_FORMS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS

static const struct pre pres[] = {
    {"default", NULL, false, false},
    {"gpt-2", NULL, false, false},
    {"phi-2", NULL, false, false},
    {"mpt", NULL, false, false},
    {"olmo", NULL, false, false},
    {"jais", NULL, false, false},
    {"trillion", NULL, false, false},
    {"granite-docling", NULL, false, false},
    {"smollm", NULL, true, false},
    {"starcoder", NULL, true, false},
    {"refact", NULL, true, false},
    {"command-r", NULL, true, false},
    {"codeshell", NULL, true, false},
    {"exaone", NULL, true, false},
    {"llama-bpe", LLAMA3, false, true},
    {"llama3", LLAMA3, false, true},
    {"llama-v3", LLAMA3, false, true},
    {"falcon3", LLAMA3, false, true},
    {"pixtral", LLAMA3, false, true},
    {"smaug-bpe", LLAMA3, false, false},
    {"dbrx", LLAMA3, false, false},
    {"qwen2", QWEN2, false, false},
    {"deepseek-r1-qwen", QWEN2, false, false},
    {"megrez", QWEN2, false, false},
    {"tekken", TEKKEN, false, true},
    {"gpt-4o", GPT4O, false, false},
    {"llama4", GPT4O, false, false},
};

static const struct pre *find_pre(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof pres / sizeof *pres; i++)
        if (strlen(pres[i].name) == n && memcmp(pres[i].name, name, n) == 0) return &pres[i];
    return NULL;
}

struct reader {
    const struct pl_gguf *g;
    const char *path;
    enum kind kind;
    const struct pre *pre;
    bool prefix, adds_bos, adds_eos;
    struct pl_gguf_string *tokens; /* owned */
    uint32_t n;
    char *blanks; /* owned: the tokens of Gemma that are spaces alone, spelled as its texts are */
    struct pl_text *out;
    struct pl_diag *d;
};

static pl_err refuse_key(const struct reader *r, pl_err err, const char *what, const char *why) {
    pl_diag_at(r->d, err, r->path, 0, 0, "`%s` %s", what, why);
    pl_diag_hint(r->d, "set `tokenizer:` to the directory of the model's tokenizer.json");
    return err;
}

static const struct pl_gguf_value *find_key(const struct reader *r, const char *key) {
    return pl_gguf_find(r->g, key);
}

/* --- JSON --- */

static void add_string(struct pl_text *t, const char *s, size_t n) {
    pl_text_add(t, "\"");
    pl_json_write_escaped(t, s, n);
    pl_text_add(t, "\"");
}

/* --- reading --- */

static pl_err read_kind(struct reader *r) {
    struct pl_gguf_string pre = {"default", 7};
    const struct pl_gguf_value *model = find_key(r, "tokenizer.ggml.model");
    const struct pl_gguf_value *architecture = find_key(r, "general.architecture");
    (void)pl_gguf_string(find_key(r, "tokenizer.ggml.pre"), &pre);
    r->kind = pl_gguf_string_is(architecture, "gemma3") ? KIND_GEMMA
              : pl_gguf_string_is(architecture, "phi3") ? KIND_PHI3
                                                        : KIND_LLAMA;
    if (pl_gguf_string_is(model, "llama")) return PL_ERR_OK;
    r->kind = KIND_BYTES;
    r->pre = find_pre(pre.s, pre.n);
    if (!pl_gguf_string_is(model, "gpt2"))
        return refuse_key(r, PL_ERR_TOKENIZER_UNSUPPORTED, "tokenizer.ggml.model",
                          model ? "is neither `gpt2` nor `llama`" : "is missing");
    if (r->pre) return PL_ERR_OK;
    pl_diag_at(r->d, PL_ERR_TOKENIZER_UNSUPPORTED, r->path, 0, 0,
               "`tokenizer.ggml.pre` is `%.*s`, whose way to split texts is not known here",
               (int)pl_u64_min(pre.n, 60), pre.s);
    pl_diag_hint(r->d, "set `tokenizer:` to the directory of the model's tokenizer.json");
    return PL_ERR_TOKENIZER_UNSUPPORTED;
}

static bool is_blank(const struct pl_gguf_string *s) {
    size_t i = 0;
    while (i < s->n && s->s[i] == ' ')
        i++;
    return s->n && i == s->n;
}

/* Tokens of spaces alone stand in Gemma's file as spaces, and in its texts as U+2581. */
static pl_err respell_blanks(struct reader *r) {
    size_t bytes = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (is_blank(&r->tokens[i])) bytes += 3 * r->tokens[i].n;
    r->blanks = pl_malloc(bytes + 1);
    if (!r->blanks) return pl_host_oom(r->d, "the vocabulary of a GGUF file");
    char *to = r->blanks;
    for (uint32_t i = 0; i < r->n; i++) {
        struct pl_gguf_string *t = &r->tokens[i];
        if (!is_blank(t)) continue;
        for (size_t k = 0; k < t->n; k++)
            memcpy(to + 3 * k, UNDERLINE, 3);
        *t = (struct pl_gguf_string){to, 3 * t->n};
        to += t->n;
    }
    return PL_ERR_OK;
}

static pl_err read_tokens(struct reader *r) {
    const struct pl_gguf_value *v = find_key(r, "tokenizer.ggml.tokens");
    struct pl_gguf_strings list = pl_gguf_strings(v);
    if (!v || !v->list || !list.left || list.left > TOKENS_MOST)
        return refuse_key(r, PL_ERR_TOKENIZER_FIELD, "tokenizer.ggml.tokens",
                          v ? "is not a list of tokens" : "is missing");
    r->n = (uint32_t)list.left;
    r->tokens = pl_malloc(r->n * sizeof *r->tokens);
    if (!r->tokens) return pl_host_oom(r->d, "the vocabulary of a GGUF file");
    for (uint32_t i = 0; i < r->n; i++)
        (void)pl_gguf_next_string(&list, &r->tokens[i]);
    return r->kind == KIND_GEMMA ? respell_blanks(r) : PL_ERR_OK;
}

/* NULL: the file names none, or one that is no token. */
static const struct pl_gguf_string *named(const struct reader *r, const char *key, uint64_t *id) {
    return pl_gguf_uint(find_key(r, key), id) && *id < r->n ? &r->tokens[*id] : NULL;
}

/* --- tokenizer.json --- */

static void add_added_tokens(const struct reader *r) {
    const struct pl_gguf_value *types = find_key(r, "tokenizer.ggml.token_type");
    bool first = true;
    pl_text_add(r->out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                        "\"added_tokens\":[");
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t type;
        if (!pl_gguf_uint_at(types, i, &type) || (type != TYPE_CONTROL && type != TYPE_USER))
            continue;
        pl_text_addf(r->out, "%s{\"id\":%lu,\"content\":", first ? "" : ",", (unsigned long)i);
        add_string(r->out, r->tokens[i].s, r->tokens[i].n);
        pl_text_addf(r->out,
                     ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                     "\"normalized\":false,\"special\":%s}",
                     type == TYPE_CONTROL ? "true" : "false");
        first = false;
    }
    pl_text_add(r->out, "],");
}

static void add_byte_steps(const struct reader *r) {
    pl_text_add(r->out, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\","
                        "\"pretokenizers\":[");
    if (r->pre->digits) pl_text_add(r->out, "{\"type\":\"Digits\",\"individual_digits\":true},");
    if (r->pre->regex) {
        pl_text_add(r->out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        add_string(r->out, r->pre->regex, strlen(r->pre->regex));
        pl_text_add(r->out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    pl_text_addf(r->out,
                 "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
                 "\"use_regex\":%s}]},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                 "true,\"trim_offsets\":true,\"use_regex\":true},",
                 r->pre->regex ? "false" : "true");
}

#define REPLACE_SPACE                                                                              \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" UNDERLINE "\"}"

#define SPLIT_AFTER_SPACE                                                                          \
    "\"normalizer\":" REPLACE_SPACE                                                                \
    ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"                              \
    "\" \"},\"behavior\":\"MergedWithPrevious\",\"invert\":false},"
#define METASPACE(scheme)                                                                          \
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" UNDERLINE   \
    "\",\"prepend_scheme\":\"" scheme "\",\"split\":false},"

static void add_piece_steps(const struct reader *r) {
    static const char *const steps[][2] = {
        [KIND_LLAMA] = {METASPACE("never"), METASPACE("first")},
        [KIND_PHI3] = {"\"normalizer\":" REPLACE_SPACE ",\"pre_tokenizer\":null,",
                       "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                       "\"Prepend\",\"prepend\":\"" UNDERLINE "\"}," REPLACE_SPACE "]},"
                       "\"pre_tokenizer\":null,"},
        [KIND_GEMMA] = {SPLIT_AFTER_SPACE, SPLIT_AFTER_SPACE},
    };
    pl_text_add(r->out, steps[r->kind][r->prefix]);
    pl_text_add(r->out, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                        "\"pattern\":{\"String\":\"" UNDERLINE "\"},\"content\":\" \"},"
                        "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
    if (r->kind != KIND_GEMMA && r->prefix)
        pl_text_add(r->out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
    pl_text_add(r->out, "]},");
}

static void add_around(const struct reader *r) {
    uint64_t bos = 0, eos = 0;
    const struct pl_gguf_string *first = named(r, "tokenizer.ggml.bos_token_id", &bos);
    const struct pl_gguf_string *last = named(r, "tokenizer.ggml.eos_token_id", &eos);
    if (!r->adds_bos) first = NULL;
    if (!r->adds_eos) last = NULL;
    if (!first && !last) {
        pl_text_add(r->out, "\"post_processor\":null,");
        return;
    }
    const struct {
        const struct pl_gguf_string *token;
        uint64_t id;
    } ends[] = {{first, bos}, {last, eos}};
    pl_text_add(r->out, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int pair = 0; pair < 2; pair++) {
        for (int i = 0; i < 2; i++) {
            if (ends[i].token) {
                pl_text_add(r->out, i ? "," : "");
                pl_text_add(r->out, "{\"SpecialToken\":{\"id\":");
                add_string(r->out, ends[i].token->s, ends[i].token->n);
                pl_text_addf(r->out, ",\"type_id\":0}}%s", i ? "" : ",");
            }
            if (i == 0) pl_text_add(r->out, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
        }
        if (!pair) pl_text_add(r->out, "],\"pair\":[");
    }
    pl_text_add(r->out, "],\"special_tokens\":{");
    for (int i = 0; i < 2; i++) {
        if (!ends[i].token || (i && ends[0].token && ends[0].id == ends[1].id)) continue;
        pl_text_add(r->out, i && ends[0].token ? "," : "");
        add_string(r->out, ends[i].token->s, ends[i].token->n);
        pl_text_add(r->out, ":{\"id\":");
        add_string(r->out, ends[i].token->s, ends[i].token->n);
        pl_text_addf(r->out, ",\"ids\":[%llu],\"tokens\":[", (unsigned long long)ends[i].id);
        add_string(r->out, ends[i].token->s, ends[i].token->n);
        pl_text_add(r->out, "]}");
    }
    pl_text_add(r->out, "}},");
}

/* Merges of the file: "a b". */
static void add_listed_merges(const struct reader *r, const struct pl_gguf_value *v) {
    struct pl_gguf_strings list = pl_gguf_strings(v);
    struct pl_gguf_string s;
    for (bool first = true; pl_gguf_next_string(&list, &s); first = false) {
        pl_text_add(r->out, first ? "" : ",");
        add_string(r->out, s.s, s.n);
    }
}

/* Gemma's scores do not follow the order of its merges; the order of its tokens does. */
static pl_err add_made_merges(const struct reader *r) {
    const struct pl_gguf_value *v = find_key(r, "tokenizer.ggml.scores");
    struct pl_gguf_merge *merges = NULL;
    uint64_t n = 0;
    double *scores = pl_malloc(r->n * sizeof *scores);
    if (!scores) return pl_host_oom(r->d, "the merges of a vocabulary");
    pl_err err = PL_ERR_OK;
    for (uint32_t i = 0; i < r->n && err == PL_ERR_OK; i++) {
        scores[i] = -(double)i;
        if (r->kind == KIND_GEMMA) continue;
        if (!pl_gguf_real_at(v, i, &scores[i])) {
            err = refuse_key(r, PL_ERR_TOKENIZER_FIELD, "tokenizer.ggml.scores",
                             v ? "has no number for each token" : "is missing, and so are merges");
        } else if (isnan(scores[i])) {
            err = refuse_key(r, PL_ERR_TOKENIZER_FIELD, "tokenizer.ggml.scores", "holds a NaN");
        }
    }
    if (err == PL_ERR_OK) err = pl_gguf_make_merges(r->tokens, scores, r->n, &merges, &n, r->d);
    for (uint64_t i = 0; i < n; i++) {
        const struct pl_gguf_string *a = &r->tokens[merges[i].left],
                                    *b = &r->tokens[merges[i].right];
        pl_text_add(r->out, i ? ",[" : "[");
        add_string(r->out, a->s, a->n);
        pl_text_add(r->out, ",");
        add_string(r->out, b->s, b->n);
        pl_text_add(r->out, "]");
    }
    free(merges);
    free(scores);
    return err;
}

static pl_err add_model(const struct reader *r) {
    const struct pl_gguf_value *merges = find_key(r, "tokenizer.ggml.merges");
    const bool pieces = r->kind != KIND_BYTES;
    pl_text_addf(r->out,
                 "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                 "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                 "\"fuse_unk\":%s,\"byte_fallback\":%s,\"ignore_merges\":%s,\"vocab\":{",
                 pieces ? "true" : "false", pieces ? "true" : "false",
                 r->pre && r->pre->whole_words ? "true" : "false");
    for (uint32_t i = 0; i < r->n; i++) {
        pl_text_add(r->out, i ? "," : "");
        add_string(r->out, r->tokens[i].s, r->tokens[i].n);
        pl_text_addf(r->out, ":%lu", (unsigned long)i);
    }
    pl_text_add(r->out, "},\"merges\":[");
    if (merges)
        add_listed_merges(r, merges);
    else if (pieces)
        PL_TRY(add_made_merges(r));
    else
        return refuse_key(r, PL_ERR_TOKENIZER_FIELD, "tokenizer.ggml.merges", "is missing");
    pl_text_add(r->out, "]}}");
    return PL_ERR_OK;
}

static pl_err write_tokenizer(struct reader *r) {
    add_added_tokens(r);
    if (r->kind == KIND_BYTES)
        add_byte_steps(r);
    else
        add_piece_steps(r);
    add_around(r);
    return add_model(r);
}

/* --- tokenizer_config.json --- */

/* One template is `tokenizer.chat_template`; others are named after a dot, and listed. */
static void add_templates(const struct reader *r) {
    struct pl_gguf_strings names = pl_gguf_strings(find_key(r, "tokenizer.chat_templates"));
    struct pl_gguf_string text, name;
    if (!pl_gguf_string(find_key(r, "tokenizer.chat_template"), &text)) return;
    pl_text_add(r->out, ",\"chat_template\":");
    if (!names.left) {
        add_string(r->out, text.s, text.n);
        return;
    }
    pl_text_add(r->out, "[{\"name\":\"default\",\"template\":");
    add_string(r->out, text.s, text.n);
    pl_text_add(r->out, "}");
    while (pl_gguf_next_string(&names, &name)) {
        struct pl_text key = {0};
        pl_text_addf(&key, "tokenizer.chat_template.%.*s", (int)pl_u64_min(name.n, 200), name.s);
        if (pl_gguf_string(find_key(r, pl_text_str(&key)), &text)) {
            pl_text_add(r->out, ",{\"name\":");
            add_string(r->out, name.s, name.n);
            pl_text_add(r->out, ",\"template\":");
            add_string(r->out, text.s, text.n);
            pl_text_add(r->out, "}");
        }
        r->out->failed |= key.failed;
        pl_text_finish(&key);
    }
    pl_text_add(r->out, "]");
}

static pl_err write_config(struct reader *r) {
    static const struct {
        const char *gguf, *key;
    } tokens[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
    };
    pl_text_add(r->out, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\","
                        "\"clean_up_tokenization_spaces\":false");
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        uint64_t id;
        const struct pl_gguf_string *s = named(r, tokens[i].gguf, &id);
        if (!s) continue;
        pl_text_addf(r->out, ",\"%s\":", tokens[i].key);
        add_string(r->out, s->s, s->n);
    }
    add_templates(r);
    pl_text_add(r->out, "}");
    return PL_ERR_OK;
}

/* --- a file that stands for a directory --- */

static const struct {
    const char *name;
    pl_err (*write)(struct reader *r);
} texts[] = {{"tokenizer.json", write_tokenizer}, {"tokenizer_config.json", write_config}};

static pl_err write_text(const char *file, pl_err (*write)(struct reader *r), struct pl_text *out,
                         struct pl_diag *d) {
    struct pl_gguf g;
    struct reader r = {.g = &g, .path = file, .out = out, .d = d};
    PL_TRY(pl_gguf_open(&g, file, d));
    pl_err err = read_kind(&r);
    if (err == PL_ERR_OK) err = read_tokens(&r);
    /* llama.cpp adds the first token to SentencePiece's vocabularies unless the file says no. */
    r.adds_bos = r.kind != KIND_BYTES;
    r.prefix = true;
    (void)pl_gguf_bool(find_key(&r, "tokenizer.ggml.add_bos_token"), &r.adds_bos);
    (void)pl_gguf_bool(find_key(&r, "tokenizer.ggml.add_eos_token"), &r.adds_eos);
    (void)pl_gguf_bool(find_key(&r, "tokenizer.ggml.add_space_prefix"), &r.prefix);
    if (err == PL_ERR_OK) err = write(&r);
    if (err == PL_ERR_OK && out->failed) err = pl_host_oom(d, file);
    free(r.tokens);
    free(r.blanks);
    pl_gguf_close(&g);
    return err;
}

pl_err pl_gguf_companion(const char *path, struct pl_text *out, bool *there, struct pl_diag *d) {
    const char *slash = strrchr(path, '/');
    *there = false;
    for (size_t i = 0; slash && i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(slash + 1, texts[i].name) != 0) continue;
        char *file = pl_strndup(path, (size_t)(slash - path));
        if (!file) return pl_host_oom(d, "a path");
        *there = pl_gguf_is(file);
        pl_err err = *there ? write_text(file, texts[i].write, out, d) : PL_ERR_OK;
        free(file);
        return err;
    }
    return PL_ERR_OK;
}

pl_err pl_gguf_tokenizer_identify(const char *path, struct pl_digest *h, struct pl_diag *d) {
    static const struct pl_gguf_string architecture = {"general.architecture", 20};
    struct pl_gguf g;
    PL_TRY(pl_gguf_open(&g, path, d));
    for (uint64_t i = 0; i < g.header.n_keys; i++) {
        const struct pl_gguf_key *k = &g.header.keys[i];
        const bool counts = pl_gguf_compare(&k->name, &architecture) == 0 ||
                            (k->name.n > 10 && memcmp(k->name.s, "tokenizer.", 10) == 0);
        if (!counts) continue;
        pl_digest_add(h, k->name.s, k->name.n);
        pl_digest_add(h, k->value.at, k->value.bytes);
    }
    pl_gguf_close(&g);
    return PL_ERR_OK;
}
