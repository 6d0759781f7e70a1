/* check_pack.c - the packer against brute force. */
#include "estimator/plan/pack.h"

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t state;
static uint64_t next(void) { /* splitmix64 */
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool share_an_op(const struct pl_interval *a, const struct pl_interval *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* K1, K2: the bytes of all intervals here are multiples of 256. */
static void assert_valid(const struct pl_interval *rows, uint32_t n, const struct pl_packing *p) {
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_le(rows[i].offset + rows[i].bytes, p->bytes);
        ck_assert_uint_eq(rows[i].offset % 256, 0);
        for (uint32_t j = 0; j < i; j++) {
            bool apart = rows[i].offset + rows[i].bytes <= rows[j].offset ||
                         rows[j].offset + rows[j].bytes <= rows[i].offset;
            ck_assert_msg(apart || !share_an_op(&rows[i], &rows[j]), "%u and %u share bytes", j, i);
        }
    }
}

static uint64_t largest_live_sum(const struct pl_interval *rows, uint32_t n, uint32_t n_ops) {
    uint64_t most = 0;
    for (uint32_t op = 0; op < n_ops; op++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n; i++)
            if (rows[i].first <= op && op <= rows[i].last) sum += rows[i].bytes;
        if (sum > most) most = sum;
    }
    return most;
}

START_TEST(random_intervals_never_overlap_and_reach_their_bound) {
    enum { OPS = 60, MOST = 120 };
    struct pl_interval rows[MOST];
    struct pl_packing p;
    state = (uint64_t)_i * 7919 + 1;
    uint32_t n = 1 + (uint32_t)(next() % MOST);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = (uint32_t)(next() % OPS), b = (uint32_t)(next() % OPS);
        rows[i] = (struct pl_interval){
            .bytes = 256 * (1 + next() % 40), .first = a < b ? a : b, .last = a < b ? b : a};
    }
    ck_assert_int_eq(pl_pack(rows, n, OPS, &p, NULL), PL_ERR_OK);
    assert_valid(rows, n, &p);
    ck_assert_uint_eq(p.live_bytes, largest_live_sum(rows, n, OPS));
    ck_assert_uint_ge(p.bytes, p.live_bytes);
}
END_TEST

START_TEST(a_gap_is_reused_and_the_smallest_that_fits_is_taken) {
    /* at op 1 gaps of 512 and 256 open; the newcomer of 256 must not split the larger one */
    struct pl_interval rows[] = {{512, 0, 0, 0}, {256, 0, 2, 0}, {256, 0, 0, 0},
                                 {256, 0, 2, 0}, {256, 1, 2, 0}, {512, 2, 2, 0}};
    struct pl_packing p;
    ck_assert_int_eq(pl_pack(rows, 6, 3, &p, NULL), PL_ERR_OK);
    assert_valid(rows, 6, &p);
    ck_assert_uint_eq(p.live_bytes, 1280);
    ck_assert_uint_eq(p.bytes, 1280);
}
END_TEST

START_TEST(disjoint_lives_share_everything) {
    struct pl_interval rows[] = {{1024, 0, 0, 0}, {1024, 1, 1, 0}, {768, 2, 2, 0}};
    struct pl_packing p;
    ck_assert_int_eq(pl_pack(rows, 3, 3, &p, NULL), PL_ERR_OK);
    ck_assert_uint_eq(p.bytes, 1024);
}
END_TEST

START_TEST(nothing_packs_into_nothing) {
    struct pl_packing p;
    ck_assert_int_eq(pl_pack(NULL, 0, 0, &p, NULL), PL_ERR_OK);
    ck_assert_uint_eq(p.bytes, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.pack");
    TCase *tc = tcase_create("pack");
    tcase_add_loop_test(tc, random_intervals_never_overlap_and_reach_their_bound, 0, 200);
    tcase_add_test(tc, a_gap_is_reused_and_the_smallest_that_fits_is_taken);
    tcase_add_test(tc, disjoint_lives_share_everything);
    tcase_add_test(tc, nothing_packs_into_nothing);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
