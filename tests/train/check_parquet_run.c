/* check_parquet_run.c - a run on Parquet files is the run on the same rows in JSON Lines, bit for
 * bit: shuffled, mixed, with held-out rows, resumed, from the cache. Through the real binary. */
#include "tests/support/with_carquet.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[SCRATCH_PATH];

/* Writes dir/KIND.yaml, a job on the files KIND.text and so on; `kind` is an ending. */
static void write_job(const char *kind) {
    const char *more =
        "mode: full\ninit: random\nmodel_config: config.json\ndtype: fp32\ndevice: cpu\n"
        "threads: 2\ntokenizer: byte\nchat_template: chatml\nmax_seq_length: 96\n"
        "batch_size: 3\nseed: 5\nval_set_size: 4\neval_steps: 4\nmax_steps: 8\n"
        "learning_rate: 0.01\nlr_scheduler: constant\nlogging_steps: 1\nsave_steps: 4\n";
    file_write(in_dir(dir, textf("%s.yaml", kind)),
               textf("%sdatasets:\n  - path: " FILES "/text.%s\n    weight: 2\n"
                     "  - path: " FILES "/mess*.%s\n    format: messages\n"
                     "  - path: " FILES "/alpaca.%s\n",
                     more, kind, kind, kind));
}

static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.vocab = 300}, "");
    write_job("parquet");
    write_job("jsonl");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void train(const char *job, const char *out, const char *more) {
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"train", textf("%s.yaml", job), textf("output_dir=%s", out), more, NULL});
    outcome_finish(&o);
}

/* The loss of the held-out rows after the last step. */
static double last_eval(const char *out) {
    json_t *log = joblog_read(out);
    const size_t n = joblog_count(log, "eval");
    ck_assert_uint_gt(n, 0);
    const double loss = joblog_number(joblog_event(log, "eval", n - 1), "loss");
    json_decref(log);
    return loss;
}

static void expect_same(const char *a, const char *b) {
    char left[SCRATCH_PATH + 32], right[SCRATCH_PATH + 32];
    snprintf(left, sizeof left, "%s/%s", dir, a);
    snprintf(right, sizeof right, "%s/%s", dir, b);
    joblog_assert_same_steps(left, right);
    weights_assert_same(left, right, "model");
    ck_assert(last_eval(left) == last_eval(right));
}

START_TEST(a_run_is_that_of_the_lines) {
    train("parquet", "a", NULL);
    train("jsonl", "b", NULL);
    expect_same("a", "b");
}
END_TEST

START_TEST(a_resumed_run_is_the_whole_one) {
    train("parquet", "a", "max_steps=4");
    train("parquet", "a", "max_steps=8");
    train("jsonl", "b", NULL);
    expect_same("a", "b");
}
END_TEST

static void count(const char *name, void *ctx) {
    (void)name;
    ++*(uint64_t *)ctx;
}

START_TEST(a_run_from_the_cache_is_that_of_the_lines) {
    train("parquet", "first", "dataset_cache=kept");
    train("parquet", "a", "dataset_cache=kept");
    train("jsonl", "b", NULL);
    uint64_t files = 0;
    dir_each(in_dir(dir, "kept"), count, &files);
    ck_assert_uint_eq(files, 3);
    expect_same("a", "b");
}
END_TEST

/* Every rank decodes the files for itself. */
START_TEST(two_ranks_read_the_same_rows) {
    train("parquet", "a", "devices=2");
    train("jsonl", "b", "devices=2");
    expect_same("a", "b");
}
END_TEST

int main(void) {
    if (!carquet_is_there()) return 77;
    Suite *s = suite_create("train.parquet");
    TCase *tc = tcase_create("runs");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, a_run_is_that_of_the_lines);
    tcase_add_test(tc, a_resumed_run_is_the_whole_one);
    tcase_add_test(tc, a_run_from_the_cache_is_that_of_the_lines);
    if (getenv("PLIMSOLL_MPI_MODULE")) tcase_add_test(tc, two_ranks_read_the_same_rows);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
