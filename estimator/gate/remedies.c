/* remedies.c - what would make it fit, each change planned for real.
 *
 * Rows stand in order of how little they change what is learnt: the first group not at all, the
 * middle only the rounding, the last the experiment itself. */
#include "estimator/autobatch/decide.h"
#include "estimator/autobatch/sharding.h"
#include "estimator/config/job_values.h"
#include "estimator/gate/gate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Applies one change and describes it; false when it does not apply. */
typedef bool (*remedy_fn)(struct pl_variant *v, char *text, size_t size);

static void name_level(uint32_t level, char *text, size_t size) {
    struct pl_text word = {0};
    pl_recompute_print(level, &word);
    snprintf(text, size, "gradient_checkpointing: %s", pl_text_str(&word));
    pl_text_finish(&word);
}

/* A level that rebuilds more than the job does and less than `full`; mixes are between two. */
static bool recompute_at(struct pl_variant *v, uint32_t level, char *text, size_t size) {
    const uint32_t now = pl_question_level(&v->q);
    bool both =
        now == PL_RECOMPUTE_MLP && level == PL_RECOMPUTE_ATTENTION; /* neither in the other */
    if (now >= level || both || v->job.inference) return false;
    v->job.gradient_checkpointing = level;
    name_level(level, text, size);
    return true;
}

static bool recompute_light(struct pl_variant *v, char *text, size_t size) {
    return recompute_at(v, PL_RECOMPUTE_LIGHT, text, size);
}

static bool recompute_attention(struct pl_variant *v, char *text, size_t size) {
    return recompute_at(v, PL_RECOMPUTE_ATTENTION, text, size);
}

static bool recompute_mlp(struct pl_variant *v, char *text, size_t size) {
    return recompute_at(v, PL_RECOMPUTE_MLP, text, size);
}

static bool recompute_all(struct pl_variant *v, char *text, size_t size) {
    const uint32_t now = pl_question_level(&v->q);
    if (now == PL_RECOMPUTE_FULL || now == PL_RECOMPUTE_OFFLOAD) return false;
    v->job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    snprintf(text, size, "gradient_checkpointing: full");
    return true;
}

static bool chunk_loss(struct pl_variant *v, char *text, size_t size) {
    const enum pl_dtype dtype = v->job.dtype == PL_JOB_DTYPE_FP32 ? PL_DTYPE_F32 : PL_DTYPE_BF16;
    const uint64_t tokens = (uint64_t)v->q.batch_size * v->job.max_seq_length;
    const uint64_t now = pl_question_chunk(&v->q);
    if (now == PL_AUTO || (now && now <= pl_program_auto_chunk(v->q.model, dtype, tokens)))
        return false;
    v->job.loss_chunk_tokens = v->q.loss_chunk_tokens = PL_AUTO;
    snprintf(text, size, "loss_chunk_tokens: auto");
    return true;
}

/* In layers that rebuild it. `auto` has looked for a chunk that fits already. */
static bool chunk_mlp(struct pl_variant *v, char *text, size_t size) {
    enum { CHUNK = 1024 };
    const uint32_t now = pl_question_mlp_chunk(&v->q);
    if (v->job.inference || now == PL_AUTO || (now && now <= CHUNK)) return false;
    v->job.mlp_chunk_tokens = CHUNK;
    snprintf(text, size, "mlp_chunk_tokens: %d", CHUNK);
    return true;
}

/* `auto` has looked for panels that fit already. */
static bool unpack_in_panels(struct pl_variant *v, char *text, size_t size) {
    const uint64_t now = pl_question_unpack(&v->q);
    if (v->job.mode != PL_MODE_QLORA || now == PL_AUTO_BYTES || (now && now <= PL_UNPACK_MIN))
        return false;
    v->job.unpack_buffer = PL_UNPACK_MIN;
    snprintf(text, size, "unpack_buffer: %dMiB", (int)(PL_UNPACK_MIN >> 20));
    return true;
}

/* A step in several micro-batches keeps its gradients; only a job that asks for updates in the
 * backward pass by `true` keeps those. */
