/* job_of_rank.h - the job of a directory, planned as one of its ranks plans it. Failures end the
 * test.
 *
 * Use: struct job_of_rank p; job_of_rank_open(&p, dir, 2, rank);
 *      ... p.held.program ... job_of_rank_close(&p); */
#ifndef PL_TESTS_RANKS_JOB_OF_RANK_H
#define PL_TESTS_RANKS_JOB_OF_RANK_H

#include "estimator/find/find.h"
#include "estimator/search/question.h"

struct job_of_rank {
    struct pl_job job;
    struct pl_model model;
    struct pl_model_ref ref;
    struct pl_planned held;
};

/* Opens dir/run.yaml, with `devices` and the rank set. */
void job_of_rank_open(struct job_of_rank *p, const char *dir, uint32_t ranks, uint32_t rank);
void job_of_rank_close(struct job_of_rank *p);

#endif
