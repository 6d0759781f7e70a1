/* step_rig.c - arenas filled by copying one small block of values over and over. */
#include "tests/bench/step_rig.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/program/cost.h"
#include "tests/bench/machine.h"
#include "tests/support/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 18 }; /* values of a block; its bytes fit an upload of any device */

/* The same values as every dtype that a job tensor has. */
struct block {
    float f32[BLOCK], ones_f32[BLOCK];
    uint16_t bf16[BLOCK], ones_bf16[BLOCK];
    uint8_t u8[BLOCK];
};

void must(pl_err err, const struct pl_diag *d) {
    if (err == PL_ERR_OK) return;
    fprintf(stderr, "error[%s]: %s\n", pl_err_code(err), d->message);
    exit(1);
}

static void *memory(size_t bytes) {
    void *p = calloc(1, bytes);
    if (p) return p;
    fprintf(stderr, "out of memory\n");
    exit(1);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Sums of four uniform numbers, of standard deviation 0.02; bytes are uniform. */
static void make_block(struct block *b) {
    uint64_t state = 1;
    for (int i = 0; i < BLOCK; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            sum += (float)(state >> 40) * 0x1p-24f - 0.5f;
        }
        b->f32[i] = sum * 0.0346f;
        b->bf16[i] = to_bf16(b->f32[i]);
        b->ones_f32[i] = 1.0f;
        b->ones_bf16[i] = to_bf16(1.0f);
        b->u8[i] = (uint8_t)(state >> 56);
    }
}

/* NULL: the zeros of a fresh arena are as good. */
static const void *values_of(const struct pl_tensor *t, const struct block *b) {
    const bool vector = t->dims[1] * t->dims[2] == 1;
    switch (t->role) {
    case PL_ROLE_WEIGHT:
    case PL_ROLE_MASTER:
    case PL_ROLE_LORA_A:
    case PL_ROLE_LORA_B:
        if (vector) return t->dtype == PL_DTYPE_F32 ? (const void *)b->ones_f32 : b->ones_bf16;
        return t->dtype == PL_DTYPE_F32 ? (const void *)b->f32 : b->bf16;
    case PL_ROLE_ROPE:
    case PL_ROLE_ABSMAX:
        return b->f32;
    case PL_ROLE_CODES:
    case PL_ROLE_ABSMAX8:
        return b->u8;
    default:
        return NULL;
    }
}

static void fill_weights(struct rig *r) {
    const struct pl_program *p = r->planned.program;
    struct pl_diag d = {0};
    struct block *b = memory(sizeof *b);
    make_block(b);
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        const void *values = values_of(t, b);
        const uint64_t most = BLOCK * pl_dtype_bytes(t->dtype);
        if (!values || t->scope != PL_SCOPE_JOB) continue;
        char *to = pl_exec_address(&r->exec, i);
        for (uint64_t at = 0, n; at < t->bytes; at += n) {
            n = pl_u64_min(most, t->bytes - at);
            must(r->device->ops->upload(r->device, to + at, values, n), &d);
        }
    }
    free(b);
}

void rig_init(struct rig *r) {
    struct pl_diag d = {0};
    *r = (struct rig){0};
    must(pl_job_defaults(&r->job, &d), &d);
}

void rig_set(struct rig *r, const char *key, const char *value) {
    struct pl_diag d = {0};
    must(pl_job_set(&r->job, key, value, &d), &d);
}

void rig_set_words(struct rig *r, char **words) {
    for (int i = 0; words[i]; i++) {
        char *value = strchr(words[i], '=');
        if (!value) {
            fprintf(stderr, "%s: key=value was expected\n", words[i]);
            exit(2);
        }
        *value++ = 0;
        rig_set(r, words[i], value);
    }
}