static bool smaller_batch(struct pl_variant *v, uint32_t to, char *text, size_t size) {
    bool together =
        v->job.optimizer_in_backward == PL_TRI_TRUE && v->job.given[PL_KEY_optimizer_in_backward];
    if (v->q.batch_size <= to || to == 0) return false;
    if (together && v->job.global_batch_size != PL_UNSET_U32) return false;
    v->q.batch_size = to;
    v->job.optimizer_in_backward = together ? PL_TRI_TRUE : PL_TRI_FALSE;
    snprintf(text, size, "batch_size: %u%s", to,
             v->job.inference || together ? "" : " (global_batch_size keeps the step the same)");
    return true;
}

/* Of a step that is one micro-batch, and of gradients that the device would hold. Under `auto` the
 * job has it already where that may be. */
static bool in_backward(struct pl_variant *v, char *text, size_t size) {
    const struct pl_job *job = &v->job;
    bool cut = job->batch_size == PL_AUTO ? job->global_batch_size != PL_UNSET_U32
                                          : v->q.batch_size < job->batch_size;
    bool has_auto = job->optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(&v->q);
    if (job->mode != PL_MODE_FULL || job->inference || cut ||
        job->optimizer_in_backward == PL_TRI_TRUE || has_auto ||
        pl_job_accumulation(job, v->q.batch_size) > 1 ||
        pl_job_offload(job) >= PL_OFFLOAD_GRADIENTS || pl_job_updates_on_host(job))
        return false;
    v->job.optimizer_in_backward = PL_TRI_TRUE;
    snprintf(text, size, "optimizer_in_backward: true");
    return true;
}

static bool half_batch(struct pl_variant *v, char *text, size_t size) {
    return v->q.batch_size > 2 && smaller_batch(v, v->q.batch_size / 2, text, size);
}

static bool batch_of_one(struct pl_variant *v, char *text, size_t size) {
    return smaller_batch(v, 1, text, size);
}

static bool offload_kept(struct pl_variant *v, char *text, size_t size) {
    if (pl_question_level(&v->q) == PL_RECOMPUTE_OFFLOAD || v->job.inference) return false;
    v->job.gradient_checkpointing = PL_RECOMPUTE_OFFLOAD;
    snprintf(text, size, "gradient_checkpointing: offload");
    return true;
}

/* Weights of the model itself are trained, all or a few. */
static bool trains_weights(const struct pl_variant *v) {
    if (v->job.inference) return false;
    return v->job.mode == PL_MODE_FULL || v->job.lora_modules_to_save.n > 0;
}

/* States of adapters are too few to be worth their copies. */
static bool weights_in_parts(struct pl_variant *v, char *text, size_t size) {
    const bool ordered = pl_job_orders_ranks(&v->job);
    if (v->job.inference || pl_job_ranks(&v->job) == 1 || v->job.sharding == PL_SHARDING_WEIGHTS)
        return false;
    v->job.sharding = PL_SHARDING_WEIGHTS;
    v->job.given[PL_KEY_sharding] = true;
    v->job.rank_order = PL_TRI_TRUE; /* in parts they are exchanged with every micro-batch */
    snprintf(text, size, "sharding: weights%s", ordered ? "" : ", rank_order: true");
    return true;
}

static bool offload_states(struct pl_variant *v, char *text, size_t size) {
    if (!trains_weights(v) || pl_job_offload(&v->job) != PL_OFFLOAD_NONE ||
        pl_job_is_of_ranks(&v->job))
        return false;
    v->job.offload = PL_OFFLOAD_OPTIMIZER;
    snprintf(text, size, "offload: optimizer");
    return true;
}

static bool offload_all(struct pl_variant *v, char *text, size_t size) {
    if (v->job.inference || pl_job_offload(&v->job) == PL_OFFLOAD_WEIGHTS ||
        pl_job_is_of_ranks(&v->job))
        return false;
    bool full = v->job.mode == PL_MODE_FULL;
    v->job.optimizer_in_backward =
        PL_TRI_FALSE; /* without gradients on the device it means nothing */
    if (full)
        v->job.full_ft_offload = true;
    else
        v->job.offload = PL_OFFLOAD_WEIGHTS;
    snprintf(text, size, full ? "full_ft_offload: true" : "offload: weights");
    return true;
}

