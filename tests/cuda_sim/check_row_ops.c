/* check_row_ops.c - embeddings, gathers, bias sums, dropout and products of the CUDA back-end
 * beyond the conformance suite: the mask of the CPU bit for bit, and plans and batches that are
 * broken. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/device.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/facts.h"

#include <check.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 70, COLS = 37, VOCAB = 11, MOST = ROWS * COLS };

static struct pl_device *cpu, *cuda;

static struct pl_device *open_one(const struct pl_back_end *back_end) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    if (pl_device_open(back_end, 1, PL_NO_BUDGET, &dev, &d) != PL_ERR_OK)
        ck_abort_msg("%s", d.message);
    return dev;
}

static void open_devices(void) {
    cpu = open_one(&pl_back_end_cpu);
    cuda = open_one(&pl_back_end_cuda);
}

static void close_devices(void) {
    pl_device_close(&cpu);
    pl_device_close(&cuda);
}

/* ---- calls on the CUDA device with operands that lie on the host ---- */

static uint64_t bytes_of(const struct pl_view *v) {
    return v->rows ? ((v->rows - 1) * v->ld + v->cols) * pl_dtype_bytes(v->dtype) : 0;
}

static void copy_in(struct pl_view *v, void **kept) {
    *kept = v->p;
    if (!v->p) return;
    ck_assert_int_eq(cudaMalloc(&v->p, bytes_of(v) + 1), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(v->p, *kept, bytes_of(v), cudaMemcpyHostToDevice), cudaSuccess);
}

/* host NULL: an input, which may lie where nothing can be written. */
static void copy_out(const struct pl_view *v, void *host) {
    if (!v->p) return;
    if (host)
        ck_assert_int_eq(cudaMemcpy(host, v->p, bytes_of(v), cudaMemcpyDeviceToHost), cudaSuccess);
    ck_assert_int_eq(cudaFree(v->p), cudaSuccess);
}

/* out[0] is a place of its own or in[in_place]. */
static pl_err run(enum pl_op_kind kind, struct pl_call c, int in_place) {
    void *in[PL_OP_MAX_IN], *out = NULL;
    for (int i = 0; i < PL_OP_MAX_IN; i++)
        copy_in(&c.in[i], &in[i]);
    if (in_place < 0)
        copy_in(&c.out[0], &out);
    else
        c.out[0] = c.in[in_place];
    struct pl_batch described = *c.batch;
    struct pl_facts facts;
    void *copy;
    pl_facts_fill(c.batch, &facts);
    ck_assert_int_eq(cudaMalloc(&copy, sizeof facts), cudaSuccess);
    ck_assert_int_eq(cudaMemcpy(copy, &facts, sizeof facts, cudaMemcpyHostToDevice), cudaSuccess);
    described.facts = copy;
    c.batch = &described;
    pl_err err = cuda->kernels[kind](cuda, &c);
    ck_assert_int_eq(cudaDeviceSynchronize(), cudaSuccess);
    ck_assert_int_eq(cudaFree(copy), cudaSuccess);
    for (int i = 0; i < PL_OP_MAX_IN; i++)
        copy_out(&c.in[i], i == in_place ? in[i] : NULL);
    if (in_place < 0) copy_out(&c.out[0], out);
    return err;
}

static struct pl_view matrix(void *p, uint64_t rows, uint64_t cols, enum pl_dtype dtype) {
    return (struct pl_view){p, rows, cols, cols, dtype};
}

static struct pl_view vector(void *p, uint64_t n, enum pl_dtype dtype) {
    return (struct pl_view){p, n, 1, 1, dtype};
}

/* ---- dropout ---- */

static const int32_t offsets[] = {0, 0, 31, 31, 69, 70}; /* empty sequences first and within */
static const uint64_t samples[] = {5, 1000000007, 9, 4, 3};
enum { SEQS = 5 };

static struct pl_attr dropout_attr = {.dropout = 0.3f, .site = 5};
static const struct pl_batch dropout_batch = {
    .n_seqs = SEQS, .n_tokens = ROWS, .seed = UINT64_C(0x123456789abc), .step = 9};

static struct pl_call dropout_call(enum pl_op_kind kind, float *x, float *y, uint64_t cols) {
    struct pl_call c = {.attr = &dropout_attr, .batch = &dropout_batch};
    struct pl_view *in = c.in;
    if (kind == PL_OP_DROPOUT_BWD) *in++ = matrix(y, ROWS, cols, PL_DTYPE_F32);
    *in++ = matrix(x, ROWS, cols, PL_DTYPE_F32);
    *in++ = vector((void *)(uintptr_t)offsets, SEQS + 1, PL_DTYPE_I32);
    *in = vector((void *)(uintptr_t)samples, SEQS, PL_DTYPE_U64);
    c.out[0] = matrix(y, ROWS, cols, PL_DTYPE_F32);
    return c;
}

