/* card_rows.c - the same job judged on every GPU of the table. */
#include "estimator/advice/parts.h"
#include "estimator/base/checked.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_values.h"

#define MAX_SM 16 /* compute capabilities in the table */

struct planned_sm { /* one plan per compute capability serves all cards that have it */
    uint32_t sm;
    bool conflicts; /* its keys contradict what `dtype: auto` is there; the plan is that of bf16 */
    struct pl_planned planned;
};

static pl_err plan_of(const struct pl_advice *a, uint32_t sm, struct planned_sm plans[MAX_SM],
                      uint32_t *n, const struct planned_sm **out, struct pl_diag *d) {
    struct pl_variant v;
    struct pl_diag conflict = {0};
    for (uint32_t i = 0; i < *n; i++) {
        *out = &plans[i];
        if (plans[i].sm == sm) return PL_ERR_OK;
    }
    if (*n == MAX_SM) return pl_diag_set(d, PL_ERR_PLAN_BROKEN, "more kinds of GPU than expected");
    pl_variant_on_gpu(&v, &a->q, sm);
    pl_variant_smallest_level(&v);
    pl_err err = pl_question_measure(&v.q, &plans[*n].planned, &conflict);
    plans[*n].conflicts = err == PL_ERR_CONFIG_CONFLICT && v.job.dtype == PL_DTYPE_AUTO;
    if (plans[*n].conflicts) {
        v.job.dtype = PL_DTYPE_BF16;
        err = pl_question_measure(&v.q, &plans[*n].planned, d);
    } else if (err != PL_ERR_OK && d) {
        *d = conflict;
    }
    PL_TRY(err);
    plans[*n].sm = sm;
    *out = &plans[(*n)++];
    return PL_ERR_OK;
}

pl_err pl_advice_cards(struct pl_advice *a, struct pl_diag *d) {
    struct planned_sm plans[MAX_SM] = {0};
    uint32_t n_plans = 0;
    size_t n;
    pl_err err = PL_ERR_OK;
    const struct pl_card *cards = pl_card_table(&n);
    a->n_cards = 0;
    for (size_t i = 0; i < n && a->n_cards < PL_MAX_CARDS; i++) {
        const struct planned_sm *plan;
        struct pl_question q = a->q;
        q.budget = pl_card_budget(&cards[i]);
        if (q.job->vram_margin != PL_AUTO_BYTES) q.budget.margin_bytes = q.job->vram_margin;
        pl_budget_predict_comm(&q.budget, pl_job_ranks(q.job));
        PL_TRY_GOTO(plan_of(a, cards[i].sm, plans, &n_plans, &plan, d), out);
        struct pl_verdict v = pl_gate_judge(plan->planned.plan, &q);
        if (plan->conflicts) v.kind = PL_VERDICT_NO, v.no_kernels = true;
        a->cards[a->n_cards++] = (struct pl_card_row){.name = cards[i].name,
                                                      .nameplate_gb = cards[i].nameplate_gb,
                                                      .usable_bytes = pl_budget_usable(&q.budget),
                                                      .needed_bytes = v.needed_bytes,
                                                      .verdict = v.kind,
                                                      .runs = !v.no_kernels};
    }
out:
    for (uint32_t i = 0; i < n_plans; i++)
        pl_planned_finish(&plans[i].planned);
    return err;
}