static bool embedding_on_host(struct pl_variant *v, char *text, size_t size) {
    if (v->job.embedding_device == PL_EMBEDDING_HOST || v->q.model->tied ||
        v->job.quantize_embedding || pl_job_trains_embedding(&v->job) ||
        pl_job_is_of_ranks(&v->job) || pl_job_offload(&v->job) == PL_OFFLOAD_WEIGHTS)
        return false;
    v->job.embedding_device = PL_EMBEDDING_HOST;
    snprintf(text, size, "embedding_device: host");
    return true;
}

static bool bf16_gradients(struct pl_variant *v, char *text, size_t size) {
    if (!trains_weights(v) || v->job.dtype != PL_JOB_DTYPE_BF16 ||
        v->job.gradient_dtype == PL_GRADIENT_BF16)
        return false;
    v->job.gradient_dtype = PL_GRADIENT_BF16;
    snprintf(text, size, "gradient_dtype: bf16");
    return true;
}

/* Rounds the weights of an fp32 checkpoint; of a bf16 one, back from `base_dtype: fp32`. */
static bool bf16_base(struct pl_variant *v, char *text, size_t size) {
    if (v->job.dtype == PL_JOB_DTYPE_BF16 || !pl_job_base_may_be_bf16(&v->job, &v->q.traits) ||
        pl_job_base_is_bf16(&v->job, v->q.model, &v->q.traits))
        return false;
    v->job.base_dtype = PL_BASE_BF16;
    snprintf(text, size, "base_dtype: bf16");
    return true;
}

static bool bf16_storage(struct pl_variant *v, char *text, size_t size) {
    bool given = v->job.given[PL_KEY_base_dtype];
    if (v->job.dtype == PL_JOB_DTYPE_BF16) return false;
    v->job.dtype = PL_JOB_DTYPE_BF16;
    v->job.base_dtype = PL_BASE_AUTO;
    snprintf(text, size, "dtype: bf16%s", given ? ", base_dtype: auto" : "");
    return true;
}

static bool no_master(struct pl_variant *v, char *text, size_t size) {
    if (!trains_weights(v) || v->job.dtype != PL_JOB_DTYPE_BF16 ||
        v->job.master_weights == PL_TRI_FALSE)
        return false;
    v->job.master_weights = PL_TRI_FALSE;
    snprintf(text, size, "master_weights: false");
    return true;
}

/* A head that is the embedding is quantised with it. */
static bool quantise_vocabulary(struct pl_variant *v, char *text, size_t size) {
    const bool embedding =
        !v->job.quantize_embedding && v->job.embedding_device != PL_EMBEDDING_HOST;
    const bool head = !v->job.quantize_head && !v->q.model->tied;
    if (v->job.mode != PL_MODE_QLORA || v->job.lora_modules_to_save.n || !(embedding || head))
        return false;
    v->job.quantize_embedding |= embedding;
    v->job.quantize_head |= head;
    snprintf(text, size, "%s%s%s", embedding ? "quantize_embedding: true" : "",
             embedding && head ? ", " : "", head ? "quantize_head: true" : "");
    return true;
}

static bool bf16_adapters(struct pl_variant *v, char *text, size_t size) {
    if (!pl_mode_adapts(v->job.mode) || v->job.inference || v->job.dtype != PL_JOB_DTYPE_BF16 ||
        v->job.adapter_dtype == PL_ADAPTER_BF16)
        return false;
    v->job.adapter_dtype = PL_ADAPTER_BF16;
    snprintf(text, size, "adapter_dtype: bf16");
    return true;
}

static bool half_length(struct pl_variant *v, char *text, size_t size) {
    if (v->job.max_seq_length < 4) return false;
    v->job.max_seq_length /= 2;
    snprintf(text, size, "max_seq_length: %u", v->job.max_seq_length);
    return true;
}

static bool half_rank(struct pl_variant *v, char *text, size_t size) {
    if (!pl_mode_adapts(v->job.mode) || v->job.inference || v->job.lora_r < 8) return false;
    v->job.lora_r /= 2;
    snprintf(text, size, "lora_r: %u", v->job.lora_r);
    return true;
}

