/* check_workspace.c - the scratch of products: who needs a converted copy, and that a plan gives
 * every product what its kernel will ask for; and the parts of a group of heads. */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_cuda.h"
#include "estimator/ops/scratch/workspace_cuda_attention.h"
#include "estimator/ops/scratch/workspace_gemm.h"
#include "tests/plan/planning.h"

#include <check.h>

#define F32  PL_DTYPE_F32
#define BF16 PL_DTYPE_BF16

static const struct pl_attr attr = {.alpha = 1};

static const struct {
    enum pl_dtype a, b, c;
    uint64_t copies; /* bytes of the bf16 copies of a[100,8] and b[40,8] */
} products[] = {{F32, F32, F32, 0},          {BF16, BF16, BF16, 0},  {BF16, BF16, F32, 0},
                {BF16, F32, F32, 768},       {BF16, F32, BF16, 768}, {F32, BF16, F32, 1792},
                {F32, F32, BF16, 768 + 1792}};
enum { PRODUCTS = sizeof products / sizeof *products };

static void matrices(int i, struct pl_product_matrix m[3]) {
    m[0] = (struct pl_product_matrix){100, 8, products[i].a};
    m[1] = (struct pl_product_matrix){40, 8, products[i].b};
    m[2] = (struct pl_product_matrix){100, 40, products[i].c};
}

START_TEST(on_cuda_fp32_beside_bf16_is_multiplied_as_a_copy) {
    const struct pl_traits cuda = pl_traits_cuda(90);
    struct pl_product_matrix m[3];
    matrices(_i, m);
    uint64_t library = pl_op_workspace_bytes(&cuda, PL_OP_LINEAR, &attr, 100, 8);
    ck_assert_uint_eq(pl_product_workspace_bytes(&cuda, PL_OP_LINEAR, &attr, m),
                      library + products[_i].copies);
    ck_assert_uint_eq(pl_ws_cuda_narrowed(m, 0), 0);
    ck_assert_uint_eq(pl_ws_cuda_narrowed(m, 2), products[_i].copies);
}
END_TEST

/* a[100,8] b[40,8]^T, 3 workers: a panel of 48 columns and 16 of k, 144 x 48 sums since rows of C
 * are not whole vectors; of bf16 also a copy of 144 rows of 16 + 16. */
START_TEST(on_the_cpu_every_product_has_blocks_for_each_worker) {
    const struct pl_traits cpu = pl_traits_cpu(3);
    const bool fp32 = products[_i].a == F32 && products[_i].b == F32;
    struct pl_product_matrix m[3];
    matrices(_i, m);
    ck_assert_uint_eq(pl_product_workspace_bytes(&cpu, PL_OP_LINEAR, &attr, m),
                      UINT64_C(3) * 4 * (48 * 16 + 144 * 48 + (fp32 ? 0 : 144 * 32)));
}
END_TEST

/* trans_a, trans_b; a, b, c in fp32 */
static const struct pl_gemm_shape shapes[] = {{256, 576, 1536, false, true, true, true, true},
                                              {256, 576, 1536, false, false, true, true, true},
                                              {576, 1536, 256, true, false, true, true, true},
                                              {1536, 16, 256, true, false, true, true, true},
                                              {256, 576, 1536, false, true, false, false, false},
                                              {1, 49152, 576, false, true, false, false, false},
                                              {256, 576, 1536, false, true, true, false, true},
                                              {256, 576, 1536, false, false, true, false, true},
                                              {300, 40, 7, false, true, true, true, true},
                                              {5, 30, 2000, true, false, false, false, false}};

/* The tokens of a run are at most those of its plan. */
START_TEST(the_room_of_a_product_grows_with_its_dimensions) {
    for (int dimension = 0; dimension < 2; dimension++)
        for (uint64_t n = 1; n <= 800; n++) {
            struct pl_gemm_shape less = shapes[_i], more;
            *(dimension == 0 ? &less.m : &less.k) = n;
            more = less;
            *(dimension == 0 ? &more.m : &more.k) = n + 1;
            const struct pl_gemm_room a = pl_gemm_room(&less), b = pl_gemm_room(&more);
            ck_assert(a.left <= b.left && a.right <= b.right && a.sums <= b.sums);
        }
}
END_TEST

