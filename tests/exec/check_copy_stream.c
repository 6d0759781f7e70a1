/* check_copy_stream.c - ops between ranks run while others compute, and nothing touches what one of
 * them still moves; on a device that only takes notes. */
#include "runtime/comm/comm.h"
#include "runtime/exec/exec.h"
#include "estimator/program/cost.h"
#include "tests/plan/planning.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { UNDER_WAY = 4096 };

static struct pl_exec e;

static struct {
    bool begun;              /* between begin and end */
    uint32_t last, awaited;  /* numbers of ops of the copy stream */
    uint32_t ops[UNDER_WAY]; /* by number: which op it was */
    uint32_t on_copy_stream; /* ops of the copy stream */
    double backward, beside; /* FLOPs of the backward pass; of those, while an op was under way */
    uint32_t ran, refuses_after,
        refusals;      /* ops; begins fail once so many ops are there */
    uint32_t fails_at; /* an op; PL_NONE */
} notes;

static pl_err begin(struct pl_device *dev) {
    (void)dev;
    ck_assert(!notes.begun);
    if (notes.refusals && notes.last >= notes.refuses_after) {
        notes.refusals--;
        return PL_ERR_DEVICE_OOM;
    }
    notes.begun = true;
    return PL_ERR_OK;
}

static pl_err end(struct pl_device *dev, uint32_t number) {
    (void)dev;
    ck_assert(notes.begun);
    notes.begun = false;
    ck_assert_uint_gt(number, notes.last);
    ck_assert_uint_lt(number, UNDER_WAY);
    for (uint32_t k = notes.last + 1; k < number; k++)
        notes.ops[k] = PL_NONE;
    notes.ops[number] = notes.ops[0];
    notes.last = number;
    notes.on_copy_stream++;
    return PL_ERR_OK;
}

static pl_err await(struct pl_device *dev, uint32_t number) {
    (void)dev;
    ck_assert_uint_le(number, notes.last);
    if (number > notes.awaited) notes.awaited = number;
    return PL_ERR_OK;
}

static const struct pl_device_ops ops = {.name = "notes",
                                         .copy_stream_begin = begin,
                                         .copy_stream_end = end,
                                         .copy_stream_await = await};

/* True if two operands share bytes. */
static bool share(const struct pl_view *a, const struct pl_view *b) {
    if (!a->p || !b->p || !a->rows || !b->rows) return false;
    const char *x = a->p, *y = b->p;
    return x < y + ((b->rows - 1) * b->ld + b->cols) * pl_dtype_bytes(b->dtype) &&
           y < x + ((a->rows - 1) * a->ld + a->cols) * pl_dtype_bytes(a->dtype);
}

static bool writes(const struct pl_op *op, int k) {
    return pl_op_rows[op->kind].in[k].use == PL_USE_SCRATCH;
}

static void expect_apart(uint32_t i, uint32_t j) {
    const struct pl_op *op = &e.plan->program->ops[i], *moves = &e.plan->program->ops[j];
    const struct pl_call *a = &e.calls[i], *b = &e.calls[j];
    bool meet = false;
    for (int k = 0; k < op->n_out; k++) {
        for (int m = 0; m < moves->n_in; m++)
            meet |= share(&a->out[k], &b->in[m]);
        for (int m = 0; m < moves->n_out; m++)
            meet |= share(&a->out[k], &b->out[m]);
    }
    for (int k = 0; k < op->n_in; k++) {
        for (int m = 0; m < moves->n_in; m++)
            meet |= writes(op, k) && share(&a->in[k], &b->in[m]);
        for (int m = 0; m < moves->n_out; m++)
            meet |= share(&a->in[k], &b->out[m]);
    }
    ck_assert_msg(!meet, "op %u (%s) runs while op %u (%s) still moves what it touches", i,
                  pl_op_name(op->kind), j, pl_op_name(moves->kind));
}

static void count_flops(const struct pl_op *op) {
    if (!op->backward) return;
    notes.backward += op->flops;
    if (notes.awaited < notes.last) notes.beside += op->flops;
}

static pl_err note(struct pl_device *dev, const struct pl_call *c) {
    const uint32_t i = (uint32_t)(c - e.calls);
    (void)dev;
    notes.ran++;
    if (i == notes.fails_at) return PL_ERR_DEVICE_OOM;
    notes.ops[0] = i;
    if (notes.begun) return PL_ERR_OK;
    count_flops(&e.plan->program->ops[i]);
    for (uint32_t k = notes.awaited + 1; k <= notes.last; k++)
        if (notes.ops[k] != PL_NONE) expect_apart(i, notes.ops[k]);
    return PL_ERR_OK;
}

/* --- plans ----------------------------------------------------------------------------------- */

static struct pl_model model;
static struct pl_planned planned;
static pl_kernel_fn kernels[PL_OP_COUNT];
static struct pl_comm comm;
static struct pl_device dev = {.ops = &ops, .kernels = kernels, .comm = &comm};

static void open_ranks(uint32_t mode, uint32_t ranks, uint32_t sharding, bool order) {
    pl_test_model("SmolLM2-135M", &model);
    struct pl_job_shape s = pl_test_shape(&model, mode, PL_RECOMPUTE_FULL, 1, 64);
    s.ranks = ranks;
    s.rank = ranks - 1;
    s.sharding = sharding;
    s.rank_order = order;
    pl_test_plan(&planned, &s, &model);
    for (int k = 0; k < PL_OP_COUNT; k++)
        kernels[k] = note;
    memset(&notes, 0, sizeof notes);
    notes.fails_at = PL_NONE;
    ck_assert_int_eq(pl_exec_init(&e, planned.plan, &dev, NULL), PL_ERR_OK);
    const struct pl_arena job = {(void *)(UINT64_C(1) << 40), planned.plan->job_bytes};
    const struct pl_arena batch = {(void *)(UINT64_C(1) << 50), planned.plan->batch_bytes};
    ck_assert_int_eq(pl_exec_bind(&e, &job, &batch, NULL), PL_ERR_OK);
    e.batch = (struct pl_batch){.n_tokens = 64, .n_seqs = 1, .n_targets = 63, .first = true};
}

