#include "estimator/autobatch/keeping.h"

#include "estimator/config/job_values.h"
#include "estimator/program/cost.h"

bool pl_keeping_is_open(const struct pl_question *q) {
    return pl_job_prefers(q->job) && q->job->keep_first_pass == PL_TRI_AUTO;
}

/* Finds the seconds that a sample takes, all passes of a step included. */
static pl_err sample_seconds(const struct pl_question *q, struct pl_planned *held, double *out,
                             struct pl_diag *d) {
    const struct pl_speed speed = pl_speed_nominal(&q->traits);
    PL_TRY(pl_question_sketch(q, held, d));
    const struct pl_program *p = held->program;
    *out = pl_program_micro_seconds(p, &speed) / (double)p->shape.batch_size;
    return PL_ERR_OK;
}

static pl_err fits(const struct pl_question *q, struct pl_planned *held, bool *out,
                   struct pl_diag *d) {
    const uint32_t samples = pl_job_whole_samples(q->job, q->batch_size);
    *out = samples == q->batch_size;
    if (!q->budget.known) return PL_ERR_OK;
    *out = samples <= pl_question_most_samples(q);
    if (!*out) return PL_ERR_OK;
    return pl_question_fits(q, pl_budget_usable(&q->budget), held, out, d);
}

/* The fastest so far, which takes `seconds`, and whether anything that keeps the pass has fit. */
struct fastest {
    struct pl_question q;
    double seconds;
    bool any;
};

static pl_err consider(const struct pl_question *q, struct pl_planned *held, struct fastest *best,
                       struct pl_diag *d) {
    bool fit;
    double seconds;
    PL_TRY(fits(q, held, &fit, d));
    if (!fit) return PL_ERR_OK;
    best->any = true;
    PL_TRY(sample_seconds(q, held, &seconds, d));
    if (seconds >= best->seconds) return PL_ERR_OK;
    best->q = *q;
    best->seconds = seconds;
    return PL_ERR_OK;
}

static void tell(const struct fastest *best, double without, struct pl_text *notes) {
    const bool kept = best->q.decided.keep_first_pass == PL_TRI_TRUE;
    pl_text_addf(notes, "keep_first_pass: auto is `%s`: ", kept ? "true" : "false");
    if (kept)
        pl_text_addf(notes, "it fits, and a step takes %.2f times as long\n",
                     best->seconds / without);
    else if (best->any)
        pl_text_add(notes, "it would be no faster\n");
    else
        pl_text_addf(notes, "%s\n",
                     best->q.budget.known ? "what the first pass computes does not fit"
                                          : "it takes more memory, and no budget is known");
}

pl_err pl_decide_keeping(struct pl_question *q, const struct pl_question *other,
                         struct pl_text *notes, struct pl_diag *d) {
    struct pl_question kept = *q;
    struct pl_planned held = {0};
    struct fastest best = {.q = *q};
    if (!pl_keeping_is_open(q)) return PL_ERR_OK;
    best.q.decided.keep_first_pass = PL_TRI_FALSE;
    kept.decided.keep_first_pass = PL_TRI_TRUE;
    pl_err err = sample_seconds(&best.q, &held, &best.seconds, d);
    const double without = best.seconds;
    if (err == PL_ERR_OK) err = consider(&kept, &held, &best, d);
    if (err == PL_ERR_OK && other) err = consider(other, &held, &best, d);
    pl_planned_finish(&held);
    if (err != PL_ERR_OK) return err;
    *q = best.q;
    if (notes) tell(&best, without, notes);
    return PL_ERR_OK;
}

/* --- copies of 4-bit matrices ---------------------------------------------------------------- */

static bool makes_products_again(const struct pl_question *q) {
    const uint32_t level = pl_question_level(q);
    bool any = level == PL_RECOMPUTE_AUTO; /* which is planned as `full` */
    for (uint64_t l = 0; l < q->model->layers && !any; l++)
        any = pl_recompute_of_layer(level, l) > PL_RECOMPUTE_LIGHT;
    return any;
}

pl_err pl_decide_copies(struct pl_question *q, struct pl_text *notes, struct pl_diag *d) {
    struct pl_question kept = *q;
    struct pl_planned held = {0};
    bool fit = false;
    q->decided.keep_unpacked = PL_TRI_AUTO;
    if (q->job->mode != PL_MODE_QLORA || q->job->inference || !q->budget.known ||
        q->job->keep_unpacked != PL_TRI_AUTO || !makes_products_again(q))
        return PL_ERR_OK;
    kept.decided.keep_unpacked = PL_TRI_TRUE;
    const pl_err err = pl_question_fits(&kept, pl_budget_usable(&q->budget), &held, &fit, d);
    pl_planned_finish(&held);
    if (err != PL_ERR_OK || !fit) return err;
    *q = kept;
    if (notes) pl_text_add(notes, "keep_unpacked: auto is `true`: that fits\n");
    return PL_ERR_OK;
}
