/* check_gguf_tokenizer.c - tokenizers of GGUF files, against the ids that transformers gives.
 *
 * tests/checkpoint/gguf/make.py has written the files and the ids. */
#include "estimator/gguf/gguf_merges.h"
#include "estimator/gguf/gguf_tokenizer.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pl_diag diag;

static void setup(void) {
    diag = (struct pl_diag){0};
}

static const char *const names[] = {"bytes-qwen2", "bytes-gpt2", "pieces-llama", "pieces-phi3",
                                    "pieces-gemma3"};
enum { N_NAMES = sizeof names / sizeof *names };

static struct pl_tokenizer *open_one(const char *name) {
    struct pl_tokenizer *t;
    ck_assert_msg(pl_tokenizer_open(textf("%s/%s.gguf", GGUF_FILES, name), &t, &diag) == PL_ERR_OK,
                  "%s: %s", name, diag.message);
    return t;
}

static void check_line(const struct pl_tokenizer *t, struct pl_tokenizer_scratch *s,
                       const json_t *line) {
    struct pl_token_list out = {0};
    const json_t *ids = json_object_get(line, "ids");
    const char *text = json_string_value(json_object_get(line, "text"));
    ck_assert_int_eq(pl_tokenizer_encode(t, s, text, strlen(text), false, &out, &diag), PL_ERR_OK);
    ck_assert_msg(out.n == json_array_size(ids), "`%s`: %u tokens", text, (unsigned)out.n);
    for (size_t i = 0; i < out.n; i++)
        ck_assert_msg(out.ids[i] == json_integer_value(json_array_get(ids, i)), "`%s`: token %u",
                      text, (unsigned)i);
    pl_token_list_finish(&out);
}

/* T1 */
START_TEST(ids_are_those_of_transformers) {
    struct pl_tokenizer *t = open_one(names[_i]);
    struct pl_tokenizer_scratch *s;
    ck_assert_int_eq(pl_tokenizer_scratch_create(t, &s, &diag), PL_ERR_OK);
    char *lines = file_read(textf("%s/%s.jsonl", GGUF_FILES, names[_i]), NULL), *rest = lines;
    int n = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line; n++) {
        json_t *root = json_loads(line, 0, NULL);
        check_line(t, s, root);
        json_decref(root);
    }
    ck_assert_int_eq(n, 8);
    free(lines);
    pl_tokenizer_scratch_destroy(&s);
    pl_tokenizer_close(&t);
}
END_TEST

/* llama.cpp adds the first token to SentencePiece's vocabularies alone, unless the file says so. */
START_TEST(the_first_token_and_the_template_come_from_the_file) {
    struct pl_tokenizer *t = open_one(names[_i]);
    struct pl_tokenizer_scratch *s;
    struct pl_token_list out = {0};
    ck_assert_int_eq(pl_tokenizer_scratch_create(t, &s, &diag), PL_ERR_OK);
    ck_assert_int_eq(pl_tokenizer_encode(t, s, "the", 3, true, &out, &diag), PL_ERR_OK);
    const int64_t bos = pl_tokenizer_bos(t);
    ck_assert_str_eq(pl_tokenizer_piece(t, (int32_t)bos), "<s>");
    ck_assert_int_eq(out.ids[0] == bos, strncmp(names[_i], "pieces", 6) == 0);
    ck_assert_str_eq(pl_tokenizer_template(t, 0)->text, "{{ bos_token }}{{ messages[0].content }}");
    pl_token_list_finish(&out);
    pl_tokenizer_scratch_destroy(&s);
    pl_tokenizer_close(&t);
}
END_TEST

/* T2 */
START_TEST(only_two_names_are_texts_of_the_file) {
    static const char *const others[] = {"vocab.json", "tokenizer.json.gz", "chat_template.jinja"};
    struct pl_text text = {0};
    bool there;
    for (size_t i = 0; i < 3; i++) {
        const char *path = textf("%s/bytes-qwen2.gguf/%s", GGUF_FILES, others[i]);
        ck_assert_int_eq(pl_gguf_companion(path, &text, &there, &diag), PL_ERR_OK);
        ck_assert(!there && !text.len);
    }
    ck_assert_int_eq(
        pl_gguf_companion(textf("%s/llama.json/tokenizer.json", GGUF_FILES), &text, &there, &diag),
        PL_ERR_OK);
    ck_assert(!there);
}
END_TEST

/* "abc" is ab+c and a+bc: of equal scores the longer left part comes first. */
START_TEST(merges_are_ordered_by_score_and_length) {
    const struct pl_gguf_string tokens[] = {{"a", 1},  {"b", 1},  {"c", 1},
                                            {"ab", 2}, {"bc", 2}, {"abc", 3}};
    const double scores[] = {-9, -9, -9, -2, -1, -2};
    static const uint32_t wanted[][2] = {{1, 2}, {3, 2}, {0, 4}, {0, 1}};
    struct pl_gguf_merge *m;
    uint64_t n;
    ck_assert_int_eq(pl_gguf_make_merges(tokens, scores, 6, &m, &n, &diag), PL_ERR_OK);
    ck_assert_uint_eq(n, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(m[i].left, wanted[i][0]);
        ck_assert_uint_eq(m[i].right, wanted[i][1]);
    }
    free(m);
}
END_TEST

int main(void) {
    Suite *s = suite_create("data.gguf_tokenizer");
    TCase *t = tcase_create("gguf");
    tcase_add_checked_fixture(t, setup, NULL);
    tcase_add_loop_test(t, ids_are_those_of_transformers, 0, N_NAMES);
    tcase_add_loop_test(t, the_first_token_and_the_template_come_from_the_file, 0, N_NAMES);
    tcase_add_test(t, only_two_names_are_texts_of_the_file);
    tcase_add_test(t, merges_are_ordered_by_score_and_length);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
