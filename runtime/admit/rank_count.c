#include "runtime/admit/rank_count.h"

#include "estimator/autobatch/decide.h"
#include "estimator/autobatch/sharding.h"
#include "estimator/config/validate.h"
#include "estimator/gate/gate.h"
#include "runtime/admit/device_choice.h"

static void suppose_ranks(struct pl_spec *at, const struct pl_job *job, uint32_t ranks) {
    pl_spec_init(at, job);
    at->facts.devices = ranks;
    pl_resolve(at);
}

/* GPUs that the job may be spread over; 1: it has one device, whatever that is. */
static uint32_t candidates(const struct pl_job *job) {
    struct pl_spec several;
    struct pl_gpu gpu;
    uint32_t device;
    if (job->device != PL_DEVICE_AUTO && job->device != PL_DEVICE_CUDA) return 1;
    suppose_ranks(&several, job, 2);
    if (pl_job_validate(&several.job, NULL) != PL_ERR_OK) return 1;
    if (pl_device_decide(job, NULL, &device, &gpu, NULL) != PL_ERR_OK || !pl_device_is_cuda(device))
        return 1;
    return pl_device_count(PL_RANKS_MAX);
}

/* All ranks are planned for the GPU that has the least to give. */
static pl_err add_gpu(const struct pl_job *job, uint32_t ordinal, struct pl_question *q,
                      struct pl_diag *d) {
    struct pl_spec at;
    struct pl_gpu gpu;
    struct pl_traits traits;
    struct pl_budget budget;
    struct pl_context context;
    uint32_t device;
    pl_spec_init(&at, job);
    at.facts.device = PL_DEVICE_CUDA_AT + ordinal;
    pl_resolve(&at);
    PL_TRY(pl_device_decide(&at.job, NULL, &device, &gpu, d));
    pl_device_budget(&at, NULL, &gpu, &traits, &budget, &context);
    if (ordinal > 0 && pl_budget_usable(&budget) >= pl_budget_usable(&q->budget)) return PL_ERR_OK;
    q->traits = traits;
    q->budget = budget;
    return PL_ERR_OK;
}

/* As admission judges the job later, with one sample where the micro-batch is open. */
static pl_err holds_job(const struct pl_question *q, uint32_t ranks, bool *out, struct pl_diag *d) {
    struct pl_planned planned = {0};
    struct pl_spec at;
    struct pl_question last = *q;
    suppose_ranks(&at, q->job, ranks);
    last.job = &at.job;
    last = pl_question_of_last(&last);
    PL_TRY(pl_sharding_decide(&last, &at.facts.sharding, NULL, d));
    pl_resolve(&at);
    const uint32_t limit = at.job.batch_size == PL_AUTO ? 1 : pl_autobatch_limit(&at.job);
    PL_TRY(pl_decide_levels(&last, limit, NULL, NULL, d));
    pl_err err = pl_question_plan(&last, NULL, &planned, d);
    *out = err == PL_ERR_OK && pl_gate_judge(planned.plan, &last).kind == PL_VERDICT_FITS;
    pl_planned_finish(&planned);
    return err;
}

pl_err pl_rank_count_decide(const struct pl_job *job, const struct pl_model *m, uint32_t *devices,
                            struct pl_text *notes, struct pl_diag *d) {
    const uint32_t gpus = candidates(job);
    struct pl_question q = {0};
    bool held = gpus <= 1;
    uint32_t n = gpus <= 1;
    pl_question_open(&q, job, m);
    for (; n < gpus && !held; n++) {
        PL_TRY(add_gpu(job, n, &q, d));
        PL_TRY(holds_job(&q, n + 1, &held, d));
    }
    if (gpus > 1 && notes)
        pl_text_addf(notes, "devices: auto is %u of the %u GPUs%s\n", n, gpus,
                     held ? ": as few as hold the job" : ": all of them do not hold the job");
    *devices = n;
    return PL_ERR_OK;
}
