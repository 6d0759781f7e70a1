/* check_together.c - calls that run as one: the bits of one by one, in a few launches. */
#include "estimator/base/checked.h"
#include "estimator/ops/quant_layout.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_cuda_rows.h"
#include "estimator/program/optimizer_rows.h"
#include "runtime/device/device.h"
#include "tests/cuda_sim/sim.h"
#include "tests/kernels/runners.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* There are more calls than one launch takes, of every size that a kernel treats in its own way:
 * none, less than a pack, less than a block, several blocks and a part of one. */
enum { CALLS = 300, POOL = 40 << 20 };
static const uint64_t sizes[] = {0, 1, 7, 256, 300, 2048, 5001, 8, 20000, 4096, 64};
#define N_SIZES (sizeof sizes / sizeof *sizes)

static struct machine machine;
static unsigned char pool[POOL]; /* tensors of the calls, one after the other */
static uint64_t used;
static struct pl_attr attrs[CALLS];
static struct pl_call calls[CALLS];
static const struct pl_batch batch = {.seed = 7,
                                      .step = 3,
                                      .learning_rate = 0.01,
                                      .weight_decay = 0.1,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8};

static void open_all(void) {
    machine_open(&machine);
}

static void close_all(void) {
    machine_close(&machine);
}

/* Makes a tensor `skew` elements after an aligned address. Moments are not negative; codes are
 * any. */
static struct pl_view tensor(uint64_t n, enum pl_dtype dtype, uint64_t skew) {
    const uint64_t size = pl_dtype_bytes(dtype);
    struct pl_view v = {pool + used + skew * size, n, 1, 1, dtype};
    used += pl_u64_div_up((n + skew + 1) * size, 256) * 256;
    ck_assert_uint_le(used, POOL);
    for (uint64_t i = 0; i < n; i++) {
        const float x = 0.125f * (float)(1 + (i * 37 + used) % 29);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == PL_DTYPE_F32)
            ((uint32_t *)v.p)[i] = bits;
        else if (dtype == PL_DTYPE_BF16)
            ((uint16_t *)v.p)[i] = (uint16_t)(bits >> 16);
        else if (dtype == PL_DTYPE_U8)
            ((uint8_t *)v.p)[i] = (uint8_t)(i * 11 + used / 256);
        else
            ((double *)v.p)[i] = (double)x;
    }
    return v;
}

static struct pl_view moment(uint64_t n, bool in_codes, struct pl_view *absmax) {
    if (in_codes) *absmax = tensor(pl_state8_blocks(n), PL_DTYPE_F32, 0);
    return tensor(n, in_codes ? PL_DTYPE_U8 : PL_DTYPE_F32, 0);
}

static uint32_t n_states(const struct pl_optimizer *optimizer) {
    uint32_t n = 0;
    while (optimizer->states[n].name)
        n++;
    return n;
}

/* Storage, masters, decay and alignment change from call to call, each with a period of its own. */
static struct pl_call update_call(const struct pl_optimizer *optimizer, uint32_t i,
                                  struct pl_view clip) {
    const uint64_t n = sizes[i % N_SIZES], skew = i % 13 == 5;
    const enum pl_dtype w = i % 3 == 0 ? PL_DTYPE_F32 : PL_DTYPE_BF16;
    const bool has_master = w == PL_DTYPE_BF16 && i % 4 == 1, in_codes = n && i % 2;
    const struct pl_view master = has_master ? tensor(n, PL_DTYPE_F32, 0) : (struct pl_view){0};
    struct pl_call c = {.attr = &attrs[i], .batch = &batch};
    attrs[i] = (struct pl_attr){.decay = i % 5 < 3, .site = i * 3, .first_element = i % 7 * 8};
    c.in[0] = tensor(n, w, skew);
    c.in[1] = tensor(n, i % 7 < 3 ? PL_DTYPE_F32 : PL_DTYPE_BF16, 0);
    struct pl_view *next = &c.in[2], *scales = next + n_states(optimizer) + 1;
    for (const struct pl_state *s = optimizer->states; s->name; s++) {
        struct pl_view none, *of = s->form->block ? scales++ : &none;
        *next++ = moment(n, s->form->block && in_codes, of);
    }
    *next = clip;
    *scales = master;
    return c;
}

