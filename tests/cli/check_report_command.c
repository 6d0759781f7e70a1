/* check_report_command.c - `plimsoll report` through the binary: real runs, what is no run, and a
 * page that is written again while a run lives. */
#include "tests/support/child.h"
#include "tests/support/hang.h"
#include "tests/support/scratch.h"
#include "tests/support/tiny.h"

#include <check.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static char dir[SCRATCH_PATH];

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    scratch_remove(dir);
}

static void train(const char *more, const char *const words[]) {
    tiny_make(dir, &(struct tiny){0}, more);
    plimsoll_train_expect(0, dir, words);
}

static const char plain[] = "batch_size: 2\nmax_steps: 6\nval_set_size: 0.2\neval_steps: 2\n";

static char *page(const char *name) {
    return file_read(in_dir(dir, name), NULL);
}

/* --- real runs ------------------------------------------------------------------------------- */

static json_t *last_of(const char *log, const char *event) {
    char *text = file_read(in_dir(dir, log), NULL), *rest = NULL;
    json_t *found = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *o = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(o, "event"));
        if (name && strcmp(name, event) == 0) {
            json_decref(found);
            found = json_incref(o);
        }
        json_decref(o);
    }
    free(text);
    ck_assert_ptr_nonnull(found);
    return found;
}

static void expect_same(const json_t *run, const char *figure, const char *event, const char *key) {
    json_t *o = last_of("out/train_log.jsonl", event);
    ck_assert_msg(json_number_value(json_object_get(run, figure)) ==
                      json_number_value(json_object_get(o, key)),
                  "%s is not %s of %s", figure, key, event);
    json_decref(o);
}

START_TEST(figures_are_those_of_the_run) {
    train(plain, (const char *[]){NULL});
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"report", "out", "--json", NULL});
    json_t *answer = json_loads(o.out, 0, NULL);
    const json_t *run = json_array_get(json_object_get(answer, "runs"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(answer, "page")), "out/report.html");
    expect_same(run, "loss", "step", "loss");
    expect_same(run, "eval_loss", "eval", "loss");
    expect_same(run, "steps", "summary", "steps");
    expect_same(run, "planned_bytes", "preflight", "planned_bytes");
    expect_same(run, "measured_bytes", "summary", "measured_peak_bytes");
    ck_assert_str_eq(json_string_value(json_object_get(run, "state")), "ended");
    json_decref(answer);
    outcome_finish(&o);
    char *html = page("out/report.html");
    ck_assert_ptr_nonnull(strstr(html, "\"timeline\":{"));
    ck_assert_ptr_nonnull(strstr(html, "<th scope=\"row\">learning_rate</th>"));
    free(html);
}
END_TEST

START_TEST(several_runs_stand_on_one_page) {
    train(plain, (const char *[]){"output_dir=a", NULL});
    train(plain, (const char *[]){"output_dir=b", "seed=7", NULL});
    train("batch_size: 4\nmax_steps: 4\n",
          (const char *[]){"output_dir=c", "debug_inject=device_oom@step=2", NULL});
    struct outcome o =
        plimsoll_expect(0, dir, (const char *[]){"report", "a", "b/", "c", "-o", "all.html", NULL});
    ck_assert_ptr_nonnull(strstr(o.out, "all.html\n"));
    outcome_finish(&o);
    char *html = page("all.html");
    ck_assert_ptr_nonnull(strstr(html, "<title>3 runs</title>"));
    ck_assert_ptr_nonnull(strstr(html, "<th scope=\"row\">seed</th>"));
    ck_assert_ptr_nonnull(strstr(html, "micro-batch 4 → 2"));
    ck_assert(!path_exists(in_dir(dir, "a/report.html")));
    free(html);
}
END_TEST

START_TEST(a_run_that_was_resumed_is_one_curve) {
    train("batch_size: 2\nmax_steps: 3\nsave_steps: 1\n", (const char *[]){NULL});
    plimsoll_train_expect(0, dir, (const char *[]){"max_steps=5", NULL});
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"report", "out", NULL});
    outcome_finish(&o);
    char *html = page("out/report.html");
    ck_assert_ptr_nonnull(strstr(html, "\"x\":[1,2,3,4,5]"));
    ck_assert_ptr_nonnull(strstr(html, "continued after this step"));
    free(html);
}
END_TEST

/* --- what is no run, and what is damaged ----------------------------------------------------- */

static void expect_refused(const char *const words[], int status, const char *code,
                           const char *hint) {
    struct outcome o = plimsoll_expect(status, dir, words);
    ck_assert_msg(strstr(o.err, code) != NULL, "%s", o.err);
    ck_assert_msg(strstr(o.err, hint) != NULL, "%s", o.err);
    outcome_finish(&o);
}

START_TEST(what_is_no_run_is_refused) {
    static const struct {
        const char *arg, *hint;
    } cases[] = {{"absent", "no directory of this name"},
                 {"empty", "`train` writes train_log.jsonl into it"},
                 {"above", "did you mean above/out?"},
                 {"a file", "no directory of this name"},
                 {"fifo", "cannot open"}};
    mkdir(in_dir(dir, "empty"), 0777);
    mkdir(in_dir(dir, "above"), 0777);
    mkdir(in_dir(dir, "above/out"), 0777);
    mkdir(in_dir(dir, "fifo"), 0777);
    ck_assert_int_eq(mkfifo(in_dir(dir, "fifo/train_log.jsonl"), 0666), 0);
    file_write(in_dir(dir, "above/out/train_log.jsonl"), "");
    file_write(in_dir(dir, "a file"), "");
    expect_refused((const char *[]){"report", cases[_i].arg, NULL}, 5, "DATA_FILE", cases[_i].hint);
}
END_TEST

