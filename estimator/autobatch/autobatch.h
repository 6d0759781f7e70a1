/* autobatch.h - the inverse question: the largest micro-batch whose plan fits, by re-planning.
 *
 * A line through two plans says where to look (secant.h); the answer was planned and fits, and so
 * was the next one, which does not. */
#ifndef PL_ESTIMATOR_AUTOBATCH_AUTOBATCH_H
#define PL_ESTIMATOR_AUTOBATCH_AUTOBATCH_H

#include "estimator/search/question.h"

struct pl_autobatch {
    uint32_t batch_size;  /* 0: not even 1 fits */
    uint64_t arena_bytes; /* at batch_size */
    uint64_t next_bytes;  /* at batch_size + 1; 0 when the limit stopped the search */
    /* The plan that is needed next: at the job's own batch_size where the limit allows that one,
     * under `auto` at batch_size, or at 1 where not even 1 fits; else the one that was handed
     * in. */
    struct pl_planned planned;
};

/* The limit if no data set or global batch sets one: the largest value of the key batch_size. */
#define PL_BATCH_LIMIT 65536
/* The largest micro-batch that a step of the job can use: as many samples as the step has, which
 * ranks and gradient_accumulation_steps divide; else PL_BATCH_LIMIT. */
uint32_t pl_autobatch_limit(const struct pl_job *job);

/* limit: largest batch worth having (rows of the data, global batch); >= 1. The question's own
 * batch_size is tried first. made (nullable): a plan that may be one of the search; it is not made
 * again, and {0} afterwards in any case. Finish *out in every case. */
pl_err pl_autobatch_solve(const struct pl_question *q, uint32_t limit, struct pl_planned *made,
                          struct pl_autobatch *out, struct pl_diag *d);
/* The figures alone: out->planned stays {0}. held: as for pl_question_measure. */
pl_err pl_autobatch_find(const struct pl_question *q, uint32_t limit, struct pl_planned *held,
                         struct pl_autobatch *out, struct pl_diag *d);
/* Bytes of one more sample, about. */
double pl_autobatch_slope(const struct pl_plan *plan, uint64_t batch);
/* Frees the plan; the figures stay. */
void pl_autobatch_finish(struct pl_autobatch *a);

#endif
