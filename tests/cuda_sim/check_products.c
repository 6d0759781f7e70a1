/* check_products.c - what the products ask of cuBLASLt, and when. The library is a table of
 * functions, so the one here only takes notes. */
#include "runtime/device/cuda/lt.h"
#include "runtime/kernels/cuda/products.h"
#include "tests/cuda_sim/sim.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The content of a descriptor; it may be any object of the library. */
struct object {
    uint32_t type, epilogue, reduction, alignment[4];
    int32_t trans_a, trans_b;
    uint64_t rows, cols, ws_bytes;
    int64_t ld, apart;
    int32_t products;
    const void *bias;
};

/* The memory of the fake algorithm: the shape it was chosen for, as the library sees it. */
struct chosen {
    uint64_t m, n, k, alignment_a;
    int proposal; /* its number among those of the question */
    uint32_t splits, scheme;
};

/* How an algorithm splits the sum. */
struct split {
    uint32_t splits, scheme;
};

static struct {
    int created, destroyed, asked, checked, tried, ran;
    int fail_at;                /* creation that fails, 1-based; 0 = none */
    int no_proposals;           /* that come first among those of a question */
    const struct split *splits; /* [n_splits], of the first proposals where splits are allowed */
    int n_splits;
    cublasStatus_t refuses;      /* the result of a check of any shape other than its own */
    uint64_t wants_bytes;        /* workspace for a shape that is not its own */
    cublasStatus_t status;       /* status of the next products */
    cublasStatus_t reused;       /* status of products whose algorithm is that of another shape */
    cublasStatus_t best;         /* status of products whose algorithm is the first proposal */
    struct chosen used, at_hand; /* algorithm of the last product, and its shape */
    struct object first, second, out, desc, preference; /* objects of the last question or
                                                           product */
    float beta;
} lt;

static cublasStatus_t make(void *out) {
    if (++lt.created == lt.fail_at) {
        lt.created--;
        lt.fail_at = 0;
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    void *p = calloc(1, sizeof(struct object));
    ck_assert_ptr_nonnull(p);
    memcpy(out, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop(void *p) {
    lt.destroyed++;
    free(p);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_create(cublasLtHandle_t *h) {
    return make(h);
}
static cublasStatus_t fake_destroy(cublasLtHandle_t h) {
    return drop(h);
}
static cublasStatus_t fake_desc_destroy(cublasLtMatmulDesc_t d) {
    return drop(d);
}
static cublasStatus_t fake_layout_destroy(cublasLtMatrixLayout_t l) {
    return drop(l);
}
static cublasStatus_t fake_preference_create(cublasLtMatmulPreference_t *p) {
    return make(p);
}
static cublasStatus_t fake_preference_destroy(cublasLtMatmulPreference_t p) {
    return drop(p);
}

static cublasStatus_t fake_desc_create(cublasLtMatmulDesc_t *d, cublasComputeType_t compute,
                                       cudaDataType_t scale) {
    ck_assert_int_eq(compute, CUBLAS_COMPUTE_32F); /* M1 */
    ck_assert_int_eq(scale, CUDA_R_32F);
    return make(d);
}

static cublasStatus_t fake_layout_create(cublasLtMatrixLayout_t *l, cudaDataType type,
                                         uint64_t rows, uint64_t cols, int64_t ld) {
    (void)type, (void)rows, (void)cols, (void)ld;
    return make(l);
}

struct field {
    int attribute;
    size_t offset, bytes;
};
#define FIELD(attribute, member)                                                                   \
    { attribute, offsetof(struct object, member), sizeof(((struct object *)NULL)->member) }

static cublasStatus_t set(const struct field *fields, size_t n, int attribute, void *object,
                          const void *value, size_t bytes) {
    for (size_t i = 0; i < n; i++)
        if (fields[i].attribute == attribute) {
            ck_assert_uint_eq(bytes, fields[i].bytes);
            memcpy((char *)object + fields[i].offset, value, bytes);
            return CUBLAS_STATUS_SUCCESS;
        }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t fake_desc_set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t a,
                                    const void *value, size_t bytes) {
    static const struct field f[] = {FIELD(CUBLASLT_MATMUL_DESC_TRANSA, trans_a),
                                     FIELD(CUBLASLT_MATMUL_DESC_TRANSB, trans_b),
                                     FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue),
                                     FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)};
    return set(f, sizeof f / sizeof *f, (int)a, d, value, bytes);
}

static cublasStatus_t fake_layout_set(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t a,
                                      const void *value, size_t bytes) {
    static const struct field f[] = {FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, type),
                                     FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, rows),
                                     FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, cols),
                                     FIELD(CUBLASLT_MATRIX_LAYOUT_LD, ld),
                                     FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, products),
                                     FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, apart)};
    return set(f, sizeof f / sizeof *f, (int)a, l, value, bytes);
}

