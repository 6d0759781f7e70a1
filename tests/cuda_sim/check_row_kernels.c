/* check_row_kernels.c - what the CUDA kernels of rows and updates promise beyond their arithmetic:
 * refusals, what a bad index does that only the device can see, and the CPU's random bits. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_cuda_rows.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 3, COLS = 8, N = 20001, MOST_OPERANDS = 8 };

static struct machine machine;
static float a[ROWS * COLS], b[ROWS * COLS], o[ROWS * COLS], w[COLS], dw[COLS], stat[ROWS];
static int32_t positions[ROWS], targets[ROWS];
static double loss[2], partials[1];
static unsigned char ws[1 << 16];

static const struct pl_attr attr = {
    .heads = 1, .head_dim = COLS, .rot_dim = COLS, .eps = 1e-6f, .gradient = true};
static const struct pl_batch batch = {
    .n_tokens = ROWS, .n_seqs = 1, .first = true, .loss_scale = 1};

static void open_all(void) {
    machine_open(&machine);
    for (int i = 0; i < ROWS * COLS; i++)
        a[i] = b[i] = 0.25f * (float)(i % 5 + 1);
    for (int i = 0; i < ROWS; i++)
        positions[i] = targets[i] = 0, stat[i] = 1;
    loss[0] = 0;
}

static void close_all(void) {
    machine_close(&machine);
}

static struct pl_view matrix(float *x) {
    return (struct pl_view){x, ROWS, COLS, COLS, PL_DTYPE_F32};
}

static struct pl_view vector(void *x, uint64_t n, enum pl_dtype dtype) {
    return (struct pl_view){x, n, 1, 1, dtype};
}

static uint64_t bytes_of(const struct pl_view *v) {
    return v->rows * v->ld * pl_dtype_bytes(v->dtype);
}

/* ---- a call whose views lie in host memory ---- */

struct copies {
    const void *host[MOST_OPERANDS];
    void *device[MOST_OPERANDS];
    uint64_t bytes[MOST_OPERANDS];
    int n;
};

static void place(struct copies *k, const struct runner *r, struct pl_view *v) {
    int i = 0;
    if (!v->p) return;
    while (i < k->n && k->host[i] != v->p)
        i++;
    if (i == k->n) {
        ck_assert_int_lt(k->n, MOST_OPERANDS);
        k->host[i] = v->p;
        k->bytes[i] = bytes_of(v);
        k->device[i] = machine_put(r, v->p, k->bytes[i]);
        k->n++;
    }
    v->p = k->device[i];
}

static pl_err run(const struct runner *r, enum pl_op_kind kind, const struct pl_call *call) {
    struct copies k = {0};
    struct pl_call c = *call;
    machine_turn_to(r);
    const struct pl_batch described = machine_describe(r, call->batch);
    c.batch = &described;
    for (int i = 0; i < PL_OP_MAX_IN; i++)
        place(&k, r, &c.in[i]);
    for (int i = 0; i < PL_OP_MAX_OUT; i++)
        place(&k, r, &c.out[i]);
    const pl_err err = r->kernels[kind](r->dev, &c);
    for (int i = 0; i < k.n; i++)
        machine_take(r, (void *)(uintptr_t)k.host[i], k.device[i], k.bytes[i]);
    return err;
}

static struct pl_call call_of(enum pl_op_kind kind) {
    struct pl_call c = {.attr = &attr, .batch = &batch};
    const struct pl_view scratch = vector(ws, sizeof ws, PL_DTYPE_U8);
    c.in[0] = matrix(a);
    switch (kind) {
    case PL_OP_CROSS_ENTROPY:
        c.in[1] = vector(targets, ROWS, PL_DTYPE_I32), c.in[2] = vector(loss, 2, PL_DTYPE_F64);
        c.in[3] = scratch;
        c.out[0] = c.in[0], c.out[1] = c.in[2];
        break;
    case PL_OP_SQUARE_SUM:
        c.in[1] = c.out[0] = vector(partials, 1, PL_DTYPE_F64), c.in[2] = scratch;
        break;
    case PL_OP_ROPE:
        c.in[1] = vector(positions, ROWS, PL_DTYPE_I32), c.in[2] = matrix(b);
        c.out[0] = c.in[0];
        break;
    default: /* RMSNORM_BWD, QK_NORM_BWD */
        c.in[1] = matrix(b), c.in[2] = vector(w, COLS, PL_DTYPE_F32);
        c.in[3] = vector(stat, ROWS, PL_DTYPE_F32), c.in[4] = scratch;
        c.out[0] = matrix(o), c.out[1] = vector(dw, COLS, PL_DTYPE_F32);
    }
    return c;
}

