/* bench_predicted.c - the work of a step on a GPU, by its plan: no GPU is needed. It prints a row
 * of a Markdown table for each job, and of a second one for each job with adapters.
 *
 * Usage: bench_predicted
 * launches: groups of ops that start as one, and the copies that products make of inputs of another
 * type, in a step of one micro-batch. a layer: those of a middle layer in one micro-batch. moved:
 * the bytes of the operands of all ops, without scratch. seconds: the roofline of
 * estimator/program/cost.h, with copies to and from host memory on a stream of their own. adapters:
 * the part of the seconds of ops that read or write adapters, or what comes out of them, without
 * updates. exposed: the part of the seconds of copies that no other op hides.
 *
 * The second table divides the part of adapters by what their ops compute. floor: the part that
 * reading x for x A, dy for dB and x for dA takes, once each and without starts. */
#include "estimator/config/job_text.h"
#include "estimator/inquiry/inquiry.h"
#include "estimator/ops/scratch/workspace_cuda.h"
#include "estimator/plan/step_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KEYS = 8 };

static const struct job {
    const char *name, *model, *gpu;
    const char *keys[MOST_KEYS][2];
} jobs[] = {
    {"7B full",
     "Qwen/Qwen2.5-7B",
     "H100",
     {{"mode", "full"}, {"batch_size", "4"}, {"gradient_checkpointing", "full"}}},
    {"8B LoRA",
     "meta-llama/Llama-3.1-8B",
     "H100",
     {{"mode", "lora"}, {"batch_size", "2"}, {"gradient_checkpointing", "none"}}},
    {"8B LoRA",
     "meta-llama/Llama-3.1-8B",
     "RTX 4090",
     {{"mode", "lora"}, {"batch_size", "2"}, {"gradient_checkpointing", "full"}}},
    {"8B QLoRA",
     "meta-llama/Llama-3.1-8B",
     "H100",
     {{"mode", "qlora"}, {"batch_size", "2"}, {"gradient_checkpointing", "none"}}},
    {"8B QLoRA",
     "meta-llama/Llama-3.1-8B",
     "RTX 4090",
     {{"mode", "qlora"}, {"batch_size", "2"}, {"gradient_checkpointing", "full"}}},
    {"8B QLoRA, dropout",
     "meta-llama/Llama-3.1-8B",
     "RTX 4090",
     {{"mode", "qlora"},
      {"batch_size", "2"},
      {"gradient_checkpointing", "full"},
      {"lora_dropout", "0.05"}}},
    {"8B QLoRA",
     "meta-llama/Llama-3.1-8B",
     "T4",
     {{"mode", "qlora"}, {"batch_size", "1"}, {"gradient_checkpointing", "full"}}},
    {"7B full, offload",
     "Qwen/Qwen2.5-7B",
     "RTX 5090",
     {{"mode", "full"},
      {"batch_size", "4"},
      {"offload", "weights"},
      {"gradient_checkpointing", "full"}}},
};

static void must(pl_err err, const struct pl_diag *d) {
    if (err == PL_ERR_OK) return;
    fprintf(stderr, "error[%s]: %s\n", pl_err_code(err), d->message);
    exit(1);
}

/* The products of an adapter, for y = W x + s B A x, and the rest. X(NAME, title) */
#define WORK_MAP(X)                                                                                \
    X(XA, "x A")                                                                                   \
    X(Y, "y")                                                                                      \
    X(DYB, "dy B")                                                                                 \
    X(DB, "dB")                                                                                    \
    X(DA, "dA")                                                                                    \
    X(DX, "dx")                                                                                    \
    X(REST, "copies, dropout")
enum work {
#define X(NAME, title) WORK_##NAME,
    WORK_MAP(X)
#undef X
        WORKS
};
static const char *const work_titles[WORKS] = {
#define X(NAME, title) title,
    WORK_MAP(X)
#undef X
};

struct totals {
    double launches, in_layer, bytes, flops, seconds_of[WORKS], floor_bytes;
};

static bool is_product(const struct pl_op *op) {
    return pl_op_rows[op->kind].cost == PL_COST_PRODUCT;
}

