/* check_simd.c - storage types, sums, exp and random bits of one level; compiled once per level
 * with the flags of the kernels, so that what is tested is what runs. */
#include "runtime/kernels/cpu/exponentials.h"
#include "runtime/kernels/cpu/update.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096 };

/* Loops over arrays, as kernels have them: the vector code is what is under test. */
static void narrow_and_widen(float *x, uint64_t n) {
    uint16_t h[N];
    pl_narrow(h, PL_DTYPE_BF16, x, n);
    pl_widen(x, h, PL_DTYPE_BF16, n);
}

static const struct {
    uint32_t bits, want;
} roundings[] = {
    {0x3F800000, 0x3F800000}, /* 1 */
    {0x3F808000, 0x3F800000}, /* tie, down to even */
    {0x3F818000, 0x3F820000}, /* tie, up to even */
    {0x3F808001, 0x3F810000}, /* above a tie */
    {0x3F807FFF, 0x3F800000}, /* below a tie */
    {0xBF818000, 0xBF820000}, /* sign plays no role */
    {0x7F7FFFFF, 0x7F800000}, /* largest fp32 becomes infinity */
    {0x7F800000, 0x7F800000}, /* infinity stays */
    {0x00000001, 0x00000000}, /* smallest denormal */
    {0x00018000, 0x00020000}, /* denormals round too */
    {0x7F800001, 0x7FC00000}, /* NaN with low bits only stays NaN */
    {0xFFFFFFFF, 0xFFFF0000},
};

START_TEST(bf16_rounds_to_nearest_even_and_keeps_nan) {
    for (int at = 0; at < 40; at++) { /* every lane of a vector, and the tail */
        float x[40] = {0};
        x[at] = pl_f32_from_bits(roundings[_i].bits);
        narrow_and_widen(x, 40);
        ck_assert_uint_eq(pl_f32_bits(x[at]), roundings[_i].want);
    }
}
END_TEST

/* Not inlined: the number of elements is unknown where the loops are compiled, as in kernels. */
__attribute__((noinline)) static void widen_halves(float *dst, const uint16_t *src, uint64_t n) {
    const volatile uint64_t unknown = n;
    pl_widen(dst, src, PL_DTYPE_F16, unknown);
}
__attribute__((noinline)) static void narrow_to_halves(uint16_t *dst, const float *src,
                                                       uint64_t n) {
    const volatile uint64_t unknown = n;
    pl_narrow(dst, PL_DTYPE_F16, src, unknown);
}

/* F16: what every half is, by ldexp; and what comes back. */
START_TEST(every_half_is_widened_exactly_and_narrows_to_itself) {
    static uint16_t h[65536], back[65536];
    static float x[65536];
    for (uint32_t i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    widen_halves(x, h, 65536);
    narrow_to_halves(back, x, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        const int exponent = i >> 10 & 31, digits = i & 1023;
        const double size = exponent ? ldexp(1024 + digits, exponent - 25) : ldexp(digits, -24);
        float one;
        widen_halves(&one, &h[i], 1); /* without a vector */
        if (exponent == 31 && digits) {
            ck_assert(isnan(x[i]) && isnan(one));
            ck_assert_uint_eq(back[i] & 0x7E00, 0x7E00);
            continue;
        }
        const double want = exponent == 31 ? (double)INFINITY : size;
        if ((double)x[i] != (i & 0x8000 ? -want : want) || pl_f32_bits(x[i]) != pl_f32_bits(one) ||
            back[i] != i)
            ck_abort_msg("half %04x became %a, %a and %04x", i, x[i], one, back[i]);
    }
}
END_TEST

/* Between two neighbours: below the middle, the middle, which goes to the even one, and above it;
 * beyond the largest is infinity. In vectors and one by one. */
START_TEST(narrowing_to_fp16_rounds_to_nearest_even) {
    enum { ALL = 0x7C00 };
    static float x[3 * ALL];
    static uint16_t h[3 * ALL];
    for (uint32_t i = 0; i < ALL; i++) {
        const uint16_t low = (uint16_t)i;
        float a;
        widen_halves(&a, &low, 1);
        const double place = i < 0x400 ? 0x1p-24 : ldexp(1, (int)(i >> 10) - 25);
        const float middle = (float)((double)a + place / 2);
        x[3 * i] = nextafterf(middle, 0);
        x[3 * i + 1] = middle;
        x[3 * i + 2] = nextafterf(middle, INFINITY);
    }
    narrow_to_halves(h, x, 3 * ALL);
    for (uint32_t i = 0; i < 3 * ALL; i++) {
        const uint32_t low = i / 3, want = i % 3 == 0 ? low : i % 3 == 2 ? low + 1 : low + low % 2;
        uint16_t one;
        narrow_to_halves(&one, &x[i], 1);
        if (h[i] != want || one != want)
            ck_abort_msg("%a became %04x and %04x, not %04x", x[i], h[i], one, want);
    }
}
END_TEST

START_TEST(exp_errs_by_less_than_1e_7) {
    static float x[N], y[N];
    double worst = 0;
    for (double first = -87.3; first < 88.3; first += 0.5) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(first + i * (0.5 / N));
        for (int i = 0; i < N; i++)
            y[i] = pl_expf(x[i]);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, fabs(y[i] / exp((double)x[i]) - 1));
    }
    ck_assert_double_lt(worst, 1e-7);
}
END_TEST