static struct pl_call square_call(uint32_t i) {
    const uint64_t n = sizes[i % N_SIZES];
    struct pl_call c = {.attr = &attrs[i], .batch = &batch};
    attrs[i] = (struct pl_attr){0};
    c.in[0] = tensor(n, i % 3 == 0 ? PL_DTYPE_F32 : PL_DTYPE_BF16, i % 13 == 5);
    c.in[1] = c.out[0] = tensor(1, PL_DTYPE_F64, 0);
    const uint64_t ws =
        pl_op_workspace_bytes(&machine.runners[0].dev->traits, PL_OP_SQUARE_SUM, &attrs[i], n, 1);
    if (ws) c.in[2] = tensor(ws, PL_DTYPE_U8, 0);
    return c;
}

/* Group 0 sums squares; the others are the updates of the optimizers. */
static const struct pl_optimizer *optimizer_of(int group) {
    return pl_optimizer_row((uint32_t)group - 1);
}

static enum pl_op_kind kind_of(int group) {
    return group ? optimizer_of(group)->op : PL_OP_SQUARE_SUM;
}

static void make_calls(int group) {
    used = 0;
    memset(pool, 0, sizeof pool);
    const struct pl_view clip = tensor(2, PL_DTYPE_F64, 0);
    for (uint32_t i = 0; i < CALLS; i++)
        calls[i] = group ? update_call(optimizer_of(group), i, clip) : square_call(i);
}

/* The first n calls on a copy of the pool in the device's memory; what became of it is left in the
 * pool. */
static void run_made(const struct runner *r, enum pl_op_kind kind, uint32_t n, bool together) {
    machine_turn_to(r);
    unsigned char *copy = machine_put(r, pool, used);
    const struct pl_batch described = machine_describe(r, &batch);
    for (uint32_t i = 0; i < n; i++) {
        calls[i].batch = &described;
        for (int k = 0; k < PL_OP_MAX_IN; k++)
            if (calls[i].in[k].p)
                calls[i].in[k].p = copy + ((unsigned char *)calls[i].in[k].p - pool);
        if (calls[i].out[0].p)
            calls[i].out[0].p = copy + ((unsigned char *)calls[i].out[0].p - pool);
    }
    const uint64_t before = plsim_counters.launches;
    if (together)
        ck_assert_int_eq(r->dev->groups[kind](r->dev, calls, n), PL_ERR_OK);
    else
        for (uint32_t i = 0; i < n; i++)
            ck_assert_int_eq(r->kernels[kind](r->dev, &calls[i]), PL_ERR_OK);
    /* three launches' worth of tensors, each in at most five storages */
    if (together) ck_assert_uint_le(plsim_counters.launches - before, 3 * 5);
    machine_take(r, pool, copy, used);
}

static void run_calls(const struct runner *r, int group, bool together) {
    make_calls(group);
    run_made(r, kind_of(group), CALLS, together);
}

START_TEST(many_tensors_in_one_launch_get_the_bits_of_one_by_one) {
    unsigned char *alone = malloc(POOL);
    ck_assert_ptr_nonnull(alone);
    run_calls(&machine.runners[0], _i, false);
    memcpy(alone, pool, POOL);
    make_calls(_i);
    ck_assert_msg(memcmp(alone, pool, used) != 0, "the calls changed nothing");
    for (uint32_t k = 0; k < machine.n; k++) {
        run_calls(&machine.runners[k], _i, true);
        ck_assert_mem_eq(pool, alone, used);
    }
    free(alone);
}
END_TEST

/* Matrices of every kind of row: whole packs, and any; all columns of y, and some of them. */
static void make_narrow_calls(void) {
    static const uint64_t cols[] = {8, 5, 64, 16, 1}, before[] = {0, 8, 3};
    used = 0;
    memset(pool, 0, sizeof pool);
    for (uint32_t i = 0; i < CALLS; i++) {
        const uint64_t rows = sizes[i % N_SIZES] % 100, k = cols[i % 5], from = before[i % 3];
        const uint64_t width = from + k + (i % 2 ? 8 : 0);
        struct pl_call *c = &calls[i];
        attrs[i] = (struct pl_attr){.first_element = from};
        *c = (struct pl_call){.attr = &attrs[i], .batch = &batch};
        c->in[0] = tensor(rows * k, PL_DTYPE_F32, 0);
        c->out[0] = tensor(rows * width, i % 7 ? PL_DTYPE_BF16 : PL_DTYPE_F32, 0);
        c->in[0].rows = c->out[0].rows = rows;
        c->in[0].cols = c->in[0].ld = k;
        c->out[0].cols = c->out[0].ld = width;
    }
}

