/* check_rounding.c - stochastic rounding: bf16 weights without a master in ADAMW and SGD, and sums
 * of gradients in FOLD. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 200000 };

static struct pl_device *dev;
static uint16_t w[N];
static float g[N];
static double clip[2] = {0, 1};

static void setup(void) {
    struct pl_diag d = {0};
    if (pl_device_open(&pl_back_end_cpu, 2, PL_NO_BUDGET, &dev, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
}

static void teardown(void) {
    pl_device_close(&dev);
}

static struct pl_view vector(void *p, uint64_t n, enum pl_dtype t) {
    return (struct pl_view){.p = p, .rows = n, .cols = 1, .ld = 1, .dtype = t};
}

/* w = 1 - rate * gradient, rounded stochastically; w in [first, first+n). */
static void sgd(uint64_t first, uint64_t n, uint64_t seed, uint64_t step, uint32_t site,
                double rate) {
    const struct pl_attr attr = {.site = site};
    const struct pl_batch batch = {.seed = seed, .step = step, .learning_rate = rate};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    c.in[0] = c.out[0] = vector(w + first, n, PL_DTYPE_BF16);
    c.in[1] = vector(g + first, n, PL_DTYPE_F32);
    c.in[2] = vector(clip, 2, PL_DTYPE_F64);
    ck_assert_int_eq(dev->kernels[PL_OP_SGD](dev, &c), PL_ERR_OK);
}

static void all_ones(void) {
    for (int i = 0; i < N; i++) {
        w[i] = 0x3F80;
        g[i] = 1;
    }
}

/* Neighbours of 1 below and at are 1 - 2^-8 and 1: a step of 2^-8 / 4 goes down once in four. */
START_TEST(the_mean_of_rounded_weights_is_the_exact_one) {
    all_ones();
    sgd(0, N, 1, 1, 1, 0x1p-10);
    double down = 0;
    for (int i = 0; i < N; i++) {
        if (w[i] != 0x3F80 && w[i] != 0x3F7F) ck_abort_msg("w[%d] = %04x", i, w[i]);
        down += w[i] == 0x3F7F;
    }
    ck_assert_double_le(fabs(down / N - 0.25), 4 * sqrt(0.25 * 0.75 / N));
}
END_TEST

/* The values are 0.1 * 0.3 and 0.001 * 0.09, which lie between two numbers of bf16, with other bits
 * for each. */
START_TEST(the_mean_of_rounded_moments_is_the_exact_one) {
    static uint16_t m[N], v[N];
    const struct pl_attr attr = {.site = 7};
    const struct pl_batch batch = {
        .seed = 3, .step = 1, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .learning_rate = 1e-3};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    double sums[2] = {0, 0}, same = 0;
    memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    all_ones();
    for (int i = 0; i < N; i++)
        g[i] = 0.3f;
    c.in[PL_ADAMW_W] = c.out[PL_ADAMW_OUT_W] = vector(w, N, PL_DTYPE_BF16);
    c.in[PL_ADAMW_G] = vector(g, N, PL_DTYPE_F32);
    c.in[PL_ADAMW_M] = c.out[PL_ADAMW_OUT_M] = vector(m, N, PL_DTYPE_BF16);
    c.in[PL_ADAMW_V] = c.out[PL_ADAMW_OUT_V] = vector(v, N, PL_DTYPE_BF16);
    c.in[PL_ADAMW_CLIP] = vector(clip, 2, PL_DTYPE_F64);
    ck_assert_int_eq(dev->kernels[PL_OP_ADAMW](dev, &c), PL_ERR_OK);
    for (int i = 0; i < N; i++) {
        const uint32_t bits[2] = {(uint32_t)m[i] << 16, (uint32_t)v[i] << 16};
        float x[2];
        memcpy(x, bits, sizeof x);
        sums[0] += (double)x[0], sums[1] += (double)x[1];
        same += (m[i] == m[0]) == (v[i] == v[0]);
    }
    /* a unit of bf16 is 2^-7 of its power of two; the error of the mean is half of that over sqrt N
     */
    ck_assert_double_le(fabs(sums[0] / N - 0.03), 4 * 0x1p-13 / 2 / sqrt(N) + 1e-9);
    ck_assert_double_le(fabs(sums[1] / N - 9e-5), 4 * 0x1p-21 / 2 / sqrt(N) + 1e-11);
    ck_assert_double_le(same / N, 0.9);
}
END_TEST

