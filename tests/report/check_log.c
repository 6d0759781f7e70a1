/* check_log.c - train_log.jsonl: whole lines, exact numbers, resume. */
#include "estimator/base/alloc.h"
#include "runtime/report/run_log.h"
#include "runtime/report/report.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/plimsoll-log-XXXXXX", path[64];

static void setup(void) {
    memcpy(dir + sizeof dir - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/train_log.jsonl", dir);
}

static void teardown(void) {
    unlink(path);
    ck_assert_msg(rmdir(dir) == 0, "something was left beside the log");
}

static void write_file(const char *text) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static const char *read_file(void) {
    static char text[4096];
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static struct pl_log *open_log(uint64_t keep_steps, FILE *echo) {
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    ck_assert_msg(pl_log_open(path, keep_steps, echo, &log, &d) == PL_ERR_OK, "%s", d.message);
    return log;
}

static const struct pl_step_report report = {.step = 3,
                                             .total_steps = 10,
                                             .epoch = 0.25,
                                             .loss = 0.1,
                                             .grad_norm = 1.5,
                                             .learning_rate = 2e-5,
                                             .tokens = 4096,
                                             .computed_tokens = 5000,
                                             .samples = 12,
                                             .tokens_per_second = 1000.5,
                                             .batch_size = 4,
                                             .device_bytes = 1ull << 40};

START_TEST(a_step_is_one_line_with_every_digit) {
    struct pl_log *log = open_log(0, NULL);
    ck_assert_int_eq(pl_log_step(log, &report, NULL), PL_ERR_OK);
    pl_log_close(&log);
    ck_assert_ptr_null(log);
    ck_assert_str_eq(read_file(),
                     "{\"event\":\"step\",\"step\":3,\"epoch\":0.25,\"loss\":0.10000000000000001,"
                     "\"grad_norm\":1.5,\"learning_rate\":2.0000000000000002e-5,\"tokens\":4096,"
                     "\"computed_tokens\":5000,\"samples\":12,"
                     "\"tokens_per_second\":1000.5,\"batch_size\":4,"
                     "\"device_bytes\":1099511627776}\n");
}
END_TEST

/* L2 of report.h: the line is JSON whatever the numbers are. */
START_TEST(what_is_not_finite_is_null) {
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct pl_step_report r = report;
        r.epoch = r.loss = r.grad_norm = r.learning_rate = r.tokens_per_second = values[i];
        struct pl_log *log = open_log(0, NULL);
        ck_assert_int_eq(pl_log_step(log, &r, NULL), PL_ERR_OK);
        pl_log_close(&log);
        json_t *o = json_loads(read_file(), 0, NULL);
        ck_assert(json_is_object(o));
        ck_assert(json_is_null(json_object_get(o, "epoch")));
        ck_assert(json_is_null(json_object_get(o, "loss")));
        ck_assert(json_is_null(json_object_get(o, "grad_norm")));
        ck_assert(json_is_null(json_object_get(o, "learning_rate")));
        ck_assert(json_is_null(json_object_get(o, "tokens_per_second")));
        json_decref(o);
    }
}
END_TEST

START_TEST(an_event_starts_with_its_name_and_is_echoed) {
    FILE *echo = tmpfile();
    ck_assert_ptr_nonnull(echo);
    struct pl_log *log = open_log(0, echo);
    json_t *fields = json_pack("{s:i, s:s}", "step", 7, "path", "a\"b\n");
    ck_assert_int_eq(pl_log_event(log, "checkpoint", fields, NULL), PL_ERR_OK);
    pl_log_close(&log);
    const char *want = "{\"event\":\"checkpoint\",\"step\":7,\"path\":\"a\\\"b\\n\"}\n";
    ck_assert_str_eq(read_file(), want);
    char heard[128] = "";
    rewind(echo);
    ck_assert_uint_eq(fread(heard, 1, sizeof heard - 1, echo), strlen(want));
    ck_assert_str_eq(heard, want);
    fclose(echo);
}
END_TEST

/* Steps that come again stand there once; what is said of memory stays. */
START_TEST(a_log_goes_back_to_a_step) {
    struct pl_log *log = open_log(0, NULL);
    ck_assert_int_eq(pl_log_event(log, "preflight", json_pack("{s:i}", "a", 1), NULL), PL_ERR_OK);
    for (int step = 1; step <= 3; step++)
        ck_assert_int_eq(pl_log_event(log, "step", json_pack("{s:i}", "step", step), NULL),
                         PL_ERR_OK);
    ck_assert_int_eq(pl_log_event(log, "oom_recovery", json_pack("{s:i}", "step", 4), NULL),
                     PL_ERR_OK);
    ck_assert_int_eq(pl_log_go_back(log, _i, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_log_event(log, "step", json_pack("{s:i}", "step", _i + 1), NULL),
                     PL_ERR_OK);
    pl_log_close(&log);
    char want[256] = "{\"event\":\"preflight\",\"a\":1}\n";
    for (int step = 1; step <= _i; step++)
        snprintf(want + strlen(want), sizeof want - strlen(want),
                 "{\"event\":\"step\",\"step\":%d}\n", step);
    snprintf(want + strlen(want), sizeof want - strlen(want),
             "{\"event\":\"oom_recovery\",\"step\":4}\n{\"event\":\"step\",\"step\":%d}\n", _i + 1);
    ck_assert_str_eq(read_file(), want);
}
END_TEST

START_TEST(fields_that_could_not_be_made_are_reported) {
    struct pl_log *log = open_log(0, NULL);
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_log_event(log, "eval", NULL, &d), PL_ERR_HOST_OOM);
    ck_assert_int_eq(d.err, PL_ERR_HOST_OOM);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), "");
}
END_TEST