static void open_plan(uint32_t mode, uint32_t ranks, uint32_t sharding) {
    open_ranks(mode, ranks, sharding, true);
}

static void close_plan(void) {
    pl_exec_finish(&e);
    pl_planned_finish(&planned);
    dev.comm = &comm;
}

static const uint32_t shardings[] = {PL_SHARDING_NONE, PL_SHARDING_OPTIMIZER, PL_SHARDING_GRADIENTS,
                                     PL_SHARDING_WEIGHTS};
static const uint32_t modes[] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA};

/* A1 of copy_stream.h, to A3, for every mode, sharding and two numbers of ranks; and, E6, next to
 * all of the backward pass is computed while something is under way. */
START_TEST(nothing_touches_what_is_under_way) {
    open_plan(modes[_i / 8], _i % 2 ? 3 : 2, shardings[_i / 2 % 4]);
    for (int phase = 0; phase < PL_PHASE_COUNT; phase++) {
        if (phase == PL_PHASE_LOAD || phase == PL_PHASE_SAVE) continue;
        ck_assert_int_eq(pl_exec_run_phase(&e, (enum pl_phase)phase, NULL), PL_ERR_OK);
        ck_assert_uint_eq(notes.awaited, notes.last);
    }
    ck_assert_double_gt(notes.beside, 0.9 * notes.backward);
    ck_assert_uint_gt(notes.on_copy_stream, 0);
    close_plan();
}
END_TEST

/* A1 to A3 where gradients are exchanged once a step. */
START_TEST(nothing_touches_what_one_exchange_has_under_way) {
    open_ranks(modes[_i / 2], 3, shardings[_i % 2], false);
    ck_assert_int_eq(pl_exec_run_phase(&e, PL_PHASE_MICRO, NULL), PL_ERR_OK);
    ck_assert_uint_eq(notes.on_copy_stream, 0);
    ck_assert_int_eq(pl_exec_run_phase(&e, PL_PHASE_OPTIMIZER, NULL), PL_ERR_OK);
    ck_assert_uint_gt(notes.on_copy_stream, 0);
    ck_assert_uint_eq(notes.awaited, notes.last);
    close_plan();
}
END_TEST

/* A3 where an op fails while others are under way. */
START_TEST(what_is_under_way_is_waited_for_after_a_failure) {
    open_plan(PL_MODE_FULL, 2, PL_SHARDING_WEIGHTS);
    const struct pl_phase_range *r = &planned.program->phases[PL_PHASE_MICRO];
    notes.fails_at = r->first_op + r->n_ops / 2;
    while (planned.program->ops[notes.fails_at].kind != PL_OP_LINEAR)
        notes.fails_at++;
    ck_assert_int_eq(pl_exec_run_phase(&e, PL_PHASE_MICRO, NULL), PL_ERR_DEVICE_OOM);
    ck_assert(e.muted);
    ck_assert_uint_gt(notes.last, 0);
    ck_assert_uint_eq(notes.awaited, notes.last);
    close_plan();
}
END_TEST

/* A4 of copy_stream.h. */
START_TEST(alone_or_under_a_clock_all_ops_run_in_order) {
    struct pl_op_time *times;
    open_plan(PL_MODE_FULL, 2, PL_SHARDING_GRADIENTS);
    times = calloc(planned.program->n_ops, sizeof *times);
    ck_assert_ptr_nonnull(times);
    if (_i) e.times = times;
    if (!_i) dev.comm = NULL;
    ck_assert_int_eq(pl_exec_run_phase(&e, PL_PHASE_MICRO, NULL), PL_ERR_OK);
    ck_assert_uint_eq(notes.on_copy_stream, 0);
    free(times);
    close_plan();
}
END_TEST

/* A4: other ranks get what they wait for. */
START_TEST(what_cannot_begin_on_the_stream_runs_in_order) {
    open_plan(PL_MODE_FULL, 2, PL_SHARDING_WEIGHTS);
    notes.refuses_after = _i ? 20 : 0;
    notes.refusals = 1;
    ck_assert_int_eq(pl_exec_run_phase(&e, PL_PHASE_MICRO, NULL), PL_ERR_OK);
    ck_assert_uint_eq(notes.refusals, 0);
    ck_assert_uint_eq(notes.ran, planned.program->phases[PL_PHASE_MICRO].n_ops);
    ck_assert_uint_eq(notes.on_copy_stream, notes.refuses_after);
    ck_assert_uint_eq(notes.awaited, notes.last);
    close_plan();
}
END_TEST

int main(void) {
    Suite *s = suite_create("exec.copy_stream");
    TCase *tc = tcase_create("copy_stream");
    tcase_add_loop_test(tc, nothing_touches_what_is_under_way, 0, 24);
    tcase_add_loop_test(tc, nothing_touches_what_one_exchange_has_under_way, 0, 6);
    tcase_add_test(tc, what_is_under_way_is_waited_for_after_a_failure);
    tcase_add_loop_test(tc, what_cannot_begin_on_the_stream_runs_in_order, 0, 2);
    tcase_add_loop_test(tc, alone_or_under_a_clock_all_ops_run_in_order, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
