/* bench_quant.c - millions of elements a second of quantising, of 4-bit matrices and of updates
 * with 8-bit moments, for every instruction set of this machine, as JSON.
 *
 * Usage: bench_quant [threads]. adamw is measured to compare adamw_8bit with it. */
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "runtime/kernels/quant.h"
#include "tests/bench/machine.h"

#include <stdio.h>
#include <stdlib.h>

/* A matrix that a cache holds, and one that it does not. */
static const uint64_t sizes[] = {UINT64_C(1) << 17, UINT64_C(1) << 23};
enum { SIZES = 2, COLS = 1024, ROUNDS = 9 };

static struct pl_device *dev;
static const struct pl_attr attr = {.quant = PL_QUANT_NF4, .decay = true};
static const struct pl_batch batch = {.step = 3,
                                      .learning_rate = 1e-4,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8,
                                      .weight_decay = 0.01};

/* The clock of one thread's CPU time is used, so that other processes on the machine do not
 * count. */
static clockid_t clock_used = CLOCK_MONOTONIC;

/* Zeros, aligned as tensors in an arena are. */
static void *memory(uint64_t bytes) {
    const uint64_t align_bytes = 256;
    const uint64_t whole_bytes = (bytes + align_bytes - 1) / align_bytes * align_bytes;
    void *p = aligned_alloc(align_bytes, whole_bytes);
    if (!p) exit(1);
    return memset(p, 0, whole_bytes);
}

/* ---- what is measured ---- */

struct work {
    uint64_t n;
    const pl_kernel_fn *kernels; /* kernels of a level */
    enum pl_op_kind kind;
    struct pl_call call;
    float *x, *absmax, *absmax2;
    uint8_t *codes, *absmax8;
};

static void run_kernel(struct work *w) {
    if (w->kernels[w->kind](dev, &w->call) != PL_ERR_OK) abort();
}

/* Quantises in pieces of one group, as a file is read. */
static void quantise(struct work *w) {
    for (uint64_t i = 0; i < w->n; i += PL_QUANT_GROUP) {
        const float *x = w->x + i;
        pl_quant_absmax(x, PL_QUANT_GROUP, w->absmax);
        pl_quant_codes(PL_QUANT_NF4, x, PL_QUANT_GROUP, w->absmax, w->codes + i / 2);
        pl_quant_nest(w->absmax, PL_QUANT_NEST, 2.0f, w->absmax8 + i / PL_QUANT_BLOCK, w->absmax2);
    }
}

/* Best of several rounds of at least 5 ms, in elements a second. */
static double rate(void (*fn)(struct work *), struct work *w) {
    double best = 0;
    for (int r = 0; r < ROUNDS; r++) {
        const double start = seconds_of(clock_used);
        double spent = 0;
        int calls = 0;
        for (; spent < 0.005; calls++, spent = seconds_of(clock_used) - start)
            fn(w);
        const double got = (double)calls * (double)w->n / spent;
        best = got > best ? got : best;
    }
    return best;
}

/* ---- operands ---- */

static struct pl_view matrix(uint64_t n, enum pl_dtype t) {
    return (struct pl_view){
        .p = memory(n * pl_dtype_bytes(t)), .rows = n / COLS, .cols = COLS, .ld = COLS, .dtype = t};
}

static struct pl_view vector(uint64_t n, enum pl_dtype t) {
    struct pl_view v = {.rows = n, .cols = 1, .ld = 1, .dtype = t};
    v.p = memory(n * pl_dtype_bytes(t));
    return v;
}

/* Fills with about the distribution of weights: sums of uniform numbers. */
static void fill(struct pl_view *v) {
    uint64_t state = 1;
    for (uint64_t i = 0; i < v->rows * v->cols; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        if (v->dtype == PL_DTYPE_F32)
            ((float *)v->p)[i] = sum;
        else if (v->dtype == PL_DTYPE_BF16)
            ((uint16_t *)v->p)[i] = (uint16_t)(bits >> 16);
        else
            ((uint8_t *)v->p)[i] = (uint8_t)(state >> 56);
    }
}

static struct pl_call dequant_call(uint64_t n, enum pl_dtype t) {
    struct pl_call c = {.attr = &attr, .batch = &batch};
    c.in[0] = vector(pl_quant_codes_bytes(n), PL_DTYPE_U8);
    c.in[1] = vector(pl_quant_nests(n), PL_DTYPE_F32);
    c.in[2] = vector(pl_quant_blocks(n), PL_DTYPE_U8);
    c.in[3] = vector(1, PL_DTYPE_F32);
    for (int i = 0; i < 4; i++)
        fill(&c.in[i]);
    c.out[0] = matrix(n, t);
    return c;
}