static void refuse_host_memory(const struct pl_plan *plan) {
    for (int place = PL_PLACE_PINNED; place < PL_PLACE_COUNT; place++)
        if (pl_plan_host_bytes(plan, place)) {
            fprintf(stderr, "a job that offloads cannot be measured op by op\n");
            exit(1);
        }
}

/* rows x length inputs, or as many offsets. */
static uint64_t most_inputs(const struct rig *r) {
    return pl_u64_max(r->planned.program->tokens, r->planned.program->seqs + 1);
}

void rig_open(struct rig *r, const struct pl_back_end *back_end, uint32_t threads) {
    struct pl_diag d = {0};
    must(pl_device_open(back_end, threads, PL_NO_BUDGET, &r->device, &d), &d);
    must(pl_staging_reserve(r->device, &d), &d);
    must(pl_question_plan(PL_ASK(&r->job, &r->model, &r->device->traits, NULL, r->job.batch_size),
                          NULL, &r->planned, &d),
         &d);
    const struct pl_plan *plan = r->planned.plan;
    refuse_host_memory(plan);
    must(pl_arena_reserve(r->device, plan->job_bytes, "job arena", &r->job_arena, &d), &d);
    must(pl_arena_reserve(r->device, plan->batch_bytes, "batch arena", &r->batch_arena, &d), &d);
    must(pl_exec_init(&r->exec, plan, r->device, &d), &d);
    must(pl_exec_bind(&r->exec, &r->job_arena, &r->batch_arena, &d), &d);
    r->inputs = memory(most_inputs(r) * sizeof *r->inputs);
    fill_weights(r);
}

void rig_sync(struct rig *r) {
    struct pl_diag d = {0};
    if (r->device->ops->sync) must(r->device->ops->sync(r->device), &d);
}

void rig_close(struct rig *r) {
    pl_exec_finish(&r->exec);
    pl_arena_release(r->device, &r->batch_arena);
    pl_arena_release(r->device, &r->job_arena);
    pl_device_close(&r->device);
    pl_planned_finish(&r->planned);
    pl_job_finish(&r->job);
    free(r->inputs);
    *r = (struct rig){0};
}

/* --- the micro-batch ------------------------------------------------------------------------- */

/* The first `n` of r->inputs, where the program has such an input. */
static void put_input(struct rig *r, enum pl_role role, uint64_t n) {
    const struct pl_program *p = r->planned.program;
    struct pl_diag d = {0};
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].role == role && p->tensors[i].phase == PL_PHASE_MICRO)
            must(pl_exec_upload(&r->exec, i, r->inputs, n * sizeof *r->inputs), &d);
}

static int32_t id_at(const struct rig *r, uint64_t i) {
    return (int32_t)(i * 7919 % r->model.vocab);
}

/* Positions that predict, or what they predict. */
static uint64_t list_targets(struct rig *r, uint64_t length, bool ids) {
    uint64_t t = 0;
    for (uint64_t i = 0; i < r->planned.program->tokens; i++)
        if (i % length + 1 < length) r->inputs[t++] = ids ? id_at(r, i + 1) : (int32_t)i;
    return t;
}

