/* bench_start.c - how long starting values take: random weights, and their 4-bit codes. JSON.
 *
 * Usage: bench_start CONFIG_JSON [most threads]
 * Each line is one kind of job by the kernels of the device or, with host, by the path of devices
 * without such kernels: seconds of the clock, and of processors, which a busy machine does not
 * change much. */
#include "estimator/config/job_text.h"
#include "runtime/checkpoint/init.h"
#include "runtime/checkpoint/tensor_io.h"
#include "tests/bench/machine.h"

#include "estimator/search/planned.h"
#include "runtime/kernels/back_ends.h"
#include "tests/support/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct rig {
    struct pl_planned planned;
    struct pl_device *device;
    struct pl_arena arena;
};

static void must(pl_err err, const struct pl_diag *d) {
    if (err == PL_ERR_OK) return;
    fprintf(stderr, "bench_start: %s: %s\n", pl_err_code(err), d->message);
    exit(1);
}

static void *address(void *ctx, uint32_t tensor) {
    const struct rig *r = ctx;
    return (char *)r->arena.base + r->planned.plan->places[tensor].offset;
}

/* The second of two: the first one pays for fresh pages. */
static void report(const char *job, const char *by, const struct pl_tensor_io *io) {
    struct pl_diag d = {0};
    double wall = 0, cpu = 0;
    for (int i = 0; i < 2; i++) {
        wall = seconds_of(CLOCK_MONOTONIC), cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        must(pl_model_init_random(io, 1, &d), &d);
    }
    printf("{%s,\"by\":\"%s\",\"seconds\":%.2f,\"processor_seconds\":%.2f}\n", job, by,
           seconds_of(CLOCK_MONOTONIC) - wall, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    fflush(stdout);
}

static void measure(const struct pl_model *m, const char *mode, const char *dtype,
                    uint32_t threads) {
    struct pl_diag d = {0};
    struct rig r = {0};
    struct pl_job job;
    const char *const keys[][2] = {{"mode", mode}, {"dtype", dtype}, {"max_seq_length", "16"}};
    must(pl_job_defaults(&job, &d), &d);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        must(pl_job_set(&job, keys[i][0], keys[i][1], &d), &d);
    const struct pl_traits traits = pl_traits_cpu(threads);
    must(pl_question_plan(PL_ASK(&job, m, &traits, NULL, 1), NULL, &r.planned, &d), &d);
    must(pl_device_open(&pl_back_end_cpu, threads, PL_NO_BUDGET, &r.device, &d), &d);
    must(pl_arena_reserve(r.device, r.planned.plan->job_bytes, "job arena", &r.arena, &d), &d);
    struct pl_tensor_io io = {.program = r.planned.program,
                              .device = r.device,
                              .address = address,
                              .ctx = &r,
                              .staging_bytes = UINT64_C(8) << 20};
    io.staging = malloc(io.staging_bytes);
    if (!io.staging) exit(1);
    char name[96];
    snprintf(name, sizeof name, "\"mode\":\"%s\",\"dtype\":\"%s\",\"threads\":%u", mode, dtype,
             threads);
    report(name, "kernels", &io);
    const pl_kernel_fn *kernels = r.device->kernels;
    r.device->kernels = NULL;
    if (threads == 1) report(name, "host", &io);
    r.device->kernels = kernels;
    free(io.staging);
    pl_arena_release(r.device, &r.arena);
    pl_device_close(&r.device);
    pl_planned_finish(&r.planned);
    pl_job_finish(&job);
}

int main(int argc, char **argv) {
    static const char *const kinds[][2] = {{"lora", "fp32"}, {"lora", "bf16"}, {"qlora", "bf16"}};
    const uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
    struct pl_diag d = {0};
    struct pl_model m;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_start CONFIG_JSON [most threads]\n");
        return 2;
    }
    must(pl_model_read(argv[1], &m, &d), &d);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint32_t t = 1; t <= threads; t++)
            measure(&m, kinds[i][0], kinds[i][1], t);
    return 0;
}
