/* check_row_weights.c - rows with a weight: a factor of the loss of each of their tokens, whatever
 * else a step holds. Through the real binary; plain gradient descent at rate 1, so that the weights
 * of two runs differ as their gradients do. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <math.h>
#include <string.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
    tiny_make(dir, &(struct tiny){.mode = "full"},
              "optimizer: sgd\nlearning_rate: 1\nlr_scheduler: constant\nmax_grad_norm: 0\n"
              "shuffle: false\nnum_epochs: 1\nbatch_size: 2\nglobal_batch_size: 12\nseed: 5\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* Rows of 3, 5 and 9 tokens, two or all of which are trained on. */
#define A                    "\"input_ids\":[1,2,3]"
#define B                    "\"input_ids\":[4,5,6,7,8],\"labels\":[-100,-100,-100,7,8]"
#define C                    "\"input_ids\":[9,10,11,12,13,14,15,16,17]"
#define ROW(tokens)          "{" tokens "}\n"
#define WEIGHTED(tokens, by) "{" tokens ",\"weight\":" by "}\n"
enum { OF_A = 2, OF_B = 2, OF_C = 8 }; /* tokens that are predicted */

static void run(const char *out, const char *rows, const char *more) {
    file_write(in_dir(dir, "train.jsonl"), rows);
    TRAIN(0, textf("output_dir=%s", out), more);
}

static double of_step(const char *out, uint64_t step, const char *key) {
    json_t *log = joblog_read(in_dir(dir, out));
    const json_t *line = joblog_step(log, step);
    ck_assert_ptr_nonnull(line);
    double v = joblog_number(line, key);
    json_decref(log);
    return v;
}

static void expect_close(double a, double b, const char *what) {
    ck_assert_msg(fabs(a - b) <= 1e-5 * fabs(a), "%s: %.9g and %.9g", what, a, b);
}

static void expect_same_bits(const char *a, const char *b) {
    weights_assert_same(in_dir(dir, a), textf("%s/%s", dir, b), "model");
}

START_TEST(a_weight_of_one_changes_no_bit) {
    run("plain", ROW(A) ROW(B) ROW(C), "seed=5");
    run("ones", WEIGHTED(A, "1") WEIGHTED(B, "null") WEIGHTED(C, "1.0"), "seed=5");
    run("planned", WEIGHTED(A, "1") ROW(B) ROW(C), "row_weights=true");
    run("unread", WEIGHTED(A, "0.5") ROW(B) ROW(C), "row_weights=false");
    expect_same_bits("plain", "ones");
    expect_same_bits("plain", "planned");
    expect_same_bits("plain", "unread");
}
END_TEST

/* The sums of both have the same terms, and 2 changes no mantissa. */
START_TEST(a_weight_is_a_factor_of_loss_and_gradient) {
    run("plain", ROW(A) ROW(B) ROW(C), "seed=5");
    run("twice", WEIGHTED(A, "2") WEIGHTED(B, "2.0e0") WEIGHTED(C, "2"), "seed=5");
    ck_assert(of_step("twice", 1, "loss") == 2 * of_step("plain", 1, "loss"));
    ck_assert(of_step("twice", 1, "grad_norm") == 2 * of_step("plain", 1, "grad_norm"));
    ck_assert(of_step("twice", 1, "tokens") == of_step("plain", 1, "tokens"));
}
END_TEST

/* The mean is over the tokens that are there: three rows with a weight of 2, 1 and 3, or six. */
START_TEST(a_weight_of_two_is_the_row_twice) {
    static const double weighted = OF_A + OF_B + OF_C, all = 2 * OF_A + OF_B + 3 * OF_C;
    run("weighted", WEIGHTED(A, "2") ROW(B) WEIGHTED(C, "3"), "seed=5");
    run("repeated", ROW(A) ROW(A) ROW(B) ROW(C) ROW(C) ROW(C), "seed=5");
    ck_assert(of_step("weighted", 1, "tokens") == weighted);
    ck_assert(of_step("repeated", 1, "tokens") == all);
    expect_close(of_step("weighted", 1, "loss") * weighted, of_step("repeated", 1, "loss") * all,
                 "loss");
    expect_close(of_step("weighted", 1, "grad_norm") * weighted,
                 of_step("repeated", 1, "grad_norm") * all, "grad_norm");
}
END_TEST

START_TEST(a_row_of_weight_zero_is_counted_and_teaches_nothing) {
    run("with", WEIGHTED(A, "0") ROW(B), "seed=5");
    run("without", ROW(B), "seed=5");
    ck_assert(of_step("with", 1, "tokens") == OF_A + OF_B);
    expect_close(of_step("with", 1, "grad_norm") * (OF_A + OF_B),
                 of_step("without", 1, "grad_norm") * OF_B, "grad_norm");
    run("none", WEIGHTED(A, "0") WEIGHTED(B, "0"), "seed=5");
    ck_assert(of_step("none", 1, "loss") == 0 && of_step("none", 1, "grad_norm") == 0);
}
END_TEST

#define MIX                                                                                        \
    WEIGHTED(A, "0.5")                                                                             \
    ROW(B) WEIGHTED(C, "3") WEIGHTED(B, "0.25") ROW(A) WEIGHTED(C, "1.5") WEIGHTED(A, "0") ROW(C)

/* However the samples of a step are cut, each keeps the weight of its row. */
static const char *const cuts[] = {"batch_size=8",   "batch_size=1",
                                   "packing=true",   "batch_size=auto",
                                   "prefetch=false", "debug_inject=device_oom@step=1",
                                   "dtype=fp32",     "loss_chunk_tokens=4"};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

