/* remedies.c - what would make it fit, each change planned for real.
 *
 * Rows stand in order of how little they change what is learnt: the first group not at all, the
 * middle only the rounding, the last the experiment itself. */
#include "estimator/gate/gate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct trial { /* a job under change; strings and lists stay borrowed from the user's job */
    struct pl_job job;
    uint32_t batch_size;
    const struct pl_model *m;
};

/* Applies one change and describes it; false when it does not apply. */
typedef bool (*remedy_fn)(struct trial *t, char *text, size_t size);

static bool recompute_all(struct trial *t, char *text, size_t size) {
    if (t->job.gradient_checkpointing == PL_RECOMPUTE_FULL) return false;
    t->job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    snprintf(text, size, "gradient_checkpointing: full");
    return true;
}

static bool chunk_loss(struct trial *t, char *text, size_t size) {
    if (t->job.loss_chunk_tokens == PL_AUTO) return false;
    t->job.loss_chunk_tokens = PL_AUTO;
    snprintf(text, size, "loss_chunk_tokens: auto");
    return true;
}

static bool smaller_batch(struct trial *t, uint32_t to, char *text, size_t size) {
    if (t->batch_size <= to || to == 0) return false;
    t->batch_size = to;
    snprintf(text, size, "batch_size: %u (global_batch_size keeps the step the same)", to);
    return true;
}

static bool half_batch(struct trial *t, char *text, size_t size) {
    return t->batch_size > 2 && smaller_batch(t, t->batch_size / 2, text, size);
}

static bool batch_of_one(struct trial *t, char *text, size_t size) {
    return smaller_batch(t, 1, text, size);
}

static bool bf16_gradients(struct trial *t, char *text, size_t size) {
    if (t->job.mode != PL_MODE_FULL || t->job.dtype != PL_JOB_DTYPE_BF16 ||
        t->job.gradient_dtype == PL_GRADIENT_BF16)
        return false;
    t->job.gradient_dtype = PL_GRADIENT_BF16;
    snprintf(text, size, "gradient_dtype: bf16");
    return true;
}

static bool bf16_storage(struct trial *t, char *text, size_t size) {
    if (t->job.dtype == PL_JOB_DTYPE_BF16) return false;
    t->job.dtype = PL_JOB_DTYPE_BF16;
    snprintf(text, size, "dtype: bf16");
    return true;
}

static bool no_master(struct trial *t, char *text, size_t size) {
    if (t->job.mode != PL_MODE_FULL || t->job.dtype != PL_JOB_DTYPE_BF16 ||
        t->job.master_weights == PL_TRI_FALSE)
        return false;
    t->job.master_weights = PL_TRI_FALSE;
    snprintf(text, size, "master_weights: false");
    return true;
}

static bool half_length(struct trial *t, char *text, size_t size) {
    if (t->job.max_seq_length < 4) return false;
    t->job.max_seq_length /= 2;
    snprintf(text, size, "max_seq_length: %u", t->job.max_seq_length);
    return true;
}

static bool half_rank(struct trial *t, char *text, size_t size) {
    if (t->job.mode != PL_MODE_LORA || t->job.lora_r < 8) return false;
    t->job.lora_r /= 2;
    snprintf(text, size, "lora_r: %u", t->job.lora_r);
    return true;
}

static bool freeze_half(struct trial *t, char *text, size_t size) {
    if (t->job.mode != PL_MODE_FULL || t->job.freeze_layers >= t->m->layers / 2) return false;
    t->job.freeze_layers = (uint32_t)(t->m->layers / 2);
    snprintf(text, size, "freeze_layers: %u", t->job.freeze_layers);
    return true;
}

static bool use_lora(struct trial *t, char *text, size_t size) {
    if (t->job.mode == PL_MODE_LORA || t->job.freeze_layers >= t->m->layers) return false;
    t->job.mode = PL_MODE_LORA;
    snprintf(text, size, "mode: lora");
    return true;
}

