/* bench_ops.c - where the time of a step goes, per kind of op. JSON.
 *
 * Usage: bench_ops [SHAPE] [threads] [none|light|full] [dtype] [KEY=VALUE...]
 * Binds a plan as the trainer does and runs its micro-batch and optimizer phases one op at a time,
 * with a clock around each. Ops of one kind and shape are added up; medians over rounds. The last
 * line has the share of a step that each class of ops takes; `rest` is the sum of all but products,
 * attention and the update. */
#include "estimator/program/cost.h"
#include "tests/bench/machine.h"
#include "runtime/kernels/back_ends.h"
#include "tests/bench/step_rig.h"
#include "tests/bench/shapes.h"

#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_shape(struct rig *r, const struct shape *s, uint32_t threads, const char *level,
                       const char *dtype, char **words) {
    char length[24], batch[24];
    snprintf(length, sizeof length, "%llu", (unsigned long long)s->length);
    snprintf(batch, sizeof batch, "%llu", (unsigned long long)s->batch);
    rig_init(r);
    rig_set(r, "mode", s->mode);
    rig_set(r, "dtype", dtype);
    rig_set(r, "batch_size", batch);
    rig_set(r, "max_seq_length", length);
    rig_set(r, "gradient_checkpointing", level);
    if (strcmp(s->mode, "full") != 0) rig_set(r, "lora_r", "16");
    rig_set_words(r, words);
    shape_model(s, &r->model);
    rig_open(r, &pl_back_end_cpu, threads);
}

static void run_phase(struct rig *r, struct costs *costs, enum pl_phase phase, int round) {
    struct pl_diag d = {0};
    const struct pl_phase_range *range = &r->planned.program->phases[phase];
    const uint32_t end = range->first_op + range->n_ops;
    for (uint32_t i = range->first_op, n; i < end; i += n) {
        n = rig_together(r, i, end);
        double before = seconds_now();
        must(pl_exec_run(&r->exec, i, n, &d), &d);
        costs_add(costs, r, i, n, round, seconds_now() - before);
    }
}

/* Returns how many thousands of millions of them a second are. */
static double per_second(double amount, const struct cost *c) {
    return c->middle > 0 ? 1e-9 * amount / c->middle : 0.0;
}

/* Prints the last line: the share of each class that is told by itself, and that of all others. */
static void print_shares(const struct costs *costs) {
    static const enum pl_cost told[] = {PL_COST_PRODUCT, PL_COST_ATTENTION, PL_COST_UPDATE};
    double share[PL_COST_COUNT] = {0}, rest = 1;
    for (int i = 0; i < costs->n; i++)
        share[pl_op_rows[costs->rows[i].kind].cost] += costs->rows[i].middle / costs->total;
    printf("],\"shares\":{");
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        printf("\"%s\":%.4f,", pl_cost_name(told[i]), share[told[i]]);
        rest -= share[told[i]];
    }
    printf("\"rest\":%.4f}}\n", rest);
}

static void print(const struct shape *s, const char *level, uint32_t threads,
                  const struct costs *costs) {
    printf("{\"shape\":\"%s\",\"recompute\":\"%s\",\"threads\":%u,\"sgemm_2048_gflops\":%.1f,"
           "\"step_ms\":%.2f,\"tokens_per_second\":%.1f,\"ops\":[\n",
           s->name, level, threads, machine_sgemm_gflops(threads), 1e3 * costs->total,
           (double)(s->batch * s->length) / costs->total);
    for (int i = 0; i < costs->n; i++) {
        const struct cost *c = &costs->rows[i];
        printf("  {\"op\":\"%s\",\"rows\":%llu,\"cols\":%llu,\"inner\":%llu,\"calls\":%d,"
               "\"ms\":%.3f,\"share\":%.4f,\"gflops\":%.1f,\"gbytes\":%.1f}%s\n",
               pl_op_name(c->kind), (unsigned long long)c->rows, (unsigned long long)c->cols,
               (unsigned long long)c->inner, c->calls, 1e3 * c->middle, c->middle / costs->total,
               per_second(c->flops, c), per_second(c->bytes, c), i + 1 < costs->n ? "," : "");
    }
    print_shares(costs);
}

int main(int argc, char **argv) {
    static struct rig r;
    static struct costs costs;
    const struct shape *s = shape_find(argc > 1 ? argv[1] : "tiny-full");
    uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
    const char *level = argc > 3 ? argv[3] : "none";
    const char *dtype = argc > 4 ? argv[4] : "fp32";
    if (!s || threads == 0) {
        fprintf(stderr, "usage: bench_ops [SHAPE] [threads] [none|light|full] [dtype] "
                        "[KEY=VALUE...]\n");
        return 2;
    }
    open_shape(&r, s, threads, level, dtype, argc > 5 ? argv + 5 : argv + argc);
    for (int round = -2; round < RIG_ROUNDS; round++) {
        rig_fill_batch(&r);
        run_phase(&r, &costs, PL_PHASE_MICRO, round);
        run_phase(&r, &costs, PL_PHASE_OPTIMIZER, round);
    }
    costs_finish(&costs);
    print(s, level, threads, &costs);
    rig_close(&r);
    return 0;
}
