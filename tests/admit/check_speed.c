/* check_speed.c - the time of a step, predicted from the roofline and what an earlier run measured:
 * where the ratios come from, that each class has its own, and that nothing is decided by them. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/train/train.h"
#include "tests/support/child.h"
#include "tests/support/joblog.h"
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
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", in_dir(dir, "cache"), 1), 0);
    tiny_make(dir, &(struct tiny){0},
              "batch_size: 2\ngradient_checkpointing: auto\nvram_budget: 2MiB\n");
}

static void tear_down(void) {
    scratch_remove(dir);
}

static const char *speed_file(void) {
    return in_dir(dir, "cache/plimsoll/speed.json");
}

/* --- medians --------------------------------------------------------------------------------- */

/* A step of 1 s of nominal products and half a second of everything row-wise. */
static void add_step(struct pl_pace *p, double seconds, double products, double rows) {
    struct pl_pace_step step = {.seconds = seconds, .timed = products > 0};
    step.nominal[PL_COST_PRODUCT] = 1;
    step.nominal[PL_COST_ROWS] = 0.5;
    step.measured[PL_COST_PRODUCT] = products;
    step.measured[PL_COST_ROWS] = rows;
    pl_pace_add(p, &step);
}

START_TEST(the_first_step_is_left_out_and_three_are_needed) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    static const double seconds[] = {100, 3, 1, 2};
    for (int i = 0; i < 4; i++) {
        ck_assert(!pl_pace_median(&p, &m));
        ck_assert(isnan(m.seconds) && isnan(m.ratio) && m.steps == 0);
        add_step(&p, seconds[i], seconds[i] / 2, seconds[i] / 2);
    }
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq(m.seconds, 2);
    ck_assert_double_eq(m.ratio, 2 / 1.5);
    ck_assert_double_eq_tol(m.classes[PL_COST_PRODUCT], 1, 1e-12);
    ck_assert_double_eq_tol(m.classes[PL_COST_ROWS], 2, 1e-12);
    ck_assert_uint_eq(m.steps, 3);
    add_step(&p, 10, 5, 5);
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq(m.seconds, 2.5);
}
END_TEST

START_TEST(the_latest_steps_count) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    for (int i = 0; i < 10 * PL_PACE_STEPS; i++) {
        const bool late = i >= 9 * PL_PACE_STEPS + 1;
        add_step(&p, late ? 7 : 1, late ? 3.5 : 0.9, late ? 3.5 : 0.1);
    }
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq(m.seconds, 7);
    ck_assert_double_eq_tol(m.classes[PL_COST_ROWS], 7, 1e-12);
    ck_assert_uint_eq(m.steps, PL_PACE_STEPS);
}
END_TEST

START_TEST(what_passes_between_the_ops_is_shared_out) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    for (int i = 0; i < 5; i++)
        add_step(&p, 6, 2, 1);
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq_tol(m.classes[PL_COST_PRODUCT], 4, 1e-12);
    ck_assert_double_eq_tol(m.classes[PL_COST_ROWS], 4, 1e-12);
}
END_TEST

START_TEST(one_timed_step_is_enough_for_the_classes) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    for (int i = 0; i < 5; i++)
        add_step(&p, 3, i == 1 ? 8 : 0, 4);
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq_tol(m.classes[PL_COST_PRODUCT], 2, 1e-12);
    ck_assert_double_eq_tol(m.classes[PL_COST_ROWS], 2, 1e-12);
}
END_TEST

START_TEST(without_a_timed_step_there_are_no_classes) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    for (int i = 0; i < 5; i++)
        add_step(&p, 3, 0, 0);
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_eq(m.ratio, 2);
    for (int c = 0; c < PL_COST_COUNT; c++)
        ck_assert_double_eq(m.classes[c], 0);
}
END_TEST

