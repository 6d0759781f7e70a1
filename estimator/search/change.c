/* change.c - the conditions of the rows, and how a key is changed. */
#include "estimator/search/change.h"

#include "estimator/base/checked.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"

#include <stdio.h>
#include <string.h>

/* --- what model and job allow ---------------------------------------------------------------- */

static bool has_ranks(const struct pl_variant *v) {
    return pl_job_ranks(&v->job) > 1;
}

/* True if nothing but lookups reads the embedding, in 16 bits or more, and nothing trains it. */
static bool looks_up_alone(const struct pl_variant *v) {
    return !v->q.model->tied && !v->job.quantize_embedding && !pl_job_trains_embedding(&v->job);
}

/* True if a matrix can be quantised: the codes of a qlora base are not only those of files. */
static bool makes_codes(const struct pl_variant *v) {
    return pl_quant_has_absmax(pl_job_quant(&v->job, v->q.model));
}

/* True if other matrices than experts could be codes, too. */
static bool keeps_codes(const struct pl_variant *v) {
    return !makes_codes(v);
}

/* True if the head is not the embedding, with which it would be quantised. */
static bool has_own_head(const struct pl_variant *v) {
    return makes_codes(v) && !v->q.model->tied;
}

static bool may_round_base(const struct pl_variant *v) {
    return pl_job_base_may_be_narrow(&v->job, &v->q.traits);
}

/* True if the kernels of the device compute in bf16, or the CPU's. */
static bool may_be_bf16(const struct pl_variant *v) {
    struct pl_job job = v->job; /* shallow */
    job.dtype = PL_DTYPE_BF16;
    return pl_job_without_kernels(&job, v->q.model, &v->q.traits) != PL_KEY_dtype;
}

/* True if fp16 is what `dtype: auto` would be. */
static bool may_be_fp16(const struct pl_variant *v) {
    struct pl_job job = v->job; /* shallow */
    job.dtype = PL_DTYPE_AUTO;
    return pl_job_dtype(&job, v->q.model, &v->q.traits) == PL_DTYPE_F16;
}

static bool prefers(const struct pl_variant *v) {
    return pl_job_prefers(&v->job);
}

static bool trains_a_layer(const struct pl_variant *v) {
    return v->job.freeze_layers < v->q.model->layers;
}

/* True if the user asks for updates in the backward pass, which several micro-batches of a step
 * cannot have. */
static bool updates_by_request(const struct pl_job *job) {
    return job->optimizer_in_backward == PL_TRI_TRUE && job->given[PL_KEY_optimizer_in_backward];
}

static bool may_cut_step(const struct pl_variant *v) {
    return !updates_by_request(&v->job) || v->job.global_batch_size == PL_UNSET_U32;
}

/* --- what a remedy gives up ------------------------------------------------------------------ */

/* True if the level rebuilds more than the job does. Mixes are between two levels, so only `full`
 * and `offload` are more than any; neither MLP nor ATTENTION holds the other. */
static bool rebuilds_more(const struct pl_question *was, const struct pl_job *job) {
    const uint32_t now = pl_question_level(was), level = job->gradient_checkpointing;
    if (level == PL_RECOMPUTE_OFFLOAD) return now != PL_RECOMPUTE_OFFLOAD;
    if (level == PL_RECOMPUTE_FULL) return now != level && now != PL_RECOMPUTE_OFFLOAD;
    return now < level && !(now == PL_RECOMPUTE_MLP && level == PL_RECOMPUTE_ATTENTION);
}

/* True if a micro-batch has more samples than the batch size says, so that pairs are whole. */
static bool keeps_whole_pairs(const struct pl_question *was, const struct pl_job *job) {
    return pl_question_keeps(was) == PL_TRI_TRUE &&
           pl_job_whole_samples(job, was->batch_size) != was->batch_size;
}

static enum pl_dtype dtype_of(const struct pl_question *was, const struct pl_job *job) {
    return pl_job_dtype(job, was->model, &was->traits);
}

/* Returns the rows of logits that are held at one time; 0 where the job has no shape. */
static uint64_t chunk_of(const struct pl_question *q) {
    struct pl_job_shape shape;
    if (pl_question_shape(q, &shape, NULL) != PL_ERR_OK) return 0;
    return pl_program_chunk_tokens(&shape, q->model,
                                   (uint64_t)q->batch_size * q->job->max_seq_length);
}