static struct pl_call update_call(uint64_t n, bool codes, enum pl_dtype t, bool master) {
    struct pl_call c = {.attr = &attr, .batch = &batch};
    const enum pl_dtype moment = codes ? PL_DTYPE_U8 : PL_DTYPE_F32;
    c.in[0] = matrix(n, t), c.in[1] = matrix(n, t);
    c.in[2] = matrix(n, moment), c.in[3] = matrix(n, moment);
    c.in[4] = vector(2, PL_DTYPE_F64);
    ((double *)c.in[4].p)[1] = 1;
    for (int i = 5; codes && i < 7; i++)
        c.in[i] = vector(pl_state8_blocks(n), PL_DTYPE_F32);
    if (master) c.in[codes ? 7 : 5] = matrix(n, PL_DTYPE_F32);
    fill(&c.in[0]), fill(&c.in[1]);
    for (int i = 0; i < 3; i++)
        c.out[i] = c.in[i ? i + 1 : 0];
    for (int i = 3; codes && i < 6; i++)
        c.out[i] = c.in[i + 2];
    if (!codes) c.out[3] = c.in[5];
    return c;
}

static void release(struct pl_call *c) {
    for (int i = 0; i < PL_OP_MAX_IN; i++)
        free(c->in[i].p);
    if (c->out[0].p != c->in[0].p) free(c->out[0].p);
}

/* ---- tables ---- */

static const struct {
    const char *name;
    enum pl_op_kind kind;
    enum pl_dtype dtype;
    bool master;
} ways[] = {
    {"dequant4_fp32", PL_OP_DEQUANT4, PL_DTYPE_F32, false},
    {"dequant4_bf16", PL_OP_DEQUANT4, PL_DTYPE_BF16, false},
    {"adamw_fp32", PL_OP_ADAMW, PL_DTYPE_F32, false},
    {"adamw_8bit_fp32", PL_OP_ADAMW_8BIT, PL_DTYPE_F32, false},
    {"adamw_bf16_master", PL_OP_ADAMW, PL_DTYPE_BF16, true},
    {"adamw_8bit_bf16_master", PL_OP_ADAMW_8BIT, PL_DTYPE_BF16, true},
    {"adamw_bf16", PL_OP_ADAMW, PL_DTYPE_BF16, false},
    {"adamw_8bit_bf16", PL_OP_ADAMW_8BIT, PL_DTYPE_BF16, false},
};

static void measure_kernels(const struct pl_cpu_level *level, uint64_t n) {
    printf("  {\"level\":\"%s\",\"elements\":%llu", level->name, (unsigned long long)n);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct work w = {.n = n,
                         .kernels = pl_back_end_cpu.kernels->tables[level->number],
                         .kind = ways[i].kind};
        w.call = w.kind == PL_OP_DEQUANT4
                     ? dequant_call(n, ways[i].dtype)
                     : update_call(n, w.kind == PL_OP_ADAMW_8BIT, ways[i].dtype, ways[i].master);
        printf(",\"%s\":%.0f", ways[i].name, 1e-6 * rate(run_kernel, &w));
        release(&w.call);
    }
    printf("},\n");
}

static void measure_quantising(uint64_t n) {
    struct pl_view x = matrix(n, PL_DTYPE_F32);
    struct work w = {.n = n, .x = x.p};
    fill(&x);
    w.absmax = memory(PL_QUANT_NEST * sizeof *w.absmax);
    w.absmax2 = memory(sizeof *w.absmax2);
    w.codes = memory(pl_quant_codes_bytes(n));
    w.absmax8 = memory(pl_quant_blocks(n));
    printf("  {\"level\":\"host\",\"elements\":%llu,\"quantise_nf4\":%.0f}\n",
           (unsigned long long)n, 1e-6 * rate(quantise, &w));
    free(w.x), free(w.absmax), free(w.absmax2), free(w.codes), free(w.absmax8);
}

int main(int argc, char **argv) {
    struct pl_cpu_level levels[PL_CPU_MAX_LEVELS];
    const uint32_t n = pl_cpu_levels(levels, PL_CPU_MAX_LEVELS);
    const uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    dev = bench_cpu_open("bench_quant", threads, 0, NULL);
    if (threads == 1) clock_used = CLOCK_THREAD_CPUTIME_ID;
    printf("{\"threads\":%u,\"millions_a_second\":[\n", threads);
    for (uint32_t l = 0; l < n; l++)
        for (int s = 0; s < SIZES; s++)
            measure_kernels(&levels[l], sizes[s]);
    measure_quantising(sizes[1]);
    printf("]}\n");
    pl_device_close(&dev);
    return 0;
}
