/* check_walk.c - the mix of files by weight, and the slots that samples are packed into. */
#include "estimator/base/checked.h"
#include "runtime/data/epoch_steps.h"
#include "tests/data/fixture.h"

#include <check.h>

#define FILES 3

/* Files of single-token ids: row r of file i reads [100 i + r, ...], so that an id names its row.
 */
struct mix {
    struct fixture f[FILES]; /* [0] also opens all of them */
    struct pl_dataset sets[FILES];
    struct pl_walk w;
    uint64_t rows[FILES], n;
};

static void mix_open(struct mix *m, const uint64_t rows[FILES], const double weight[FILES],
                     bool shuffle, uint64_t seed) {
    static char text[1 << 16];
    memset(m, 0, sizeof *m);
    for (int i = 0; i < FILES; i++) {
        size_t n = 0;
        for (uint64_t r = 0; r < rows[i]; r++)
            n += (size_t)snprintf(text + n, sizeof text - n, "{\"input_ids\":[%llu,1]}\n",
                                  (unsigned long long)(100 * (uint64_t)i + r));
        fixture_start(&m->f[i], PL_FORMAT_TOKENS);
        fixture_write(&m->f[i], text, n);
        m->sets[i] = PL_DATASET_DEFAULT;
        m->sets[i].path = m->f[i].path;
        m->sets[i].weight = weight[i];
        m->rows[i] = rows[i];
        m->n += rows[i];
    }
    m->f[0].list = (struct pl_dataset_list){m->sets, FILES};
    ck_assert_msg(fixture_open(&m->f[0]) == PL_ERR_OK, "%s", m->f[0].d.message);
    ck_assert_int_eq(pl_walk_mix(&m->w, m->f[0].data, NULL, shuffle, seed, &m->f[0].d), PL_ERR_OK);
}

static void mix_close(struct mix *m) {
    pl_walk_finish(&m->w);
    for (int i = 0; i < FILES; i++)
        fixture_finish(&m->f[i]);
}

static int file_of(const struct mix *m, uint64_t row) {
    int i = 0;
    for (; row >= m->rows[i]; i++)
        row -= m->rows[i];
    return i;
}

static const uint64_t sizes[FILES] = {10, 30, 7};
static const double ones[FILES] = {1, 1, 1};

/* W3 of walk.h */
START_TEST(weights_of_one_keep_the_order_of_before) {
    struct mix m;
    mix_open(&m, sizes, ones, _i, 42);
    ck_assert_uint_eq(m.w.epoch_rows, 47);
    for (uint64_t p = 0; p < 500; p++)
        ck_assert_uint_eq(pl_walk_row(&m.w, p), pl_data_order(p, 0, 47, _i, 42));
    mix_close(&m);
}
END_TEST

static const double weights[][FILES] = {
    {2, 1, 1}, {0.5, 1, 3}, {1, 0.25, 1}, {0.001, 1, 1}, {1000, 1, 0.5}, {1.5, 1.5, 1.5},
};
#define N_WEIGHTS (sizeof weights / sizeof *weights)

/* W2 of walk.h */
START_TEST(an_epoch_holds_weight_times_rows_of_every_file) {
    struct mix m;
    mix_open(&m, sizes, weights[_i], true, 7);
    uint64_t total = 0;
    for (int i = 0; i < FILES; i++)
        total += pl_u64_max(1, (uint64_t)(weights[_i][i] * (double)sizes[i] + 0.5));
    ck_assert_uint_eq(m.w.epoch_rows, total);
    for (uint64_t epoch = 0; epoch < 5; epoch++) {
        uint64_t visits[FILES] = {0};
        for (uint64_t p = 0; p < total; p++)
            visits[file_of(&m, pl_walk_row(&m.w, epoch * total + p))]++;
        for (int i = 0; i < FILES; i++)
            ck_assert_uint_eq(visits[i],
                              pl_u64_max(1, (uint64_t)(weights[_i][i] * (double)sizes[i] + 0.5)));
    }
    mix_close(&m);
}
END_TEST

