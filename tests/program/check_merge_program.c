/* check_merge_program.c - the programs that merge and export an adapter. */
#include "estimator/ops/scratch/workspace_gemm.h"
#include "estimator/plan/plan.h"
#include "estimator/program/emit/merge_program.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define THREADS 2
/* Scratch of an fp32 product whose rows are whole vectors: a panel of as many k as the adapter
 * has. */
#define PRODUCT_BYTES(rank) (UINT64_C(4) * THREADS * PL_GEMM_PANEL * (rank))

static struct pl_diag diag;

#define OK(call)                                                                                   \
    do {                                                                                           \
        diag = (struct pl_diag){0};                                                                \
        pl_err ok_err_ = (call);                                                                   \
        ck_assert_msg(ok_err_ == PL_ERR_OK, "%s: %s", pl_err_code(ok_err_), diag.message);         \
    } while (0)

static void read_model(struct pl_model *m, const char *family, int layers, int hidden) {
    char json[512];
    int n =
        snprintf(json, sizeof json,
                 "{\"model_type\":\"%s\",\"hidden_size\":%d,\"intermediate_size\":%d,"
                 "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":2,"
                 "\"vocab_size\":400,\"hidden_act\":\"silu\",\"pad_token_id\":0}",
                 family, hidden, 4 * hidden, layers, hidden > 1024 ? 64 : 4);
    OK(pl_model_parse("config.json", json, (uint64_t)n, m, &diag));
}

struct planned {
    struct pl_model model;
    struct pl_program *program;
    struct pl_plan *plan;
};

typedef pl_err (*create_fn)(const struct pl_model *, const struct pl_job_shape *,
                            const struct pl_traits *, struct pl_program **, struct pl_diag *);

static void plan(struct planned *p, create_fn create, const char *family, int layers, int hidden,
                 const char *target, uint64_t r) {
    const struct pl_traits traits = pl_traits_cpu(THREADS);
    struct pl_job_shape shape = {
        .mode = PL_MODE_LORA, .lora_r = r, .lora_scale = 0.5, .stretch = 1 << 21};
    read_model(&p->model, family, layers, hidden);
    OK(pl_targets_find(&p->model, &(struct pl_target_choice){.modules = {&target, 1}},
                       &shape.lora_targets, NULL, &diag));
    OK(create(&p->model, &shape, &traits, &p->program, &diag));
    OK(pl_plan_create(p->program, &p->plan, &diag));
    OK(pl_plan_check(p->plan, &diag));
}

static void finish(struct planned *p) {
    pl_plan_destroy(&p->plan);
    pl_program_destroy(&p->program);
}

static const char *const families[] = {"llama", "qwen2", "qwen3", "phi3"};

/* E2, E3 */
START_TEST(every_targeted_matrix_has_buffers_of_its_own_and_one_product) {
    struct planned p;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    plan(&p, pl_program_create_merge, families[_i], 2, 64, "all-linear", 8);
    uint32_t n_rows = pl_model_rows(&p.model, rows), products = 0, targeted = 0;
    for (uint32_t i = 0; i < p.program->n_ops; i++)
        products += p.program->ops[i].kind == PL_OP_LINEAR_DX;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t a = pl_program_find_merge(p.program, PL_ROLE_MERGE_A, i, rows[i].cols);
        uint32_t b = pl_program_find_merge(p.program, PL_ROLE_MERGE_B, i, rows[i].cols);
        uint32_t raw = pl_program_find_merge(p.program, PL_ROLE_MERGE_RAW, i, rows[i].cols);
        uint32_t values = pl_program_find_merge(p.program, PL_ROLE_MERGE_VALUES, i, rows[i].cols);
        if (!rows[i].module || !rows[i].per_layer) { /* the head is no part of all-linear */
            ck_assert_uint_eq(a & b & raw & values, PL_NONE);
            continue;
        }
        targeted++;
        const struct pl_tensor *t = p.program->tensors;
        ck_assert_uint_eq(t[a].dims[0], 8);
        ck_assert_uint_eq(t[a].dims[1], rows[i].cols);
        ck_assert_uint_eq(t[b].dims[0], rows[i].rows);
        ck_assert_uint_eq(t[b].dims[1], 8);
        ck_assert_uint_eq(t[values].bytes, 4 * rows[i].rows * rows[i].cols);
        ck_assert_uint_eq(t[raw].bytes, t[values].bytes);
    }
    ck_assert_uint_eq(products, targeted);
    ck_assert_uint_ne(pl_program_find_merge(p.program, PL_ROLE_MERGE_RAW, PL_NONE, 0), PL_NONE);
    finish(&p);
}
END_TEST

