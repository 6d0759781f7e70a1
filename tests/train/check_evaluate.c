/* check_evaluate.c - what an evaluation tells: loss, accuracy and perplexity. Through the real
 * binary; the tokens that are right are counted again by `generate`, one prefix at a time. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

/* The last evaluation of a run, owned by *log. */
static const json_t *last_evaluation(const char *out, json_t **log) {
    *log = joblog_read(in_dir(dir, out));
    const size_t n = joblog_count(*log, "eval");
    ck_assert_uint_gt(n, 0);
    return joblog_event(*log, "eval", n - 1);
}

/* --- right tokens are those that greedy generation chooses ------------------------------------ */

#define ROWS   4
#define LENGTH 9
static const int rows[ROWS][LENGTH] = {{3, 14, 15, 9, 2, 6, 5, 35, 8},
                                       {3, 14, 15, 9, 2, 6, 5, 35, 9},
                                       {27, 18, 28, 18, 28, 45, 9, 4, 5},
                                       {3, 14, 15, 3, 14, 15, 3, 14, 15}};

static void write_rows(const char *name) {
    FILE *f = fopen(in_dir(dir, name), "w");
    ck_assert_ptr_nonnull(f);
    for (int r = 0; r < ROWS; r++) {
        fputs("{\"input_ids\":[", f);
        for (int i = 0; i < LENGTH; i++)
            fprintf(f, "%s%d", i ? "," : "", rows[r][i]);
        fputs("]}\n", f);
    }
    ck_assert_int_eq(fclose(f), 0);
}

/* The id that the trained model finds likeliest after the first n tokens of a row. */
static int likeliest_after(int row, int n) {
    char ids[LENGTH * 4] = "";
    int id = -1;
    for (int i = 0; i < n; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%d", i ? "," : "", rows[row][i]);
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"generate", "--model", "out", "--prompt-ids", ids, "--max-new-tokens", "1",
                         "--device", "cpu", "--ignore-eos", "--quiet", NULL});
    ck_assert_int_eq(sscanf(o.out, "%d", &id), 1);
    outcome_finish(&o);
    return id;
}

START_TEST(right_tokens_are_those_that_greedy_generation_chooses) {
    json_t *log;
    int right = 0, tokens = 0;
    tiny_make(dir, &(struct tiny){0},
              "batch_size: 3\nmax_steps: 12\nlearning_rate: 0.01\neval_datasets: [held.jsonl]\n");
    write_rows("held.jsonl");
    write_rows("train.jsonl");
    TRAIN("eval_steps=4");
    for (int r = 0; r < ROWS; r++)
        for (int n = 1; n < LENGTH; n++, tokens++)
            right += likeliest_after(r, n) == rows[r][n];
    const json_t *e = last_evaluation("out", &log);
    ck_assert_msg(right > 0 && right < tokens, "%d of %d: the case shows nothing", right, tokens);
    ck_assert(joblog_number(e, "tokens") == tokens);
    ck_assert_msg(joblog_number(e, "right_tokens") == right, "%g right instead of %d",
                  joblog_number(e, "right_tokens"), right);
    ck_assert(joblog_number(e, "accuracy") == (double)right / tokens);
    ck_assert(joblog_number(e, "perplexity") == exp(joblog_number(e, "loss")));
    ck_assert(joblog_summary(in_dir(dir, "out"), "eval_accuracy") == (double)right / tokens);
    ck_assert(joblog_summary(in_dir(dir, "out"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "out"), "allocated_peak_bytes"));
    json_decref(log);
}
END_TEST

/* --- the count depends on no cut -------------------------------------------------------------- */

static const char *const cuts[][2] = {{"batch_size=1", "loss_chunk_tokens=0"},
                                      {"batch_size=5", "loss_chunk_tokens=3"},
                                      {"batch_size=2", "packing=true"}};

/* V1 of evaluate.h: each row is counted once. At rate 0 every run evaluates the weights that it
 * began with. */
START_TEST(the_count_is_the_same_however_the_rows_are_cut) {
    json_t *a, *b;
    tiny_make(dir, &(struct tiny){.rows = 40, .vocab = 12},
              "max_steps: 1\nlearning_rate: 0\nval_set_size: 13\n");
    TRAIN("output_dir=whole", "batch_size=13");
    TRAIN("output_dir=cut", cuts[_i][0], cuts[_i][1]);
    const json_t *x = last_evaluation("whole", &a), *y = last_evaluation("cut", &b);
    ck_assert(joblog_number(x, "right_tokens") > 0);
    ck_assert(joblog_number(x, "right_tokens") == joblog_number(y, "right_tokens"));
    ck_assert(joblog_number(x, "tokens") == joblog_number(y, "tokens"));
    json_decref(a);
    json_decref(b);
}
END_TEST

/* --- who is told ------------------------------------------------------------------------------ */

static void find_tags(const char *name, void *ctx) {
    static const char *const tags[] = {"eval/loss", "eval/accuracy", "eval/perplexity"};
    size_t bytes;
    char *events = file_read(textf("%s/%s", (const char *)ctx, name), &bytes);
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        ck_assert_msg(memmem(events, bytes, tags[i], strlen(tags[i])) != NULL, "no %s", tags[i]);
    free(events);
}

START_TEST(the_line_the_summary_and_the_board_tell_all_three) {
    char board[SCRATCH_PATH + 16];
    tiny_make(dir, &(struct tiny){0},
              "batch_size: 2\nmax_steps: 2\nval_set_size: 4\nreport_to: tensorboard\n");
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", NULL});
    const char *line = strstr(o.err, "evaluation at step 2: loss ");
    ck_assert_msg(line && strstr(line, " %, perplexity "), "%s", o.err);
    const char *summary = strstr(o.err, "\nevaluation: loss ");
    ck_assert_msg(summary && strstr(summary, ", accuracy ") && strstr(summary, ", perplexity "),
                  "%s", o.err);
    outcome_finish(&o);
    snprintf(board, sizeof board, "%s/out/runs", dir);
    ck_assert_uint_eq(dir_each(board, find_tags, board), 1);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.evaluate");
    TCase *t = tcase_create("evaluate");
    tcase_set_timeout(t, 0);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, right_tokens_are_those_that_greedy_generation_chooses);
    tcase_add_loop_test(t, the_count_is_the_same_however_the_rows_are_cut, 0,
                        sizeof cuts / sizeof *cuts);
    tcase_add_test(t, the_line_the_summary_and_the_board_tell_all_three);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
