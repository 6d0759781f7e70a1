/* bench_ops.c - where the time of a step goes, per kind of op. JSON.
 *
 * Usage: bench_ops [SHAPE] [threads] [none|light|full]
 * Binds a plan as the trainer does and runs its micro-batch and optimizer phases one op at a time,
 * with a clock around each. Ops of one kind and shape are added up; medians over rounds. */
#include "tests/bench/machine.h"
#include "tests/bench/shapes.h"

#include "estimator/plan/planned.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/exec/exec.h"
#include "tests/support/child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 9 };

struct rig {
    struct pl_job job;
    struct pl_model model;
    struct pl_planned planned;
    struct pl_device *device;
    struct pl_arena job_arena, batch_arena;
    struct pl_exec exec;
};

static void must(pl_err err, const struct pl_diag *d) {
    if (err == PL_ERR_OK) return;
    fprintf(stderr, "bench_ops: %s: %s\n", pl_err_code(err), d->message);
    exit(1);
}

static void *address(void *ctx, uint32_t tensor) {
    struct rig *r = ctx;
    return pl_exec_address(&r->exec, tensor);
}

static void fill_weights(struct rig *r) {
    struct pl_diag d = {0};
    struct pl_tensor_io io = {.program = r->planned.program,
                              .device = r->device,
                              .address = address,
                              .ctx = r,
                              .staging_bytes = UINT64_C(1) << 20};
    io.staging = malloc(io.staging_bytes);
    if (!io.staging) exit(1);
    must(pl_model_init_random(&io, 1, &d), &d);
    if (r->job.mode == PL_MODE_LORA) must(pl_adapter_init(&io, 1, &d), &d);
    free(io.staging);
}

/* Host-writable on the CPU back-end. NULL when the program has no such input. */
static void *input(struct rig *r, enum pl_role role) {
    const struct pl_program *p = r->planned.program;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].phase == PL_PHASE_MICRO)
            return pl_exec_address(&r->exec, i);
    return NULL;
}

/* Full rows of random tokens; every position but a row's last predicts. Once a round: later tensors
 * take the place of inputs that were read for the last time. */
static void fill_batch(struct rig *r, const struct shape *s) {
    int32_t *ids = input(r, PL_ROLE_IDS), *positions = input(r, PL_ROLE_POSITIONS);
    int32_t *offsets = input(r, PL_ROLE_OFFSETS), *rows = input(r, PL_ROLE_TARGET_ROWS);
    int32_t *targets = input(r, PL_ROLE_TARGETS);
    uint64_t n = s->batch * s->length, t = 0;
    for (uint64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((i * 7919) % s->vocab);
        positions[i] = (int32_t)(i % s->length);
        if (i % s->length + 1 == s->length) continue;
        rows[t] = (int32_t)i;
        targets[t++] = (int32_t)(((i + 1) * 7919) % s->vocab);
    }
    for (uint64_t b = 0; b <= s->batch; b++)
        offsets[b] = (int32_t)(b * s->length);
    r->exec.batch = (struct pl_batch){.n_tokens = n,
                                      .n_seqs = s->batch,
                                      .n_targets = t,
                                      .max_len = s->length,
                                      .first = true,
                                      .loss_scale = 1.0f / (float)t,
                                      .seed = 1,
                                      .step = 1,
                                      .learning_rate = 1e-4,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .epsilon = 1e-8};
}

static void open_rig(struct rig *r, const struct shape *s, uint32_t threads, const char *level) {
    struct pl_diag d = {0};
    char length[24];
    *r = (struct rig){0};
    snprintf(length, sizeof length, "%llu", (unsigned long long)s->length);
    const char *const keys[][2] = {{"mode", s->mode},
                                   {"dtype", "fp32"},
                                   {"max_seq_length", length},
                                   {"gradient_checkpointing", level},
                                   {"lora_r", "16"}}; /* only adapters know the last */
    size_t n_keys = sizeof keys / sizeof *keys - (strcmp(s->mode, "full") == 0);
    must(pl_job_defaults(&r->job, &d), &d);
    for (size_t i = 0; i < n_keys; i++)
        must(pl_job_set(&r->job, keys[i][0], keys[i][1], &d), &d);
    shape_model(s, &r->model);
    struct pl_traits traits = pl_traits_cpu(threads);
    must(pl_planned_init(&r->planned, &r->job, &r->model, &traits, (uint32_t)s->batch, &d), &d);
    const struct pl_plan *plan = r->planned.plan;
    must(pl_device_open(&pl_device_cpu, threads, PL_AUTO_BYTES, &r->device, &d), &d);
    must(pl_arena_reserve(r->device, plan->job_bytes, "job arena", &r->job_arena, &d), &d);
    must(pl_arena_reserve(r->device, plan->batch_bytes, "batch arena", &r->batch_arena, &d), &d);
    must(pl_exec_init(&r->exec, plan, r->device, &d), &d);
    must(pl_exec_bind(&r->exec, &r->job_arena, &r->batch_arena, &d), &d);
    fill_weights(r);
}

