/* check_dropout.c - the mask of DROPOUT: its rate, its scale, and what it depends on. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/rng.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { COLS = 1030, LONGEST = 40, MOST = 4 * LONGEST };

static struct pl_device *device;
static struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
static uint32_t n_levels;

static void open_device(void) {
    struct pl_diag d = {0};
    n_levels = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    if (pl_device_open(&pl_back_end_cpu, 2, PL_NO_BUDGET, &device, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
}

static void close_device(void) {
    pl_device_close(&device);
}

struct batch {
    uint32_t n_seqs;
    int32_t offsets[5];
    uint64_t samples[4];
    struct pl_attr attr;
    struct pl_batch facts;
};

/* Sequences of the given lengths; every sample number is its own. */
static struct batch make(uint32_t n_seqs, const uint32_t *lengths, const uint64_t *samples) {
    struct batch b = {.n_seqs = n_seqs};
    for (uint32_t i = 0; i < n_seqs; i++) {
        b.offsets[i + 1] = b.offsets[i] + (int32_t)lengths[i];
        b.samples[i] = samples[i];
    }
    b.attr = (struct pl_attr){.dropout = 0.3f, .site = 5};
    b.facts = (struct pl_batch){
        .n_seqs = n_seqs, .n_tokens = (uint64_t)b.offsets[n_seqs], .seed = 42, .step = 9};
    return b;
}

static struct pl_view matrix(float *x, uint64_t rows) {
    return (struct pl_view){x, rows, COLS, COLS, PL_DTYPE_F32};
}

static void run(enum pl_op_kind kind, uint32_t level, struct batch *b, float *x, float *y) {
    const uint64_t rows = b->facts.n_tokens;
    const bool backward = kind == PL_OP_DROPOUT_BWD;
    struct pl_call c = {.attr = &b->attr, .batch = &b->facts};
    struct pl_view *in = c.in;
    if (backward) *in++ = matrix(y, rows);
    *in++ = matrix(x, rows);
    *in++ = (struct pl_view){b->offsets, b->n_seqs + 1, 1, 1, PL_DTYPE_I32};
    *in = (struct pl_view){b->samples, b->n_seqs, 1, 1, PL_DTYPE_U64};
    c.out[0] = matrix(y, rows);
    ck_assert_int_eq(pl_back_end_cpu.kernels->tables[levels[level].number][kind](device, &c),
                     PL_ERR_OK);
}

static const uint32_t all_lengths[] = {LONGEST, 1, LONGEST, LONGEST};
static const uint64_t all_samples[] = {1000000007, 3, 4, 0};

/* x = 1 everywhere, so that y is 0 or 1/(1-p). */
static float *forward(uint32_t level, struct batch *b) {
    static float x[MOST * COLS];
    float *y = malloc(sizeof x);
    ck_assert_ptr_nonnull(y);
    for (uint32_t i = 0; i < MOST * COLS; i++)
        x[i] = 1.0f;
    run(PL_OP_DROPOUT, level, b, x, y);
    return y;
}

START_TEST(the_rate_is_p_and_what_is_kept_is_scaled) {
    struct batch b = make(4, all_lengths, all_samples);
    float *y = forward((uint32_t)_i % n_levels, &b);
    const uint32_t n = (uint32_t)b.facts.n_tokens * COLS;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        ck_assert(y[i] == 0.0f || fabsf(y[i] - 1 / 0.7f) < 1e-6f);
        kept += y[i] != 0.0f;
    }
    /* Four standard deviations of a binomial. */
    ck_assert_double_le(fabs(kept - 0.7 * n), 4 * sqrt(n * 0.3 * 0.7));
    free(y);
}
END_TEST

/* Returns the number that a column of a position has in the stream of its sample. */
static uint32_t number_at(const struct pl_rng *stream, uint64_t position, uint64_t column) {
    uint32_t numbers[4];
    pl_rng_block(stream, position << 32 | column / 4, numbers);
    return numbers[column % 4];
}

START_TEST(an_element_is_kept_by_its_number_of_the_stream) {
    struct batch b = make(4, all_lengths, all_samples);
    float *y = forward((uint32_t)_i % n_levels, &b);
    for (uint32_t s = 0; s < b.n_seqs; s++) {
        const struct pl_rng sample = pl_rng_init(b.facts.seed, b.facts.step, b.samples[s]);
        const struct pl_rng stream = pl_rng_fork(sample, b.attr.site);
        const float *rows = y + b.offsets[s] * COLS;
        for (uint32_t i = 0; i < all_lengths[s] * COLS; i++)
            ck_assert_int_eq(rows[i] != 0, number_at(&stream, i / COLS, i % COLS) >=
                                               (double)b.attr.dropout * 4294967296.0);
    }
    free(y);
}
END_TEST

START_TEST(the_mask_of_a_sample_is_the_same_in_any_batch) {
    struct batch whole = make(4, all_lengths, all_samples);
    const uint32_t one_length[] = {LONGEST - 7};
    struct batch alone = make(1, one_length, all_samples + 2);
    float *a = forward(0, &whole), *b = forward((uint32_t)_i % n_levels, &alone);
    for (uint32_t i = 0; i < one_length[0] * COLS; i++)
        ck_assert_float_eq(a[(uint32_t)whole.offsets[2] * COLS + i], b[i]);
    free(a);
    free(b);
}
END_TEST

static uint32_t differing(const float *a, const float *b, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += a[i] != b[i];
    return count;
}