static const struct {
    enum pl_op_kind kind;
    uint64_t cols; /* multiples of a pack, and not */
} masks[] = {
    {PL_OP_DROPOUT, COLS}, {PL_OP_DROPOUT, 36}, {PL_OP_DROPOUT_BWD, COLS}, {PL_OP_DROPOUT_BWD, 36}};

START_TEST(the_mask_is_that_of_the_cpu) {
    static float x[MOST], want[MOST], got[MOST];
    for (int i = 0; i < MOST; i++)
        x[i] = (float)(i % 13) - 6.25f, want[i] = got[i] = (float)(i % 7);
    const enum pl_op_kind kind = masks[_i].kind;
    const struct pl_call c = dropout_call(kind, x, want, masks[_i].cols);
    ck_assert_int_eq(cpu->kernels[kind](cpu, &c), PL_ERR_OK);
    ck_assert_int_eq(
        run(kind, dropout_call(kind, x, got, masks[_i].cols), kind == PL_OP_DROPOUT_BWD ? 0 : -1),
        PL_ERR_OK);
    for (uint64_t i = 0; i < ROWS * masks[_i].cols; i++)
        ck_assert_float_eq(got[i], want[i]);
}
END_TEST

/* The window begins at a token within a sequence. */
START_TEST(the_mask_of_a_window_is_that_of_the_cpu) {
    enum { FIRST = 17, N = 40 };
    static float x[MOST], want[MOST], got[MOST], whole[MOST];
    const enum pl_op_kind kind = masks[_i].kind;
    const uint64_t cols = masks[_i].cols;
    for (int i = 0; i < MOST; i++)
        x[i] = 1.0f;
    struct pl_call c = dropout_call(kind, x, whole, cols);
    ck_assert_int_eq(cpu->kernels[kind](cpu, &c), PL_ERR_OK);
    dropout_attr.first_element = FIRST * cols;
    float *const into[] = {want, got};
    for (int i = 0; i < 2; i++) {
        c = dropout_call(kind, x, into[i], cols);
        const int dx = kind == PL_OP_DROPOUT_BWD;
        c.in[0].rows = c.in[dx].rows = c.out[0].rows = N;
        ck_assert_int_eq(i ? run(kind, c, dx ? 0 : -1) : cpu->kernels[kind](cpu, &c), PL_ERR_OK);
    }
    dropout_attr.first_element = 0;
    ck_assert_mem_eq(want, got, N * cols * sizeof *got);
    ck_assert_mem_eq(want, whole + FIRST * cols, N * cols * sizeof *got);
}
END_TEST

START_TEST(a_mask_without_sequences_is_a_broken_plan) {
    static float x[MOST], y[MOST];
    struct pl_batch none = dropout_batch;
    struct pl_call c = dropout_call(PL_OP_DROPOUT, x, y, COLS);
    none.n_seqs = 0;
    c.batch = &none;
    ck_assert_int_eq(run(PL_OP_DROPOUT, c, -1), PL_ERR_PLAN_BROKEN);
    c.out[0].rows = c.in[0].rows = 0;
    ck_assert_int_eq(run(PL_OP_DROPOUT, c, -1), PL_ERR_OK);
}
END_TEST

/* ---- numbers that point outside ---- */

static const struct pl_attr plain = {.alpha = 1, .padding_idx = -1};
static const struct pl_batch first = {.first = true, .n_tokens = 4};
static const int32_t wrong[] = {-1, VOCAB, INT32_MIN, INT32_MAX};

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++)
        x[i] = 1 + (float)i;
}

START_TEST(an_id_outside_the_vocabulary_embeds_as_nan) {
    float table[VOCAB * COLS], x[3 * COLS];
    int32_t ids[] = {0, wrong[_i], VOCAB - 1};
    fill(table, VOCAB * COLS);
    const struct pl_call c = {
        .attr = &plain,
        .batch = &first,
        .in = {vector(ids, 3, PL_DTYPE_I32), matrix(table, VOCAB, COLS, PL_DTYPE_F32)},
        .out = {matrix(x, 3, COLS, PL_DTYPE_F32)}};
    ck_assert_int_eq(run(PL_OP_EMBED, c, -1), PL_ERR_OK);
    for (int j = 0; j < COLS; j++) {
        ck_assert_float_eq(x[j], table[j]);
        ck_assert(isnan(x[COLS + j]));
        ck_assert_float_eq(x[2 * COLS + j], table[(VOCAB - 1) * COLS + j]);
    }
}
END_TEST

