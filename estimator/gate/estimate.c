/* estimate.c - a plan and its verdict. */
#include "estimator/gate/estimate.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_values.h"
#include "estimator/program/emit/merge_program.h"

#include <stdlib.h>

/* `save_merged` at the end of a run is a program of its own, in the machine's memory. */
static pl_err plan_merged_export(struct pl_estimate *e, struct pl_diag *d) {
    const struct pl_traits traits = pl_traits_cpu(pl_cpu_count());
    const struct pl_job_shape *s = &e->planned.program->shape;
    const struct pl_job_shape shape = {.mode = PL_MODE_LORA,
                                       .lora_r = s->lora_r,
                                       .lora_scale = s->lora_scale,
                                       .lora_targets = s->lora_targets,
                                       .save = true,
                                       .stretch = PL_MERGE_STRETCH};
    struct pl_planned merge = {0};
    if (!e->q->job->save_merged || e->q->job->inference || !pl_mode_adapts(e->q->job->mode))
        return PL_ERR_OK;
    pl_err err = pl_program_create_merge(e->q->model, &shape, &traits, &merge.program, d);
    if (err == PL_ERR_OK) err = pl_plan_create(merge.program, &merge.plan, d);
    if (err == PL_ERR_OK) e->merged_export_bytes = merge.plan->arena_bytes;
    pl_planned_finish(&merge);
    return err;
}

/* Packing may leave another rank a few bytes more, which then decide. */
static void judge_ranks(struct pl_estimate *e) {
    struct pl_question worst = *e->q;
    const uint64_t own = e->planned.plan->arena_bytes;
    uint64_t most = own;
    for (uint32_t r = 0; r < e->n_ranks; r++)
        most = pl_u64_max(most, e->ranks[r].arena_bytes);
    if (most == own) return;
    worst.budget.context_bytes += most - own;
    const struct pl_verdict v = pl_gate_judge(e->planned.plan, &worst);
    e->verdict.kind = v.kind;
    e->verdict.most_bytes = v.most_bytes;
    e->verdict.short_bytes = v.short_bytes;
    e->verdict.inside_doubt = v.inside_doubt;
}

void pl_estimate_judge_again(struct pl_estimate *e) {
    e->verdict = pl_gate_judge(e->planned.plan, e->q);
    judge_ranks(e);
}

/* Everything that follows from e->planned, but what would help. */
static pl_err judge(struct pl_estimate *e, struct pl_diag *d) {
    const struct pl_question *q = e->q;
    e->gradient_accumulation = pl_question_accumulation(q);
    e->param_count = pl_model_param_count(q->model);
    e->trainable_param_count = pl_gate_trained(e->planned.program);
    PL_TRY(pl_estimate_bill_ranks(e, d));
    pl_estimate_judge_again(e);
    return plan_merged_export(e, d);
}

pl_err pl_estimate_find_remedies(struct pl_estimate *e, struct pl_diag *d) {
    if (e->verdict.kind == PL_VERDICT_FITS || e->verdict.kind == PL_VERDICT_UNKNOWN ||
        !pl_traits_run(&e->planned.program->traits))
        return PL_ERR_OK;
    return pl_gate_remedies(e->q, e->planned.plan, e->remedies, &e->n_remedies, d);
}

pl_err pl_estimate_judge(struct pl_estimate *e, const struct pl_question *q,
                         struct pl_planned *made, struct pl_diag *d) {
    *e = (struct pl_estimate){.q = q};
    PL_TRY(pl_question_plan(q, made, &e->planned, d));
    return judge(e, d);
}

pl_err pl_estimate_init(struct pl_estimate *e, const struct pl_question *q, struct pl_planned *made,
                        struct pl_diag *d) {
    PL_TRY(pl_estimate_judge(e, q, made, d));
    return pl_estimate_find_remedies(e, d);
}

pl_err pl_estimate_init_of(struct pl_estimate *e, const struct pl_question *q,
                           const struct pl_planned *planned, struct pl_diag *d) {
    *e = (struct pl_estimate){.q = q, .planned = *planned, .borrows_plan = true};
    PL_TRY(judge(e, d));
    return pl_estimate_find_remedies(e, d);
}

void pl_estimate_finish(struct pl_estimate *e) {
    if (!e->borrows_plan) pl_planned_finish(&e->planned);
    free(e->ranks);
    *e = (struct pl_estimate){0};
}

const char *pl_estimate_mode(const struct pl_estimate *e) {
    static const char *const names[] = {
        [PL_MODE_FULL] = "full", [PL_MODE_LORA] = "lora", [PL_MODE_QLORA] = "qlora"};
    return e->q->job->inference ? "inference" : names[e->q->job->mode];
}

void pl_estimate_ledger(const struct pl_plan *plan, struct pl_line out[PL_LEDGER_LINES]) {
    for (int c = 0; c < PL_CATEGORY_COUNT; c++)
        out[c] = (struct pl_line){pl_category_name(c), plan->ledger[c]};
    out[PL_CATEGORY_COUNT] = (struct pl_line){"alignment", plan->alignment_bytes};
    out[PL_CATEGORY_COUNT + 1] = (struct pl_line){"fragmentation", plan->fragmentation_bytes};
}

uint32_t pl_estimate_phases(const struct pl_estimate *e, struct pl_line out[PL_PHASE_LINES]) {
    const struct pl_plan *plan = e->planned.plan;
    uint32_t n = 0;
    for (int p = 0; p < PL_PHASE_COUNT; p++)
        if (plan->program->phases[p].n_ops)
            out[n++] = (struct pl_line){pl_phase_name(p), plan->job_bytes + plan->phases[p].bytes};
    if (e->merged_export_bytes)
        out[n++] = (struct pl_line){"merged export", e->merged_export_bytes};
    return n;
}