/* --- resume ---------------------------------------------------------------------------------- */

#define OLD_LOG                                                                                    \
    "{\"event\":\"preflight\",\"verdict\":\"fits\"}\n"                                             \
    "{\"event\":\"step\",\"step\":1,\"loss\":3.5}\n"                                               \
    "{\"event\":\"step\",\"step\":2,\"loss\":null}\n"                                              \
    "{\"event\":\"oom_recovery\",\"step\":2,\"attempt\":1}\n"

#define BEYOND                                                                                     \
    "{\"event\":\"step\",\"step\":3,\"loss\":2.5}\n"                                               \
    "{\"event\":\"eval\",\"step\":3,\"loss\":2}\n"                                                 \
    "{\"event\":\"summary\",\"steps\":3}\n"

START_TEST(resume_keeps_the_lines_up_to_its_step_only) {
    write_file(OLD_LOG BEYOND);
    struct pl_log *log = open_log(2, NULL);
    ck_assert_str_eq(read_file(), OLD_LOG);
    ck_assert_int_eq(pl_log_event(log, "x", json_object(), NULL), PL_ERR_OK);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), OLD_LOG "{\"event\":\"x\"}\n");
}
END_TEST

/* L1 of report.h: all lines before it are there. */
START_TEST(resume_drops_the_half_line_of_a_crash) {
    write_file(OLD_LOG "{\"event\":\"step\",\"st");
    struct pl_log *log = open_log(2, NULL);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), OLD_LOG);
    /* whole but for its newline: the next line would be glued to it */
    write_file(OLD_LOG "{\"event\":\"step\",\"step\":2}");
    log = open_log(2, NULL);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), OLD_LOG);
}
END_TEST

START_TEST(resume_drops_what_is_not_an_object) {
    write_file("not json\n" OLD_LOG "[1]\n\n");
    struct pl_log *log = open_log(2, NULL);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), OLD_LOG);
}
END_TEST

START_TEST(a_new_run_starts_with_an_empty_log) {
    write_file(OLD_LOG BEYOND);
    struct pl_log *log = open_log(0, NULL);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), "");
}
END_TEST

START_TEST(a_long_log_reads_back_whole) {
    struct pl_log *log = open_log(0, NULL);
    struct pl_step_report r = report;
    for (r.step = 1; r.step <= 1000; r.step++) {
        r.loss = 1.0 / (double)r.step;
        ck_assert_int_eq(pl_log_step(log, &r, NULL), PL_ERR_OK);
    }
    pl_log_close(&log);
    struct pl_run_log h;
    ck_assert_int_eq(pl_run_log_read(path, &h, NULL), PL_ERR_OK);
    ck_assert_uint_eq(h.steps.n, 1000);
    const double *losses = pl_figures_column(&h.steps, "loss");
    for (uint64_t i = 0; i < h.steps.n; i++)
        ck_assert(h.steps.step[i] == (double)(i + 1) && losses[i] == 1.0 / (double)(i + 1));
    pl_run_log_finish(&h);
}
END_TEST

static int lines_of(const char *text) {
    int n = 0;
    while ((text = strchr(text, '\n'))) {
        text++;
        n++;
    }
    return n;
}

/* --- failures -------------------------------------------------------------------------------- */

/* The step is done by then, and will be saved: without its line the log would have a hole. */
START_TEST(a_request_for_memory_that_fails_costs_no_step_its_line) {
    uint64_t requests = 1;
    json_set_alloc_funcs(pl_malloc, free);
    for (uint64_t at = 1; at <= requests; at++) {
        struct pl_log *log = open_log(0, NULL);
        struct pl_diag d = {0};
        pl_alloc_fail(at, 1);
        pl_err err = pl_log_step(log, &report, &d);
        requests = pl_alloc_requests() > requests ? pl_alloc_requests() : requests;
        pl_alloc_fail(0, 0);
        pl_log_close(&log);
        ck_assert_msg(err == PL_ERR_OK && d.err == PL_ERR_OK, "request %d: %s", (int)at, d.message);
        ck_assert_msg(lines_of(read_file()) == 1, "request %d: %s", (int)at, read_file());
    }
    ck_assert_uint_gt(requests, 10);
}
END_TEST

