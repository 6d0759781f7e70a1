/* check_open_step.c - runs that no key gives the samples of a step: a default run trains, and what
 * would train little or nothing is said before the first step. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <string.h>

#define MOST_WORDS 4

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

/* Every key at its default but those that make the run small. */
static void make_job(uint64_t rows, const char *mode) {
    tiny_make(dir, &(struct tiny){.rows = rows, .mode = mode}, "");
}

static const struct {
    uint64_t rows;
    const char *words[MOST_WORDS];
    const char *says; /* output of --dry-run, on either stream; after `!`: an absent text */
} answers[] = {
    {600, {NULL}, "16 samples a step (7 in the last of an epoch), 38 steps"},
    {600, {NULL}, "!note: samples a step"},
    {600, {"gradient_accumulation_steps=4"}, "batch: 4 x "},
    {600, {"gradient_accumulation_steps=4"}, "16 samples a step"},
    {600, {"gradient_accumulation_steps=20"}, "20 samples a step"},
    {600, {"global_batch_size=64"}, "64 samples a step"},
    {600, {"batch_size=5"}, "5 samples a step"},
    {600, {"batch_size=5", "gradient_accumulation_steps=3"}, "15 samples a step"},
    {600, {"max_steps=5"}, "16 samples a step"},
    {100, {NULL}, "8 samples a step"},
    {100, {NULL}, "samples a step: 8 instead of 16, since the data are few"},
    {100, {"num_epochs=3"}, "16 samples a step"},
    {4, {NULL}, "1 sample a step"},
    {4, {NULL}, "note: the run ends after 4 steps"},
    {4, {"num_epochs=5"}, "!note: the run ends"},
    {60, {"batch_size=60"}, "note: the run ends after 1 step:"},
    {600, {"warmup_steps=100"}, "warning: the warm-up of 100 steps outlasts the run of 38"},
    {600, {"warmup_steps=100"}, "`warmup_steps: 3` ends it in time"},
    {600, {"warmup_ratio=1"}, "warning: the warm-up of 38 steps outlasts"},
    {600, {"warmup_steps=37"}, "!warning"},
    {600, {"lr_scheduler=constant", "warmup_steps=100"}, "!outlasts"},
    {600, {"max_steps=1", "warmup_steps=1"}, "warning: the learning rate of every step is 0"},
    {600, {"learning_rate=0"}, "warning: the learning rate of every step is 0"},
    {600, {"max_steps=1"}, "!warning"},
};

static bool says(const struct outcome *o, const char *text) {
    return strstr(o->out, text) || strstr(o->err, text);
}

START_TEST(a_dry_run_says_what_a_step_holds) {
    const char *words[MOST_WORDS + 4] = {"train", "run.yaml", "--dry-run"};
    const char *want = answers[_i].says;
    make_job(answers[_i].rows, "lora");
    for (size_t i = 0; answers[_i].words[i]; i++)
        words[3 + i] = answers[_i].words[i];
    struct outcome o = plimsoll_expect(0, dir, words);
    ck_assert_msg(*want == '!' ? !says(&o, want + 1) : says(&o, want), "`%s` in\n%s%s", want, o.out,
                  o.err);
    outcome_finish(&o);
}
END_TEST

/* 600 short rows and no key but model, data and mode. */
START_TEST(a_default_run_learns) {
    make_job(600, "lora");
    plimsoll_train_expect(0, dir, (const char *[]){"num_epochs=1", NULL});
    json_t *log = joblog_read(in_dir(dir, "out"));
    const uint64_t steps = joblog_count(log, "step");
    ck_assert_uint_eq(steps, 38);
    const double first = joblog_number(joblog_step(log, 1), "loss");
    double last = 0;
    for (uint64_t s = steps - 4; s <= steps; s++)
        last += joblog_number(joblog_step(log, s), "loss") / 5;
    ck_assert_msg(last < first, "loss %f, then %f", first, last);
    json_decref(log);
}
END_TEST

/* The first of a default warm-up's steps has rate 0, so a run of one step has no warm-up. */
START_TEST(a_run_of_one_step_has_a_rate) {
    make_job(600, "lora");
    plimsoll_train_expect(0, dir, (const char *[]){"max_steps=1", NULL});
    json_t *log = joblog_read(in_dir(dir, "out"));
    ck_assert(joblog_number(joblog_step(log, 1), "learning_rate") > 0);
    json_decref(log);
}
END_TEST

/* The first run has steps of 16 samples, since its number of steps is given; the second would have
 * 8, and keeps what was begun. */
START_TEST(a_resumed_run_keeps_its_step) {
    make_job(100, "full");
    plimsoll_train_expect(0, dir, (const char *[]){"max_steps=2", "save_steps=1", NULL});
    plimsoll_train_expect(0, dir, (const char *[]){"save_steps=1", NULL});
    json_t *log = joblog_read(in_dir(dir, "out"));
    ck_assert_uint_eq(joblog_count(log, "step"), 7); /* from 99 rows */
    ck_assert_double_eq(joblog_number(joblog_step(log, 3), "samples"), 16);
    ck_assert_double_eq(joblog_number(joblog_step(log, 7), "samples"), 3);
    json_decref(log);
}
END_TEST

int main(void) {
    Suite *s = suite_create("open_step");
    TCase *t = tcase_create("open_step");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, a_dry_run_says_what_a_step_holds, 0,
                        (int)(sizeof answers / sizeof *answers));
    tcase_add_test(t, a_default_run_learns);
    tcase_add_test(t, a_run_of_one_step_has_a_rate);
    tcase_add_test(t, a_resumed_run_keeps_its_step);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