START_TEST(a_class_of_little_time_is_not_measured) {
    struct pl_pace p = {0};
    struct pl_pace_medians m;
    static const double rows[] = {PL_PACE_SHARE * 0.9, PL_PACE_SHARE * 1.1};
    for (int i = 0; i < 5; i++)
        add_step(&p, 1, 1 - rows[_i], rows[_i]);
    ck_assert(pl_pace_median(&p, &m));
    ck_assert_double_gt(m.classes[PL_COST_PRODUCT], 0);
    ck_assert_int_eq(m.classes[PL_COST_ROWS] > 0, _i == 1);
    ck_assert_double_eq(m.classes[PL_COST_ATTENTION], 0);
}
END_TEST

/* --- runs ------------------------------------------------------------------------------------ */

#define TRAIN(...) plimsoll_train_expect(0, dir, (const char *[]){__VA_ARGS__, NULL})

static json_t *event(const char *out, const char *name) {
    json_t *log = joblog_read(in_dir(dir, out));
    json_t *e = json_incref(joblog_event(log, name, 0));
    ck_assert_ptr_nonnull(e);
    json_decref(log);
    return e;
}

static void expect_no_prediction(const char *out) {
    static const char *const events[] = {"preflight", "summary"};
    for (int i = 0; i < 2; i++) {
        json_t *e = event(out, events[i]);
        ck_assert(json_is_null(json_object_get(e, "predicted_step_seconds")));
        json_decref(e);
    }
}

/* The figures of the one entry; a reference of the caller. */
static json_t *stored(void) {
    json_t *root = json_load_file(speed_file(), 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "entries")), 1);
    json_t *entry = json_incref(json_array_get(json_object_get(root, "entries"), 0));
    json_decref(root);
    return entry;
}

static double stored_ratio(void) {
    json_t *entry = stored();
    double ratio = joblog_number(entry, "ratio");
    json_decref(entry);
    return ratio;
}

/* 0: none. */
static double stored_class(enum pl_cost c) {
    json_t *entry = stored();
    double ratio =
        json_number_value(json_object_get(json_object_get(entry, "classes"), pl_cost_name(c)));
    json_decref(entry);
    return ratio;
}

static void store(const char *key, json_t *value) {
    json_t *root = json_load_file(speed_file(), 0, NULL);
    json_t *entry = json_array_get(json_object_get(root, "entries"), 0);
    ck_assert_int_eq(json_object_set_new(entry, key, value), 0);
    ck_assert_int_eq(json_dump_file(root, speed_file(), 0), 0);
    json_decref(root);
}

/* Replaces all measurements. */
static void store_ratio(double ratio) {
    store("classes", json_object());
    store("ratio", json_real(ratio));
}

START_TEST(a_run_is_predicted_by_the_one_before) {
    TRAIN("max_steps=6", "output_dir=first");
    expect_no_prediction("first");
    const double ratio = stored_ratio(),
                 measured = joblog_summary(in_dir(dir, "first"), "measured_step_seconds");
    ck_assert(isnormal(ratio) && ratio > 0);
    ck_assert(isnormal(measured) && measured > 0);
    TRAIN("max_steps=6", "output_dir=second");
    json_t *e = event("second", "preflight");
    const double predicted = joblog_number(e, "predicted_step_seconds");
    const double expected = joblog_number(e, "nominal_step_seconds") * ratio;
    ck_assert_double_eq_tol(predicted, expected, 0.3 * expected); /* classes of little time: V3 */
    ck_assert_double_eq(joblog_summary(in_dir(dir, "second"), "predicted_step_seconds"), predicted);
    ck_assert_double_gt(joblog_summary(in_dir(dir, "second"), "measured_step_seconds"), 0);
    json_decref(e);
}
END_TEST

START_TEST(people_are_told_both) {
    struct outcome o = plimsoll_train(dir, (const char *[]){"max_steps=6", "output_dir=a", NULL});
    ck_assert_ptr_null(strstr(o.err, "predicted:"));
    ck_assert_msg(strstr(o.err, "measured ") && strstr(o.err, "s a step, median of 5"), "%s",
                  o.err);
    outcome_finish(&o);
    o = plimsoll_train(dir, (const char *[]){"max_steps=6", "output_dir=b", NULL});
    ck_assert_msg(strstr(o.err, "  predicted: ") && strstr(o.err, " s a step, measured "), "%s",
                  o.err);
    outcome_finish(&o);
}
END_TEST

