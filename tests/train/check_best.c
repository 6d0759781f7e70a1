/* check_best.c - the model of the best evaluation, and runs that end when none is better. Through
 * the real binary; the rules of transformers are applied again to the figures of the log. */
#include "tests/support/child.h"
#include "tests/support/joblog.h"
#include "tests/support/saved.h"
#include "tests/support/scratch.h"
#include "tests/support/tensorset.h"
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
#define BEST       "load_best_model_at_end=true"

static void expect(const char *text, const char *what) {
    ck_assert_msg(strstr(text, what) != NULL, "no `%s` in: %s", what, text);
}

/* Rows of random tokens: what is learned of them makes those that are held out less likely. */
static void make_job(const char *mode, const char *more) {
    tiny_make(dir, &(struct tiny){.mode = mode, .rows = 40},
              textf("batch_size: 4\nlearning_rate: 0.01\nlr_scheduler: constant\n"
                    "val_set_size: 12\neval_steps: 2\nsave_steps: 2\n%s",
                    more));
}

/* --- the rules of transformers, over a log ---------------------------------------------------- */

static bool is_better(const char *metric, double a, double b) {
    return strcmp(metric, "accuracy") == 0 ? a > b : a < b;
}

/* The step of the best of the first n evaluations that have a checkpoint every `save` steps. */
static uint64_t best_of(const json_t *log, const char *metric, size_t n, uint64_t save) {
    uint64_t best = 0;
    double value = strcmp(metric, "accuracy") == 0 ? -1 : INFINITY;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = joblog_event(log, "eval", i);
        const uint64_t step = (uint64_t)joblog_number(e, "step");
        if (step % save || !is_better(metric, joblog_number(e, metric), value)) continue;
        best = step;
        value = joblog_number(e, metric);
    }
    return best;
}

/* EarlyStoppingCallback.check_metric_value over the evaluations of a run that did not stop. */
static uint64_t stop_of(const json_t *log, const char *metric, int patience, double threshold) {
    const size_t n = joblog_count(log, "eval");
    double best = NAN;
    int counter = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = joblog_event(log, "eval", i);
        const double now = joblog_number(e, metric);
        const bool better = isnan(best) || is_better(metric, now, best);
        counter = better && (isnan(best) || fabs(now - best) > threshold) ? 0 : counter + 1;
        if (better) best = now;
        if (counter >= patience) return (uint64_t)joblog_number(e, "step");
    }
    return 0;
}

static uint64_t last_step(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    const size_t n = joblog_count(log, "step");
    const uint64_t step = (uint64_t)joblog_number(joblog_event(log, "step", n - 1), "step");
    json_decref(log);
    return step;
}

static uint64_t best_step(const char *out) {
    json_t *log = joblog_read(in_dir(dir, out));
    const uint64_t step = (uint64_t)joblog_number(joblog_event(log, "best", 0), "best_step");
    json_decref(log);
    return step;
}

/* --- the model that is saved ------------------------------------------------------------------ */

static const struct {
    const char *mode, *stem, *metric, *more;
} kinds[] = {
    {"full", "model", "loss", ""},
    {"full", "model", "accuracy", "dtype: bf16\n"},
    {"full", "model", "perplexity", "offload: weights\n"},
    {"lora", "adapter_model", "loss", "lora_r: 4\n"},
    {"qlora", "adapter_model", "accuracy", "lora_r: 4\nsave_total_limit: 2\n"},
};

START_TEST(the_model_of_the_best_checkpoint_is_saved) {
    make_job(kinds[_i].mode, kinds[_i].more);
    TRAIN(BEST, textf("metric_for_best_model=%s", kinds[_i].metric), "max_steps=20",
          "learning_rate=0.05");
    json_t *log = joblog_read(in_dir(dir, "out"));
    const uint64_t want = best_of(log, kinds[_i].metric, joblog_count(log, "eval"), 2);
    ck_assert_msg(want && want < 20, "the best step is %llu: the case shows nothing",
                  (unsigned long long)want);
    ck_assert_uint_eq(best_step("out"), want);
    weights_assert_same(in_dir(dir, textf("out/checkpoint-%llu", (unsigned long long)want)),
                        in_dir(dir, "out"), kinds[_i].stem);
    ck_assert(joblog_summary(in_dir(dir, "out"), "planned_peak_bytes") ==
              joblog_summary(in_dir(dir, "out"), "allocated_peak_bytes"));
    json_decref(log);
}
END_TEST

