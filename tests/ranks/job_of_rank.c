#include "tests/ranks/job_of_rank.h"

#include "estimator/config/job_text.h"
#include "tests/support/scratch.h"

#include <check.h>

void job_of_rank_open(struct job_of_rank *p, const char *dir, uint32_t ranks, uint32_t rank) {
    struct pl_text notes = {0};
    struct pl_diag d = {0};
    const struct pl_traits traits = pl_traits_cpu(1);
    const char *const devices = textf("devices=%u", ranks);
    pl_err err = pl_job_read(&p->job, textf("%s/run.yaml", dir), &devices, 1, &notes, &d);
    if (err == PL_ERR_OK) err = pl_find_config(&p->job, &notes, &p->ref, &d);
    if (err == PL_ERR_OK) err = pl_model_read(p->ref.config, &p->model, &d);
    ck_assert_msg(err == PL_ERR_OK, "%s", d.message);
    struct pl_question q = pl_question_of(&p->job, &p->model, &traits, NULL);
    q.rank = rank;
    ck_assert_int_eq(pl_question_plan(&q, NULL, &p->held, &d), PL_ERR_OK);
    pl_text_finish(&notes);
}

void job_of_rank_close(struct job_of_rank *p) {
    pl_planned_finish(&p->held);
    pl_model_ref_finish(&p->ref);
    pl_job_finish(&p->job);
}