static bool adapters_alone(struct pl_variant *v, char *text, size_t size) {
    if (v->job.lora_modules_to_save.n == 0 || v->job.inference) return false;
    v->job.lora_modules_to_save.n = 0; /* the copy's own count; the names stay the job's */
    snprintf(text, size, "lora_modules_to_save: []");
    return true;
}

static bool freeze_half(struct pl_variant *v, char *text, size_t size) {
    if (v->job.mode != PL_MODE_FULL || v->job.freeze_layers >= v->q.model->layers / 2) return false;
    v->job.freeze_layers = (uint32_t)(v->q.model->layers / 2);
    snprintf(text, size, "freeze_layers: %u", v->job.freeze_layers);
    return true;
}

/* Of optimizers with moments of fp32. */
static bool bf16_moments(struct pl_variant *v, char *text, size_t size) {
    const struct pl_state *first = pl_optimizer_row(v->job.optimizer)->states;
    if (!trains_weights(v) || v->job.dtype != PL_JOB_DTYPE_BF16 || !first->name ||
        first->form->dtype != PL_DTYPE_F32 || v->job.moment_dtype == PL_MOMENT_BF16)
        return false;
    v->job.moment_dtype = PL_MOMENT_BF16;
    snprintf(text, size, "moment_dtype: bf16");
    return true;
}

static bool small_states(struct pl_variant *v, char *text, size_t size) {
    const uint32_t lighter = pl_optimizer_row(v->job.optimizer)->lighter;
    if (v->job.optimizer == lighter || v->job.inference) return false;
    v->job.optimizer = lighter;
    snprintf(text, size, "optimizer: %s", pl_optimizer_row(lighter)->name);
    return true;
}

static bool use_lora(struct pl_variant *v, char *text, size_t size) {
    if (pl_mode_adapts(v->job.mode) || v->job.inference ||
        v->job.freeze_layers >= v->q.model->layers)
        return false;
    v->job.mode = PL_MODE_LORA;
    snprintf(text, size, "mode: lora");
    return true;
}

static bool use_qlora(struct pl_variant *v, char *text, size_t size) {
    if (v->job.mode == PL_MODE_QLORA || v->job.freeze_layers >= v->q.model->layers) return false;
    v->job.mode = PL_MODE_QLORA;
    v->job.given[PL_KEY_quant_type] |= v->job.inference; /* what its mode follows from */
    snprintf(text, size, v->job.inference ? "quant_type: nf4" : "mode: qlora");
    return true;
}

/* Of the changes of one key only the last counts: a combination shows no other. */
enum key {
    KEY_OWN,
    KEY_RECOMPUTE,
    KEY_BATCH,
    KEY_OFFLOAD,
    KEY_STORAGE,
    KEY_STATES,
    KEY_GRADIENTS,
    KEY_MODE
};

/* Cheaper than `full` in time: worth a row where that is enough. */
static bool only_if_it_fits(remedy_fn f) {
    return f == recompute_light || f == recompute_attention || f == recompute_mlp;
}

static const struct {
    remedy_fn apply;
    enum key key;
} remedies[] = {
    {recompute_light, KEY_RECOMPUTE},
    {recompute_attention, KEY_RECOMPUTE},
    {recompute_mlp, KEY_RECOMPUTE},
    {recompute_all, KEY_RECOMPUTE},
    {chunk_loss, KEY_OWN},
    {chunk_mlp, KEY_OWN},
    {unpack_in_panels, KEY_OWN},
    {in_backward, KEY_GRADIENTS},
    {half_batch, KEY_BATCH},
    {batch_of_one, KEY_BATCH},
    {offload_kept, KEY_RECOMPUTE},
    {offload_states, KEY_OFFLOAD},
    {weights_in_parts, KEY_OWN},
    {embedding_on_host, KEY_OWN},
    {offload_all, KEY_OFFLOAD},
    {bf16_gradients, KEY_OWN},
    {bf16_base, KEY_STORAGE},
    {bf16_storage, KEY_STORAGE},
    {no_master, KEY_OWN},
    {bf16_adapters, KEY_OWN},
    {bf16_moments, KEY_STATES},
    {small_states, KEY_STATES},
    {quantise_vocabulary, KEY_OWN},
    {half_length, KEY_OWN},
    {half_rank, KEY_OWN},
    {adapters_alone, KEY_OWN},
    {freeze_half, KEY_OWN},
    {use_lora, KEY_MODE},
    {use_qlora, KEY_MODE},
};
#define TEXT_SIZE  (sizeof((struct pl_remedy){0}).change)
#define N_REMEDIES (sizeof remedies / sizeof *remedies)
_Static_assert(N_REMEDIES + 1 <= PL_MAX_REMEDIES, "room for every row and the combination");

