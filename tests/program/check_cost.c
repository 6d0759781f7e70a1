/* check_cost.c - what ops compute and move under a load, and the classes of their seconds. */
#include "estimator/program/cost.h"
#include "tests/plan/planning.h"

#include <check.h>

static struct pl_model model;
static struct pl_planned planned;
static const struct pl_program *p;
static struct pl_speed cpu;

static void plan(uint32_t mode, uint64_t batch, uint64_t length) {
    struct pl_job_shape s;
    pl_test_model("SmolLM2-135M", &model);
    s = pl_test_shape(&model, mode, PL_RECOMPUTE_NONE, batch, length);
    pl_test_plan(&planned, &s, &model);
    p = planned.program;
    cpu = pl_speed_nominal(&p->traits);
}

static void tear_down(void) {
    pl_planned_finish(&planned);
}

static struct pl_load half_of(struct pl_load load) {
    load.tokens /= 2;
    load.targets /= 2;
    return load;
}

static const struct pl_op *first_of(enum pl_op_kind kind) {
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind && pl_op_runs(p, &p->ops[i], 1) > 0) return &p->ops[i];
    ck_abort_msg("no %s", pl_op_name(kind));
}

static double seconds_of(enum pl_op_kind kind, const struct pl_load *load) {
    return pl_op_seconds(p, first_of(kind), &cpu, load);
}

/* --- work ------------------------------------------------------------------------------------ */

START_TEST(the_work_at_capacity_is_that_of_the_shapes) {
    plan(PL_MODE_FULL, 2, 64);
    const struct pl_load full = pl_load_full(p);
    const struct pl_work w = pl_op_work(p, first_of(PL_OP_LINEAR), &full);
    const double n = 128, c = 576, qkv = 576 + 2 * 192; /* heads 9 and 3, of 64 columns */
    ck_assert_double_eq(w.flops, 2 * n * c * qkv);
    ck_assert_double_eq(w.bytes, 2 * (n * c + c * qkv + n * qkv)); /* bf16; scratch is not moved */
    const struct pl_work a = pl_op_work(p, first_of(PL_OP_ATTENTION), &full);
    ck_assert_double_eq(a.flops, 2 * n * c * 64);
    const struct pl_work b = pl_op_work(p, first_of(PL_OP_ATTENTION_BWD), &full);
    ck_assert_double_eq(b.flops, 2.5 * a.flops);
}
END_TEST

START_TEST(the_matrix_that_codes_become_is_written_and_read) {
    plan(PL_MODE_QLORA, 2, 64);
    const struct pl_load full = pl_load_full(p);
    const double n = 128, c = 576, codes = c * c / 2; /* the first module is q */
    const double scales = c * c / PL_QUANT_BLOCK, nests = c * c / PL_QUANT_GROUP;
    const double bytes = pl_op_work(p, first_of(PL_OP_DEQUANT4), &full).bytes;
    ck_assert_double_eq_tol(bytes, 2 * c * c + codes + scales + 4 * nests, 8);
    const double qkv = 576 + 2 * 192;
    const struct pl_op *product = first_of(PL_OP_DEQUANT4);
    while (product->kind != PL_OP_LINEAR)
        product++;
    ck_assert_double_eq(pl_op_work(p, product, &full).bytes,
                        2 * (n * c + c * qkv + 2 * n * qkv)); /* it adds to y */
}
END_TEST

START_TEST(half_the_tokens_are_half_the_work_on_the_same_weights) {
    plan(PL_MODE_FULL, 2, 64);
    const struct pl_load full = pl_load_full(p), half = half_of(full);
    const struct pl_op *op = first_of(PL_OP_LINEAR);
    const struct pl_work a = pl_op_work(p, op, &full), b = pl_op_work(p, op, &half);
    ck_assert_double_eq(b.flops, a.flops / 2);
    const double weights = 2.0 * 576 * 960;
    ck_assert_double_eq(b.bytes - weights, (a.bytes - weights) / 2);
    const struct pl_op *update = first_of(PL_OP_ADAMW);
    ck_assert_double_eq(pl_op_work(p, update, &half).bytes, pl_op_work(p, update, &full).bytes);
}
END_TEST

START_TEST(the_head_follows_the_targets_and_the_trunk_the_tokens) {
    plan(PL_MODE_FULL, 2, 64);
    struct pl_load load = pl_load_full(p);
    const double loss = pl_op_work(p, first_of(PL_OP_CROSS_ENTROPY), &load).bytes,
                 trunk = pl_op_work(p, first_of(PL_OP_SWIGLU), &load).bytes;
    load.targets = 0;
    ck_assert_double_lt(pl_op_work(p, first_of(PL_OP_CROSS_ENTROPY), &load).bytes, loss / 100);
    ck_assert_double_eq(pl_op_work(p, first_of(PL_OP_SWIGLU), &load).bytes, trunk);
    load = pl_load_full(p);
    load.tokens = 0;
    ck_assert_double_eq(pl_op_work(p, first_of(PL_OP_CROSS_ENTROPY), &load).bytes, loss);
}
END_TEST

