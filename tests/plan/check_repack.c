/* check_repack.c - packing again, with units of several intervals.
 *
 * A rectangle of ops and bytes that is cut into pieces again and again is packed without a gap, so
 * the lower bound of its pieces is reached by some packing. Few programs are as dense. */
#include "estimator/plan/repack.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { OPS = 64, MOST = 200, GRAIN = 256, HEIGHT = 1024 * GRAIN };

static uint64_t state;
static uint32_t draw(uint32_t below) { /* splitmix64 */
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

struct instance {
    struct pl_interval rows[MOST];
    uint32_t ends[MOST];
    struct pl_units units;
    struct pl_packing packing; /* one upon the other */
};

static void cut(struct instance *t, uint32_t first, uint32_t end, uint64_t bytes, int depth) {
    const uint32_t grains = (uint32_t)(bytes / GRAIN);
    if (depth == 0 || end - first < 2 || grains < 2) {
        t->rows[t->units.n++] =
            (struct pl_interval){.bytes = bytes, .first = first, .last = end - 1};
    } else if (draw(2)) {
        const uint32_t at = first + 1 + draw(end - first - 1);
        cut(t, first, at, bytes, depth - 1);
        cut(t, at, end, bytes, depth - 1);
    } else {
        const uint64_t low = GRAIN * (1 + (uint64_t)draw(grains - 1));
        cut(t, first, end, low, depth - 1);
        cut(t, first, end, bytes - low, depth - 1);
    }
}

static void make(struct instance *t, uint64_t seed) {
    memset(t, 0, sizeof *t);
    state = seed;
    cut(t, 0, OPS, HEIGHT, 5);
    for (uint32_t i = 0; i < t->units.n; i++) {
        t->ends[i] = i + 1;
        t->rows[i].offset = t->packing.bytes;
        t->packing.bytes += t->rows[i].bytes;
    }
    t->packing.live_bytes = HEIGHT;
    t->units.rows = t->rows;
    t->units.ends = t->ends;
    t->units.n_ops = OPS;
}

/* R1 */
static void assert_valid(const struct instance *t) {
    const uint32_t n = t->units.n ? t->ends[t->units.n - 1] : 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_interval *a = &t->rows[i];
        ck_assert_uint_le(a->offset + a->bytes, t->packing.bytes);
        ck_assert_uint_eq(a->offset % GRAIN, 0);
        for (uint32_t j = 0; j < i; j++) {
            const struct pl_interval *b = &t->rows[j];
            const bool apart =
                a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            ck_assert_msg(apart || a->last < b->first || b->last < a->first,
                          "%u and %u share bytes", j, i);
        }
    }
}

START_TEST(pieces_of_a_rectangle_leave_gaps_of_a_fortieth_at_most) {
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct instance t;
        make(&t, seed);
        ck_assert_int_eq(pl_repack(&t.units, HEIGHT, 0, &t.packing, NULL), PL_ERR_OK);
        assert_valid(&t);
        ck_assert_uint_le(t.packing.bytes, HEIGHT + HEIGHT / 40);
    }
}
END_TEST

/* The question if so many bytes are enough has one answer, wherever the search ends. */
START_TEST(an_early_end_changes_no_answer) {
    struct instance whole, early;
    make(&whole, (uint64_t)_i + 100);
    ck_assert_int_eq(pl_repack(&whole.units, HEIGHT, 0, &whole.packing, NULL), PL_ERR_OK);
    for (uint64_t enough = HEIGHT; enough < HEIGHT + HEIGHT / 4; enough += HEIGHT / 64) {
        make(&early, (uint64_t)_i + 100);
        ck_assert_int_eq(pl_repack(&early.units, HEIGHT, enough, &early.packing, NULL), PL_ERR_OK);
        assert_valid(&early);
        ck_assert_int_eq(early.packing.bytes <= enough, whole.packing.bytes <= enough);
    }
}
END_TEST

