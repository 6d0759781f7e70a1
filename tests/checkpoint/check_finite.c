/* check_finite.c - every element type of the format: which bits are other than finite, wherever
 * they stand in a stretch. */
#include "runtime/checkpoint/finite_entry.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define N 2500 /* two blocks and a rest */

static const struct {
    const char *type;
    uint32_t bytes;
    uint64_t finite[3], other[4]; /* bits; other 0: there are no more */
} floats[] = {
    {"F64",
     8,
     {0, 0x7fefffffffffffff, 0xffefffffffffffff},
     {0x7ff0000000000000, 0xfff8000000000001}},
    {"F32", 4, {0, 0x7f7fffff, 0xff7fffff}, {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff}},
    {"BF16", 2, {0, 0x7f7f, 0xff7f}, {0x7f80, 0xff80, 0x7fc0, 0xffff}},
    {"F16", 2, {0, 0x7bff, 0xfbff}, {0x7c00, 0xfc00, 0x7e00, 0xffff}},
    {"C64",
     8,
     {0, 0x7f7fffff7f7fffff, 0xff7fffff},
     {0x7f800000, 0x7fc0000000000000, 0xff80000000000000}},
    {"F8_E5M2", 1, {0, 0x7b, 0xfb}, {0x7c, 0xfc, 0x7e, 0xff}},
    {"F8_E4M3", 1, {0, 0x7e, 0xfe}, {0x7f, 0xff}},
    {"F8_E8M0", 1, {0, 0x7f, 0xfe}, {0xff}},
    {"F8_E4M3FNUZ", 1, {0, 0x7f, 0xff}, {0x80}},
    {"F8_E5M2FNUZ", 1, {0, 0x7f, 0xff}, {0x80}},
    {"F4", 1, {0, 0x77, 0xff}, {0}},
    {"F6_E2M3", 1, {0, 0x77, 0xff}, {0}},
    {"F6_E3M2", 1, {0, 0x77, 0xff}, {0}},
};

static void put_bits(unsigned char *p, uint64_t at, uint32_t bytes, uint64_t bits) {
    for (uint32_t i = 0; i < bytes; i++)
        p[at * bytes + i] = (unsigned char)(bits >> 8 * i);
}

START_TEST(an_element_that_is_not_finite_is_found_where_it_stands) {
    static const uint64_t places[] = {0, 1, 1023, 1024, 1030, 2047, 2048, N - 1};
    const uint32_t bytes = floats[_i].bytes;
    uint32_t said;
    unsigned char *p = malloc((size_t)N * bytes);
    ck_assert_ptr_nonnull(p);
    ck_assert_int_eq(pl_number_class(floats[_i].type, &said), PL_NUMBERS_FLOATING);
    ck_assert_uint_eq(said, bytes);
    for (uint64_t i = 0; i < N; i++)
        put_bits(p, i, bytes, floats[_i].finite[i % 3]);
    ck_assert_uint_eq(pl_finite_scan(floats[_i].type, p, N), N);
    for (int k = 0; k < 4 && floats[_i].other[k]; k++)
        for (size_t at = 0; at < sizeof places / sizeof *places; at++) {
            put_bits(p, places[at], bytes, floats[_i].other[k]);
            ck_assert_uint_eq(pl_finite_scan(floats[_i].type, p, N), places[at]);
            ck_assert_uint_eq(pl_finite_scan(floats[_i].type, p, places[at]), places[at]);
            put_bits(p, places[at], bytes, 0);
        }
    free(p);
}
END_TEST

/* N1 of finite.h */
START_TEST(other_types_are_said_to_be_what_they_are) {
    static const char *const whole[] = {"I64", "U64", "I32", "U32", "I16",
                                        "U16", "I8",  "U8",  "BOOL"};
    const unsigned char ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        ck_assert_int_eq(pl_number_class(whole[i], NULL), PL_NUMBERS_NOT_FLOATING);
        ck_assert_uint_eq(pl_finite_scan(whole[i], ones, 1), 1);
    }
    ck_assert_int_eq(pl_number_class("%n", NULL), PL_NUMBERS_UNKNOWN);
    ck_assert_int_eq(pl_number_class("", NULL), PL_NUMBERS_UNKNOWN);
    ck_assert_int_eq(pl_number_class("f32", NULL), PL_NUMBERS_UNKNOWN);
}
END_TEST

int main(void) {
    Suite *s = suite_create("checkpoint.finite");
    TCase *t = tcase_create("finite");
    tcase_add_loop_test(t, an_element_that_is_not_finite_is_found_where_it_stands, 0,
                        sizeof floats / sizeof *floats);
    tcase_add_test(t, other_types_are_said_to_be_what_they_are);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
