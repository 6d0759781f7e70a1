/* check_batch.c - order of rows, samples of a step, micro-batches. */
#include "estimator/ops/padding.h"
#include "runtime/data/batch.h"
#include "tests/data/fixture.h"

#include <check.h>

#define MANY 2000

START_TEST(an_epoch_visits_every_row_once) {
    static const uint64_t seeds[] = {0, 42, UINT64_MAX};
    uint64_t seed = seeds[_i];
    static bool seen[MANY];
    for (uint64_t n = 1; n <= MANY; n++) {
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t row = pl_data_order(epoch * n + i, 10, n, true, seed);
                if (row < 10 || row >= 10 + n || seen[row - 10])
                    ck_abort_msg("n %llu: row %llu", (unsigned long long)n,
                                 (unsigned long long)row);
                seen[row - 10] = true;
            }
        }
    }
}
END_TEST

START_TEST(the_order_is_the_files_without_shuffle) {
    for (uint64_t i = 0; i < 20; i++)
        ck_assert_uint_eq(pl_data_order(i, 5, 7, false, 42), 5 + i % 7);
    ck_assert_uint_eq(pl_data_order(9, 5, 0, true, 42), 5);
}
END_TEST

static uint64_t same_places(uint64_t n, uint64_t a, uint64_t seed_a, uint64_t b, uint64_t seed_b) {
    uint64_t same = 0;
    for (uint64_t i = 0; i < n; i++)
        same +=
            pl_data_order(a + i, 0, n, true, seed_a) == pl_data_order(b + i, 0, n, true, seed_b);
    return same;
}

/* S2 of data.h */
START_TEST(epochs_and_seeds_give_different_orders) {
    /* two unrelated permutations share one place on average; 12 or more has probability 1e-8 */
    ck_assert_uint_eq(same_places(1000, 0, 42, 0, 42), 1000);
    ck_assert_uint_lt(same_places(1000, 0, 42, 1000, 42), 12);
    ck_assert_uint_lt(same_places(1000, 0, 42, 0, 43), 12);
    ck_assert_uint_lt(same_places(1000, 1000, 42, 0, 43), 12);
}
END_TEST

START_TEST(a_shuffle_is_even_over_rows_and_places) {
    /* 6 rows, 60000 epochs: each row in each place 10000 times, standard deviation 91 */
    static uint64_t count[6][6];
    for (uint64_t p = 0; p < 360000; p++)
        count[p % 6][pl_data_order(p, 0, 6, true, 7)]++;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            ck_assert_msg(count[i][j] > 9500 && count[i][j] < 10500, "%d %d: %llu", i, j,
                          (unsigned long long)count[i][j]);
}
END_TEST

START_TEST(huge_row_counts_need_no_memory) {
    const uint64_t n = UINT64_C(5000000000000);
    int upper = 0;
    for (uint64_t i = 0; i < 64; i++) {
        uint64_t row = pl_data_order(n - 1 - i, 0, n, true, 1);
        ck_assert_uint_lt(row, n);
        upper += row >= n / 2;
    }
    ck_assert(upper > 16 && upper < 48);
}
END_TEST

/* Steps of n rows of [first, first + rows), in their order or shuffled. */
static pl_err load_batch(struct pl_step_batch *b, struct fixture *f, uint64_t position, uint64_t n,
                         uint64_t first, uint64_t rows, bool shuffle, uint64_t seed) {
    struct pl_walk w;
    pl_walk_init(&w, first, rows, shuffle, seed);
    w.circle = true;
    const struct pl_batch_source from = {.data = f->data, .walk = &w, .pack_tokens = 0};
    return pl_step_batch_load(b, &from, position, n, &f->d);
}

