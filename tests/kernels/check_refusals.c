/* check_refusals.c - kernels refuse a broken plan and carry NaN to where it can be seen. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/grouped_call.h"

#include <check.h>
#include <math.h>

enum { ROWS = 3, COLS = 8, WS_BYTES = 1 << 20 };

static struct pl_device *device;
static struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
static uint32_t n_levels;

static float a[ROWS * COLS], b[ROWS * COLS], c[ROWS * COLS], o[ROWS * COLS], w[COLS], stat[ROWS];
static float dq[ROWS * COLS], dk[ROWS * COLS], dv[ROWS * COLS];
static int32_t offsets[] = {0, ROWS, ROWS, ROWS}, positions[ROWS], targets[ROWS];
static double loss[2];
static _Alignas(256) unsigned char ws[WS_BYTES];

static void open_device(void) {
    struct pl_diag d = {0};
    n_levels = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    if (pl_device_open(&pl_back_end_cpu, 1, PL_NO_BUDGET, &device, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        a[i] = b[i] = c[i] = 0.25f * (float)(i % 5);
    for (uint32_t i = 0; i < ROWS; i++)
        positions[i] = targets[i] = 0, stat[i] = 1;
    loss[0] = 0;
}

static void close_device(void) {
    pl_device_close(&device);
}

static struct pl_view matrix(float *x) {
    return (struct pl_view){x, ROWS, COLS, COLS, PL_DTYPE_F32};
}

static struct pl_view vector(void *x, uint64_t n, enum pl_dtype dtype) {
    return (struct pl_view){x, n, 1, 1, dtype};
}

static const struct pl_attr attr = {.heads = 1,
                                    .kv_heads = 1,
                                    .head_dim = COLS,
                                    .rot_dim = COLS,
                                    .scale = 1,
                                    .eps = 1e-6f,
                                    .gradient = true};
static const struct pl_batch batch = {
    .n_tokens = ROWS, .n_seqs = 1, .max_len = ROWS, .first = true, .loss_scale = 1};

static struct pl_call call_of(enum pl_op_kind kind) {
    struct pl_call call = {.attr = &attr, .batch = &batch};
    const struct pl_view scratch = vector(ws, WS_BYTES, PL_DTYPE_U8);
    const struct pl_view seqs = vector(offsets, 2, PL_DTYPE_I32);
    const struct pl_view rows = vector(stat, ROWS, PL_DTYPE_F32);
    call.in[0] = matrix(a), call.in[1] = matrix(b), call.in[2] = matrix(c);
    call.out[0] = matrix(o);
    switch (kind) {
    case PL_OP_ATTENTION:
        call.in[3] = seqs, call.in[4] = scratch;
        call.out[1] = rows;
        break;
    case PL_OP_ATTENTION_BWD:
        call.in[3] = matrix(o), call.in[4] = rows, call.in[5] = matrix(c), call.in[6] = seqs;
        call.in[7] = scratch;
        call.out[0] = matrix(dq), call.out[1] = matrix(dk), call.out[2] = matrix(dv);
        break;
    case PL_OP_RMSNORM_BWD:
    case PL_OP_QK_NORM_BWD:
        call.in[2] = vector(w, COLS, PL_DTYPE_F32), call.in[3] = rows, call.in[4] = scratch;
        call.out[1] = vector(dq, COLS, PL_DTYPE_F32);
        break;
    case PL_OP_CROSS_ENTROPY:
        call.in[1] = vector(targets, ROWS, PL_DTYPE_I32);
        call.in[2] = vector(loss, 2, PL_DTYPE_F64), call.in[3] = scratch;
        call.out[0] = matrix(a), call.out[1] = call.in[2];
        break;
    default: /* ROPE */
        call.in[1] = vector(positions, ROWS, PL_DTYPE_I32);
        call.out[0] = matrix(a);
    }
    return call;
}

static pl_err run(enum pl_op_kind kind, uint32_t level, const struct pl_call *call) {
    return pl_back_end_cpu.kernels->tables[levels[level].number][kind](device, call);
}

static const struct {
    enum pl_op_kind kind;
    uint32_t ws_slot;
} scratch_users[] = {{PL_OP_ATTENTION, 4},
                     {PL_OP_ATTENTION_BWD, 7},
                     {PL_OP_RMSNORM_BWD, 4},
                     {PL_OP_QK_NORM_BWD, 4},
                     {PL_OP_CROSS_ENTROPY, 3}};

START_TEST(a_workspace_one_byte_short_is_a_broken_plan) {
    const enum pl_op_kind kind = scratch_users[_i].kind;
    struct pl_call call = call_of(kind);
    struct pl_view *scratch = &call.in[scratch_users[_i].ws_slot];
    scratch->rows = pl_op_workspace_bytes(&device->traits, kind, &attr, ROWS, COLS);
    for (uint32_t l = 0; l < n_levels; l++)
        ck_assert_int_eq(run(kind, l, &call), PL_ERR_OK);
    scratch->rows--;
    for (uint32_t l = 0; l < n_levels; l++)
        ck_assert_int_eq(run(kind, l, &call), PL_ERR_PLAN_BROKEN);
}
END_TEST