/* ---- refusals ---- */

static const struct {
    enum pl_op_kind kind;
    uint32_t ws_slot;
} scratch_users[] = {{PL_OP_RMSNORM_BWD, 4},
                     {PL_OP_QK_NORM_BWD, 4},
                     {PL_OP_CROSS_ENTROPY, 3},
                     {PL_OP_SQUARE_SUM, 2}};

START_TEST(a_workspace_one_byte_short_is_a_broken_plan) {
    const enum pl_op_kind kind = scratch_users[_i].kind;
    const struct runner *r = &machine.runners[0];
    struct pl_call c = call_of(kind);
    struct pl_view *scratch = &c.in[scratch_users[_i].ws_slot];
    scratch->rows = pl_op_workspace_bytes(&r->dev->traits, kind, &attr, ROWS, COLS);
    ck_assert_uint_gt(scratch->rows, 0);
    ck_assert_int_eq(run(r, kind, &c), PL_ERR_OK);
    scratch->rows--;
    ck_assert_int_eq(run(r, kind, &c), PL_ERR_PLAN_BROKEN);
}
END_TEST

START_TEST(a_square_sum_is_one_partial) {
    struct pl_call c = call_of(PL_OP_SQUARE_SUM);
    c.out[0].rows = 2;
    ck_assert_int_eq(run(&machine.runners[0], PL_OP_SQUARE_SUM, &c), PL_ERR_PLAN_BROKEN);
}
END_TEST

/* ---- what only the device can see ---- */

START_TEST(a_target_outside_the_vocabulary_makes_the_loss_nan) {
    static const int32_t wrong[] = {-100, -1, COLS};
    const struct pl_call c = call_of(PL_OP_CROSS_ENTROPY);
    targets[ROWS - 1] = wrong[_i];
    for (uint32_t i = 0; i < machine.n; i++) {
        loss[0] = 0;
        ck_assert_int_eq(run(&machine.runners[i], PL_OP_CROSS_ENTROPY, &c), PL_ERR_OK);
        ck_assert(isnan(loss[0]));
    }
}
END_TEST

START_TEST(a_nan_logit_makes_the_loss_nan) {
    const struct pl_call c = call_of(PL_OP_CROSS_ENTROPY);
    for (uint32_t i = 0; i < machine.n; i++) {
        loss[0] = 0;
        a[COLS + 3] = NAN;
        ck_assert_int_eq(run(&machine.runners[i], PL_OP_CROSS_ENTROPY, &c), PL_ERR_OK);
        ck_assert(isnan(loss[0]));
    }
}
END_TEST

START_TEST(a_position_outside_the_table_makes_its_row_nan_and_no_other) {
    static const int32_t wrong[] = {-1, ROWS, INT32_MAX};
    const struct pl_call c = call_of(PL_OP_ROPE);
    positions[1] = wrong[_i];
    for (uint32_t i = 0; i < machine.n; i++) {
        for (int k = 0; k < ROWS * COLS; k++)
            a[k] = 1;
        ck_assert_int_eq(run(&machine.runners[i], PL_OP_ROPE, &c), PL_ERR_OK);
        for (int k = 0; k < ROWS * COLS; k++)
            if (isnan(a[k]) != (k / COLS == 1)) ck_abort_msg("a[%d] is %g", k, (double)a[k]);
    }
}
END_TEST

/* ---- stochastic rounding ---- */

static uint16_t weights[N + 1], of_cpu[N + 1];
static float gradient[N];
static double clip[2] = {0, 1};

/* w = 1 - rate * gradient without a rounding before the last, so that back-ends must agree. `first`
 * is where the tensor begins: element 1 is off 16 bytes, where packs cannot go. */
