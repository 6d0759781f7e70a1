/* question.c - from a question to its plan. */
#include "estimator/search/question.h"

#include "estimator/config/job_values.h"
#include "estimator/model/families.h"
#include "estimator/program/resize.h"

#include <string.h>

void pl_question_open(struct pl_question *q, const struct pl_job *job, const struct pl_model *m) {
    q->job = job;
    q->model = m;
    q->batch_size = pl_job_smallest_batch(job);
    q->recommended = 0;
    q->recommended_level = PL_RECOMPUTE_AUTO;
    q->decided = PL_CHOICES_OPEN;
}

struct pl_question pl_question_of(const struct pl_job *job, const struct pl_model *m,
                                  const struct pl_traits *traits, const struct pl_budget *budget) {
    struct pl_question q = {.traits = *traits};
    if (budget) q.budget = *budget;
    pl_question_open(&q, job, m);
    return q;
}

struct pl_question pl_question_of_last(const struct pl_question *q) {
    struct pl_question last = *q;
    last.rank = pl_job_ranks(q->job) - 1;
    return last;
}

enum pl_dtype pl_question_dtype(const struct pl_question *q) {
    return pl_job_dtype(q->job, q->model, &q->traits);
}

bool pl_question_multiplies_in_bf16(const struct pl_question *q) {
    return pl_question_dtype(q) == PL_DTYPE_BF16 && q->job->compute_dtype != PL_DTYPE_F32;
}

void pl_question_note_dtype(const struct pl_question *q, struct pl_text *notes) {
    const enum pl_dtype dtype = pl_question_dtype(q);
    if (q->job->dtype != PL_DTYPE_AUTO || dtype == PL_DTYPE_BF16 || !pl_traits_run(&q->traits))
        return;
    pl_text_addf(notes, "dtype: auto is %s: compute capability %u.%u has no bf16",
                 pl_dtype_name(dtype), q->traits.sm / 10, q->traits.sm % 10);
    if (dtype == PL_DTYPE_F32)
        pl_text_addf(notes, ", and activations of %s exceed fp16",
                     pl_family_get(q->model->family)->name);
    pl_text_add(notes, "\n");
}

bool pl_question_has_kernels(const struct pl_question *q) {
    return pl_job_without_kernels(q->job, q->model, &q->traits) == PL_KEY_COUNT;
}

uint32_t pl_question_level(const struct pl_question *q) {
    const uint32_t own = q->job->gradient_checkpointing;
    return own == PL_RECOMPUTE_AUTO ? q->decided.gradient_checkpointing : own;
}

bool pl_question_has_unwritten_level(const struct pl_question *q) {
    return q->job->gradient_checkpointing == PL_RECOMPUTE_AUTO &&
           !q->job->given[PL_KEY_gradient_checkpointing];
}

uint32_t pl_question_in_backward(const struct pl_question *q) {
    const uint32_t own = q->job->optimizer_in_backward;
    return own == PL_TRI_AUTO ? q->decided.optimizer_in_backward : own;
}

/* A step that may become one micro-batch where it would not fit otherwise. */
static bool may_be_one(const struct pl_job *job) {
    return pl_job_has_open_step(job) && pl_job_least_samples(job) == 1;
}

bool pl_question_may_let_go(const struct pl_question *q) {
    const struct pl_job *job = q->job;
    const bool one = !pl_job_may_cut_step(job) && pl_job_accumulation(job, q->batch_size) <= 1;
    return job->mode == PL_MODE_FULL && !job->inference && (one || may_be_one(job)) &&
           pl_job_offload(job) == PL_OFFLOAD_NONE && !pl_job_is_of_ranks(job) &&
           !pl_job_prefers(job);
}

/* True if updates in the backward pass were decided. */
static bool lets_go(const struct pl_question *q) {
    return q->job->optimizer_in_backward == PL_TRI_AUTO &&
           q->decided.optimizer_in_backward == PL_TRI_TRUE && pl_question_may_let_go(q);
}

uint32_t pl_question_accumulation(const struct pl_question *q) {
    return lets_go(q) ? 1 : pl_job_accumulation(q->job, q->batch_size);
}

uint32_t pl_question_mlp_chunk(const struct pl_question *q) {
    const uint32_t own = q->job->mlp_chunk_tokens;
    uint32_t chunk = q->decided.mlp_chunk_tokens;
    if (own != PL_AUTO) return own;
    if (!chunk || chunk == PL_AUTO) return chunk;
    while ((uint64_t)q->batch_size * q->job->max_seq_length / chunk > PL_CHUNKS_OF_AUTO)
        chunk *= 2;
    return chunk;
}