/* What every row is compared with. */
struct start {
    const struct pl_question *q;
    uint64_t needed_bytes;
    struct pl_trials *trials;
};

/* `sharding: auto`, which was decided for the job without the change. */
static pl_err decide_sharding(struct pl_variant *v, struct pl_diag *d) {
    struct pl_question open = v->q;
    if (v->job.given[PL_KEY_sharding] || pl_job_ranks(&v->job) == 1) return PL_ERR_OK;
    v->job.sharding = PL_SHARDING_AUTO;
    pl_question_open(&open, &v->job, v->q.model);
    open.batch_size = v->q.batch_size;
    return pl_sharding_decide(&open, &v->job.sharding, NULL, d);
}

/* As it comes out where the change is typed: what the job leaves open is decided with it. */
static pl_err price(const struct start *from, const struct pl_question *q, struct pl_remedy *r,
                    struct pl_diag *d) {
    struct pl_variant v;
    pl_variant_of(&v, q);
    PL_TRY(decide_sharding(&v, d));
    struct pl_question again = v.q;
    PL_TRY(pl_decide_again(&again, 0, from->trials, d));
    const struct pl_plan *plan = from->trials->held.plan;
    const struct pl_verdict judged = pl_gate_judge(plan, &again);
    r->total_bytes = judged.needed_bytes;
    r->saves_bytes = (int64_t)(from->needed_bytes - judged.needed_bytes);
    r->host_bytes = pl_plan_host_placed(plan);
    r->verdict = judged.kind;
    r->fits = judged.kind == PL_VERDICT_FITS;
    return PL_ERR_OK;
}

/* Of a question for which the inputs of all layers in host memory are enough, as *r says: the
 * fewest layers that are, with the others at `full`. Where `full` itself is, all stay there. */
static pl_err lessen_offload(const struct start *from, const struct pl_question *all, char *text,
                             struct pl_remedy *r, struct pl_diag *d) {
    const uint32_t layers = (uint32_t)all->model->layers;
    uint32_t too_few = 0, enough = layers;
    struct pl_remedy trial = *r;
    struct pl_variant v;
    pl_variant_of(&v, all);
    v.job.gradient_checkpointing = PL_RECOMPUTE_FULL;
    PL_TRY(price(from, &v.q, &trial, d));
    if (trial.fits) return PL_ERR_OK;
    while (enough - too_few > 1) {
        const uint32_t k = too_few + (enough - too_few) / 2;
        v.job.gradient_checkpointing = PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, k, PL_RECOMPUTE_FULL);
        PL_TRY(price(from, &v.q, &trial, d));
        *(trial.fits ? &enough : &too_few) = k;
        if (trial.fits) *r = trial;
    }
    if (enough < layers)
        name_level(PL_RECOMPUTE_MIX(PL_RECOMPUTE_OFFLOAD, enough, PL_RECOMPUTE_FULL), text,
                   TEXT_SIZE);
    return PL_ERR_OK;
}

/* The rows alone, in the order of the table; no text: the row does not apply. */
static pl_err price_each(const struct start *from, struct pl_remedy alone[N_REMEDIES],
                         struct pl_diag *d) {
    for (size_t i = 0; i < N_REMEDIES; i++) {
        struct pl_variant v;
        pl_variant_of(&v, from->q);
        alone[i] = (struct pl_remedy){0};
        if (!remedies[i].apply(&v, alone[i].change, sizeof alone[i].change)) continue;
        PL_TRY(price(from, &v.q, &alone[i], d));
        if (remedies[i].apply == offload_kept && alone[i].fits)
            PL_TRY(lessen_offload(from, &v.q, alone[i].change, &alone[i], d));
    }
    return PL_ERR_OK;
}

