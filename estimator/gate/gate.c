/* gate.c - the verdict and the size gate. */
#include "estimator/gate/gate.h"

#include "estimator/base/units.h"
#include "estimator/config/job_values.h"

static const char *const verdict_names[] = {"fits", "tight", "no", "unknown"};

const char *pl_verdict_name(enum pl_verdict_kind k) {
    return verdict_names[k];
}

uint64_t pl_gate_trained(const struct pl_program *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].trainable) n += p->tensors[i].dims[0] * p->tensors[i].dims[1];
    return n;
}

static double trained_billions(const struct pl_program *p) {
    return (double)pl_gate_trained(p) / 1e9;
}

bool pl_gate_over_ceiling(const struct pl_program *p, const struct pl_job *job) {
    return job->mode == PL_MODE_FULL && !job->inference &&
           pl_job_offload(job) < PL_OFFLOAD_WEIGHTS &&
           trained_billions(p) > job->full_ft_ceiling_billions;
}

struct pl_verdict pl_gate_judge(const struct pl_plan *plan, const struct pl_question *q) {
    const struct pl_budget *budget = &q->budget;
    struct pl_verdict v = {.kind = PL_VERDICT_UNKNOWN,
                           .needed_bytes = plan->arena_bytes + budget->context_bytes,
                           .over_ceiling = pl_gate_over_ceiling(plan->program, q->job),
                           .trained_billions = trained_billions(plan->program)};
    if (v.over_ceiling) {
        v.kind = PL_VERDICT_NO;
    } else if (budget->known) {
        bool inside = plan->arena_bytes <= pl_budget_usable(budget);
        uint64_t least = v.needed_bytes - pl_u64_min(budget->context_bytes, budget->doubt_bytes);
        v.kind = inside                         ? PL_VERDICT_FITS
                 : least <= budget->total_bytes ? PL_VERDICT_TIGHT
                                                : PL_VERDICT_NO;
    }
    return v;
}

pl_err pl_gate_error(const struct pl_verdict *v, const struct pl_question *q, struct pl_diag *d) {
    const struct pl_budget *budget = &q->budget;
    char need[PL_BYTES_TEXT], total[PL_BYTES_TEXT], margin[PL_BYTES_TEXT];
    if (v->kind != PL_VERDICT_NO) return PL_ERR_OK;
    if (v->over_ceiling)
        return pl_diag_set(d, PL_ERR_FULL_FT_MODEL_TOO_LARGE,
                           "mode: full would train %.3f billion parameters on the device alone, "
                           "the ceiling is %g "
                           "(full_ft_ceiling_billions)",
                           v->trained_billions, q->job->full_ft_ceiling_billions);
    return pl_diag_set(d, PL_ERR_DOES_NOT_FIT, "the job needs %s (%llu bytes), %s is %s, margin %s",
                       pl_bytes_text(v->needed_bytes, need), (unsigned long long)v->needed_bytes,
                       budget->source, pl_bytes_text(budget->total_bytes, total),
                       pl_bytes_text(budget->margin_bytes, margin));
}
