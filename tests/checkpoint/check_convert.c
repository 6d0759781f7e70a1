/* check_convert.c - element conversions against arithmetic that knows no bits. */
#include "runtime/checkpoint/convert.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static float value(uint32_t u) {
    float v;
    memcpy(&v, &u, sizeof v);
    return v;
}

/* IEEE 754 binary16 by definition: (-1)^s 2^(e-25) (1024 + m), or 2^-24 m below the normals. */
static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double v = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return h & 0x8000 ? -v : v;
}

START_TEST(every_fp16_converts_exactly) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t stored = (uint16_t)h;
        float got;
        pl_convert_to_f32(&got, &stored, PL_DTYPE_F16, 1);
        if ((h >> 10 & 31) < 31) {
            ck_assert_msg((double)got == half_value(stored) && !signbit(got) == !(h >> 15), "%04x",
                          h);
        } else if (h & 1023) {
            ck_assert_msg(isnan(got) && (bits(got) >> 13 & 1023) == (h & 1023), "%04x", h);
        } else {
            ck_assert_msg(isinf(got) && !signbit(got) == !(h >> 15), "%04x", h);
        }
    }
}
END_TEST

START_TEST(every_bf16_survives_the_way_through_fp32) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t stored = (uint16_t)h, back;
        float wide;
        pl_convert_to_f32(&wide, &stored, PL_DTYPE_BF16, 1);
        ck_assert_uint_eq(bits(wide), h << 16);
        pl_convert_from_f32(&back, &wide, PL_DTYPE_BF16, 1);
        uint32_t quiet = isnan(wide) ? 64 : 0;
        ck_assert_uint_eq(back, h | quiet);
    }
}
END_TEST

static const struct {
    uint32_t from;
    uint16_t to;
} rounding[] = {
    {0x3f808000, 0x3f80}, /* half way, even stays */
    {0x3f818000, 0x3f82}, /* half way, odd rounds up */
    {0x3f808001, 0x3f81}, {0x3f807fff, 0x3f80},
    {0xbf818000, 0xbf82}, {0x7f7fffff, 0x7f80}, /* the largest float is beyond the largest bf16 */
    {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
    {0x7f800001, 0x7fc0}, /* a NaN whose payload is cut off must not become infinity */
    {0x00008000, 0x0000}, {0x00018000, 0x0002},
    {0x80000000, 0x8000},
};

START_TEST(fp32_rounds_to_nearest_even_bf16) {
    float v = value(rounding[_i].from);
    uint16_t got;
    pl_convert_from_f32(&got, &v, PL_DTYPE_BF16, 1);
    ck_assert_uint_eq(got, rounding[_i].to);
}
END_TEST

static uint16_t to_half(float v) {
    uint16_t h;
    pl_convert_from_f32(&h, &v, PL_DTYPE_F16, 1);
    return h;
}

START_TEST(every_fp16_survives_the_way_through_fp32) {
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t stored = (uint16_t)h;
        float wide;
        pl_convert_to_f32(&wide, &stored, PL_DTYPE_F16, 1);
        uint16_t back = to_half(wide);
        if (isnan(wide))
            ck_assert_uint_eq(back & 0x7e00u, 0x7e00u);
        else
            ck_assert_uint_eq(back, h);
    }
}
END_TEST

/* Subnormals and the step past the largest included: 65520 is half way to what would be 65536. */
START_TEST(fp32_rounds_to_nearest_even_fp16) {
    for (uint32_t h = 0; h < 0x7c00; h++) {
        uint16_t low = (uint16_t)h, high = (uint16_t)(h + 1), even = h & 1 ? high : low;
        double above = high == 0x7c00 ? 65536 : half_value(high);
        float middle = (float)((half_value(low) + above) / 2); /* exact: one bit more */
        ck_assert_uint_eq(to_half(middle), even);
        ck_assert_uint_eq(to_half(nextafterf(middle, 0)), low);
        ck_assert_uint_eq(to_half(nextafterf(middle, INFINITY)), high);
        ck_assert_uint_eq(to_half(-middle), even | 0x8000u);
    }
    ck_assert_uint_eq(to_half(1e30f), 0x7c00);
    ck_assert_uint_eq(to_half(-INFINITY), 0xfc00);
}
END_TEST

START_TEST(only_the_three_weight_types_are_read) {
    for (int t = 0; t <= PL_DTYPE_COUNT; t++)
        ck_assert_int_eq(pl_convert_reads((enum pl_dtype)t),
                         t == PL_DTYPE_F32 || t == PL_DTYPE_BF16 || t == PL_DTYPE_F16);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.convert");
    TCase *t = tcase_create("convert");
    tcase_add_test(t, every_fp16_converts_exactly);
    tcase_add_test(t, every_bf16_survives_the_way_through_fp32);
    tcase_add_loop_test(t, fp32_rounds_to_nearest_even_bf16, 0, sizeof rounding / sizeof *rounding);
    tcase_add_test(t, every_fp16_survives_the_way_through_fp32);
    tcase_add_test(t, fp32_rounds_to_nearest_even_fp16);
    tcase_add_test(t, only_the_three_weight_types_are_read);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
