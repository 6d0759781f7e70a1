/* check_half.c - binary16 against the definition of its values, all 65,536 of them. */
#include "estimator/ops/half.h"

#include <check.h>
#include <math.h>
#include <stdbool.h>

enum { INFINITE = 0x7c00, QUIET = 0x0200, SIGN = 0x8000 };

/* Returns the value of a number that is finite and not negative. */
static float value_of(uint16_t h) {
    const int exponent = h >> 10, fraction = h & 1023;
    return exponent ? ldexpf((float)(1024 + fraction), exponent - 25)
                    : ldexpf((float)fraction, -24);
}

/* H1 */
START_TEST(every_number_widens_to_its_value) {
    for (uint32_t h = 0; h < INFINITE; h++) {
        ck_assert_float_eq(pl_half_widen((uint16_t)h), value_of((uint16_t)h));
        ck_assert_float_eq(pl_half_widen((uint16_t)(h | SIGN)), -value_of((uint16_t)h));
        ck_assert(signbit(pl_half_widen((uint16_t)(h | SIGN))));
    }
    ck_assert_float_eq(pl_half_widen(INFINITE), INFINITY);
    ck_assert_float_eq(pl_half_widen(INFINITE | SIGN), -INFINITY);
}
END_TEST

/* H1, H2: only the bit that makes a NaN quiet may differ. */
START_TEST(every_number_comes_back) {
    for (uint32_t h = 0; h < 2 * SIGN; h++) {
        const bool nan = (h & ~(uint32_t)SIGN) > INFINITE;
        const float wide = pl_half_widen((uint16_t)h);
        ck_assert_int_eq(isnan(wide) != 0, nan);
        ck_assert_uint_eq(pl_half_narrow(wide), nan ? h | QUIET : h);
    }
}
END_TEST

/* H2 */
START_TEST(what_lies_between_two_numbers_goes_to_the_nearer_and_a_half_to_the_even) {
    for (uint32_t h = 0; h < INFINITE; h++) {
        const float next = h + 1 < INFINITE ? value_of((uint16_t)(h + 1)) : 65536;
        const float half = (value_of((uint16_t)h) + next) / 2;
        ck_assert_uint_eq(pl_half_narrow(half), h + (h & 1));
        ck_assert_uint_eq(pl_half_narrow(nextafterf(half, 0)), h);
        ck_assert_uint_eq(pl_half_narrow(nextafterf(half, INFINITY)), h + 1);
        ck_assert_uint_eq(pl_half_narrow(-half), (h + (h & 1)) | SIGN);
    }
    ck_assert_uint_eq(pl_half_narrow(HUGE_VALF), INFINITE);
    ck_assert_uint_eq(pl_half_narrow(1e38f), INFINITE);
}
END_TEST

int main(void) {
    Suite *s = suite_create("ops.half");
    TCase *t = tcase_create("all");
    tcase_add_test(t, every_number_widens_to_its_value);
    tcase_add_test(t, every_number_comes_back);
    tcase_add_test(t, what_lies_between_two_numbers_goes_to_the_nearer_and_a_half_to_the_even);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