START_TEST(a_target_outside_the_vocabulary_is_refused) {
    static const int32_t wrong[] = {-100, -1, COLS};
    const struct pl_call call = call_of(PL_OP_CROSS_ENTROPY);
    targets[ROWS - 1] = wrong[_i];
    for (uint32_t l = 0; l < n_levels; l++)
        ck_assert_int_eq(run(PL_OP_CROSS_ENTROPY, l, &call), PL_ERR_PLAN_BROKEN);
    ck_assert_double_eq(loss[0], 0);
}
END_TEST

START_TEST(a_position_outside_the_rope_table_is_refused) {
    static const int32_t wrong[] = {-1, ROWS};
    const struct pl_call call = call_of(PL_OP_ROPE);
    positions[1] = wrong[_i];
    for (uint32_t l = 0; l < n_levels; l++)
        ck_assert_int_eq(run(PL_OP_ROPE, l, &call), PL_ERR_PLAN_BROKEN);
}
END_TEST

START_TEST(a_nan_logit_makes_the_loss_nan) {
    for (uint32_t l = 0; l < n_levels; l++) {
        const struct pl_call call = call_of(PL_OP_CROSS_ENTROPY);
        loss[0] = 0;
        a[COLS + 3] = NAN;
        ck_assert_int_eq(run(PL_OP_CROSS_ENTROPY, l, &call), PL_ERR_OK);
        ck_assert(isnan(loss[0]));
    }
}
END_TEST

/* A NaN key spoils the queries that see it and no other. */
START_TEST(a_nan_key_is_seen_by_later_queries_only) {
    for (uint32_t l = 0; l < n_levels; l++) {
        const struct pl_call call = call_of(PL_OP_ATTENTION);
        b[COLS] = NAN;
        ck_assert_int_eq(run(PL_OP_ATTENTION, l, &call), PL_ERR_OK);
        ck_assert(!isnan(o[0]) && isnan(o[COLS]) && isnan(o[2 * COLS]));
        ck_assert(!isnan(stat[0]) && isnan(stat[1]) && isnan(stat[2]));
    }
}
END_TEST

/* The matrices of in[0], in[1] and out[0]: P rows, E experts of O rows each, K columns. */
enum { P = 6, E = 3, O = 5, K = 4 };
static const struct {
    bool (*is_sound)(const struct pl_call *c);
    uint64_t size[3][2];
} grouped[] = {{pl_grouped_linear_is_sound, {{P, K}, {E * O, K}, {P, O}}},
               {pl_grouped_linear_dx_is_sound, {{P, O}, {E * O, K}, {P, K}}},
               {pl_grouped_linear_dw_is_sound, {{P, O}, {P, K}, {E * O, K}}}};

/* C1: whole experts, and an end for each; C2: both sides agree on P, O and K. */
START_TEST(a_grouped_product_of_unsound_operands_is_refused) {
    static const struct pl_attr of_experts = {.expert_rows = O};
    for (int broken = 0; broken < 9; broken++) {
        struct pl_call call = {.attr = &of_experts};
        struct pl_view *const views[] = {&call.in[0], &call.in[1], &call.out[0]};
        call.in[2] = vector(offsets, E + 1, PL_DTYPE_I32);
        for (int i = 0; i < 3; i++) {
            const uint64_t *size = grouped[_i].size[i];
            *views[i] = (struct pl_view){a, size[0], size[1], size[1], PL_DTYPE_F32};
            if (broken == i + 1) views[i]->rows--;
            if (broken == i + 4) views[i]->cols--;
        }
        if (broken == 7) call.in[2].rows--;
        if (broken == 8) call.in[2].dtype = PL_DTYPE_F32;
        ck_assert_msg(grouped[_i].is_sound(&call) == (broken == 0), "mistake %d", broken);
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("refusals");
    TCase *tc = tcase_create("kernels");
    tcase_add_checked_fixture(tc, open_device, close_device);
    tcase_add_loop_test(tc, a_workspace_one_byte_short_is_a_broken_plan, 0, 5);
    tcase_add_loop_test(tc, a_target_outside_the_vocabulary_is_refused, 0, 3);
    tcase_add_loop_test(tc, a_position_outside_the_rope_table_is_refused, 0, 2);
    tcase_add_loop_test(tc, a_grouped_product_of_unsound_operands_is_refused, 0, 3);
    tcase_add_test(tc, a_nan_logit_makes_the_loss_nan);
    tcase_add_test(tc, a_nan_key_is_seen_by_later_queries_only);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
