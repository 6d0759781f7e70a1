/* sim_lt.c - cuBLASLt of the emulation, as a shared library: the back-end's own loader finds it.
 *
 * Slow, plain and strict: what the real library leaves to the caller's care ends the process here -
 * operands outside device memory, an algorithm used with less workspace or alignment than it was
 * chosen for, or for another shape before it was checked for that one. One proposal in four is
 * none, and one smaller shape in four is refused, as the real library is free to do. The best
 * proposals split the sum: one keeps it in the type of the output between slices, and one loses the
 * terms that the last slice does not fill, as versions of the real library do. The workspace
 * is overwritten, because the real one may be. Symbols of the emulation come from the executable
 * that loads this. */
#include "tests/cuda_sim/sim.h"

#include "estimator/ops/half.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

struct cublasLtContext {
    int unused;
};

struct plsim_matmul {
    uint32_t compute, scale, epilogue;
    int32_t trans_a, trans_b;
    const void *bias;
};

struct plsim_layout {
    uint32_t type;
    uint64_t rows, cols;
    int64_t ld, apart; /* elements of it; from the matrix of one product to that of the next */
    int32_t products;
};

struct plsim_preference {
    uint64_t workspace_bytes;
    uint32_t reduction_mask;
    uint32_t alignment[4]; /* a, b, c, d */
};

/* The content that cublasLtMatmulAlgo_t hides. */
struct algorithm {
    uint64_t workspace_bytes;
    uint64_t m, n, k; /* largest problem it was chosen for */
    uint16_t alignment[4];
    uint32_t marker;
    uint16_t splits, reduction; /* a split sum loses what is left of k after slices of SLICE */
};
enum { MARKER = 0x504C4C54, WORKSPACE_USED = 65536, SLICE = 128 };
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits the real one");

/* ---- objects ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
#ifdef PLSIM_LT_REFUSES
    return *handle = NULL, CUBLAS_STATUS_NOT_INITIALIZED;
#endif
    *handle = calloc(1, sizeof **handle);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (!desc || compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_INVALID_VALUE;
    *desc = malloc(sizeof **desc);
    if (!*desc) return CUBLAS_STATUS_ALLOC_FAILED;
    **desc = (struct plsim_matmul){
        .compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    if (!layout) return CUBLAS_STATUS_INVALID_VALUE;
    *layout = malloc(sizeof **layout);
    if (!*layout) return CUBLAS_STATUS_ALLOC_FAILED;
    **layout = (struct plsim_layout){type, rows, cols, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    if (!preference) return CUBLAS_STATUS_INVALID_VALUE;
    *preference = malloc(sizeof **preference);
    if (!*preference) return CUBLAS_STATUS_ALLOC_FAILED;
    **preference =
        (struct plsim_preference){0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- attributes: each is a field ---- */

struct field {
    int attribute;
    size_t offset, bytes;
};
#define FIELD(attribute, type, member)                                                             \
    { attribute, offsetof(struct type, member), sizeof(((struct type *)NULL)->member) }

static cublasStatus_t set_field(const struct field *fields, size_t n, int attribute, void *object,
                                const void *value, size_t bytes) {
    for (size_t i = 0; i < n; i++) {
        if (fields[i].attribute != attribute) continue;
        if (!object || !value || bytes != fields[i].bytes) return CUBLAS_STATUS_INVALID_VALUE;
        memcpy((char *)object + fields[i].offset, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    static const struct field fields[] = {
        FIELD(CUBLASLT_MATMUL_DESC_TRANSA, plsim_matmul, trans_a),
        FIELD(CUBLASLT_MATMUL_DESC_TRANSB, plsim_matmul, trans_b),
        FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, plsim_matmul, epilogue),
        FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, plsim_matmul, bias)};
    return set_field(fields, sizeof fields / sizeof *fields, (int)attribute, desc, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    static const struct field fields[] = {
        FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, plsim_layout, type),
        FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, plsim_layout, rows),
        FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, plsim_layout, cols),
        FIELD(CUBLASLT_MATRIX_LAYOUT_LD, plsim_layout, ld),
        FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, plsim_layout, products),
        FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, plsim_layout, apart)};
    return set_field(fields, sizeof fields / sizeof *fields, (int)attribute, layout, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes) {
    static const struct field fields[] = {
        FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, plsim_preference, workspace_bytes),
        FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, plsim_preference, reduction_mask),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, plsim_preference, alignment[0]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, plsim_preference, alignment[1]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, plsim_preference, alignment[2]),
        FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, plsim_preference, alignment[3])};
    return set_field(fields, sizeof fields / sizeof *fields, (int)attribute, preference, value,
                     bytes);
}