/* The copies that a product makes of inputs that are not multiplied as they are stored. */
static int narrowed(const struct pl_program *p, const struct pl_op *op) {
    const struct pl_operand *const of[] = {&op->in[0], &op->in[1], &op->out[0]};
    struct pl_product_matrix m[3] = {{0}};
    if (!is_product(op)) return 0;
    for (int i = 0; i < 3; i++)
        m[i].dtype = p->tensors[of[i]->id].dtype;
    return pl_ws_cuda_narrows(m, 0) + pl_ws_cuda_narrows(m, 1);
}

static bool is_of_adapter(const struct pl_program *p, const struct pl_operand *o) {
    if (o->id == PL_NONE) return false;
    const struct pl_tensor *t = &p->tensors[o->id];
    return strstr(t->name, "lora") || strstr(t->name, "dropped") ||
           (t->of != PL_NONE && strstr(p->tensors[t->of].name, "lora"));
}

static bool has_adapter(const struct pl_program *p, const struct pl_op *op) {
    if (pl_op_rows[op->kind].cost == PL_COST_UPDATE) return false;
    for (int i = 0; i < op->n_in; i++)
        if (is_of_adapter(p, &op->in[i])) return true;
    for (int i = 0; i < op->n_out; i++)
        if (is_of_adapter(p, &op->out[i])) return true;
    return false;
}

static bool is_matrix(const struct pl_program *p, const struct pl_operand *o, const char *name) {
    return strncmp(p->tensors[o->id].name, name, strlen(name)) == 0;
}

static enum work work_of(const struct pl_program *p, const struct pl_op *op) {
    switch (op->kind) {
    case PL_OP_LINEAR:
        return is_matrix(p, &op->in[PL_LINEAR_W], "lora_a") ? WORK_XA : WORK_Y;
    case PL_OP_LINEAR_DX:
        return is_matrix(p, &op->in[PL_LINEAR_DX_W], "lora_a") ? WORK_DX : WORK_DYB;
    case PL_OP_LINEAR_DW:
        return is_matrix(p, &op->in[PL_LINEAR_DW_X], "lora_a_out") ? WORK_DB : WORK_DA;
    default:
        return WORK_REST;
    }
}

/* Returns the bytes of the operand that the floor counts: x of x A and dA, dy of dB. */
static double floor_bytes(const struct pl_program *p, const struct pl_op *op, enum work work) {
    if (work != WORK_XA && work != WORK_DB && work != WORK_DA) return 0;
    const struct pl_operand *o = &op->in[work == WORK_DA ? PL_LINEAR_DW_X : 0];
    const struct pl_tensor *t = &p->tensors[o->id];
    return (double)(o->nrows ? o->nrows : t->dims[0]) * (double)(o->cols ? o->cols : t->dims[1]) *
           (double)pl_dtype_bytes(t->dtype);
}

static void add_op(const struct pl_program *p, uint32_t i, const struct pl_speed *speed,
                   struct totals *t) {
    const struct pl_load load = pl_load_full(p);
    const struct pl_op *op = &p->ops[i];
    const double runs = pl_op_runs(p, op, 1);
    const struct pl_work work = pl_op_work(p, op, &load);
    t->bytes += runs * work.bytes;
    t->flops += runs * work.flops;
    if (!has_adapter(p, op)) return;
    const enum work computes = work_of(p, op);
    t->seconds_of[computes] += runs * pl_op_seconds(p, op, speed, &load);
    t->floor_bytes += runs * floor_bytes(p, op, computes);
}

static void count(const struct pl_program *p, const struct pl_speed *speed, struct totals *t) {
    const uint32_t middle = (uint32_t)p->model->layers / 2;
    for (uint32_t i = 0, n; i < p->n_ops; i += n) {
        const struct pl_op *op = &p->ops[i];
        const struct pl_phase_range *phase = &p->phases[op->phase];
        n = pl_program_together(p, i, phase->first_op + phase->n_ops);
        if (pl_op_runs(p, op, 1) <= 0) continue;
        for (uint32_t k = i; k < i + n; k++)
            add_op(p, k, speed, t);
        const double launches = 1 + narrowed(p, op);
        t->launches += launches;
        if (op->phase == PL_PHASE_MICRO && op->layer == middle) t->in_layer += launches;
    }
}