START_TEST(of_the_table_only_the_rows_of_tokens_are_moved) {
    plan(PL_MODE_FULL, 2, 64);
    const struct pl_load full = pl_load_full(p);
    const double row = 2.0 * 576, n = 128;
    ck_assert_double_eq(pl_op_work(p, first_of(PL_OP_EMBED), &full).bytes, 2 * n * row);
    const struct pl_op *backward = first_of(PL_OP_EMBED_BWD); /* tied: the head wrote it before */
    ck_assert_int_eq(backward->attr.accumulate, PL_ACC_ADD);
    ck_assert_double_eq(pl_op_work(p, backward, &full).bytes, 3 * n * row);
}
END_TEST

START_TEST(short_sequences_spare_attention_and_a_window_bounds_it) {
    plan(PL_MODE_FULL, 2, 64);
    struct pl_load load = pl_load_full(p);
    struct pl_op op = *first_of(PL_OP_ATTENTION);
    const double full = pl_op_work(p, &op, &load).flops;
    load.length = 16;
    ck_assert_double_eq(pl_op_work(p, &op, &load).flops, full / 4);
    op.attr.window = 4;
    ck_assert_double_eq(pl_op_work(p, &op, &load).flops, full / 8);
    op.attr.window = 100;
    ck_assert_double_eq(pl_op_work(p, &op, &load).flops, full / 4);
}
END_TEST

/* --- seconds --------------------------------------------------------------------------------- */

static double rate_of(enum pl_op_kind kind, const struct pl_load *load) {
    return pl_op_work(p, first_of(kind), load).flops / seconds_of(kind, load);
}

START_TEST(attention_gets_faster_with_length) {
    double last = 0;
    for (uint64_t length = 64; length <= 1024; length *= 4) {
        plan(PL_MODE_FULL, 1024 / length, length);
        const struct pl_load full = pl_load_full(p);
        const double rate = rate_of(PL_OP_ATTENTION_BWD, &full);
        ck_assert_double_gt(rate, 1.1 * last);
        ck_assert_double_lt(rate, cpu.flops_per_second);
        last = rate;
        pl_planned_finish(&planned);
    }
}
END_TEST

START_TEST(products_of_few_rows_are_further_from_the_peak) {
    double last = 0;
    for (uint64_t length = 16; length <= 1024; length *= 8) {
        plan(PL_MODE_FULL, 1, length);
        const struct pl_load full = pl_load_full(p);
        const double rate = rate_of(PL_OP_LINEAR_DX, &full);
        ck_assert_double_gt(rate, 1.05 * last);
        ck_assert_double_lt(rate, cpu.flops_per_second);
        last = rate;
        pl_planned_finish(&planned);
    }
}
END_TEST

START_TEST(classes_sum_to_the_step) {
    static const uint32_t modes[] = {PL_MODE_FULL, PL_MODE_LORA, PL_MODE_QLORA};
    plan(modes[_i], 2, 64);
    const struct pl_load full = pl_load_full(p);
    double of[PL_COST_COUNT], sum = 0;
    const double seconds = pl_program_step_seconds(p, &cpu, &full, of);
    for (int c = 0; c < PL_COST_COUNT; c++)
        sum += of[c];
    ck_assert_double_eq_tol(sum, seconds, 1e-9 * seconds);
    ck_assert_double_eq(seconds, pl_program_step_seconds(p, &cpu, &full, NULL));
    ck_assert_double_gt(of[PL_COST_PRODUCT], seconds / 2);
    ck_assert_double_gt(of[PL_COST_ATTENTION], 0);
    ck_assert_double_gt(of[PL_COST_ROWS], 0);
    ck_assert_double_gt(of[PL_COST_UPDATE], 0);
    ck_assert_int_eq(of[PL_COST_DEQUANT] > 0, modes[_i] == PL_MODE_QLORA);
    ck_assert_double_eq(of[PL_COST_COPY] + of[PL_COST_HOST], 0);
}
END_TEST

START_TEST(micro_batches_repeat_and_the_update_does_not) {
    plan(PL_MODE_FULL, 2, 64);
    struct pl_load load = pl_load_full(p);
    double one[PL_COST_COUNT], three[PL_COST_COUNT];
    pl_program_step_seconds(p, &cpu, &load, one);
    load = (struct pl_load){3, 3 * load.tokens, 3 * load.targets, load.length, false};
    pl_program_step_seconds(p, &cpu, &load, three);
    ck_assert_double_eq_tol(three[PL_COST_PRODUCT], 3 * one[PL_COST_PRODUCT], 1e-9);
    ck_assert_double_eq_tol(three[PL_COST_ATTENTION], 3 * one[PL_COST_ATTENTION], 1e-9);
    ck_assert_double_eq(three[PL_COST_UPDATE], one[PL_COST_UPDATE]);
}
END_TEST

