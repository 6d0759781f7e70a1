/* check_show.c - `plimsoll tokenize CONFIG --show N`: what it prints is what training takes.
 * PLIMSOLL names the binary. */
#include "estimator/base/text.h"
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    ck_assert_int_eq(setenv("NO_COLOR", "1", 1), 0);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define SHOW(status, ...)                                                                          \
    plimsoll_expect(status, dir, (const char *[]){"tokenize", "run.yaml", __VA_ARGS__, NULL})

/* Two files of pairs, the bytes of their text as tokens. */
static void make_pairs(void) {
    tiny_make(dir, &(struct tiny){.vocab = 300}, "");
    file_write(in_dir(dir, "one.jsonl"), "{\"prompt\":\"Hi \",\"completion\":\"yo\"}\n");
    file_write(in_dir(dir, "two.jsonl"), "\n{\"prompt\":\"A\",\"completion\":\"bcdefghij\"}\n");
    file_write(in_dir(dir, "run.yaml"),
               "model_config: config.json\ninit: random\nmode: full\ndevice: cpu\n"
               "tokenizer: byte\nshuffle: false\nmax_seq_length: 8\n"
               "datasets: [one.jsonl, two.jsonl]\n");
}

START_TEST(a_person_sees_what_is_trained_on_and_what_is_masked) {
    make_pairs();
    struct outcome o = SHOW(0, "--show", "5");
    ck_assert_str_eq(o.out, "sample 1: row 1 of one.jsonl, 6 tokens, 3 trained\n"
                            "  masked  H i \xc4\xa0\n"
                            "          72 105 32\n"
                            "  trained y o \xc4\x82\n"
                            "          121 111 2\n"
                            "\n"
                            "sample 2: row 1 of two.jsonl, 8 tokens, 7 trained, cut to "
                            "max_seq_length\n"
                            "  masked  A\n"
                            "          65\n"
                            "  trained b c d e f g h\n"
                            "          98 99 100 101 102 103 104\n"
                            "\n"
                            "  data: one.jsonl: 1 row, 6 tokens, 50.0 % trained on, longest 6\n"
                            "  data: two.jsonl: 1 row, 8 tokens, 87.5 % trained on, longest 8, "
                            "1 cut\n"
                            "2 rows, 14 tokens, 10 trained; longest 8; 1 cut, 0 dropped, 0 without "
                            "a token to train on\n");
    outcome_finish(&o);
}
END_TEST

/* A token that clears the screen of whoever prints it. */
START_TEST(a_listing_shows_what_a_token_would_do_to_the_terminal) {
    char *text = file_read("tests/data/tokenizer/gpt2_style/tokenizer.json", NULL);
    struct pl_text clears = {0};
    for (char *at = text, *mark; at; at = mark ? mark + strlen("<|endoftext|>") : NULL) {
        mark = strstr(at, "<|endoftext|>");
        pl_text_addn(&clears, at, mark ? (size_t)(mark - at) : strlen(at));
        if (mark) pl_text_add(&clears, "\\u001b[2J");
    }
    file_write(in_dir(dir, "tokenizer.json"), pl_text_str(&clears));
    pl_text_finish(&clears);
    free(text);
    static const char script[] =
        "printf 'a\\033[2Jb\\n' | \"$PLIMSOLL\" tokenize --tokenizer tokenizer.json";
    struct outcome o = child_run((const char *[]){"sh", "-c", script, NULL}, dir, HANG_SECONDS);
    ck_assert_int_eq(o.status, 0);
    ck_assert_str_eq(o.out, "     64  a\n   2000  \\x1b[2J\n     65  b\n\n");
    outcome_finish(&o);
}
END_TEST

START_TEST(a_row_cut_before_its_answer_is_a_warning) {
    make_pairs();
    file_write(in_dir(dir, "one.jsonl"), "{\"prompt\":\"12345678\",\"completion\":\"yo\"}\n");
    struct outcome o = SHOW(0, "--show", "1");
    ck_assert_msg(strstr(o.err, "plimsoll: warning: one.jsonl:1: 1 row cut"), "%s", o.err);
    ck_assert_ptr_nonnull(strstr(o.err, "`max_seq_length: 11`"));
    ck_assert_ptr_nonnull(strstr(o.err, "plimsoll: note: one.jsonl:1: 1 row longer"));
    outcome_finish(&o);
}
END_TEST

START_TEST(colours_are_asked_for_or_left_out) {
    make_pairs();
    struct outcome plain = SHOW(0, "--show", "1");
    struct outcome colour = SHOW(0, "--show", "1", "--color", "always");
    ck_assert_ptr_null(strchr(plain.out, '\033'));
    ck_assert_ptr_nonnull(strstr(colour.out, "\033[2mH i"));
    ck_assert_ptr_nonnull(strstr(colour.out, "\033[32my o"));
    outcome_finish(&plain);
    outcome_finish(&colour);
}
END_TEST