START_TEST(seed_step_and_site_choose_other_bits) {
    static const uint64_t keys[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    static uint16_t kept[4][N];
    for (int k = 0; k < 4; k++) {
        all_ones();
        sgd(0, N, keys[k][0], keys[k][1], (uint32_t)keys[k][2], 0x1p-9);
        memcpy(kept[k], w, sizeof w);
        for (int j = 0; j < k; j++) {
            int same = 0;
            for (int i = 0; i < N; i++)
                same += kept[j][i] == kept[k][i];
            ck_assert_double_le(fabs((double)same / N - 0.5), 4 * 0.5 / sqrt(N));
        }
    }
}
END_TEST

START_TEST(infinity_and_nan_survive_rounding) {
    all_ones();
    g[3] = INFINITY;
    g[N - 1] = NAN;
    sgd(0, N, 1, 1, 1, 1e-3);
    ck_assert_uint_eq(w[3], 0xFF80);
    ck_assert_msg((w[N - 1] & 0x7FFF) > 0x7F80, "%04x is no NaN", w[N - 1]);
}
END_TEST

START_TEST(an_exact_weight_is_kept_exactly) {
    all_ones();
    memset(g, 0, sizeof g);
    sgd(0, N, 1, 1, 1, 1e-3);
    for (int i = 0; i < N; i++)
        if (w[i] != 0x3F80) ck_abort_msg("w[%d] = %04x", i, w[i]);
}
END_TEST

START_TEST(the_bits_do_not_depend_on_threads) {
    static uint16_t two[N];
    all_ones();
    sgd(0, N, 1, 1, 1, 0x1p-9);
    memcpy(two, w, sizeof w);
    pl_device_close(&dev);
    ck_assert_int_eq(pl_device_open(&pl_back_end_cpu, 3, PL_NO_BUDGET, &dev, NULL), PL_ERR_OK);
    all_ones();
    sgd(0, N, 1, 1, 1, 0x1p-9);
    ck_assert_mem_eq(w, two, sizeof w);
}
END_TEST

/* --- sums of gradients ----------------------------------------------------------------------- */

enum { TINY = 256 }; /* micro-batches after the first */

/* sum[0,n), which is elements [first, first + n) of tensor 5, gets `parts` micro-batches of one
 * rank each, or is overwritten by the first of them. */
static void fold(uint16_t *sum, float *x, uint64_t first, uint64_t n, uint32_t parts,
                 uint32_t micro_batch, bool is_first) {
    const struct pl_attr attr = {
        .site = 5, .first_element = first, .accumulate = PL_ACC_FIRST_WRITES};
    const struct pl_batch batch = {
        .seed = 1, .step = 2, .first = is_first, .contributors = parts, .micro_batch = micro_batch};
    struct pl_call c = {.attr = &attr, .batch = &batch};
    c.in[PL_FOLD_PARTS] = vector(x, n * parts, PL_DTYPE_F32);
    c.in[PL_FOLD_G] = c.out[PL_FOLD_OUT_G] = vector(sum, n, PL_DTYPE_BF16);
    ck_assert_int_eq(dev->kernels[PL_OP_FOLD](dev, &c), PL_ERR_OK);
}

static void fill(float value) {
    for (int i = 0; i < N; i++)
        g[i] = value;
}

static double value_of(uint16_t stored) {
    const uint32_t bits = (uint32_t)stored << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Half a unit of 1 is 2^-8: to nearest, 2^-12 would leave no trace. Each of them goes up by 2^-7
 * with probability 2^-5, and 256 of them are 2^-4. */
START_TEST(contributions_below_half_a_unit_add_up) {
    const double p = 0x1p-5;
    double mean = 0;
    fill(1);
    fold(w, g, 0, N, 1, 0, true);
    fill(0x1p-12f);
    for (uint32_t m = 1; m <= TINY; m++)
        fold(w, g, 0, N, 1, m, false);
    for (int i = 0; i < N; i++)
        mean += value_of(w[i]) / N;
    ck_assert_msg(fabs(mean - (1 + 0x1p-4)) <= 4 * 0x1p-7 * sqrt(TINY * p * (1 - p) / N),
                  "1 and %d times 2^-12 are %.6f", TINY, mean);
}
END_TEST

START_TEST(sums_that_bf16_holds_are_exact) {
    fill(1.5f);
    fold(w, g, 0, N, 1, 0, true);
    fill(-0.25f);
    for (uint32_t m = 1; m <= 4; m++)
        fold(w, g, 0, N, 1, m, false);
    for (int i = 0; i < N; i++)
        if (value_of(w[i]) != 0.5) ck_abort_msg("sum %d is %g", i, value_of(w[i]));
}
END_TEST

/* N / 4 elements of four micro-batches: by one call, by one a micro-batch, and in two windows. */
START_TEST(sums_do_not_depend_on_ranks_or_windows) {
    enum { QUARTER = N / 4, CUT = 1003 };
    static uint16_t apart[QUARTER];
    for (int i = 0; i < N; i++)
        g[i] = 1 + (float)i * 0x1p-16f;
    fold(w, g, 0, QUARTER, 4, 8, true);
    for (uint32_t m = 0; m < 4; m++) {
        fold(apart, g + m * QUARTER, 0, CUT, 1, 8 + m, m == 0);
        fold(apart + CUT, g + m * QUARTER + CUT, CUT, QUARTER - CUT, 1, 8 + m, m == 0);
    }
    ck_assert_mem_eq(w, apart, sizeof apart);
}
END_TEST

START_TEST(each_micro_batch_is_rounded_by_numbers_of_its_own) {
    static uint16_t other[N];
    int same = 0;
    fill(1 + 0x1p-8f);
    fold(w, g, 0, N, 1, 0, true);
    fold(other, g, 0, N, 1, 1, true);
    for (int i = 0; i < N; i++)
        same += w[i] == other[i];
    ck_assert_double_le(fabs((double)same / N - 0.5), 4 * 0.5 / sqrt(N));
}
END_TEST

static TCase *case_of_sums(void) {
    TCase *tc = tcase_create("sums");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, contributions_below_half_a_unit_add_up);
    tcase_add_test(tc, sums_that_bf16_holds_are_exact);
    tcase_add_test(tc, sums_do_not_depend_on_ranks_or_windows);
    tcase_add_test(tc, each_micro_batch_is_rounded_by_numbers_of_its_own);
    return tc;
}

int main(void) {
    Suite *s = suite_create("rounding");
    TCase *tc = tcase_create("stochastic");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, the_mean_of_rounded_weights_is_the_exact_one);
    tcase_add_test(tc, the_mean_of_rounded_moments_is_the_exact_one);
    tcase_add_test(tc, seed_step_and_site_choose_other_bits);
    tcase_add_test(tc, infinity_and_nan_survive_rounding);
    tcase_add_test(tc, an_exact_weight_is_kept_exactly);
    tcase_add_test(tc, the_bits_do_not_depend_on_threads);
    suite_add_tcase(s, tc);
    suite_add_tcase(s, case_of_sums());
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
