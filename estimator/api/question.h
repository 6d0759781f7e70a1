/* question.h - from a job and a card to an estimate: the steps that the command line and the
 * library both take.
 *
 * In: struct pl_job, the name of a GPU or none.  Out: struct pl_question, ready for
 * pl_estimate_init.  Needs: config, model, card, autobatch.
 *   Q1  with a GPU named the plan is the one of the CUDA back-end on that GPU, and the budget is
 *       what a process can get of it, less margin, context and its doubt: never the nameplate
 *   Q2  without one the plan is the CPU back-end's, and only vram_budget makes a budget; under
 *       `device: cuda` it is the plan of the oldest GPU the kernels run on
 *   Q3  vram_budget wins over the size of the GPU, not over its context
 *   Q4  whether an architecture fits that cannot be computed here, nobody can tell: an answer
 *       (`unknown`), and no permission; only where such a model is to be used is its file bad
 * Use: struct pl_question q = {0}; ...fill q.job...
 *      pl_question_aim(&q, "RTX 4090", &d); pl_question_read_model(&q, &d);
 *      pl_question_choose_batch(&q, &d); pl_question_answer(&q, &estimate, &d);
 *      pl_estimate_finish(&estimate); pl_question_finish(&q); */
#ifndef PL_ESTIMATOR_API_QUESTION_H
#define PL_ESTIMATOR_API_QUESTION_H

#include "estimator/card/cards.h"
#include "estimator/config/job.h"
#include "estimator/gate/estimate.h"
#include "estimator/model/resolve.h"

struct pl_question {
    struct pl_job job;
    struct pl_model model;
    struct pl_traits traits;
    struct pl_budget budget;
    const struct pl_card *card; /* NULL: no GPU was named */
    struct pl_text notes;       /* one a line */
    uint32_t batch_size;        /* what the plan is for */
    uint32_t recommended;       /* the largest that fits; 0: none, or no budget */
    struct pl_planned made;     /* on the way to batch_size, for whoever plans next */
};

/* Traits and budget from q->job and `gpu` (NULL: none). USAGE: no card is called so. */
pl_err pl_question_aim(struct pl_question *q, const char *gpu, struct pl_diag *d);
/* The half of it that follows from vram_budget and vram_margin. */
void pl_question_limit(struct pl_question *q);
/* What `given`, a path or a name in the job, stands for. notes may be NULL. */
pl_err pl_question_resolve(const struct pl_job *job, const char *given, struct pl_text *notes,
                           struct pl_model_ref *out, struct pl_diag *d);
/* The config.json that the job is about: `model`, else `model_config`, from the directory of the
 * job's file, the hub cache or the catalogue. USAGE: it names none. notes may be NULL. */
pl_err pl_question_find_model(const struct pl_job *job, struct pl_text *notes,
                              struct pl_model_ref *out, struct pl_diag *d);
/* `--mode inference`, which is no mode of a job: to generate with the weights, and with adapters
 * where one is named. After all keys are set. */
void pl_question_set_inference(struct pl_job *job);
pl_err pl_question_read_model(struct pl_question *q, struct pl_diag *d);
/* Level and chunk into the job (autolevel.h); then the batch that goes with them too. */
pl_err pl_question_choose_layout(struct pl_question *q, struct pl_diag *d);
pl_err pl_question_choose_batch(struct pl_question *q, struct pl_diag *d);
/* The plan at q->batch_size. */
pl_err pl_question_plan(struct pl_question *q, struct pl_planned *out, struct pl_diag *d);
/* The same with a verdict; q->notes get what the tier table says. *e borrows from *q. */
pl_err pl_question_answer(struct pl_question *q, struct pl_estimate *e, struct pl_diag *d);
/* Q4: 3 for PL_ERR_MODEL_UNSUPPORTED, else that of the table. */
int pl_question_exit_status(pl_err err);
void pl_question_finish(struct pl_question *q); /* leaves {0} */

#endif