static int by_id(const void *a, const void *b, void *rig) {
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const int32_t x = id_at(rig, (uint64_t)i), y = id_at(rig, (uint64_t)j);
    return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

void rig_fill_batch(struct rig *r) {
    const uint64_t n = r->planned.program->tokens, rows = r->planned.program->shape.batch_size;
    const uint64_t length = n / rows;
    for (uint64_t i = 0; i < n; i++)
        r->inputs[i] = id_at(r, i);
    put_input(r, PL_ROLE_IDS, n);
    for (uint64_t i = 0; i < n; i++)
        r->inputs[i] = (int32_t)i;
    qsort_r(r->inputs, (size_t)n, sizeof *r->inputs, by_id, r);
    put_input(r, PL_ROLE_ORDER, n);
    for (uint64_t i = 0; i < n; i++)
        r->inputs[i] = (int32_t)(i % length);
    put_input(r, PL_ROLE_POSITIONS, n);
    for (uint64_t b = 0; b <= rows; b++)
        r->inputs[b] = (int32_t)(b * length);
    put_input(r, PL_ROLE_OFFSETS, rows + 1);
    put_input(r, PL_ROLE_TARGET_ROWS, list_targets(r, length, false));
    const uint64_t targets = list_targets(r, length, true);
    put_input(r, PL_ROLE_TARGETS, targets);
    const struct pl_batch batch = {.contributors = 1,
                                   .n_tokens = n,
                                   .n_seqs = rows,
                                   .n_targets = targets,
                                   .max_len = length,
                                   .first = true,
                                   .loss_scale = 1.0f / (float)targets,
                                   .seed = 1,
                                   .step = 1,
                                   .learning_rate = 1e-5,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .epsilon = 1e-8};
    struct pl_diag d = {0};
    must(pl_exec_describe(&r->exec, &batch, &d), &d);
}

/* --- costs ----------------------------------------------------------------------------------- */

static struct cost *cost_of(struct costs *c, const struct rig *r, uint32_t op) {
    const struct pl_op *o = &r->planned.program->ops[op];
    const struct pl_call *call = &r->exec.calls[op];
    const struct pl_view *result = o->n_out ? &call->out[0] : &call->in[0];
    const struct cost key = {.kind = o->kind,
                             .dtype = call->in[0].dtype,
                             .rows = result->rows,
                             .cols = result->cols,
                             .inner = call->in[0].cols,
                             .op = op};
    for (int i = 0; i < c->n; i++)
        if (c->rows[i].kind == key.kind && c->rows[i].dtype == key.dtype &&
            c->rows[i].rows == key.rows && c->rows[i].cols == key.cols &&
            c->rows[i].inner == key.inner)
            return &c->rows[i];
    if (c->n == (int)(sizeof c->rows / sizeof *c->rows)) {
        fprintf(stderr, "more than %d kinds of ops\n", c->n);
        exit(1);
    }
    c->rows[c->n] = key;
    return &c->rows[c->n++];
}

uint32_t rig_together(const struct rig *r, uint32_t first, uint32_t end) {
    const struct pl_op *op = &r->planned.program->ops[first];
    if (!r->device->groups || !r->device->groups[op->kind]) return 1;
    return pl_program_together(r->planned.program, first, end);
}

static struct pl_work work_of(const struct rig *r, uint32_t op) {
    const struct pl_program *p = r->planned.program;
    const struct pl_load full = pl_load_full(p);
    return pl_op_work(p, &p->ops[op], &full);
}

static void add_op(struct costs *c, const struct rig *r, uint32_t op, int round, double seconds) {
    struct cost *cost = cost_of(c, r, op);
    cost->seconds[round] += seconds;
    if (round > 0) return;
    const struct pl_work work = work_of(r, op);
    cost->flops += work.flops;
    cost->bytes += work.bytes;
    cost->calls++;
}

void costs_add(struct costs *c, const struct rig *r, uint32_t first, uint32_t n, int round,
               double seconds) {
    double bytes = 0;
    if (round < 0) return;
    for (uint32_t i = first; i < first + n; i++)
        bytes += work_of(r, i).bytes;
    for (uint32_t i = first; i < first + n; i++)
        add_op(c, r, i, round, n == 1 ? seconds : seconds * work_of(r, i).bytes / bytes);
}

static int dearest_first(const void *a, const void *b) {
    double x = ((const struct cost *)a)->middle, y = ((const struct cost *)b)->middle;
    return (x < y) - (x > y);
}

void costs_finish(struct costs *c) {
    for (int i = 0; i < c->n; i++)
        c->total += c->rows[i].middle = median(c->rows[i].seconds, RIG_ROUNDS);
    qsort(c->rows, (size_t)c->n, sizeof *c->rows, dearest_first);
}