uint64_t pl_question_unpack(const struct pl_question *q) {
    const uint64_t own = q->job->unpack_buffer;
    const uint64_t tokens = (uint64_t)q->batch_size * q->job->max_seq_length;
    if (own != PL_AUTO_BYTES) return own;
    return tokens > PL_UNPACK_TOKENS ? PL_AUTO_BYTES : q->decided.unpack_buffer;
}

uint32_t pl_question_keeps(const struct pl_question *q) {
    const uint32_t own = q->job->keep_first_pass;
    return own == PL_TRI_AUTO ? q->decided.keep_first_pass : own;
}

uint32_t pl_question_keeps_unpacked(const struct pl_question *q) {
    const uint32_t own = q->job->keep_unpacked;
    return own == PL_TRI_AUTO ? (uint32_t)q->decided.keep_unpacked : own;
}

/* Tokens in so many chunks. */
static uint64_t most_tokens(uint64_t chunk, uint64_t chunks) {
    if (!chunk || chunk == PL_AUTO) return INT32_MAX;
    return pl_u64_min(INT32_MAX, chunk * (chunks + 1) - 1);
}

uint64_t pl_question_most_tokens(const struct pl_question *q) {
    if (q->job->inference) return INT32_MAX;
    return pl_u64_min(most_tokens(q->job->loss_chunk_tokens, PL_CHUNKS_MAX),
                      most_tokens(q->job->mlp_chunk_tokens, PL_MLP_CHUNKS_MAX));
}

uint32_t pl_question_most_samples(const struct pl_question *q) {
    return (uint32_t)pl_u64_max(1, pl_question_most_tokens(q) / q->job->max_seq_length);
}

/* Updates in the backward pass that were decided for another micro-batch are none. */
static uint32_t settled_in_backward(const struct pl_question *q) {
    const uint32_t own = q->job->optimizer_in_backward;
    if (own != PL_TRI_AUTO || q->decided.optimizer_in_backward != PL_TRI_TRUE)
        return pl_question_in_backward(q);
    return lets_go(q) ? PL_TRI_TRUE : PL_TRI_FALSE;
}

struct pl_decided pl_question_decided(const struct pl_question *q) {
    return (struct pl_decided){
        .are = true,
        .one_micro_batch = lets_go(q) && may_be_one(q->job),
        .batch_size = q->batch_size,
        .choices = {.gradient_checkpointing = pl_question_level(q),
                    .optimizer_in_backward = settled_in_backward(q),
                    .mlp_chunk_tokens = pl_question_mlp_chunk(q),
                    .unpack_buffer = pl_question_unpack(q),
                    .keep_first_pass = pl_question_keeps(q),
                    .keep_unpacked = pl_question_keeps_unpacked(q)},
        .dtype = pl_question_dtype(q),
    };
}

void pl_question_settle(const struct pl_question *q, struct pl_job *job) {
    const struct pl_decided decided = pl_question_decided(q);
    pl_job_settle(job, &decided);
}

pl_err pl_question_shape(const struct pl_question *q, struct pl_job_shape *out, struct pl_diag *d) {
    const struct pl_decided decided = pl_question_decided(q);
    struct pl_job job = *q->job; /* strings and lists stay borrowed */
    pl_job_settle_choices(&job, &decided);
    PL_TRY(pl_job_shape_init(&job, q->model, &q->traits, q->batch_size, out, d));
    out->rank = out->ranks > 1 ? q->rank : 0;
    return PL_ERR_OK;
}

static bool same_traits(const struct pl_traits *a, const struct pl_traits *b) {
    return a->backend == b->backend && a->align_bytes == b->align_bytes &&
           a->threads == b->threads && a->sm == b->sm && a->pinned_bytes == b->pinned_bytes;
}

/* pl_job_shape_init leaves no byte of a shape to chance; one that differed without meaning would
 * cost a plan and change nothing. */
static bool answers(const struct pl_planned *made, const struct pl_job_shape *shape,
                    const struct pl_question *q) {
    const struct pl_program *p = made->program;
    return p && p->model == q->model && memcmp(&p->shape, shape, sizeof *shape) == 0 &&
           same_traits(&p->traits, &q->traits);
}

