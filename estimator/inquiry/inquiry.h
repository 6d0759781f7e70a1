/* inquiry.h - from a job and a card to an estimate: the steps that the command line and the library
 * both take, and the memory of what they ask about.
 *
 * In: struct pl_job, the name of a GPU or none.  Out: a decided question (search/question.h), and
 * the answer to it.  Needs: config, find, card, autobatch, gate.
 *   Q1  with a GPU named the plan is the one of the CUDA back-end on that GPU, and the budget is
 *       what a process can get of it, less margin, context and its doubt: never the nameplate;
 *       on a GPU that the kernels are not made for nothing fits, and the bytes are those of the
 *       oldest that they are made for
 *   Q2  without one the plan is the CPU back-end's; under `device: cuda`, and where a budget is
 *       given outside the job's file and no device, it is the plan of a GPU of compute capability
 *       PL_CARD_DEFAULT_SM. A vram_budget in the job's file is of the device that would run it
 *   Q3  vram_budget wins over the size of the GPU, not over its context
 *   Q4  whether a model fits whose architecture is not computed here cannot be determined: the
 *       answer is `unknown`; only where such a model is to be used is its file an error
 * Use: struct pl_inquiry i = {0}; ...fill i.job...
 *      pl_inquiry_aim(&i, "RTX 4090", &d); pl_inquiry_read_model(&i, &d);
 *      pl_inquiry_decide(&i, &d); pl_inquiry_answer(&i, &estimate, &d);
 *      pl_estimate_finish(&estimate); pl_inquiry_finish(&i); */
#ifndef PL_ESTIMATOR_INQUIRY_INQUIRY_H
#define PL_ESTIMATOR_INQUIRY_INQUIRY_H

#include "estimator/autobatch/decide.h"
#include "estimator/card/cards.h"
#include "estimator/gate/estimate.h"

struct pl_inquiry {       /* not to be copied: q borrows job and model */
    struct pl_question q; /* about the job of `spec` */
    struct pl_job job;    /* as it was written */
    struct pl_spec spec;
    struct pl_model model;
    struct pl_text notes;       /* one a line */
    struct pl_autobatch search; /* its plan may be that of q */
};

/* True if the job is asked about on a GPU that is not named (Q2). */
bool pl_inquiry_means_gpu(const struct pl_job *job);
/* Opens the question with traits and budget from i->job and `gpu` (NULL: none). USAGE: no card is
 * called so. */
pl_err pl_inquiry_aim(struct pl_inquiry *i, const char *gpu, struct pl_diag *d);
/* The half of it for specification, traits and budget that are there: opens the question, with
 * vram_budget and vram_margin of the job. */
void pl_inquiry_open(struct pl_inquiry *i);
/* The model that the job names (find.h). */
pl_err pl_inquiry_read_model(struct pl_inquiry *i, struct pl_diag *d);
/* Level, chunk and batch (decide.h). */
pl_err pl_inquiry_decide(struct pl_inquiry *i, struct pl_diag *d);
/* The plan with a verdict. *e borrows from *i. */
pl_err pl_inquiry_answer(struct pl_inquiry *i, struct pl_estimate *e, struct pl_diag *d);
/* Q4: 3 for PL_ERR_MODEL_UNSUPPORTED, else that of the table. */
int pl_inquiry_exit_status(pl_err err);
void pl_inquiry_finish(struct pl_inquiry *i); /* leaves {0} */

#endif