static const char *level_of(const struct job *job) {
    const char *level = "";
    for (int k = 0; k < MOST_KEYS && job->keys[k][0]; k++)
        if (strcmp(job->keys[k][0], "gradient_checkpointing") == 0) level = job->keys[k][1];
    return level;
}

static double adapter_seconds(const struct totals *t) {
    double sum = 0;
    for (int w = 0; w < WORKS; w++)
        sum += t->seconds_of[w];
    return sum;
}

static void print_name(const struct job *job, const struct pl_program *p) {
    printf("| %s, %llu x %llu, %s | %s | ", job->name, (unsigned long long)p->shape.batch_size,
           (unsigned long long)p->shape.max_seq_length, level_of(job), job->gpu);
}

static void print_row(const struct job *job, const struct pl_program *p, const struct totals *t,
                      const struct pl_step_time *time) {
    const double copies = time->copy_seconds, adapters = adapter_seconds(t);
    print_name(job, p);
    printf("%.0f | %.0f | %.0f | %.0f | %.3f | ", t->launches, t->in_layer, t->bytes / 1e9,
           t->flops / 1e12, time->overlapped_seconds);
    if (adapters > 0)
        printf("%.1f %% | ", 100 * adapters / time->overlapped_seconds);
    else
        printf("- | ");
    if (copies > 0)
        printf("%.0f %% of %.2f s |\n",
               100 * (1 - (pl_step_in_order(time) - time->overlapped_seconds) / copies), copies);
    else
        printf("- |\n");
}

static void print_works(const struct job *job, const struct pl_program *p, const struct totals *t,
                        const struct pl_step_time *time, const struct pl_speed *speed) {
    if (adapter_seconds(t) <= 0) return;
    print_name(job, p);
    for (int w = 0; w < WORKS; w++)
        printf("%.1f %% | ", 100 * t->seconds_of[w] / time->overlapped_seconds);
    printf("%.1f %% |\n",
           100 * t->floor_bytes / speed->bytes_per_second / time->overlapped_seconds);
}

static void print(const struct job *job, const struct pl_inquiry *q, const struct pl_plan *plan,
                  bool works) {
    const struct pl_program *p = plan->program;
    const struct pl_speed speed = pl_speed_nominal(&q->q.traits);
    struct pl_step_time time;
    struct pl_diag d = {0};
    struct totals t = {0};
    count(p, &speed, &t);
    must(pl_plan_step_time(plan, &speed, NULL, 1, &time, &d), &d);
    if (works)
        print_works(job, p, &t, &time, &speed);
    else
        print_row(job, p, &t, &time);
}

static void ask(const struct job *job, bool works) {
    struct pl_inquiry i = {0};
    struct pl_planned planned = {0};
    struct pl_diag d = {0};
    must(pl_job_defaults(&i.job, &d), &d);
    must(pl_job_set(&i.job, "model", job->model, &d), &d);
    must(pl_job_set(&i.job, "max_seq_length", "2048", &d), &d);
    for (int k = 0; k < MOST_KEYS && job->keys[k][0]; k++)
        must(pl_job_set(&i.job, job->keys[k][0], job->keys[k][1], &d), &d);
    must(pl_inquiry_aim(&i, job->gpu, &d), &d);
    must(pl_inquiry_read_model(&i, &d), &d);
    must(pl_inquiry_decide(&i, &d), &d);
    must(pl_question_plan(&i.q, &i.search.planned, &planned, &d), &d);
    print(job, &i, planned.plan, works);
    pl_planned_finish(&planned);
    pl_inquiry_finish(&i);
}

int main(void) {
    printf("| job | GPU | launches | a layer | GB moved | TFLOP | seconds | adapters | exposed |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        ask(&jobs[i], false);
    printf("\n| job | GPU |");
    for (int w = 0; w < WORKS; w++)
        printf(" %s |", work_titles[w]);
    printf(" floor |\n| --- | --- |");
    for (int w = 0; w < WORKS; w++)
        printf(" --- |");
    printf(" --- |\n");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        ask(&jobs[i], true);
    return 0;
}