/* Two independent masks differ in 2 p (1-p) = 42 % of their elements. */
START_TEST(seed_step_sample_site_and_position_each_change_the_mask) {
    static const uint64_t other_samples[] = {1000000007, 3, 5, 0};
    /* The next position, column and block of four, and far columns, which kernels do in chunks. */
    static const uint32_t shifts[] = {COLS, 1, 4, 512};
    struct batch b[5];
    for (uint32_t i = 0; i < 5; i++)
        b[i] = make(4, all_lengths, i == 4 ? other_samples : all_samples);
    b[1].facts.seed++;
    b[2].facts.step++;
    b[3].attr.site++;
    const uint32_t at = (uint32_t)b[0].offsets[2] * COLS, n = LONGEST * COLS;
    float *first = forward(0, &b[0]);
    for (uint32_t i = 1; i < 5; i++) {
        float *y = forward(0, &b[i]);
        const uint32_t count = differing(first + at, y + at, n);
        ck_assert_double_le(fabs(count - 0.42 * n), 0.05 * n);
        free(y);
    }
    for (uint32_t i = 0; i < sizeof shifts / sizeof *shifts; i++) {
        const uint32_t count = differing(first + at, first + at + shifts[i], n - shifts[i]);
        ck_assert_double_le(fabs(count - 0.42 * n), 0.05 * n);
    }
    free(first);
}
END_TEST

START_TEST(the_backward_mask_is_the_forward_mask) {
    struct batch b = make(4, all_lengths, all_samples);
    static float d[MOST * COLS], dx[MOST * COLS];
    const uint32_t n = (uint32_t)b.facts.n_tokens * COLS;
    float *y = forward(0, &b);
    for (uint32_t i = 0; i < n; i++)
        d[i] = 1.0f, dx[i] = 10.0f;
    run(PL_OP_DROPOUT_BWD, (uint32_t)_i % n_levels, &b, d, dx);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_float_eq_tol(dx[i], 10.0f + y[i], 1e-5f);
    free(y);
}
END_TEST

/* Rows [first, first + n) of the batch as a call of their own. */
static void run_window(enum pl_op_kind kind, uint32_t level, struct batch *b, float *x, float *y,
                       uint64_t first, uint64_t n) {
    struct batch w = *b;
    w.attr.first_element = first * COLS;
    w.facts.n_tokens = n;
    run(kind, level, &w, x + first * COLS, y + first * COLS);
}

/* Windows end within sequences and where they do. */
START_TEST(rows_of_a_window_get_the_mask_that_they_get_in_the_whole) {
    static const uint64_t ends[] = {0, 7, LONGEST, LONGEST + 1, 2 * LONGEST, 3 * LONGEST + 1};
    static float x[MOST * COLS], y[MOST * COLS], dx[MOST * COLS];
    const uint32_t level = (uint32_t)_i % n_levels;
    struct batch b = make(4, all_lengths, all_samples);
    float *whole = forward(0, &b);
    const uint32_t n = (uint32_t)b.facts.n_tokens * COLS;
    for (uint32_t i = 0; i < n; i++)
        x[i] = 1.0f, dx[i] = 0.0f;
    for (size_t i = 1; i < sizeof ends / sizeof *ends; i++) {
        run_window(PL_OP_DROPOUT, level, &b, x, y, ends[i - 1], ends[i] - ends[i - 1]);
        run_window(PL_OP_DROPOUT_BWD, level, &b, x, dx, ends[i - 1], ends[i] - ends[i - 1]);
    }
    ck_assert_mem_eq(y, whole, n * sizeof *y);
    ck_assert_mem_eq(dx, whole, n * sizeof *y);
    free(whole);
}
END_TEST

START_TEST(p_of_zero_keeps_everything) {
    struct batch b = make(4, all_lengths, all_samples);
    b.attr.dropout = 0;
    float *y = forward(0, &b);
    for (uint32_t i = 0; i < (uint32_t)b.facts.n_tokens * COLS; i++)
        ck_assert_float_eq(y[i], 1.0f);
    free(y);
}
END_TEST

START_TEST(no_rows_and_empty_sequences_are_fine) {
    static const uint32_t none[] = {0, 0}, some[] = {0, 3, 0, 2};
    struct batch empty = make(2, none, all_samples), ragged = make(4, some, all_samples);
    free(forward(0, &empty));
    free(forward(0, &ragged));
}
END_TEST

int main(void) {
    Suite *s = suite_create("dropout");
    TCase *tc = tcase_create("mask");
    tcase_add_checked_fixture(tc, open_device, close_device);
    tcase_add_loop_test(tc, the_rate_is_p_and_what_is_kept_is_scaled, 0, PL_CPU_MAX_LEVELS);
    tcase_add_loop_test(tc, an_element_is_kept_by_its_number_of_the_stream, 0, PL_CPU_MAX_LEVELS);
    tcase_add_loop_test(tc, the_mask_of_a_sample_is_the_same_in_any_batch, 0, PL_CPU_MAX_LEVELS);
    tcase_add_test(tc, seed_step_sample_site_and_position_each_change_the_mask);
    tcase_add_loop_test(tc, the_backward_mask_is_the_forward_mask, 0, PL_CPU_MAX_LEVELS);
    tcase_add_loop_test(tc, rows_of_a_window_get_the_mask_that_they_get_in_the_whole, 0,
                        PL_CPU_MAX_LEVELS);
    tcase_add_test(tc, p_of_zero_keeps_everything);
    tcase_add_test(tc, no_rows_and_empty_sequences_are_fine);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
