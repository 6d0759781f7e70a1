/* products.c - cuBLASLt: descriptors made once, algorithms kept by shape.
 *
 * cuBLASLt thinks in columns: what lies in memory as a row-major [r,c] is to it a column-major
 * [c,r]. So C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T with the operands swapped, and
 * nothing is moved. (cuBLAS Library documentation, "Data Layout" and "cublasLtMatmul()".)
 *
 * Choosing an algorithm takes the library tens of microseconds, as long as a small product runs,
 * and batches of different lengths would bring a new shape every time. So an algorithm is chosen
 * for the shape with the token count rounded up to one of eight steps per octave: the choice
 * depends on the shape alone, not on which batch came first. An algorithm is a tile and a split, so
 * it should compute the smaller shape as well, but nothing promises that: the library is asked by
 * cublasLtMatmulAlgoCheck() before the first product of each exact shape, and where it refuses, the
 * exact shape gets an algorithm of its own. A check that succeeds does not promise that the product
 * runs either (cublasLt.h), so one that fails with a reused algorithm is tried again with its own.
 */
#include "runtime/kernels/cuda/products.h"

#include "estimator/base/alloc.h"
#include "estimator/ops/padding.h"
#include "runtime/device/cuda/lt.h"
#include "runtime/kernels/cuda/set_rows.h"

#include <stdlib.h>
#include <string.h>

/* Entries of the table, a power of two. A model has two dozen kinds of products, token counts up to
 * a million round to 150, and an epoch has hundreds of exact ones; a table that is full replaces.
 */
#define ENTRIES   8192
#define PROBES    16
#define PROPOSALS 8 /* asked for at a time */

#define STEPS_PER_OCTAVE 8
#define MOST_ALIGNMENT   256 /* bytes; cuBLASLt asks about no more */

/* Bytes of the device. Loading a kernel has failed for memory where fewer than LEAST_ROOM are free;
 * it may have where fewer than PL_KERNEL_ROOM are. A job that fills its budget leaves
 * PL_CARD_MARGIN, which lies between the two. */
#define LEAST_ROOM (UINT64_C(32) << 20)

/* The facts that an algorithm depends on. They are compared as bytes: no padding, unused bits 0. */
struct key {
    uint64_t m, n, k;
    uint64_t ld[3];        /* of a, b, c */
    uint64_t apart[3];     /* elements from one product to the next */
    uint32_t alignment[3]; /* bytes */
    uint16_t kind;         /* types, transposes, epilogue */
    uint16_t further;      /* products that run as one with the first */
};

struct entry {
    struct key key; /* m = 0: empty */
    cublasLtMatmulAlgo_t algorithm;
    bool is_reused; /* chosen for the rounded shape, and checked for this one */
};

struct pl_products {
    const struct pl_lt *lt;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t layout[3]; /* a, b, c */
    cublasLtMatmulPreference_t preference;
    struct entry *entries; /* [ENTRIES] */
    uint64_t left_bytes;   /* free on the device after an algorithm ran first; 0 = none has */
    cublasStatus_t failed; /* the status of the last product that failed */
};

/* ---- once ---- */

static pl_err ask_free(uint64_t *out) {
    size_t available = 0, total = 0;
    const cudaError_t e = cudaMemGetInfo(&available, &total);
    *out = available;
    return pl_cuda_error(e);
}

/* The library loads a kernel when it first runs it, and where the device has no room left for that
 * the product fails like one that crashed. A crash spoils the context, and then every call says so.
 * Between the two limits it was memory only if some has gone since products last ran: a job that
 * was planned to the margin is there all the time, and another fault must not halve its batch. */
static pl_err classify_failure(const struct pl_products *p) {
    uint64_t left;
    PL_TRY(ask_free(&left));
    const bool is_full = left < LEAST_ROOM || (left < PL_KERNEL_ROOM && left < p->left_bytes);
    return is_full ? PL_ERR_DEVICE_OOM : PL_ERR_DEVICE_LOST;
}

static pl_err classify(struct pl_products *p, cublasStatus_t s) {
    if (s == CUBLAS_STATUS_SUCCESS) return PL_ERR_OK;
    p->failed = s;
    switch (s) {
    case CUBLAS_STATUS_ALLOC_FAILED:
        return PL_ERR_DEVICE_OOM;
    case CUBLAS_STATUS_INVALID_VALUE:
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return PL_ERR_PLAN_BROKEN;
    default:
        return classify_failure(p);
    }
}

