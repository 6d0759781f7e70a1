#include "runtime/admit/rank_count.h"

#include "estimator/autobatch/decide.h"
#include "estimator/autobatch/sharding.h"
#include "estimator/config/validate.h"
#include "estimator/gate/gate.h"
#include "runtime/admit/device_choice.h"

/* GPUs that the job may be spread over; 1: it has one device, whatever that is. */
static uint32_t candidates(const struct pl_job *job) {
    struct pl_job several = *job, one = *job; /* shallow: only keys without memory are set */
    struct pl_gpu gpu;
    several.devices = 2;
    if (job->device != PL_DEVICE_AUTO && job->device != PL_DEVICE_CUDA) return 1;
    if (pl_job_validate(&several, NULL) != PL_ERR_OK) return 1;
    if (pl_device_decide(&one, NULL, &gpu, NULL) != PL_ERR_OK || !pl_device_is_cuda(one.device))
        return 1;
    return pl_device_count(PL_RANKS_MAX);
}

/* All ranks are planned for the GPU that has the least to give. */
static pl_err add_gpu(const struct pl_job *job, uint32_t ordinal, struct pl_question *q,
                      struct pl_diag *d) {
    struct pl_job at = *job;
    struct pl_gpu gpu;
    struct pl_traits traits;
    struct pl_budget budget;
    struct pl_context context;
    at.device = PL_DEVICE_CUDA_AT + ordinal;
    PL_TRY(pl_device_decide(&at, NULL, &gpu, d));
    pl_device_budget(&at, NULL, &gpu, &traits, &budget, &context);
    if (ordinal > 0 && pl_budget_usable(&budget) >= pl_budget_usable(&q->budget)) return PL_ERR_OK;
    q->traits = traits;
    q->budget = budget;
    return PL_ERR_OK;
}

/* As admission judges the job later, with one sample where the micro-batch is open. The last rank
 * is planned: it has as many blocks of every tensor as any (shard.h). */
static pl_err holds(const struct pl_question *q, uint32_t ranks, bool *out, struct pl_diag *d) {
    struct pl_planned planned = {0};
    struct pl_variant v;
    pl_variant_of(&v, q);
    v.job.devices = ranks;
    v.job.rank = ranks - 1;
    PL_TRY(pl_sharding_decide(&v.q, &v.job.sharding, NULL, d));
    const uint32_t limit = v.job.batch_size == PL_AUTO ? 1 : pl_autobatch_limit(&v.job);
    PL_TRY(pl_decide_levels(&v.q, limit, NULL, NULL, d));
    pl_err err = pl_question_plan(&v.q, NULL, &planned, d);
    *out = err == PL_ERR_OK && pl_gate_judge(planned.plan, &v.q).kind == PL_VERDICT_FITS;
    pl_planned_finish(&planned);
    return err;
}

pl_err pl_rank_count_decide(struct pl_job *job, const struct pl_model *m, struct pl_text *notes,
                            struct pl_diag *d) {
    const uint32_t gpus = candidates(job);
    struct pl_question q = {0};
    bool held = gpus <= 1;
    uint32_t n = gpus <= 1;
    pl_question_open(&q, job, m);
    for (; n < gpus && !held; n++) {
        PL_TRY(add_gpu(job, n, &q, d));
        PL_TRY(holds(&q, n + 1, &held, d));
    }
    if (gpus > 1 && notes)
        pl_text_addf(notes, "devices: auto is %u of the %u GPUs%s\n", n, gpus,
                     held ? ": as few as hold the job" : ": all of them do not hold the job");
    job->devices = n;
    return PL_ERR_OK;
}