/* W2 of walk.h */
START_TEST(over_epochs_every_row_of_a_file_is_visited_equally_often) {
    struct mix m;
    uint64_t visits[47] = {0}, first = 0;
    mix_open(&m, sizes, weights[_i], true, 7);
    for (uint64_t p = 0; p < 40 * m.w.epoch_rows; p++)
        visits[pl_walk_row(&m.w, p)]++;
    for (int i = 0; i < FILES; first += sizes[i++]) {
        uint64_t least = UINT64_MAX, most = 0;
        for (uint64_t r = first; r < first + sizes[i]; r++) {
            least = pl_u64_min(least, visits[r]);
            most = pl_u64_max(most, visits[r]);
        }
        ck_assert_msg(most - least <= 1, "file %d: %llu to %llu visits", i,
                      (unsigned long long)least, (unsigned long long)most);
    }
    mix_close(&m);
}
END_TEST

START_TEST(the_mix_is_even_along_an_epoch) {
    /* share of file 0 in the first half of 200 epochs: 20 of 57 places; sd of the sum about 30 */
    struct mix m;
    uint64_t early = 0, epochs = 200;
    mix_open(&m, sizes, weights[0], true, 3);
    ck_assert_uint_eq(m.w.epoch_rows, 57);
    for (uint64_t e = 0; e < epochs; e++)
        for (uint64_t p = 0; p < 28; p++)
            early += file_of(&m, pl_walk_row(&m.w, e * 57 + p)) == 0;
    double wanted = (double)epochs * 28 * 20 / 57;
    ck_assert_msg(early > wanted - 150 && early < wanted + 150, "%llu, wanted about %.0f",
                  (unsigned long long)early, wanted);
    mix_close(&m);
}
END_TEST

START_TEST(without_shuffle_the_files_follow_each_other) {
    static const uint64_t three[FILES] = {2, 3, 1};
    static const double twice[FILES] = {2, 1, 1};
    static const uint64_t order[] = {0, 1, 0, 1, 2, 3, 4, 5};
    struct mix m;
    mix_open(&m, three, twice, false, 42);
    for (uint64_t p = 0; p < 24; p++)
        ck_assert_uint_eq(pl_walk_row(&m.w, p), order[p % 8]);
    mix_close(&m);
}
END_TEST

/* Sets the flag of each row: 1 if it is held out. */
static void mark_held(const struct mix *m, const struct pl_holdout *h, bool marks[64]) {
    memset(marks, 0, 64 * sizeof *marks);
    for (uint64_t i = 0; i < h->n; i++) {
        ck_assert_uint_lt(h->rows[i], m->n);
        ck_assert(!marks[h->rows[i]]);
        marks[h->rows[i]] = true;
    }
}

START_TEST(held_out_rows_are_in_no_epoch) {
    struct mix m;
    struct pl_walk w, e;
    struct pl_holdout h;
    bool held[64];
    uint64_t seen = 0;
    mix_open(&m, sizes, weights[1], true, 5);
    ck_assert_int_eq(pl_holdout_draw(&h, m.f[0].data, NULL, 9, 5, &m.f[0].d), PL_ERR_OK);
    ck_assert_uint_eq(h.n, 9);
    mark_held(&m, &h, held);
    ck_assert_int_eq(pl_walk_mix(&w, m.f[0].data, &h, true, 5, &m.f[0].d), PL_ERR_OK);
    for (uint64_t p = 0; p < 1000; p++)
        ck_assert(!held[pl_walk_row(&w, p)]);
    pl_walk_held(&e, &h);
    for (uint64_t p = 0; p < 9; p++)
        seen += held[pl_walk_row(&e, p)];
    ck_assert_uint_eq(seen, 9);
    pl_walk_finish(&w);
    pl_holdout_finish(&h);
    mix_close(&m);
}
END_TEST

