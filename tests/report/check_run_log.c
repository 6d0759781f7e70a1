/* check_run_log.c - the figures of a log: finished, torn, resumed, with steps written again. */
#include "runtime/report/run_log.h"
#include "tests/support/scratch.h"

#include <check.h>
#include <math.h>
#include <stdio.h>

static char dir[SCRATCH_PATH];
static struct pl_run_log h;

static void set_up(void) {
    scratch_make(dir);
}

static void tear_down(void) {
    pl_run_log_finish(&h);
    scratch_remove(dir);
}

static void read_log(const char *text) {
    struct pl_diag d = {0};
    file_write(in_dir(dir, "log"), text);
    ck_assert_msg(pl_run_log_read(in_dir(dir, "log"), &h, &d) == PL_ERR_OK, "%s", d.message);
}

static double at(const struct pl_figures *t, const char *name, uint64_t i) {
    const double *v = pl_figures_column(t, name);
    ck_assert_msg(v != NULL && i < t->n, "no %s of row %llu", name, (unsigned long long)i);
    return v[i];
}

#define STEP(n, loss) "{\"event\":\"step\",\"step\":" #n ",\"loss\":" #loss "}\n"
#define EVAL(n, loss) "{\"event\":\"eval\",\"step\":" #n ",\"loss\":" #loss "}\n"
#define OOM(n)        "{\"event\":\"oom_recovery\",\"step\":" #n ",\"old_batch_size\":4}\n"
#define SAMPLE(n)     "{\"event\":\"sample\",\"step\":" #n ",\"answer\":\"a\"}\n"
#define PREFLIGHT     "{\"event\":\"preflight\",\"verdict\":\"fits\"}\n"
#define SUMMARY(n)    "{\"event\":\"summary\",\"steps\":" #n "}\n"

/* HI1: the doubles are compared bit for bit, and null is NaN. */
START_TEST(figures_are_those_of_the_log) {
    read_log(PREFLIGHT STEP(1, 5.8287229627388299) STEP(2, null) EVAL(2, 3.1468811083108302)
                 STEP(3, 2.5) OOM(3) SUMMARY(3));
    ck_assert_uint_eq(h.steps.n, 3);
    ck_assert(h.steps.step[0] == 1 && h.steps.step[2] == 3);
    ck_assert(at(&h.steps, "loss", 0) == 5.8287229627388299 && isnan(at(&h.steps, "loss", 1)));
    ck_assert_uint_eq(h.evals.n, 1);
    ck_assert(h.evals.step[0] == 2 && at(&h.evals, "loss", 0) == 3.1468811083108302);
    ck_assert(h.recoveries.n == 1 && h.recoveries.step[0] == 3);
    ck_assert_uint_eq(json_array_size(h.recovery_events), 1);
    ck_assert(h.ended && h.preflight && h.summary);
    ck_assert_uint_eq(h.resumes.n, 0);
    ck_assert_ptr_null(pl_figures_column(&h.steps, "grad_norm"));
}
END_TEST

START_TEST(samples_of_steps_that_are_written_again_are_dropped) {
    read_log(STEP(1, 3) SAMPLE(1) STEP(2, 2) SAMPLE(2) SAMPLE(2) STEP(3, 1) SAMPLE(3) STEP(2, 2)
                 SAMPLE(2));
    ck_assert_uint_eq(json_array_size(h.samples), 2);
    ck_assert(json_number_value(json_object_get(json_array_get(h.samples, 0), "step")) == 1);
    ck_assert(json_number_value(json_object_get(json_array_get(h.samples, 1), "step")) == 2);
}
END_TEST

/* HI1: a key that a line lacks is NaN. HI4: numbers and booleans are columns. */
START_TEST(a_key_that_comes_late_is_a_column_with_a_gap) {
    read_log(
        STEP(1, 3) "{\"event\":\"step\",\"step\":2,\"skipped\":true,\"note\":\"x\",\"loss\":2}\n"
                   "{\"event\":\"step\",\"step\":3,\"skipped\":false}\n");
    ck_assert_uint_eq(h.steps.n_columns, 2);
    ck_assert(isnan(at(&h.steps, "skipped", 0)) && at(&h.steps, "skipped", 1) == 1);
    ck_assert(at(&h.steps, "skipped", 2) == 0 && isnan(at(&h.steps, "loss", 2)));
    ck_assert(at(&h.steps, "loss", 1) == 2);
}
END_TEST

