/* check_steps.c - the steps of a run: an epoch ends with a step, and rows that train nothing are in
 * none. Packed steps are counted in check_walk.c. */
#include "estimator/base/checked.h"
#include "runtime/data/epoch_steps.h"
#include "tests/data/fixture.h"

#include <check.h>

/* Row r reads [r, 1]; of those that `masked` has a bit for nothing is trained on. */
static void open_rows(struct fixture *f, uint64_t rows, uint64_t masked) {
    static char text[1 << 14];
    size_t n = 0;
    for (uint64_t r = 0; r < rows; r++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              masked >> r & 1 ? "{\"input_ids\":[%llu,1],\"labels\":[-100,-100]}\n"
                                              : "{\"input_ids\":[%llu,1]}\n",
                              (unsigned long long)r);
    fixture_start(f, PL_FORMAT_TOKENS);
    fixture_write(f, text, n);
    ck_assert_msg(fixture_open(f) == PL_ERR_OK, "%s", f->d.message);
}

/* Parts of an epoch as transformers counts them: ceil(epochs x steps of an epoch). */
static const struct {
    uint64_t rows, slots;
    double epochs;
    uint64_t steps;
} counts[] = {
    {10, 4, 1, 3},    {10, 4, 3, 9},   {10, 5, 3, 6},    {10, 20, 1, 1},    {10, 20, 4, 4},
    {10, 4, 0.5, 2},  {10, 4, 0.1, 1}, {10, 4, 0, 1},    {10, 4, 1.5, 5},   {10, 1, 2.7, 27},
    {10, 1, 1.1, 11}, {1, 1, 1, 1},    {10, 3, 2.5, 10}, {16, 16, 0.01, 1},
};

START_TEST(steps_are_counted_as_by_transformers) {
    struct fixture f;
    struct pl_walk w;
    uint64_t steps;
    open_rows(&f, 16, 0);
    pl_walk_init(&w, 0, counts[_i].rows, true, 3);
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = 0};
    ck_assert_int_eq(pl_steps_of_epochs(&from, counts[_i].slots, counts[_i].epochs, &steps, &f.d),
                     PL_ERR_OK);
    ck_assert_uint_eq(steps, counts[_i].steps);
    fixture_finish(&f);
}
END_TEST

/* N1 of epoch_steps.h. Loads steps from position 0 until `epochs` are over; every epoch has every
 * row once. */
START_TEST(an_epoch_ends_with_a_step) {
    enum { ROWS = 10, EPOCHS = 4 };
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    const uint64_t slots = (uint64_t)_i;
    uint64_t steps = 0, counted, place;
    open_rows(&f, ROWS, 0);
    pl_walk_init(&w, 0, ROWS, true, 3);
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = 0};
    for (uint64_t position = 0; position < EPOCHS * ROWS; steps++) {
        static int seen[ROWS];
        if (position % ROWS == 0) memset(seen, 0, sizeof seen);
        ck_assert_int_eq(pl_steps_position(&from, slots, steps, &place, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(place, position);
        ck_assert_int_eq(pl_step_batch_load(&b, &from, position, slots, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(b.n, pl_u64_min(slots, ROWS - position % ROWS));
        ck_assert_uint_eq(b.slots, b.n);
        for (uint64_t i = 0; i < b.n; i++)
            ck_assert_int_eq(seen[b.samples[i].ids[0]]++, 0);
        position += b.n;
    }
    ck_assert_int_eq(pl_steps_of_epochs(&from, slots, EPOCHS, &counted, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(counted, steps);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

START_TEST(the_steps_of_a_circle_are_full) {
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    uint64_t place;
    open_rows(&f, 10, 0);
    pl_walk_init(&w, 0, 10, false, 0);
    w.circle = true;
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = 0};
    ck_assert_int_eq(pl_steps_position(&from, 4, 2, &place, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(place, 8);
    ck_assert_int_eq(pl_step_batch_load(&b, &from, place, 4, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(b.n, 4);
    ck_assert_int_eq(b.samples[2].ids[0], 0);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* S3 of data.h and O2 of holdout.h. Rows 0, 3, 4 and 9 of 10 have no target: neither trained on nor
 * held out. */
START_TEST(rows_that_train_nothing_are_left_out) {
    struct fixture f;
    struct pl_holdout untrained, held, out;
    struct pl_walk w;
    int seen[10] = {0};
    open_rows(&f, 10, 1 << 0 | 1 << 3 | 1 << 4 | 1 << 9);
    ck_assert_int_eq(pl_holdout_untrained(&untrained, f.data, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(untrained.n, 4);
    ck_assert_int_eq(pl_holdout_draw(&held, f.data, &untrained, 2, 7, &f.d), PL_ERR_OK);
    ck_assert_int_eq(pl_holdout_join(&out, &untrained, &held, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(out.n, 6);
    ck_assert_int_eq(pl_walk_mix(&w, f.data, &out, true, 7, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(w.epoch_rows, 4);
    for (uint64_t p = 0; p < w.epoch_rows; p++)
        seen[pl_walk_row(&w, p)]++;
    for (uint64_t i = 0; i < held.n; i++)
        seen[held.rows[i]]++;
    for (uint64_t row = 0; row < 10; row++)
        ck_assert_int_eq(seen[row], pl_data_tokens(f.data, row) ? 1 : 0);
    pl_walk_finish(&w);
    pl_holdout_finish(&out);
    pl_holdout_finish(&held);
    pl_holdout_finish(&untrained);
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *s = suite_create("steps");
    TCase *t = tcase_create("steps");
    tcase_add_loop_test(t, steps_are_counted_as_by_transformers, 0, sizeof counts / sizeof *counts);
    tcase_add_loop_test(t, an_epoch_ends_with_a_step, 1, 14);
    tcase_add_test(t, the_steps_of_a_circle_are_full);
    tcase_add_test(t, rows_that_train_nothing_are_left_out);
    suite_add_tcase(s, t);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
