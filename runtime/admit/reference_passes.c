#include "runtime/admit/reference_passes.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"

/* A partner of KTO is made of two rows that stand together in a step: another order makes others,
 * and so do steps that begin elsewhere in each epoch. */
static bool meets_samples_again(const struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    const bool aligned = pf->data.walk.epoch_rows % pf->global_batch == 0;
    return job->stage != PL_STAGE_KTO ||
           (!job->shuffle && (aligned || !pl_job_reads_in_circle(job)));
}

/* The last step of an epoch may be short. */
static uint64_t rows_trained(const struct pl_preflight *pf) {
    const uint64_t epoch = pf->data.walk.epoch_rows, step = pf->global_batch;
    const uint64_t each = pl_u64_div_up(epoch, step);
    if (pl_job_reads_in_circle(pf->job) || !each) return pf->total_steps * step;
    return pf->total_steps / each * epoch + pl_u64_min(pf->total_steps % each * step, epoch);
}

void pl_preflight_decide_reference(struct pl_preflight *pf) {
    const struct pl_job *job = pf->job;
    if (!pl_job_refers(job) || pl_job_refers_to_start(job) || pf->files.resume_path ||
        job->precompute_reference != PL_TRI_AUTO)
        return;
    const uint64_t trained = rows_trained(pf), held_out = pf->data.n_eval, every = job->eval_steps;
    const uint64_t evaluations = 1 + (every ? (pf->total_steps - 1) / every : 0);
    const uint64_t with_steps = trained + held_out * evaluations;
    const uint64_t before =
        held_out +
        (meets_samples_again(pf) ? pl_u64_min(trained, pf->data.walk.epoch_rows) : trained);
    const bool is_before = before < with_steps;
    pf->spec.facts.precompute_reference = is_before ? PL_TRI_TRUE : PL_TRI_FALSE;
    pl_resolve(&pf->spec);
    pl_text_addf(
        &pf->notes,
        "precompute_reference: auto is `%s`: %llu rows before the first step, or %llu with "
        "the steps\n",
        is_before ? "true" : "false", (unsigned long long)before, (unsigned long long)with_steps);
}