START_TEST(many_matrices_are_narrowed_in_one_launch) {
    unsigned char *alone = malloc(POOL);
    ck_assert_ptr_nonnull(alone);
    make_narrow_calls();
    run_made(&machine.runners[0], PL_OP_NARROW, CALLS, false);
    memcpy(alone, pool, used);
    make_narrow_calls();
    ck_assert_msg(memcmp(alone, pool, used) != 0, "the calls changed nothing");
    for (uint32_t k = 0; k < machine.n; k++) {
        make_narrow_calls();
        run_made(&machine.runners[k], PL_OP_NARROW, CALLS, true);
        ck_assert_mem_eq(pool, alone, used);
    }
    free(alone);
}
END_TEST

/* --- gradients by products of the library ----------------------------------------------------- */

/* Parts of dy and a side by side, as fused modules have them; dW in six places. */
enum { TOKENS = 37, PARTS = 4, OUT = 24, RANK = 8, PLACES = 6 };

static struct pl_view window(struct pl_view v, uint64_t rows, uint64_t cols, uint64_t ld,
                             uint64_t col) {
    return (struct pl_view){(char *)v.p + col * pl_dtype_bytes(v.dtype), rows, cols, ld, v.dtype};
}

/* The gradients of a row are one product with those of the row before it that has the same number
 * of one. */
static const struct gradient {
    uint32_t product, part, place, out;
    float alpha;
    enum pl_accumulate accumulate;
} gradients[] = {
    {0, 0, 0, OUT, 2, PL_ACC_WRITE}, {0, 1, 1, OUT, 2, PL_ACC_WRITE},
    {0, 2, 2, OUT, 2, PL_ACC_WRITE}, {1, 3, 4, OUT, 2, PL_ACC_WRITE}, /* farther away */
    {2, 0, 1, 16, 2, PL_ACC_ADD},                                     /* of another shape */
    {3, 1, 5, OUT, 2, PL_ACC_ADD},   {4, 2, 3, OUT, 2, PL_ACC_ADD},   /* at a lower address */
    {5, 3, 4, OUT, 3, PL_ACC_ADD},   {6, 0, 0, OUT, 3, PL_ACC_ADD},
    {7, 1, 1, OUT, 3, PL_ACC_WRITE}, /* writes where the one before adds */
};
enum { GRADIENTS = sizeof gradients / sizeof *gradients };

/* Returns the bytes of the pool before the scratch. */
static uint64_t make_gradient_calls(const struct runner *r) {
    used = 0;
    const struct pl_view dy = tensor((uint64_t)TOKENS * PARTS * OUT, PL_DTYPE_BF16, 0);
    const struct pl_view a = tensor((uint64_t)TOKENS * PARTS * RANK, PL_DTYPE_BF16, 0);
    struct pl_view dw[PLACES];
    for (int i = 0; i < PLACES; i++)
        dw[i] = tensor((uint64_t)OUT * RANK, PL_DTYPE_F32, 0);
    const struct pl_product_matrix m[3] = {
        {TOKENS, OUT, PL_DTYPE_BF16}, {TOKENS, RANK, PL_DTYPE_BF16}, {OUT, RANK, PL_DTYPE_F32}};
    const uint64_t bytes =
        pl_product_workspace_bytes(&r->dev->traits, PL_OP_LINEAR_DW, &attrs[0], m);
    const uint64_t tensors = used;
    const struct pl_view ws = {pool + used, bytes, 1, 1, PL_DTYPE_U8};
    used += bytes;
    ck_assert_uint_le(used, POOL);
    for (uint32_t i = 0; i < GRADIENTS; i++) {
        const struct gradient *g = &gradients[i];
        struct pl_call *c = &calls[i];
        attrs[i] = (struct pl_attr){.alpha = g->alpha, .accumulate = g->accumulate};
        *c = (struct pl_call){.attr = &attrs[i], .batch = &batch};
        c->in[PL_LINEAR_DW_DY] = window(dy, TOKENS, g->out, PARTS * OUT, g->part * OUT);
        c->in[PL_LINEAR_DW_X] = window(a, TOKENS, RANK, PARTS * RANK, g->part * RANK);
        c->in[PL_LINEAR_DW_WS] = ws;
        c->in[PL_LINEAR_DW_DW] = c->out[0] = window(dw[g->place], g->out, RANK, RANK, 0);
    }
    return tensors;
}