/* O1 of holdout.h */
START_TEST(every_file_gives_its_share_of_what_is_held_out) {
    struct mix m;
    struct pl_holdout h;
    bool held[64];
    uint64_t of[FILES] = {0};
    mix_open(&m, sizes, ones, true, 5);
    ck_assert_int_eq(pl_holdout_draw(&h, m.f[0].data, NULL, (uint64_t)_i, 5, &m.f[0].d), PL_ERR_OK);
    ck_assert_uint_eq(h.n, _i);
    mark_held(&m, &h, held);
    for (uint64_t row = 0; row < m.n; row++)
        of[file_of(&m, row)] += held[row];
    for (int i = 0; i < FILES; i++) {
        double share = (double)_i * (double)sizes[i] / (double)m.n;
        ck_assert_msg((double)of[i] > share - 1.01 && (double)of[i] < share + 1.01,
                      "file %d: %llu of %.2f", i, (unsigned long long)of[i], share);
    }
    pl_holdout_finish(&h);
    mix_close(&m);
}
END_TEST

/* O3 of holdout.h */
START_TEST(what_is_kept_stays_in_its_order) {
    struct mix m;
    struct pl_holdout h;
    bool held[64];
    uint64_t i = 0;
    mix_open(&m, sizes, ones, false, 5);
    ck_assert_int_eq(pl_holdout_draw(&h, m.f[0].data, NULL, 20, 5, &m.f[0].d), PL_ERR_OK);
    mark_held(&m, &h, held);
    for (uint64_t row = 0, below = 0; row < m.n; below += held[row++]) {
        ck_assert_uint_eq(pl_holdout_below(&h, row), below);
        if (!held[row]) ck_assert_uint_eq(pl_holdout_kept(&h, i++), row);
    }
    ck_assert_uint_eq(i, m.n - 20);
    pl_holdout_finish(&h);
    mix_close(&m);
}
END_TEST

/* O2 of holdout.h */
START_TEST(the_seed_decides_what_is_held_out) {
    struct mix m;
    struct pl_holdout h[3];
    const uint64_t seeds[] = {5, 5, 6};
    bool held[3][64];
    mix_open(&m, sizes, ones, true, 5);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(pl_holdout_draw(&h[i], m.f[0].data, NULL, 12, seeds[i], &m.f[0].d),
                         PL_ERR_OK);
        mark_held(&m, &h[i], held[i]);
    }
    ck_assert_mem_eq(held[0], held[1], sizeof held[0]);
    ck_assert_mem_ne(held[0], held[2], sizeof held[0]);
    for (int i = 0; i < 3; i++)
        pl_holdout_finish(&h[i]);
    mix_close(&m);
}
END_TEST

START_TEST(the_entries_of_a_split_are_opened_and_no_others) {
    struct mix m;
    struct pl_data *data = NULL;
    mix_open(&m, sizes, ones, true, 5);
    struct fixture *f = &m.f[0];
    m.sets[1].split = PL_SPLIT_EVAL;
    f->job.datasets = f->list;
    ck_assert_int_eq(pl_data_open_split(&f->job, &f->model, PL_SPLIT_TRAIN, NULL, &data, &f->d),
                     PL_ERR_OK);
    ck_assert_uint_eq(pl_data_rows(data), 17);
    pl_data_close(&data);
    ck_assert_int_eq(pl_data_open_split(&f->job, &f->model, PL_SPLIT_EVAL, NULL, &data, &f->d),
                     PL_ERR_OK);
    ck_assert_uint_eq(pl_data_rows(data), 30);
    pl_data_close(&data);
    f->job.datasets = (struct pl_dataset_list){0};
    f->job.dataset = f->path;
    ck_assert_int_eq(pl_data_open_split(&f->job, &f->model, PL_SPLIT_EVAL, NULL, &data, &f->d),
                     PL_ERR_OK);
    ck_assert_ptr_null(data);
    ck_assert_int_eq(pl_data_open_split(&f->job, &f->model, PL_SPLIT_TRAIN, NULL, &data, &f->d),
                     PL_ERR_OK);
    ck_assert_uint_eq(pl_data_rows(data), 10);
    pl_data_close(&data);
    mix_close(&m);
}
END_TEST

