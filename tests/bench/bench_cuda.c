/* bench_cuda.c - a training step on a GPU, op by op. One JSON object a line, written at once.
 *
 * Usage: bench_cuda ops|products CONFIG.json [key=value...]      (keys of a configuration)
 *        bench_cuda copy|reported
 * ops: {"event":"step"} with the wall time of a step as the host sees it, its time on the GPU when
 * the host is ahead, and the sum over its ops (those that run as one count as one); then an
 * {"event":"op"} for each kind and shape, with FLOPs and bytes as planned. products: bench_cuda.h.
 * copy: what the memory of the GPU can do. reported: faults that others have reported. Medians over
 * rounds. In the emulation of tests/cuda_sim it runs too, and its times mean nothing.
 */
#include "tests/bench/bench_cuda.h"
#include "runtime/kernels/back_ends.h"

#include "tests/bench/machine.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 2, WINDOW = 48 }; /* ops after one head start: few enough to fit a launch queue */

static const enum pl_phase phases[] = {PL_PHASE_MICRO, PL_PHASE_OPTIMIZER};
enum { N_PHASES = sizeof phases / sizeof *phases };

static void run_step(struct rig *r) {
    struct pl_diag d = {0};
    for (int i = 0; i < N_PHASES; i++)
        must(pl_exec_run_phase(&r->exec, phases[i], &d), &d);
}

/* Calls `visit` with each group of ops of a phase that run as one. */
static void each_group(struct rig *r, enum pl_phase phase,
                       void (*visit)(void *ctx, uint32_t first, uint32_t n), void *ctx) {
    const struct pl_phase_range *range = &r->planned.program->phases[phase];
    const uint32_t end = range->first_op + range->n_ops;
    for (uint32_t i = range->first_op, n; i < end; i += n) {
        n = rig_together(r, i, end);
        visit(ctx, i, n);
    }
}

struct timing { /* seconds of one round */
    struct rig *r;
    struct cuda_clock *clock;
    struct costs *costs;
    int round;
    uint32_t groups;
};

/* A group lies between the two events of its first op. */
static void queue_group(void *ctx, uint32_t first, uint32_t n) {
    struct timing *t = ctx;
    struct pl_diag d = {0};
    if (t->groups++ % WINDOW == 0) cuda_clock_head_start(t->clock);
    cuda_clock_mark(t->clock, 2 * first);
    must(pl_exec_run(&t->r->exec, first, n, &d), &d);
    cuda_clock_mark(t->clock, 2 * first + 1);
}

static void add_group(void *ctx, uint32_t first, uint32_t n) {
    struct timing *t = ctx;
    costs_add(t->costs, t->r, first, n, t->round,
              cuda_clock_seconds(t->clock, 2 * first, 2 * first + 1));
}

/* Returns how many groups a step has. */
static uint32_t time_ops(struct rig *r, struct cuda_clock *clock, struct costs *costs, int round) {
    struct timing t = {.r = r, .clock = clock, .costs = costs, .round = round};
    rig_fill_batch(r);
    for (int k = 0; k < N_PHASES; k++)
        each_group(r, phases[k], queue_group, &t);
    rig_sync(r);
    for (int k = 0; k < N_PHASES; k++)
        each_group(r, phases[k], add_group, &t);
    return t.groups;
}

/* Returns the time from the first launch until the device is idle. */
static double wall_seconds(struct rig *r) {
    rig_fill_batch(r);
    rig_sync(r);
    const double before = seconds_now();
    run_step(r);
    rig_sync(r);
    return seconds_now() - before;
}

static double queued_seconds(struct rig *r, struct cuda_clock *clock) {
    rig_fill_batch(r);
    for (int i = 0; i < 8; i++)
        cuda_clock_head_start(clock);
    cuda_clock_mark(clock, 0);
    run_step(r);
    cuda_clock_mark(clock, 1);
    rig_sync(r);
    return cuda_clock_seconds(clock, 0, 1);
}

static double grad_norm(struct rig *r) {
    struct pl_diag d = {0};
    double clip[2] = {0};
    must(pl_exec_download(&r->exec, r->planned.program->clip, clip, sizeof clip), &d);
    return clip[0];
}

