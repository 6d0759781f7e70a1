/* gate.c - the verdict and the size gate. */
#include "estimator/gate/gate.h"

#include "estimator/program/shard.h"

#include "estimator/base/units.h"
#include "estimator/card/cards.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"

static const char *const verdict_names[] = {"fits", "tight", "no", "unknown"};

const char *pl_verdict_name(enum pl_verdict_kind k) {
    return verdict_names[k];
}

/* All of a tensor, whatever this rank holds of it. */
static uint64_t elements_of(const struct pl_program *p, const struct pl_tensor *t) {
    struct pl_slot_shape shape;
    if (!pl_tensor_is_cut(&p->shape, t)) return t->dims[0] * t->dims[1];
    pl_model_slot(p->model, t->layer, t->slot, &shape);
    return shape.rows * shape.cols;
}

uint64_t pl_gate_trained(const struct pl_program *p) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) {
        const struct pl_tensor *t = &p->tensors[i];
        if (t->trainable) n += elements_of(p, t) * (1 + pl_tensor_left_out(p, t));
    }
    return n;
}

static double trained_billions(const struct pl_program *p) {
    return (double)pl_gate_trained(p) / 1e9;
}

/* Gradients that wait for the update are whole. */
uint32_t pl_gate_ceiling_devices(const struct pl_program *p) {
    const bool parts =
        p->shape.sharding >= PL_SHARDING_OPTIMIZER && !pl_shape_exchanges_once(&p->shape);
    return parts ? pl_shape_ranks(&p->shape) : 1;
}

bool pl_gate_over_ceiling(const struct pl_program *p, const struct pl_job *job) {
    return job->mode == PL_MODE_FULL && !job->inference &&
           pl_job_offload(job) < PL_OFFLOAD_WEIGHTS &&
           trained_billions(p) > job->full_ft_ceiling_billions * pl_gate_ceiling_devices(p);
}

static pl_err check_kernels(const struct pl_question *q, struct pl_diag *d) {
    const char *gpu = q->card ? q->card : "the GPU";
    const enum pl_key_id key = pl_job_without_kernels(q->job, q->model, &q->traits);
    uint32_t n;
    PL_TRY(pl_card_check_sm(gpu, q->traits.sm, d));
    if (key == PL_KEY_model)
        pl_job_error(q->job, key, PL_ERR_NO_DEVICE, d,
                     "heads of %u dimensions: attention on %s takes at most %u",
                     pl_model_widest_head(q->model), gpu, pl_card_head_dim(q->traits.sm));
    else
        pl_job_error(q->job, key, PL_ERR_NO_DEVICE, d,
                     "`%s: bf16` needs compute capability %d.%d (Ampere) or later, %s has %u.%u",
                     pl_key_table(&n)[key].key, PL_CARD_OLDEST_BF16_SM / 10,
                     PL_CARD_OLDEST_BF16_SM % 10, gpu, q->traits.sm / 10, q->traits.sm % 10);
    pl_diag_hint(d, "%s", pl_gate_no_kernels_help(q));
    return PL_ERR_NO_DEVICE;
}

void pl_gate_add_no_kernels(const struct pl_question *q, struct pl_text *out) {
    struct pl_diag d = {0};
    (void)check_kernels(q, &d);
    pl_text_add(out, d.message);
}

const char *pl_gate_no_kernels_help(const struct pl_question *q) {
    const enum pl_key_id key = pl_job_without_kernels(q->job, q->model, &q->traits);
    struct pl_job open = *q->job; /* shallow */
    open.dtype = PL_DTYPE_AUTO;
    if (key == PL_KEY_device) return "no setting helps";
    if (key == PL_KEY_model) return "`device: cpu` runs it";
    if (key == PL_KEY_adapter_dtype) return "`adapter_dtype: fp32` runs there";
    return pl_job_dtype(&open, q->model, &q->traits) == PL_DTYPE_F16
               ? "`dtype: fp16` runs there, and is what `auto` is"
               : "`dtype: fp32` runs there, and is what `auto` is: activations of this family "
                 "exceed fp16";
}

