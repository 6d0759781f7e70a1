/* check_tokenizer.c - opening, refusing, asking, decoding; where tokens begin; `plimsoll tokenize`.
 * TOKENIZER_CASES names the directory of the tokenizers, PLIMSOLL the binary. */
#include "tests/data/tokenizer/bench.h"
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"

#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

static char dir[SCRATCH_PATH];
static const char *cases;

static void set_up(void) {
    scratch_make(dir);
    cases = getenv("TOKENIZER_CASES");
    ck_assert_ptr_nonnull(cases);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char *named(const char *name) {
    return in_dir(cases, name);
}

/* Small, and with something of everything; the rows below each change one place. */
static const char base[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
    " \"added_tokens\": [\n"
    "  {\"id\": 5, \"content\": \"<s>\", \"special\": true, \"normalized\": false},\n"
    "  {\"id\": 6, \"content\": \"<n>\", \"special\": true, \"normalized\": true, \"lstrip\": "
    "false}],\n"
    " \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]},\n"
    " \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n"
    "  {\"type\": \"Split\", \"pattern\": {\"Regex\": \" ?[a-z]+\"}, \"behavior\": \"Isolated\",\n"
    "   \"invert\": false},\n"
    "  {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]},\n"
    " \"post_processor\": {\"type\": \"TemplateProcessing\",\n"
    "  \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}},\n"
    "   {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [],\n"
    "  \"special_tokens\": {\"<s>\": {\"id\": \"<s>\", \"ids\": [5], \"tokens\": [\"<s>\"]}}},\n"
    " \"decoder\": {\"type\": \"ByteLevel\"},\n"
    " \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null,\n"
    "  \"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": null, \"fuse_unk\": false,\n"
    "  \"byte_fallback\": false, \"ignore_merges\": false,\n"
    "  \"vocab\": {\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"\\u0120ab\": 4},\n"
    "  \"merges\": [\"a b\", [\"\\u0120\", \"ab\"]]}}\n";

/* The base with the first `from` replaced; written to dir/tokenizer.json. */
static void write_changed(const char *from, const char *to) {
    const char *at = strstr(base, from);
    ck_assert_msg(at != NULL, "%s", from);
    struct pl_text t = {0};
    pl_text_addn(&t, base, (size_t)(at - base));
    pl_text_add(&t, to);
    pl_text_add(&t, at + strlen(from));
    file_write(in_dir(dir, "tokenizer.json"), pl_text_str(&t));
    pl_text_finish(&t);
}

/* O1 of tokenizer_parts.h; V1 of vocab.h, as pieces are read up to their NUL */
START_TEST(the_unchanged_file_opens_and_works) {
    struct bench b;
    write_changed("1.0", "1.0");
    bench_open(&b, dir);
    bench_encode(&b, "ab ab<n>b", 9, true);
    ck_assert_uint_eq(b.list.n, 5);
    ck_assert_mem_eq(b.list.ids, ((int32_t[]){5, 3, 4, 6, 1}), 5 * sizeof *b.list.ids);
    ck_assert_mem_eq(b.list.starts, ((uint64_t[]){0, 0, 2, 5, 8}), 5 * sizeof *b.list.starts);
    ck_assert_uint_eq(pl_tokenizer_size(b.t), 7);
    ck_assert_int_eq(pl_tokenizer_id(b.t, "<n>"), 6);
    ck_assert_int_eq(pl_tokenizer_id(b.t, "ab"), 3);
    ck_assert_int_eq(pl_tokenizer_id(b.t, "abc"), -1);
    ck_assert_str_eq(pl_tokenizer_piece(b.t, 4), "\xC4\xA0"
                                                 "ab");
    ck_assert_ptr_null(pl_tokenizer_piece(b.t, 7));
    ck_assert_ptr_null(pl_tokenizer_piece(b.t, -1));
    ck_assert(pl_tokenizer_is_special(b.t, 5) && !pl_tokenizer_is_special(b.t, 4));
    ck_assert(!pl_tokenizer_is_special(b.t, -5) && !pl_tokenizer_is_special(b.t, 1000000));
    bench_close(&b);
}
END_TEST

/* transformers turns both off before it encodes: the ids are those without. */
START_TEST(truncation_and_padding_change_no_ids) {
    struct bench b;
    write_changed("\"truncation\": null, \"padding\": null",
                  "\"truncation\": {\"direction\": \"Right\", \"max_length\": 1, \"strategy\": "
                  "\"LongestFirst\", \"stride\": 0}, \"padding\": {\"strategy\": {\"Fixed\": 9}, "
                  "\"direction\": \"Right\", \"pad_to_multiple_of\": null, \"pad_id\": 6, "
                  "\"pad_type_id\": 0, \"pad_token\": \"<n>\"}");
    bench_open(&b, dir);
    bench_encode(&b, "ab ab<n>b", 9, true);
    ck_assert_uint_eq(b.list.n, 5);
    ck_assert_mem_eq(b.list.ids, ((int32_t[]){5, 3, 4, 6, 1}), 5 * sizeof *b.list.ids);
    bench_close(&b);
}
END_TEST

/* J3 of json_fields.h. A character like any other in vocabulary and merges; the ids are those of
 * the library. */
START_TEST(a_token_may_hold_nul) {
    struct bench b;
    file_write(in_dir(dir, "tokenizer.json"),
               "{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": \"BPE\", "
               "\"vocab\": {\"\\u0000\": 0, \"a\": 1, \"a\\u0000\": 2}, "
               "\"merges\": [\"a \\u0000\"]}}");
    bench_open(&b, dir);
    bench_encode(&b, "a\0a\0\0", 5, false);
    ck_assert_uint_eq(b.list.n, 3);
    ck_assert_mem_eq(b.list.ids, ((int32_t[]){2, 2, 0}), 3 * sizeof *b.list.ids);
    bench_close(&b);
}
END_TEST

/* Ids that version 0.23.3 of the library gives. The merges cross every kind of border, so that the
 * ids show the cuts; U+2E43 is of category P since Unicode 9, and no punctuation to the library. */
static const struct {
    const char *pre_tokenizer, *text;
    uint64_t n;
    int32_t ids[8];
} punctuated[] = {
    {"", "a,b,,!b", 7, {0, 1, 3, 1, 1, 2, 3}},
    {"", "a\u3001\u300Db!a\u2E43b", 7, {0, 9, 13, 3, 2, 12, 3}},
    {", \"behavior\": \"Removed\"", "a,b,,!b", 3, {0, 3, 3}},
    {", \"behavior\": \"Removed\"", "a\u3001\u300Db!a\u2E43b", 4, {0, 3, 12, 3}},
    {", \"behavior\": \"Isolated\"", "a,b,,!b", 7, {0, 1, 3, 1, 1, 2, 3}},
    {", \"behavior\": \"Isolated\"", "a\u3001\u300Db!a\u2E43b", 7, {0, 9, 13, 3, 2, 12, 3}},
    {", \"behavior\": \"MergedWithPrevious\"", "a,b,,!b", 6, {4, 3, 1, 1, 2, 3}},
    {", \"behavior\": \"MergedWithPrevious\"", "a\u3001\u300Db!a\u2E43b", 6, {10, 13, 3, 2, 12, 3}},
    {", \"behavior\": \"MergedWithNext\"", "a,b,,!b", 5, {0, 7, 1, 1, 8}},
    {", \"behavior\": \"MergedWithNext\"", "a\u3001\u300Db!a\u2E43b", 7, {0, 9, 13, 3, 2, 12, 3}},
    {", \"behavior\": \"Contiguous\"", "a,b,,!b", 6, {0, 1, 3, 5, 2, 3}},
    {", \"behavior\": \"Contiguous\"", "a\u3001\u300Db!a\u2E43b", 6, {0, 14, 3, 2, 12, 3}},
};

START_TEST(punctuation_is_cut_as_the_behaviour_says) {
    struct bench b;
    file_write(
        in_dir(dir, "tokenizer.json"),
        textf("{\"version\": \"1.0\", \"added_tokens\": [], \"pre_tokenizer\": "
              "{\"type\": \"Punctuation\"%s}, \"model\": {\"type\": \"BPE\", \"vocab\": "
              "{\"a\": 0, \",\": 1, \"!\": 2, \"b\": 3, \"a,\": 4, \",,\": 5, \",!\": 6, "
              "\",b\": 7, \"!b\": 8, \"\\u3001\": 9, \"a\\u3001\": 10, \"\\u2e43\": 11, "
              "\"a\\u2e43\": 12, \"\\u300d\": 13, \"\\u3001\\u300d\": 14, \"\\u2e43b\": 15}, "
              "\"merges\": [\"a ,\", \", ,\", \", !\", \", b\", \"! b\", \"a \\u3001\", "
              "\"a \\u2e43\", \"\\u3001 \\u300d\", \"\\u2e43 b\"]}}",
              punctuated[_i].pre_tokenizer));
    bench_open(&b, dir);
    bench_encode(&b, punctuated[_i].text, strlen(punctuated[_i].text), false);
    ck_assert_uint_eq(b.list.n, punctuated[_i].n);
    ck_assert_mem_eq(b.list.ids, punctuated[_i].ids, b.list.n * sizeof *b.list.ids);
    bench_close(&b);
}
END_TEST

#define FIELD       PL_ERR_TOKENIZER_FIELD
#define UNSUPPORTED PL_ERR_TOKENIZER_UNSUPPORTED

static const struct {
    const char *from, *to;
    pl_err err;
    const char *named;
} refused[] = {
    {"\"version\"", "version", PL_ERR_TOKENIZER_SYNTAX, ""},
    {"]}}\n", "]}", PL_ERR_TOKENIZER_SYNTAX, ""},
    {"\"1.0\"", "\"2.0\"", UNSUPPORTED, "version"},
    {"\"ids\": [5]", "\"ids\": [9]", FIELD, "special_tokens"},
    {"\"version\"", "\"new\": 1, \"version\"", UNSUPPORTED, "`new`"},
    {"\"type\": \"NFC\"", "\"type\": \"Lowercase\"", UNSUPPORTED, "Lowercase"},
    {"\"type\": \"NFC\"",
     "\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"x\"", FIELD,
     "normalizer.pattern"},
    {"\"type\": \"NFC\"", "\"type\": \"Prepend\"", FIELD, "normalizer.prepend"},
    {"\"type\": \"NFC\"", "\"type\": \"NFC\", \"x\": 1", UNSUPPORTED, "`x`"},
    {"{\"type\": \"NFC\"}", "null", FIELD, "normalizers"},
    {"{\"type\": \"NFC\"}", "7", FIELD, "normalizer"},
    {"\"type\": \"NFC\"", "\"no\": 1", FIELD, "type"},
    {"\"type\": \"Split\"", "\"type\": \"UnicodeScripts\"", UNSUPPORTED, "UnicodeScripts"},
    {"\"type\": \"Split\"", "\"type\": \"Punctuation\"", UNSUPPORTED, "`pattern`"},
    {"{\"type\": \"Split\"",
     "{\"type\": \"Punctuation\", \"behavior\": \"apart\"}, {\"type\": \"Split\"", FIELD,
     "behavior"},
    {"\" ?[a-z]+\"", "\"\\\\b\"", UNSUPPORTED, "\\b"},
    {"\" ?[a-z]+\"", "\"(\"", FIELD, "open"},
    {"{\"Regex\"", "{\"Other\"", FIELD, "pattern"},
    {"\"Isolated\"", "\"Apart\"", FIELD, "behavior"},
    {"\"invert\": false", "\"invert\": 0", FIELD, "invert"},
    {"\"use_regex\": false}", "\"use_regex\": false}, {\"type\": \"Digits\"}", UNSUPPORTED,
     "after ByteLevel"},
    {"{\"type\": \"ByteLevel\"}", "{\"type\": \"CTC\"}", UNSUPPORTED, "CTC"},
    {"\"TemplateProcessing\"", "\"BertProcessing\"", UNSUPPORTED, "BertProcessing"},
    {"\"ids\": [5]", "\"ids\": [7]", FIELD, "special_tokens"},
    {"\"ids\": [5]", "\"ids\": [-1]", FIELD, "special_tokens"},
    {"\"id\": \"A\"", "\"id\": \"B\"", FIELD, "single"},
    {"{\"SpecialToken\"", "{\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\"", FIELD, "single"},
    {"\"type\": \"BPE\"", "\"type\": \"WordPiece\"", UNSUPPORTED, "WordPiece"},
    {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", UNSUPPORTED, "`dropout`"},
    {"\"dropout\": null", "\"dropout\": 0.1", UNSUPPORTED, "dropout"},
    {"\"continuing_subword_prefix\": \"\"", "\"continuing_subword_prefix\": \"##\"", UNSUPPORTED,
     "continuing_subword_prefix"},
    {"\"unk_token\": null", "\"unk_token\": \"<u>\"", FIELD, "unk_token"},
    {"\"fuse_unk\": false", "\"fuse_unk\": \"no\"", FIELD, "fuse_unk"},
    {"\"a\": 0", "\"a\": -1", FIELD, "`a`"},
    {"\"a\": 0", "\"a\": 8388608", FIELD, "`a`"},
    {"\"a\": 0", "\"a\": 1.5", FIELD, "`a`"},
    {"\"b\": 1", "\"b\": 0", FIELD, "the id 0"}, /* V2 of vocab.h */
    {"\"a\": 0", "\"a\": 0, \"a\": 7", FIELD, "twice"},
    {"\"vocab\": {", "\"vocab\": {}, \"vocab\": {", PL_ERR_TOKENIZER_SYNTAX, "twice"},
    {"\"a\": 0", "\"a\": 1e999", FIELD, "`a`"},
    {"\"a\": 0", "\"a\": [0]", FIELD, "`a`"},
    {"\"vocab\": {", "\"vocab\": [], \"more\": {", UNSUPPORTED, "`more`"},
    {"\"merges\"", "\"merged\"", UNSUPPORTED, "`merged`"},
    {"\"a b\"", "\"a  b\"", FIELD, "number 0"},
    {"\"a b\"", "\"ab\"", FIELD, "number 0"},
    {"\"a b\"", "\"b a\"", FIELD, "number 0"},
    {"\"a b\"", "[\"a\"]", FIELD, "number 0"},
    {"\"a b\"", "5", FIELD, "number 0"},
    {"\"id\": 5", "\"id\": 9", FIELD, "the id 9"}, /* O2 of tokenizer_parts.h */
    {"\"id\": 5", "\"id\": 4294967301", FIELD, "added_tokens.id"},
    {"\"content\": \"<s>\"", "\"content\": \"\"", FIELD, "empty"},
    {"\"content\": \"<n>\"", "\"content\": \"<s>\"", FIELD, "twice"},
    {"\"lstrip\": false", "\"lstrip\": 1", FIELD, "lstrip"},
    {"\"lstrip\": false", "\"left\": false", UNSUPPORTED, "`left`"},
};

/* K1 of tokenizer.h and J1 of json_fields.h */
START_TEST(what_would_not_be_done_exactly_is_refused_by_name) {
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    write_changed(refused[_i].from, refused[_i].to);
    pl_err err = pl_tokenizer_open(dir, &t, &d);
    ck_assert_ptr_null(t);
    ck_assert_msg(err == refused[_i].err && strstr(d.message, refused[_i].named), "%s: %s: %s: %s",
                  refused[_i].to, pl_err_code(err), d.file, d.message);
    ck_assert_msg(strstr(d.file, "tokenizer.json"), "%s", d.file);
}
END_TEST

#define REPLACE(from, to)                                                                          \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" from "\"}, \"content\": \"" to "\"}"

/* N1 of normalizer.h: the other order gives bbb. N2 of normalizer.h: the first b begins where the b
 * stood that the first step took. */
START_TEST(steps_of_a_normalizer_run_in_their_order) {
    struct bench b;
    write_changed(
        "{\"type\": \"NFC\"}",
        REPLACE("ba", "a") ", {\"type\": \"Sequence\", \"normalizers\": [" REPLACE("aa", "b") "]}");
    bench_open(&b, dir);
    bench_encode(&b, "baab", 4, false);
    ck_assert_uint_eq(b.list.n, 2);
    ck_assert_mem_eq(b.list.ids, ((int32_t[]){1, 1}), 2 * sizeof *b.list.ids);
    ck_assert_mem_eq(b.list.starts, ((uint64_t[]){0, 3}), 2 * sizeof *b.list.starts);
    bench_close(&b);
}
END_TEST

#define OCTET(c) c c c c c c c c
#define LONG(c)  OCTET(c) OCTET(c) OCTET(c) OCTET(c) OCTET(c) OCTET(c) OCTET(c) OCTET(c)
#define GROWING  REPLACE("b", LONG("a")) ", " REPLACE("a", LONG("b")) ", " REPLACE("b", LONG("a"))

/* N3 of normalizer.h */
START_TEST(text_that_a_normalizer_makes_too_long_is_refused) {
    struct bench b;
    write_changed("{\"type\": \"NFC\"}", GROWING);
    bench_open(&b, dir);
    bench_encode(&b, "a", 1, false);
    ck_assert_uint_eq(b.list.n, 64 * 64);
    ck_assert_int_eq(pl_tokenizer_encode(b.t, b.s, "b", 1, false, &b.list, &b.d),
                     PL_ERR_TOKENIZER_INPUT);
    ck_assert_msg(strstr(b.d.message, "makes 262144 bytes of 1"), "%s", b.d.message);
    bench_close(&b);
}
END_TEST

START_TEST(a_model_without_type_is_an_old_form_that_opens) {
    struct bench b;
    write_changed("\"type\": \"BPE\", ", "");
    bench_open(&b, in_dir(dir, "tokenizer.json"));
    bench_encode(&b, "ab", 2, false);
    ck_assert_uint_eq(b.list.n, 1);
    bench_close(&b);
}
END_TEST

/* D2 of tokenizer_document.h. Every beginning of the file, and the file with each byte damaged: an
 * error, never a crash. */
START_TEST(a_damaged_file_opens_or_is_refused) {
    struct pl_tokenizer *t;
    const char *path = in_dir(dir, "tokenizer.json");
    char text[sizeof base];
    for (size_t i = 0; i < sizeof base - 1; i++) {
        memcpy(text, base, sizeof base);
        text[i] = _i == 0 ? 0 : "\"}]7,x"[(i + (size_t)_i) % 6];
        file_write(path, text);
        pl_err err = pl_tokenizer_open(path, &t, NULL);
        if ((err == PL_ERR_OK) != (t != NULL)) ck_abort_msg("byte %zu", i);
        pl_tokenizer_close(&t);
    }
}
END_TEST

START_TEST(paths_that_are_no_tokenizer_are_named) {
    static const struct {
        const char *path;
        const char *what;
    } paths[] = {{"none", "there is no tokenizer"}, {"empty", "no tokenizer.json"}};
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    scratch_copy(named("gpt2_style"), in_dir(dir, "empty"));
    ck_assert_int_eq(unlink(in_dir(dir, "empty/tokenizer.json")), 0);
    ck_assert_int_eq(pl_tokenizer_open(in_dir(dir, paths[_i].path), &t, &d), PL_ERR_TOKENIZER_FILE);
    ck_assert_msg(strstr(d.message, paths[_i].what), "%s", d.message);
}
END_TEST

START_TEST(what_stands_beside_the_file_is_read) {
    struct bench b;
    bench_open(&b, named("llama3_style"));
    ck_assert_int_eq(pl_tokenizer_bos(b.t), pl_tokenizer_id(b.t, "<|begin_of_text|>"));
    ck_assert_int_eq(pl_tokenizer_eos(b.t), pl_tokenizer_id(b.t, "<|eot_id|>"));
    ck_assert_ptr_nonnull(strstr(pl_tokenizer_template(b.t, 0)->text, "<|start_header_id|>"));
    bench_close(&b);
    bench_open(&b, named("mistral_metaspace_first")); /* bos_token is an object there */
    ck_assert_int_eq(pl_tokenizer_bos(b.t), 1);
    bench_close(&b);
    bench_open(&b, named("metaspace_always")); /* a list of templates */
    ck_assert_ptr_nonnull(strstr(pl_tokenizer_template(b.t, 0)->text, "<|im_start|>"));
    bench_close(&b);
    bench_open(&b, named("smollm2_style")); /* a file of its own */
    ck_assert_ptr_nonnull(strstr(pl_tokenizer_template(b.t, 0)->text, "<|im_start|>"));
    bench_close(&b);
    bench_open(&b, named("gpt2_style/tokenizer.json"));
    ck_assert_ptr_null(pl_tokenizer_template(b.t, 0));
    ck_assert_int_eq(pl_tokenizer_eos(b.t), 2000);
    bench_close(&b);
}
END_TEST

START_TEST(the_byte_tokenizer_has_a_token_for_every_byte) {
    static const char text[] = "a\0\xC3\xA9\xF0\x9F\x98\x80";
    size_t n = sizeof text - 1;
    struct bench b;
    bench_open(&b, "byte");
    ck_assert_uint_eq(pl_tokenizer_size(b.t), 256);
    bench_encode(&b, text, n, true);
    ck_assert_uint_eq(b.list.n, n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(b.list.ids[i], (unsigned char)text[i]);
        ck_assert_uint_eq(b.list.starts[i], i);
    }
    bench_decode(&b, b.list.ids, b.list.n, true);
    ck_assert_uint_eq(b.text.len, n);
    ck_assert_mem_eq(b.text.data, text, n);
    bench_decode(&b, (int32_t[]){'x', 0xFF, 'y'}, 3, false);
    ck_assert_str_eq(pl_text_str(&b.text), "x\xEF\xBF\xBDy");
    bench_close(&b);
}
END_TEST

START_TEST(text_that_is_not_utf8_and_ids_that_are_no_token_are_errors) {
    struct bench b;
    struct pl_diag d = {0};
    bench_open(&b, "byte");
    ck_assert_int_eq(pl_tokenizer_encode(b.t, b.s, "ab\xFF", 3, false, &b.list, &d),
                     PL_ERR_TOKENIZER_INPUT);
    ck_assert_msg(strstr(d.message, "byte 2"), "%s", d.message);
    for (int i = 0; i < 3; i++) {
        static const int32_t bad[] = {-1, 256, INT32_MAX};
        struct pl_diag e = {0};
        ck_assert_int_eq(pl_tokenizer_decode(b.t, &bad[i], 1, false, &b.text, &e),
                         PL_ERR_TOKENIZER_INPUT);
    }
    bench_close(&b);
}
END_TEST

START_TEST(special_tokens_leave_no_text_when_skipped) {
    struct bench b;
    bench_open(&b, named("qwen2_style"));
    static const char text[] = "<|im_start|>a<tool_call>b<|im_end|>";
    bench_encode(&b, text, sizeof text - 1, false);
    bench_decode(&b, b.list.ids, b.list.n, true);
    ck_assert_str_eq(pl_text_str(&b.text), "a<tool_call>b");
    bench_decode(&b, b.list.ids, b.list.n, false);
    ck_assert_str_eq(pl_text_str(&b.text), text);
    bench_close(&b);
}
END_TEST

/* K4 of tokenizer.h and D3 of piece_decoder.h. Any list of ids decodes to UTF-8: each id alone, and
 * each after another. */
START_TEST(every_id_decodes_to_utf8) {
    static const char *const names[] = {"llama3_style", "llama2_legacy", "qwen2_style",
                                        "metaspace_always"};
    struct bench b;
    bench_open(&b, named(names[_i]));
    int32_t size = (int32_t)pl_tokenizer_size(b.t);
    for (int32_t id = 0; id < size; id++) {
        int32_t pair[2] = {id, (int32_t)(((int64_t)id * 977 + 3) % size)};
        if (!pl_tokenizer_piece(b.t, pair[0]) || !pl_tokenizer_piece(b.t, pair[1])) continue;
        bench_decode(&b, pair, 2, false);
        json_t *valid = json_stringn(pl_text_str(&b.text), b.text.len);
        if (!valid) ck_abort_msg("ids %d and %d", pair[0], pair[1]);
        json_decref(valid);
    }
    bench_close(&b);
}
END_TEST

/* Byte-level text without normalisation: the text between two beginnings is the token's text; an
 * added token may have taken the space next to it as well. */
START_TEST(tokens_begin_where_their_text_does) {
    static const char *const names[] = {"llama3_style", "gpt2_style", "smollm2_style",
                                        "phi4mini_style", "byte"};
    struct bench b;
    size_t n;
    char *text = file_read(named("llama2_legacy/cases.jsonl"), &n); /* cases of all scripts */
    bench_open(&b, strcmp(names[_i], "byte") == 0 ? "byte" : named(names[_i]));
    bench_encode(&b, text, n, false);
    for (uint64_t i = 0; i < b.list.n; i++) {
        uint64_t from = b.list.starts[i], to = i + 1 < b.list.n ? b.list.starts[i + 1] : n;
        if (to <= from || to > n) ck_abort_msg("token %llu", (unsigned long long)i);
        if (pl_tokenizer_is_special(b.t, b.list.ids[i])) continue;
        struct pl_text want = {0};
        bench_decode(&b, &b.list.ids[i], 1, false);
        /* half a character decodes to U+FFFD: then only its place is known */
        pl_text_addn(&want, text + from, (size_t)(to - from));
        if (!strstr(pl_text_str(&b.text), "\xEF\xBF\xBD") &&
            strcmp(pl_text_str(&b.text), pl_text_str(&want)) != 0)
            ck_abort_msg("token %llu is %s at %s", (unsigned long long)i, pl_text_str(&b.text),
                         pl_text_str(&want));
        pl_text_finish(&want);
    }
    ck_assert_uint_eq(b.list.starts[0], 0);
    bench_close(&b);
    free(text);
}
END_TEST

struct worker {
    const struct pl_tokenizer *t;
    const char *text;
    size_t n;
    struct pl_token_list list;
    pl_err err;
};

static void *encode_often(void *ctx) {
    struct worker *w = ctx;
    struct pl_tokenizer_scratch *s = NULL;
    w->err = pl_tokenizer_scratch_create(w->t, &s, NULL);
    for (int i = 0; i < 4 && w->err == PL_ERR_OK; i++)
        w->err = pl_tokenizer_encode(w->t, s, w->text, w->n, true, &w->list, NULL);
    pl_tokenizer_scratch_destroy(&s);
    return NULL;
}

/* K2 of tokenizer.h and R3 of pattern.h */
START_TEST(threads_share_a_tokenizer) {
    enum { THREADS = 4 };
    static const char *const names[] = {"qwen2_style", "mistral_metaspace_first"};
    struct worker w[THREADS];
    pthread_t threads[THREADS];
    struct bench b;
    size_t n;
    char *text = file_read(named("phi4mini_style/cases.jsonl"), &n);
    bench_open(&b, named(names[_i]));
    bench_encode(&b, text, n, true);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.t = b.t, .text = text, .n = n};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_often, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert_int_eq(w[i].err, PL_ERR_OK);
        ck_assert_uint_eq(w[i].list.n, b.list.n);
        ck_assert_mem_eq(w[i].list.ids, b.list.ids, b.list.n * sizeof *b.list.ids);
        pl_token_list_finish(&w[i].list);
    }
    bench_close(&b);
    free(text);
}
END_TEST

/* K3 of tokenizer.h. Time limits end what is not linear. */
START_TEST(a_megabyte_of_anything_is_encoded) {
    static const char *const names[] = {"llama3_style", "llama2_legacy", "qwen2_style"};
    static const char *const units[] = {"a", " ", "\xCC\x81\xCC\xA7", "\n", "<|", "\xE4\xB8\x80"};
    struct bench b;
    size_t n = (size_t)1 << 20, unit = strlen(units[_i]);
    char *text = malloc(n);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n; i++)
        text[i] = units[_i][i % unit];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        bench_open(&b, named(names[k]));
        bench_encode(&b, text, n / unit * unit, true);
        ck_assert_uint_gt(b.list.n, 0);
        bench_close(&b);
    }
    free(text);
}
END_TEST