static cublasStatus_t make_descriptors(struct pl_products *p) {
    const struct pl_lt *lt = p->lt;
    cublasStatus_t s = lt->cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (int i = 0; i < 3 && s == CUBLAS_STATUS_SUCCESS; i++)
        s = lt->cublasLtMatrixLayoutCreate(&p->layout[i], CUDA_R_32F, 1, 1, 1);
    if (s == CUBLAS_STATUS_SUCCESS) s = lt->cublasLtMatmulPreferenceCreate(&p->preference);
    return s;
}

pl_err pl_products_create(const struct pl_lt *lt, struct pl_products **out, struct pl_diag *d) {
    struct pl_products *p = pl_calloc(1, sizeof *p);
    cublasStatus_t s;
    *out = p;
    if (!p || !(p->entries = pl_calloc(ENTRIES, sizeof *p->entries))) {
        pl_products_destroy(out);
        return pl_host_oom(d, "the products of the GPU");
    }
    p->lt = lt;
    s = lt->cublasLtCreate(&p->handle);
    if (s == CUBLAS_STATUS_SUCCESS) s = make_descriptors(p);
    if (s == CUBLAS_STATUS_SUCCESS) return PL_ERR_OK;
    pl_products_destroy(out);
    if (s == CUBLAS_STATUS_ALLOC_FAILED)
        return pl_diag_set(d, PL_ERR_DEVICE_OOM, "cuBLASLt is out of memory starting");
    return pl_diag_set(d, PL_ERR_NO_DEVICE, "cuBLASLt does not start (status %d)", (int)s);
}

void pl_products_destroy(struct pl_products **products) {
    struct pl_products *p = *products;
    if (!p) return;
    if (p->preference) (void)p->lt->cublasLtMatmulPreferenceDestroy(p->preference);
    for (int i = 0; i < 3; i++)
        if (p->layout[i]) (void)p->lt->cublasLtMatrixLayoutDestroy(p->layout[i]);
    if (p->desc) (void)p->lt->cublasLtMatmulDescDestroy(p->desc);
    if (p->handle) (void)p->lt->cublasLtDestroy(p->handle);
    free(p->entries);
    free(p);
    *products = NULL;
}

/* ---- the problem at hand, written into the descriptors ---- */

static bool has_bias(const struct pl_product *g) {
    return g->bias.p != NULL;
}

/* Returns the alignment of addresses that are so many bytes apart, from p on. */
static uint32_t alignment_of(const void *p, uint64_t apart_bytes) {
    uint32_t low = (uint32_t)(((uintptr_t)p | apart_bytes) & (MOST_ALIGNMENT - 1));
    return low ? low & -low : MOST_ALIGNMENT;
}

static uint32_t alignment_of_view(const struct pl_view *v, uint64_t apart) {
    return alignment_of(v->p, apart * pl_dtype_bytes(v->dtype));
}

static struct key key_of(const struct pl_product *g) {
    struct key key = {.m = g->c.rows,
                      .n = g->c.cols,
                      .k = g->trans_a ? g->a.rows : g->a.cols,
                      .ld = {g->a.ld, g->b.ld, g->c.ld},
                      .apart = {g->apart[0], g->apart[1], g->apart[2]},
                      .alignment = {alignment_of_view(&g->a, g->apart[0]),
                                    alignment_of_view(&g->b, g->apart[1]),
                                    alignment_of_view(&g->c, g->apart[2])},
                      .further = (uint16_t)g->further};
    /* The epilogue reads the bias in the steps it stores the output in. */
    if (has_bias(g) && alignment_of(g->bias.p, 0) < key.alignment[2])
        key.alignment[2] = alignment_of(g->bias.p, 0);
    key.kind = (uint16_t)(g->trans_a | g->trans_b << 1 | has_bias(g) << 2 |
                          (uint32_t)g->a.dtype << 3 | (uint32_t)g->c.dtype << 8);
    return key;
}

/* The name that the library has for each storage type. */
static const uint32_t library_types[PL_DTYPE_COUNT] = {
    [PL_DTYPE_F32] = CUDA_R_32F,
    [PL_DTYPE_BF16] = CUDA_R_16BF,
    [PL_DTYPE_F16] = CUDA_R_16F,
};