/* ---- problems ---- */

struct problem {
    const struct plsim_matmul *desc;
    const struct plsim_layout *a, *b, *c, *d;
    uint64_t m, n, k;
};

static bool is_layout(const struct plsim_layout *l) {
    return l && l->rows > 0 && l->cols > 0 && l->ld >= 0 && (uint64_t)l->ld >= l->rows &&
           l->products > 0 && l->apart >= 0;
}

static bool are_as_many(const struct problem *p) {
    return p->a->products == p->d->products && p->b->products == p->d->products &&
           p->c->products == p->d->products;
}

/* Types of the table of supported combinations for CUBLAS_COMPUTE_32F: operands of one type, with
 * results of the same or fp32. */
static bool types_work(const struct problem *p) {
    uint32_t in = p->a->type, out = p->d->type;
    return p->b->type == in && p->c->type == out &&
           (in == CUDA_R_16BF || in == CUDA_R_16F || in == CUDA_R_32F) &&
           (out == in || out == CUDA_R_32F);
}

static cublasStatus_t state(struct problem *p) {
    if (!p->desc || !is_layout(p->a) || !is_layout(p->b) || !is_layout(p->c) || !is_layout(p->d))
        return CUBLAS_STATUS_INVALID_VALUE;
    bool ta = p->desc->trans_a != CUBLAS_OP_N, tb = p->desc->trans_b != CUBLAS_OP_N;
    p->m = ta ? p->a->cols : p->a->rows;
    p->k = ta ? p->a->rows : p->a->cols;
    p->n = tb ? p->b->rows : p->b->cols;
    if ((tb ? p->b->cols : p->b->rows) != p->k || p->d->rows != p->m || p->d->cols != p->n ||
        p->c->rows != p->m || p->c->cols != p->n || !are_as_many(p))
        return CUBLAS_STATUS_INVALID_VALUE;
    return types_work(p) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- algorithms ---- */

/* FNV-1a of an algorithm and a shape. */
static uint64_t hash_of(const struct algorithm *algo, const struct problem *p) {
    const uint64_t words[] = {algo->m, algo->n, algo->k, algo->workspace_bytes, p->m, p->n, p->k};
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        h = (h ^ words[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* Shapes that the caller has asked about. Two questions may share an entry: then a missing one is
 * not noticed, but none that was asked is reported. */
enum { CHECKED = 1 << 20 };
static bool checked[CHECKED];

static bool is_own_shape(const struct algorithm *algo, const struct problem *p) {
    return p->m == algo->m && p->n == algo->n && p->k == algo->k;
}

static cublasStatus_t may_run(const struct algorithm *algo, const struct problem *p) {
    if (p->m > algo->m || p->n > algo->n || p->k > algo->k) return CUBLAS_STATUS_INVALID_VALUE;
    return is_own_shape(algo, p) || hash_of(algo, p) / CHECKED % 4 ? CUBLAS_STATUS_SUCCESS
                                                                   : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result) {
    struct problem p = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    struct algorithm own;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || !result) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t s = state(&p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    memcpy(&own, algo, sizeof own);
    if (own.marker != MARKER) plsim_die("cublasLtMatmulAlgoCheck: not one of the heuristic");
    checked[hash_of(&own, &p) % CHECKED] = true;
    result->workspaceSize = own.workspace_bytes;
    return may_run(&own, &p);
}

/* A proposal that a caller must not use: nothing but the state is valid. */
static cublasLtMatmulHeuristicResult_t no_proposal(void) {
    cublasLtMatmulHeuristicResult_t none;
    memset(&none, 0xFF, sizeof none);
    none.state = CUBLAS_STATUS_NOT_SUPPORTED;
    return none;
}

static cublasLtMatmulHeuristicResult_t proposal_of(const struct algorithm *algo) {
    cublasLtMatmulHeuristicResult_t result = {.workspaceSize = algo->workspace_bytes};
    memcpy(&result.algo, algo, sizeof *algo);
    return result;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void *value, size_t bytes, size_t *written) {
    struct algorithm own;
    if (!algo || !value || !written || bytes != 4) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&own, algo, sizeof own);
    if (own.marker != MARKER) plsim_die("an attribute of an algorithm that is none");
    const uint32_t answer =
        attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? own.splits : own.reduction;
    if (attribute != CUBLASLT_ALGO_CONFIG_SPLITK_NUM &&
        attribute != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &answer, sizeof answer);
    *written = sizeof answer;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *found) {
    struct problem p = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!preference || requested < 1 || !results || !found) return CUBLAS_STATUS_INVALID_VALUE;
    *found = 0;
    cublasStatus_t s = state(&p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    /* An algorithm that splits k might want as much, or all that there is. */
    struct algorithm chosen = {.splits = 1,
                               .workspace_bytes = preference->workspace_bytes < WORKSPACE_USED
                                                      ? preference->workspace_bytes
                                                      : WORKSPACE_USED,
                               .m = p.m,
                               .n = p.n,
                               .k = p.k,
                               .marker = MARKER};
    for (int i = 0; i < 4; i++)
        chosen.alignment[i] = (uint16_t)preference->alignment[i];
    if (requested > 1 && hash_of(&chosen, &p) % 4 == 0) results[(*found)++] = no_proposal();
    static const uint16_t split[] = {CUBLASLT_REDUCTION_SCHEME_NONE,
                                     CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
    for (size_t i = 0; i < 2 && *found + 1 < requested; i++) {
        struct algorithm one = chosen;
        one.splits = 4;
        one.reduction = split[i];
        if (p.k >= 4 && (split[i] & preference->reduction_mask) == split[i])
            results[(*found)++] = proposal_of(&one);
    }
    results[(*found)++] = proposal_of(&chosen);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

static size_t size_of(uint32_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

static uint64_t extent(const struct plsim_layout *l) {
    return ((l->cols - 1) * (uint64_t)l->ld + l->rows) * size_of(l->type);
}

/* The matrix of product `number`. */
static void *matrix_of(const void *first, const struct plsim_layout *l, int32_t number) {
    return (char *)(uintptr_t)first + (uint64_t)number * (uint64_t)l->apart * size_of(l->type);
}

static float element(const void *p, uint32_t type, uint64_t i) {
    uint32_t u;
    uint16_t h;
    float f;
    if (type == CUDA_R_32F) {
        memcpy(&f, (const char *)p + 4 * i, sizeof f);
        return f;
    }
    memcpy(&h, (const char *)p + 2 * i, sizeof h);
    if (type == CUDA_R_16F) return pl_half_widen(h);
    u = (uint32_t)h << 16;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void set_element(void *p, uint32_t type, uint64_t i, float f) {
    uint32_t u;
    if (type == CUDA_R_32F) {
        memcpy((char *)p + 4 * i, &f, sizeof f);
        return;
    }
    memcpy(&u, &f, sizeof u);
    const bool is_nan = (u & 0x7FFFFFFF) > 0x7F800000;
    const uint32_t narrow =
        type == CUDA_R_16F ? pl_half_narrow(f) : (u + 0x7FFF + (u >> 16 & 1)) >> 16;
    const uint16_t h = is_nan ? 0x7FFF : (uint16_t)narrow;
    memcpy((char *)p + 2 * i, &h, sizeof h);
}

static float rounded(float f, uint32_t type) {
    float stored[1];
    set_element(stored, type, 0, f);
    return element(stored, type, 0);
}

/* op(x) in fp32, row-major [rows, cols]; x is column-major as laid out. */
static float *widen(const void *x, const struct plsim_layout *l, bool trans, uint64_t rows,
                    uint64_t cols) {
    float *out = malloc(rows * cols * sizeof *out);
    if (!out) plsim_die("no memory for a product");
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < cols; j++)
            out[i * cols + j] =
                element(x, l->type, trans ? i * (uint64_t)l->ld + j : j * (uint64_t)l->ld + i);
    return out;
}

/* Returns how many of k terms an algorithm adds. */
static uint64_t terms_of(const struct algorithm *algo, uint64_t k) {
    return algo->splits > 1 && algo->reduction != CUBLASLT_REDUCTION_SCHEME_NONE ? k - k % SLICE
                                                                                 : k;
}

/* Sums in fp32, in the order of k; a split without a reduction scheme rounds them to the type of
 * the output after each slice. */
static float *multiply(const struct problem *p, const struct algorithm *algo, const void *a,
                       const void *b) {
    float *wide_a = widen(a, p->a, p->desc->trans_a != CUBLAS_OP_N, p->m, p->k);
    float *wide_b = widen(b, p->b, p->desc->trans_b != CUBLAS_OP_N, p->k, p->n);
    float *sums = calloc(p->m * p->n, sizeof *sums);
    if (!sums) plsim_die("no memory for a product");
    for (uint64_t i = 0; i < p->m; i++)
        for (uint64_t k = 0; k < terms_of(algo, p->k); k++)
            for (uint64_t j = 0; j < p->n; j++) {
                sums[i * p->n + j] += wide_a[i * p->k + k] * wide_b[k * p->n + j];
                if (algo->splits > 1 && algo->reduction == CUBLASLT_REDUCTION_SCHEME_NONE)
                    sums[i * p->n + j] = rounded(sums[i * p->n + j], p->d->type);
            }
    free(wide_a);
    free(wide_b);
    return sums;
}

/* A product with everything it was asked for with, as it was then. */
struct product {
    struct plsim_matmul desc;
    struct plsim_layout layout[4]; /* a, b, c, d */
    const void *operand[4];
    float scale, keep;
    struct algorithm algorithm;
    void *workspace;
    size_t workspace_bytes;
};

static void check_operand(const struct product *t, int i, const void *p) {
    static const char *const names[4] = {"cublasLtMatmul, A", "cublasLtMatmul, B",
                                         "cublasLtMatmul, C", "cublasLtMatmul, D"};
    plsim_check_device_range(names[i], p, extent(&t->layout[i]));
    if ((uintptr_t)p % t->algorithm.alignment[i] != 0)
        plsim_die("%s: %p is not aligned to the %u bytes it was chosen for", names[i], p,
                  t->algorithm.alignment[i]);
}

static void check_use(const struct product *t, const void *bias, uint64_t m) {
    const struct algorithm *algo = &t->algorithm;
    const int32_t products = t->layout[3].products;
    if (algo->marker != MARKER) plsim_die("cublasLtMatmul: not an algorithm of the heuristic");
    for (int i = 0; i < 4; i++)
        for (int32_t k = 0; k < products; k++)
            check_operand(t, i, matrix_of(t->operand[i], &t->layout[i], k));
    if (products > 1 && (char *)matrix_of(t->operand[3], &t->layout[3], 1) <
                            (char *)(uintptr_t)t->operand[3] + extent(&t->layout[3]))
        plsim_die("cublasLtMatmul: products that write what others write");
    if (t->workspace_bytes < algo->workspace_bytes)
        plsim_die("cublasLtMatmul: %zu bytes of workspace for an algorithm that uses %zu",
                  t->workspace_bytes, (size_t)algo->workspace_bytes);
    if (bias)
        plsim_check_device_range("cublasLtMatmul, bias", bias, m * size_of(t->layout[3].type));
    if ((uintptr_t)bias % algo->alignment[3] != 0)
        plsim_die("cublasLtMatmul: a bias at %p, the output was promised aligned to %u", bias,
                  algo->alignment[3]);
    if (t->workspace_bytes == 0) return;
    plsim_check_device_range("cublasLtMatmul, workspace", t->workspace, t->workspace_bytes);
}

/* Product `number` of those that run as one. */
static void run_one(const struct product *t, const struct problem *p, int32_t number) {
    const void *bias = t->desc.epilogue == CUBLASLT_EPILOGUE_BIAS ? t->desc.bias : NULL;
    const void *c = matrix_of(t->operand[2], p->c, number);
    void *d = matrix_of(t->operand[3], p->d, number);
    float *sums = multiply(p, &t->algorithm, matrix_of(t->operand[0], p->a, number),
                           matrix_of(t->operand[1], p->b, number));
    for (uint64_t j = 0; j < p->n; j++)
        for (uint64_t i = 0; i < p->m; i++) {
            float sum = t->scale * sums[i * p->n + j];
            if (t->keep != 0) sum += t->keep * element(c, p->c->type, j * (uint64_t)p->c->ld + i);
            if (bias) sum += element(bias, p->d->type, i);
            set_element(d, p->d->type, j * (uint64_t)p->d->ld + i, sum);
        }
    free(sums);
}

static void run_product(void *data) {
    const struct product *t = data;
    const struct plsim_layout *l = t->layout;
    struct problem p = {.desc = &t->desc, .a = &l[0], .b = &l[1], .c = &l[2], .d = &l[3]};
    const void *bias = t->desc.epilogue == CUBLASLT_EPILOGUE_BIAS ? t->desc.bias : NULL;
    if (state(&p) != CUBLAS_STATUS_SUCCESS) plsim_die("a product changed since it was checked");
    check_use(t, bias, p.m);
    if (t->workspace_bytes) memset(t->workspace, 0xFF, t->algorithm.workspace_bytes);
    for (int32_t k = 0; k < p.d->products; k++)
        run_one(t, &p, k);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    struct problem p = {.desc = desc, .a = a_layout, .b = b_layout, .c = c_layout, .d = d_layout};
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    plsim_counters.matmuls++;
    int injected = plsim_injected(PLSIM_MATMUL);
    if (injected) return (cublasStatus_t)injected;
    if (plsim_sticky() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (!plsim_load_kernels()) return CUBLAS_STATUS_INTERNAL_ERROR;
    if (!alpha || !beta || !algo) return CUBLAS_STATUS_INVALID_VALUE;
    cublasStatus_t s = state(&p);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    struct product t = {.desc = *desc,
                        .layout = {*a_layout, *b_layout, *c_layout, *d_layout},
                        .operand = {a, b, c, d},
                        .scale = *(const float *)alpha,
                        .keep = *(const float *)beta,
                        .workspace = workspace,
                        .workspace_bytes = workspace_bytes};
    memcpy(&t.algorithm, algo, sizeof t.algorithm);
    s = may_run(&t.algorithm, &p);
    if (!is_own_shape(&t.algorithm, &p) && !checked[hash_of(&t.algorithm, &p) % CHECKED])
        plsim_die("cublasLtMatmul: an algorithm of another shape, which was not checked for this");
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    if (plsim_captures(stream))
        return plsim_record(stream, run_product, &t, sizeof t, true) == cudaSuccess
                   ? CUBLAS_STATUS_SUCCESS
                   : CUBLAS_STATUS_EXECUTION_FAILED;
    plsim_submit(stream, run_product, &t, sizeof t);
    return CUBLAS_STATUS_SUCCESS;
}