/* X1 of exponentials.h: numbers of every sign and exponent, infinities and NaN, in counts that
 * leave a rest. */
START_TEST(exp_of_many_is_that_of_each) {
    static float x[N], y[N];
    for (uint32_t i = 0; i < N; i++)
        x[i] = y[i] = pl_f32_from_bits(i * 0x000FFFFFu);
    x[N - 1] = y[N - 1] = NAN;
    for (int i = 0, n; i < N; i += n) {
        n = i % 37 + 1 < N - i ? i % 37 + 1 : N - i;
        pl_exp_all(y + i, (uint64_t)n);
    }
    for (int i = 0; i < N; i++) {
        const float want = pl_expf(x[i]);
        if (isnan(want))
            ck_assert_float_nan(y[i]);
        else
            ck_assert_uint_eq(pl_f32_bits(y[i]), pl_f32_bits(want));
    }
}
END_TEST

START_TEST(exp_has_the_limits_of_exp) {
    static const float in[] = {-INFINITY, -1000, -88, 0, 89, 1000, INFINITY};
    static const float want[] = {0, 0, 0, 1, INFINITY, INFINITY, INFINITY};
    float x[32], y[32];
    for (int i = 0; i < 32; i++)
        x[i] = i % 8 < 7 ? in[i % 8] : NAN;
    for (int i = 0; i < 32; i++)
        y[i] = pl_expf(x[i]);
    pl_exp_all(x, 32);
    for (int i = 0; i < 32; i++)
        if (i % 8 < 7) {
            ck_assert_float_eq(y[i], want[i % 8]);
            ck_assert_float_eq(x[i], want[i % 8]);
        } else {
            ck_assert_float_nan(y[i]);
            ck_assert_float_nan(x[i]);
        }
}
END_TEST

START_TEST(a_long_sum_of_ones_is_exact) {
    enum { LONG = (1 << 24) + 3 }; /* fp32 alone would stop at 2^24 */
    float *x = malloc(sizeof *x * LONG);
    ck_assert_ptr_nonnull(x);
    for (int i = 0; i < LONG; i++)
        x[i] = 1;
    double sum = pl_sum(x, LONG), dot = pl_dot(x, x, LONG);
    free(x);
    ck_assert_double_eq(sum, LONG);
    ck_assert_double_eq(dot, LONG);
}
END_TEST