static cublasStatus_t set_layout(const struct pl_products *p, int i, enum pl_dtype dtype,
                                 uint64_t rows, uint64_t cols, const struct key *key) {
    const uint32_t type = library_types[dtype];
    const int64_t stride = (int64_t)key->ld[i], apart = (int64_t)key->apart[i];
    const int32_t products = 1 + key->further;
    const struct {
        cublasLtMatrixLayoutAttribute_t attribute;
        const void *value;
        size_t bytes;
    } rows_of[] = {{CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type},
                   {CUBLASLT_MATRIX_LAYOUT_ROWS, &cols, sizeof cols},
                   {CUBLASLT_MATRIX_LAYOUT_COLS, &rows, sizeof rows},
                   {CUBLASLT_MATRIX_LAYOUT_LD, &stride, sizeof stride},
                   {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &products, sizeof products},
                   {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart}};
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    for (size_t r = 0; r < sizeof rows_of / sizeof *rows_of && s == CUBLAS_STATUS_SUCCESS; r++)
        s = p->lt->cublasLtMatrixLayoutSetAttribute(p->layout[i], rows_of[r].attribute,
                                                    rows_of[r].value, rows_of[r].bytes);
    return s;
}

/* The stored shapes for these m, n, k. */
static cublasStatus_t set_layouts(const struct pl_products *p, const struct pl_product *g,
                                  const struct key *key) {
    const uint64_t m = key->m, n = key->n, k = key->k;
    cublasStatus_t s = set_layout(p, 0, g->a.dtype, g->trans_a ? k : m, g->trans_a ? m : k, key);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = set_layout(p, 1, g->b.dtype, g->trans_b ? n : k, g->trans_b ? k : n, key);
    if (s == CUBLAS_STATUS_SUCCESS) s = set_layout(p, 2, g->c.dtype, m, n, key);
    return s;
}

/* The first operand of cuBLASLt is our B. */
static cublasStatus_t set_operation(const struct pl_products *p, const struct pl_product *g) {
    const int32_t trans_first = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t trans_second = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const uint32_t epilogue = has_bias(g) ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const struct {
        cublasLtMatmulDescAttributes_t attribute;
        const void *value;
        size_t bytes;
    } rows[] = {{CUBLASLT_MATMUL_DESC_TRANSA, &trans_first, sizeof trans_first},
                {CUBLASLT_MATMUL_DESC_TRANSB, &trans_second, sizeof trans_second},
                {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
                {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias.p, sizeof g->bias.p}};
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    for (size_t r = 0; r < sizeof rows / sizeof *rows && s == CUBLAS_STATUS_SUCCESS; r++)
        s = p->lt->cublasLtMatmulDescSetAttribute(p->desc, rows[r].attribute, rows[r].value,
                                                  rows[r].bytes);
    return s;
}

/* ---- algorithms ---- */

static uint64_t hash(const struct key *key) {
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* The entry of this key, or the one to fill for it (key differs). */
static struct entry *find_entry(const struct pl_products *p, const struct key *key) {
    const uint64_t home = hash(key);
    for (uint64_t i = 0; i < PROBES; i++) {
        struct entry *e = &p->entries[(home + i) % ENTRIES];
        if (e->key.m == 0 || memcmp(&e->key, key, sizeof *key) == 0) return e;
    }
    return &p->entries[home % ENTRIES];
}

static cublasStatus_t set_preference(const struct pl_products *p, const struct pl_product *g,
                                     const struct key *key, uint32_t reduction) {
    const uint64_t ws_bytes = g->ws_bytes;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } rows[] = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &ws_bytes, sizeof ws_bytes},
                {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->alignment[1], sizeof(uint32_t)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->alignment[0], sizeof(uint32_t)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->alignment[2], sizeof(uint32_t)},
                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->alignment[2], sizeof(uint32_t)}};
    cublasStatus_t s = CUBLAS_STATUS_SUCCESS;
    for (size_t r = 0; r < sizeof rows / sizeof *rows && s == CUBLAS_STATUS_SUCCESS; r++)
        s = p->lt->cublasLtMatmulPreferenceSetAttribute(p->preference, rows[r].attribute,
                                                        rows[r].value, rows[r].bytes);
    return s;
}

struct proposals {
    cublasLtMatmulAlgo_t algorithms[PROPOSALS];
    int n;
};

static bool is_of(const struct entry *e, const struct key *key) {
    return memcmp(&e->key, key, sizeof *key) == 0;
}