static struct pl_call sgd_call(const struct pl_attr *site, const struct pl_batch *step,
                               uint64_t first) {
    struct pl_call c = {.attr = site, .batch = step};
    for (int i = 0; i <= N; i++)
        weights[i] = 0x3F80;
    c.in[0] = c.out[0] = vector(weights + first, N, PL_DTYPE_BF16);
    c.in[1] = vector(gradient, N, PL_DTYPE_F32);
    c.in[2] = vector(clip, 2, PL_DTYPE_F64);
    return c;
}

/* The weights at byte 2 of an allocation. */
static pl_err run_off_16_bytes(const struct runner *r, const struct pl_call *call) {
    struct pl_call c = *call;
    machine_turn_to(r);
    const struct pl_batch described = machine_describe(r, call->batch);
    c.batch = &described;
    char *copy = machine_put(r, weights, sizeof weights);
    c.in[0].p = c.out[0].p = copy + sizeof *weights;
    c.in[1].p = machine_put(r, gradient, sizeof gradient);
    c.in[2].p = machine_put(r, clip, sizeof clip);
    const pl_err err = r->kernels[PL_OP_SGD](r->dev, &c);
    machine_take(r, weights, copy, sizeof weights);
    machine_take(r, gradient, c.in[1].p, sizeof gradient);
    machine_take(r, clip, c.in[2].p, sizeof clip);
    return err;
}

START_TEST(an_element_rounds_with_the_random_bits_of_the_cpu) {
    const struct pl_attr site = {.site = 5};
    const struct pl_batch step = {.seed = 11, .step = 3, .learning_rate = 0x1p-9};
    const uint64_t first = (uint64_t)_i;
    struct pl_device *cpu = NULL;
    ck_assert_int_eq(pl_device_open(&pl_back_end_cpu, 1, PL_NO_BUDGET, &cpu, NULL), PL_ERR_OK);
    for (int i = 0; i < N; i++)
        gradient[i] = (float)(i % 3);
    struct pl_call c = sgd_call(&site, &step, first);
    ck_assert_int_eq(cpu->kernels[PL_OP_SGD](cpu, &c), PL_ERR_OK);
    pl_device_close(&cpu);
    memcpy(of_cpu, weights, sizeof weights);
    for (uint32_t i = 0; i < machine.n; i++) {
        const struct runner *r = &machine.runners[i];
        c = sgd_call(&site, &step, first);
        ck_assert_int_eq(first ? run_off_16_bytes(r, &c) : run(r, PL_OP_SGD, &c), PL_ERR_OK);
        ck_assert_mem_eq(weights, of_cpu, sizeof weights);
    }
}
END_TEST

/* The NaN is the one that GPUs make: random bits added to it would carry into the sign. */
START_TEST(infinity_and_nan_survive_rounding) {
    static const uint32_t gpu_nan = 0x7FFFFFFF;
    const struct pl_attr site = {.site = 5};
    const struct pl_batch step = {.seed = 11, .step = 3, .learning_rate = 1e-3};
    for (uint32_t i = 0; i < machine.n; i++) {
        memset(gradient, 0, sizeof gradient);
        gradient[3] = INFINITY;
        memcpy(&gradient[N - 1], &gpu_nan, sizeof gpu_nan);
        const struct pl_call c = sgd_call(&site, &step, 0);
        ck_assert_int_eq(run(&machine.runners[i], PL_OP_SGD, &c), PL_ERR_OK);
        ck_assert_uint_eq(weights[3], 0xFF80);
        ck_assert_uint_eq(weights[4], 0x3F80);
        ck_assert_msg((weights[N - 1] & 0x7FFF) > 0x7F80, "%04x is no NaN", weights[N - 1]);
    }
}
END_TEST

/* ---- the order of a sum of squares ---- */

enum { BLOCK = 256, WARP = 32, RUN = PL_CUDA_SQUARE_ELEMENTS, SUMMED = 2 * RUN + 777 };

