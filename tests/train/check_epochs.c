/* check_epochs.c - the steps of whole runs: an epoch ends with a short step, and rows that train
 * nothing are in none. */
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
}

static void tear_down(void) {
    scratch_remove(dir);
}

#define TRAIN(status, ...) plimsoll_train_expect(status, dir, (const char *[]){__VA_ARGS__, NULL})

/* 10 rows; those of `masked` have no target. */
static void make_job(const char *more, unsigned masked) {
    char text[1024] = "";
    tiny_make(dir, &(struct tiny){0}, more);
    for (int r = 0; r < 10; r++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 masked >> r & 1 ? "{\"input_ids\":[%d,3,4],\"labels\":[-100,-100,-100]}\n"
                                 : "{\"input_ids\":[%d,3,4]}\n",
                 r + 5);
    file_write(in_dir(dir, "train.jsonl"), text);
}

static const json_t *step_of(const json_t *log, uint64_t step) {
    const json_t *line = joblog_step(log, step);
    ck_assert_ptr_nonnull(line);
    return line;
}

static void expect_samples(const char *out, const char *samples) {
    json_t *log = joblog_read(in_dir(dir, out));
    char got[64] = "";
    for (uint64_t s = 1; s <= joblog_count(log, "step"); s++)
        snprintf(got + strlen(got), sizeof got - strlen(got), " %.0f",
                 joblog_number(step_of(log, s), "samples"));
    ck_assert_str_eq(got, samples);
    json_decref(log);
}

static const struct {
    const char *words[3], *samples;
} runs[] = {
    {{"batch_size=4"}, " 4 4 2"},
    {{"batch_size=20"}, " 10"},
    {{"batch_size=2", "gradient_accumulation_steps=2"}, " 4 4 2"},
    {{"batch_size=4", "num_epochs=2"}, " 4 4 2 4 4 2"},
    {{"batch_size=4", "num_epochs=1.5"}, " 4 4 2 4 4"},
    {{"batch_size=4", "num_epochs=0.3"}, " 4"},
    {{"batch_size=4", "max_steps=5"}, " 4 4 2 4 4"},
    {{"batch_size=4", "max_steps=5", "shuffle=false"}, " 4 4 4 4 4"},
    {{"batch_size=4", "debug_inject=device_oom@step=3"}, " 4 4 2"},
};

START_TEST(the_last_step_of_an_epoch_is_short) {
    make_job("learning_rate: 1e-2\n", 0);
    TRAIN(0, "output_dir=run", runs[_i].words[0], runs[_i].words[1] ? runs[_i].words[1] : "seed=0",
          runs[_i].words[2] ? runs[_i].words[2] : "seed=0");
    expect_samples("run", runs[_i].samples);
}
END_TEST

/* A resume in an epoch, at its end, and in the next one. */
START_TEST(a_resumed_run_ends_its_epochs_where_a_straight_one_does) {
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    make_job("learning_rate: 1e-2\nlr_scheduler: constant\nbatch_size: 4\nnum_epochs: 2\n"
             "save_steps: 1\n",
             0);
    TRAIN(0, "output_dir=straight");
    TRAIN(0, "output_dir=halves", textf("max_steps=%d", _i));
    TRAIN(0, "output_dir=halves");
    expect_samples("halves", " 4 4 2 4 4 2");
    snprintf(a, sizeof a, "%s/straight", dir);
    snprintf(b, sizeof b, "%s/halves", dir);
    joblog_assert_same_steps(a, b);
    weights_assert_same(a, b, "model");
}
END_TEST

/* Older versions had steps that took rows of two epochs. */
START_TEST(a_checkpoint_from_elsewhere_is_refused) {
    make_job("learning_rate: 1e-2\nbatch_size: 4\nshuffle: false\nsave_steps: 1\n"
             "lr_scheduler: constant\n",
             0);
    TRAIN(0, "max_steps=3");
    struct outcome o = plimsoll_train(dir, (const char *[]){"num_epochs=2", NULL});
    ck_assert_msg(o.status == 5 && strstr(o.err, "stands at sample 12 after step 3"), "%d: %s",
                  o.status, o.err);
    outcome_finish(&o);
    TRAIN(0, "num_epochs=2", "resume=force");
}
END_TEST

START_TEST(rows_that_train_nothing_are_in_no_step) {
    make_job("learning_rate: 1e-2\nbatch_size: 1\nweight_decay: 0.5\n", 0x3f);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", NULL});
    ck_assert_msg(strstr(o.err, "train.jsonl:1: 6 rows without a token to train on, left out"),
                  "%s", o.err);
    outcome_finish(&o);
    expect_samples("out", " 1 1 1 1");
}
END_TEST

/* If rows keep their places a step may have no target: it has no loss and moves nothing. */
START_TEST(a_step_without_a_target_changes_no_weight) {
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    make_job("learning_rate: 1e-2\nbatch_size: 1\nweight_decay: 0.5\nshuffle: false\n"
             "lr_scheduler: constant\n",
             1 << 1);
    TRAIN(0, "max_steps=1", "output_dir=one");
    TRAIN(0, "max_steps=2", "output_dir=two");
    json_t *log = joblog_read(in_dir(dir, "two"));
    ck_assert(json_is_null(json_object_get(step_of(log, 2), "loss")));
    json_decref(log);
    snprintf(a, sizeof a, "%s/one", dir);
    snprintf(b, sizeof b, "%s/two", dir);
    weights_assert_same(a, b, "model");
}
END_TEST

int main(void) {
    Suite *s = suite_create("epochs");
    TCase *t = tcase_create("epochs");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, the_last_step_of_an_epoch_is_short, 0, sizeof runs / sizeof *runs);
    tcase_add_loop_test(t, a_resumed_run_ends_its_epochs_where_a_straight_one_does, 2, 6);
    tcase_add_test(t, a_checkpoint_from_elsewhere_is_refused);
    tcase_add_test(t, rows_that_train_nothing_are_in_no_step);
    tcase_add_test(t, a_step_without_a_target_changes_no_weight);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