START_TEST(a_bias_gradient_has_a_partial_sum_per_chunk_of_rows) {
    static const uint64_t rows[] = {0, 1, PL_CUDA_BIAS_ROWS, PL_CUDA_BIAS_ROWS + 1};
    static const uint64_t chunks[] = {0, 1, 1, 2};
    const struct pl_traits cuda = pl_traits_cuda(80);
    ck_assert_uint_eq(pl_op_workspace_bytes(&cuda, PL_OP_BIAS_GRAD, &attr, rows[_i], 24),
                      chunks[_i] * 24 * sizeof(float));
}
END_TEST

/* 512 blocks of 64 keys and a kv head are wanted, and parts have whole heads. */
static const struct {
    uint32_t heads, kv_heads;
    uint64_t tokens;
    uint32_t parts;
} groups[] = {{28, 4, 1, 7},    {28, 4, 1024, 7}, {28, 4, 2048, 4},  {28, 4, 4096, 2},
              {28, 4, 8128, 2}, {28, 4, 8129, 0}, {28, 4, 65536, 0}, {32, 8, 1024, 4},
              {8, 1, 2048, 8},  {8, 8, 64, 0},    {3, 1, 16384, 2},  {14, 2, 0, 7}};
enum { GROUPS = sizeof groups / sizeof *groups };

/* W1 of workspace_cuda_attention.h */
START_TEST(few_tokens_divide_the_heads_of_a_group) {
    const struct pl_traits cuda = pl_traits_cuda(90), cpu = pl_traits_cpu(2);
    struct pl_attr a = {
        .heads = groups[_i].heads, .kv_heads = groups[_i].kv_heads, .head_dim = 128};
    ck_assert_uint_eq(pl_attention_key_parts(&cpu, &a, groups[_i].tokens), 0);
    a.key_parts = pl_attention_key_parts(&cuda, &a, groups[_i].tokens);
    ck_assert_uint_eq(a.key_parts, groups[_i].parts);
    for (uint32_t sm = 75; sm <= 120; sm += 45) {
        const struct pl_traits other = pl_traits_cuda(sm);
        ck_assert_uint_eq(pl_attention_key_parts(&other, &a, groups[_i].tokens), a.key_parts);
    }
    /* A part without heads would leave its sums unwritten. */
    const uint32_t group = a.heads / a.kv_heads;
    if (a.key_parts)
        ck_assert_uint_lt((a.key_parts - 1) * pl_attention_part_heads(group, a.key_parts), group);
    const uint64_t sums = UINT64_C(100) * 2 * a.kv_heads * 128 * sizeof(float) * a.key_parts;
    const uint64_t stats = UINT64_C(100) * a.heads * 2 * sizeof(float);
    ck_assert_uint_eq(pl_op_workspace_bytes(&cuda, PL_OP_ATTENTION_BWD, &a, 100, 128 * a.heads),
                      sums ? pl_u64_round_up(stats, PL_WS_CUDA_ALIGN) + sums : stats);
}
END_TEST

/* More bytes than there are is what no plan holds. */
START_TEST(scratch_of_attention_that_has_no_number_is_the_largest) {
    const struct pl_traits cuda = pl_traits_cuda(90);
    const struct pl_attr a = {.heads = 64, .kv_heads = 8, .head_dim = 256, .key_parts = 8};
    static const uint64_t rows[] = {UINT64_MAX, UINT64_MAX / 256, UINT64_MAX / 512 - 1,
                                    UINT64_MAX / 131072};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_uint_eq(pl_op_workspace_bytes(&cuda, PL_OP_ATTENTION_BWD, &a, rows[i], 16384),
                          UINT64_MAX);
}
END_TEST