/* |predicted / measured - 1| of a run. */
static double off_of(const char *out) {
    return fabs(joblog_summary(in_dir(dir, out), "predicted_step_seconds") /
                    joblog_summary(in_dir(dir, out), "measured_step_seconds") -
                1);
}

START_TEST(a_forecast_says_how_far_the_latest_were_off) {
    struct outcome o;
    TRAIN("max_steps=6", "output_dir=a");
    TRAIN("max_steps=6", "output_dir=b");
    json_t *e = event("b", "preflight");
    ck_assert(json_is_null(json_object_get(e, "earlier_predictions_off")));
    json_decref(e);
    TRAIN("max_steps=6", "output_dir=c");
    e = event("c", "preflight");
    ck_assert_double_eq_tol(joblog_number(e, "earlier_predictions_off"), off_of("b"), 1e-9);
    json_decref(e);
    json_t *entry = stored(), *errors = json_object_get(entry, "errors");
    ck_assert_uint_eq(json_array_size(errors), 2);
    ck_assert_double_eq_tol(json_number_value(json_array_get(errors, 0)), off_of("c"), 1e-9);
    json_decref(entry);
    store("errors", json_pack("[f, f, f, s, f]", 0.5, 0.02, 0.04, "x", -1.0));
    o = plimsoll_train(dir, (const char *[]){"max_steps=6", "output_dir=d", NULL});
    ck_assert_msg(strstr(o.err, "; the last 3 were 4 % off, at most 50 %)"), "%s", o.err);
    outcome_finish(&o);
}
END_TEST

START_TEST(no_more_than_the_latest_errors_are_kept) {
    json_t *many = json_array();
    TRAIN("max_steps=6", "output_dir=a");
    for (int i = 0; i < 2 * PL_FORECASTS_JUDGED; i++)
        ck_assert_int_eq(json_array_append_new(many, json_real(i)), 0);
    store("errors", many);
    TRAIN("max_steps=6", "output_dir=b");
    json_t *entry = stored(), *errors = json_object_get(entry, "errors");
    ck_assert_uint_eq(json_array_size(errors), PL_FORECASTS_JUDGED);
    ck_assert_double_eq_tol(json_number_value(json_array_get(errors, 0)), off_of("b"), 1e-9);
    ck_assert_double_eq(json_number_value(json_array_get(errors, 1)), 0);
    json_decref(entry);
}
END_TEST

START_TEST(too_few_steps_leave_nothing) {
    TRAIN("max_steps=3", "output_dir=out");
    ck_assert(!path_exists(speed_file()));
    json_t *e = event("out", "summary");
    ck_assert(json_is_null(json_object_get(e, "measured_step_seconds")));
    json_decref(e);
}
END_TEST

/* A ratio belongs to what was measured. */
static const char *const others[] = {"threads=1", "dtype=bf16"};

START_TEST(a_run_of_another_kind_is_not_predicted) {
    TRAIN("max_steps=6", "output_dir=first");
    TRAIN("max_steps=2", "output_dir=second", "vram_budget=1GiB", others[_i]);
    expect_no_prediction("second");
}
END_TEST

START_TEST(a_run_by_other_kernels_is_not_predicted) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    const uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    if (n < 2) return; /* an architecture of one level, or a machine of the least */
    TRAIN("max_steps=6", "output_dir=first");
    ck_assert_int_eq(setenv("PLIMSOLL_CPU_LEVEL", levels[n - 1].name, 1), 0);
    TRAIN("max_steps=2", "output_dir=second");
    expect_no_prediction("second");
}
END_TEST

static double predicted_of(const char *out) {
    json_t *e = event(out, "preflight");
    double seconds = joblog_number(e, "predicted_step_seconds");
    json_decref(e);
    return seconds;
}