/* Two layers that take turns: rows of one unit have one offset, and the rest fits around both. */
START_TEST(rows_of_a_unit_share_an_offset) {
    struct instance t;
    make(&t, (uint64_t)_i + 200);
    const uint32_t n = t.units.n;
    for (uint32_t i = 0; i < n; i++) {
        t.rows[2 * n - 1 - 2 * i] = t.rows[n - 1 - i];
        t.rows[2 * n - 1 - 2 * i].first += OPS;
        t.rows[2 * n - 1 - 2 * i].last += OPS;
        t.rows[2 * n - 2 - 2 * i] = t.rows[n - 1 - i];
        t.ends[i] = 2 * i + 2;
    }
    t.units.n_ops = 2 * OPS;
    const uint64_t before = t.packing.bytes;
    ck_assert_int_eq(pl_repack(&t.units, HEIGHT, 0, &t.packing, NULL), PL_ERR_OK);
    ck_assert_uint_lt(t.packing.bytes, before);
    assert_valid(&t);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(t.rows[2 * i].offset, t.rows[2 * i + 1].offset);
}
END_TEST

/* Makes so many layers that are alike. */
static void repeat(struct instance *t, uint32_t times) {
    const uint32_t n = t->units.n;
    for (uint32_t i = n; i-- > 0;) {
        const struct pl_interval row = t->rows[i];
        for (uint32_t k = 0; k < times; k++) {
            t->rows[i * times + k] = row;
            t->rows[i * times + k].first += k * OPS;
            t->rows[i * times + k].last += k * OPS;
        }
        t->ends[i] = (i + 1) * times;
    }
    t->units.n_ops = times * OPS;
}

START_TEST(more_rows_of_equal_layers_change_no_offset) {
    struct instance once, often;
    make(&once, (uint64_t)_i + 300);
    make(&often, (uint64_t)_i + 300);
    repeat(&often, MOST / often.units.n);
    ck_assert_int_eq(pl_repack(&once.units, HEIGHT, 0, &once.packing, NULL), PL_ERR_OK);
    ck_assert_int_eq(pl_repack(&often.units, HEIGHT, 0, &often.packing, NULL), PL_ERR_OK);
    assert_valid(&often);
    ck_assert_uint_gt(often.ends[0], 1);
    ck_assert_uint_eq(once.packing.bytes, often.packing.bytes);
    for (uint32_t i = 0; i < once.units.n; i++)
        ck_assert_uint_eq(once.rows[i].offset, often.rows[often.ends[i] - 1].offset);
}
END_TEST

/* R2 */
START_TEST(a_packing_that_cannot_be_lowered_stays_as_it_is) {
    struct instance t;
    make(&t, (uint64_t)_i + 500);
    t.packing.bytes = HEIGHT;
    const struct instance was = t;
    ck_assert_int_eq(pl_repack(&t.units, 0, 0, &t.packing, NULL), PL_ERR_OK);
    ck_assert_uint_eq(t.packing.bytes, HEIGHT);
    for (uint32_t i = 0; i < t.units.n; i++)
        ck_assert_uint_eq(t.rows[i].offset, was.rows[i].offset);
}
END_TEST

int main(void) {
    Suite *s = suite_create("plan.repack");
    TCase *tc = tcase_create("units");
    tcase_add_test(tc, pieces_of_a_rectangle_leave_gaps_of_a_fortieth_at_most);
    tcase_add_loop_test(tc, an_early_end_changes_no_answer, 0, 12);
    tcase_add_loop_test(tc, rows_of_a_unit_share_an_offset, 0, 12);
    tcase_add_loop_test(tc, more_rows_of_equal_layers_change_no_offset, 0, 12);
    tcase_add_loop_test(tc, a_packing_that_cannot_be_lowered_stays_as_it_is, 0, 12);
    tcase_set_timeout(tc, 60);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