/* --- packing ---------------------------------------------------------------------------------- */

#define SLOT 16

/* 60 rows of 2..16 tokens; every seventh trains nothing. */
static void packed_rows(struct fixture *f) {
    static char text[1 << 16];
    size_t n = 0;
    for (uint64_t r = 0, x = 1; r < 60; r++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t tokens = 2 + (x >> 40) % (SLOT - 1);
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"input_ids\":[%llu",
                              (unsigned long long)r);
        for (uint64_t t = 1; t < tokens; t++)
            n += (size_t)snprintf(text + n, sizeof text - n, ",7");
        if (r % 7 == 6) {
            n += (size_t)snprintf(text + n, sizeof text - n, "],\"labels\":[-100");
            for (uint64_t t = 1; t < tokens; t++)
                n += (size_t)snprintf(text + n, sizeof text - n, ",-100");
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
    }
    fixture_start(f, PL_FORMAT_TOKENS);
    f->job.max_seq_length = SLOT;
    fixture_write(f, text, n);
    ck_assert_msg(fixture_open(f) == PL_ERR_OK, "%s", f->d.message);
}

/* First fit as a child would do it. */
static uint64_t plain_first_fit(const struct fixture *f, const struct pl_walk *w, uint64_t position,
                                uint64_t slots, uint64_t *slot) {
    uint64_t used[64] = {0}, n = 0;
    for (; n < w->epoch_rows - position % w->epoch_rows; n++) {
        uint64_t tokens = pl_data_tokens(f->data, pl_walk_row(w, position + n)), s = 0;
        while (s < slots && used[s] + tokens > SLOT)
            s++;
        if (s == slots || n == slots * SLOT / 2) return n;
        used[s] += tokens;
        slot[n] = s;
    }
    return n;
}

