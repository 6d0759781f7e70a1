/* check_units.c - sizes as people write and read them, and arithmetic that does not wrap around. */
#include "estimator/base/checked.h"
#include "estimator/base/units.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))

static const struct {
    const char *text;
    uint64_t bytes;
} sizes[] = {
    {"0", 0},
    {"4096", 4096},
    {"4096B", 4096},
    {"1 B", 1},
    {"1KB", 1000},
    {"1KiB", 1024},
    {"1.5 GB", 1500000000},
    {"22GiB", UINT64_C(22) << 30},
    {"22   GiB", UINT64_C(22) << 30},
    {"0.5MiB", 524288},
    {".5MiB", 524288},
    {"3MB", 3000000},
    {"2TB", UINT64_C(2000000000000)},
    {"1TiB", UINT64_C(1) << 40},
    {"16777215TiB", UINT64_C(16777215) << 40},
    {"18446744073709549568", UINT64_C(18446744073709549568)}, /* the last double below 2^64 */
    {"1e3", 1000},
    {"1.9B", 1},
};

START_TEST(a_size_is_read_in_its_unit) {
    uint64_t bytes = 99;
    ck_assert_msg(pl_bytes_parse(sizes[_i].text, &bytes), "%s", sizes[_i].text);
    ck_assert_msg(bytes == sizes[_i].bytes, "%s: %llu", sizes[_i].text, (unsigned long long)bytes);
}
END_TEST

static const char *const no_sizes[] = {
    "",         " ",     "GiB",  "-1",      "-1GiB",   "+1",          " 1",
    "nan",      "inf",   "1gb",  "1GIB",    "1 Gi",    "1G",          "1,5GB",
    "1..5",     "1GB ",  "1GBx", "1e999",   "1PB",     "16777216TiB", "18446744073709551616",
    "1e300TiB", "1 000", "0x10", "0x10GiB", "0X1p4MB", ".",           ".GB",
    "..5",
};

START_TEST(what_is_no_size_is_refused_and_changes_nothing) {
    uint64_t bytes = 99;
    ck_assert_msg(!pl_bytes_parse(no_sizes[_i], &bytes), "%s: %llu", no_sizes[_i],
                  (unsigned long long)bytes);
    ck_assert_uint_eq(bytes, 99);
}
END_TEST

static const struct {
    uint64_t bytes;
    const char *text;
} shown[] = {
    {0, "0 B"},
    {1, "1 B"},
    {1023, "1023 B"},
    {1024, "1.00 KiB"},
    {1536, "1.50 KiB"},
    {UINT64_C(99) << 10, "99.00 KiB"},
    {UINT64_C(100) << 10, "100.0 KiB"},
    {UINT64_C(1000) << 20, "1000.0 MiB"},
    {UINT64_C(1) << 30, "1.00 GiB"},
    {UINT64_C(1299227607), "1.21 GiB"},
    {UINT64_C(1) << 40, "1.00 TiB"},
    {UINT64_MAX, "16777216.0 TiB"},
};

START_TEST(a_size_is_shown_in_the_unit_it_fills) {
    char buf[PL_BYTES_TEXT];
    ck_assert_str_eq(pl_bytes_text(shown[_i].bytes, buf), shown[_i].text);
    ck_assert_ptr_eq(pl_bytes_text(shown[_i].bytes, buf), buf);
}
END_TEST

/* Digits that are shown are right: read again, the size is off by half of the last digit. */
START_TEST(a_size_that_is_shown_reads_back_near_itself) {
    uint64_t state = 3;
    for (int round = 0; round < 20000; round++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t bytes = state >> (4 + state % 55);
        char buf[PL_BYTES_TEXT];
        uint64_t again;
        ck_assert(pl_bytes_parse(pl_bytes_text(bytes, buf), &again));
        const double off = (double)again - (double)bytes, most = (double)bytes / 199 + 1;
        ck_assert_msg(off <= most && -off <= most, "%llu: %s", (unsigned long long)bytes, buf);
    }
}
END_TEST

static const struct {
    uint64_t n;
    const char *text;
} counts[] = {
    {0, "0"},
    {7, "7"},
    {999, "999"},
    {1000, "1,000"},
    {99999, "99,999"},
    {100000, "100,000"},
    {1000000, "1,000,000"},
    {UINT64_C(7615616512), "7,615,616,512"},
    {UINT64_MAX, "18,446,744,073,709,551,615"},
};

