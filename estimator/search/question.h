/* question.h - what is asked: a job on a model, a back-end and a budget, and, apart from the job,
 * what was decided of the keys that it leaves open. Trainer, library, gate, auto-batch and advice
 * all ask with this struct.
 *
 * In: job, model, traits, budget.  Out: the plan of the question.
 * Needs: config, model, card, program, plan. No I/O.
 *   Q1  the job stays as it was written; a change is made to a copy (struct pl_variant)
 *   Q2  a decision counts only where the job leaves its key open (`auto`), so a change of the
 *       copy's key wins over it
 * Use: struct pl_question q = pl_question_of(&job, &model, &traits, &budget);
 *      pl_decide(&q, PL_BATCH_LIMIT, &search, &notes, &d);      (autobatch/decide.h)
 *      pl_question_plan(&q, &search.planned, &planned, &d);
 *      struct pl_variant v; pl_variant_of(&v, &q); v.job.lora_r /= 2;
 *      pl_question_plan(&v.q, NULL, &planned, &d); */
#ifndef PL_ESTIMATOR_SEARCH_QUESTION_H
#define PL_ESTIMATOR_SEARCH_QUESTION_H

#include "estimator/card/budget.h"
#include "estimator/config/spec.h"
#include "estimator/search/planned.h"

struct pl_question {
    const struct pl_job *job;     /* borrowed */
    const struct pl_model *model; /* borrowed */
    struct pl_traits traits;
    struct pl_budget budget;
    const char *card; /* name of the GPU that is asked about; NULL: none was named */
    uint32_t rank; /* which of the ranks of the job is planned; no other than 0 where it has one */
    /* decided */
    uint32_t batch_size;        /* what the plan is for */
    uint32_t recommended;       /* the largest that fits; 0: none, not searched, or no budget */
    uint32_t recommended_level; /* PL_RECOMPUTE_*: what it fits at; AUTO: what the plan is for */
    /* A level that is open is planned as `full`, and the other keys as `false` or 0. Chunks of the
     * MLP are larger where the micro-batch would have over PL_CHUNKS_OF_AUTO of them, and over
     * PL_UNPACK_TOKENS tokens nothing is unpacked in panels. */
    struct pl_choices decided;
};

/* Nothing is decided; the batch is the job's own, 1 where that is open. Traits, budget,
 * card and rank stay as they are. */
void pl_question_open(struct pl_question *q, const struct pl_job *job, const struct pl_model *m);
/* The same, with all of them. NULL budget: none. */
struct pl_question pl_question_of(const struct pl_job *job, const struct pl_model *m,
                                  const struct pl_traits *traits, const struct pl_budget *budget);
#define PL_CHUNKS_OF_AUTO 512
/* With more, copies of 4-bit matrices are little of the peak, and panels in every chunk of the MLP
 * would make endless programs. */
#define PL_UNPACK_TOKENS 4096
/* The same about the last rank, which has as many blocks of every tensor as any (shard.h). What is
 * open is decided for it by every rank, and where there is only one as yet: so all decide the
 * same. */
struct pl_question pl_question_of_last(const struct pl_question *q);
/* The job's own value, else what was decided; AUTO: neither. */
uint32_t pl_question_level(const struct pl_question *q);
/* True if the job leaves the level open without having written so (spec.h, names_budget). */
bool pl_question_has_unwritten_level(const struct pl_question *q);
uint32_t pl_question_in_backward(const struct pl_question *q);
/* True if `optimizer_in_backward: auto` may be `true`: a full fine-tune of one micro-batch a step,
 * on one device and with nothing offloaded. A step that no key sizes is one micro-batch then. */
bool pl_question_may_let_go(const struct pl_question *q);
enum pl_dtype pl_question_dtype(const struct pl_question *q); /* pl_job_dtype() */
/* True if products of two bf16 matrices are multiplied in bf16 where the processor can: the scratch
 * of a plan holds either way. */