/* --- the command ------------------------------------------------------------------------------ */

static const struct {
    const char *shell;
    int status;
    const char *out, *err; /* parts of both */
} commands[] = {
    {"printf '{\"text\":\"h\\\\u00e9\\\\u0000\"}\\n{\"text\":\"\"}' | $P --tokenizer byte --json",
     0,
     "{\"ids\":[104,195,169,0],\"decoded\":\"h\xC3\xA9\\u0000\"}\n{\"ids\":[],\"decoded\":\"\"}\n",
     ""},
    {"echo To be | $P --tokenizer $T/llama3_style", 0, "   2000  <|begin_of_text|>\n", ""},
    {"echo '{\"text\":\"a\"}' | $P --tokenizer $T/llama3_style --json --no-special-tokens", 0,
     "{\"ids\":[64],\"decoded\":\"a\"}\n", ""},
    {"$P --json </dev/null", 2, "CONFIG_USAGE", "--tokenizer PATH"},
    {"$P --tokenizer /no/such --json", 5, "TOKENIZER_FILE", "/no/such: there is no tokenizer"},
    {"printf '{\"text\":\"a\"}\\n{\"txt\":1}\\n' | $P --tokenizer byte --json", 5, "DATA_FIELD",
     "stdin:2: the key `text`"},
    {"echo '{\"text\":' | $P --tokenizer byte --json", 5, "DATA_SYNTAX", "stdin:1: "},
    {"printf 'a\\377' | $P --tokenizer byte", 5, "", "TOKENIZER_INPUT"},
};