/* Row 1 has no target; row 3 masks the first of its two. */
static const char rows[] = "{\"input_ids\":[10,11,12]}\n"
                           "{\"input_ids\":[20,21],\"labels\":[20,-100]}\n"
                           "{\"input_ids\":[30,31]}\n"
                           "{\"input_ids\":[40,41,42],\"labels\":[40,-100,43]}\n"
                           "{\"input_ids\":[50,51,52,53]}\n";

START_TEST(a_step_counts_targets_and_computed_tokens) {
    struct fixture f;
    struct pl_step_batch b = {0};
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 4, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_uint_eq(b.n, 4);
    ck_assert_uint_eq(b.targets, 2 + 0 + 1 + 1);
    ck_assert_uint_eq(b.tokens, 3 + 0 + 2 + 3);
    ck_assert_uint_eq(b.samples[1].n, 0);
    /* wraps into the next epoch, keeps its buffers */
    ck_assert_int_eq(load_batch(&b, &f, 4, 2, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_uint_eq(b.n, 2);
    ck_assert_int_eq(b.samples[0].ids[0], 50);
    ck_assert_int_eq(b.samples[1].ids[0], 10);
    ck_assert_uint_eq(b.tokens, 7);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_range_of_rows_stays_in_its_range) {
    struct fixture f;
    struct pl_step_batch b = {0};
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    for (uint64_t p = 0; p < 12; p += 3) {
        ck_assert_int_eq(load_batch(&b, &f, p, 3, 2, 3, true, 9), PL_ERR_OK);
        ck_assert_uint_eq(b.tokens, 2 + 3 + 4);
    }
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

START_TEST(a_micro_batch_joins_samples_and_shifts_labels) {
    static const int32_t ids[] = {10, 11, 12, 30, 31, 40, 41, 42};
    static const int32_t positions[] = {0, 1, 2, 0, 1, 0, 1, 2};
    static const int32_t offsets[] = {0, 3, 5, 8}, target_rows[] = {0, 1, 3, 6};
    static const int32_t targets[] = {11, 12, 31, 43};
    static const uint64_t samples[] = {0, 2, 3};
    struct fixture f;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 5, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_init(&mb, 8, 3, &f.d), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 4, 1, &f.d), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 0, 4, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(mb.n_tokens, 8);
    ck_assert_uint_eq(mb.n_seqs, 3);
    ck_assert_uint_eq(mb.n_targets, 4);
    ck_assert_uint_eq(mb.max_len, 3);
    ck_assert_mem_eq(mb.ids, ids, sizeof ids);
    ck_assert_mem_eq(mb.positions, positions, sizeof positions);
    ck_assert_mem_eq(mb.offsets, offsets, sizeof offsets);
    ck_assert_mem_eq(mb.target_rows, target_rows, sizeof target_rows);
    ck_assert_mem_eq(mb.targets, targets, sizeof targets);
    ck_assert_mem_eq(mb.samples, samples, sizeof samples);
    ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 1, 1, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(mb.n_tokens + mb.n_seqs + mb.n_targets + mb.max_len, 0);
    pl_micro_batch_finish(&mb);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* B4 of batch.h. All samples: 12 tokens of 4 samples, whose targets are of the rows 0, 1, 3, 6, 8,
 * 9 and 10. */
START_TEST(padding_follows_the_samples_and_trains_nothing) {
    static const int32_t more_ids[] = {10, 11, 12, 30}, more_positions[4];
    static const struct {
        uint64_t slots, most_tokens, most_seqs, tokens, seqs, targets; /* of padding */
        int32_t row;                                                   /* of its target */
    } cases[] = {{5, 16, 5, 4, 0, 1, 15}, {5, 13, 5, 1, 0, 1, 12}, {5, 12, 4, 0, 0, 1, 11},
                 {4, 16, 5, 0, 1, 0, 0},  {4, 8, 3, 0, 0, 0, 0},   {0, 16, 5, 0, 0, 0, 0}};
    struct fixture f;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 5, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_init(&mb, 16, 5, &f.d), PL_ERR_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 0, cases[i].slots, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(mb.padding.tokens + mb.padding.seqs + mb.padding.targets, 0);
        pl_micro_batch_pad(&mb, cases[i].most_tokens, cases[i].most_seqs);
        ck_assert_uint_eq(mb.padding.tokens, cases[i].tokens);
        ck_assert_uint_eq(mb.padding.seqs, cases[i].seqs);
        ck_assert_uint_eq(mb.padding.targets, cases[i].targets);
        ck_assert_mem_eq(mb.ids + mb.n_tokens, more_ids, cases[i].tokens * 4);
        ck_assert_mem_eq(mb.positions + mb.n_tokens, more_positions, cases[i].tokens * 4);
        for (uint64_t k = mb.n_seqs; k <= mb.n_seqs + mb.padding.seqs; k++)
            ck_assert_uint_eq((uint64_t)mb.offsets[k], mb.n_tokens + mb.padding.tokens);
        if (!cases[i].targets) continue;
        ck_assert_int_eq(mb.target_rows[mb.n_targets], cases[i].row);
        ck_assert_int_eq(mb.targets[mb.n_targets], PL_TARGET_NONE);
        ck_assert(mb.weights[mb.n_targets] == 0);
    }
    pl_micro_batch_finish(&mb);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* Every number of tokens and targets is padded by less than an eighth and a quarter, or, if there
 * are few, by less than 8 and 4. */
START_TEST(padding_is_a_small_part) {
    enum { MOST = 3000 };
    struct pl_micro_batch mb;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_micro_batch_init(&mb, 2 * MOST, 64, &d), PL_ERR_OK);
    for (uint64_t n = 1; n <= MOST; n++) {
        pl_micro_batch_clear(&mb);
        mb.n_tokens = n, mb.n_targets = n - 1, mb.n_seqs = 1;
        for (uint64_t t = 0; t + 1 < n; t++)
            mb.target_rows[t] = (int32_t)t;
        pl_micro_batch_pad(&mb, 2 * MOST, 64);
        ck_assert(mb.padding.tokens < 8 || mb.padding.tokens * 8 < n);
        ck_assert(mb.padding.targets < 4 || mb.padding.targets * 4 < n - 1);
        ck_assert_uint_eq(mb.padding.seqs, 0);
        for (uint64_t t = 1; t < mb.padding.targets; t++)
            ck_assert_int_lt(mb.target_rows[n - 1 + t], mb.target_rows[n - 1 + t - 1]);
    }
    pl_micro_batch_finish(&mb);
}
END_TEST

START_TEST(positions_of_longer_samples_may_count_from_elsewhere) {
    static const int32_t positions[] = {100, 101, 102, 0, 1, 100, 101, 102};
    struct fixture f;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 5, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_init(&mb, 8, 3, &f.d), PL_ERR_OK);
    mb.long_from = 2;
    mb.long_base = 100;
    ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 0, 4, &f.d), PL_ERR_OK);
    ck_assert_mem_eq(mb.positions, positions, sizeof positions);
    ck_assert_uint_eq(mb.max_len, 3);
    pl_micro_batch_finish(&mb);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* B3 of batch.h */