bool pl_question_multiplies_in_bf16(const struct pl_question *q);
/* Adds why `dtype: auto` is not bf16, where it is not. */
void pl_question_note_dtype(const struct pl_question *q, struct pl_text *notes);
/* True if the back-end has kernels for all types of the job. */
bool pl_question_has_kernels(const struct pl_question *q);
/* Micro-batches of a step that each rank computes, at most. */
uint32_t pl_question_accumulation(const struct pl_question *q);
uint32_t pl_question_mlp_chunk(const struct pl_question *q);
uint64_t pl_question_unpack(const struct pl_question *q);
uint32_t pl_question_keeps(const struct pl_question *q);          /* PL_TRI_* of keep_first_pass */
uint32_t pl_question_keeps_unpacked(const struct pl_question *q); /* PL_TRI_* of keep_unpacked */
/* Tokens of the largest micro-batch that can be asked about: a program counts them with 31 bits,
 * and has PL_CHUNKS_MAX chunks of the job's own loss_chunk_tokens and PL_MLP_CHUNKS_MAX of its
 * mlp_chunk_tokens at most. */
uint64_t pl_question_most_tokens(const struct pl_question *q);
uint32_t pl_question_most_samples(const struct pl_question *q); /* in so many tokens; at least 1 */
/* The decisions, as values of the keys; the job's own where it has set them. */
struct pl_decided pl_question_decided(const struct pl_question *q);
/* Writes it into a job with the same open keys (spec.h). */
void pl_question_settle(const struct pl_question *q, struct pl_job *job);

pl_err pl_question_shape(const struct pl_question *q, struct pl_job_shape *out, struct pl_diag *d);
/* The plan. made (nullable): one that may be it, such as a search leaves, or become it by
 * another size; it is taken where it is, and {0} afterwards in any case. */
pl_err pl_question_plan(const struct pl_question *q, struct pl_planned *made,
                        struct pl_planned *out, struct pl_diag *d);
/* True if a plan, or {0}, is that of the question: a brief one too, or only one of a whole program.
 */
bool pl_question_has_plan(const struct pl_question *q, const struct pl_planned *made, bool brief);
/* Makes *held a brief plan (program.h), for figures alone. It is {0} or what an earlier call left,
 * of whatever question: the more alike the two are, the less it takes. {0} after an error. */
pl_err pl_question_measure(const struct pl_question *q, struct pl_planned *held, struct pl_diag *d);
/* The same as far as it takes to know whether so many bytes of arenas are enough (plan.h). */
#define PL_BOUND_ALONE                                                                             \
    1 /* a limit that no plan is within: nothing is packed, and arena_bytes is the
                          * lower bound, what is alive at most */
pl_err pl_question_measure_within(const struct pl_question *q, uint64_t limit,
                                  struct pl_planned *held, struct pl_diag *d);
/* Measures within a limit, 0 being none; *out: the arenas are within what is usable. */
pl_err pl_question_fits(const struct pl_question *q, uint64_t limit, struct pl_planned *held,
                        bool *out, struct pl_diag *d);
/* The program alone: held->plan is NULL, or of no meaning. */
pl_err pl_question_sketch(const struct pl_question *q, struct pl_planned *held, struct pl_diag *d);

/* A question with a job of its own to change. The copy is shallow: strings and lists stay the
 * user's, so only keys without memory of their own are set on it, and it is never finished. Not to
 * be copied by assignment: q.job is &job. */
struct pl_variant {
    struct pl_job job;
    struct pl_question q;
};
/* q: not v->q itself. What was decided stays decided. */
void pl_variant_of(struct pl_variant *v, const struct pl_question *q);
/* The same with samples of another number and length. */
void pl_variant_sized(struct pl_variant *v, const struct pl_question *q, uint32_t batch_size,
                      uint32_t length);
/* Sets a level that is open because no one wrote it to the smallest, `full`. Jobs are compared at
 * it, since an open one would fill each budget. */
void pl_variant_smallest_level(struct pl_variant *v);
/* The same as a GPU of a compute capability would run it. */
void pl_variant_on_gpu(struct pl_variant *v, const struct pl_question *q, uint32_t sm);
/* The question about another job, of which nothing is decided. */
void pl_variant_open(struct pl_variant *v, const struct pl_question *q, const struct pl_job *job);

#endif