START_TEST(a_page_does_not_replace_another_kind_of_file) {
    mkdir(in_dir(dir, "out"), 0777);
    file_write(in_dir(dir, "out/train_log.jsonl"), "precious");
    expect_refused((const char *[]){"report", "out", "-o", "out/train_log.jsonl", NULL}, 2,
                   "CONFIG_USAGE", "--output report.html");
    struct outcome o = plimsoll_expect(2, dir, (const char *[]){"report", NULL});
    outcome_finish(&o);
    char *text = page("out/train_log.jsonl");
    ck_assert_str_eq(text, "precious");
    free(text);
}
END_TEST

/* RR1 of report_runs.h. */
START_TEST(damaged_companions_cost_their_sections_alone) {
    static const char *const damages[] = {"", "{", "{\"timeline\":1}", "[[[[[[", "{\"receipt\":1}"};
    mkdir(in_dir(dir, "out"), 0777);
    file_write(in_dir(dir, "out/train_log.jsonl"),
               "{\"event\":\"step\",\"step\":1,\"loss\":2.5}\n{\"event\":\"step\",\"st");
    file_write(in_dir(dir, "out/receipt.json"), damages[_i]);
    file_write(in_dir(dir, "out/timeline.json"), damages[_i]);
    struct outcome o = plimsoll_expect(0, dir, (const char *[]){"report", "out", NULL});
    ck_assert_msg(strstr(o.err, "receipt.json is left out") != NULL, "%s", o.err);
    ck_assert_msg(strstr(o.err, "timeline.json") != NULL, "%s", o.err);
    outcome_finish(&o);
    char *html = page("out/report.html");
    ck_assert_ptr_nonnull(strstr(html, "\"x\":[1],\"y\":[2.5]"));
    free(html);
}
END_TEST

/* --- watching -------------------------------------------------------------------------------- */

static bool page_has(const char *name, const char *what) {
    if (!path_exists(in_dir(dir, name))) return false;
    char *html = page(name);
    const bool has = strstr(html, what) != NULL;
    free(html);
    return has;
}

static void wait_until(bool (*is_so)(void)) {
    const struct timespec pause = {0, 20000000};
    const double end = seconds_now() + HANG_SECONDS;
    while (!is_so()) {
        ck_assert_msg(seconds_now() < end, "waited in vain");
        nanosleep(&pause, NULL);
    }
}

static bool has_log(void) {
    return path_exists(in_dir(dir, "out/train_log.jsonl"));
}

static bool page_lives(void) {
    return page_has("out/report.html", "The page loads itself again");
}

static bool page_has_a_step(void) {
    return page_has("out/report.html", "\"charts\":[{");
}

static struct child start_run(void) {
    tiny_make(dir, &(struct tiny){0}, "batch_size: 2\nmax_steps: 1000000\n");
    struct child run =
        plimsoll_start(dir, (const char *[]){"train", "run.yaml", "-q", NULL}, false);
    wait_until(has_log);
    return run;
}

/* RR2 of report_runs.h. */
START_TEST(a_watched_page_ends_with_the_run) {
    struct child run = start_run();
    struct child report =
        plimsoll_start(dir, (const char *[]){"report", "out", "--watch", NULL}, false);
    wait_until(page_lives);
    wait_until(page_has_a_step);
    kill(run.pid, SIGINT);
    struct outcome trained = child_wait(&run, HANG_SECONDS);
    ck_assert_int_eq(trained.status, 130);
    struct outcome o = child_wait(&report, HANG_SECONDS);
    ck_assert_msg(o.status == 0 && !o.timed_out, "exit %d: %s", o.status, o.err);
    ck_assert(!page_lives() && page_has("out/report.html", "The run has ended."));
    outcome_finish(&trained);
    outcome_finish(&o);
}
END_TEST

START_TEST(a_signal_ends_watching_and_leaves_a_page_at_rest) {
    const int number = _i ? SIGTERM : SIGINT;
    struct child run = start_run();
    struct child report =
        plimsoll_start(dir, (const char *[]){"report", "out", "--watch", NULL}, false);
    wait_until(page_lives);
    kill(report.pid, number);
    struct outcome o = child_wait(&report, HANG_SECONDS);
    ck_assert_msg(o.status == 128 + number, "exit %d: %s", o.status, o.err);
    ck_assert(!page_lives() && page_has("out/report.html", "1 of 1 run still trains."));
    kill(run.pid, SIGINT);
    outcome_finish(&o);
    o = child_wait(&run, HANG_SECONDS);
    outcome_finish(&o);
}
END_TEST

int main(void) {
    Suite *s = suite_create("cli.report_command");
    TCase *tc = tcase_create("report");
    tcase_set_timeout(tc, 4 * HANG_SECONDS);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, figures_are_those_of_the_run);
    tcase_add_test(tc, several_runs_stand_on_one_page);
    tcase_add_test(tc, a_run_that_was_resumed_is_one_curve);
    tcase_add_loop_test(tc, what_is_no_run_is_refused, 0, 5);
    tcase_add_test(tc, a_page_does_not_replace_another_kind_of_file);
    tcase_add_loop_test(tc, damaged_companions_cost_their_sections_alone, 0, 5);
    tcase_add_test(tc, a_watched_page_ends_with_the_run);
    tcase_add_loop_test(tc, a_signal_ends_watching_and_leaves_a_page_at_rest, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