START_TEST(every_class_has_its_own_ratio) {
    TRAIN("max_steps=6", "output_dir=first");
    store_ratio(1);
    TRAIN("max_steps=2", "output_dir=one");
    json_t *e = event("one", "preflight");
    ck_assert_double_eq_tol(predicted_of("one"), joblog_number(e, "nominal_step_seconds"), 1e-12);
    json_decref(e);
    store("classes", json_pack("{s:f}", pl_cost_name(PL_COST_PRODUCT), 1001.0));
    TRAIN("max_steps=2", "output_dir=two");
    store("classes", json_pack("{s:f, s:f}", pl_cost_name(PL_COST_PRODUCT), 1001.0,
                               pl_cost_name(PL_COST_ROWS), 1001.0));
    TRAIN("max_steps=2", "output_dir=three");
    ck_assert_double_gt(predicted_of("two"), 100 * predicted_of("one"));
    ck_assert_double_gt(predicted_of("three"), 1.1 * predicted_of("two"));
}
END_TEST

START_TEST(another_mode_is_predicted_and_takes_only_what_it_measured) {
    TRAIN("max_steps=6", "output_dir=first");
    ck_assert_double_eq(stored_class(PL_COST_DEQUANT), 0);
    store("classes", json_pack("{s:f, s:f}", pl_cost_name(PL_COST_COPY), 123.0,
                               pl_cost_name(PL_COST_PRODUCT), 1e9));
    TRAIN("max_steps=6", "output_dir=second", "vram_budget=1GiB", "mode=lora");
    ck_assert_double_gt(predicted_of("second"), 0);
    ck_assert_double_eq(stored_class(PL_COST_COPY), 123);
    ck_assert_double_lt(stored_class(PL_COST_PRODUCT), 1e9);
}
END_TEST

static const char *const broken[] = {
    "", "{", "[]", "{\"schema\":2,\"entries\":[]}", "{\"schema\":1,\"entries\":{}}", "\xff\xfe"};

START_TEST(a_broken_file_is_noted_ignored_and_replaced) {
    TRAIN("max_steps=6", "output_dir=first");
    file_write(speed_file(), broken[_i]);
    struct outcome o = plimsoll_train(dir, (const char *[]){"max_steps=6", "output_dir=b", NULL});
    ck_assert_int_eq(o.status, 0);
    ck_assert_msg(strstr(o.err, "speed.json in the cache directory is damaged"), "%s", o.err);
    outcome_finish(&o);
    expect_no_prediction("b");
    ck_assert_double_gt(stored_ratio(), 0);
}
END_TEST

static const double lies[] = {0, -1, 1e-320};

START_TEST(a_ratio_that_no_clock_shows_is_not_believed) {
    TRAIN("max_steps=6", "output_dir=first");
    store_ratio(lies[_i]);
    TRAIN("max_steps=2", "output_dir=second");
    expect_no_prediction("second");
}
END_TEST

/* The lines that begin with a key, of config.resolved.yaml. */
static void expect_same_choice(const char *key) {
    char line[2][128];
    static const char *const outs[] = {"without", "with"};
    for (int i = 0; i < 2; i++) {
        char *text = file_read(textf("%s/%s/config.resolved.yaml", dir, outs[i]), NULL);
        const char *at = strstr(text, textf("\n%s: ", key));
        ck_assert_msg(at != NULL, "no %s in\n%s", key, text);
        snprintf(line[i], sizeof line[i], "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
        free(text);
    }
    ck_assert_str_eq(line[0], line[1]);
}

START_TEST(nothing_is_decided_by_the_clock) {
    static const double ratios[] = {1e-6, 1e6};
    const char *const words[] = {"batch_size=auto", "global_batch_size=4", "max_steps=6"};
    TRAIN(words[0], words[1], words[2], "output_dir=without");
    expect_no_prediction("without");
    store_ratio(ratios[_i]);
    TRAIN(words[0], words[1], words[2], "output_dir=with");
    json_t *e = event("with", "preflight");
    ck_assert_double_gt(joblog_number(e, "predicted_step_seconds"), 0);
    json_decref(e);
    expect_same_choice("gradient_checkpointing");
    expect_same_choice("batch_size");
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    snprintf(a, sizeof a, "%s/without", dir);
    snprintf(b, sizeof b, "%s/with", dir);
    weights_assert_same(a, b, "model");
    joblog_assert_same_steps(a, b);
}
END_TEST

/* Calls of an operation, from the event; every row is checked on the way. */
static json_int_t profiled_calls(const json_t *e, const char *op) {
    const json_t *rows = json_object_get(e, "ops");
    double share = 0;
    json_int_t calls = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        share += joblog_number(row, "share");
        ck_assert_double_ge(joblog_number(row, "seconds"), 0);
        ck_assert_double_ge(joblog_number(row, "gbytes_per_second"), 0);
        if (strcmp(json_string_value(json_object_get(row, "op")), op) == 0)
            calls = json_integer_value(json_object_get(row, "calls"));
    }
    ck_assert_double_eq_tol(share, 1, 1e-9);
    return calls;
}

