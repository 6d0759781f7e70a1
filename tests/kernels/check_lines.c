/* check_lines.c - gradients of experts that are larger than the caches are written past them, as
 * whole lines: with the bits that a product of one expert has, which is written as usual, at every
 * level and from any number of threads. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The result has 72 MiB. The last expert has no rows, others an odd number of them. */
enum { EXPERTS = 24, O = 768, K = 2048, ROWS = 400, MOST_THREADS = 3, SCRATCH = 32 << 20 };

static struct pl_device *devices[MOST_THREADS];
static struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
static uint32_t n_levels;
static uint16_t dy[ROWS * O], x[ROWS * K];
static int32_t ends[EXPERTS + 1];
static _Alignas(256) uint16_t all[(uint64_t)EXPERTS * O * K], one[(uint64_t)O * K];
static _Alignas(256) uint8_t scratch[SCRATCH];

static void setup(void) {
    struct pl_diag d = {0};
    uint32_t drawn = 7;
    n_levels = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    for (uint32_t i = 0; i < MOST_THREADS; i++)
        if (pl_device_open(&pl_back_end_cpu, i + 1, PL_NO_BUDGET, &devices[i], &d) != PL_ERR_OK)
            ck_abort_msg("%s", d.message);
    for (uint64_t i = 0; i < ROWS * K; i++) {
        drawn = drawn * 1664525u + 1013904223u;
        x[i] = (uint16_t)(0x3F00 + (drawn >> 16) % 256 + (drawn >> 31 << 15));
        dy[i % (ROWS * O)] = (uint16_t)(0x3F00 + (drawn >> 8) % 256);
    }
    for (int32_t e = 1; e < EXPERTS; e++)
        ends[e] = ROWS * e / (EXPERTS - 1);
    ends[EXPERTS] = ROWS;
}

static void teardown(void) {
    for (uint32_t i = 0; i < MOST_THREADS; i++)
        pl_device_close(&devices[i]);
}

static struct pl_view matrix(uint16_t *p, uint64_t rows, uint64_t cols) {
    return (struct pl_view){.p = p, .rows = rows, .cols = cols, .ld = cols, .dtype = PL_DTYPE_BF16};
}

static struct pl_product_matrix matrix_of(const struct pl_view *v) {
    return (struct pl_product_matrix){v->rows, v->cols, v->dtype};
}

/* call: its operands but for the scratch. */
static void run(uint32_t level, uint32_t threads, enum pl_op_kind kind, uint32_t ws,
                struct pl_call *call) {
    static const struct pl_batch batch = {.first = true};
    struct pl_device *dev = devices[threads - 1];
    const struct pl_product_matrix m[] = {matrix_of(&call->in[0]), matrix_of(&call->in[1]),
                                          matrix_of(&call->out[0])};
    const uint64_t bytes = pl_product_workspace_bytes(&dev->traits, kind, call->attr, m);
    ck_assert_uint_le(bytes, SCRATCH);
    call->batch = &batch;
    call->in[ws] = (struct pl_view){scratch, bytes, 1, 1, PL_DTYPE_U8};
    memset(scratch, 0xFF, bytes);
    memset(call->out[0].p, 0xFF, call->out[0].rows * call->out[0].cols * sizeof(uint16_t));
    const pl_kernel_fn kernel = pl_back_end_cpu.kernels->tables[levels[level].number][kind];
    ck_assert_int_eq(kernel(dev, call), PL_ERR_OK);
}

static void gradient_of_all(uint32_t level, uint32_t threads, float alpha) {
    const struct pl_attr attr = {.alpha = alpha, .expert_rows = O};
    struct pl_call call = {.attr = &attr};
    call.in[PL_GROUPED_LINEAR_DW_DY] = matrix(dy, ROWS, O);
    call.in[PL_GROUPED_LINEAR_DW_X] = matrix(x, ROWS, K);
    call.in[PL_GROUPED_LINEAR_DW_OFFSETS] = (struct pl_view){ends, EXPERTS + 1, 1, 1, PL_DTYPE_I32};
    call.out[0] = matrix(all, (uint64_t)EXPERTS * O, K);
    run(level, threads, PL_OP_GROUPED_LINEAR_DW, PL_GROUPED_LINEAR_DW_WS, &call);
}

static void gradient_of_one(uint32_t level, int32_t e, float alpha) {
    const struct pl_attr attr = {.alpha = alpha};
    struct pl_call call = {.attr = &attr};
    const uint64_t rows = (uint64_t)(ends[e + 1] - ends[e]);
    call.in[PL_LINEAR_DW_DY] = matrix(dy + (uint64_t)ends[e] * O, rows, O);
    call.in[PL_LINEAR_DW_X] = matrix(x + (uint64_t)ends[e] * K, rows, K);
    call.out[0] = matrix(one, O, K);
    run(level, 1, PL_OP_LINEAR_DW, PL_LINEAR_DW_WS, &call);
}

/* _i: threads - 1. An alpha of 1 has a rounding of its own. */
START_TEST(gradients_past_the_caches_are_those_of_single_experts) {
    for (uint32_t level = 0; level < n_levels; level++)
        for (int half = 0; half < 2; half++) {
            const float alpha = half ? 0.5f : 1.0f;
            gradient_of_all(level, (uint32_t)_i + 1, alpha);
            for (int32_t e = 0; e < EXPERTS; e++) {
                gradient_of_one(level, e, alpha);
                ck_assert_msg(memcmp(all + (uint64_t)e * O * K, one, sizeof one) == 0,
                              "%s, %d threads, alpha %g: other bits for expert %d",
                              levels[level].name, _i + 1, (double)alpha, e);
            }
        }
}
END_TEST

int main(void) {
    Suite *s = suite_create("lines");
    TCase *tc = tcase_create("gradients");
    tcase_add_unchecked_fixture(tc, setup, teardown);
    tcase_add_loop_test(tc, gradients_past_the_caches_are_those_of_single_experts, 0, MOST_THREADS);
    tcase_set_timeout(tc, 0);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK);
    srunner_run_all(sr, CK_NORMAL);
    const int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