static const struct {
    uint32_t mode;
    enum pl_dtype dtype, adapter;
} jobs[] = {{PL_MODE_FULL, BF16, F32},  {PL_MODE_FULL, F32, F32},  {PL_MODE_LORA, BF16, F32},
            {PL_MODE_LORA, BF16, BF16}, {PL_MODE_LORA, F32, BF16}, {PL_MODE_LORA, F32, F32}};

static struct pl_product_matrix matrix_of(const struct pl_program *p, const struct pl_operand *o) {
    const struct pl_tensor *t = &p->tensors[o->id];
    return (struct pl_product_matrix){o->nrows ? o->nrows : t->dims[0],
                                      o->cols ? o->cols : t->dims[1], t->dtype};
}

static const struct pl_operand *scratch_of(const struct pl_op *op) {
    return op->kind == PL_OP_LINEAR ? &op->in[3] : &op->in[2];
}

START_TEST(a_plan_gives_every_product_what_its_kernel_asks_for) {
    const struct pl_traits cuda = pl_traits_cuda(90);
    struct pl_model m;
    struct pl_program *p = NULL;
    struct pl_diag d = {0};
    uint32_t seen = 0, copied = 0;
    pl_test_model("Llama-3.2-1B", &m);
    struct pl_job_shape s = pl_test_shape(&m, jobs[_i].mode, PL_RECOMPUTE_FULL, 2, 256);
    s.dtype = jobs[_i].dtype;
    s.adapter_dtype = jobs[_i].adapter;
    if (s.dtype == F32) s.gradient_dtype = F32; /* like pl_job_shape_init() */
    s.lora_dropout = 0.1;
    ck_assert_int_eq(pl_program_create(&m, &s, &cuda, &p, &d), PL_ERR_OK);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const struct pl_op *op = &p->ops[i];
        if (op->kind != PL_OP_LINEAR && op->kind != PL_OP_LINEAR_DX && op->kind != PL_OP_LINEAR_DW)
            continue;
        const struct pl_product_matrix x[] = {matrix_of(p, &op->in[0]), matrix_of(p, &op->in[1]),
                                              matrix_of(p, &op->out[0])};
        const struct pl_operand *ws = scratch_of(op);
        ck_assert_uint_ne(ws->id, PL_NONE);
        ck_assert_uint_eq(p->tensors[ws->id].bytes,
                          pl_product_workspace_bytes(&cuda, op->kind, &op->attr, x));
        seen++;
        copied += pl_ws_cuda_narrowed(x, 2) > 0;
    }
    ck_assert_uint_gt(seen, 100);
    /* Adapters in fp32 are copied for all products of a layer before them. */
    bool mixed = jobs[_i].mode == PL_MODE_LORA && jobs[_i].dtype == F32 && jobs[_i].adapter == BF16;
    ck_assert_int_eq(copied > 0, mixed);
    pl_program_destroy(&p);
}
END_TEST

int main(void) {
    Suite *s = suite_create("workspace");
    TCase *tc = tcase_create("products");
    tcase_add_loop_test(tc, on_cuda_fp32_beside_bf16_is_multiplied_as_a_copy, 0, PRODUCTS);
    tcase_add_loop_test(tc, on_the_cpu_every_product_has_blocks_for_each_worker, 0, PRODUCTS);
    tcase_add_loop_test(tc, the_room_of_a_product_grows_with_its_dimensions, 0,
                        sizeof shapes / sizeof *shapes);
    tcase_add_loop_test(tc, a_bias_gradient_has_a_partial_sum_per_chunk_of_rows, 0, 4);
    tcase_add_loop_test(tc, few_tokens_divide_the_heads_of_a_group, 0, GROUPS);
    tcase_add_test(tc, scratch_of_attention_that_has_no_number_is_the_largest);
    tcase_add_loop_test(tc, a_plan_gives_every_product_what_its_kernel_asks_for, 0,
                        sizeof jobs / sizeof *jobs);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
