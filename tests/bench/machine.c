/* machine.c - the rate of one large product of a library. */
#include "tests/bench/machine.h"

#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "tests/bench/blas.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>

double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct pl_device *bench_cpu_open(const char *name, uint32_t threads, uint64_t bytes,
                                 struct pl_arena *arena) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    if (pl_device_open(&pl_back_end_cpu, threads, PL_NO_BUDGET, &dev, &d) == PL_ERR_OK &&
        (!bytes || pl_arena_reserve(dev, bytes, name, arena, &d) == PL_ERR_OK))
        return dev;
    fprintf(stderr, "%s: %s\n", name, d.message);
    exit(1);
}

enum { SIDE = 2048, ROUNDS = 7 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

struct square { /* c = a b^T */
    struct pl_view a, b, c;
};

/* A thread owns a stretch of columns. */
static void multiply_part(void *arg, uint32_t task, uint32_t worker) {
    const struct square *s = arg;
    const uint64_t cols = s->c.cols, offset = task * cols;
    struct pl_view b = s->b, c = s->c;
    (void)worker;
    b.p = (float *)b.p + offset * b.ld;
    c.p = (float *)c.p + offset;
    blas_sgemm(false, true, &s->a, &b, &c);
}

static double measure(struct pl_pool *pool, float *memory) {
    const uint32_t threads = pl_pool_threads(pool);
    struct pl_view v = {.rows = SIDE, .cols = SIDE, .ld = SIDE, .dtype = PL_DTYPE_F32};
    struct square s = {v, v, v};
    double rates[ROUNDS];
    s.a.p = memory;
    s.b.p = memory + SIDE * SIDE;
    s.c.p = memory + 2 * SIDE * SIDE;
    s.b.rows = s.c.cols = SIDE / threads;
    for (int i = 0; i < 2 * SIDE * SIDE; i++)
        memory[i] = (float)(i % 19) / 19.0f - 0.5f;
    for (int i = -1; i < ROUNDS; i++) { /* the first warms up */
        double before = seconds_now();
        pl_pool_run(pool, threads, multiply_part, &s);
        const double gflop = 2e-9 * SIDE * SIDE * (double)(s.c.cols * threads);
        if (i >= 0) rates[i] = gflop / (seconds_now() - before);
    }
    return median(rates, ROUNDS);
}

double machine_sgemm_gflops(uint32_t threads) {
    struct pl_device *dev = NULL;
    struct pl_arena arena = {0};
    double rate = -1;
    if (pl_device_open(&pl_back_end_cpu, threads, PL_NO_BUDGET, &dev, NULL) != PL_ERR_OK) return -1;
    if (blas_load(pl_cpu_of(dev)->level) &&
        pl_arena_reserve(dev, 3 * UINT64_C(4) * SIDE * SIDE, "matrices", &arena, NULL) == PL_ERR_OK)
        rate = measure(pl_cpu_of(dev)->pool, arena.base);
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
    return rate;
}

int run_measurements(Suite *s, const char *name) {
    SRunner *sr = srunner_create(s);
    srunner_set_fork_status(sr, CK_NOFORK); /* one stdout */
    srunner_run_all(sr, CK_SILENT);
    int failed = srunner_ntests_failed(sr);
    TestResult **failures = srunner_failures(sr);
    for (int i = 0; i < failed; i++)
        fprintf(stderr, "%s: %s\n", name, tr_msg(failures[i]));
    free(failures);
    srunner_free(sr);
    return failed;
}
