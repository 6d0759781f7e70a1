#include "runtime/admit/anew.h"

#include "estimator/autobatch/sharding.h"
#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/graphs.h"
#include "runtime/admit/preflight_size.h"
#include "runtime/admit/record.h"
#include "runtime/admit/speed.h"

/* The samples of a step stay: they are what the first micro-batch made of them. */
static struct pl_job ask_again(const struct pl_preflight *pf, uint32_t batch_size) {
    struct pl_job job = pf->asked;
    pl_job_cut_step(&job, batch_size, pf->global_batch);
    return job;
}

/* What graphs were granted is there again. */
static void bound(struct pl_budget *b, uint64_t graph_bytes, uint64_t have_bytes) {
    b->context_bytes -= graph_bytes;
    if (!b->known) return;
    const uint64_t usable = pl_budget_usable(b);
    b->total_bytes -= usable - pl_u64_min(usable, have_bytes);
}

static pl_err decide(struct pl_preflight *pf, struct pl_anew *a, struct pl_diag *d) {
    struct pl_question *q = &pf->q;
    const bool open = a->job.sharding == PL_SHARDING_AUTO;
    PL_TRY(pl_agreed_budget(pf, d));
    q->batch_size = a->job.batch_size;
    a->job.rank = pl_job_ranks(&a->job) - 1; /* as preflight_size.c has it */
    PL_TRY(pl_sharding_decide(q, &a->job.sharding, &a->notes, d));
    if (open) pf->job->sharding = a->job.sharding;
    PL_TRY(pl_agreed_sharding(pf, open, d));
    a->job.sharding = pf->job->sharding;
    PL_TRY(pl_decide_levels(q, q->batch_size, NULL, &a->notes, d));
    PL_TRY(pl_agreed_decision(pf, d));
    a->job.rank = pf->world.rank;
    return PL_ERR_OK;
}

pl_err pl_anew_decide(struct pl_preflight *pf, uint32_t batch_size, uint64_t have_bytes,
                      const struct pl_planned *known, struct pl_anew *a, struct pl_diag *d) {
    struct pl_job *job = pf->job;
    const struct pl_question before = pf->q;
    const uint32_t sharding = job->sharding;
    *a = (struct pl_anew){.job = ask_again(pf, batch_size)};
    pl_question_open(&pf->q, &a->job, &pf->model);
    bound(&pf->q.budget, pf->graph_bytes, have_bytes);
    pf->job = &a->job; /* what ranks agree on is that of the job at hand */
    pl_err err = decide(pf, a, d);
    a->same = err == PL_ERR_OK && known && pl_question_has_plan(&pf->q, known, false);
    if (err == PL_ERR_OK && !a->same) err = pl_question_plan(&pf->q, NULL, &a->planned, d);
    a->q = pf->q;
    a->q.budget = before.budget;
    pf->q = before;
    pf->job = job;
    job->sharding = sharding;
    return err;
}

/* The keys that are open in the job that was asked for, as they are decided now. */
static void settle(struct pl_preflight *pf, const struct pl_anew *a) {
    struct pl_job *job = pf->job;
    pl_job_cut_step(job, a->job.batch_size, pf->global_batch);
    job->sharding = a->job.sharding;
    job->gradient_dtype = a->job.gradient_dtype;
    pl_question_settle(&a->q, job);
    pf->q = a->q;
    pf->q.job = job;
}

pl_err pl_anew_take(struct pl_preflight *pf, struct pl_anew *a, struct pl_diag *d) {
    settle(pf, a);
    pl_estimate_finish(&pf->estimate);
    pf->search.planned = a->planned;
    a->planned = (struct pl_planned){0};
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_graphs_grant(pf);
    pl_preflight_write_decisions(pf->job, pf->estimate.planned.program);
    pl_forecast_init(&pf->forecast, pf, &a->notes);
    return pl_record_renew(pf, pf->record, d);
}

void pl_anew_finish(struct pl_anew *a) {
    pl_planned_finish(&a->planned);
    pl_text_finish(&a->notes);
    *a = (struct pl_anew){0};
}
