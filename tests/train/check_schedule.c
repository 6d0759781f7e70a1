/* check_schedule.c - learning rates by the formulas of transformers, and what holds of all. */
#include "runtime/train/schedule.h"
#include "estimator/config/job.h"

#include <check.h>
#include <math.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
#define PI       3.14159265358979323846

/* The formulas of get_*_schedule_with_warmup of transformers, with a peak of 1: the factor of
 * LambdaLR at step - 1. */
static const struct {
    uint32_t kind;
    uint64_t warmup, total, step;
    double min_ratio, rate;
} known[] = {
    {PL_SCHEDULE_CONSTANT, 0, 10, 1, 0, 1},
    {PL_SCHEDULE_CONSTANT, 0, 10, 10, 0, 1},
    {PL_SCHEDULE_CONSTANT, 4, 10, 1, 0, 1}, /* constant has no warm-up */
    {PL_SCHEDULE_CONSTANT_WITH_WARMUP, 4, 10, 1, 0, 0},
    {PL_SCHEDULE_CONSTANT_WITH_WARMUP, 4, 10, 2, 0, 0.25},
    {PL_SCHEDULE_CONSTANT_WITH_WARMUP, 4, 10, 4, 0, 0.75},
    {PL_SCHEDULE_CONSTANT_WITH_WARMUP, 4, 10, 5, 0, 1},
    {PL_SCHEDULE_CONSTANT_WITH_WARMUP, 4, 10, 10, 0, 1},
    {PL_SCHEDULE_LINEAR, 0, 10, 1, 0, 1},
    {PL_SCHEDULE_LINEAR, 0, 10, 2, 0, 0.9},
    {PL_SCHEDULE_LINEAR, 0, 10, 10, 0, 0.1},
    {PL_SCHEDULE_LINEAR, 2, 10, 2, 0, 0.5},
    {PL_SCHEDULE_LINEAR, 2, 10, 3, 0, 1},
    {PL_SCHEDULE_LINEAR, 2, 10, 7, 0, 0.5},
    {PL_SCHEDULE_COSINE, 0, 10, 1, 0, 1},
    {PL_SCHEDULE_COSINE, 0, 10, 6, 0, 0.5},
    {PL_SCHEDULE_COSINE, 0, 8, 3, 0, 0.85355339059327373},
    {PL_SCHEDULE_COSINE, 4, 12, 9, 0, 0.5},
    {PL_SCHEDULE_COSINE_WITH_MIN_LR, 0, 10, 1, 0.2, 1},
    {PL_SCHEDULE_COSINE_WITH_MIN_LR, 0, 10, 6, 0.2, 0.6},
    {PL_SCHEDULE_COSINE_WITH_MIN_LR, 0, 10, 11, 0.2, 0.2},
    {PL_SCHEDULE_COSINE_WITH_MIN_LR, 4, 12, 2, 0.5, 0.25}, /* the floor is not for the warm-up */
    {PL_SCHEDULE_COSINE_WITH_MIN_LR, 4, 12, 9, 0.5, 0.75},
};

START_TEST(a_rate_is_that_of_transformers) {
    const struct pl_schedule s = {known[_i].kind, 1, known[_i].min_ratio, known[_i].warmup,
                                  known[_i].total};
    ck_assert_double_eq_tol(pl_schedule_rate(&s, known[_i].step), known[_i].rate, 1e-15);
    const struct pl_schedule scaled = {s.kind, 3e-4, s.min_ratio, s.warmup, s.total};
    ck_assert_double_eq_tol(pl_schedule_rate(&scaled, known[_i].step), 3e-4 * known[_i].rate,
                            1e-18);
}
END_TEST

static const uint32_t kinds[] = {PL_SCHEDULE_CONSTANT, PL_SCHEDULE_CONSTANT_WITH_WARMUP,
                                 PL_SCHEDULE_LINEAR, PL_SCHEDULE_COSINE,
                                 PL_SCHEDULE_COSINE_WITH_MIN_LR};