static void close_rig(struct rig *r) {
    pl_exec_finish(&r->exec);
    pl_arena_release(r->device, &r->batch_arena);
    pl_arena_release(r->device, &r->job_arena);
    pl_device_close(&r->device);
    pl_planned_finish(&r->planned);
    pl_job_finish(&r->job);
}

/* Ops of one kind on one shape. */
struct cost {
    enum pl_op_kind kind;
    uint64_t rows, cols, inner; /* of the result; columns of the first operand */
    double seconds[ROUNDS], flops, middle;
    int calls;
};

enum { MAX_COSTS = 256 };
static struct cost costs[MAX_COSTS];
static int n_costs;

static struct cost *cost_of(const struct pl_op *op, const struct pl_call *c) {
    const struct pl_view *result = op->n_out ? &c->out[0] : &c->in[0];
    struct cost key = {.kind = op->kind, .rows = result->rows, .cols = result->cols};
    key.inner = c->in[0].cols;
    for (int i = 0; i < n_costs; i++)
        if (costs[i].kind == key.kind && costs[i].rows == key.rows && costs[i].cols == key.cols &&
            costs[i].inner == key.inner)
            return &costs[i];
    if (n_costs == MAX_COSTS) {
        fprintf(stderr, "bench_ops: more than %d kinds of ops\n", MAX_COSTS);
        exit(1);
    }
    costs[n_costs] = key;
    return &costs[n_costs++];
}

static void run_phase(struct rig *r, enum pl_phase phase, int round) {
    struct pl_diag d = {0};
    const struct pl_phase_range *range = &r->planned.program->phases[phase];
    for (uint32_t i = range->first_op; i < range->first_op + range->n_ops; i++) {
        const struct pl_op *op = &r->planned.program->ops[i];
        double before = seconds_now();
        must(pl_exec_run(&r->exec, i, 1, &d), &d);
        double spent = seconds_now() - before;
        if (round < 0) continue;
        struct cost *cost = cost_of(op, &r->exec.calls[i]);
        cost->seconds[round] += spent;
        cost->flops += (double)op->flops / ROUNDS;
        cost->calls += round == 0;
    }
}

static int dearest_first(const void *a, const void *b) {
    double x = ((const struct cost *)a)->middle, y = ((const struct cost *)b)->middle;
    return (x < y) - (x > y);
}

static void print(const struct shape *s, const char *level, uint32_t threads) {
    double total = 0;
    for (int i = 0; i < n_costs; i++)
        total += costs[i].middle = median(costs[i].seconds, ROUNDS);
    qsort(costs, (size_t)n_costs, sizeof *costs, dearest_first);
    printf("{\"shape\":\"%s\",\"recompute\":\"%s\",\"threads\":%u,\"sgemm_2048_gflops\":%.1f,"
           "\"step_ms\":%.2f,\"tokens_per_second\":%.1f,\"ops\":[\n",
           s->name, level, threads, machine_sgemm_gflops(threads), 1e3 * total,
           (double)(s->batch * s->length) / total);
    for (int i = 0; i < n_costs; i++) {
        const struct cost *c = &costs[i];
        printf("  {\"op\":\"%s\",\"rows\":%llu,\"cols\":%llu,\"inner\":%llu,\"calls\":%d,"
               "\"ms\":%.3f,\"share\":%.4f,\"gflops\":%.1f}%s\n",
               pl_op_name(c->kind), (unsigned long long)c->rows, (unsigned long long)c->cols,
               (unsigned long long)c->inner, c->calls, 1e3 * c->middle, c->middle / total,
               c->middle > 0 ? 1e-9 * c->flops / c->middle : 0.0, i + 1 < n_costs ? "," : "");
    }
    printf("]}\n");
}

int main(int argc, char **argv) {
    static struct rig r;
    const struct shape *s = shape_find(argc > 1 ? argv[1] : "tiny-full");
    uint32_t threads = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 2;
    const char *level = argc > 3 ? argv[3] : "none";
    if (!s || threads == 0) {
        fprintf(stderr, "usage: bench_ops [SHAPE] [threads] [none|light|full]\n");
        return 2;
    }
    open_rig(&r, s, threads, level);
    for (int round = -2; round < ROUNDS; round++) {
        fill_batch(&r, s);
        run_phase(&r, PL_PHASE_MICRO, round);
        run_phase(&r, PL_PHASE_OPTIMIZER, round);
    }
    print(s, level, threads);
    close_rig(&r);
    return 0;
}