/* A tight job is short of the margin first, and of what the context may be off by next. */
static void compare(const struct pl_plan *plan, const struct pl_budget *b, struct pl_verdict *v) {
    const uint64_t least = v->needed_bytes - pl_u64_min(b->context_bytes, b->doubt_bytes);
    uint64_t most; /* without the margin */
    if (plan->arena_bytes <= pl_budget_usable(b)) {
        v->kind = PL_VERDICT_FITS;
        return;
    }
    if (least > b->total_bytes || b->margin_bytes > b->total_bytes) {
        v->kind = PL_VERDICT_NO;
        return;
    }
    v->kind = PL_VERDICT_TIGHT;
    if (!pl_u64_add(v->needed_bytes, b->doubt_bytes, &most)) most = UINT64_MAX;
    v->inside_doubt = most > b->total_bytes;
    v->short_bytes =
        v->inside_doubt ? most - b->total_bytes : b->margin_bytes - (b->total_bytes - most);
}

struct pl_verdict pl_gate_judge(const struct pl_plan *plan, const struct pl_question *q) {
    const struct pl_budget *budget = &q->budget;
    struct pl_verdict v = {.kind = PL_VERDICT_UNKNOWN,
                           .needed_bytes = plan->arena_bytes + budget->context_bytes,
                           .most_bytes = plan->arena_bytes + budget->context_bytes,
                           .over_ceiling = pl_gate_over_ceiling(plan->program, q->job),
                           .trained_billions = trained_billions(plan->program)};
    v.no_kernels = pl_job_without_kernels(q->job, plan->program->model, &plan->program->traits) !=
                   PL_KEY_COUNT;
    if (v.over_ceiling || v.no_kernels)
        v.kind = PL_VERDICT_NO;
    else if (budget->known)
        compare(plan, budget, &v);
    return v;
}

pl_err pl_gate_error(const struct pl_verdict *v, const struct pl_question *q, struct pl_diag *d) {
    const struct pl_budget *budget = &q->budget;
    char need[PL_BYTES_TEXT], total[PL_BYTES_TEXT], margin[PL_BYTES_TEXT];
    if (v->kind != PL_VERDICT_NO) return PL_ERR_OK;
    if (v->no_kernels) return check_kernels(q, d);
    if (v->over_ceiling)
        return pl_diag_set(d, PL_ERR_FULL_FT_MODEL_TOO_LARGE,
                           "mode: full would train %.3f billion parameters on the device alone, "
                           "the ceiling is %g "
                           "(full_ft_ceiling_billions)",
                           v->trained_billions, q->job->full_ft_ceiling_billions);
    return pl_diag_set(d, PL_ERR_DOES_NOT_FIT, "the %s needs %s (%llu bytes), %s is %s, margin %s",
                       v->most_bytes > v->needed_bytes ? "largest rank" : "job",
                       pl_bytes_text(v->most_bytes, need), (unsigned long long)v->most_bytes,
                       budget->source, pl_bytes_text(budget->total_bytes, total),
                       pl_bytes_text(budget->margin_bytes, margin));
}

void pl_gate_add_tight(const struct pl_verdict *v, const struct pl_question *q,
                       struct pl_text *out) {
    char size[PL_BYTES_TEXT], of[PL_BYTES_TEXT];
    pl_text_addf(out, "%s (%llu bytes) inside ", pl_bytes_text(v->short_bytes, size),
                 (unsigned long long)v->short_bytes);
    if (v->inside_doubt)
        pl_text_addf(out, "the possible error of the context%s, %s to either side",
                     q->budget.comm_doubt_bytes ? " and of comm" : "",
                     pl_bytes_text(q->budget.doubt_bytes, of));
    else
        pl_text_addf(out, "the margin of %s", pl_bytes_text(q->budget.margin_bytes, of));
}