/* Takes back what a later change of the same key replaces, or leaves without a meaning. */
static void supersede(bool taken[N_REMEDIES], size_t by) {
    const enum key key = remedies[by].key;
    const bool keeps = key == KEY_BATCH || key == KEY_MODE || remedies[by].apply == offload_all;
    for (size_t i = 0; i < by; i++)
        if ((key != KEY_OWN && remedies[i].key == key) ||
            (keeps && remedies[i].key == KEY_GRADIENTS))
            taken[i] = false;
}

/* False when the words do not fit the row. */
static bool list_taken(const bool taken[N_REMEDIES], char text[N_REMEDIES][TEXT_SIZE],
                       struct pl_remedy *r) {
    size_t len = 0;
    for (size_t i = 0; i < N_REMEDIES; i++) {
        if (!taken[i]) continue;
        int n = snprintf(r->change + len, sizeof r->change - len, "%s%s", len ? ", " : "", text[i]);
        if (n < 0 || (size_t)n >= sizeof r->change - len) return false;
        len += (size_t)n;
    }
    return true;
}

/* Adds one change after another until it fits; kept only if it does. */
static pl_err combine(const struct start *from, const struct pl_remedy alone[N_REMEDIES],
                      struct pl_remedy *r, bool *useful, struct pl_diag *d) {
    struct pl_variant v, next;
    char text[N_REMEDIES][TEXT_SIZE];
    bool taken[N_REMEDIES] = {false}, any = false;
    *useful = false;
    pl_variant_of(&v, from->q);
    for (size_t i = 0; i < N_REMEDIES; i++) {
        pl_variant_of(&next, &v.q);
        struct pl_remedy step = alone[i]; /* as long as nothing was added before it */
        if (remedies[i].apply == half_batch || only_if_it_fits(remedies[i].apply) ||
            !remedies[i].apply(&next, text[i], sizeof text[i]))
            continue;
        if (any) PL_TRY(price(from, &next.q, &step, d));
        if (step.saves_bytes <= (any ? r->saves_bytes : 0) && !step.fits) continue;
        pl_variant_of(&v, &next.q);
        *r = step;
        any = taken[i] = true;
        supersede(taken, i);
        if (!r->fits) continue;
        for (size_t k = 0; k <= i; k++)
            if (taken[k] && remedies[k].apply == offload_kept)
                PL_TRY(lessen_offload(from, &v.q, text[k], r, d));
        *useful = list_taken(taken, text, r);
        return PL_ERR_OK;
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

/* Half of two samples, or of three, is one. */
static bool is_listed(const struct pl_remedy *r, uint32_t n, const char *change) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(r[i].change, change) == 0) return true;
    return false;
}

static pl_err list_remedies(const struct start *from, struct pl_remedy out[PL_MAX_REMEDIES],
                            uint32_t *n, struct pl_diag *d) {
    struct pl_remedy alone[N_REMEDIES];
    bool any_fits = false;
    *n = 0;
    PL_TRY(price_each(from, alone, d));
    for (size_t i = 0; i < N_REMEDIES; i++) {
        if (!alone[i].change[0] || (alone[i].saves_bytes <= 0 && !alone[i].fits)) continue;
        if (only_if_it_fits(remedies[i].apply) && !alone[i].fits) continue;
        if (is_listed(out, *n, alone[i].change)) continue;
        any_fits |= alone[i].fits;
        out[(*n)++] = alone[i];
    }
    if (!any_fits && from->q->budget.known) {
        bool useful;
        PL_TRY(combine(from, alone, &out[*n], &useful, d));
        if (useful) (*n)++;
    }
    fitting_first(out, *n);
    return PL_ERR_OK;
}

pl_err pl_gate_remedies(const struct pl_question *q, const struct pl_plan *plan,
                        struct pl_remedy out[PL_MAX_REMEDIES], uint32_t *n, struct pl_diag *d) {
    struct pl_trials trials = {0};
    const struct start from = {q, pl_gate_judge(plan, q).needed_bytes, &trials};
    pl_err err = list_remedies(&from, out, n, d);
    pl_trials_finish(&trials);
    return err;
}