static const remedy_fn remedies[] = {recompute_all,  chunk_loss,   half_batch, batch_of_one,
                                     bf16_gradients, bf16_storage, no_master,  half_length,
                                     half_rank,      freeze_half,  use_lora};
#define N_REMEDIES (sizeof remedies / sizeof *remedies)
_Static_assert(N_REMEDIES + 1 <= PL_MAX_REMEDIES, "room for every row and the combination");

static pl_err price(const struct trial *t, const struct pl_traits *traits,
                    const struct pl_budget *budget, uint64_t before, struct pl_remedy *r,
                    struct pl_diag *d) {
    struct pl_planned planned;
    PL_TRY(pl_planned_init(&planned, &t->job, t->m, traits, t->batch_size, d));
    struct pl_verdict v = pl_gate_judge(planned.plan, &t->job, t->m, budget);
    r->total_bytes = v.needed_bytes;
    r->saves_bytes = (int64_t)(before - v.needed_bytes);
    r->fits = v.kind == PL_VERDICT_FITS;
    pl_planned_finish(&planned);
    return PL_ERR_OK;
}

/* Adds one change after another until it fits; kept only if it does. */
static pl_err combine(struct trial t, const struct pl_traits *traits,
                      const struct pl_budget *budget, uint64_t before, struct pl_remedy *r,
                      bool *useful, struct pl_diag *d) {
    char text[96];
    size_t len = 0;
    *useful = false;
    for (size_t i = 0; i < N_REMEDIES; i++) {
        struct trial next = t;
        struct pl_remedy step;
        if (remedies[i] == half_batch || !remedies[i](&next, text, sizeof text)) continue;
        PL_TRY(price(&next, traits, budget, before, &step, d));
        if (step.saves_bytes <= (len ? r->saves_bytes : 0) && !step.fits) continue;
        t = next;
        r->saves_bytes = step.saves_bytes;
        r->total_bytes = step.total_bytes;
        r->fits = step.fits;
        int n = snprintf(r->change + len, sizeof r->change - len, "%s%s", len ? ", " : "", text);
        if (n < 0 || (size_t)n >= sizeof r->change - len) return PL_ERR_OK;
        len += (size_t)n;
        if (r->fits) {
            *useful = true;
            return PL_ERR_OK;
        }
    }
    return PL_ERR_OK;
}

static void fitting_first(struct pl_remedy *r, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        struct pl_remedy v = r[i];
        uint32_t j = i;
        for (; j > 0 && v.fits && !r[j - 1].fits; j--)
            r[j] = r[j - 1];
        r[j] = v;
    }
}

pl_err pl_gate_remedies(const struct pl_job *job, const struct pl_model *m,
                        const struct pl_traits *traits, uint32_t batch_size,
                        const struct pl_budget *budget, struct pl_remedy out[PL_MAX_REMEDIES],
                        uint32_t *n, struct pl_diag *d) {
    const struct trial start = {.job = *job, .batch_size = batch_size, .m = m};
    struct pl_remedy none;
    bool any_fits = false;
    *n = 0;
    PL_TRY(price(&start, traits, budget, 0, &none, d));
    for (size_t i = 0; i < N_REMEDIES; i++) {
        struct trial t = start;
        struct pl_remedy *r = &out[*n];
        if (!remedies[i](&t, r->change, sizeof r->change)) continue;
        PL_TRY(price(&t, traits, budget, none.total_bytes, r, d));
        if (r->saves_bytes <= 0 && !r->fits) continue;
        any_fits |= r->fits;
        (*n)++;
    }
    if (!any_fits && budget->known) {
        bool useful;
        PL_TRY(combine(start, traits, budget, none.total_bytes, &out[*n], &useful, d));
        if (useful) (*n)++;
    }
    fitting_first(out, *n);
    return PL_ERR_OK;
}