static bool cuts_logits(const struct pl_question *was, const struct pl_job *job) {
    struct pl_question with = *was;
    with.job = job;
    return chunk_of(was) > chunk_of(&with);
}

/* `auto` has looked for a chunk that fits already. */
static bool cuts_mlp(const struct pl_question *was, const struct pl_job *job) {
    const uint32_t now = pl_question_mlp_chunk(was);
    return now != PL_AUTO && (!now || now > job->mlp_chunk_tokens);
}

/* `auto` has looked for panels that fit already. */
static bool cuts_copies(const struct pl_question *was, const struct pl_job *job) {
    const uint64_t now = pl_question_unpack(was);
    return now != PL_AUTO_BYTES && (!now || now > job->unpack_buffer);
}

/* `auto` keeps them only where they fit. */
static bool keeps_copies(const struct pl_question *was, const struct pl_job *job) {
    (void)job;
    return was->job->keep_unpacked == PL_TRI_TRUE;
}

/* True if a step is one micro-batch and its gradients are on the device. Under `auto` the job has
 * it already where that may be. */
static bool lets_gradients_go(const struct pl_question *was, const struct pl_job *with) {
    const struct pl_job *job = was->job;
    const bool cut = job->batch_size == PL_AUTO ? job->global_batch_size != PL_UNSET_U32
                                                : was->batch_size < job->batch_size;
    const bool has_auto = job->optimizer_in_backward == PL_TRI_AUTO && pl_question_may_let_go(was);
    return !cut && !has_auto && pl_job_accumulation(with, was->batch_size) <= 1 &&
           pl_job_offload(with) < PL_OFFLOAD_GRADIENTS && !pl_job_updates_on_host(with);
}

/* States of adapters are too few to be worth their copies. */
static bool offloads_first(const struct pl_question *was, const struct pl_job *job) {
    return pl_job_offload(was->job) == PL_OFFLOAD_NONE && !pl_job_is_of_ranks(job);
}

static bool offloads_more(const struct pl_question *was, const struct pl_job *job) {
    return pl_job_offload(was->job) != PL_OFFLOAD_WEIGHTS && !pl_job_is_of_ranks(job);
}

/* True if weights have just come to lie in parts, which are exchanged with every micro-batch. */
static bool orders_parts(const struct pl_question *was, const struct pl_job *job) {
    return job->sharding == PL_SHARDING_WEIGHTS && was->job->sharding != PL_SHARDING_WEIGHTS &&
           !pl_job_orders_ranks(was->job);
}

static bool computes_narrow(const struct pl_question *was, const struct pl_job *job) {
    return pl_dtype_is_narrow(dtype_of(was, job));
}

/* Gradients, masters and adapters of an fp16 job are fp32. */
static bool computes_in_bf16(const struct pl_question *was, const struct pl_job *job) {
    return dtype_of(was, job) == PL_DTYPE_BF16;
}

static bool has_wide_moments(const struct pl_question *was, const struct pl_job *job) {
    const struct pl_state *first = pl_optimizer_row(job->optimizer)->states;
    return computes_narrow(was, job) && first->name && first->form->dtype == PL_DTYPE_F32;
}

/* The weights of an fp32 checkpoint; of a bf16 one, back from `base_dtype: fp32`. */
static bool rounds_base(const struct pl_question *was, const struct pl_job *job) {
    return !pl_dtype_is_narrow(dtype_of(was, job)) &&
           !pl_dtype_is_narrow(pl_job_base_dtype(was->job, was->model, &was->traits));
}

/* True if the type of the base was written for a wider one of the job. */
static bool frees_base(const struct pl_question *was, const struct pl_job *job) {
    return pl_dtype_is_narrow(dtype_of(was, job)) && !pl_dtype_is_narrow(pl_question_dtype(was)) &&
           was->job->given[PL_KEY_base_dtype];
}

static bool adapts_alone(const struct pl_question *was, const struct pl_job *job) {
    (void)was;
    return job->lora_modules_to_save.n == 0;
}

static bool packs_embedding(const struct pl_question *was, const struct pl_job *job) {
    return adapts_alone(was, job) && job->embedding_device != PL_EMBEDDING_HOST;
}

