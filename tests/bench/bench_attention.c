/* bench_attention.c - rate of attention on the CPU, forward and backward, as JSON.
 *
 * Usage: bench_attention [threads]. Work is what causal attention needs, 2 and 5 products over the
 * keys that a query sees; `share` is of the rate of a product of 2048^3 in the same round. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/cpu/cpu.h"
#include "tests/bench/machine.h"
#include "tests/support/child.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct shape {
    uint32_t seqs, length, heads, kv_heads, dim;
};
static const struct shape shapes[] = {
    {4, 256, 8, 4, 32},  {1, 256, 9, 3, 64},    {4, 512, 9, 3, 64},
    {1, 2048, 9, 3, 64}, {1, 1024, 16, 8, 128}, {1, 1024, 8, 8, 96},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, ROUNDS = 9 };

#define MEMORY_BYTES (UINT64_C(192) << 20)

struct run {
    struct pl_device *dev;
    enum pl_op_kind kind;
    struct pl_attr attr;
    struct pl_batch batch;
    struct pl_call call;
    double gflop;
};

static struct pl_view take_view(char **at, uint64_t rows, uint64_t cols, enum pl_dtype dtype) {
    struct pl_view v = {.p = *at, .rows = rows, .cols = cols, .ld = cols, .dtype = dtype};
    *at += (rows * cols * pl_dtype_bytes(dtype) + 255) & ~UINT64_C(255);
    return v;
}

static struct pl_view values(char **at, uint64_t rows, uint64_t cols, float spread) {
    struct pl_view v = take_view(at, rows, cols, PL_DTYPE_F32);
    for (uint64_t i = 0; i < rows * cols; i++)
        ((float *)v.p)[i] = spread * ((float)(i * 2654435761u % 1009) / 504.0f - 1.0f);
    return v;
}

static void make(struct run *r, const struct shape *s, enum pl_op_kind kind, char *at) {
    const uint64_t rows = (uint64_t)s->seqs * s->length, q = (uint64_t)s->heads * s->dim;
    const uint64_t kv = (uint64_t)s->kv_heads * s->dim;
    const int products = kind == PL_OP_ATTENTION ? 2 : 5;
    struct pl_call *c = &r->call;
    r->kind = kind;
    r->attr = (struct pl_attr){.heads = s->heads, .kv_heads = s->kv_heads, .head_dim = s->dim};
    r->attr.scale = 1.0f / sqrtf((float)s->dim);
    r->batch = (struct pl_batch){.first = true, .n_seqs = s->seqs};
    r->gflop = 1e-9 * 2 * products * s->seqs * s->heads * s->dim * s->length * (s->length + 1) / 2;
    *c = (struct pl_call){.attr = &r->attr, .batch = &r->batch};
    c->in[0] = values(&at, rows, q, 1), c->in[1] = values(&at, rows, kv, 1);
    c->in[2] = values(&at, rows, kv, 1);
    struct pl_view offsets = take_view(&at, s->seqs + 1, 1, PL_DTYPE_I32);
    for (uint32_t i = 0; i <= s->seqs; i++)
        ((int32_t *)offsets.p)[i] = (int32_t)(i * s->length);
    const uint64_t ws = pl_op_workspace_bytes(&r->dev->traits, kind, &r->attr, rows, q);
    struct pl_view scratch = take_view(&at, ws, 1, PL_DTYPE_U8);
    if (kind == PL_OP_ATTENTION) {
        c->in[3] = offsets, c->in[4] = scratch;
        c->out[0] = take_view(&at, rows, q, PL_DTYPE_F32);
        c->out[1] = take_view(&at, rows, s->heads, PL_DTYPE_F32);
        return;
    }
    c->in[3] = values(&at, rows, q, 1), c->in[4] = take_view(&at, rows, s->heads, PL_DTYPE_F32);
    for (uint64_t i = 0; i < rows * s->heads; i++)
        ((float *)c->in[4].p)[i] = logf((float)(i / s->heads % s->length + 1));
    c->in[5] = values(&at, rows, q, 1), c->in[6] = offsets, c->in[7] = scratch;
    c->out[0] = take_view(&at, rows, q, PL_DTYPE_F32);
    c->out[1] = take_view(&at, rows, kv, PL_DTYPE_F32),
    c->out[2] = take_view(&at, rows, kv, PL_DTYPE_F32);
}

/* GFLOP/s over at least 10 ms. */
static double rate(const struct run *r) {
    int calls = 0;
    const double start = seconds_now();
    do {
        if (r->dev->kernels[r->kind](r->dev, &r->call) != PL_ERR_OK) abort();
        calls++;
    } while (seconds_now() - start < 0.01);
    return calls * r->gflop / (seconds_now() - start);
}

static void measure(struct pl_device *dev, char *memory, const struct shape *s, bool last) {
    static const enum pl_op_kind kinds[] = {PL_OP_ATTENTION, PL_OP_ATTENTION_BWD};
    double rates[2][ROUNDS], shares[2][ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        const double product = machine_sgemm_gflops(dev->traits.threads);
        for (int k = 0; k < 2; k++) {
            struct run r = {.dev = dev};
            make(&r, s, kinds[k], memory);
            rates[k][round] = rate(&r);
            shares[k][round] = product > 0 ? rates[k][round] / product : 0;
        }
    }
    printf("  {\"seqs\":%u,\"length\":%u,\"heads\":%u,\"kv_heads\":%u,\"head_dim\":%u,"
           "\"forward_gflops\":%.1f,\"backward_gflops\":%.1f,\"forward_share\":%.3f,"
           "\"backward_share\":%.3f}%s\n",
           s->seqs, s->length, s->heads, s->kv_heads, s->dim, median(rates[0], ROUNDS),
           median(rates[1], ROUNDS), median(shares[0], ROUNDS), median(shares[1], ROUNDS),
           last ? "" : ",");
}

int main(int argc, char **argv) {
    struct pl_arena arena = {0};
    const uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pl_cpu_count();
    struct pl_device *dev = bench_cpu_open("bench_attention", threads, MEMORY_BYTES, &arena);
    printf("{\"level\":\"%s\",\"threads\":%u,\"attention\":[\n", pl_cpu_of(dev)->level, threads);
    for (int i = 0; i < N_SHAPES; i++)
        measure(dev, arena.base, &shapes[i], i == N_SHAPES - 1);
    printf("]}\n");
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
    return 0;
}
