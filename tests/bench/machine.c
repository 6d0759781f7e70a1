/* machine.c - the rate of one large product through the device. */
#include "tests/bench/machine.h"

#include "runtime/device/device.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 2048, ROUNDS = 7 };

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

static double measure(struct pl_device *dev, float *memory) {
    static const struct pl_attr attr = {.alpha = 1.0f};
    static const struct pl_batch batch = {.first = true};
    struct pl_view v = {.rows = SIDE, .cols = SIDE, .ld = SIDE, .dtype = PL_DTYPE_F32};
    struct pl_call c = {.attr = &attr, .batch = &batch, .in = {v, v}, .out = {v}};
    double rates[ROUNDS];
    c.in[0].p = memory;
    c.in[1].p = memory + SIDE * SIDE;
    c.out[0].p = memory + 2 * SIDE * SIDE;
    for (int i = 0; i < 2 * SIDE * SIDE; i++)
        memory[i] = (float)(i % 19) / 19.0f - 0.5f;
    for (int i = -1; i < ROUNDS; i++) { /* the first warms up */
        double before = seconds_now();
        if (dev->kernels[PL_OP_LINEAR](dev, &c) != PL_ERR_OK) return -1;
        if (i >= 0) rates[i] = 2e-9 * SIDE * SIDE * (double)SIDE / (seconds_now() - before);
    }
    return median(rates, ROUNDS);
}

double machine_sgemm_gflops(uint32_t threads) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    struct pl_arena arena = {0};
    double rate = -1;
    if (pl_device_open(&pl_device_cpu, threads, PL_AUTO_BYTES, &dev, &d) != PL_ERR_OK) return -1;
    if (pl_arena_reserve(dev, 3 * UINT64_C(4) * SIDE * SIDE, "matrices", &arena, &d) == PL_ERR_OK)
        rate = measure(dev, arena.base);
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