/* E2: The MLP of one layer is wider: its down projection has buffers of as many columns. */
START_TEST(a_row_has_buffers_for_every_number_of_columns) {
    const struct pl_traits traits = pl_traits_cpu(THREADS);
    struct pl_job_shape shape = {
        .mode = PL_MODE_LORA, .lora_r = 8, .lora_scale = 0.5, .stretch = 1 << 21};
    const char *target = "down_proj";
    struct planned p;
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    uint32_t products = 0, row = 0;
    read_model(&p.model, "llama", 3, 64);
    p.model.layer[1].ffn *= 2;
    OK(pl_targets_find(&p.model, &(struct pl_target_choice){.modules = {&target, 1}},
                       &shape.lora_targets, NULL, &diag));
    OK(pl_program_create_merge(&p.model, &shape, &traits, &p.program, &diag));
    OK(pl_plan_create(p.program, &p.plan, &diag));
    OK(pl_plan_check(p.plan, &diag));
    for (uint32_t i = 0; i < p.program->n_ops; i++)
        products += p.program->ops[i].kind == PL_OP_LINEAR_DX;
    ck_assert_uint_eq(products, 2);
    const uint32_t n = pl_model_rows(&p.model, rows);
    while (row < n && (!rows[row].module || strcmp(rows[row].module, target) != 0))
        row++;
    ck_assert_uint_eq(rows[row].cols, 256);
    for (uint64_t cols = 256; cols <= 512; cols *= 2) {
        const struct pl_tensor *t = p.program->tensors;
        ck_assert_uint_eq(t[pl_program_find_merge(p.program, PL_ROLE_MERGE_A, row, cols)].dims[1],
                          cols);
        ck_assert_uint_eq(
            t[pl_program_find_merge(p.program, PL_ROLE_MERGE_VALUES, row, cols)].dims[1], cols);
    }
    ck_assert_uint_ne(pl_program_find_merge(p.program, PL_ROLE_MERGE_B, row, 256),
                      pl_program_find_merge(p.program, PL_ROLE_MERGE_B, row, 512));
    ck_assert_uint_eq(pl_program_find_merge(p.program, PL_ROLE_MERGE_A, row, 257), PL_NONE);
    finish(&p);
}
END_TEST

/* E1 */
START_TEST(bytes_do_not_grow_with_the_layers_nor_past_the_stretch) {
    struct planned few, many, wide;
    plan(&few, pl_program_create_merge, "llama", 1, 64, "all-linear", 8);
    plan(&many, pl_program_create_merge, "llama", 80, 64, "all-linear", 8);
    ck_assert_uint_eq(few.plan->arena_bytes, many.plan->arena_bytes);
    ck_assert_uint_eq(many.plan->job_bytes, 0);
    /* hidden 8192, ffn 32768: a matrix of 1 GiB in fp32 passes in 2^21 elements, twice over, with A
     * of 64 x 32768 and the blocks of the product */
    plan(&wide, pl_program_create_merge, "llama", 1, 8192, "all-linear", 64);
    const uint64_t passing = wide.plan->arena_bytes - PRODUCT_BYTES(64);
    ck_assert_uint_gt(passing, UINT64_C(24) << 20);
    ck_assert_uint_lt(passing, UINT64_C(25) << 20);
    finish(&few);
    finish(&many);
    finish(&wide);
}
END_TEST

START_TEST(the_scale_stands_in_the_product_and_the_operands_share_no_byte) {
    struct planned p;
    plan(&p, pl_program_create_merge, "qwen2", 2, 64, "down_proj", 4);
    for (uint32_t i = 0; i < p.program->n_ops; i++) {
        const struct pl_op *op = &p.program->ops[i];
        if (op->kind != PL_OP_LINEAR_DX) continue;
        ck_assert(op->attr.alpha == 0.5f);
        ck_assert_int_eq(op->attr.accumulate, PL_ACC_ADD);
        uint64_t sum = 0;
        for (uint32_t t = 0; t < p.program->n_tensors; t++)
            if (p.plan->places[t].first_op <= i && i <= p.plan->places[t].last_op)
                sum += p.program->tensors[t].bytes;
        /* raw and values of [64,256], A of [4,256], B of [64,4], the blocks of the product */
        ck_assert_uint_eq(sum, UINT64_C(4) * (2 * 64 * 256 + 4 * 256 + 64 * 4) +
                                   PRODUCT_BYTES(PL_GEMM_LINE));
    }
    finish(&p);
}
END_TEST

static const char *const tall_and_wide[] = {"up_proj", "down_proj"}; /* [256,64] and [64,256] */

START_TEST(an_export_holds_the_largest_matrix_of_the_adapter_twice) {
    struct planned p;
    plan(&p, pl_program_create_adapter_export, "llama", 2, 64, tall_and_wide[_i], 8);
    ck_assert_uint_eq(p.plan->arena_bytes, 2 * 256 * 8 * 4);
    finish(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("program.merge_program");
    TCase *t = tcase_create("merge");
    tcase_add_loop_test(t, every_targeted_matrix_has_buffers_of_its_own_and_one_product, 0,
                        sizeof families / sizeof *families);
    tcase_add_test(t, bytes_do_not_grow_with_the_layers_nor_past_the_stretch);
    tcase_add_test(t, a_row_has_buffers_for_every_number_of_columns);
    tcase_add_test(t, the_scale_stands_in_the_product_and_the_operands_share_no_byte);
    tcase_add_loop_test(t, an_export_holds_the_largest_matrix_of_the_adapter_twice, 0, 2);
    suite_add_tcase(s, t);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