bool pl_question_has_plan(const struct pl_question *q, const struct pl_planned *made, bool brief) {
    struct pl_job_shape shape;
    return made->plan && !made->is_stale && !made->plan->limit &&
           pl_question_shape(q, &shape, NULL) == PL_ERR_OK && answers(made, &shape, q) &&
           (brief || !made->program->shortened);
}

/* The program of the shape: the one that is held, that one resized, or none. */
static void become(struct pl_planned *held, const struct pl_job_shape *shape,
                   const struct pl_question *q) {
    struct pl_program *p = held->program;
    if (answers(held, shape, q)) return;
    if (p && p->model == q->model && same_traits(&p->traits, &q->traits) &&
        pl_program_resize(p, shape))
        held->is_stale = true;
    else
        pl_planned_finish(held);
}

/* The plan of the program that is held. */
static pl_err renew(struct pl_planned *held, uint64_t limit, struct pl_diag *d) {
    pl_err err = PL_ERR_OK;
    if (!held->plan)
        err = pl_plan_create_within(held->program, limit, &held->plan, d);
    else if (held->is_stale || (held->plan->limit && held->plan->limit != limit))
        err = pl_plan_again(held->plan, limit, d);
    held->is_stale = false;
    if (err != PL_ERR_OK) pl_planned_finish(held);
    return err;
}

pl_err pl_question_sketch(const struct pl_question *q, struct pl_planned *held, struct pl_diag *d) {
    struct pl_job_shape shape;
    pl_err err = pl_question_shape(q, &shape, d);
    if (err == PL_ERR_OK) become(held, &shape, q);
    if (err == PL_ERR_OK && !held->program)
        err = pl_program_create_brief(q->model, &shape, &q->traits, &held->program, d);
    if (err != PL_ERR_OK) pl_planned_finish(held);
    return err;
}

pl_err pl_question_measure(const struct pl_question *q, struct pl_planned *held,
                           struct pl_diag *d) {
    return pl_question_measure_within(q, 0, held, d);
}

pl_err pl_question_measure_within(const struct pl_question *q, uint64_t limit,
                                  struct pl_planned *held, struct pl_diag *d) {
    PL_TRY(pl_question_sketch(q, held, d));
    return renew(held, limit, d);
}

pl_err pl_question_fits(const struct pl_question *q, uint64_t limit, struct pl_planned *held,
                        bool *out, struct pl_diag *d) {
    PL_TRY(pl_question_measure_within(q, limit, held, d));
    *out = held->plan->arena_bytes <= pl_budget_usable(&q->budget);
    return PL_ERR_OK;
}

pl_err pl_question_plan(const struct pl_question *q, struct pl_planned *made,
                        struct pl_planned *out, struct pl_diag *d) {
    struct pl_job_shape shape;
    struct pl_planned ready = made ? *made : (struct pl_planned){0};
    if (made) *made = (struct pl_planned){0};
    *out = (struct pl_planned){0};
    pl_err err = pl_question_shape(q, &shape, d);
    if (err == PL_ERR_OK && ready.program && !ready.program->shortened)
        become(&ready, &shape, q);
    else
        pl_planned_finish(&ready);
    if (err == PL_ERR_OK && !ready.program)
        return pl_planned_init_shape(out, &shape, q->model, &q->traits, d);
    if (err == PL_ERR_OK) err = renew(&ready, 0, d);
    if (err != PL_ERR_OK) pl_planned_finish(&ready);
    *out = ready;
    return err;
}

void pl_variant_of(struct pl_variant *v, const struct pl_question *q) {
    v->job = *q->job;
    v->q = *q;
    v->q.job = &v->job;
}

void pl_variant_sized(struct pl_variant *v, const struct pl_question *q, uint32_t batch_size,
                      uint32_t length) {
    pl_variant_of(v, q);
    v->q.batch_size = batch_size;
    v->job.max_seq_length = length;
}

void pl_variant_smallest_level(struct pl_variant *v) {
    if (pl_question_has_unwritten_level(&v->q)) v->job.gradient_checkpointing = PL_RECOMPUTE_FULL;
}

void pl_variant_on_gpu(struct pl_variant *v, const struct pl_question *q, uint32_t sm) {
    pl_variant_of(v, q);
    v->job.base_dtype = PL_DTYPE_AUTO;
    v->q.traits = pl_traits_cuda(sm);
}

void pl_variant_open(struct pl_variant *v, const struct pl_question *q, const struct pl_job *job) {
    struct pl_question open = *q;
    pl_question_open(&open, job, q->model);
    pl_variant_of(v, &open);
}