START_TEST(an_id_outside_the_vocabulary_has_no_gradient) {
    float dx[3 * COLS], dw[VOCAB * COLS];
    int32_t ids[] = {4, wrong[_i], 4}, order[2][3] = {{0, 2, 1}, {1, 0, 2}};
    fill(dx, 3 * COLS);
    const struct pl_call c = {
        .attr = &plain,
        .batch = &first,
        .in = {vector(ids, 3, PL_DTYPE_I32), vector(order[wrong[_i] < 0], 3, PL_DTYPE_I32),
               matrix(dx, 3, COLS, PL_DTYPE_F32), matrix(dw, VOCAB, COLS, PL_DTYPE_F32)}};
    ck_assert_int_eq(run(PL_OP_EMBED_BWD, c, 3), PL_ERR_OK);
    for (int i = 0; i < VOCAB * COLS; i++)
        ck_assert_float_eq(dw[i], i / COLS == 4 ? dx[i % COLS] + dx[2 * COLS + i % COLS] : 0);
}
END_TEST

START_TEST(a_row_outside_its_matrix_gathers_nan_and_scatters_nowhere) {
    float x[VOCAB * COLS], xs[2 * COLS], dx[VOCAB * COLS];
    int32_t rows[] = {3, wrong[_i]};
    fill(x, VOCAB * COLS);
    struct pl_call c = {.attr = &plain,
                        .batch = &first,
                        .in = {matrix(x, VOCAB, COLS, PL_DTYPE_F32),
                               matrix(x, VOCAB, COLS, PL_DTYPE_F32), vector(rows, 2, PL_DTYPE_I32)},
                        .out = {matrix(xs, 2, COLS, PL_DTYPE_F32)}};
    ck_assert_int_eq(run(PL_OP_GATHER_ADD, c, -1), PL_ERR_OK);
    for (int j = 0; j < COLS; j++) {
        ck_assert_float_eq(xs[j], 2 * x[3 * COLS + j]);
        ck_assert(isnan(xs[COLS + j]));
    }
    c = (struct pl_call){.attr = &plain,
                         .batch = &first,
                         .in = {matrix(x, 2, COLS, PL_DTYPE_F32), vector(rows, 2, PL_DTYPE_I32)},
                         .out = {matrix(dx, VOCAB, COLS, PL_DTYPE_F32)}};
    ck_assert_int_eq(run(PL_OP_SCATTER_ROWS, c, -1), PL_ERR_OK);
    for (int i = 0; i < VOCAB * COLS; i++)
        ck_assert_float_eq(dx[i], i / COLS == 3 ? x[i % COLS] : 0);
}
END_TEST

/* ---- frequent ids ---- */

/* One id for many times the tokens that a warp looks at, between others that come less often. */
START_TEST(an_id_of_every_other_token_sums_all_of_them) {
    enum { TOKENS = 2600, WIDTH = 9 };
    static float dx[TOKENS * WIDTH], dw[VOCAB * WIDTH];
    static int32_t ids[TOKENS], order[TOKENS];
    double want[VOCAB] = {0};
    int n = 0;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i % 2 ? 7 : i / 2 % VOCAB;
        want[ids[i]] += i % 5;
        for (int j = 0; j < WIDTH; j++)
            dx[i * WIDTH + j] = (float)(i % 5);
    }
    for (int id = 0; id < VOCAB; id++)
        for (int i = 0; i < TOKENS; i++)
            if (ids[i] == id) order[n++] = i;
    const struct pl_call c = {
        .attr = &plain,
        .batch = &first,
        .in = {vector(ids, TOKENS, PL_DTYPE_I32), vector(order, TOKENS, PL_DTYPE_I32),
               matrix(dx, TOKENS, WIDTH, PL_DTYPE_F32), matrix(dw, VOCAB, WIDTH, PL_DTYPE_F32)}};
    ck_assert_int_eq(run(PL_OP_EMBED_BWD, c, 3), PL_ERR_OK);
    for (int i = 0; i < VOCAB * WIDTH; i++)
        ck_assert_float_eq(dw[i], (float)want[i / WIDTH]);
}
END_TEST

/* ---- broken plans ---- */

static float a[MOST], b[MOST], out[MOST];
static unsigned char *ws;

static const enum pl_dtype ws_dtypes[] = {PL_DTYPE_F32, PL_DTYPE_BF16};