/* True if the algorithm adds all k terms, in fp32. Where it splits the sum, versions 12.8 and 13.1
 * of the library lose what the last slice of 128 does not fill (facebookexperimental/triton, pull
 * request 2767), and without a reduction scheme they keep the sum between slices in the type of
 * the output (there, bitequiv/cublas_equiv_gemm.py). */
static bool adds_all(const struct pl_products *p, const cublasLtMatmulAlgo_t *algorithm,
                     uint64_t k) {
    enum { SLICE = 128 };
    int32_t splits = 1;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t n;
    if (p->lt->cublasLtMatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                                    &splits, sizeof splits,
                                                    &n) != CUBLAS_STATUS_SUCCESS ||
        splits <= 1)
        return true;
    return p->lt->cublasLtMatmulAlgoConfigGetAttribute(
               algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &n) ==
               CUBLAS_STATUS_SUCCESS &&
           scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE && k % SLICE == 0;
}

/* A proposal is valid only where its state is success (cuBLAS Library documentation,
 * "cublasLtMatmulHeuristicResult_t"). */
static cublasStatus_t ask(const struct pl_products *p, const struct pl_product *g,
                          const struct key *key, uint32_t reduction, struct proposals *out) {
    cublasLtMatmulHeuristicResult_t all[PROPOSALS];
    int found = 0;
    out->n = 0;
    cublasStatus_t s = set_preference(p, g, key, reduction);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = p->lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->layout[1], p->layout[0],
                                                  p->layout[2], p->layout[2], p->preference,
                                                  PROPOSALS, all, &found);
    for (int i = 0; i < found && s == CUBLAS_STATUS_SUCCESS; i++)
        if (all[i].state == CUBLAS_STATUS_SUCCESS) out->algorithms[out->n++] = all[i].algo;
    return s;
}

/* Takes the library's choice for this shape, or, skipping some, a later one, of those that add all
 * terms in fp32: with a split whose parts are kept apart and added in order (INPLACE would add them
 * as they finish), else without one. Where there is none, the first of the last list: it adds all
 * terms, but keeps the sum in the type of the output at times. */
