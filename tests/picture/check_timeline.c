/* check_timeline.c - the figures of the timeline are those of the plan. */
#include "estimator/picture/picture.h"
#include "estimator/picture/sweep.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct pl_planned planned;
static json_t *timeline;

static void set_up(void) {
    struct pl_model m;
    pl_test_model("SmolLM2-135M", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_LORA, PL_RECOMPUTE_FULL, 2, 128);
    pl_test_plan(&planned, &s, &m);
    timeline = pl_timeline_json(planned.plan, 1 << 30);
    ck_assert_ptr_nonnull(timeline);
}

static void tear_down(void) {
    json_decref(timeline);
    pl_planned_finish(&planned);
}

static uint64_t number(const json_t *o, const char *key) {
    ck_assert_msg(json_is_integer(json_object_get(o, key)), "no %s", key);
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static uint64_t item(const json_t *list, size_t i) {
    return (uint64_t)json_integer_value(json_array_get(list, i));
}

/* The bytes of the batch arena in one column. */
static uint64_t live_bytes(const json_t *phase, size_t column) {
    uint64_t sum = 0;
    const char *category;
    json_t *list;
    json_object_foreach(json_object_get(phase, "live"), category, list) sum += item(list, column);
    return sum;
}

static enum pl_phase phase_of(const json_t *phase) {
    int p = 0;
    const char *name = json_string_value(json_object_get(phase, "name"));
    while (p < PL_PHASE_COUNT && strcmp(name, pl_phase_name((enum pl_phase)p)) != 0)
        p++;
    ck_assert_int_lt(p, PL_PHASE_COUNT);
    return (enum pl_phase)p;
}

static void check_phase(const json_t *phase) {
    const enum pl_phase p = phase_of(phase);
    const struct pl_plan *plan = planned.plan;
    const struct pl_phase_range *ops = &plan->program->phases[p];
    const json_t *op = json_object_get(phase, "op");
    uint64_t *live = calloc(ops->n_ops, sizeof *live), most = 0, at_peak = 0;
    bool peak_is_there = false;
    pl_plan_timeline(plan, p, live);
    ck_assert_uint_eq(number(phase, "ops"), ops->n_ops);
    ck_assert_uint_eq(json_array_size(op), ops->n_ops < 2000 ? ops->n_ops : 2000);
    for (size_t i = 0; i < json_array_size(op); i++) {
        ck_assert_uint_eq(live_bytes(phase, i), live[item(op, i)]);
        if (live_bytes(phase, i) > most) most = live_bytes(phase, i);
        peak_is_there |= item(op, i) == number(phase, "peak_op");
    }
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        at_peak += plan->phases[p].live[c];
    ck_assert_uint_eq(most, at_peak);
    ck_assert(peak_is_there && live[number(phase, "peak_op")] == most);
    free(live);
}

/* V1 of picture.h, SW1 */
START_TEST(every_phase_has_the_live_bytes_of_the_plan) {
    const json_t *phases = json_object_get(timeline, "phases");
    size_t n = 0, i;
    for (int p = 0; p < PL_PHASE_COUNT; p++)
        n += planned.plan->program->phases[p].n_ops > 0;
    ck_assert_uint_eq(json_array_size(phases), n);
    const json_t *phase;
    json_array_foreach(phases, i, phase) check_phase(phase);
}
END_TEST

START_TEST(what_lives_as_long_as_the_run_stands_once) {
    const json_t *job = json_object_get(timeline, "job");
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        if (planned.plan->job_by_category[c])
            ck_assert_uint_eq(number(job, pl_category_name((enum pl_category)c)),
                              planned.plan->job_by_category[c]);
    ck_assert_uint_eq(number(timeline, "arena_bytes"), planned.plan->arena_bytes);
    ck_assert_uint_eq(number(timeline, "budget_bytes"), 1 << 30);
}
END_TEST

START_TEST(operations_are_named_with_their_layers) {
    const json_t *phase = json_array_get(json_object_get(timeline, "phases"), 1);
    const struct pl_phase_range *ops = &planned.plan->program->phases[PL_PHASE_MICRO];
    ck_assert_int_eq(phase_of(phase), PL_PHASE_MICRO);
    const json_t *at = json_object_get(phase, "op");
    for (size_t i = 0; i < json_array_size(at); i++) {
        const struct pl_op *op = &planned.plan->program->ops[ops->first_op + item(at, i)];
        const json_t *layer = json_array_get(json_object_get(phase, "layer"), i);
        ck_assert_str_eq(json_string_value(json_array_get(json_object_get(phase, "what"), i)),
                         pl_op_name(op->kind));
        ck_assert_int_eq(json_integer_value(layer), op->layer == PL_NONE ? -1 : (int)op->layer);
        ck_assert(op->backward == (item(at, i) >= number(phase, "backward_op")));
    }
}
END_TEST

START_TEST(a_budget_that_is_not_known_is_null) {
    json_t *o = pl_timeline_json(planned.plan, 0);
    ck_assert(json_is_null(json_object_get(o, "budget_bytes")));
    json_decref(o);
}
END_TEST

/* SW2: Fifty columns for two thousand operations. */
START_TEST(an_operation_that_stands_for_others_is_the_fullest) {
    struct pl_sweep s;
    uint32_t op_of[50], peak_column = 50;
    ck_assert(pl_sweep_init(&s, planned.plan, PL_PHASE_MICRO));
    const uint32_t n = s.ops->n_ops;
    const uint32_t peak = planned.plan->phases[PL_PHASE_MICRO].peak_op - s.ops->first_op;
    uint64_t *live = calloc(n, sizeof *live);
    pl_plan_timeline(planned.plan, PL_PHASE_MICRO, live);
    ck_assert_uint_eq(pl_sweep_columns(&s, peak, 50, op_of, &peak_column), 50);
    for (uint32_t c = 0; c < 50; c++)
        for (uint32_t op = c * n / 50; op < (c + 1) * n / 50; op++)
            ck_assert_uint_le(live[op], live[op_of[c]]);
    ck_assert_uint_eq(op_of[peak_column], peak);
    ck_assert_uint_eq(pl_sweep_columns(&s, 7, 50, op_of, &peak_column), 50);
    ck_assert(op_of[peak_column] == 7); /* whatever is fuller */
    free(live);
    pl_sweep_finish(&s);
}
END_TEST

int main(void) {
    Suite *s = suite_create("picture.timeline");
    TCase *tc = tcase_create("timeline");
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, every_phase_has_the_live_bytes_of_the_plan);
    tcase_add_test(tc, what_lives_as_long_as_the_run_stands_once);
    tcase_add_test(tc, operations_are_named_with_their_layers);
    tcase_add_test(tc, a_budget_that_is_not_known_is_null);
    tcase_add_test(tc, an_operation_that_stands_for_others_is_the_fullest);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