/* S3 of simd.h. */
START_TEST(sums_let_nan_and_infinity_through) {
    float x[100] = {0};
    x[67] = INFINITY;
    ck_assert_double_eq(pl_sum(x, 100), INFINITY);
    x[3] = -INFINITY;
    ck_assert_double_nan(pl_sum(x, 100));
}
END_TEST

/* Element e of a stream: a half of a number of a block that eight elements share. */
static uint16_t half_of(const struct pl_rng *rng, uint64_t e) {
    uint32_t x[4];
    pl_rng_block(rng, e / 8, x);
    return (uint16_t)(x[e % 8 / 2] >> (e % 2 * 16));
}

/* The second but last crosses into the upper word of the counter, the last ends it. */
static const uint64_t starts[] = {
    0, 1, 7, 8, 9, 63, 65, 1023, 1025, 100003, (UINT64_C(8) << 32) - 500, UINT64_MAX - 1023};
static const uint64_t lengths[] = {1,  2,  7,  8,  9,   15,   16,   17,
                                   31, 63, 64, 65, 255, 1000, 1023, 1024};

/* V1 of random.h. */
START_TEST(random_halves_are_those_of_single_blocks) {
    const struct pl_rng rng = pl_rng_init(UINT64_C(0xFEDCBA9876543210), 77, 3 + (uint64_t)_i);
    uint16_t drawn[PL_DRAWN_ELEMENTS];
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const uint16_t *half = pl_random_halves(&rng, starts[_i], lengths[l], drawn);
        for (uint64_t i = 0; i < lengths[l]; i++)
            if (half[i] != half_of(&rng, starts[_i] + i))
                ck_abort_msg("element %llu of %llu", (unsigned long long)i,
                             (unsigned long long)lengths[l]);
    }
}
END_TEST

static const uint16_t additions[] = {0, 1, 0x7FFF, 0x8000, 0xFFFF};

/* A number is cut after the addition; infinity and NaN are what they are without one. */
START_TEST(stochastic_rounding_adds_to_finite_numbers_only) {
    const uint32_t bits = roundings[_i].bits;
    for (size_t a = 0; a < sizeof additions / sizeof *additions; a++) {
        float x[40];
        uint16_t rounded[40];
        for (int j = 0; j < 40; j++)
            x[j] = pl_f32_from_bits(bits);
        for (int j = 0; j < 40; j++)
            rounded[j] = pl_round_stochastically(x[j], additions[a]);
        const uint32_t want =
            (bits & 0x7F800000) == 0x7F800000 ? roundings[_i].want : bits + additions[a];
        for (int j = 0; j < 40; j++)
            ck_assert_uint_eq(rounded[j], want >> 16);
    }
}
END_TEST

int main(void) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    bool can_run = false;
    for (uint32_t i = 0; i < n; i++)
        can_run |= strcmp(levels[i].name, LEVEL_NAME) == 0;
    if (!can_run) {
        puts("skipped: needs a processor of the level " LEVEL_NAME);
        return 77;
    }
    Suite *s = suite_create("simd " LEVEL_NAME);
    TCase *tc = tcase_create("helpers");
    tcase_add_loop_test(tc, bf16_rounds_to_nearest_even_and_keeps_nan, 0,
                        sizeof roundings / sizeof *roundings);
    tcase_add_test(tc, every_half_is_widened_exactly_and_narrows_to_itself);
    tcase_add_test(tc, narrowing_to_fp16_rounds_to_nearest_even);
    tcase_add_test(tc, exp_errs_by_less_than_1e_7);
    tcase_add_test(tc, exp_of_many_is_that_of_each);
    tcase_add_test(tc, exp_has_the_limits_of_exp);
    tcase_add_test(tc, a_long_sum_of_ones_is_exact);
    tcase_add_test(tc, sums_let_nan_and_infinity_through);
    tcase_add_loop_test(tc, random_halves_are_those_of_single_blocks, 0,
                        sizeof starts / sizeof *starts);
    tcase_add_loop_test(tc, stochastic_rounding_adds_to_finite_numbers_only, 0,
                        sizeof roundings / sizeof *roundings);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
