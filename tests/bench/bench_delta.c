/* bench_delta.c - tokens per second of the gated delta rule on the CPU, forward and backward, as
 * JSON.
 *
 * Usage: bench_delta [threads] [tokens] [rounds]. The shape is that of Qwen3-Next: 16 heads of keys
 * and 32 of values, of 128 columns each, in fp32. The forward pass leaves the states that the
 * backward pass starts from, as in training. compare_delta.py measures PyTorch in turn with it. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_delta.h"
#include "runtime/device/cpu/cpu.h"
#include "tests/bench/machine.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEY_HEADS = 16, HEADS = 32, DIM = 128, MOST_ROUNDS = 99 };
enum { QKV = 2 * KEY_HEADS * DIM + HEADS * DIM };

#define MEMORY_BYTES (UINT64_C(1) << 30)

static struct pl_view take_view(char **at, uint64_t rows, uint64_t cols, enum pl_dtype dtype) {
    struct pl_view v = {.p = *at, .rows = rows, .cols = cols, .ld = cols, .dtype = dtype};
    *at += (rows * cols * pl_dtype_bytes(dtype) + 255) & ~UINT64_C(255);
    return v;
}

static struct pl_view values(char **at, uint64_t rows, uint64_t cols) {
    struct pl_view v = take_view(at, rows, cols, PL_DTYPE_F32);
    for (uint64_t i = 0; i < rows * cols; i++)
        ((float *)v.p)[i] = (float)(i * 2654435761u % 1009) / 504.0f - 1.0f;
    return v;
}

static struct pl_view scratch(char **at, const struct pl_device *dev, enum pl_op_kind kind,
                              const struct pl_attr *attr, uint64_t tokens) {
    return take_view(at, pl_op_workspace_bytes(&dev->traits, kind, attr, tokens, QKV), 1,
                     PL_DTYPE_U8);
}

/* The operands of both passes in the arena. */
static void set_up(const struct pl_device *dev, const struct pl_attr *attr, uint64_t tokens,
                   char *at, struct pl_call *forward, struct pl_call *backward) {
    const struct pl_view qkv = values(&at, tokens, QKV), ba = values(&at, tokens, 2 * HEADS);
    const struct pl_view a_log = values(&at, HEADS, 1), dt_bias = values(&at, HEADS, 1);
    const struct pl_view offsets = take_view(&at, 2, 1, PL_DTYPE_I32);
    const struct pl_view states =
        take_view(&at, pl_delta_rows(tokens, 1), (uint64_t)HEADS * DIM * DIM, PL_DTYPE_F32);
    ((int32_t *)offsets.p)[1] = (int32_t)tokens;
    struct pl_view *in = forward->in;
    in[PL_GATED_DELTA_QKV] = qkv, in[PL_GATED_DELTA_BA] = ba;
    in[PL_GATED_DELTA_A_LOG] = a_log, in[PL_GATED_DELTA_DT_BIAS] = dt_bias;
    in[PL_GATED_DELTA_OFFSETS] = offsets;
    in[PL_GATED_DELTA_WS] = scratch(&at, dev, PL_OP_GATED_DELTA, attr, tokens);
    forward->out[PL_GATED_DELTA_OUT_O] = take_view(&at, tokens, HEADS * DIM, PL_DTYPE_F32);
    forward->out[PL_GATED_DELTA_OUT_STATES] = states;
    in = backward->in;
    in[PL_GATED_DELTA_BWD_QKV] = qkv, in[PL_GATED_DELTA_BWD_BA] = ba;
    in[PL_GATED_DELTA_BWD_A_LOG] = a_log, in[PL_GATED_DELTA_BWD_DT_BIAS] = dt_bias;
    in[PL_GATED_DELTA_BWD_OFFSETS] = offsets, in[PL_GATED_DELTA_BWD_STATES] = states;
    in[PL_GATED_DELTA_BWD_DO] = values(&at, tokens, HEADS * DIM);
    in[PL_GATED_DELTA_BWD_WS] = scratch(&at, dev, PL_OP_GATED_DELTA_BWD, attr, tokens);
    struct pl_view *out = backward->out;
    out[PL_GATED_DELTA_BWD_OUT_DQKV] = take_view(&at, tokens, QKV, PL_DTYPE_F32);
    out[PL_GATED_DELTA_BWD_OUT_DBA] = take_view(&at, tokens, 2 * HEADS, PL_DTYPE_F32);
    out[PL_GATED_DELTA_BWD_OUT_DA_LOG] = take_view(&at, HEADS, 1, PL_DTYPE_F32);
    out[PL_GATED_DELTA_BWD_OUT_DDT_BIAS] = take_view(&at, HEADS, 1, PL_DTYPE_F32);
}

static double seconds(struct pl_device *dev, enum pl_op_kind kind, const struct pl_call *call) {
    const double start = seconds_now();
    if (dev->kernels[kind](dev, call) != PL_ERR_OK) abort();
    return seconds_now() - start;
}

int main(int argc, char **argv) {
    const uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pl_cpu_count();
    const uint64_t tokens = argc > 2 ? strtoull(argv[2], NULL, 10) : 1024;
    const int rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (threads == 0 || tokens == 0 || tokens > 4096 || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: bench_delta [threads] [tokens, at most 4096] [rounds]\n");
        return 2;
    }
    const struct pl_attr attr = {
        .heads = HEADS, .kv_heads = KEY_HEADS, .key_dim = DIM, .head_dim = DIM};
    const struct pl_batch batch = {.first = true, .n_seqs = 1};
    struct pl_call forward = {.attr = &attr, .batch = &batch};
    struct pl_call backward = {.attr = &attr, .batch = &batch};
    struct pl_arena arena = {0};
    double times[2][MOST_ROUNDS];
    struct pl_device *dev = bench_cpu_open("bench_delta", threads, MEMORY_BYTES, &arena);
    set_up(dev, &attr, tokens, arena.base, &forward, &backward);
    for (int round = -1; round < rounds; round++) {
        const double there = seconds(dev, PL_OP_GATED_DELTA, &forward);
        const double back = seconds(dev, PL_OP_GATED_DELTA_BWD, &backward);
        if (round < 0) continue;
        times[0][round] = there;
        times[1][round] = back;
    }
    printf("{\"level\":\"%s\",\"threads\":%u,\"tokens\":%llu,\"forward_tokens_per_second\":%.0f,"
           "\"backward_tokens_per_second\":%.0f}\n",
           pl_cpu_of(dev)->level, threads, (unsigned long long)tokens,
           (double)tokens / median(times[0], rounds), (double)tokens / median(times[1], rounds));
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
    return 0;
}
