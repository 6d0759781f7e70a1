/* check_step_time.c - what copies to and from host memory add to a step on a GPU, by its plan. */
#include "estimator/plan/step_time.h"
#include "tests/plan/planning.h"

#include <check.h>

static void plan(uint32_t offload, const struct pl_traits *traits, struct pl_planned *out) {
    struct pl_model m;
    struct pl_diag d = {0};
    pl_test_model("Qwen2.5-7B", &m);
    struct pl_job_shape s = pl_test_shape(&m, PL_MODE_FULL, PL_RECOMPUTE_FULL, 4, 2048);
    s.offload = offload;
    s.update_on_host = offload == PL_OFFLOAD_WEIGHTS;
    ck_assert_msg(pl_planned_init_shape(out, &s, &m, traits, &d) == PL_ERR_OK, "%s", d.message);
}

static struct pl_step_time time_of(uint32_t offload, const struct pl_traits *traits) {
    const struct pl_speed speed = pl_speed_nominal(traits);
    struct pl_planned held = {0};
    struct pl_step_time t;
    plan(offload, traits, &held);
    ck_assert_int_eq(pl_plan_step_time(held.plan, &speed, NULL, 1, &t, NULL), PL_ERR_OK);
    pl_planned_finish(&held);
    return t;
}

/* ST2: Weights of a 7B model come twice a step, in 16 bits. */
START_TEST(copies_of_a_gpu_run_while_it_computes) {
    static const uint32_t sms[] = {89, 120};
    const struct pl_traits traits = pl_traits_cuda(sms[_i]);
    const struct pl_step_time t = time_of(PL_OFFLOAD_WEIGHTS, &traits);
    const double hidden = pl_step_in_order(&t) - t.overlapped_seconds;
    ck_assert(t.copy_seconds > 2 * 13e9 / pl_speed_nominal(&traits).link_bytes_per_second);
    ck_assert(hidden <= t.copy_seconds);
    ck_assert_msg(hidden >= 0.85 * t.copy_seconds, "%.2f of %.2f s are hidden", hidden,
                  t.copy_seconds);
}
END_TEST

/* ST2 */
START_TEST(without_a_stream_of_their_own_they_are_ops_like_any_other) {
    const struct pl_traits cpu = pl_traits_cpu(2), gpu = pl_traits_cuda(90);
    const struct pl_step_time on_cpu = time_of(PL_OFFLOAD_WEIGHTS, &cpu);
    const struct pl_step_time without = time_of(PL_OFFLOAD_NONE, &gpu);
    ck_assert_double_eq(on_cpu.copy_seconds, 0);
    ck_assert_double_eq(on_cpu.overlapped_seconds, pl_step_in_order(&on_cpu));
    ck_assert_double_eq(without.copy_seconds, 0);
    ck_assert_double_eq(without.overlapped_seconds, pl_step_in_order(&without));
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.step_time");
    TCase *tc = tcase_create("copies");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, copies_of_a_gpu_run_while_it_computes, 0, 2);
    tcase_add_test(tc, without_a_stream_of_their_own_they_are_ops_like_any_other);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
