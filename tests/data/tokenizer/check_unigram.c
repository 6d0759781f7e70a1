/* check_unigram.c - models of type Unigram: the ids of version 0.23.3 of the library, refusals. */
#include "tests/data/tokenizer/bench.h"
#include "tests/support/scratch.h"

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void write_model(const char *model) {
    file_write(in_dir(dir, "tokenizer.json"),
               textf("{\"version\": \"1.0\", \"added_tokens\": [], \"model\": {\"type\": "
                     "\"Unigram\", %s}}",
                     model));
}

/* Ties, unknown characters, bytes; sums that are infinite; scores whose last bit decides, as the
 * library does not read them as the nearest double. */
#define TIES                                                                                       \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"aa\",-2],[\"aaa\",-3],[\"b\",-1],["       \
    "\"ab\",-2.0]]"
#define UNKNOWN                                                                                    \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"a\",-1.0],[\"b\",-1.0],[\"ab\",-2.0],[\"abc\",-9]" \
    ",[\"c\",-3]]"
#define BYTES                                                                                      \
    "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"<0x61>\",-1],[\"<0xC3>\",-5]" \
    ",[\"<0xA9>\",-5],[\"b\",-1],[\"bb\",-1.5]]"
#define LAST_BIT                                                                                   \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-3.8555755615234375],[\"b\",-7.530750751495361]" \
    ",[\"ab\",-11.386326313018799]]"
#define LONG_NUMBERS                                                                               \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-18446744073709551616.5],[\"b\",-0.5],[\"ab\",-" \
    "1844674407370955161600]]"