static cublasStatus_t fake_preference_set(cublasLtMatmulPreference_t p,
                                          cublasLtMatmulPreferenceAttributes_t a, const void *value,
                                          size_t bytes) {
    static const struct field f[] = {
        FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, ws_bytes),
        FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment[0]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment[1]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment[2]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment[3])};
    return set(f, sizeof f / sizeof *f, (int)a, p, value, bytes);
}

static struct chosen note(cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c) {
    memcpy(&lt.desc, (void *)d, sizeof lt.desc);
    memcpy(&lt.first, (void *)a, sizeof lt.first);
    memcpy(&lt.second, (void *)b, sizeof lt.second);
    memcpy(&lt.out, (void *)c, sizeof lt.out);
    return (struct chosen){.m = lt.out.rows,
                           .n = lt.out.cols,
                           .k = lt.desc.trans_a == CUBLAS_OP_T ? lt.first.rows : lt.first.cols};
}

static cublasStatus_t fake_ask(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                               cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p, int most,
                               cublasLtMatmulHeuristicResult_t result[], int *found) {
    struct chosen choice = note(d, a, b, c);
    (void)h, (void)out;
    ck_assert_int_ge(most, 1);
    memcpy(&lt.preference, (void *)p, sizeof lt.preference);
    choice.alignment_a = lt.preference.alignment[0];
    lt.asked++;
    for (*found = 0; *found < most; ++*found) {
        cublasLtMatmulHeuristicResult_t *r = &result[*found];
        const bool is_one = *found >= lt.no_proposals;
        memset(r, is_one ? 0 : 0xFF, sizeof *r);
        choice.proposal = *found - lt.no_proposals;
        const bool splits = lt.preference.reduction != CUBLASLT_REDUCTION_SCHEME_NONE &&
                            choice.proposal >= 0 && choice.proposal < lt.n_splits;
        choice.splits = splits ? lt.splits[choice.proposal].splits : 1;
        choice.scheme = splits ? lt.splits[choice.proposal].scheme : 0;
        if (is_one)
            memcpy(&r->algo, &choice, sizeof choice);
        else
            r->state = CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static bool is_own_shape(const cublasLtMatmulAlgo_t *algo, const struct chosen *shape) {
    struct chosen own;
    memcpy(&own, algo, sizeof own);
    return own.m == shape->m && own.n == shape->n && own.k == shape->k;
}

static cublasStatus_t fake_attribute(const cublasLtMatmulAlgo_t *algo,
                                     cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                     size_t bytes, size_t *written) {
    struct chosen own;
    ck_assert_uint_eq(bytes, sizeof own.splits);
    memcpy(&own, algo, sizeof own);
    memcpy(value, attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? &own.splits : &own.scheme, bytes);
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t fake_check(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                 const cublasLtMatmulAlgo_t *algo,
                                 cublasLtMatmulHeuristicResult_t *result) {
    const struct chosen shape = note(d, a, b, c);
    (void)h, (void)out;
    lt.checked++;
    if (is_own_shape(algo, &shape)) return CUBLAS_STATUS_SUCCESS;
    result->workspaceSize = lt.wants_bytes;
    return lt.refuses;
}

static cublasStatus_t fake_matmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                                  const void *a, cublasLtMatrixLayout_t la, const void *b,
                                  cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                                  cublasLtMatrixLayout_t lc, void *out, cublasLtMatrixLayout_t ld,
                                  const cublasLtMatmulAlgo_t *algo, void *ws, size_t ws_bytes,
                                  cudaStream_t stream) {
    (void)h, (void)alpha, (void)a, (void)b, (void)c, (void)out, (void)ld, (void)ws, (void)ws_bytes;
    (void)stream;
    lt.at_hand = note(d, la, lb, lc);
    memcpy(&lt.used, algo, sizeof lt.used);
    memcpy(&lt.beta, beta, sizeof lt.beta);
    const bool is_own = is_own_shape(algo, &lt.at_hand);
    cublasStatus_t s = is_own || lt.reused == CUBLAS_STATUS_SUCCESS ? lt.status : lt.reused;
    if (is_own && lt.used.proposal == 0 && lt.best != CUBLAS_STATUS_SUCCESS) s = lt.best;
    lt.tried++;
    lt.ran += s == CUBLAS_STATUS_SUCCESS;
    return s;
}

static const struct pl_lt fake = {.cublasLtCreate = fake_create,
                                  .cublasLtDestroy = fake_destroy,
                                  .cublasLtMatmul = fake_matmul,
                                  .cublasLtMatmulAlgoCheck = fake_check,
                                  .cublasLtMatmulAlgoConfigGetAttribute = fake_attribute,
                                  .cublasLtMatmulAlgoGetHeuristic = fake_ask,
                                  .cublasLtMatmulDescCreate = fake_desc_create,
                                  .cublasLtMatmulDescDestroy = fake_desc_destroy,
                                  .cublasLtMatmulDescSetAttribute = fake_desc_set,
                                  .cublasLtMatmulPreferenceCreate = fake_preference_create,
                                  .cublasLtMatmulPreferenceDestroy = fake_preference_destroy,
                                  .cublasLtMatmulPreferenceSetAttribute = fake_preference_set,
                                  .cublasLtMatrixLayoutCreate = fake_layout_create,
                                  .cublasLtMatrixLayoutDestroy = fake_layout_destroy,
                                  .cublasLtMatrixLayoutSetAttribute = fake_layout_set};

static struct pl_cuda cuda;

static void open_products(void) {
    struct pl_diag d = {0};
    memset(&lt, 0, sizeof lt);
    lt.status = CUBLAS_STATUS_SUCCESS;
    cuda = (struct pl_cuda){.lt = &fake};
    ck_assert_int_eq(pl_products_create(&fake, &cuda.products, &d), PL_ERR_OK);
}

/* The handle, the descriptor, three layouts and the preference. */
enum { OBJECTS = 6 };

/* M3, C2 of cuda.h: all objects were made when the products were. */
static void close_products(void) {
    ck_assert_int_eq(lt.created, OBJECTS);
    pl_products_destroy(&cuda.products);
    ck_assert_int_eq(lt.created, lt.destroyed);
}

/* Nothing is read or written: any address does, its alignment aside. */
static struct pl_view matrix(uint64_t rows, uint64_t cols, uint64_t ld, enum pl_dtype dtype) {
    return (struct pl_view){(void *)(uintptr_t)4096, rows, cols, ld, dtype};
}

enum { O = 48, K = 64 };

/* y[n,O] = x[n,K] W[O,K]^T, x being a window. */
static struct pl_product linear(uint64_t n) {
    return (struct pl_product){.trans_b = true,
                               .alpha = 1,
                               .a = matrix(n, K, K + 8, PL_DTYPE_BF16),
                               .b = matrix(O, K, K, PL_DTYPE_BF16),
                               .c = matrix(n, O, O, PL_DTYPE_F32)};
}

/* dW[O,K] = dy[n,O]^T x[n,K] */
static struct pl_product linear_dw(uint64_t n) {
    return (struct pl_product){.trans_a = true,
                               .alpha = 1,
                               .a = matrix(n, O, O, PL_DTYPE_F32),
                               .b = matrix(n, K, K, PL_DTYPE_F32),
                               .c = matrix(O, K, K, PL_DTYPE_F32)};
}

static void multiply(struct pl_product g) {
    ck_assert_int_eq(pl_products_run(&cuda, &g), PL_ERR_OK);
}

START_TEST(a_row_major_product_arrives_swapped) {
    multiply(linear(24));
    ck_assert_int_eq(lt.desc.trans_a, CUBLAS_OP_T); /* W, column-major [K,O] */
    ck_assert_int_eq(lt.desc.trans_b, CUBLAS_OP_N); /* x, column-major [K,24] */
    ck_assert_uint_eq(lt.first.rows, K);
    ck_assert_uint_eq(lt.first.cols, O);
    ck_assert_uint_eq(lt.second.rows, K);
    ck_assert_uint_eq(lt.second.cols, 24);
    ck_assert_int_eq(lt.second.ld, K + 8);
    ck_assert_uint_eq(lt.out.rows, O);
    ck_assert_uint_eq(lt.out.cols, 24);
    ck_assert_uint_eq(lt.first.type, CUDA_R_16BF);
    ck_assert_uint_eq(lt.out.type, CUDA_R_32F);
    multiply(linear_dw(24));
    ck_assert_int_eq(lt.desc.trans_a, CUBLAS_OP_N); /* x */
    ck_assert_int_eq(lt.desc.trans_b, CUBLAS_OP_T); /* dy */
    ck_assert_uint_eq(lt.second.rows, O);
    ck_assert_uint_eq(lt.second.cols, 24);
}
END_TEST

START_TEST(adding_keeps_the_output_and_a_bias_is_in_the_epilogue) {
    struct pl_product g = linear(8);
    multiply(g);
    ck_assert_float_eq(lt.beta, 0);
    ck_assert_uint_eq(lt.desc.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
    g.adds = true;
    g.bias = matrix(O, 1, 1, PL_DTYPE_F32);
    multiply(g);
    ck_assert_float_eq(lt.beta, 1);
    ck_assert_uint_eq(lt.desc.epilogue, CUBLASLT_EPILOGUE_BIAS);
    ck_assert_ptr_eq(lt.desc.bias, g.bias.p);
    multiply(linear(8));
    ck_assert_uint_eq(lt.desc.epilogue, CUBLASLT_EPILOGUE_DEFAULT);
}
END_TEST

START_TEST(parts_of_a_split_are_never_added_in_place) {
    struct pl_product g = linear(8);
    g.ws_bytes = 12345;
    multiply(g);
    ck_assert_uint_eq(lt.preference.reduction, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    ck_assert_uint_eq(lt.preference.ws_bytes, 12345);
}
END_TEST

#define IN_TYPE CUBLASLT_REDUCTION_SCHEME_NONE
#define APART   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
static const struct {
    uint64_t tokens;
    struct split splits[8]; /* of the proposals, the best first; 0 = a sum that is not split */
    int taken, asked;       /* proposal that is used; questions until then */
} split_sums[] = {
    {1024, {{4, APART}, {1, 0}}, 0, 1},               /* slices of 128 fill it */
    {1024, {{4, IN_TYPE}, {2, APART}, {1, 0}}, 1, 1}, /* sums between slices keep fp32 */
    {1024, {{4, IN_TYPE}, {1, 0}}, 1, 1},
    {1017, {{4, APART}, {2, APART}, {1, 0}}, 2, 2}, /* the rounded shape's split is no use here */
    {960, {{4, APART}, {1, 0}}, 1, 1},
    {960,
     {{2, APART},
      {2, APART},
      {2, APART},
      {2, APART},
      {2, APART},
      {2, APART},
      {2, APART},
      {2, APART}},
     0,
     2}, /* asked again, for sums that are not split */
};

START_TEST(no_split_of_a_sum_loses_terms) {
    const uint64_t tokens = split_sums[_i].tokens;
    lt.splits = split_sums[_i].splits;
    lt.n_splits = 8;
    multiply(linear_dw(tokens));
    ck_assert_int_eq(lt.used.proposal, split_sums[_i].taken);
    ck_assert_int_eq(lt.asked, split_sums[_i].asked);
    ck_assert(lt.used.splits <= 1 || (lt.used.scheme == APART && tokens % 128 == 0));
}
END_TEST

START_TEST(token_counts_of_one_step_share_an_algorithm) {
    for (uint64_t n = 961; n <= 1024; n++)
        multiply(linear(n));
    ck_assert_int_eq(lt.asked, 1);
    multiply(linear(1025));
    ck_assert_int_eq(lt.asked, 2);
    for (uint64_t n = 961; n <= 1152; n++)
        multiply(linear(n));
    ck_assert_int_eq(lt.asked, 2);
}
END_TEST

/* An algorithm serves the shape it was chosen for and smaller ones, so the shape is not smaller;
 * and not much larger. */
START_TEST(an_algorithm_is_chosen_for_an_eighth_more_tokens_at_most) {
    for (uint64_t n = 1; n < 40000; n += 1 + n / 50) {
        multiply(linear(n));
        ck_assert_uint_eq(lt.at_hand.n, n);
        ck_assert_uint_ge(lt.used.n, n);
        ck_assert_uint_le(lt.used.n, n + (n < 64 ? 7 : n / 8));
        ck_assert_uint_eq(lt.used.m, O);
        ck_assert_uint_eq(lt.used.k, K);
    }
    ck_assert_int_lt(lt.asked, 100);
}
END_TEST

START_TEST(a_weight_gradient_has_its_tokens_in_the_sum) {
    multiply(linear_dw(1001));
    ck_assert_uint_eq(lt.used.k, 1024);
    ck_assert_uint_eq(lt.used.m, K);
    ck_assert_uint_eq(lt.used.n, O);
    ck_assert_uint_eq(lt.at_hand.k, 1001);
}
END_TEST

/* M2. */
START_TEST(the_choice_does_not_depend_on_what_ran_before) {
    multiply(linear(1003));
    multiply(linear(1000));
    const struct chosen after = lt.used;
    close_products();
    open_products();
    multiply(linear(1000));
    ck_assert_mem_eq(&after, &lt.used, sizeof after);
}
END_TEST

/* Gradients of dy's columns [0, O) and [O, 2 O) by x's columns [0, K) and [K, 2 K). */
static struct pl_product two_dw(uint64_t n) {
    struct pl_product g = linear_dw(n);
    g.a.p = (char *)g.a.p + 64; /* as aligned as the second one */
    g.a.ld = 2 * O;
    g.b.ld = 2 * K;
    g.further = 1;
    g.apart[0] = O;
    g.apart[1] = K;
    g.apart[2] = O * K + 64;
    return g;
}

/* M5 of products.h. */
START_TEST(products_that_run_as_one_have_the_algorithm_of_one_alone) {
    struct pl_product one = two_dw(1001);
    one.further = 0;
    memset(one.apart, 0, sizeof one.apart);
    multiply(one);
    const struct chosen alone = lt.used;
    ck_assert_int_eq(lt.out.products, 1);
    multiply(two_dw(1001));
    ck_assert_int_eq(lt.ran, 2);
    ck_assert_int_eq(lt.first.products, 2);
    ck_assert_int_eq(lt.second.products, 2);
    ck_assert_int_eq(lt.out.products, 2);
    ck_assert_int_eq(lt.second.apart, O);
    ck_assert_int_eq(lt.first.apart, K);
    ck_assert_int_eq(lt.out.apart, O * K + 64);
    ck_assert_mem_eq(&lt.used, &alone, sizeof alone);
    ck_assert_int_eq(lt.asked, 1);
    ck_assert_int_eq(lt.checked, 2);
    multiply(one);
    ck_assert_int_eq(lt.out.products, 1);
    ck_assert_int_eq(lt.out.apart, 0);
}
END_TEST

/* The second one's operands decide as well what an algorithm may load at a time. */
START_TEST(products_that_run_as_one_are_aligned_as_all_of_them) {
    struct pl_product g = two_dw(1024);
    g.apart[1] = 4;
    multiply(g);
    ck_assert_int_eq(lt.preference.alignment[0], 16); /* x */
    ck_assert_int_eq(lt.preference.alignment[1], 64); /* dy */
}
END_TEST

START_TEST(what_an_algorithm_depends_on_tells_shapes_apart) {
    struct pl_product g = linear(64);
    multiply(g);
    g.c.ld = O + 8;
    multiply(g);
    g.a.p = (char *)g.a.p + 16;
    multiply(g);
    ck_assert_int_eq(lt.preference.alignment[0], 256); /* W */
    ck_assert_int_eq(lt.preference.alignment[1], 16);
    g.c.dtype = PL_DTYPE_BF16;
    multiply(g);
    g.bias = matrix(O, 1, 1, PL_DTYPE_BF16);
    multiply(g);
    ck_assert_int_eq(lt.asked, 5);
    g.alpha = 2;
    g.adds = true;
    multiply(g);
    ck_assert_int_eq(lt.asked, 5);
    g.bias.p = (char *)g.bias.p + 2;
    multiply(g);
    ck_assert_int_eq(lt.asked, 6);
    ck_assert_int_eq(lt.preference.alignment[3], 2);
}
END_TEST

/* The result of the check of a shape that is not the algorithm's own: a refusal, or more workspace
 * than there is. */
static const struct {
    cublasStatus_t refuses;
    uint64_t wants_bytes;
} illegal[] = {{CUBLAS_STATUS_NOT_SUPPORTED, 0},
               {CUBLAS_STATUS_INVALID_VALUE, 0},
               {CUBLAS_STATUS_ARCH_MISMATCH, 0},
               {CUBLAS_STATUS_SUCCESS, 4097}};

/* M4. */
START_TEST(an_algorithm_that_may_not_run_a_shape_is_not_run_on_it) {
    struct pl_product g = linear(1001);
    g.ws_bytes = 4096;
    lt.refuses = illegal[_i].refuses;
    lt.wants_bytes = illegal[_i].wants_bytes;
    for (int times = 0; times < 2; times++) {
        multiply(g);
        ck_assert_uint_eq(lt.used.n, 1001);
        ck_assert_int_eq(lt.asked, 2);
        ck_assert_int_eq(lt.checked, 1);
    }
    ck_assert_int_eq(lt.tried, 2);
}
END_TEST

START_TEST(each_exact_shape_is_checked_once) {
    for (int times = 0; times < 3; times++)
        for (uint64_t n = 961; n <= 1024; n++)
            multiply(linear(n));
    ck_assert_int_eq(lt.checked, 63); /* 1,024 is what the algorithm was chosen for */
}
END_TEST

/* A check that succeeds does not promise that the product runs. */
static const cublasStatus_t failures[] = {
    CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,  CUBLAS_STATUS_INVALID_VALUE,
    CUBLAS_STATUS_ARCH_MISMATCH,   CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
    CUBLAS_STATUS_INTERNAL_ERROR,  CUBLAS_STATUS_NOT_SUPPORTED};

START_TEST(a_reused_algorithm_that_fails_is_replaced_by_that_of_the_exact_shape) {
    lt.reused = failures[_i];
    multiply(linear(1001));
    ck_assert_uint_eq(lt.used.n, 1001);
    ck_assert_int_eq(lt.tried, 2);
    multiply(linear(1001));
    ck_assert_int_eq(lt.tried, 3);
    ck_assert_int_eq(lt.asked, 2);
    multiply(linear(1024));
    ck_assert_int_eq(lt.asked, 2);
}
END_TEST

/* M4. */
START_TEST(a_product_is_tried_twice_at_most) {
    const struct pl_product own = linear(1024), reused = linear(1001);
    lt.status = CUBLAS_STATUS_EXECUTION_FAILED;
    ck_assert_int_eq(pl_products_run(&cuda, &own), PL_ERR_DEVICE_LOST);
    ck_assert_int_eq(lt.tried, 2);
    ck_assert_int_eq(pl_products_run(&cuda, &reused), PL_ERR_DEVICE_LOST);
    ck_assert_int_eq(lt.tried, 4);
    ck_assert_str_eq(pl_products_failure(cuda.products), "CUBLAS_STATUS_EXECUTION_FAILED");
}
END_TEST

/* One that fails as well is not kept: a run that recovers multiplies as it did before. */
START_TEST(an_algorithm_that_fails_gives_way_to_the_next_proposal) {
    const struct pl_product g = linear(1024);
    lt.best = CUBLAS_STATUS_INTERNAL_ERROR;
    lt.status = CUBLAS_STATUS_INTERNAL_ERROR;
    ck_assert_int_eq(pl_products_run(&cuda, &g), PL_ERR_DEVICE_LOST);
    ck_assert_int_eq(lt.used.proposal, 1);
    lt.best = lt.status = CUBLAS_STATUS_SUCCESS;
    multiply(g);
    ck_assert_int_eq(lt.used.proposal, 0);
    lt.best = CUBLAS_STATUS_INTERNAL_ERROR;
    multiply(g);
    ck_assert_int_eq(lt.used.proposal, 1);
    ck_assert_int_eq(lt.tried, 5);
    multiply(g);
    ck_assert_int_eq(lt.used.proposal, 1);
    ck_assert_int_eq(lt.tried, 6);
}
END_TEST

START_TEST(a_proposal_whose_state_is_no_success_is_passed_over) {
    lt.no_proposals = 1;
    multiply(linear(1024));
    ck_assert_uint_eq(lt.used.n, 1024);
    ck_assert_uint_eq(lt.used.m, O);
}
END_TEST

START_TEST(a_shape_without_a_proposal_is_refused) {
    const struct pl_product g = linear(1001);
    lt.no_proposals = 1000;
    ck_assert_int_eq(pl_products_run(&cuda, &g), PL_ERR_PLAN_BROKEN);
    ck_assert_int_eq(lt.tried, 0);
}
END_TEST

START_TEST(a_full_table_still_multiplies) {
    for (uint64_t cols = 1; cols <= 5000; cols++) {
        struct pl_product g = linear(8);
        g.b.rows = g.c.cols = g.c.ld = cols;
        multiply(g);
        ck_assert_uint_eq(lt.used.m, cols);
    }
    ck_assert_int_eq(lt.asked, 5000);
}
END_TEST

static const struct {
    cublasStatus_t status;
    pl_err err;
} statuses[] = {{CUBLAS_STATUS_SUCCESS, PL_ERR_OK},
                {CUBLAS_STATUS_ALLOC_FAILED, PL_ERR_DEVICE_OOM},
                {CUBLAS_STATUS_NOT_SUPPORTED, PL_ERR_PLAN_BROKEN},
                {CUBLAS_STATUS_INVALID_VALUE, PL_ERR_PLAN_BROKEN},
                {CUBLAS_STATUS_EXECUTION_FAILED, PL_ERR_DEVICE_LOST}};

START_TEST(a_status_of_the_library_becomes_an_error) {
    const struct pl_product g = linear(8);
    lt.status = statuses[_i].status;
    ck_assert_int_eq(pl_products_run(&cuda, &g), statuses[_i].err);
}
END_TEST

/* The library fails so if it has no room to load a kernel: where hardly anything is free, or some
 * of the little that was free has gone since a product ran. A job that was planned to the margin of
 * 64 MiB has no more than that all the time, and loses its device as any other does. */
static const struct {
    int before, after; /* free MiB; before: when a product of another shape ran, 0 = none did */
    pl_err err;
} rooms[] = {{0, 1000, PL_ERR_DEVICE_LOST}, {0, 1, PL_ERR_DEVICE_OOM},
             {0, 64, PL_ERR_DEVICE_LOST},   {64, 64, PL_ERR_DEVICE_LOST},
             {80, 64, PL_ERR_DEVICE_OOM},   {1000, 900, PL_ERR_DEVICE_LOST}};

static void leave_free(int mib) {
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)mib << 20);
    ck_assert_int_eq(setenv("PLSIM_MEMORY_BYTES", bytes, 1), 0);
    plsim_restart();
}

START_TEST(a_product_that_fails_is_out_of_memory_where_memory_is_short) {
    const struct pl_product g = linear(8);
    if (rooms[_i].before) {
        leave_free(rooms[_i].before);
        multiply(linear(1024));
    }
    leave_free(rooms[_i].after);
    lt.status = CUBLAS_STATUS_EXECUTION_FAILED;
    ck_assert_int_eq(pl_products_run(&cuda, &g), rooms[_i].err);
}
END_TEST

START_TEST(a_creation_that_fails_leaves_nothing_behind) {
    struct pl_products *p = NULL;
    struct pl_diag d = {0};
    memset(&lt, 0, sizeof lt);
    lt.fail_at = _i;
    ck_assert_int_eq(pl_products_create(&fake, &p, &d),
                     _i <= OBJECTS ? PL_ERR_DEVICE_OOM : PL_ERR_OK);
    ck_assert(_i > OBJECTS || p == NULL);
    pl_products_destroy(&p);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(lt.created, _i <= OBJECTS ? _i - 1 : OBJECTS);
    ck_assert_int_eq(lt.created, lt.destroyed);
}
END_TEST

int main(void) {
    Suite *s = suite_create("products");
    TCase *tc = tcase_create("cublaslt");
    tcase_add_checked_fixture(tc, open_products, close_products);
    tcase_add_test(tc, a_row_major_product_arrives_swapped);
    tcase_add_test(tc, adding_keeps_the_output_and_a_bias_is_in_the_epilogue);
    tcase_add_test(tc, parts_of_a_split_are_never_added_in_place);
    tcase_add_loop_test(tc, no_split_of_a_sum_loses_terms, 0,
                        sizeof split_sums / sizeof *split_sums);
    tcase_add_test(tc, token_counts_of_one_step_share_an_algorithm);
    tcase_add_test(tc, an_algorithm_is_chosen_for_an_eighth_more_tokens_at_most);
    tcase_add_test(tc, a_weight_gradient_has_its_tokens_in_the_sum);
    tcase_add_test(tc, the_choice_does_not_depend_on_what_ran_before);
    tcase_add_test(tc, products_that_run_as_one_have_the_algorithm_of_one_alone);
    tcase_add_test(tc, products_that_run_as_one_are_aligned_as_all_of_them);
    tcase_add_test(tc, what_an_algorithm_depends_on_tells_shapes_apart);
    tcase_add_loop_test(tc, an_algorithm_that_may_not_run_a_shape_is_not_run_on_it, 0,
                        sizeof illegal / sizeof *illegal);
    tcase_add_test(tc, each_exact_shape_is_checked_once);
    tcase_add_loop_test(tc, a_reused_algorithm_that_fails_is_replaced_by_that_of_the_exact_shape, 0,
                        sizeof failures / sizeof *failures);
    tcase_add_test(tc, a_product_is_tried_twice_at_most);
    tcase_add_test(tc, an_algorithm_that_fails_gives_way_to_the_next_proposal);
    tcase_add_test(tc, a_proposal_whose_state_is_no_success_is_passed_over);
    tcase_add_test(tc, a_shape_without_a_proposal_is_refused);
    tcase_add_test(tc, a_full_table_still_multiplies);
    tcase_add_loop_test(tc, a_status_of_the_library_becomes_an_error, 0,
                        sizeof statuses / sizeof *statuses);
    tcase_add_loop_test(tc, a_product_that_fails_is_out_of_memory_where_memory_is_short, 0,
                        sizeof rooms / sizeof *rooms);
    suite_add_tcase(s, tc);
    tc = tcase_create("making");
    tcase_add_loop_test(tc, a_creation_that_fails_leaves_nothing_behind, 1, OBJECTS + 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
