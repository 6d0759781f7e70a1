/* ask.h - questions in one expression. */
#ifndef PL_TESTS_SUPPORT_ASK_H
#define PL_TESTS_SUPPORT_ASK_H

#include "estimator/search/question.h"

static inline struct pl_question pl_test_question(const struct pl_job *job,
                                                  const struct pl_model *m,
                                                  const struct pl_traits *traits,
                                                  const struct pl_budget *budget, uint32_t batch) {
    struct pl_question q = pl_question_of(job, m, traits, budget);
    if (batch) q.batch_size = batch;
    return q;
}

/* Returns a pointer to a question that lives as long as the block; batch 0: the job's own. */
#define PL_ASK(job, m, traits, budget, batch)                                                      \
    ((struct pl_question[]){pl_test_question(job, m, traits, budget, batch)})

#endif