#define INFINITE                                                                                   \
    "\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",1e308],[\"b\",-1e308],[\"c\",1E+308]]"

static const struct {
    const char *model, *text;
    uint64_t n;
    int32_t ids[8];
} unigrams[] = {
    {TIES, "aaaa", 2, {1, 3}},
    {TIES, "abab", 2, {5, 5}},
    {TIES, "aaaab", 2, {3, 5}},
    /* G2 of unigram.h */
    {UNKNOWN, "axyb", 3, {1, 0, 2}},
    {UNKNOWN, "abcx", 3, {3, 5, 0}},
    {UNKNOWN, "x\xC3\xA9", 1, {0}},
    {BYTES, "ab\xC3\xA9", 4, {1, 4, 2, 3}},
    {BYTES,
     "x\xC3\xA9"
     "bbb",
     3,
     {0, 4, 5}},
    /* J2 of json_fields.h */
    {"\"vocab\":[[\"a\",-1],[\"b\",-2]],\"unk_id\":null", "ab", 2, {0, 1}},
    {"\"unk_id\":0,\"vocab\":[[\"x\",-3],[\"y\",-1]]", "zxyx", 3, {0, 1, 0}},
    {"\"unk_id\":0,\"vocab\":[[\"<unk>\",30],[\"zz\",30]]", "azz", 1, {0}},
    {"\"unk_id\":0,\"vocab\":[[\"<unk>\",30],[\"zz\",30]]", "zz", 1, {1}},
    {INFINITE, "aacxb", 5, {1, 1, 3, 0, 2}},
    {"\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"\",-1],[\"b\",1e-999]]", "bb", 2, {2, 2}},
    {LAST_BIT, "ab", 2, {1, 2}},
    {LONG_NUMBERS, "ab", 2, {1, 2}},
};

/* G1 of unigram.h */
START_TEST(ids_are_those_of_the_library) {
    struct bench b;
    write_model(unigrams[_i].model);
    bench_open(&b, dir);
    bench_encode(&b, unigrams[_i].text, strlen(unigrams[_i].text), false);
    ck_assert_uint_eq(b.list.n, unigrams[_i].n);
    ck_assert_mem_eq(b.list.ids, unigrams[_i].ids, b.list.n * sizeof *b.list.ids);
    bench_close(&b);
}
END_TEST

START_TEST(tokens_begin_where_their_text_does) {
    struct bench b;
    write_model(BYTES);
    bench_open(&b, dir);
    bench_encode(&b,
                 "xybb\xC3\xA9"
                 "b",
                 7, false);
    ck_assert_uint_eq(b.list.n, 5);
    ck_assert_mem_eq(b.list.ids, ((int32_t[]){0, 5, 2, 3, 4}), 5 * sizeof *b.list.ids);
    ck_assert_mem_eq(b.list.starts, ((uint64_t[]){0, 2, 4, 5, 6}), 5 * sizeof *b.list.starts);
    bench_close(&b);
}
END_TEST

START_TEST(an_unknown_character_without_unk_id_is_an_error) {
    struct bench b;
    write_model("\"vocab\": [[\"ab\", -1], [\"b\", -1]]");
    bench_open(&b, dir);
    ck_assert_int_eq(pl_tokenizer_encode(b.t, b.s, "ab", 2, false, &b.list, &b.d),
                     PL_ERR_TOKENIZER_INPUT);
    ck_assert_msg(strstr(b.d.message, "unk_id"), "%s", b.d.message);
    bench_encode(&b, "b", 1, false);
    ck_assert_uint_eq(b.list.n, 1);
    bench_close(&b);
}
END_TEST

/* G3 of unigram.h. The longest piece begins at every byte: a word costs its bytes times 512. */
START_TEST(a_long_word_of_long_pieces_is_encoded_soon) {
    static char piece[513], text[200001];
    struct bench b;
    memset(piece, 'a', 512);
    memset(text, 'a', 200000);
    write_model(textf("\"vocab\": [[\"a\", -1], [\"%s\", -1]]", piece));
    bench_open(&b, dir);
    bench_encode(&b, text, 200000, false);
    ck_assert_uint_eq(b.list.n, 200000 / 512 + 200000 % 512);
    bench_close(&b);
}
END_TEST

#define FIELD       PL_ERR_TOKENIZER_FIELD
#define UNSUPPORTED PL_ERR_TOKENIZER_UNSUPPORTED

static const struct {
    const char *model;
    pl_err err;
    const char *named;
} refused[] = {
    {"\"unk_id\": 0, \"vocab\": []", FIELD, "model.vocab` is empty"},
    {"\"unk_id\": 0", FIELD, "model.vocab"},
    {"\"unk_id\": 0, \"vocab\": {\"a\": 0}", FIELD, "model.vocab"},
    {"\"unk_id\": 1, \"vocab\": [[\"a\", 0]]", FIELD, "model.unk_id"},
    {"\"unk_id\": -1, \"vocab\": [[\"a\", 0]]", FIELD, "model.unk_id"},
    {"\"unk_id\": 0.0, \"vocab\": [[\"a\", 0]]", FIELD, "model.unk_id"},
    {"\"vocab\": [[\"a\", NaN]]", FIELD, "number 0 has a score"},
    {"\"vocab\": [[\"a\", null]]", FIELD, "number 0 is no piece with a score"},
    {"\"vocab\": [[\"a\", \"1\"]]", FIELD, "number 0 is no piece with a score"},
    {"\"vocab\": [[\"a\", 0], [\"b\"]]", FIELD, "number 1 is no piece with a score"},
    {"\"vocab\": [[\"a\", 0], []]", FIELD, "number 1 is no piece with a score"},
    {"\"vocab\": [[\"a\", 0], \"b\"]", FIELD, "number 1 is no piece with a score"},
    {"\"vocab\": [[1, 0]]", FIELD, "number 0 is no piece with a score"},
    {"\"vocab\": [[\"a\", 0, 1]]", FIELD, "number 0 has more"},
    {"\"vocab\": [[\"a\", 1e999]]", FIELD, "number 0 has a score that is too large"},
    {"\"vocab\": [[\"a\", -1e99999999999999999999]]", FIELD, "number 0 has a score"},
    {"\"vocab\": [[\"a\", 0], [\"a\", 0]]", FIELD, "`a` twice"},
    {"\"vocab\": [[\"a\", 0]], \"merges\": []", UNSUPPORTED, "`merges`"},
    {"\"vocab\": [[\"a\", 0]]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"", UNSUPPORTED,
     "ByteLevel"},
    {"\"vocab\": [[\"a\", 0]]}, \"normalizer\": {\"type\": \"Precompiled\"", UNSUPPORTED,
     "Precompiled"},
};

START_TEST(what_is_no_sound_model_is_refused_by_name) {
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    write_model(refused[_i].model);
    pl_err err = pl_tokenizer_open(dir, &t, &d);
    ck_assert_ptr_null(t);
    ck_assert_msg(err == refused[_i].err && strstr(d.message, refused[_i].named), "%s: %s: %s",
                  refused[_i].model, pl_err_code(err), d.message);
}
END_TEST

START_TEST(a_piece_of_513_bytes_is_refused) {
    static char piece[514];
    struct pl_tokenizer *t;
    struct pl_diag d = {0};
    memset(piece, 'a', 513);
    write_model(textf("\"vocab\": [[\"%s\", 0]]", piece));
    ck_assert_int_eq(pl_tokenizer_open(dir, &t, &d), FIELD);
    ck_assert_msg(strstr(d.message, "512 bytes"), "%s", d.message);
}
END_TEST

#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

int main(void) {
    Suite *suite = suite_create("unigram");
    TCase *t = tcase_create("unigram");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, ids_are_those_of_the_library, 0, COUNT(unigrams));
    tcase_add_test(t, tokens_begin_where_their_text_does);
    tcase_add_test(t, an_unknown_character_without_unk_id_is_an_error);
    tcase_add_test(t, a_long_word_of_long_pieces_is_encoded_soon);
    tcase_add_loop_test(t, what_is_no_sound_model_is_refused_by_name, 0, COUNT(refused));
    tcase_add_test(t, a_piece_of_513_bytes_is_refused);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