START_TEST(memory_that_stays_short_is_told) {
    struct pl_log *log = open_log(0, NULL);
    struct pl_diag d = {0};
    json_set_alloc_funcs(pl_malloc, free);
    pl_alloc_fail(1, UINT64_MAX);
    pl_err err = pl_log_step(log, &report, &d);
    pl_alloc_fail(0, 0);
    pl_log_close(&log);
    ck_assert_int_eq(err, PL_ERR_HOST_OOM);
    ck_assert_int_eq(d.err, PL_ERR_HOST_OOM);
}
END_TEST

/* L1 of report.h: the half of it is taken back at once. */
START_TEST(a_line_cut_short_by_a_full_disk_is_written_again_whole) {
    struct pl_log *log = open_log(0, NULL);
    ck_assert_int_eq(pl_log_event(log, "first", json_object(), NULL), PL_ERR_OK);
    /* a file size limit cuts the write in the middle, as a full disk does */
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 40, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct pl_diag d = {0};
    pl_err err = pl_log_step(log, &report, &d);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(err, PL_ERR_IO);
    ck_assert_str_eq(d.file, path);
    ck_assert_str_eq(read_file(), "{\"event\":\"first\"}\n");
    ck_assert_int_eq(pl_log_event(log, "next", json_object(), NULL), PL_ERR_OK);
    pl_log_close(&log);
    /* and written again before the next one */
    const char *text = read_file(), *step = strstr(text, "}\n{\"event\":\"step\",\"step\":3,");
    ck_assert_msg(step && strncmp(text, "{\"event\":\"first\"", 16) == 0, "%s", text);
    ck_assert_msg(strstr(step, "}\n{\"event\":\"next\"}\n") != NULL, "%s", text);
    ck_assert_int_eq(lines_of(text), 3);
}
END_TEST

START_TEST(a_rewrite_that_fails_keeps_the_old_log) {
    write_file(OLD_LOG BEYOND);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = (struct rlimit){.rlim_cur = 40, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    pl_err err = pl_log_open(path, 2, NULL, &log, &d);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &old), 0);
    ck_assert_int_eq(err, PL_ERR_IO);
    ck_assert_ptr_null(log);
    ck_assert_str_eq(read_file(), OLD_LOG BEYOND);
}
END_TEST

/* _i: the log is a link to a file, or to none; its temporary is one. L3 of report.h: the file
 * that the link leads to keeps its text. */
START_TEST(a_link_in_the_place_of_the_log_is_not_written_through) {
    char mine[64], beside[sizeof path + 4], text[64] = "";
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    snprintf(mine, sizeof mine, "%s/mine", dir);
    snprintf(beside, sizeof beside, "%s.tmp", path);
    if (_i != 1) {
        FILE *f = fopen(mine, "w");
        ck_assert(f && fputs("precious\n", f) >= 0 && fclose(f) == 0);
    }
    if (_i == 2) write_file(OLD_LOG);
    ck_assert_int_eq(symlink(mine, _i == 2 ? beside : path), 0);
    pl_err err = pl_log_open(path, 0, NULL, &log, &d);
    if (err == PL_ERR_OK) err = pl_log_event(log, "next", json_object(), &d);
    ck_assert_int_eq(err, _i == 2 ? PL_ERR_IO : PL_ERR_OK);
    pl_log_close(&log);
    ck_assert_str_eq(read_file(), _i == 2 ? OLD_LOG : "{\"event\":\"next\"}\n");
    FILE *f = fopen(mine, "r");
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    ck_assert_str_eq(text, _i == 1 ? "" : "precious\n");
    unlink(mine);
    unlink(beside);
}
END_TEST

START_TEST(a_log_that_cannot_be_opened_names_its_path) {
    struct pl_log *log = NULL;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_log_open("/nonexistent/log", 0, NULL, &log, &d), PL_ERR_IO);
    ck_assert_ptr_null(log);
    ck_assert_str_eq(d.file, "/nonexistent/log");
}
END_TEST

int main(void) {
    Suite *s = suite_create("report.log");
    TCase *tc = tcase_create("log");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, a_step_is_one_line_with_every_digit);
    tcase_add_test(tc, what_is_not_finite_is_null);
    tcase_add_test(tc, an_event_starts_with_its_name_and_is_echoed);
    tcase_add_loop_test(tc, a_log_goes_back_to_a_step, 0, 3);
    tcase_add_test(tc, fields_that_could_not_be_made_are_reported);
    tcase_add_test(tc, resume_keeps_the_lines_up_to_its_step_only);
    tcase_add_test(tc, resume_drops_the_half_line_of_a_crash);
    tcase_add_test(tc, resume_drops_what_is_not_an_object);
    tcase_add_test(tc, a_new_run_starts_with_an_empty_log);
    tcase_add_test(tc, a_long_log_reads_back_whole);
    tcase_add_test(tc, a_request_for_memory_that_fails_costs_no_step_its_line);
    tcase_add_test(tc, memory_that_stays_short_is_told);
    tcase_add_test(tc, a_line_cut_short_by_a_full_disk_is_written_again_whole);
    tcase_add_test(tc, a_rewrite_that_fails_keeps_the_old_log);
    tcase_add_loop_test(tc, a_link_in_the_place_of_the_log_is_not_written_through, 0, 3);
    tcase_add_test(tc, a_log_that_cannot_be_opened_names_its_path);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
