/* bench_cuda_products.c - compares the algorithm that the back-end takes for a product with all
 * that cuBLASLt proposes.
 *
 * The back-end takes the library's first proposal. Here it is given a table of functions in which
 * the question for one is asked for many, and answered with the n-th. */
#include "tests/bench/bench_cuda.h"

#include "runtime/device/cuda/lt.h"
#include "runtime/kernels/cuda/products.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 16, CALLS = 10, ROUNDS = 3 };

struct algorithm {
    int id, tile, stages, split;
    unsigned long long workspace_bytes;
};

/* The state of propose(); the library's functions take no context. */
static struct {
    const struct pl_lt *real;
    int wanted, found;
    struct algorithm answered;
} question;

static int number_of(const cublasLtMatmulAlgo_t *algo, int attribute) {
    int value = -1;
#ifndef PLSIM_EMULATION
    union {
        void *found;
        cublasStatus_t (*get)(const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t,
                              void *, size_t, size_t *);
    } f = {dlsym(question.real->library, "cublasLtMatmulAlgoConfigGetAttribute")};
    size_t written = 0;
    if (!f.found || f.get(algo, (cublasLtMatmulAlgoConfigAttributes_t)attribute, &value,
                          sizeof value, &written) != CUBLAS_STATUS_SUCCESS)
        return -1;
#else
    (void)algo, (void)attribute;
#endif
    return value;
}

/* Numbers of cublasLtMatmulAlgoConfigAttributes_t. */
enum { ALGO_ID = 0, ALGO_TILE = 1, ALGO_SPLIT = 2, ALGO_STAGES = 6 };

static struct algorithm describe(const cublasLtMatmulHeuristicResult_t *result) {
    return (struct algorithm){.id = number_of(&result->algo, ALGO_ID),
                              .tile = number_of(&result->algo, ALGO_TILE),
                              .stages = number_of(&result->algo, ALGO_STAGES),
                              .split = number_of(&result->algo, ALGO_SPLIT),
                              .workspace_bytes = result->workspaceSize};
}

static cublasStatus_t propose(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                              cublasLtMatmulPreference_t preference, int requested,
                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    cublasLtMatmulHeuristicResult_t all[MOST];
    (void)requested; /* at least 1 */
    *found = 0;
    cublasStatus_t s = question.real->cublasLtMatmulAlgoGetHeuristic(
        handle, desc, a, b, c, d, preference, MOST, all, &question.found);
    if (s != CUBLAS_STATUS_SUCCESS || question.wanted >= question.found) return s;
    results[0] = all[question.wanted];
    question.answered = describe(&all[question.wanted]);
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

struct trial {
    double seconds; /* 0 = the library refused */
    struct algorithm algorithm;
};

/* Returns the seconds of one call, the best of a few rounds. */
static double time_calls(struct rig *r, struct cuda_clock *clock, uint32_t op) {
    struct pl_diag d = {0};
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        cuda_clock_head_start(clock);
        cuda_clock_mark(clock, 0);
        for (int i = 0; i < CALLS; i++)
            must(pl_exec_run(&r->exec, op, 1, &d), &d);
        cuda_clock_mark(clock, 1);
        rig_sync(r);
        const double seconds = cuda_clock_seconds(clock, 0, 1) / CALLS;
        best = seconds < best ? seconds : best;
    }
    return best;
}

/* The first call asks the library; a proposal that does not exist or run ends the list. */
static bool try_product(struct rig *r, struct cuda_clock *clock, uint32_t op, struct trial *trial) {
    struct pl_diag d = {0};
    if (pl_exec_run(&r->exec, op, 1, &d) != PL_ERR_OK) return false;
    rig_sync(r);
    trial->algorithm = question.answered;
    trial->seconds = time_calls(r, clock, op);
    return true;
}

static void print_trial(const char *name, const struct trial *t, double flops) {
    printf(",\"%s\":{\"ms\":%.6f,\"tflops\":%.2f,\"algorithm\":%d,\"tile\":%d,\"stages\":%d,"
           "\"split\":%d,\"workspace_bytes\":%llu}",
           name, 1e3 * t->seconds, t->seconds > 0 ? 1e-12 * flops / t->seconds : 0.0,
           t->algorithm.id, t->algorithm.tile, t->algorithm.stages, t->algorithm.split,
           t->algorithm.workspace_bytes);
}

static void print_product(const struct rig *r, const struct cost *c, const struct trial *trials,
                          int n) {
    const double flops = (double)r->planned.program->ops[c->op].flops;
    int best = 0;
    for (int i = 1; i < n; i++)
        if (trials[i].seconds < trials[best].seconds) best = i;
    printf("{\"event\":\"product\",\"op\":\"%s\",\"dtype\":\"%s\",\"rows\":%llu,\"cols\":%llu,"
           "\"inner\":%llu,\"calls\":%d,\"flops\":%.9g,\"proposals\":%d,\"best_number\":%d",
           pl_op_name(c->kind), pl_dtype_name(c->dtype), (unsigned long long)c->rows,
           (unsigned long long)c->cols, (unsigned long long)c->inner, c->calls, flops, n, best);
    print_trial("first", &trials[0], flops);
    print_trial("best", &trials[best], flops);
    printf("}\n");
}

static bool is_product(enum pl_op_kind kind) {
    return kind == PL_OP_LINEAR || kind == PL_OP_LINEAR_DX || kind == PL_OP_LINEAR_DW;
}

/* The kinds and shapes of a micro-batch, without times. */
static void list_products(const struct rig *r, struct costs *list) {
    const struct pl_program *p = r->planned.program;
    const struct pl_phase_range *range = &p->phases[PL_PHASE_MICRO];
    for (uint32_t i = range->first_op; i < range->first_op + range->n_ops; i++)
        if (is_product(p->ops[i].kind)) costs_add(list, r, i, 1, 0, 0);
}

void bench_cuda_products(struct rig *r, struct cuda_clock *clock) {
    static struct costs list;
    static struct trial trials[sizeof list.rows / sizeof *list.rows][MOST];
    static int n[sizeof list.rows / sizeof *list.rows];
    struct pl_cuda *cuda = pl_cuda_of(r->device);
    struct pl_products *own = cuda->products;
    struct pl_lt many = *cuda->lt;
    struct pl_diag d = {0};
    many.cublasLtMatmulAlgoGetHeuristic = propose;
    question.real = cuda->lt;
    rig_fill_batch(r);
    must(pl_exec_run_phase(&r->exec, PL_PHASE_MICRO, &d), &d);
    list_products(r, &list);
    for (question.wanted = 0; question.wanted < MOST; question.wanted++) {
        must(pl_products_create(&many, &cuda->products, &d), &d);
        for (int i = 0; i < list.n; i++)
            if (n[i] == question.wanted)
                n[i] += try_product(r, clock, list.rows[i].op, &trials[i][n[i]]);
        rig_sync(r);
        pl_products_destroy(&cuda->products);
    }
    cuda->products = own;
    for (int i = 0; i < list.n; i++)
        if (n[i] > 0) print_product(r, &list.rows[i], trials[i], n[i]);
}
