/* bench_gemm.c - rate of the products a training step is made of, as JSON.
 *
 * Usage: bench_gemm [threads] [level]. "reference" is one sgemm call of OpenBLAS per thread on a
 * part of its own; 0 where it is not installed. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/program/program.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "tests/bench/blas.h"
#include "tests/bench/machine.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    const char *name;
    uint64_t m, n, k;
};

static const struct shape shapes[] = {
    {"m1024_k256_n256", 1024, 256, 256},   {"m1024_k256_n1024", 1024, 1024, 256},
    {"m1024_k256_n4096", 1024, 4096, 256}, {"m256_k576_n1536", 256, 1536, 576},
    {"m256_k576_n49152", 256, 49152, 576}, {"m8_k576_n1536", 8, 1536, 576},
    {"m1024_k576_n16", 1024, 16, 576},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

#define MATRICES_BYTES (UINT64_C(750) << 20)

struct run {
    struct pl_device *dev;
    enum pl_op_kind kind;
    struct pl_call call;
};

static void fill(struct pl_view *v) {
    for (uint64_t i = 0; i < v->rows * v->cols; i++)
        if (v->dtype == PL_DTYPE_F32)
            ((float *)v->p)[i] = (float)(i % 17) / 16.0f - 0.5f;
        else
            ((uint16_t *)v->p)[i] = (uint16_t)(0x3F00 + i % 17);
}

static struct pl_view matrix(char **at, uint64_t rows, uint64_t cols, enum pl_dtype t) {
    struct pl_view v = {.p = *at, .rows = rows, .cols = cols, .ld = cols, .dtype = t};
    *at += (rows * cols * pl_dtype_bytes(t) + 255) & ~UINT64_C(255);
    fill(&v);
    return v;
}

static struct pl_product_matrix matrix_of(const struct pl_view *v) {
    return (struct pl_product_matrix){v->rows, v->cols, v->dtype};
}

/* y[m,n] = x[m,k] W[n,k]^T; dx[m,k] = dy[m,n] W; dW[n,k] = dy^T x. */
static struct pl_call make_call(const struct pl_traits *traits, const struct shape *s,
                                enum pl_op_kind kind, enum pl_dtype t, char *at) {
    static const struct pl_attr attr = {.alpha = 1.0f};
    static const struct pl_batch batch = {.first = true};
    struct pl_view x = matrix(&at, s->m, s->k, t), w = matrix(&at, s->n, s->k, t);
    struct pl_view y = matrix(&at, s->m, s->n, t);
    struct pl_call c = {.attr = &attr, .batch = &batch};
    if (kind == PL_OP_LINEAR)
        c.in[0] = x, c.in[1] = w, c.out[0] = y;
    else if (kind == PL_OP_LINEAR_DX)
        c.in[0] = y, c.in[1] = w, c.out[0] = x;
    else
        c.in[0] = y, c.in[1] = x, c.out[0] = w;
    const struct pl_product_matrix m[] = {matrix_of(&c.in[0]), matrix_of(&c.in[1]),
                                          matrix_of(&c.out[0])};
    c.in[kind == PL_OP_LINEAR ? 3 : 2] =
        (struct pl_view){.p = at,
                         .rows = pl_product_workspace_bytes(traits, kind, &attr, m),
                         .cols = 1,
                         .ld = 1,
                         .dtype = PL_DTYPE_U8};
    return c;
}

static void run_kernel(void *arg) {
    struct run *r = arg;
    if (r->dev->kernels[r->kind](r->dev, &r->call) != PL_ERR_OK) abort();
}

static void reference_part(void *arg, uint32_t task, uint32_t worker) {
    struct run *r = arg;
    struct pl_view a = r->call.in[0], b = r->call.in[1], c = r->call.out[0];
    const bool trans_b = r->kind == PL_OP_LINEAR;
    const uint64_t n = c.cols / pl_pool_threads(pl_cpu_of(r->dev)->pool);
    (void)worker;
    b.p = (float *)b.p + task * n * (trans_b ? b.ld : 1);
    c.p = (float *)c.p + task * n;
    c.cols = n;
    blas_sgemm(r->kind == PL_OP_LINEAR_DW, trans_b, &a, &b, &c);
}

static void run_reference(void *arg) {
    struct run *r = arg;
    struct pl_pool *pool = pl_cpu_of(r->dev)->pool;
    pl_pool_run(pool, pl_pool_threads(pool), reference_part, r);
}

/* Seconds per call over at least 4 ms. */
static double seconds(void (*once)(void *), void *arg) {
    int calls = 0;
    double start = seconds_now(), spent;
    do {
        once(arg);
        calls++;
        spent = seconds_now() - start;
    } while (spent < 0.004);
    return spent / calls;
}

enum { FP32, BF16, REFERENCE, WAYS };
static bool has_reference;

/* The clock of a shared machine wanders, so the ways take turns; best of several rounds each. */
static void measure(struct pl_device *dev, char *memory, const struct shape *s, bool last) {
    static const enum pl_op_kind kinds[] = {PL_OP_LINEAR, PL_OP_LINEAR_DX, PL_OP_LINEAR_DW};
    double gflop = 2e-9 * (double)s->m * (double)s->n * (double)s->k;
    for (int i = 0; i < 3; i++) {
        double best[WAYS] = {1e9, 1e9, 1e9};
        struct run runs[WAYS];
        char *at = memory;
        for (int w = 0; w < WAYS; w++) {
            const enum pl_dtype t = w == BF16 ? PL_DTYPE_BF16 : PL_DTYPE_F32;
            runs[w] = (struct run){.dev = dev, .kind = kinds[i]};
            runs[w].call = make_call(&dev->traits, s, kinds[i], t, at);
            at += MATRICES_BYTES / WAYS;
        }
        for (int round = 0; round < 12; round++)
            for (int w = 0; w < WAYS; w++) {
                if (w == REFERENCE && !has_reference) continue;
                double t = seconds(w == REFERENCE ? run_reference : run_kernel, &runs[w]);
                if (t < best[w]) best[w] = t;
            }
        printf("  {\"op\":\"%s\",\"shape\":\"%s\",\"fp32_gflops\":%.1f,\"bf16_gflops\":%.1f,"
               "\"reference_gflops\":%.1f}%s\n",
               pl_op_name(kinds[i]), s->name, gflop / best[FP32], gflop / best[BF16],
               has_reference ? gflop / best[REFERENCE] : 0, last && i == 2 ? "" : ",");
    }
}

static void take_level(struct pl_device *dev, const char *name) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    for (uint32_t i = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS); i-- > 0;)
        if (strcmp(levels[i].name, name) == 0) {
            dev->kernels = pl_back_end_cpu.kernels->tables[levels[i].number];
            pl_cpu_of(dev)->level = levels[i].name;
        }
}

int main(int argc, char **argv) {
    struct pl_arena arena = {0};
    uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pl_cpu_count();
    struct pl_device *dev = bench_cpu_open("bench_gemm", threads, MATRICES_BYTES, &arena);
    if (argc > 2) take_level(dev, argv[2]);
    has_reference = blas_load(pl_cpu_of(dev)->level);
    printf("{\"level\":\"%s\",\"threads\":%u,\"products\":[\n", pl_cpu_of(dev)->level, threads);
    for (int i = 0; i < N_SHAPES; i++)
        measure(dev, arena.base, &shapes[i], i == N_SHAPES - 1);
    printf("]}\n");
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
    return 0;
}