START_TEST(a_micro_batch_takes_no_more_than_it_was_made_for) {
    static const struct { uint64_t tokens, seqs; } sizes[] = {{7, 3}, {8, 2}, {0, 3}, {2, 0}};
    struct fixture f;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 5, 0, 5, false, 1), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_init(&mb, sizes[_i].tokens, sizes[_i].seqs, &f.d), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, 0, 4, &f.d), PL_ERR_PLAN_BROKEN);
    ck_assert_uint_le(mb.n_tokens, sizes[_i].tokens);
    ck_assert_uint_le(mb.n_seqs, sizes[_i].seqs);
    pl_micro_batch_finish(&mb);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* 3000 and 2^22 share their lowest eleven bits with smaller ids: every digit counts. */
START_TEST(tokens_are_sorted_by_id_and_then_by_place) {
    static const int32_t some[] = {0, 1, 952, 3000, 70000, 1 << 22, (1 << 22) + 1, INT32_MAX};
    enum { N = 5000 };
    struct pl_micro_batch mb;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_micro_batch_init(&mb, N, 1, &d), PL_ERR_OK);
    for (mb.n_tokens = 0; mb.n_tokens < N; mb.n_tokens++)
        mb.ids[mb.n_tokens] = some[mb.n_tokens * mb.n_tokens * 7919 % 23 % 8];
    static bool seen[N];
    pl_micro_batch_sort(&mb);
    for (uint64_t i = 0; i < N; i++) {
        ck_assert(mb.order[i] >= 0 && mb.order[i] < N && !seen[mb.order[i]]);
        seen[mb.order[i]] = true;
        if (i == 0) continue;
        int32_t a = mb.order[i - 1], b = mb.order[i];
        ck_assert(mb.ids[a] < mb.ids[b] || (mb.ids[a] == mb.ids[b] && a < b));
    }
    mb.n_tokens = 0;
    pl_micro_batch_sort(&mb);
    pl_micro_batch_finish(&mb);
}
END_TEST