static bool keeps_some_rank(const struct pl_question *was, const struct pl_job *job) {
    (void)was;
    return job->lora_r >= 4;
}

static bool keeps_two_tokens(const struct pl_question *was, const struct pl_job *job) {
    (void)was;
    return job->max_seq_length >= 2;
}

/* --- the rows -------------------------------------------------------------------------------- */

#define NEVER     0u
#define FULL      1u
#define ADAPTERS  2u
#define WHOLE     4u /* adapters, and modules that are trained whole with them */
#define QLORA     8u
#define GENERATES 16u /* as well: a job that trains nothing */
#define ANY       (FULL | ADAPTERS)

const struct pl_change pl_changes[] = {
#define PL_CHANGE(ID, name, HOW, text, SETTING, WAY)                                               \
    [PL_CHANGE_##ID].key = PL_KEY_##name, [PL_CHANGE_##ID].how = PL_HOW_##HOW,                     \
    [PL_CHANGE_##ID].value = text, [PL_CHANGE_##ID].settings = SETTING,                            \
    [PL_CHANGE_##ID].ways = WAY,
#define PL_MAY(ID, condition) [PL_CHANGE_##ID].may = condition,
#define PL_REMEDY(ID, place, JOBS, condition)                                                      \
    [PL_CHANGE_##ID].rank = place, [PL_CHANGE_##ID].remedies = JOBS,                               \
    [PL_CHANGE_##ID].helps = condition,
#define PL_ALSO(ID, OTHER) [PL_CHANGE_##ID].also = PL_CHANGE_##OTHER,
#include "estimator/search/change_rows.h"
};

static bool is_one_of(const struct pl_job *job, unsigned jobs) {
    if (job->inference && !(jobs & GENERATES)) return false;
    if (job->mode == PL_MODE_FULL) return jobs & FULL;
    return jobs & (ADAPTERS | (job->lora_modules_to_save.n ? WHOLE : 0) |
                   (job->mode == PL_MODE_QLORA ? QLORA : 0));
}

/* --- making one ------------------------------------------------------------------------------ */

static const char *name_of(enum pl_key_id key) {
    uint32_t n;
    return pl_key_table(&n)[key].key;
}

static pl_err set(struct pl_variant *v, enum pl_key_id key, const char *value) {
    char room[2][64];
    struct pl_text was = PL_TEXT_FIXED(room[0]), is = PL_TEXT_FIXED(room[1]);
    pl_job_write_key(&v->job, key, &was);
    PL_TRY(pl_job_set(&v->job, name_of(key), value, NULL));
    pl_job_write_key(&v->job, key, &is);
    const bool same = strcmp(pl_text_str(&was), pl_text_str(&is)) == 0;
    return same ? PL_ERR_CONFIG_CONFLICT : PL_ERR_OK;
}

/* The copy of a job owns none of its lists. */
static pl_err train_whole(struct pl_variant *v, uint32_t n) {
    static const char *const names[] = {"embed_tokens", "lm_head"};
    v->job.lora_modules_to_save = (struct pl_str_list){(char **)(uintptr_t)names, n};
    return PL_ERR_OK;
}

static pl_err freeze_half(struct pl_variant *v) {
    const uint32_t half = (uint32_t)(v->q.model->layers / 2);
    if (v->job.freeze_layers >= half) return PL_ERR_CONFIG_CONFLICT;
    return pl_change_put(v, PL_KEY_freeze_layers, half, NULL);
}

/* A step in several micro-batches keeps its gradients, but where the user asks for updates in the
 * backward pass. */
static pl_err cut_micro(struct pl_variant *v, uint32_t to) {
    if (to >= v->q.batch_size) return PL_ERR_CONFIG_CONFLICT;
    v->q.batch_size = to;
    if (!updates_by_request(&v->job)) v->job.optimizer_in_backward = PL_TRI_FALSE;
    return PL_ERR_OK;
}

static pl_err scale(struct pl_variant *v, enum pl_key_id key, bool up) {
    const uint32_t now = pl_change_get(&v->q, key);
    if (up ? now > UINT32_MAX / 2 : now < 2) return PL_ERR_CONFIG_RANGE;
    return pl_change_put(v, key, up ? now * 2 : now / 2, NULL);
}

pl_err pl_change_make(const struct pl_change *c, unsigned jobs, struct pl_variant *v) {
    const uint32_t optimizer = v->job.optimizer, batch = v->q.batch_size;
    if (!is_one_of(&v->job, jobs) || (c->may && !c->may(v))) return PL_ERR_CONFIG_CONFLICT;
    switch (c->how) {
    case PL_HOW_EVERY_CHOICE:
    case PL_HOW_SET:
        return set(v, c->key, c->value);
    case PL_HOW_LIGHTER:
        return set(v, c->key, pl_optimizer_row(pl_optimizer_row(optimizer)->lighter)->name);
    case PL_HOW_HALVE:
    case PL_HOW_DOUBLE:
        return scale(v, c->key, c->how == PL_HOW_DOUBLE);
    case PL_HOW_HALVE_MICRO:
        return batch > 3 ? cut_micro(v, batch / 2) : PL_ERR_CONFIG_RANGE;
    case PL_HOW_ONE_MICRO:
        return cut_micro(v, 1);
    case PL_HOW_HALF_THE_LAYERS:
        return freeze_half(v);
    case PL_HOW_NO_MODULES:
        return train_whole(v, 0);
    case PL_HOW_BOTH_MODULES:
        return train_whole(v, 2);
    }
    return PL_ERR_CONFIG_CONFLICT;
}

pl_err pl_change_made(pl_err made, const char *what, bool *has, struct pl_diag *d) {
    *has = made == PL_ERR_OK;
    return made == PL_ERR_HOST_OOM ? pl_host_oom(d, what) : PL_ERR_OK;
}

pl_err pl_change_planned(pl_err planned, const struct pl_diag *why, bool *has, struct pl_diag *d) {
    *has = planned == PL_ERR_OK;
    if (*has || planned == PL_ERR_CONFIG_CONFLICT || planned == PL_ERR_CONFIG_RANGE)
        return PL_ERR_OK;
    if (d) *d = *why;
    return planned;
}

void pl_change_write_key(const struct pl_question *q, enum pl_key_id key, struct pl_text *out) {
    struct pl_job job = *q->job; /* shallow */
    pl_question_settle(q, &job);
    job.batch_size = q->batch_size;
    pl_text_addf(out, "%s: ", name_of(key));
    pl_job_write_key(&job, key, out);
    if (key == PL_KEY_lora_modules_to_save && !job.lora_modules_to_save.n) pl_text_add(out, "[]");
}

/* A job that generates has no mode: it follows from how the weights are kept. */
void pl_change_write(const struct pl_change *c, const struct pl_question *q, struct pl_text *out) {
    const bool kept = q->job->inference && c->key == PL_KEY_mode;
    if (c->how == PL_HOW_SET && !kept)
        pl_text_addf(out, "%s: %s", name_of(c->key), c->value);
    else if (kept)
        pl_text_addf(out, "quant_type: %s", pl_quant_name(pl_job_quant(q->job, q->model)));
    else
        pl_change_write_key(q, c->key, out);
}

pl_err pl_change_put(struct pl_variant *v, enum pl_key_id key, uint32_t value, struct pl_diag *d) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    PL_TRY(pl_job_set(&v->job, name_of(key), text, d));
    if (key == PL_KEY_batch_size) v->q.batch_size = value;
    const uint64_t tokens = (uint64_t)v->q.batch_size * v->job.max_seq_length;
    if (tokens <= pl_question_most_tokens(&v->q)) return PL_ERR_OK;
    return pl_diag_set(d, PL_ERR_OVERFLOW, "%llu tokens in one micro-batch are too many",
                       (unsigned long long)tokens);
}

uint32_t pl_change_get(const struct pl_question *q, enum pl_key_id key) {
    if (key == PL_KEY_batch_size) return q->batch_size;
    return key == PL_KEY_lora_r ? q->job->lora_r : q->job->max_seq_length;
}

uint32_t pl_change_most(const struct pl_question *q, enum pl_key_id key) {
    const uint64_t most = pl_question_most_tokens(q);
    uint64_t bound = INT32_MAX;
    uint32_t n;
    if (key == PL_KEY_batch_size) bound = most / q->job->max_seq_length;
    if (key == PL_KEY_max_seq_length) bound = most / q->batch_size;
    return (uint32_t)pl_u64_min(bound, (uint64_t)pl_key_table(&n)[key].hi);
}
