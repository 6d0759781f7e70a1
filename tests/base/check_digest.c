/* check_digest.c - XXH64 as the reference implementation computes it, however the bytes arrive. */
#include "estimator/base/digest.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* xxHash 0.8 over bytes (7 i + n) mod 256. Lengths on both sides of every branch: words
 * of 4 and 8 bytes, the stripe of 32. */
static const struct {
    size_t n;
    uint64_t seed, value;
} rows[] = {
    {0, 0, UINT64_C(0xef46db3751d8e999)},
    {1, 0, UINT64_C(0x8a4127811b21e730)},
    {3, 0, UINT64_C(0x31d2363f52e564c9)},
    {4, 0, UINT64_C(0xb4d516af63f9c743)},
    {7, 0, UINT64_C(0x2163df11c0cdf8cd)},
    {8, 0, UINT64_C(0xd5474d6ca50def58)},
    {12, 0, UINT64_C(0xa4743d1733af563b)},
    {31, 0, UINT64_C(0xc025b4c3c4880c7a)},
    {32, 0, UINT64_C(0x178ae25cee6f7994)},
    {33, 0, UINT64_C(0x4072a28263e977ef)},
    {63, 0, UINT64_C(0x47948108b5ff3162)},
    {64, 0, UINT64_C(0xcf35552f599ba94d)},
    {100, 0, UINT64_C(0x3a7fdc0febf6f5dc)},
    {1000, 0, UINT64_C(0x958e6485b0af5378)},
    {0, UINT64_MAX, UINT64_C(0x298f4c84b24f5380)},
    {1, UINT64_MAX, UINT64_C(0x0000000000000000)},
    {3, UINT64_MAX, UINT64_C(0xe422054a9bc43a06)},
    {4, UINT64_MAX, UINT64_C(0x279dad61e91f7f8a)},
    {7, UINT64_MAX, UINT64_C(0x3683466ed1efd984)},
    {8, UINT64_MAX, UINT64_C(0x6605fc093be639b0)},
    {12, UINT64_MAX, UINT64_C(0x252918dc7a498816)},
    {31, UINT64_MAX, UINT64_C(0x00cc9a95478dcbaf)},
    {32, UINT64_MAX, UINT64_C(0xde09780cf07d3e1d)},
    {33, UINT64_MAX, UINT64_C(0x4db4970c5663d633)},
    {63, UINT64_MAX, UINT64_C(0x17cc6aedcd532565)},
    {64, UINT64_MAX, UINT64_C(0x8d9ec5c9602fead0)},
    {100, UINT64_MAX, UINT64_C(0xa378f8064a95becb)},
    {1000, UINT64_MAX, UINT64_C(0x7ec7ff3f773ee0af)},
};

#define MOST 1000

static void fill(unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(7 * i + n);
}

static uint64_t at_once(const void *bytes, size_t n, uint64_t seed) {
    struct pl_digest h;
    pl_digest_init(&h, seed);
    pl_digest_add(&h, bytes, n);
    return pl_digest_value(&h);
}

START_TEST(a_digest_is_that_of_the_reference) {
    unsigned char *bytes = malloc(rows[_i].n + 1); /* exact, for the sanitizer */
    ck_assert_ptr_nonnull(bytes);
    fill(bytes + 1, rows[_i].n);
    ck_assert_uint_eq(at_once(bytes + 1, rows[_i].n, rows[_i].seed), rows[_i].value);
    free(bytes);
}
END_TEST

START_TEST(bytes_may_come_in_any_pieces) {
    unsigned char bytes[100];
    fill(bytes, sizeof bytes);
    const uint64_t want = at_once(bytes, sizeof bytes, 7);
    for (size_t a = 0; a <= sizeof bytes; a++) {
        for (size_t b = a; b <= sizeof bytes; b++) {
            struct pl_digest h;
            pl_digest_init(&h, 7);
            pl_digest_add(&h, bytes, a);
            pl_digest_add(&h, bytes + a, b - a);
            pl_digest_add(&h, NULL, 0);
            pl_digest_add(&h, bytes + b, sizeof bytes - b);
            ck_assert_msg(pl_digest_value(&h) == want, "cut at %zu and %zu", a, b);
        }
    }
}
END_TEST

/* The value can be asked for while a stream continues: it is that of the bytes so far. */
START_TEST(asking_for_the_value_changes_nothing) {
    unsigned char bytes[MOST];
    struct pl_digest h;
    fill(bytes, sizeof bytes);
    pl_digest_init(&h, 1);
    for (size_t i = 0; i < sizeof bytes; i++) {
        ck_assert_uint_eq(pl_digest_value(&h), at_once(bytes, i, 1));
        pl_digest_add(&h, bytes + i, 1);
    }
    ck_assert_uint_eq(pl_digest_value(&h), pl_digest_value(&h));
}
END_TEST

START_TEST(every_byte_and_the_length_count) {
    unsigned char bytes[67] = {0};
    const uint64_t plain = at_once(bytes, sizeof bytes, 0);
    for (size_t i = 0; i < sizeof bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] = (unsigned char)(1u << bit);
            ck_assert_msg(at_once(bytes, sizeof bytes, 0) != plain, "byte %zu bit %d", i, bit);
        }
        bytes[i] = 0;
        ck_assert_msg(at_once(bytes, i, 0) != plain, "%zu of the bytes", i);
    }
    ck_assert_uint_ne(at_once(bytes, sizeof bytes, 1), plain);
}
END_TEST

int main(void) {
    Suite *s = suite_create("base.digest");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, a_digest_is_that_of_the_reference, 0, sizeof rows / sizeof *rows);
    tcase_add_test(t, bytes_may_come_in_any_pieces);
    tcase_add_test(t, asking_for_the_value_changes_nothing);
    tcase_add_test(t, every_byte_and_the_length_count);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