/* The last line of the file is one that a run has not finished writing. HI3: it is passed over,
 * and so is a line that is no object. */
START_TEST(a_torn_last_line_is_passed_over) {
    static const char *const torn[] = {"{\"event\":\"step\",\"step\":3,\"loss\":9",
                                       "{\"event\":\"step\",\"step\":3,\"loss\":9}", "{",
                                       "\n\n[]\n"};
    char text[256];
    snprintf(text, sizeof text, "%s%s", STEP(1, 3) STEP(2, 2), torn[_i]);
    read_log(text);
    ck_assert_uint_eq(h.steps.n, 2);
    ck_assert(!h.ended);
}
END_TEST

/* HI2: the later line of a step counts, and no evaluation of the earlier run after it.
 * Recoveries stay. */
START_TEST(steps_that_were_written_again_count_once) {
    read_log(PREFLIGHT STEP(1, 5) EVAL(1, 5.5) STEP(2, 4) EVAL(2, 4.5) STEP(3, 3) EVAL(3, 3.5)
                 OOM(3) PREFLIGHT STEP(2, 40) STEP(3, 30));
    ck_assert_uint_eq(h.steps.n, 3);
    ck_assert(at(&h.steps, "loss", 0) == 5 && at(&h.steps, "loss", 1) == 40);
    ck_assert(at(&h.steps, "loss", 2) == 30);
    ck_assert_uint_eq(h.evals.n, 1);
    ck_assert(h.evals.step[0] == 1 && at(&h.evals, "loss", 0) == 5.5);
    ck_assert_uint_eq(h.recoveries.n, 1);
}
END_TEST

START_TEST(a_resumed_run_says_after_which_step) {
    read_log(PREFLIGHT STEP(1, 5) STEP(2, 4) SUMMARY(2) PREFLIGHT PREFLIGHT STEP(3, 3));
    ck_assert(h.resumes.n == 1 && h.resumes.step[0] == 2);
    ck_assert(!h.ended);
}
END_TEST

START_TEST(evaluations_of_one_step_are_one_row) {
    read_log(EVAL(5, 2) "{\"event\":\"eval\",\"step\":5,\"perplexity\":7.5}\n" EVAL(9, 1));
    ck_assert_uint_eq(h.evals.n, 2);
    ck_assert(at(&h.evals, "loss", 0) == 2 && at(&h.evals, "perplexity", 0) == 7.5);
    ck_assert(isnan(at(&h.evals, "perplexity", 1)));
}
END_TEST

/* HI4: the keys beyond PL_FIGURES_MOST are left out. */
START_TEST(there_are_no_more_columns_than_room) {
    struct scratch_text {
        char s[8192];
    } t;
    int n = snprintf(t.s, sizeof t.s, "{\"event\":\"step\",\"step\":1");
    for (int i = 0; i < 2 * PL_FIGURES_MOST; i++)
        n += snprintf(t.s + n, sizeof t.s - (size_t)n, ",\"c%d\":%d", i, i);
    snprintf(t.s + n, sizeof t.s - (size_t)n, "}\n");
    read_log(t.s);
    ck_assert_uint_eq(h.steps.n_columns, PL_FIGURES_MOST);
}
END_TEST

START_TEST(a_log_that_is_not_there_is_named) {
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_run_log_read("/nonexistent/log", &h, &d), PL_ERR_IO);
    ck_assert_str_eq(d.file, "/nonexistent/log");
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.run_log");
    TCase *tc = tcase_create("log");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, figures_are_those_of_the_log);
    tcase_add_test(tc, samples_of_steps_that_are_written_again_are_dropped);
    tcase_add_test(tc, a_key_that_comes_late_is_a_column_with_a_gap);
    tcase_add_loop_test(tc, a_torn_last_line_is_passed_over, 0, 4);
    tcase_add_test(tc, steps_that_were_written_again_count_once);
    tcase_add_test(tc, a_resumed_run_says_after_which_step);
    tcase_add_test(tc, evaluations_of_one_step_are_one_row);
    tcase_add_test(tc, there_are_no_more_columns_than_room);
    tcase_add_test(tc, a_log_that_is_not_there_is_named);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