START_TEST(the_cut_of_a_step_does_not_matter) {
    run("one", MIX, "seed=5");
    run("other", MIX, cuts[_i]);
    expect_close(of_step("one", 1, "loss"), of_step("other", 1, "loss"), cuts[_i]);
    expect_close(of_step("one", 1, "grad_norm"), of_step("other", 1, "grad_norm"), cuts[_i]);
    run("plain", ROW(A) ROW(B) ROW(C) ROW(B) ROW(A) ROW(C) ROW(A) ROW(C), "seed=5");
    ck_assert(of_step("plain", 1, "grad_norm") != of_step("one", 1, "grad_norm"));
}
END_TEST

START_TEST(a_weighted_run_goes_on_bit_for_bit) {
    static const char steps[] = "global_batch_size=2";
    file_write(in_dir(dir, "train.jsonl"), MIX);
    TRAIN(0, steps, "output_dir=straight", "max_steps=6");
    TRAIN(0, steps, "output_dir=halves", "max_steps=3");
    TRAIN(0, steps, "output_dir=halves", "max_steps=6");
    expect_same_bits("straight", "halves");
}
END_TEST

/* The second run reads what the first one has kept. */
START_TEST(weights_come_out_of_the_cache) {
    run("parsed", MIX, "dataset_cache=off");
    run("written", MIX, "dataset_cache=kept");
    run("cached", MIX, "dataset_cache=kept");
    expect_same_bits("parsed", "written");
    expect_same_bits("parsed", "cached");
}
END_TEST

static double evaluation(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    double v = joblog_number(joblog_event(log, "eval", 0), "loss");
    json_decref(log);
    return v;
}

START_TEST(evaluation_knows_no_weights) {
    file_write(in_dir(dir, "train.jsonl"), MIX);
    file_write(in_dir(dir, "plain.jsonl"), ROW(A) ROW(B));
    file_write(in_dir(dir, "weighted.jsonl"), WEIGHTED(A, "3") WEIGHTED(B, "0"));
    TRAIN(0, "learning_rate=0", "output_dir=plain", "eval_datasets=[plain.jsonl]");
    TRAIN(0, "learning_rate=0", "output_dir=weighted", "eval_datasets=[weighted.jsonl]");
    ck_assert(evaluation("plain") == evaluation("weighted"));
}
END_TEST

/* The plan of the estimate is that of the run. */
START_TEST(a_given_key_is_estimated) {
    run("run", MIX, "row_weights=true");
    struct outcome o = plimsoll_expect(
        0, dir, (const char *[]){"estimate-vram", "run.yaml", "row_weights=true", "--json", NULL});
    json_t *answer = json_loads(o.out, 0, NULL), *log = joblog_read(in_dir(dir, "run"));
    const json_t *ledger = json_object_get(joblog_event(log, "preflight", 0), "ledger");
    ck_assert_ptr_nonnull(ledger);
    ck_assert(json_equal(ledger, json_object_get(answer, "ledger")));
    json_decref(answer);
    json_decref(log);
    outcome_finish(&o);
}
END_TEST

START_TEST(what_the_rows_weigh_is_told) {
    file_write(in_dir(dir, "train.jsonl"), MIX);
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"tokenize", "run.yaml", "--show", "1", NULL});
    ck_assert_msg(strstr(o.out, "3 tokens, 2 trained, weight 0.5\n"), "%s", o.out);
    ck_assert_msg(strstr(o.out, ", 5 with a weight"), "%s", o.out);
    outcome_finish(&o);
}
END_TEST

static const struct {
    const char *weight, *says;
} bad[] = {
    {"-0.5", "train.jsonl:2:31: `weight` is -0.5, expected a finite number of 0 or more"},
    {"1e39", "`weight` is 1e39, expected"},
    {"NaN", "`weight` is NaN, expected"},
    {"Infinity", "`weight` is Infinity, expected"},
    {"\"heavy\"", "`weight` is heavy, expected"},
    {"[1]", "`weight` is an array, expected a number"},
    {"true", "`weight` is a boolean, expected a number"},
    {"1,\"weight\":2", "key `weight` twice in one row"},
};
enum { N_BAD = sizeof bad / sizeof *bad };

START_TEST(other_weights_are_refused) {
    file_write(in_dir(dir, "train.jsonl"), textf(ROW(A) "{" A ",\"weight\":%s}\n", bad[_i].weight));
    struct outcome o = plimsoll_expect(5, dir, (const char *[]){"train", "run.yaml", NULL});
    ck_assert_msg(strstr(o.err, bad[_i].says), "%s: %s", bad[_i].weight, o.err);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.row_weights");
    TCase *tc = tcase_create("weights");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_weight_of_one_changes_no_bit);
    tcase_add_test(tc, a_weight_is_a_factor_of_loss_and_gradient);
    tcase_add_test(tc, a_weight_of_two_is_the_row_twice);
    tcase_add_test(tc, a_row_of_weight_zero_is_counted_and_teaches_nothing);
    tcase_add_loop_test(tc, the_cut_of_a_step_does_not_matter, 0, N_CUTS);
    tcase_add_test(tc, a_weighted_run_goes_on_bit_for_bit);
    tcase_add_test(tc, weights_come_out_of_the_cache);
    tcase_add_test(tc, evaluation_knows_no_weights);
    tcase_add_test(tc, a_given_key_is_estimated);
    tcase_add_test(tc, what_the_rows_weigh_is_told);
    tcase_add_loop_test(tc, other_weights_are_refused, 0, N_BAD);
    suite_add_tcase(s, tc);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