/* W3 of best.h. Every evaluation counts for the patience; the model is one that has a checkpoint.
 * */
START_TEST(only_evaluations_with_a_checkpoint_are_candidates) {
    make_job("full", "");
    TRAIN(BEST, "max_steps=18", "eval_steps=1", "save_steps=6");
    json_t *log = joblog_read(in_dir(dir, "out"));
    ck_assert_uint_eq(joblog_count(log, "eval"), 18);
    ck_assert_uint_eq(best_step("out"), best_of(log, "loss", 18, 6));
    json_decref(log);
}
END_TEST

START_TEST(the_summary_and_the_note_name_the_step) {
    make_job("full", "");
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", BEST, "max_steps=20", NULL});
    const uint64_t best = best_step("out");
    expect(o.err,
           textf("\nthe model of step %llu is saved: evaluation loss ", (unsigned long long)best));
    expect(o.err, textf("\nthe saved model is that of step %llu: evaluation loss ",
                        (unsigned long long)best));
    outcome_finish(&o);
}
END_TEST

/* --- checkpoints that stay -------------------------------------------------------------------- */

static void count_checkpoint(const char *name, void *ctx) {
    *(int *)ctx += strncmp(name, "checkpoint-", 11) == 0;
}

START_TEST(the_best_checkpoint_stays_under_any_limit) {
    const int limit = _i;
    int found = 0;
    make_job("full", "");
    TRAIN(BEST, "max_steps=20", "learning_rate=0.05", textf("save_total_limit=%d", limit));
    dir_each(in_dir(dir, "out"), count_checkpoint, &found);
    ck_assert_int_eq(found, limit == 1 ? 2 : limit);
    ck_assert_uint_le(best_step("out"), 10);
    ck_assert(path_exists(
        in_dir(dir, textf("out/checkpoint-%llu", (unsigned long long)best_step("out")))));
    ck_assert(path_exists(in_dir(dir, "out/checkpoint-20")));
}
END_TEST

START_TEST(a_best_checkpoint_that_is_gone_is_told) {
    make_job("full", "save_total_limit: 30\n");
    TRAIN(BEST, "max_steps=20", "learning_rate=0.05");
    char path[SCRATCH_PATH + 64];
    snprintf(path, sizeof path, "%s/out/checkpoint-%llu", dir,
             (unsigned long long)best_step("out"));
    scratch_remove(path);
    struct outcome o = plimsoll_expect(
        0, dir,
        (const char *[]){"train", "run.yaml", BEST, "max_steps=20", "learning_rate=0.05", NULL});
    expect(o.err, ", the best one so far, is not in output_dir");
    weights_assert_same(in_dir(dir, "out/checkpoint-20"), in_dir(dir, "out"), "model");
    outcome_finish(&o);
}
END_TEST

/* --- early stopping --------------------------------------------------------------------------- */

static const struct {
    const char *metric;
    int patience;
    const char *threshold;
} stops[] = {{"loss", 1, "0"},
             {"loss", 3, "0"},
             {"loss", 2, "0.05"},
             {"accuracy", 2, "0"},
             {"perplexity", 2, "1"}};

/* W2 of best.h, as EarlyStoppingCallback decides by the same figures. */
START_TEST(a_run_stops_where_transformers_would) {
    make_job("full", textf("metric_for_best_model: %s\n", stops[_i].metric));
    TRAIN("output_dir=whole", "max_steps=40", "early_stopping_patience=1000");
    json_t *log = joblog_read(in_dir(dir, "whole"));
    const uint64_t want =
        stop_of(log, stops[_i].metric, stops[_i].patience, atof(stops[_i].threshold));
    ck_assert_msg(want && want < 40, "step %llu: the case shows nothing", (unsigned long long)want);
    TRAIN("output_dir=stops", "max_steps=40",
          textf("early_stopping_patience=%d", stops[_i].patience),
          textf("early_stopping_threshold=%s", stops[_i].threshold));
    ck_assert_uint_eq(last_step("stops"), want);
    ck_assert(path_exists(in_dir(dir, textf("stops/checkpoint-%llu", (unsigned long long)want))));
    weights_assert_same(in_dir(dir, textf("stops/checkpoint-%llu", (unsigned long long)want)),
                        in_dir(dir, "stops"), "model");
    json_decref(log);
}
END_TEST