/* Up during the warm-up, down after it, never outside of [floor, peak], and finite beyond the end:
 * a resumed run may be longer than the one that was planned. */
START_TEST(a_rate_rises_then_falls_and_stays_within_its_limits) {
    const uint32_t kind = kinds[_i];
    static const uint64_t totals[] = {1, 2, 3, 10, 97};
    for (int t = 0; t < COUNT(totals); t++) {
        for (uint64_t warmup = 0; warmup <= totals[t] + 2; warmup++) {
            const struct pl_schedule s = {kind, 0.01, 0.1, warmup, totals[t]};
            const bool warms = kind != PL_SCHEDULE_CONSTANT;
            const double floor = kind == PL_SCHEDULE_COSINE_WITH_MIN_LR ? 0.001 : 0;
            double last = pl_schedule_rate(&s, 1);
            for (uint64_t step = 2; step <= totals[t] + 5; step++) {
                const double rate = pl_schedule_rate(&s, step);
                ck_assert(isfinite(rate) && rate <= 0.01 * (1 + 1e-12));
                if (warms && step <= warmup + 1)
                    ck_assert_double_gt(rate, last);
                else
                    ck_assert_double_le(rate, last);
                if (step > warmup) ck_assert_double_ge(rate, floor * (1 - 1e-12));
                last = rate;
            }
        }
    }
}
END_TEST

START_TEST(the_warmup_ends_at_the_peak) {
    for (int k = 1; k < COUNT(kinds); k++) {
        for (uint64_t warmup = 0; warmup < 9; warmup++) {
            const struct pl_schedule s = {kinds[k], 0.02, 0.3, warmup, 20};
            ck_assert_double_eq(pl_schedule_rate(&s, warmup + 1), 0.02);
            if (warmup) ck_assert_double_eq(pl_schedule_rate(&s, 1), 0);
        }
    }
}
END_TEST

/* Two ways to ask the same: the floor mixes the plain cosine with the constant. */
START_TEST(a_floor_mixes_cosine_and_constant) {
    for (int i = 0; i <= 10; i++) {
        const double ratio = i / 10.0;
        const struct pl_schedule with = {PL_SCHEDULE_COSINE_WITH_MIN_LR, 1, ratio, 3, 40};
        const struct pl_schedule plain = {PL_SCHEDULE_COSINE, 1, 0, 3, 40};
        for (uint64_t step = 4; step <= 45; step++)
            ck_assert_double_eq_tol(pl_schedule_rate(&with, step),
                                    ratio + (1 - ratio) * pl_schedule_rate(&plain, step), 1e-15);
    }
}
END_TEST

/* Steps of a long run: nothing is lost in 32 bits or in the difference of large numbers. */
START_TEST(long_runs_keep_their_precision) {
    const uint64_t total = UINT64_C(10000000000);
    const struct pl_schedule linear = {PL_SCHEDULE_LINEAR, 1, 0, 0, total};
    const struct pl_schedule cosine = {PL_SCHEDULE_COSINE, 1, 0, 0, total};
    ck_assert_double_eq_tol(pl_schedule_rate(&linear, total / 4 + 1), 0.75, 1e-15);
    ck_assert_double_eq_tol(pl_schedule_rate(&linear, total), 1e-10, 1e-16);
    ck_assert_double_eq_tol(pl_schedule_rate(&cosine, total / 3 + 1),
                            0.5 * (1 + cos(PI * (double)(total / 3) / 1e10)), 1e-15);
}
END_TEST

int main(void) {
    Suite *s = suite_create("train.schedule");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, a_rate_is_that_of_transformers, 0, COUNT(known));
    tcase_add_loop_test(t, a_rate_rises_then_falls_and_stays_within_its_limits, 0, COUNT(kinds));
    tcase_add_test(t, the_warmup_ends_at_the_peak);
    tcase_add_test(t, a_floor_mixes_cosine_and_constant);
    tcase_add_test(t, long_runs_keep_their_precision);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