START_TEST(the_command_answers_line_by_line) {
    const char *script =
        textf("P=\"$PLIMSOLL tokenize\"; T=$TOKENIZER_CASES; %s", commands[_i].shell);
    struct outcome o = child_run((const char *[]){"sh", "-c", script, NULL}, NULL, HANG_SECONDS);
    ck_assert_msg(o.status == commands[_i].status && strstr(o.out, commands[_i].out) &&
                      strstr(o.err, commands[_i].err),
                  "exit %d: %s%s", o.status, o.out, o.err);
    outcome_finish(&o);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

int main(void) {
    Suite *suite = suite_create("tokenizer");
    TCase *t = tcase_create("tokenizer");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, truncation_and_padding_change_no_ids);
    tcase_add_loop_test(t, punctuation_is_cut_as_the_behaviour_says, 0, COUNT(punctuated));
    tcase_add_test(t, a_token_may_hold_nul);
    tcase_add_test(t, the_unchanged_file_opens_and_works);
    tcase_add_loop_test(t, what_would_not_be_done_exactly_is_refused_by_name, 0, COUNT(refused));
    tcase_add_test(t, steps_of_a_normalizer_run_in_their_order);
    tcase_add_test(t, text_that_a_normalizer_makes_too_long_is_refused);
    tcase_add_test(t, a_model_without_type_is_an_old_form_that_opens);
    tcase_add_loop_test(t, a_damaged_file_opens_or_is_refused, 0, 4);
    tcase_add_loop_test(t, paths_that_are_no_tokenizer_are_named, 0, 2);
    tcase_add_test(t, what_stands_beside_the_file_is_read);
    tcase_add_test(t, the_byte_tokenizer_has_a_token_for_every_byte);
    tcase_add_test(t, text_that_is_not_utf8_and_ids_that_are_no_token_are_errors);
    tcase_add_test(t, special_tokens_leave_no_text_when_skipped);
    tcase_add_loop_test(t, every_id_decodes_to_utf8, 0, 4);
    tcase_add_loop_test(t, tokens_begin_where_their_text_does, 0, 5);
    tcase_add_loop_test(t, threads_share_a_tokenizer, 0, 2);
    tcase_add_loop_test(t, a_megabyte_of_anything_is_encoded, 0, 6);
    tcase_add_loop_test(t, the_command_answers_line_by_line, 0, COUNT(commands));
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