START_TEST(a_profile_names_every_kind_and_changes_nothing) {
    char a[SCRATCH_PATH + 16], b[SCRATCH_PATH + 16];
    TRAIN("max_steps=3", "global_batch_size=4", "output_dir=without");
    struct outcome o = plimsoll_train(dir, (const char *[]){"max_steps=3", "global_batch_size=4",
                                                            "output_dir=with", "--profile", NULL});
    ck_assert_msg(strstr(o.err, "in the operations of 3 steps") && strstr(o.err, "linear_dw"), "%s",
                  o.err);
    outcome_finish(&o);
    json_t *e = event("with", "profile");
    ck_assert_int_eq(json_integer_value(json_object_get(e, "steps")), 3);
    ck_assert_int_eq(profiled_calls(e, "clip_scale"), 3);
    ck_assert_int_eq(profiled_calls(e, "embed"), 3 * 2); /* micro-batches */
    json_decref(e);
    snprintf(a, sizeof a, "%s/without", dir);
    snprintf(b, sizeof b, "%s/with", dir);
    weights_assert_same(a, b, "model");
    joblog_assert_same_steps(a, b);
}
END_TEST

#define N(a) (int)(sizeof(a) / sizeof *(a))

int main(void) {
    Suite *s = suite_create("train.speed");
    TCase *medians = tcase_create("medians");
    tcase_add_test(medians, the_first_step_is_left_out_and_three_are_needed);
    tcase_add_test(medians, the_latest_steps_count);
    tcase_add_test(medians, what_passes_between_the_ops_is_shared_out);
    tcase_add_test(medians, one_timed_step_is_enough_for_the_classes);
    tcase_add_test(medians, without_a_timed_step_there_are_no_classes);
    tcase_add_loop_test(medians, a_class_of_little_time_is_not_measured, 0, 2);
    suite_add_tcase(s, medians);
    TCase *runs = tcase_create("runs");
    tcase_set_timeout(runs, 120);
    tcase_add_checked_fixture(runs, set_up, tear_down);
    tcase_add_test(runs, a_run_is_predicted_by_the_one_before);
    tcase_add_test(runs, people_are_told_both);
    tcase_add_test(runs, a_forecast_says_how_far_the_latest_were_off);
    tcase_add_test(runs, no_more_than_the_latest_errors_are_kept);
    tcase_add_test(runs, too_few_steps_leave_nothing);
    tcase_add_loop_test(runs, a_run_of_another_kind_is_not_predicted, 0, N(others));
    tcase_add_test(runs, a_run_by_other_kernels_is_not_predicted);
    tcase_add_test(runs, every_class_has_its_own_ratio);
    tcase_add_test(runs, another_mode_is_predicted_and_takes_only_what_it_measured);
    tcase_add_test(runs, a_profile_names_every_kind_and_changes_nothing);
    tcase_add_loop_test(runs, a_broken_file_is_noted_ignored_and_replaced, 0, N(broken));
    tcase_add_loop_test(runs, a_ratio_that_no_clock_shows_is_not_believed, 0, N(lies));
    tcase_add_loop_test(runs, nothing_is_decided_by_the_clock, 0, 2);
    suite_add_tcase(s, runs);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