START_TEST(the_same_command_finds_a_run_ended_and_more_patience_continues_it) {
    make_job("full", "early_stopping_patience: 2\nmax_steps: 40\n");
    TRAIN("output_dir=out");
    const uint64_t end = last_step("out");
    ck_assert_uint_lt(end, 40);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"train", "run.yaml", NULL});
    expect(o.err, "nothing was left to train");
    outcome_finish(&o);
    ck_assert_uint_eq(last_step("out"), end);
    TRAIN("early_stopping_patience=4");
    ck_assert_uint_gt(last_step("out"), end);
}
END_TEST

/* --- a run that is stopped and resumed -------------------------------------------------------- */

/* Steps after which the run ends for a while: some before the best step, some after it. */
static const int pauses[] = {2, 4, 8};

/* W1 of best.h, in the directory of the run that was stopped. */
START_TEST(a_resumed_run_decides_as_one_that_was_never_stopped) {
    make_job("full", "early_stopping_patience: 3\n"
                     "load_best_model_at_end: true\n");
    TRAIN("output_dir=whole", "max_steps=40");
    TRAIN("output_dir=parts", textf("max_steps=%d", pauses[_i]));
    TRAIN("output_dir=parts", "max_steps=40");
    const uint64_t end = last_step("whole");
    ck_assert_uint_gt(end, 8);
    ck_assert_uint_lt(end, 40);
    ck_assert_uint_eq(last_step("parts"), end);
    json_t *whole = joblog_read(in_dir(dir, "whole")), *parts = joblog_read(in_dir(dir, "parts"));
    ck_assert_uint_eq(
        (uint64_t)joblog_number(joblog_event(whole, "best", 0), "best_step"),
        (uint64_t)joblog_number(joblog_event(parts, "best", joblog_count(parts, "best") - 1),
                                "best_step"));
    weights_assert_same(in_dir(dir, "whole"), in_dir(dir, "parts"), "model");
    checkpoint_assert_same(in_dir(dir, textf("whole/checkpoint-%llu", (unsigned long long)end)),
                           in_dir(dir, textf("parts/checkpoint-%llu", (unsigned long long)end)));
    json_decref(whole);
    json_decref(parts);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

static const struct {
    const char *words[3], *says, *hint;
} refusals[] = {
    {{BEST, "save_steps=3"},
     "`save_steps` to be a multiple of `eval_steps`, and 3 is none of 2",
     "write `save_steps: 4`"},
    {{BEST, "save_steps=0"}, "and 0 is none of 2", "write `save_steps: 2`"},
    {{BEST, "eval_steps=0"},
     "`load_best_model_at_end` needs `eval_steps` above 0",
     "add `eval_steps: N`"},
    {{BEST, "val_set_size=0"},
     "`load_best_model_at_end` needs evaluation data",
     "add `val_set_size: 0.05`"},
    {{"early_stopping_patience=2", "val_set_size=0"},
     "`early_stopping_patience` needs evaluation data",
     "add `val_set_size: 0.05`"},
    {{BEST, "metric_for_best_model=eval_loss"},
     "`metric_for_best_model: eval_loss` is not among",
     "write `loss`"},
    {{BEST, "greater_is_better=false"},
     "greater_is_better",
     "it follows from `metric_for_best_model`: remove the line"},
};

START_TEST(what_does_not_agree_is_refused) {
    make_job("full", "max_steps: 4\n");
    struct outcome o = plimsoll_train(dir, refusals[_i].words);
    ck_assert_int_eq(o.status, 2);
    expect(o.err, refusals[_i].says);
    expect(o.err, refusals[_i].hint);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.best");
    TCase *t = tcase_create("best");
    tcase_set_timeout(t, 0);
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, the_model_of_the_best_checkpoint_is_saved, 0,
                        sizeof kinds / sizeof *kinds);
    tcase_add_test(t, only_evaluations_with_a_checkpoint_are_candidates);
    tcase_add_test(t, the_summary_and_the_note_name_the_step);
    tcase_add_loop_test(t, the_best_checkpoint_stays_under_any_limit, 1, 4);
    tcase_add_test(t, a_best_checkpoint_that_is_gone_is_told);
    tcase_add_loop_test(t, a_run_stops_where_transformers_would, 0, sizeof stops / sizeof *stops);
    tcase_add_test(t, the_same_command_finds_a_run_ended_and_more_patience_continues_it);
    tcase_add_loop_test(t, a_resumed_run_decides_as_one_that_was_never_stopped, 0,
                        sizeof pauses / sizeof *pauses);
    tcase_add_loop_test(t, what_does_not_agree_is_refused, 0, sizeof refusals / sizeof *refusals);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