START_TEST(micro_batches_of_a_step_add_up_to_it) {
    struct fixture f;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    fixture_rows(&f, PL_FORMAT_TOKENS, rows);
    ck_assert_int_eq(load_batch(&b, &f, 0, 10, 0, 5, true, 3), PL_ERR_OK);
    ck_assert_int_eq(pl_micro_batch_init(&mb, 64, 10, &f.d), PL_ERR_OK);
    for (uint64_t size = 1; size <= 11; size++) {
        uint64_t tokens = 0, targets = 0;
        for (uint64_t first = 0; first < b.n; first += size) {
            ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, first, size, &f.d), PL_ERR_OK);
            tokens += mb.n_tokens;
            targets += mb.n_targets;
        }
        ck_assert_uint_eq(tokens, b.tokens);
        ck_assert_uint_eq(targets, b.targets);
    }
    pl_micro_batch_finish(&mb);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

START_TEST(sizes_beyond_memory_are_refused) {
    struct pl_micro_batch mb;
    struct pl_diag d = {0};
    ck_assert_int_eq(pl_micro_batch_init(&mb, UINT64_MAX / 2, 1, &d), PL_ERR_HOST_OOM);
    ck_assert_ptr_null(mb.ids);
    ck_assert_int_eq(pl_micro_batch_init(&mb, UINT64_MAX, 1, &d), PL_ERR_HOST_OOM);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("batch");
    TCase *t = tcase_create("order and batches");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, an_epoch_visits_every_row_once, 0, 3);
    tcase_add_test(t, the_order_is_the_files_without_shuffle);
    tcase_add_test(t, epochs_and_seeds_give_different_orders);
    tcase_add_test(t, a_shuffle_is_even_over_rows_and_places);
    tcase_add_test(t, huge_row_counts_need_no_memory);
    tcase_add_test(t, a_step_counts_targets_and_computed_tokens);
    tcase_add_test(t, a_range_of_rows_stays_in_its_range);
    tcase_add_test(t, a_micro_batch_joins_samples_and_shifts_labels);
    tcase_add_test(t, padding_follows_the_samples_and_trains_nothing);
    tcase_add_test(t, padding_is_a_small_part);
    tcase_add_test(t, positions_of_longer_samples_may_count_from_elsewhere);
    tcase_add_loop_test(t, a_micro_batch_takes_no_more_than_it_was_made_for, 0, 4);
    tcase_add_test(t, tokens_are_sorted_by_id_and_then_by_place);
    tcase_add_test(t, micro_batches_of_a_step_add_up_to_it);
    tcase_add_test(t, sizes_beyond_memory_are_refused);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