START_TEST(a_count_has_a_comma_before_every_third_digit_from_the_right) {
    char buf[PL_COUNT_TEXT];
    ck_assert_str_eq(pl_count_text(counts[_i].n, buf), counts[_i].text);
}
END_TEST

START_TEST(a_sum_or_product_that_does_not_fit_leaves_its_result_alone) {
    uint64_t out = 5;
    ck_assert(pl_u64_add(UINT64_MAX, 0, &out) && out == UINT64_MAX);
    ck_assert(pl_u64_add(1, UINT64_MAX - 1, &out) && out == UINT64_MAX);
    out = 5;
    ck_assert(!pl_u64_add(UINT64_MAX, 1, &out) && !pl_u64_add(1, UINT64_MAX, &out));
    ck_assert(!pl_u64_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    ck_assert(!pl_u64_mul(UINT64_MAX, 2, &out) && !pl_u64_mul(2, UINT64_MAX, &out));
    ck_assert_uint_eq(out, 5);
    ck_assert(pl_u64_mul(UINT64_C(1) << 32, UINT32_MAX, &out));
    ck_assert_uint_eq(out, UINT64_C(0xFFFFFFFF00000000));
    ck_assert(pl_u64_mul(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    ck_assert(pl_u64_mul(0, UINT64_MAX, &out) && out == 0);
    ck_assert(pl_u64_mul(UINT64_MAX, 0, &out) && out == 0);
}
END_TEST

START_TEST(rounding_up_stops_where_no_multiple_is_left) {
    uint64_t out = 5;
    static const uint64_t aligns[] = {1, 2, 3, 64, 256, UINT64_C(2) << 20, UINT64_C(1) << 63};
    for (int i = 0; i < COUNT(aligns); i++) {
        const uint64_t a = aligns[i], last = UINT64_MAX - UINT64_MAX % a;
        ck_assert(pl_u64_align(0, a, &out) && out == 0);
        ck_assert(pl_u64_align(1, a, &out) && out == a);
        ck_assert(pl_u64_align(a, a, &out) && out == a);
        if (a < last / 2) ck_assert(pl_u64_align(a + 1, a, &out) && out == (a == 1 ? 2 : 2 * a));
        ck_assert(pl_u64_align(last - a + 1, a, &out) && out == last);
        ck_assert(pl_u64_align(last, a, &out) && out == last);
        out = 5;
        if (a > 1 && last < UINT64_MAX) ck_assert(!pl_u64_align(last + 1, a, &out) && out == 5);
    }
}
END_TEST

START_TEST(dividing_up_does_not_wrap_around) {
    ck_assert_uint_eq(pl_u64_div_up(0, 7), 0);
    ck_assert_uint_eq(pl_u64_div_up(14, 7), 2);
    ck_assert_uint_eq(pl_u64_div_up(15, 7), 3);
    ck_assert_uint_eq(pl_u64_div_up(UINT64_MAX, 2), UINT64_C(1) << 63);
    ck_assert_uint_eq(pl_u64_div_up(UINT64_MAX, UINT64_MAX), 1);
    ck_assert_uint_eq(pl_u64_round_up(13, 4), 16);
    ck_assert_uint_eq(pl_u64_min(3, UINT64_MAX), 3);
    ck_assert_uint_eq(pl_u64_max(3, UINT64_MAX), UINT64_MAX);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.units");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, a_size_is_read_in_its_unit, 0, COUNT(sizes));
    tcase_add_loop_test(t, what_is_no_size_is_refused_and_changes_nothing, 0, COUNT(no_sizes));
    tcase_add_loop_test(t, a_size_is_shown_in_the_unit_it_fills, 0, COUNT(shown));
    tcase_add_test(t, a_size_that_is_shown_reads_back_near_itself);
    tcase_add_loop_test(t, a_count_has_a_comma_before_every_third_digit_from_the_right, 0,
                        COUNT(counts));
    tcase_add_test(t, a_sum_or_product_that_does_not_fit_leaves_its_result_alone);
    tcase_add_test(t, rounding_up_stops_where_no_multiple_is_left);
    tcase_add_test(t, dividing_up_does_not_wrap_around);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
