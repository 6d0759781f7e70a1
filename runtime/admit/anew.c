#include "runtime/admit/anew.h"

#include "estimator/base/checked.h"
#include "runtime/admit/agreed.h"
#include "runtime/admit/graphs.h"
#include "runtime/admit/preflight_size.h"
#include "runtime/admit/record.h"
#include "runtime/admit/speed.h"

/* Gives back the memory that graphs were granted, and bounds the budget by what is free. */
static void bound_budget(struct pl_budget *b, uint64_t graph_bytes, uint64_t have_bytes) {
    b->context_bytes -= graph_bytes;
    if (!b->known) return;
    const uint64_t usable = pl_budget_usable(b);
    b->total_bytes -= usable - pl_u64_min(usable, have_bytes);
}

/* As it was decided first (preflight_size.c). */
static pl_err decide_keys(struct pl_preflight *pf, struct pl_anew *a, struct pl_diag *d) {
    PL_TRY(pl_agreed_budget(pf, &a->q.budget, d));
    struct pl_question last = pl_question_of_last(&a->q);
    PL_TRY(pl_preflight_shard(pf, &a->spec, &last, &a->notes, d));
    PL_TRY(pl_decide_levels(&last, last.batch_size, NULL, &a->notes, d));
    PL_TRY(pl_agreed_decision(pf, &last, d));
    a->q = last;
    a->q.rank = pf->world.rank;
    return PL_ERR_OK;
}

/* The samples of a step stay: they are what the first micro-batch made of them. */
pl_err pl_anew_decide(struct pl_preflight *pf, uint32_t batch_size, uint64_t have_bytes,
                      const struct pl_planned *known, struct pl_anew *a, struct pl_diag *d) {
    *a = (struct pl_anew){.spec = pf->spec, .q = pf->q};
    pl_spec_cut(&a->spec, batch_size, pf->global_batch);
    pl_question_open(&a->q, &a->spec.job, &pf->model);
    bound_budget(&a->q.budget, pf->graph_bytes, have_bytes);
    pl_err err = decide_keys(pf, a, d);
    a->same = err == PL_ERR_OK && known && pl_question_has_plan(&a->q, known, false);
    if (err == PL_ERR_OK && !a->same) err = pl_question_plan(&a->q, NULL, &a->planned, d);
    a->q.budget = pf->q.budget;
    return err;
}

pl_err pl_anew_take(struct pl_preflight *pf, struct pl_anew *a, struct pl_diag *d) {
    pf->spec.facts = a->spec.facts;
    pl_preflight_take_decided(pf, &a->q);
    pl_estimate_finish(&pf->estimate);
    pf->search.planned = a->planned;
    a->planned = (struct pl_planned){0};
    PL_TRY(pl_estimate_init(&pf->estimate, &pf->q, &pf->search.planned, d));
    pl_graphs_grant(pf);
    pl_preflight_take_built(&pf->spec, pf->estimate.planned.program);
    pl_forecast_init(&pf->forecast, pf, &a->notes);
    return pl_record_renew(pf, pf->files.record, d);
}

void pl_anew_finish(struct pl_anew *a) {
    pl_planned_finish(&a->planned);
    pl_text_finish(&a->notes);
    *a = (struct pl_anew){0};
}
