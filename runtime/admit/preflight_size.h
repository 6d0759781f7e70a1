/* preflight_size.h - the stage of the size: the plan of a job, and whether it fits; private to the
 * room. */
#ifndef PL_RUNTIME_ADMIT_PREFLIGHT_SIZE_H
#define PL_RUNTIME_ADMIT_PREFLIGHT_SIZE_H

#include "estimator/base/diag.h"

struct pl_planned;
struct pl_preflight;
struct pl_program;
struct pl_question;
struct pl_spec;
struct pl_text;

/* Makes the plan and the verdict where batch_size is given; under `auto` those of one sample. */
pl_err pl_preflight_size(struct pl_preflight *pf, struct pl_diag *d);
/* Makes the plan of pf->q and its verdict, from pf->search.planned where that is the plan. */
pl_err pl_preflight_plan(struct pl_preflight *pf, struct pl_diag *d);
/* Returns the plan that runs, or, before the data of a job with `batch_size: auto`, that of one
 * sample. */
const struct pl_planned *pl_preflight_planned(const struct pl_preflight *pf);
/* Decides what follows from the rows: the micro-batch of `auto`, steps. */
pl_err pl_preflight_settle(struct pl_preflight *pf, struct pl_diag *d);
/* Decides `sharding: auto` of a specification, with the other ranks; last: the question about its
 * last rank. */
pl_err pl_preflight_shard(struct pl_preflight *pf, struct pl_spec *spec,
                          const struct pl_question *last, struct pl_text *notes, struct pl_diag *d);
/* Takes over the decisions of a question, also one about the last rank, as those of the run. */
void pl_preflight_take_decided(struct pl_preflight *pf, const struct pl_question *q);
/* Records what the program was built with as facts. */
void pl_preflight_take_built(struct pl_spec *spec, const struct pl_program *p);

#endif