START_TEST(gradients_of_one_shape_are_one_product) {
    static unsigned char alone[1 << 16];
    uint64_t bytes = make_gradient_calls(&machine.runners[0]);
    ck_assert_uint_le(bytes, sizeof alone);
    run_made(&machine.runners[0], PL_OP_LINEAR_DW, GRADIENTS, false);
    ck_assert_uint_eq(plsim_counters.matmuls, GRADIENTS);
    memcpy(alone, pool, bytes);
    for (uint32_t k = 0; k < machine.n; k++) {
        bytes = make_gradient_calls(&machine.runners[k]);
        ck_assert_msg(memcmp(alone, pool, bytes) != 0, "the calls changed nothing");
        run_made(&machine.runners[k], PL_OP_LINEAR_DW, GRADIENTS, true);
        ck_assert_uint_eq(plsim_counters.matmuls, gradients[GRADIENTS - 1].product + 1);
        ck_assert_mem_eq(pool, alone, bytes);
    }
}
END_TEST

/* --- modules in 4 bits ------------------------------------------------------------------------ */

enum { UNPACKED = 20, COLUMNS = 64, OF_ONE_CODE = 7 };

/* The modules of a matrix, some with nested scales; the type of their codes changes twice. */
static void make_unpack_calls(void) {
    static const uint64_t rows[] = {3, 1, 160, 40, 300};
    used = 0;
    memset(pool, 0, sizeof pool);
    const struct pl_view w = tensor(COLUMNS * 3000, PL_DTYPE_BF16, 0);
    uint64_t row = 0;
    for (uint32_t i = 0; i < UNPACKED; i++) {
        const uint64_t n = rows[i % 5] * COLUMNS;
        struct pl_call *c = &calls[i];
        attrs[i] = (struct pl_attr){.quant = i / OF_ONE_CODE % 2 ? PL_QUANT_FP4 : PL_QUANT_NF4};
        *c = (struct pl_call){.attr = &attrs[i], .batch = &batch};
        c->in[PL_DEQUANT4_CODES] = tensor(pl_quant_codes_bytes(n), PL_DTYPE_U8, 0);
        c->in[PL_DEQUANT4_ABSMAX] =
            tensor(i % 2 ? pl_quant_nests(n) : pl_quant_blocks(n), PL_DTYPE_F32, 0);
        if (i % 2) c->in[PL_DEQUANT4_ABSMAX8] = tensor(pl_quant_blocks(n), PL_DTYPE_U8, 0);
        if (i % 2) c->in[PL_DEQUANT4_OFFSET] = tensor(1, PL_DTYPE_F32, 0);
        c->out[0] = window(w, rows[i % 5], COLUMNS, COLUMNS, row * COLUMNS);
        row += rows[i % 5];
    }
}

START_TEST(modules_in_4_bits_are_unpacked_in_one_launch) {
    const uint64_t bytes = 3000 * COLUMNS * 2;
    unsigned char *alone = malloc(bytes);
    ck_assert_ptr_nonnull(alone);
    make_unpack_calls();
    run_made(&machine.runners[0], PL_OP_DEQUANT4, UNPACKED, false);
    memcpy(alone, pool, bytes);
    for (uint32_t k = 0; k < machine.n; k++) {
        make_unpack_calls();
        ck_assert_msg(memcmp(alone, pool, bytes) != 0, "the calls changed nothing");
        run_made(&machine.runners[k], PL_OP_DEQUANT4, UNPACKED, true);
        ck_assert_uint_eq(plsim_counters.launches, 3);
        ck_assert_mem_eq(pool, alone, bytes);
    }
    free(alone);
}
END_TEST

/* Two tensors of as many blocks of moments as two multiprocessors have warps in a launch, so that
 * each warp goes from the first tensor to the second. */
static void make_large_calls(void) {
    const uint64_t n = UINT64_C(2) * 64 * 8 * PL_STATE8_BLOCK;
    used = 0;
    const struct pl_view clip = tensor(2, PL_DTYPE_F64, 0);
    for (uint32_t i = 0; i < 2; i++) {
        struct pl_call *c = &calls[i];
        attrs[i] = (struct pl_attr){.site = 3 + 5 * i};
        *c = (struct pl_call){.attr = &attrs[i], .batch = &batch};
        c->in[0] = tensor(n, PL_DTYPE_BF16, 0);
        c->in[1] = tensor(n, PL_DTYPE_BF16, 0);
        c->in[2] = moment(n, true, &c->in[5]);
        c->in[3] = moment(n, true, &c->in[6]);
        c->in[4] = clip;
    }
}