/* dy[ROWS,COLS] with an op's other operands; ws is ws_bytes long. */
static struct pl_call product_call(enum pl_op_kind kind, enum pl_dtype dtype, uint64_t ws_bytes) {
    const struct pl_view scratch = {ws, ws_bytes, 1, 1, PL_DTYPE_U8};
    struct pl_call c = {.attr = &plain, .batch = &first};
    c.in[0] = matrix(a, ROWS, COLS, dtype);
    c.in[1] = matrix(b, kind == PL_OP_LINEAR_DW ? ROWS : COLS, COLS, PL_DTYPE_F32);
    c.in[kind == PL_OP_LINEAR ? 3 : 2] = scratch;
    c.out[0] = matrix(out, kind == PL_OP_LINEAR_DW ? COLS : ROWS, COLS, PL_DTYPE_F32);
    if (kind == PL_OP_BIAS_GRAD) {
        c.in[1] = scratch;
        c.in[2] = (struct pl_view){0};
        c.out[0] = vector(out, COLS, PL_DTYPE_F32);
    }
    return c;
}

static uint64_t need_of(enum pl_op_kind kind, enum pl_dtype dtype) {
    const struct pl_call c = product_call(kind, dtype, 0);
    if (kind == PL_OP_BIAS_GRAD)
        return pl_op_workspace_bytes(&cuda->traits, kind, &plain, ROWS, COLS);
    const struct pl_product_matrix m[] = {{c.in[0].rows, c.in[0].cols, c.in[0].dtype},
                                          {c.in[1].rows, c.in[1].cols, c.in[1].dtype},
                                          {c.out[0].rows, c.out[0].cols, c.out[0].dtype}};
    return pl_product_workspace_bytes(&cuda->traits, kind, &plain, m);
}

static const enum pl_op_kind scratch_users[] = {PL_OP_LINEAR, PL_OP_LINEAR_DX, PL_OP_LINEAR_DW,
                                                PL_OP_BIAS_GRAD};
enum { SCRATCH_USERS = sizeof scratch_users / sizeof *scratch_users };

START_TEST(a_workspace_one_byte_short_is_a_broken_plan) {
    const enum pl_op_kind kind = scratch_users[_i / 2];
    const enum pl_dtype dtype = ws_dtypes[_i % 2];
    const uint64_t need = need_of(kind, dtype);
    ck_assert_uint_gt(need, 0);
    ws = calloc(1, need);
    ck_assert_ptr_nonnull(ws);
    ck_assert_int_eq(run(kind, product_call(kind, dtype, need), -1), PL_ERR_OK);
    ck_assert_int_eq(run(kind, product_call(kind, dtype, need - 1), -1), PL_ERR_PLAN_BROKEN);
    free(ws);
}
END_TEST

START_TEST(a_matrix_of_integers_is_a_broken_plan) {
    const enum pl_op_kind kind = scratch_users[_i];
    const uint64_t need = need_of(kind, PL_DTYPE_F32);
    ws = calloc(1, need);
    ck_assert_ptr_nonnull(ws);
    struct pl_call c = product_call(kind, PL_DTYPE_I32, need);
    if (kind != PL_OP_BIAS_GRAD) c.in[1].dtype = PL_DTYPE_I32;
    ck_assert_int_eq(run(kind, c, -1), PL_ERR_PLAN_BROKEN);
    free(ws);
}
END_TEST

int main(void) {
    Suite *s = suite_create("row ops");
    TCase *tc = tcase_create("cuda");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, open_devices, close_devices);
    tcase_add_loop_test(tc, the_mask_is_that_of_the_cpu, 0, sizeof masks / sizeof *masks);
    tcase_add_loop_test(tc, the_mask_of_a_window_is_that_of_the_cpu, 0,
                        sizeof masks / sizeof *masks);
    tcase_add_test(tc, a_mask_without_sequences_is_a_broken_plan);
    tcase_add_loop_test(tc, an_id_outside_the_vocabulary_embeds_as_nan, 0, 4);
    tcase_add_loop_test(tc, an_id_outside_the_vocabulary_has_no_gradient, 0, 4);
    tcase_add_loop_test(tc, a_row_outside_its_matrix_gathers_nan_and_scatters_nowhere, 0, 4);
    tcase_add_test(tc, an_id_of_every_other_token_sums_all_of_them);
    tcase_add_loop_test(tc, a_workspace_one_byte_short_is_a_broken_plan, 0, SCRATCH_USERS * 2);
    tcase_add_loop_test(tc, a_matrix_of_integers_is_a_broken_plan, 0, SCRATCH_USERS);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
