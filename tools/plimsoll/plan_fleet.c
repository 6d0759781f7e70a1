#include "tools/plimsoll/cmd_plan.h"

#include "estimator/config/job_values.h"

static bool is_asked(const struct pl_cli *cli, const struct pl_job *job) {
    return pl_cli_has(cli, PL_FLAG_LINK) || job->devices == PL_AUTO || pl_job_ranks(job) > 1;
}

static bool has_answer(const struct pl_question *q) {
    return q->budget.known && q->traits.backend == PL_BACKEND_CUDA && pl_question_has_kernels(q);
}

static pl_err find_link(const struct pl_cli *cli, const struct pl_question *q,
                        const struct pl_link **out, struct pl_diag *d) {
    const char *typed = cli->flag[PL_FLAG_LINK];
    *out = pl_link_of_card(q->card, cli->flag[PL_FLAG_GPU]);
    return typed ? pl_link_require(typed, q->card, out, d) : PL_ERR_OK;
}

pl_err pl_plan_fleet_check(const struct pl_cli *cli, const struct pl_question *q,
                           struct pl_diag *d) {
    const struct pl_link *link;
    if (!pl_cli_has(cli, PL_FLAG_LINK)) return PL_ERR_OK;
    PL_TRY(find_link(cli, q, &link, d));
    if (has_answer(q)) return PL_ERR_OK;
    pl_diag_set(d, PL_ERR_USAGE, "--link is about GPUs, and no size of one is known");
    pl_diag_hint(d, "name one: --gpu NAME, or --vram SIZE");
    return PL_ERR_USAGE;
}

static pl_err make(const struct pl_cli *cli, struct pl_advice *a, struct pl_fleet_request *request,
                   struct pl_plan_fleet *out, struct pl_diag *d) {
    PL_TRY(find_link(cli, &a->q, &request->link, d));
    PL_TRY(pl_advice_fleet(a, request, &out->fleet, d));
    out->made = true;
    return PL_ERR_OK;
}

pl_err pl_plan_fleet_asked(const struct pl_cli *cli, struct pl_advice *a, struct pl_plan_fleet *out,
                           struct pl_diag *d) {
    const struct pl_job *job = a->q.job;
    struct pl_fleet_request request = {.devices = pl_job_ranks(job)};
    *out = (struct pl_plan_fleet){0};
    if (!has_answer(&a->q) || !is_asked(cli, job)) return PL_ERR_OK;
    if (request.devices == 1) request.devices = 0;
    PL_TRY(make(cli, a, &request, out, d));
    out->is_answer = out->fleet.best && out->fleet.best->devices > 1;
    return PL_ERR_OK;
}

pl_err pl_plan_fleet_fewest(const struct pl_cli *cli, struct pl_advice *a,
                            const struct pl_recommendation *r, struct pl_plan_fleet *out,
                            struct pl_diag *d) {
    struct pl_fleet_request request = {.fewest_alone = true};
    const bool fits_one = r->n_ways && !r->ways[0].price.host_bytes;
    if (!has_answer(&a->q) || is_asked(cli, a->q.job) || fits_one) return PL_ERR_OK;
    return make(cli, a, &request, out, d);
}