static void print_op(const struct cost *c, double total) {
    printf("{\"event\":\"op\",\"op\":\"%s\",\"dtype\":\"%s\",\"rows\":%llu,\"cols\":%llu,"
           "\"inner\":%llu,\"calls\":%d,\"ms\":%.6f,\"share\":%.5f,\"flops\":%.9g,"
           "\"bytes\":%.9g}\n",
           pl_op_name(c->kind), pl_dtype_name(c->dtype), (unsigned long long)c->rows,
           (unsigned long long)c->cols, (unsigned long long)c->inner, c->calls, 1e3 * c->middle,
           total > 0 ? c->middle / total : 0.0, c->flops, c->bytes);
}

static void measure_ops(struct rig *r, struct cuda_clock *clock) {
    static struct costs costs;
    double wall[RIG_ROUNDS], queued[RIG_ROUNDS];
    uint32_t groups = 0;
    for (int round = -WARM_UP; round < RIG_ROUNDS; round++) {
        groups = time_ops(r, clock, &costs, round);
        const double on_host = wall_seconds(r), on_gpu = queued_seconds(r, clock);
        if (round < 0) continue;
        wall[round] = on_host;
        queued[round] = on_gpu;
    }
    costs_finish(&costs);
    double flops = 0;
    for (int i = 0; i < costs.n; i++)
        flops += costs.rows[i].flops;
    /* An infinity is no number of JSON. */
    const double norm = grad_norm(r);
    const bool finite = norm - norm == 0;
    printf("{\"event\":\"step\",\"ops\":%u,\"tokens\":%llu,\"wall_ms\":%.6f,\"queued_ms\":%.6f,"
           "\"sum_ms\":%.6f,\"flops\":%.9g,\"finite\":%s,\"planned_peak_bytes\":%llu}\n",
           groups, (unsigned long long)r->planned.program->tokens, 1e3 * median(wall, RIG_ROUNDS),
           1e3 * median(queued, RIG_ROUNDS), 1e3 * costs.total, flops, finite ? "true" : "false",
           (unsigned long long)r->planned.plan->arena_bytes);
    for (int i = 0; i < costs.n; i++)
        print_op(&costs.rows[i], costs.total);
}

static void open_job(struct rig *r, char **words) {
    struct pl_diag d = {0};
    rig_init(r);
    must(pl_model_read(words[0], &r->model, &d), &d);
    rig_set_words(r, words + 1);
    rig_open(r, &pl_back_end_cuda, 1);
}

static void measure_job(bool ops, char **words) {
    static struct rig r;
    struct cuda_clock clock;
    open_job(&r, words);
    cuda_clock_open(&clock, r.device, 2 * r.planned.program->n_ops + 2);
    if (ops)
        measure_ops(&r, &clock);
    else
        bench_cuda_products(&r, &clock);
    cuda_clock_close(&clock);
    rig_close(&r);
}

static void measure_copies(void) {
    struct pl_diag d = {0};
    struct pl_device *dev = NULL;
    struct cuda_clock clock;
    must(pl_device_open(&pl_back_end_cuda, 1, PL_NO_BUDGET, &dev, &d), &d);
    cuda_clock_open(&clock, dev, 2);
    printf("{\"event\":\"copy\",\"bytes_per_second\":%.9g,\"sm_count\":%u}\n",
           cuda_clock_copy_rate(&clock), pl_cuda_of(dev)->sm_count);
    cuda_clock_close(&clock);
    pl_device_close(&dev);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "copy") == 0 && argc == 2) {
        measure_copies();
    } else if (strcmp(what, "reported") == 0 && argc == 2) {
        bench_cuda_reported();
    } else if ((strcmp(what, "ops") == 0 || strcmp(what, "products") == 0) && argc > 2) {
        measure_job(what[0] == 'o', argv + 2);
    } else {
        fprintf(stderr,
                "usage: bench_cuda copy|reported | ops|products CONFIG.json [key=value...]\n");
        return 2;
    }
    return 0;
}