START_TEST(a_warp_rounds_each_tensor_by_its_own_numbers) {
    const struct runner *r = &machine.runners[1]; /* of two multiprocessors */
    unsigned char *alone = malloc(POOL);
    ck_assert_ptr_nonnull(alone);
    make_large_calls();
    run_made(r, PL_OP_ADAMW_8BIT, 2, false);
    memcpy(alone, pool, used);
    make_large_calls();
    ck_assert_msg(memcmp(alone, pool, used) != 0, "the calls changed nothing");
    run_made(r, PL_OP_ADAMW_8BIT, 2, true);
    ck_assert_mem_eq(pool, alone, used);
    free(alone);
}
END_TEST

/* A tensor's blocks repeat after as many as it has, not as many as were launched. */
START_TEST(a_large_tensor_beside_a_small_one_is_summed_whole) {
    const uint64_t n = PL_CUDA_SQUARE_BLOCKS * PL_CUDA_SQUARE_ELEMENTS + 5001;
    const struct runner *r = &machine.runners[0];
    uint16_t *ones = malloc(n * sizeof *ones);
    double sums[2] = {0};
    machine_turn_to(r);
    ck_assert_ptr_nonnull(ones);
    for (uint64_t i = 0; i < n; i++)
        ones[i] = 0x3F80;
    void *g = machine_put(r, ones, n * sizeof *ones), *out = machine_put(r, sums, sizeof sums);
    void *ws = machine_put(r, pool, 2 * 8 * PL_CUDA_SQUARE_BLOCKS);
    for (int i = 0; i < 2; i++) {
        calls[i] = (struct pl_call){.attr = &attrs[0], .batch = &batch};
        calls[i].in[0] = (struct pl_view){g, i ? 300 : n, 1, 1, PL_DTYPE_BF16};
        calls[i].in[1] = (struct pl_view){(double *)out + i, 1, 1, 1, PL_DTYPE_F64};
        calls[i].in[2] = (struct pl_view){(double *)ws + i * (int)PL_CUDA_SQUARE_BLOCKS,
                                          8 * PL_CUDA_SQUARE_BLOCKS, 1, 1, PL_DTYPE_U8};
        calls[i].out[0] = calls[i].in[1];
    }
    ck_assert_int_eq(r->dev->groups[PL_OP_SQUARE_SUM](r->dev, calls, 2), PL_ERR_OK);
    machine_take(r, ones, g, n * sizeof *ones);
    machine_take(r, pool, ws, 2 * 8 * PL_CUDA_SQUARE_BLOCKS);
    machine_take(r, sums, out, sizeof sums);
    ck_assert_double_eq(sums[0], (double)n);
    ck_assert_double_eq(sums[1], 300);
    free(ones);
}
END_TEST

START_TEST(one_broken_call_among_many_is_a_broken_plan) {
    const struct runner *r = &machine.runners[0];
    machine_turn_to(r);
    make_calls(_i);
    const struct pl_batch described = machine_describe(r, &batch);
    calls[0].batch = &described;
    calls[1] = calls[0]; /* without an element: nothing that lies in host memory is touched */
    calls[1].in[0].dtype = PL_DTYPE_I32;
    ck_assert_int_eq(r->dev->groups[kind_of(_i)](r->dev, calls, 2), PL_ERR_PLAN_BROKEN);
    ck_assert_uint_eq(plsim_counters.launches, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("calls that run as one");
    TCase *tc = tcase_create("groups");
    uint32_t n_optimizers;
    pl_optimizer_table(&n_optimizers);
    const int n = 1 + (int)n_optimizers;
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, open_all, close_all);
    tcase_add_loop_test(tc, many_tensors_in_one_launch_get_the_bits_of_one_by_one, 0, n);
    tcase_add_test(tc, many_matrices_are_narrowed_in_one_launch);
    tcase_add_test(tc, gradients_of_one_shape_are_one_product);
    tcase_add_test(tc, modules_in_4_bits_are_unpacked_in_one_launch);
    tcase_add_test(tc, a_warp_rounds_each_tensor_by_its_own_numbers);
    tcase_add_test(tc, a_large_tensor_beside_a_small_one_is_summed_whole);
    tcase_add_loop_test(tc, one_broken_call_among_many_is_a_broken_plan, 0, n);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
