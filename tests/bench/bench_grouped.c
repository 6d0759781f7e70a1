/* bench_grouped.c - rate of grouped products next to that of one product of as many FLOPs, as JSON.
 *
 * Usage: bench_grouped [threads] [tokens] [experts] [experts of a token]. The rows are spread
 * unevenly: an expert has between none and twice the average. Both products run in turn;
 * part_of_dense compares the best times, and the median of the ratios of processor time, which says
 * more on a machine that has other users, is part_of_processor. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/device/cpu/cpu.h"
#include "runtime/kernels/back_ends.h"
#include "tests/bench/machine.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>

enum { K = 2048, O = 768, ROUNDS = 9 };
#define MEMORY (UINT64_C(1200) << 20)

struct run {
    enum pl_op_kind kind;
    struct pl_attr attr;
    struct pl_call call;
};

static struct pl_view matrix(char **at, uint64_t rows, uint64_t cols) {
    struct pl_view v = {.p = *at, .rows = rows, .cols = cols, .ld = cols, .dtype = PL_DTYPE_BF16};
    *at += (rows * cols * sizeof(uint16_t) + 255) & ~UINT64_C(255);
    for (uint64_t i = 0; i < rows * cols; i++)
        ((uint16_t *)v.p)[i] = (uint16_t)(0x3F00 + i % 17);
    return v;
}

static struct pl_product_matrix matrix_of(const struct pl_view *v) {
    return (struct pl_product_matrix){v->rows, v->cols, v->dtype};
}

/* ids: operands of the op in order of x, dy (or y) and W; scratch and offsets by their places. */
static void set_up(struct run *r, const struct pl_traits *t, const struct pl_view *x,
                   const struct pl_view *y, const struct pl_view *w, struct pl_view offsets,
                   char *scratch) {
    const bool grouped = offsets.p != NULL;
    const bool forward = r->kind == PL_OP_LINEAR || r->kind == PL_OP_GROUPED_LINEAR;
    const bool dx = r->kind == PL_OP_LINEAR_DX || r->kind == PL_OP_GROUPED_LINEAR_DX;
    uint32_t ws = forward ? PL_LINEAR_WS : dx ? PL_LINEAR_DX_WS : PL_LINEAR_DW_WS;
    if (grouped) ws = forward || dx ? PL_GROUPED_LINEAR_WS : PL_GROUPED_LINEAR_DW_WS;
    r->call.in[0] = forward ? *x : *y;
    r->call.in[1] = forward || dx ? *w : *x;
    r->call.out[0] = forward ? *y : dx ? *x : *w;
    if (grouped) r->call.in[PL_GROUPED_LINEAR_OFFSETS] = offsets;
    const struct pl_product_matrix m[] = {matrix_of(&r->call.in[0]), matrix_of(&r->call.in[1]),
                                          matrix_of(&r->call.out[0])};
    r->call.in[ws] = (struct pl_view){scratch, pl_product_workspace_bytes(t, r->kind, &r->attr, m),
                                      1, 1, PL_DTYPE_U8};
}

struct times {
    double clock, processor;
};

static struct times times_now(void) {
    return (struct times){seconds_now(), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

static struct times seconds(struct pl_device *dev, struct run *r) {
    static const struct pl_batch batch = {.first = true};
    const struct times start = times_now();
    r->call.attr = &r->attr;
    r->call.batch = &batch;
    if (dev->kernels[r->kind](dev, &r->call) != PL_ERR_OK) abort();
    const struct times end = times_now();
    return (struct times){end.clock - start.clock, end.processor - start.processor};
}

static void measure(struct pl_device *dev, char *memory, uint64_t rows, uint32_t experts,
                    bool last) {
    static const enum pl_op_kind kinds[][2] = {{PL_OP_LINEAR, PL_OP_GROUPED_LINEAR},
                                               {PL_OP_LINEAR_DX, PL_OP_GROUPED_LINEAR_DX},
                                               {PL_OP_LINEAR_DW, PL_OP_GROUPED_LINEAR_DW}};
    char *at = memory;
    struct pl_view x = matrix(&at, rows, K), y = matrix(&at, rows, O);
    struct pl_view all = matrix(&at, (uint64_t)experts * O, K), one = matrix(&at, O, K);
    struct pl_view offsets = {at, experts + 1, 1, 1, PL_DTYPE_I32}, none = {0};
    int32_t *ends = offsets.p;
    for (uint32_t e = 0; e <= experts; e++) /* pairs of experts share two parts unevenly */
        ends[e] = (int32_t)(e == experts ? rows
                                         : rows * (e / 2 * 2) / experts +
                                               (e % 2 ? 2 * rows / experts * (e % 7) / 6 : 0));
    at += (experts + 64) / 64 * 64 * sizeof *ends;
    for (int i = 0; i < 3; i++) {
        double best[2] = {1e9, 1e9};
        struct run runs[2] = {{.kind = kinds[i][0], .attr = {.alpha = 1}},
                              {.kind = kinds[i][1], .attr = {.alpha = 1, .expert_rows = O}}};
        set_up(&runs[0], &dev->traits, &x, &y, &one, none, at);
        set_up(&runs[1], &dev->traits, &x, &y, &all, offsets, at);
        double parts[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            struct times t[2];
            for (int way = 0; way < 2; way++) {
                t[way] = seconds(dev, &runs[way]);
                if (t[way].clock < best[way]) best[way] = t[way].clock;
            }
            parts[round] = t[0].processor / t[1].processor;
        }
        const double gflop = 2e-9 * (double)rows * O * K;
        printf("  {\"op\":\"%s\",\"rows\":%llu,\"experts\":%u,\"gflops\":%.1f,"
               "\"dense_gflops\":%.1f,\"part_of_dense\":%.2f,\"part_of_processor\":%.2f}%s\n",
               pl_op_name(kinds[i][1]), (unsigned long long)rows, experts, gflop / best[1],
               gflop / best[0], best[0] / best[1], median(parts, ROUNDS),
               last && i == 2 ? "" : ",");
    }
}

int main(int argc, char **argv) {
    struct pl_arena arena = {0};
    const uint32_t threads = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : pl_cpu_count();
    const uint64_t tokens = argc > 2 ? strtoull(argv[2], NULL, 10) : 512;
    const uint32_t experts = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 128;
    const uint64_t each = argc > 4 ? strtoull(argv[4], NULL, 10) : 8;
    struct pl_device *dev = bench_cpu_open("bench_grouped", threads, MEMORY, &arena);
    printf("{\"level\":\"%s\",\"threads\":%u,\"products\":[\n", pl_cpu_of(dev)->level, threads);
    measure(dev, arena.base, tokens * each, experts, true);
    printf("]}\n");
    pl_arena_release(dev, &arena);
    pl_device_close(&dev);
    return 0;
}
