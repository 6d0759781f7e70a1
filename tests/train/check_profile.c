/* check_profile.c - which steps are timed, what falls into which class, and the table. */
#include "runtime/train/profile.h"

#include <check.h>
#include <string.h>

static struct pl_op ops[] = {{.kind = PL_OP_ROPE, .phase = PL_PHASE_MICRO},
                             {.kind = PL_OP_SWIGLU, .phase = PL_PHASE_MICRO},
                             {.kind = PL_OP_CLIP_SCALE, .phase = PL_PHASE_OPTIMIZER},
                             {.kind = PL_OP_ROPE, .phase = PL_PHASE_EVAL}};
#define N_OPS (uint32_t)(sizeof ops / sizeof *ops)
static struct pl_program program = {.ops = ops, .n_ops = N_OPS, .tokens = 8};
static struct pl_plan plan = {.program = &program};
static struct pl_exec e;
static struct pl_profile f;
static const struct pl_load load = {1, 8, 8, 4, false};

static void begin(bool every) {
    struct pl_diag d = {0};
    e = (struct pl_exec){.plan = &plan};
    ck_assert_int_eq(pl_profile_init(&f, N_OPS, every, &d), PL_ERR_OK);
}

static void tear_down(void) {
    pl_profile_finish(&f);
}

/* Records as the executor does. */
static void run(uint32_t op, double seconds) {
    if (!e.times) return;
    e.times[op].seconds += seconds;
    e.times[op].runs++;
}

static const struct {
    bool every, waits, timed[4];
} rules[] = {{false, false, {true, true, true, true}},
             {false, true, {false, true, false, false}},
             {true, true, {true, true, true, true}}};

/* F2. */
START_TEST(a_device_that_works_on_its_own_is_waited_for_in_one_step) {
    double of[PL_COST_COUNT] = {-1};
    begin(rules[_i].every);
    for (int step = 0; step < 4; step++) {
        pl_profile_begin(&f, &e, rules[_i].waits);
        ck_assert_int_eq(e.times != NULL, rules[_i].timed[step]);
        run(0, 1);
        ck_assert_int_eq(pl_profile_end(&f, &e, &load, of), rules[_i].timed[step]);
        ck_assert_ptr_null(e.times);
        if (step == 0 && !rules[_i].timed[0]) ck_assert_double_eq(of[0], -1);
    }
}
END_TEST

START_TEST(seconds_fall_into_classes_step_by_step) {
    double of[PL_COST_COUNT];
    begin(false);
    for (int step = 0; step < 2; step++) {
        pl_profile_begin(&f, &e, false);
        run(0, 1);
        run(1, 2);
        run(1, 2);
        run(2, 0.5);
        ck_assert(pl_profile_end(&f, &e, &load, of));
        ck_assert_double_eq(of[PL_COST_ROWS], 5);
        ck_assert_double_eq(of[PL_COST_UPDATE], 0.5);
        ck_assert_double_eq(of[PL_COST_PRODUCT], 0);
    }
}
END_TEST

START_TEST(the_table_has_the_slowest_kind_first) {
    double of[PL_COST_COUNT];
    struct pl_text text = {0};
    begin(true);
    for (int step = 0; step < 2; step++) {
        pl_profile_begin(&f, &e, true);
        run(0, 1);
        run(1, 1); /* two micro-batches */
        run(1, 2);
        run(2, 0);
        pl_profile_end(&f, &e, &load, of);
    }
    pl_profile_text(&f, &text);
    const char *out = pl_text_str(&text), *rope = strstr(out, "rope"), *act = strstr(out, "swiglu"),
               *clip = strstr(out, "clip_scale");
    ck_assert_msg(strstr(out, "8.000 s in the operations of 2 steps") != NULL, "%s", out);
    ck_assert_msg(rope && act && clip && act < rope && rope < clip, "%s", out);
    ck_assert_msg(strstr(out, "75.0%") && !strstr(out, "nan") && !strstr(out, "linear"), "%s", out);
    pl_text_finish(&text);
    json_t *rows = pl_profile_json(&f);
    ck_assert_uint_eq(json_array_size(rows), 3);
    const json_t *first = json_array_get(rows, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "op")), "swiglu");
    ck_assert_int_eq(json_integer_value(json_object_get(first, "calls")), 4);
    ck_assert_double_eq(json_real_value(json_object_get(first, "seconds")), 6);
    json_decref(rows);
}
END_TEST

START_TEST(nothing_that_ran_is_an_empty_table) {
    begin(true);
    json_t *rows = pl_profile_json(&f);
    ck_assert_uint_eq(json_array_size(rows), 0);
    json_decref(rows);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.profile");
    TCase *t = tcase_create("profile");
    tcase_add_checked_fixture(t, NULL, tear_down);
    tcase_add_loop_test(t, a_device_that_works_on_its_own_is_waited_for_in_one_step, 0,
                        (int)(sizeof rules / sizeof *rules));
    tcase_add_test(t, seconds_fall_into_classes_step_by_step);
    tcase_add_test(t, the_table_has_the_slowest_kind_first);
    tcase_add_test(t, nothing_that_ran_is_an_empty_table);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