START_TEST(a_line_is_wrapped_between_tokens) {
    tiny_make(dir, &(struct tiny){.longest = 200}, "shuffle: false\n");
    struct outcome o = SHOW(0, "--show", "2");
    for (char *line = strtok(o.out, "\n"); line; line = strtok(NULL, "\n"))
        ck_assert_msg(strlen(line) <= 100, "%s", line);
    outcome_finish(&o);
}
END_TEST

static json_t *show_json(const char *n) {
    json_error_t e;
    struct outcome o = SHOW(0, "--json", "--show", n);
    json_t *root = json_loads(o.out, 0, &e);
    ck_assert_msg(root != NULL, "%s: %s", e.text, o.out);
    outcome_finish(&o);
    return root;
}

START_TEST(a_program_gets_ids_labels_and_pieces) {
    make_pairs();
    json_t *root = show_json("1");
    ck_assert(joblog_number(root, "schema") == 1);
    ck_assert(joblog_number(root, "rows") == 2);
    ck_assert(joblog_number(root, "truncated_rows") == 1);
    const json_t *two = json_array_get(json_object_get(root, "files"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(two, "file")), "two.jsonl");
    ck_assert(joblog_number(two, "supervised_tokens") == 7);
    const json_t *samples = json_object_get(root, "samples");
    ck_assert_uint_eq(json_array_size(samples), 1);
    char *text = json_dumps(json_array_get(samples, 0), JSON_COMPACT);
    ck_assert_ptr_nonnull(strstr(text, "\"file\":\"one.jsonl\",\"row\":0,\"tokens\":6,"
                                       "\"supervised_tokens\":3,\"truncated\":false"));
    ck_assert_ptr_nonnull(strstr(text, "\"ids\":[72,105,32,121,111,2]"));
    ck_assert_ptr_nonnull(strstr(text, "\"labels\":[-100,-100,-100,121,111,2]"));
    ck_assert_ptr_nonnull(
        strstr(text, "\"pieces\":[\"H\",\"i\",\"\xc4\xa0\",\"y\",\"o\",\"\xc4\x82\"]"));
    free(text);
    json_decref(root);
}
END_TEST

START_TEST(samples_come_in_the_order_of_training) {
    tiny_make(dir, &(struct tiny){.mode = "full"}, "seed: 9\nbatch_size: 1\nval_set_size: 5\n");
    plimsoll_train_expect(0, dir, (const char *[]){"max_steps=12", NULL});
    bool seen[24] = {false};
    json_t *root = show_json("12"), *log = joblog_read(in_dir(dir, "out"));
    for (size_t i = 0; i < 12; i++) {
        const json_t *sample = json_array_get(json_object_get(root, "samples"), i);
        const json_t *step = joblog_step(log, i + 1);
        double trained = joblog_number(sample, "supervised_tokens");
        ck_assert(trained == joblog_number(step, "tokens"));
        ck_assert((trained > 0 ? joblog_number(sample, "tokens") : 0) ==
                  joblog_number(step, "computed_tokens"));
        uint64_t row = (uint64_t)joblog_number(sample, "row");
        ck_assert_uint_lt(row, 24);
        ck_assert(!seen[row]);
        seen[row] = true;
    }
    json_decref(root);
    json_decref(log);
}
END_TEST

START_TEST(rows_that_bring_their_tokens_need_no_tokenizer) {
    tiny_make(dir, &(struct tiny){.mode = "full"}, "");
    json_t *root = show_json("3");
    const json_t *sample = json_array_get(json_object_get(root, "samples"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(sample, "pieces")), 0);
    ck_assert_uint_gt(json_array_size(json_object_get(sample, "ids")), 0);
    json_decref(root);
    struct outcome o = SHOW(0, "--show", "1");
    ck_assert_ptr_nonnull(strstr(o.out, "sample 1: row "));
    outcome_finish(&o);
}
END_TEST

START_TEST(what_cannot_be_shown_is_refused) {
    make_pairs();
    struct outcome none = SHOW(2, "--show", "0");
    ck_assert_ptr_nonnull(strstr(none.err, "--show"));
    outcome_finish(&none);
    file_write(in_dir(dir, "two.jsonl"), "{\"prompt\":1}\n");
    struct outcome bad = SHOW(5, "--show", "1");
    ck_assert_ptr_nonnull(strstr(bad.err, "two.jsonl:1"));
    ck_assert_str_eq(bad.out, "");
    outcome_finish(&bad);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.show");
    TCase *t = tcase_create("show");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, a_person_sees_what_is_trained_on_and_what_is_masked);
    tcase_add_test(t, a_listing_shows_what_a_token_would_do_to_the_terminal);
    tcase_add_test(t, a_row_cut_before_its_answer_is_a_warning);
    tcase_add_test(t, colours_are_asked_for_or_left_out);
    tcase_add_test(t, a_line_is_wrapped_between_tokens);
    tcase_add_test(t, a_program_gets_ids_labels_and_pieces);
    tcase_add_test(t, samples_come_in_the_order_of_training);
    tcase_add_test(t, rows_that_bring_their_tokens_need_no_tokenizer);
    tcase_add_test(t, what_cannot_be_shown_is_refused);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