/* N1 of epoch_steps.h */
START_TEST(packed_steps_follow_each_other_without_a_gap) {
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    uint64_t slots = (uint64_t)_i, slot[1024], steps = 0, counted, place;
    packed_rows(&f);
    pl_walk_init(&w, 0, 60, true, 11);
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = SLOT};
    for (uint64_t position = 0; position < 180; steps++) {
        ck_assert_int_eq(pl_steps_position(&from, slots, steps, &place, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(place, position);
        ck_assert_int_eq(pl_step_batch_load(&b, &from, position, slots, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(b.n, plain_first_fit(&f, &w, position, slots, slot));
        ck_assert_mem_eq(b.slot, slot, (size_t)b.n * sizeof *slot);
        for (uint64_t i = 0; i < b.n; i++)
            if (b.samples[i].n)
                ck_assert_int_eq(b.samples[i].ids[0], (int32_t)pl_walk_row(&w, position + i));
        position += b.n;
    }
    ck_assert_int_eq(pl_steps_of_epochs(&from, slots, 3, &counted, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(counted, steps);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* B2 of batch.h, and B3: it takes what it was made for. */
START_TEST(a_packed_micro_batch_fits_its_plan_and_loses_nothing) {
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    struct pl_micro_batch mb;
    packed_rows(&f);
    pl_walk_init(&w, 0, 60, true, 11);
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = SLOT};
    ck_assert_int_eq(pl_step_batch_load(&b, &from, 0, 7, &f.d), PL_ERR_OK);
    ck_assert_uint_gt(b.n, 7);
    for (uint64_t size = 1; size <= 8; size++) {
        bool seen[64] = {false};
        uint64_t tokens = 0, targets = 0;
        ck_assert_int_eq(pl_micro_batch_init(&mb, size * SLOT, size * SLOT / 2, &f.d), PL_ERR_OK);
        for (uint64_t first = 0; first < b.slots; first += size) {
            ck_assert_int_eq(pl_micro_batch_fill(&mb, &b, first, size, &f.d), PL_ERR_OK);
            ck_assert_uint_le(mb.n_tokens, size * SLOT);
            ck_assert_uint_le(mb.n_seqs, size * SLOT / 2);
            ck_assert_uint_le(mb.max_len, SLOT);
            for (uint64_t s = 0; s < mb.n_seqs; s++) {
                const struct pl_sample *sample = &b.samples[mb.samples[s]];
                int32_t at = mb.offsets[s];
                ck_assert(!seen[mb.samples[s]]);
                seen[mb.samples[s]] = true;
                ck_assert_int_eq(mb.offsets[s + 1] - at, (int)sample->n);
                ck_assert_int_eq(mb.ids[at], sample->ids[0]);
                ck_assert_int_eq(mb.positions[at], 0);
                ck_assert_int_eq(mb.positions[mb.offsets[s + 1] - 1], (int)sample->n - 1);
            }
            tokens += mb.n_tokens;
            targets += mb.n_targets;
        }
        ck_assert_uint_eq(tokens, b.tokens);
        ck_assert_uint_eq(targets, b.targets);
        pl_micro_batch_finish(&mb);
    }
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

/* W4 of walk.h */
START_TEST(a_step_ends_with_its_epoch) {
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    packed_rows(&f);
    pl_walk_init(&w, 0, 60, false, 0);
    for (uint64_t pack = 0; pack <= SLOT; pack += SLOT) {
        const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = pack};
        ck_assert_int_eq(pl_step_batch_load(&b, &from, 57, 8, &f.d), PL_ERR_OK);
        ck_assert_uint_eq(b.n, 3);
        ck_assert_uint_eq(b.slots, pack ? 1 + b.slot[2] : 3);
        ck_assert_int_eq(b.samples[0].ids[0], 57);
    }
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

START_TEST(rows_that_train_nothing_do_not_hold_a_step_for_ever) {
    struct fixture f;
    struct pl_walk w;
    struct pl_step_batch b = {0};
    packed_rows(&f);
    pl_walk_init(&w, 6, 1, true, 1);
    w.circle = true;
    const struct pl_batch_source from = {.data = f.data, .walk = &w, .pack_tokens = SLOT};
    ck_assert_int_eq(pl_step_batch_load(&b, &from, 0, 3, &f.d), PL_ERR_OK);
    ck_assert_uint_eq(b.n, 3 * SLOT / 2);
    ck_assert_uint_eq(b.tokens, 0);
    pl_step_batch_finish(&b);
    fixture_finish(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("walk");
    TCase *t = tcase_create("mix");
    tcase_add_loop_test(t, weights_of_one_keep_the_order_of_before, 0, 2);
    tcase_add_loop_test(t, an_epoch_holds_weight_times_rows_of_every_file, 0, N_WEIGHTS);
    tcase_add_loop_test(t, over_epochs_every_row_of_a_file_is_visited_equally_often, 0, N_WEIGHTS);
    tcase_add_test(t, the_mix_is_even_along_an_epoch);
    tcase_add_test(t, without_shuffle_the_files_follow_each_other);
    tcase_add_test(t, held_out_rows_are_in_no_epoch);
    tcase_add_loop_test(t, every_file_gives_its_share_of_what_is_held_out, 0, 47);
    tcase_add_test(t, what_is_kept_stays_in_its_order);
    tcase_add_test(t, the_seed_decides_what_is_held_out);
    tcase_add_test(t, the_entries_of_a_split_are_opened_and_no_others);
    suite_add_tcase(suite, t);
    t = tcase_create("packing");
    tcase_add_loop_test(t, packed_steps_follow_each_other_without_a_gap, 1, 9);
    tcase_add_test(t, a_packed_micro_batch_fits_its_plan_and_loses_nothing);
    tcase_add_test(t, a_step_ends_with_its_epoch);
    tcase_add_test(t, rows_that_train_nothing_do_not_hold_a_step_for_ever);
    suite_add_tcase(suite, t);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
