/* check_mutate.c - the mutator repeats itself, stays in its buffer, and uses all of its changes. */
#include "tests/fuzz/mutate.h"

#include <check.h>
#include <string.h>

#define CAP   64
#define GUARD 0xA5

static uint8_t other_bytes[] = "0123456789abcdef";
static struct fuzz_input other_input = {other_bytes, sizeof other_bytes - 1};
static const struct fuzz_corpus others = {&other_input, 1};

static size_t mutated(uint64_t seed, size_t n, uint8_t out[CAP + 16]) {
    memset(out, GUARD, CAP + 16);
    memset(out, 'x', n);
    return fuzz_mutate(out, n, CAP, &others, seed);
}

START_TEST(the_same_seed_gives_the_same_bytes) {
    uint8_t a[CAP + 16], b[CAP + 16];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        size_t n = mutated(seed, seed % (CAP + 1), a);
        ck_assert_uint_eq(mutated(seed, seed % (CAP + 1), b), n);
        ck_assert_mem_eq(a, b, n);
    }
}
END_TEST

START_TEST(nothing_is_written_behind_the_capacity) {
    uint8_t out[CAP + 16];
    for (uint64_t seed = 0; seed < 20000; seed++) {
        ck_assert_uint_le(mutated(seed, seed % (CAP + 1), out), CAP);
        for (size_t i = CAP; i < sizeof out; i++)
            ck_assert_uint_eq(out[i], GUARD);
    }
}
END_TEST

START_TEST(inputs_grow_shrink_change_and_meet_others) {
    uint8_t out[CAP + 16];
    unsigned grown = 0, shrunk = 0, changed = 0, met = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        size_t n = mutated(seed, 20, out);
        grown += n > 20;
        shrunk += n < 20;
        changed += n == 20 && memcmp(out, "xxxxxxxxxxxxxxxxxxxx", 20) != 0;
        met += memmem(out, n, "abc", 3) != NULL;
    }
    ck_assert_uint_gt(grown, 100);
    ck_assert_uint_gt(shrunk, 100);
    ck_assert_uint_gt(changed, 100);
    ck_assert_uint_gt(met, 10);
}
END_TEST

START_TEST(numbers_and_lengths_are_made_to_lie) {
    static const char text[] = "{\"n\": 1234}";
    uint8_t out[CAP + 16];
    unsigned overflowing = 0, all_ones = 0;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        memcpy(out, text, sizeof text);
        size_t n = fuzz_mutate(out, sizeof text, CAP, &others, seed);
        overflowing += memmem(out, n, "18446744073709551616", 20) != NULL;
        all_ones += n >= 8 && memcmp(out, "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8) == 0;
    }
    ck_assert_uint_gt(overflowing, 10);
    ck_assert_uint_gt(all_ones, 10);
}
END_TEST

int main(void) {
    Suite *s = suite_create("fuzz.mutate");
    TCase *tc = tcase_create("mutate");
    tcase_add_test(tc, the_same_seed_gives_the_same_bytes);
    tcase_add_test(tc, nothing_is_written_behind_the_capacity);
    tcase_add_test(tc, inputs_grow_shrink_change_and_meet_others);
    tcase_add_test(tc, numbers_and_lengths_are_made_to_lie);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