START_TEST(the_host_of_a_gpu_takes_what_a_cpu_takes) {
    struct pl_job_shape s;
    struct pl_diag d = {0};
    struct pl_program *gpu = NULL;
    const struct pl_traits traits = pl_traits_cuda(90);
    plan(PL_MODE_FULL, 1, 64);
    s = pl_test_shape(&model, PL_MODE_FULL, PL_RECOMPUTE_NONE, 1, 64);
    s.offload = PL_OFFLOAD_OPTIMIZER;
    s.update_on_host = true;
    ck_assert_int_eq(pl_program_create(&model, &s, &traits, &gpu, &d), PL_ERR_OK);
    const struct pl_speed speed = pl_speed_nominal(&traits);
    const struct pl_load full = pl_load_full(gpu);
    double of[PL_COST_COUNT];
    pl_program_step_seconds(gpu, &speed, &full, of);
    ck_assert_double_gt(of[PL_COST_HOST], 100 * of[PL_COST_UPDATE]);
    ck_assert_double_gt(of[PL_COST_COPY], 0);
    for (uint32_t i = 0; i < gpu->n_ops; i++)
        if (gpu->ops[i].host)
            ck_assert_double_eq(pl_op_seconds(gpu, &gpu->ops[i], &speed, &full),
                                pl_op_seconds(gpu, &gpu->ops[i], &cpu, &full));
    pl_program_destroy(&gpu);
}
END_TEST

/* A capability between two rows has the machine of the older one, and so has one that is newer than
 * all of them. */
START_TEST(an_architecture_has_the_machine_of_the_newest_row_that_is_no_newer) {
    static const struct {
        uint32_t sm, row;
    } of[] = {{60, 75},   {72, 75},   {78, 75},   {87, 86},  {88, 86},
              {103, 100}, {110, 100}, {121, 120}, {130, 120}};
    const uint32_t rows[] = {75, 80, 86, 89, 90, 100, 120};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct pl_traits t = pl_traits_cuda(of[i].sm), row = pl_traits_cuda(of[i].row);
        ck_assert_double_eq(pl_speed_nominal(&t).flops_per_second,
                            pl_speed_nominal(&row).flops_per_second);
    }
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++) {
        const struct pl_traits t = pl_traits_cuda(rows[i]), before = pl_traits_cuda(rows[i - 1]);
        ck_assert_double_ne(pl_speed_nominal(&t).flops_per_second,
                            pl_speed_nominal(&before).flops_per_second);
    }
}
END_TEST

/* A T4 computes 75 FLOPs while it moves a byte, an H100 295: a product of many rows is bound by
 * arithmetic on both, so its time is that much further from the time of its bytes. */
START_TEST(a_card_of_little_arithmetic_pays_more_for_a_product_than_for_its_bytes) {
    const struct pl_traits t4 = pl_traits_cuda(75), h100 = pl_traits_cuda(90);
    plan(PL_MODE_LORA, 4, 1024);
    const struct pl_speed slow = pl_speed_nominal(&t4), fast = pl_speed_nominal(&h100);
    const struct pl_load full = pl_load_full(p);
    double of_slow[PL_COST_COUNT], of_fast[PL_COST_COUNT];
    pl_program_step_seconds(p, &slow, &full, of_slow);
    pl_program_step_seconds(p, &fast, &full, of_fast);
    ck_assert_double_gt(of_slow[PL_COST_PRODUCT] / of_slow[PL_COST_ROWS],
                        1.5 * of_fast[PL_COST_PRODUCT] / of_fast[PL_COST_ROWS]);
    ck_assert_double_gt(of_slow[PL_COST_PRODUCT], 10 * of_fast[PL_COST_PRODUCT]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.cost");
    TCase *work = tcase_create("work");
    tcase_add_checked_fixture(work, NULL, tear_down);
    tcase_add_test(work, the_work_at_capacity_is_that_of_the_shapes);
    tcase_add_test(work, the_matrix_that_codes_become_is_written_and_read);
    tcase_add_test(work, half_the_tokens_are_half_the_work_on_the_same_weights);
    tcase_add_test(work, the_head_follows_the_targets_and_the_trunk_the_tokens);
    tcase_add_test(work, of_the_table_only_the_rows_of_tokens_are_moved);
    tcase_add_test(work, short_sequences_spare_attention_and_a_window_bounds_it);
    tcase_add_loop_test(work, classes_sum_to_the_step, 0, 3);
    tcase_add_test(work, micro_batches_repeat_and_the_update_does_not);
    tcase_add_test(work, the_host_of_a_gpu_takes_what_a_cpu_takes);
    suite_add_tcase(s, work);
    TCase *rates = tcase_create("rates");
    tcase_add_test(rates, attention_gets_faster_with_length);
    tcase_add_test(rates, products_of_few_rows_are_further_from_the_peak);
    tcase_add_test(rates, an_architecture_has_the_machine_of_the_newest_row_that_is_no_newer);
    tcase_add_test(rates, a_card_of_little_arithmetic_pays_more_for_a_product_than_for_its_bytes);
    suite_add_tcase(s, rates);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