static cublasStatus_t choose(const struct pl_products *p, const struct pl_product *g,
                             const struct key *key, int skipped, struct entry *e) {
    static const uint32_t reductions[] = {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                          CUBLASLT_REDUCTION_SCHEME_NONE};
    const bool is_again = skipped > 0;
    struct proposals list;
    cublasStatus_t s = set_layouts(p, g, key);
    for (size_t r = 0; r < sizeof reductions / sizeof *reductions; r++) {
        if (s == CUBLAS_STATUS_SUCCESS) s = ask(p, g, key, reductions[r], &list);
        if (s != CUBLAS_STATUS_SUCCESS) return s;
        for (int i = 0; i < list.n; i++) {
            if (!adds_all(p, &list.algorithms[i], key->k) || skipped-- > 0) continue;
            *e = (struct entry){.key = *key, .algorithm = list.algorithms[i]};
            return CUBLAS_STATUS_SUCCESS;
        }
    }
    if (is_again || list.n == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    *e = (struct entry){.key = *key, .algorithm = list.algorithms[0]};
    return CUBLAS_STATUS_SUCCESS;
}

/* True if the algorithm may run this shape in the workspace there is. */
static bool is_legal(const struct pl_products *p, const struct pl_product *g, const struct key *key,
                     const cublasLtMatmulAlgo_t *algorithm) {
    cublasLtMatmulHeuristicResult_t found = {0};
    return set_layouts(p, g, key) == CUBLAS_STATUS_SUCCESS &&
           p->lt->cublasLtMatmulAlgoCheck(p->handle, p->desc, p->layout[1], p->layout[0],
                                          p->layout[2], p->layout[2], algorithm,
                                          &found) == CUBLAS_STATUS_SUCCESS &&
           found.workspaceSize <= g->ws_bytes;
}

/* Takes the algorithm of the rounded shape, and of one product alone, for the exact shape; false:
 * it cannot be used there. */
static bool reuse(const struct pl_products *p, const struct pl_product *g, const struct key *exact,
                  struct entry *out) {
    struct key rounded = *exact;
    /* tokens are summed over in the gradient of a weight, and are rows elsewhere */
    uint64_t *tokens = g->trans_a ? &rounded.k : &rounded.m;
    *tokens = pl_octave_step(*tokens, STEPS_PER_OCTAVE);
    rounded.further = 0;
    memset(rounded.apart, 0, sizeof rounded.apart);
    if (memcmp(&rounded, exact, sizeof rounded) == 0) return false;
    struct entry *e = find_entry(p, &rounded);
    if (!is_of(e, &rounded) && choose(p, g, &rounded, 0, e) != CUBLAS_STATUS_SUCCESS) return false;
    if (!adds_all(p, &e->algorithm, exact->k) || !is_legal(p, g, exact, &e->algorithm))
        return false;
    *out = (struct entry){.key = *exact, .algorithm = e->algorithm, .is_reused = true};
    return true;
}

/* The entry of this shape, made where the table has none. */
static cublasStatus_t enter(const struct pl_products *p, const struct pl_product *g,
                            const struct key *exact, struct entry *out, bool *is_new) {
    struct entry *e = find_entry(p, exact);
    *out = *e;
    *is_new = !is_of(e, exact);
    if (!*is_new) return CUBLAS_STATUS_SUCCESS;
    cublasStatus_t s =
        reuse(p, g, exact, out) ? CUBLAS_STATUS_SUCCESS : choose(p, g, exact, 0, out);
    if (s == CUBLAS_STATUS_SUCCESS) *find_entry(p, exact) = *out;
    return s;
}

static cublasStatus_t run_as(struct pl_cuda *cuda, const struct pl_product *g,
                             const struct entry *e) {
    const struct pl_products *p = cuda->products;
    const float beta = g->adds ? 1.0f : 0.0f;
    cublasStatus_t s = set_layouts(p, g, &e->key);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    return p->lt->cublasLtMatmul(p->handle, p->desc, &g->alpha, g->b.p, p->layout[1], g->a.p,
                                 p->layout[0], &beta, g->c.p, p->layout[2], g->c.p, p->layout[2],
                                 &e->algorithm, g->ws, g->ws_bytes, cuda->stream);
}

/* A call that fails has launched nothing, or only parts into the workspace: C is what it was, and
 * the product may be tried again, with the algorithm of the exact shape or, where that has failed,
 * with the next that the library proposes. On a context that is spoilt the second call fails as
 * well. */
static cublasStatus_t multiply(struct pl_cuda *cuda, const struct pl_product *g, bool *is_new) {
    const struct pl_products *p = cuda->products;
    const struct key exact = key_of(g);
    struct entry e;
    cublasStatus_t s = set_operation(p, g);
    if (s == CUBLAS_STATUS_SUCCESS) s = enter(p, g, &exact, &e, is_new);
    if (s != CUBLAS_STATUS_SUCCESS) return s;
    s = run_as(cuda, g, &e);
    if (s == CUBLAS_STATUS_SUCCESS) return s;
    if (choose(p, g, &exact, e.is_reused ? 0 : 1, &e) != CUBLAS_STATUS_SUCCESS) return s;
    *is_new = true;
    s = run_as(cuda, g, &e);
    if (s == CUBLAS_STATUS_SUCCESS) *find_entry(p, &exact) = e;
    return s;
}

pl_err pl_products_run(struct pl_cuda *cuda, const struct pl_product *g) {
    struct pl_products *p = cuda->products;
    bool is_new = false;
    const cublasStatus_t s = multiply(cuda, g, &is_new);
    if (s == CUBLAS_STATUS_SUCCESS && is_new) (void)ask_free(&p->left_bytes);
    return classify(p, s);
}

const char *pl_products_failure(const struct pl_products *p) {
    static const struct {
        cublasStatus_t status;
        const char *name;
    } names[] = {
#define X(status) {status, #status}
        X(CUBLAS_STATUS_NOT_INITIALIZED), X(CUBLAS_STATUS_ALLOC_FAILED),
        X(CUBLAS_STATUS_INVALID_VALUE),   X(CUBLAS_STATUS_ARCH_MISMATCH),
        X(CUBLAS_STATUS_MAPPING_ERROR),   X(CUBLAS_STATUS_EXECUTION_FAILED),
        X(CUBLAS_STATUS_INTERNAL_ERROR),  X(CUBLAS_STATUS_NOT_SUPPORTED)};
#undef X
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == p->failed) return names[i].name;
    return "an unknown status of cuBLASLt";
}
