/* check_lengths.c - counts and shares of lengths against a loop over the samples. */
#include "estimator/advice/lengths.h"

#include <check.h>
#include <stdlib.h>

#define ROWS 997

static uint32_t length_of(uint32_t i) {
    return i * 2654435761u % 1500 + 1;
}

static struct pl_lengths measured(void) {
    struct pl_lengths l = {0};
    for (uint32_t i = 0; i < ROWS; i++)
        ck_assert_int_eq(pl_lengths_add(&l, length_of(i), NULL), PL_ERR_OK);
    pl_lengths_sort(&l);
    return l;
}

/* N1 */
START_TEST(over_and_lost_are_those_of_a_loop) {
    struct pl_lengths l = measured();
    for (uint32_t cut = 0; cut < 1600; cut += 7) {
        uint64_t over = 0, lost = 0;
        for (uint32_t i = 0; i < ROWS; i++) {
            over += length_of(i) > cut;
            lost += length_of(i) > cut ? length_of(i) - cut : 0;
        }
        ck_assert_uint_eq(pl_lengths_over(&l, cut), over);
        ck_assert_uint_eq(pl_lengths_lost(&l, cut), lost);
    }
    pl_lengths_finish(&l);
}
END_TEST

START_TEST(a_percentile_is_the_smallest_length_that_is_enough) {
    struct pl_lengths l = measured();
    for (unsigned p = 1; p <= 100; p++) {
        uint32_t at = pl_lengths_percentile(&l, p);
        ck_assert_uint_le(100 * pl_lengths_over(&l, at), (100 - p) * (uint64_t)ROWS);
        ck_assert_uint_gt(100 * pl_lengths_over(&l, at - 1), (100 - p) * (uint64_t)ROWS);
    }
    ck_assert_uint_eq(pl_lengths_percentile(&l, 100), l.longest);
    pl_lengths_finish(&l);
}
END_TEST

static struct pl_lengths same(uint32_t length, uint32_t rows) {
    struct pl_lengths l = {0};
    for (uint32_t i = 0; i < rows; i++)
        ck_assert_int_eq(pl_lengths_add(&l, length, NULL), PL_ERR_OK);
    pl_lengths_sort(&l);
    return l;
}

/* Equal samples are packed the same whatever their order. */
START_TEST(as_many_equal_samples_are_packed_as_fit) {
    static const struct {
        uint32_t length, tokens, slots;
        double samples, filled;
    } packs[] = {{100, 1000, 1, 10, 1000}, {100, 1000, 300, 10, 1000}, {300, 1000, 4, 3, 900},
                 {600, 1000, 2, 1, 600},   {1000, 1000, 2, 1, 1000},   {5000, 1000, 3, 1, 1000},
                 {1, 8, 1, 4, 8}};
    struct pl_lengths l = same(packs[_i].length, 10);
    const struct pl_slot_load p = pl_lengths_packed(&l, packs[_i].tokens, packs[_i].slots);
    ck_assert_double_eq(p.samples, packs[_i].samples);
    ck_assert_double_eq(p.tokens, packs[_i].filled);
    pl_lengths_finish(&l);
}
END_TEST

/* Against a sum over the samples, whose mean a sample of the order has to have. */
START_TEST(slots_hold_samples_of_every_length) {
    struct pl_lengths l = measured();
    double before = 0;
    for (uint32_t slots = 1; slots <= 64; slots *= 2) {
        const struct pl_slot_load one = pl_lengths_slot(&l, 2000);
        const struct pl_slot_load p = pl_lengths_packed(&l, 2000, slots);
        ck_assert_double_eq(one.samples, 1);
        ck_assert_double_eq_tol(one.tokens, (double)l.tokens / ROWS, 1e-9);
        ck_assert_double_eq_tol(p.tokens / p.samples, one.tokens, 0.01 * one.tokens);
        ck_assert_double_le(p.tokens, 2000);
        ck_assert_double_gt(p.tokens, before); /* first fit over more slots leaves less room */
        ck_assert_double_gt(one.length, one.tokens);
        before = p.tokens;
    }
    ck_assert_double_gt(before, 0.9 * 2000);
    pl_lengths_finish(&l);
}
END_TEST

START_TEST(a_description_is_not_packed) {
    struct pl_lengths none = {0}, d;
    ck_assert_int_eq(pl_lengths_describe(&d, 10, 100, 200, NULL), PL_ERR_OK);
    ck_assert_double_eq(pl_lengths_packed(&d, 1000, 4).samples, 0);
    ck_assert_double_eq(pl_lengths_slot(&d, 1000).samples, 0);
    ck_assert_double_eq(pl_lengths_packed(&none, 1000, 4).samples, 0);
    pl_lengths_finish(&d);
}
END_TEST

/* N1 */
START_TEST(a_description_bounds_every_set_it_describes) {
    struct pl_lengths l = measured(), d;
    ck_assert_int_eq(
        pl_lengths_describe(&d, l.rows, (uint32_t)(l.tokens / l.rows) + 1, l.longest, NULL),
        PL_ERR_OK);
    for (uint32_t cut = 0; cut < 1600; cut += 13) {
        ck_assert_uint_ge(pl_lengths_over(&d, cut), pl_lengths_over(&l, cut));
        ck_assert_uint_ge(pl_lengths_lost(&d, cut), pl_lengths_lost(&l, cut));
    }
    ck_assert_uint_eq(pl_lengths_over(&d, l.longest), 0);
    pl_lengths_finish(&l);
}
END_TEST

/* 1 token in nine samples, 11 in the tenth: mean 2. Above 9 there can be one, and there is. */
START_TEST(the_bound_is_reached) {
    struct pl_lengths d;
    ck_assert_int_eq(pl_lengths_describe(&d, 10, 2, 11, NULL), PL_ERR_OK);
    ck_assert_uint_eq(pl_lengths_over(&d, 9), 1);
    ck_assert_uint_eq(pl_lengths_over(&d, 10), 1);
    ck_assert_uint_eq(pl_lengths_over(&d, 4), 2);
}
END_TEST

START_TEST(a_description_that_contradicts_itself_is_refused) {
    static const uint32_t bad[][3] = {{0, 1, 1}, {1, 0, 1}, {5, 10, 9}};
    struct pl_lengths d;
    struct pl_diag diag = {0};
    ck_assert_int_eq(pl_lengths_describe(&d, bad[_i][0], bad[_i][1], bad[_i][2], &diag),
                     PL_ERR_USAGE);
}
END_TEST

int main(void) {
    Suite *s = suite_create("advice.lengths");
    TCase *tc = tcase_create("lengths");
    tcase_add_test(tc, over_and_lost_are_those_of_a_loop);
    tcase_add_test(tc, a_percentile_is_the_smallest_length_that_is_enough);
    tcase_add_loop_test(tc, as_many_equal_samples_are_packed_as_fit, 0, 7);
    tcase_add_test(tc, slots_hold_samples_of_every_length);
    tcase_add_test(tc, a_description_is_not_packed);
    tcase_add_test(tc, a_description_bounds_every_set_it_describes);
    tcase_add_test(tc, the_bound_is_reached);
    tcase_add_loop_test(tc, a_description_that_contradicts_itself_is_refused, 0, 3);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