static float sum_in_pairs(float *x, int n) {
    for (int half = n / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

/* Returns the sum of a thread of the block whose run begins at `run`, which reads packs of
 * `pack`. */
static float thread_squares(const float *g, int run, int thread, int pack) {
    float packs[RUN / BLOCK] = {0}, f[8];
    for (int p = 0; p < RUN / BLOCK / pack; p++) {
        for (int k = 0; k < pack; k++) {
            const int i = run + (p * BLOCK + thread) * pack + k;
            f[k] = i < SUMMED ? g[i] * g[i] : 0;
        }
        packs[p] = sum_in_pairs(f, pack);
    }
    return sum_in_pairs(packs, RUN / BLOCK / pack);
}

/* A warp in fp32, in pairs; warps and blocks in fp64, where these sums are exact. */
static double squares_in_order(const float *g, int pack) {
    double sum = 0;
    for (int run = 0; run < SUMMED; run += RUN)
        for (int warp = 0; warp < BLOCK; warp += WARP) {
            float lanes[WARP];
            for (int lane = 0; lane < WARP; lane++)
                lanes[lane] = thread_squares(g, run, warp + lane, pack);
            sum += (double)sum_in_pairs(lanes, WARP);
        }
    return sum;
}

static const struct {
    enum pl_dtype dtype;
    int pack, least; /* the least of the integers that are squared, a power of two */
} summed[] = {{PL_DTYPE_F32, 4, 2048}, {PL_DTYPE_BF16, 8, 128}};

/* Integers whose squares are exact in fp32, so that it does not matter whether a compiler fuses the
 * product with the sum. */
START_TEST(squares_are_summed_in_pairs_in_fp32_and_beyond_a_warp_in_fp64) {
    static float g[SUMMED];
    static uint16_t narrow[SUMMED];
    const int least = summed[_i].least;
    double exact = 0;
    for (int i = 0; i < SUMMED; i++) {
        g[i] = (float)(least + (i * 997 + 1) % least);
        exact += (double)g[i] * (double)g[i];
        uint32_t bits;
        memcpy(&bits, &g[i], sizeof bits);
        narrow[i] = (uint16_t)(bits >> 16);
    }
    struct pl_call c = call_of(PL_OP_SQUARE_SUM);
    void *stored = summed[_i].dtype == PL_DTYPE_F32 ? (void *)g : narrow;
    c.in[0] = vector(stored, SUMMED, summed[_i].dtype);
    ck_assert_int_eq(run(&machine.runners[0], PL_OP_SQUARE_SUM, &c), PL_ERR_OK);
    ck_assert_double_eq(partials[0], squares_in_order(g, summed[_i].pack));
    ck_assert_double_le(fabs(partials[0] - exact), 10 * 0x1p-24 * exact);
}
END_TEST

/* ---- strips of norms ---- */

/* A team of 160 threads for a norm, so a block walks its strip of three norms one after another.
 * The last strip has one. Norm i has the numbers of norm i % KINDS. */
enum { KINDS = 5, NORMS = 2 * PL_CUDA_NORM_BLOCKS + 2, DIM = 2064 };
static uint16_t norm_dy[NORMS * DIM], norm_x[NORMS * DIM], norm_dx[NORMS * DIM], norm_w[DIM];
static float norm_rstd[NORMS], norm_dw[DIM];
static unsigned char norm_ws[PL_CUDA_NORM_BLOCKS * DIM * sizeof(float)];

static uint16_t bf16_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float quarters(int i, int salt) {
    return (float)((i * 7 + salt * 11) % 13 - 6) / 4;
}

static void fill_norms(void) {
    for (int i = 0; i < NORMS; i++) {
        const int kind = i % KINDS;
        norm_rstd[i] = 1.0f / (float)(1 << kind);
        for (int c = 0; c < DIM; c++) {
            norm_dy[i * DIM + c] = bf16_of(quarters(c, kind));
            norm_x[i * DIM + c] = bf16_of(quarters(c, 3 * kind + 1));
        }
    }
    for (int c = 0; c < DIM; c++)
        norm_w[c] = bf16_of(quarters(c, 2));
}

static void run_norms(const struct runner *r, uint64_t first, uint64_t n) {
    const struct pl_attr norm = {.eps = 1e-6f};
    struct pl_call c = {.attr = &norm, .batch = &batch};
    c.in[0] = (struct pl_view){norm_dy + first * DIM, n, DIM, DIM, PL_DTYPE_BF16};
    c.in[1] = (struct pl_view){norm_x + first * DIM, n, DIM, DIM, PL_DTYPE_BF16};
    c.in[2] = vector(norm_w, DIM, PL_DTYPE_BF16);
    c.in[3] = vector(norm_rstd + first, n, PL_DTYPE_F32);
    c.in[4] = vector(norm_ws, sizeof norm_ws, PL_DTYPE_U8);
    c.out[0] = (struct pl_view){norm_dx + first * DIM, n, DIM, DIM, PL_DTYPE_BF16};
    c.out[1] = vector(norm_dw, DIM, PL_DTYPE_F32);
    ck_assert_int_eq(run(r, PL_OP_RMSNORM_BWD, &c), PL_ERR_OK);
}

/* Every sum of products of quarters is exact in fp32, whatever its order. */
static float exact_dw(int c) {
    float sum = 0;
    for (int i = 0; i < NORMS; i++)
        sum += quarters(c, i % KINDS) * quarters(c, 3 * (i % KINDS) + 1) * norm_rstd[i];
    return sum;
}

START_TEST(norms_of_a_strip_get_the_bits_of_a_norm_alone) {
    static uint16_t together[NORMS * DIM];
    const struct runner *r = &machine.runners[0];
    fill_norms();
    run_norms(r, 0, NORMS);
    memcpy(together, norm_dx, sizeof together);
    for (int c = 0; c < DIM; c++)
        ck_assert_float_eq(norm_dw[c], exact_dw(c));
    for (uint64_t kind = 0; kind < KINDS; kind++) {
        run_norms(r, kind, 1);
        for (uint64_t i = kind; i < NORMS; i += KINDS)
            ck_assert_mem_eq(together + i * DIM, norm_dx + kind * DIM, DIM * sizeof *norm_dx);
    }
}
END_TEST

/* ---- sizes ---- */

/* More runs than blocks: the blocks come round again, the last with a part of a run. */
START_TEST(a_square_sum_counts_every_element_of_a_large_tensor) {
    const uint64_t n = PL_CUDA_SQUARE_BLOCKS * PL_CUDA_SQUARE_ELEMENTS + 5001;
    uint16_t *g = malloc(n * sizeof *g);
    ck_assert_ptr_nonnull(g);
    for (uint64_t i = 0; i < n; i++)
        g[i] = 0x3F80;
    struct pl_call c = call_of(PL_OP_SQUARE_SUM);
    c.in[0] = vector(g, n, PL_DTYPE_BF16);
    ck_assert_int_eq(run(&machine.runners[0], PL_OP_SQUARE_SUM, &c), PL_ERR_OK);
    ck_assert_double_eq(partials[0], (double)n);
    free(g);
}
END_TEST

int main(void) {
    Suite *s = suite_create("rows on CUDA");
    TCase *tc = tcase_create("kernels");
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, open_all, close_all);
    tcase_add_loop_test(tc, a_workspace_one_byte_short_is_a_broken_plan, 0, 4);
    tcase_add_test(tc, a_square_sum_is_one_partial);
    tcase_add_loop_test(tc, a_target_outside_the_vocabulary_makes_the_loss_nan, 0, 3);
    tcase_add_test(tc, a_nan_logit_makes_the_loss_nan);
    tcase_add_loop_test(tc, a_position_outside_the_table_makes_its_row_nan_and_no_other, 0, 3);
    tcase_add_loop_test(tc, an_element_rounds_with_the_random_bits_of_the_cpu, 0, 2);
    tcase_add_test(tc, infinity_and_nan_survive_rounding);
    tcase_add_loop_test(tc, squares_are_summed_in_pairs_in_fp32_and_beyond_a_warp_in_fp64, 0, 2);
    tcase_add_test(tc, norms_of_a_strip_get_the_bits_of_a_norm_alone);
    tcase_add_test(tc, a_square_sum_counts_every_element_of_a_large_tensor);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
