/* bench_few_rows.c - products of a few rows, as a token is generated: gigabytes of weights read a
 * second, for every instruction set of this machine, as JSON.
 *
 * Usage: bench_few_rows [threads]. The weights are the matrices of SmolLM2-135M one after another,
 * each in its own place: 540 MB in fp32, which no cache should hold. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "tests/bench/machine.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    uint64_t n, k, copies;
} shapes[] = {{960, 576, 30}, {576, 576, 30}, {3072, 576, 30}, {576, 1536, 30}, {49152, 576, 1}};
enum { SHAPES = 5, ROUNDS = 7, MAX_ROWS = 8, MAX_K = 1536, MAX_N = 49152 };

#define WS_BYTES    (UINT64_C(16) << 20)
#define ALIGN_BYTES UINT64_C(256) /* alignment of tensors in an arena */

static struct pl_device *dev;

/* The clock of one thread's CPU time is used, so that other processes on the machine do not
 * count. */
static clockid_t clock_used = CLOCK_MONOTONIC;

static struct pl_view matrix(uint64_t rows, uint64_t cols, enum pl_dtype t) {
    struct pl_view v = {.rows = rows, .cols = cols, .ld = cols, .dtype = t};
    const uint64_t bytes = rows * cols * pl_dtype_bytes(t);
    v.p = aligned_alloc(ALIGN_BYTES, (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES);
    if (!v.p) exit(1);
    for (uint64_t i = 0; i < rows * cols; i++)
        if (t == PL_DTYPE_F32)
            ((float *)v.p)[i] = (float)(i % 17) / 16.0f - 0.5f;
        else if (t == PL_DTYPE_BF16)
            ((uint16_t *)v.p)[i] = (uint16_t)(0x3F00 + i % 17);
    return v;
}

struct weights {
    enum pl_dtype dtype, rows; /* type of W; type of x and y */
    struct pl_view *w[SHAPES], x, y, ws;
};

static void create_weights(struct weights *s, enum pl_dtype t, enum pl_dtype rows) {
    s->dtype = t;
    s->rows = rows;
    for (int i = 0; i < SHAPES; i++) {
        s->w[i] = calloc(shapes[i].copies, sizeof *s->w[i]);
        if (!s->w[i]) exit(1);
        for (uint64_t c = 0; c < shapes[i].copies; c++)
            s->w[i][c] = matrix(shapes[i].n, shapes[i].k, t);
    }
    s->x = matrix(MAX_ROWS, MAX_K, rows);
    s->y = matrix(MAX_ROWS, MAX_N, rows);
    s->ws = matrix(WS_BYTES, 1, PL_DTYPE_U8);
}

static void destroy_weights(struct weights *s) {
    for (int i = 0; i < SHAPES; i++) {
        for (uint64_t c = 0; c < shapes[i].copies; c++)
            free(s->w[i][c].p);
        free(s->w[i]);
    }
    free(s->x.p), free(s->y.p), free(s->ws.p);
}

static void multiply(pl_kernel_fn linear, const struct weights *s, int shape, uint64_t rows) {
    static const struct pl_attr attr = {.alpha = 1.0f};
    static const struct pl_batch batch = {.first = true};
    for (uint64_t i = 0; i < shapes[shape].copies; i++) {
        struct pl_call c = {.attr = &attr, .batch = &batch};
        c.in[0] = s->x, c.in[1] = s->w[shape][i], c.in[3] = s->ws, c.out[0] = s->y;
        c.in[0].rows = c.out[0].rows = rows;
        c.in[0].cols = c.in[0].ld = shapes[shape].k;
        c.out[0].cols = c.out[0].ld = shapes[shape].n;
        if (linear(dev, &c) != PL_ERR_OK) abort();
    }
}

/* GB/s, the best of several rounds. */
static double rate(pl_kernel_fn linear, const struct weights *s, uint64_t rows) {
    double best = 1e9, bytes = 0;
    for (int i = 0; i < SHAPES; i++)
        bytes += (double)(shapes[i].n * shapes[i].k * shapes[i].copies * pl_dtype_bytes(s->dtype));
    for (int r = 0; r < ROUNDS; r++) {
        const double start = seconds_of(clock_used);
        for (int i = 0; i < SHAPES; i++)
            multiply(linear, s, i, rows);
        const double spent = seconds_of(clock_used) - start;
        best = spent < best ? spent : best;
    }
    return 1e-9 * bytes / best;
}

static void measure(const struct pl_cpu_level *level, const struct weights *s, bool last) {
    printf("  {\"level\":\"%s\",\"weights\":\"%s\",\"rows\":\"%s\"", level->name,
           pl_dtype_name(s->dtype), pl_dtype_name(s->rows));
    for (uint64_t rows = 1; rows <= MAX_ROWS; rows *= 2)
        printf(",\"rows_%llu\":%.1f", (unsigned long long)rows,
               rate(pl_back_end_cpu.kernels->tables[level->number][PL_OP_LINEAR], s, rows));
    printf("}%s\n", last ? "" : ",");
}

int main(int argc, char **argv) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    const uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    const uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    static const enum pl_dtype types[][2] = {{PL_DTYPE_F32, PL_DTYPE_F32},
                                             {PL_DTYPE_BF16, PL_DTYPE_BF16},
                                             {PL_DTYPE_BF16, PL_DTYPE_F32}};
    enum { TYPES = sizeof types / sizeof *types };
    dev = bench_cpu_open("bench_few_rows", threads, 0, NULL);
    if (threads == 1) clock_used = CLOCK_THREAD_CPUTIME_ID;
    printf("{\"threads\":%u,\"gigabytes_a_second\":[\n", threads);
    for (int t = 0; t < TYPES; t++) {
        struct weights s = {0};
        create_weights(&s, types[t][0], types[t][1]);
        for (uint32_t l = 0; l < n; l++)
            measure(&levels[l], &s, t == TYPES - 1 && l == n - 1);
        destroy_weights(&s);
    }
    printf("]}\n");
    pl_device_close(&dev);
    return 0;
}
