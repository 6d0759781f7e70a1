/* check_secant.c - the search ends at the last number that fits, whatever the bytes are, and soon
 * where they follow lines. */
#include "estimator/search/secant.h"

#include <check.h>
#include <stdlib.h>

static uint64_t straight(uint32_t n) {
    return 1000000 + UINT64_C(7919) * n;
}

/* Another phase is the largest from some number on. */
static uint64_t bent(uint32_t n) {
    const uint64_t a = 5000000 + UINT64_C(100) * n, b = 1000000 + UINT64_C(90000) * n;
    return a > b ? a : b;
}

static uint64_t steps(uint32_t n) {
    return 4096 + n / 100 * UINT64_C(100000);
}

static uint64_t curved(uint32_t n) {
    return 10 + (uint64_t)n * n;
}

static uint64_t flat(uint32_t n) {
    return n < 40000 ? 10 : UINT64_C(1) << 40;
}

static const struct {
    uint64_t (*bytes)(uint32_t n);
    double slope_off; /* the first guess of the slope, of the true one; 0: none */
    uint32_t most;    /* tries */
} shapes[] = {
    {straight, 1, 4}, {straight, 1.3, 5}, {straight, 0.5, 5}, {straight, 0, 8}, {bent, 1, 9},
    {steps, 1, 44},   {curved, 1, 44},    {curved, 0, 44},    {flat, 0, 44},    {flat, 1, 44},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static uint32_t largest(uint64_t (*bytes)(uint32_t n), uint32_t limit, uint64_t usable) {
    uint32_t n = 0;
    while (n < limit && bytes(n + 1) <= usable)
        n++;
    return n;
}

/* S1, and S2 where the bytes follow no line: a bisection takes 17 tries. */
START_TEST(it_ends_at_the_last_that_fits) {
    enum { LIMIT = 65536 };
    const double off = shapes[_i].slope_off;
    uint64_t (*const bytes)(uint32_t n) = shapes[_i].bytes;
    static const uint32_t answers[] = {0, 1, 2, 3, 17, 100, 4095, 39999, 65535, 65536};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const uint64_t usable = answers[i] ? bytes(answers[i]) : bytes(1) - 1;
        const uint32_t last = largest(bytes, LIMIT, usable);
        struct pl_secant s = pl_secant_between(0, LIMIT + 1, usable);
        while (!pl_secant_done(&s)) {
            const uint32_t n = pl_secant_next(&s);
            ck_assert(n > s.low.n && n < s.high.n);
            const double slope = off * (double)(bytes(n + 1) - bytes(n));
            pl_secant_tell(&s, n, bytes(n), bytes(n) <= usable, slope);
        }
        ck_assert_uint_eq(s.low.n, last);
        ck_assert_uint_eq(s.high.n, last + 1);
        ck_assert_uint_eq(s.low.bytes, last ? bytes(last) : 0);
        ck_assert_uint_eq(s.high.bytes, last < LIMIT ? bytes(last + 1) : 0);
        ck_assert_msg(s.tries <= shapes[_i].most, "%u tries for %u", s.tries, last);
    }
}
END_TEST

/* A batch that is refused whatever its bytes are says nothing about a line. */
START_TEST(what_does_not_fit_for_other_reasons_is_found_as_well) {
    for (uint32_t last = 0; last < 3000; last += 77) {
        struct pl_secant s = pl_secant_between(0, 65537, UINT64_MAX / 2);
        while (!pl_secant_done(&s)) {
            const uint32_t n = pl_secant_next(&s);
            pl_secant_tell(&s, n, straight(n), n <= last, 7919);
        }
        ck_assert_uint_eq(s.low.n, last);
        ck_assert_uint_le(s.tries, 40);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("search.secant");
    TCase *tc = tcase_create("secant");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, it_ends_at_the_last_that_fits, 0, N_SHAPES);
    tcase_add_test(tc, what_does_not_fit_for_other_reasons_is_found_as_well);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
