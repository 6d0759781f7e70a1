/* shape.c - from a job to the numbers that decide bytes. */
#include "estimator/card/cards.h"
#include "estimator/config/job_text.h"
#include "estimator/config/job_values.h"
#include "estimator/config/key_table.h"
#include "estimator/config/scalar.h"
#include "estimator/model/families.h"
#include "estimator/program/program.h"

#include <string.h>

/* Gradients of micro-batches, one after another, into one tensor. */
static bool adds_up_micro_batches(const struct pl_job *job, uint32_t batch_size) {
    return pl_job_accumulation(job, batch_size) > 1 || pl_job_orders_ranks(job) ||
           pl_job_prefers(job);
}

static bool computes_in_bf16(const struct pl_traits *traits) {
    return traits->backend != PL_BACKEND_CUDA || traits->sm >= PL_CARD_OLDEST_BF16_SM;
}

enum pl_dtype pl_job_dtype(const struct pl_job *job, const struct pl_model *m,
                           const struct pl_traits *traits) {
    if (job->dtype != PL_DTYPE_AUTO) return job->dtype;
    if (computes_in_bf16(traits)) return PL_DTYPE_BF16;
    return pl_family_get(m->family)->exceeds_fp16 ? PL_DTYPE_F32 : PL_DTYPE_F16;
}

enum pl_key_id pl_job_without_kernels(const struct pl_job *job, const struct pl_model *m,
                                      const struct pl_traits *traits) {
    if (!pl_traits_run(traits)) return PL_KEY_device;
    if (pl_model_widest_head(m) > pl_card_head_dim(traits->sm)) return PL_KEY_model;
    if (computes_in_bf16(traits)) return PL_KEY_COUNT;
    if (pl_job_dtype(job, m, traits) == PL_DTYPE_BF16) return PL_KEY_dtype;
    if (job->mode == PL_MODE_QLORA && job->compute_dtype == PL_DTYPE_BF16)
        return PL_KEY_compute_dtype;
    return pl_mode_adapts(job->mode) && job->adapter_dtype == PL_DTYPE_BF16 ? PL_KEY_adapter_dtype
                                                                            : PL_KEY_COUNT;
}

static enum pl_dtype gradient_dtype(const struct pl_job *job, enum pl_dtype dtype,
                                    uint32_t batch_size) {
    if (dtype == PL_DTYPE_F32 || dtype == PL_DTYPE_F16) return PL_DTYPE_F32;
    if (job->gradient_dtype != PL_DTYPE_AUTO) return job->gradient_dtype;
    const bool adds_up = adds_up_micro_batches(job, batch_size) || pl_job_is_of_ranks(job);
    return adds_up ? PL_DTYPE_F32 : dtype;
}

/* Gradients that the host updates with wait there; those that ranks exchange are gradients of the
 * step. What `auto` is, the budget decides (question.h). */
static enum pl_gradient_life gradient_life(const struct pl_job *job, const struct pl_job_shape *s) {
    if (job->optimizer_in_backward != PL_TRI_TRUE || job->mode != PL_MODE_FULL || job->inference ||
        s->update_on_host || pl_shape_is_of_ranks(s))
        return PL_GRADIENTS_OF_JOB;
    return pl_job_accumulation(job, (uint32_t)s->batch_size) > 1 ? PL_GRADIENTS_OF_STEP
                                                                 : PL_GRADIENTS_OF_UPDATE;
}

/* Values that are made at random are no codes of a file. */
enum pl_quant pl_job_quant(const struct pl_job *job, const struct pl_model *m) {
    static const enum pl_quant asked[] = {
        [PL_QUANT_TYPE_NF4] = PL_QUANT_NF4,
        [PL_QUANT_TYPE_FP4] = PL_QUANT_FP4,
        [PL_QUANT_TYPE_MXFP4] = PL_QUANT_MXFP4,
    };
    static const enum pl_quant held[] = {
        [PL_CODES_NONE] = PL_QUANT_NF4,
        [PL_CODES_NF4] = PL_QUANT_NF4,
        [PL_CODES_FP4] = PL_QUANT_FP4,
        [PL_CODES_MXFP4] = PL_QUANT_MXFP4,
    };
    const bool random = m->codes == PL_CODES_MXFP4 && job->init != PL_INIT_PRETRAINED;
    if (job->quant_type != PL_QUANT_TYPE_AUTO) return asked[job->quant_type];
    return random ? PL_QUANT_NF4 : held[m->codes];
}

static pl_err refuse_codes(const struct pl_job *job, enum pl_key_id key, const char *message,
                           const char *hint, struct pl_diag *d) {
    pl_job_error(job, key, PL_ERR_CONFIG_CONFLICT, d, "%s", message);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

/* The codes of MXFP4 are those of the experts of a file; other matrices have none. */
static pl_err check_mxfp4(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    if (job->mode != PL_MODE_QLORA || pl_job_quant(job, m) != PL_QUANT_MXFP4) return PL_ERR_OK;
    if (m->codes != PL_CODES_MXFP4)
        return refuse_codes(job, PL_KEY_quant_type,
                            "`quant_type: mxfp4`, but the files of this model hold no such codes",
                            "remove `quant_type`", d);
    if (job->init != PL_INIT_PRETRAINED)
        return refuse_codes(job, PL_KEY_quant_type,
                            "`quant_type: mxfp4` with values that are made at random",
                            "remove `quant_type`, or set `init: pretrained`", d);
    if (!job->quantize_head && !job->quantize_embedding) return PL_ERR_OK;
    return refuse_codes(job, job->quantize_head ? PL_KEY_quantize_head : PL_KEY_quantize_embedding,
                        "of this model the experts alone are held in 4 bits, in the MXFP4 codes of "
                        "its files",
                        "set `quant_type: nf4` to quantise all matrices", d);
}

/* A model whose files hold codes of bitsandbytes is trained on those codes as they are. MXFP4 is
 * read as values, too. */
static pl_err check_codes(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    pl_err err;
    if (pl_codes_are_values(m->codes)) return check_mxfp4(job, m, d);
    if (job->mode != PL_MODE_QLORA) {
        err = pl_diag_set(d, PL_ERR_MODEL_UNSUPPORTED,
                          "the weights of this model are 4-bit codes already");
        pl_diag_hint(d, "set `mode: qlora`, or use the unquantised model of the same name");
        return err;
    }
    const enum pl_quant held = m->codes == PL_CODES_NF4 ? PL_QUANT_NF4 : PL_QUANT_FP4;
    if (pl_job_quant(job, m) == held && m->nested_codes == job->double_quant) return PL_ERR_OK;
    err = pl_job_error(job, PL_KEY_quant_type, PL_ERR_CONFIG_CONFLICT, d,
                       "the weights of this model are %s codes with%s double quantisation",
                       pl_quant_name(held), m->nested_codes ? "" : "out");
    pl_diag_hint(d, "set `quant_type: %s` and `double_quant: %s`", pl_quant_name(held),
                 m->nested_codes ? "true" : "false");
    return err;
}

static pl_err check_head(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    if (!job->quantize_head || !m->tied) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_quantize_head, PL_ERR_CONFIG_CONFLICT, d,
                 "the output head of this model is its embedding");
    pl_diag_hint(d, "set `quantize_embedding: true` in place of `quantize_head`");
    return PL_ERR_CONFIG_CONFLICT;
}

bool pl_job_trains_embedding(const struct pl_job *job) {
    bool whole = false;
    if (job->inference) return false;
    if (!pl_mode_adapts(job->mode)) return job->mode == PL_MODE_FULL && !job->freeze_layers;
    for (uint32_t i = 0; i < job->lora_modules_to_save.n; i++) {
        const char *name = job->lora_modules_to_save.items[i], *end = strrchr(name, '.');
        whole = whole || strcmp(end ? end + 1 : name, "embed_tokens") == 0;
    }
    return whole;
}

/* Only an embedding in 16 bits or more that nothing but lookups read can wait for them in host
 * memory. */
static pl_err check_embedding(const struct pl_job *job, const struct pl_model *m,
                              struct pl_diag *d) {
    if (job->embedding_device == PL_EMBEDDING_HOST && job->quantize_embedding) {
        pl_job_error(job, PL_KEY_quantize_embedding, PL_ERR_CONFIG_CONFLICT, d,
                     "`quantize_embedding` with `embedding_device: host`");
        pl_diag_hint(d, "remove one of them: an embedding in host memory takes none of the GPU's");
        return PL_ERR_CONFIG_CONFLICT;
    }
    bool trained = pl_job_trains_embedding(job);
    if (job->embedding_device != PL_EMBEDDING_HOST || !(m->tied || trained)) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_embedding_device, PL_ERR_CONFIG_CONFLICT, d,
                 "`embedding_device: host`, but the embedding is %s",
                 m->tied ? "the output layer too" : "trained");
    pl_diag_hint(d, m->tied                     ? "remove `embedding_device`"
                    : job->mode == PL_MODE_FULL ? "freeze it with `freeze_layers`, or choose an "
                                                  "`offload`"
                                                : "take `embed_tokens` out of "
                                                  "`lora_modules_to_save`, or choose an `offload`");
    return PL_ERR_CONFIG_CONFLICT;
}

/* Adapters need a layer to sit in; without any, `mode: full` still trains the last norm. */
static pl_err check_freeze(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    const unsigned long long most = pl_mode_adapts(job->mode) ? m->layers - 1 : m->layers;
    if (job->freeze_layers <= most) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_freeze_layers, PL_ERR_CONFIG_RANGE, d,
                 "`freeze_layers` is %u: of the %llu layers of this model at most %llu can be "
                 "frozen",
                 job->freeze_layers, (unsigned long long)m->layers, most);
    pl_diag_hint(d, pl_mode_adapts(job->mode) ? "at least one layer must remain for adapters"
                                              : "lower `freeze_layers`");
    return PL_ERR_CONFIG_RANGE;
}

/* A table holds two sets of factors; with dynamic positions every length has a set of its own. */
static pl_err check_long(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    const struct pl_rope *rope = &m->rope[0];
    if (job->rope_long_from != PL_LONG_FROM_SAMPLE || rope->type != PL_ROPE_DYNAMIC ||
        job->inference || job->max_seq_length <= rope->original_max_positions)
        return PL_ERR_OK;
    pl_job_error(
        job, PL_KEY_rope_long_from, PL_ERR_CONFIG_CONFLICT, d,
        "`rope_long_from: sample` with the dynamic positions of this model is not supported");
    pl_diag_hint(d,
                 "remove `rope_long_from`, or set `max_seq_length: %u`: positions of samples "
                 "up to there do not depend on lengths",
                 rope->original_max_positions);
    return PL_ERR_CONFIG_CONFLICT;
}

/* Positions of long samples then count from another row of the table, and those of a cache from 0.
 */
static pl_err check_samples(const struct pl_job *job, const struct pl_model *m, struct pl_diag *d) {
    const struct pl_rope *rope = &m->rope[0];
    if (!pl_job_samples(job) || job->rope_long_from != PL_LONG_FROM_SAMPLE ||
        rope->type != PL_ROPE_LONGROPE || job->max_seq_length <= rope->original_max_positions)
        return PL_ERR_OK;
    pl_job_error(job, PL_KEY_sample_prompts, PL_ERR_CONFIG_CONFLICT, d,
                 "`sample_prompts` with `rope_long_from: sample` is not supported");
    pl_diag_hint(d, "remove one of them: `plimsoll generate` answers prompts after the run");
    return PL_ERR_CONFIG_CONFLICT;
}

bool pl_job_base_may_be_narrow(const struct pl_job *job, const struct pl_traits *traits) {
    return (job->inference || pl_mode_adapts(job->mode)) && traits->backend != PL_BACKEND_CUDA;
}

/* Values that are made at random do not come in a type of their own. */
enum pl_dtype pl_job_base_dtype(const struct pl_job *job, const struct pl_model *m,
                                const struct pl_traits *traits) {
    const enum pl_dtype dtype = pl_job_dtype(job, m, traits);
    if (dtype != PL_DTYPE_F32 || !pl_job_base_may_be_narrow(job, traits)) return dtype;
    if (job->base_dtype != PL_DTYPE_AUTO) return job->base_dtype;
    const bool is_bf16 = strcmp(m->torch_dtype, "bfloat16") == 0;
    return job->init == PL_INIT_PRETRAINED && is_bf16 ? PL_DTYPE_BF16 : PL_DTYPE_F32;
}

static pl_err check_base(const struct pl_job *job, const struct pl_model *m,
                         const struct pl_traits *traits, struct pl_diag *d) {
    if (!pl_dtype_is_narrow(job->base_dtype) || traits->backend != PL_BACKEND_CUDA ||
        pl_job_dtype(job, m, traits) != PL_DTYPE_F32)
        return PL_ERR_OK;
    const char *name = pl_dtype_name(job->base_dtype);
    pl_job_error(job, PL_KEY_base_dtype, PL_ERR_CONFIG_CONFLICT, d,
                 "`base_dtype: %s` with `dtype: fp32`: a GPU multiplies numbers of one type", name);
    pl_diag_hint(d, "remove `base_dtype`, or set `dtype: %s`", name);
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err refuse_with_fp16(const struct pl_job *job, enum pl_key_id key, const char *why,
                               struct pl_diag *d) {
    struct pl_text value = {0};
    uint32_t n;
    pl_job_write_key(job, key, &value);
    const char *name = pl_key_table(&n)[key].key;
    pl_job_error(job, key, PL_ERR_CONFIG_CONFLICT, d, "`%s: %s` with `dtype: fp16`: %s", name,
                 pl_text_str(&value), why);
    pl_diag_hint(d, "remove `%s`, or set `dtype: bf16`, where the device has it", name);
    pl_text_finish(&value);
    return PL_ERR_CONFIG_CONFLICT;
}

/* Gradients are scaled, and overflow in fp16 unless they are small: what is learnt stays fp32. No
 * product takes fp16 and bf16. */
static pl_err check_fp16(const struct pl_job *job, const struct pl_model *m,
                         const struct pl_traits *traits, struct pl_diag *d) {
    static const char mixed[] = "a product has no operands of both";
    const bool adapts = pl_mode_adapts(job->mode);
    const bool trains = !job->inference && (!adapts || job->lora_modules_to_save.n);
    if (pl_job_dtype(job, m, traits) != PL_DTYPE_F16) return PL_ERR_OK;
    if (trains && job->master_weights == PL_TRI_FALSE)
        return refuse_with_fp16(job, PL_KEY_master_weights,
                                "updates are smaller than the steps between fp16 numbers", d);
    if (trains && pl_dtype_is_narrow(job->gradient_dtype))
        return refuse_with_fp16(job, PL_KEY_gradient_dtype, "gradients of weights are fp32", d);
    if (adapts && job->adapter_dtype == PL_DTYPE_BF16)
        return refuse_with_fp16(job, PL_KEY_adapter_dtype, mixed, d);
    if (job->base_dtype == PL_DTYPE_BF16) return refuse_with_fp16(job, PL_KEY_base_dtype, mixed, d);
    if (job->mode == PL_MODE_QLORA && job->compute_dtype == PL_DTYPE_BF16)
        return refuse_with_fp16(job, PL_KEY_compute_dtype, mixed, d);
    return PL_ERR_OK;
}

static struct pl_target_names names_of(const struct pl_str_list *list) {
    return (struct pl_target_names){(const char *const *)list->items, list->n};
}

static pl_err choose_layers(const struct pl_job *job, const struct pl_model *m,
                            struct pl_target_choice *c, struct pl_diag *d) {
    const struct pl_str_list *list = &job->layers_to_transform;
    c->some_layers = list->n > 0;
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t layer;
        char buf[PL_EXCERPT_BYTES];
        if (pl_scalar_int(list->items[i], &layer) == PL_INT_OK && layer < m->layers) {
            pl_target_choose_layer(c, layer);
            continue;
        }
        pl_job_error(job, PL_KEY_layers_to_transform, PL_ERR_CONFIG_RANGE, d,
                     "`layers_to_transform`: this model has no layer %s",
                     pl_scalar_excerpt(list->items[i], buf));
        pl_diag_hint(d, "its layers are 0 to %llu", (unsigned long long)m->layers - 1);
        return PL_ERR_CONFIG_RANGE;
    }
    return PL_ERR_OK;
}

/* Only the model knows which modules there are; only the job knows where they were named. */
static pl_err find_targets(const struct pl_job *job, const struct pl_model *m,
                           struct pl_targets *out, struct pl_diag *d) {
    static const enum pl_key_id keys[] = {
        [PL_TARGET_MODULES] = PL_KEY_lora_target_modules,
        [PL_TARGET_PARAMETERS] = PL_KEY_lora_target_parameters,
        [PL_TARGET_EXCLUDED] = PL_KEY_lora_exclude_modules,
        [PL_TARGET_LISTS] = PL_KEY_layers_pattern,
        [PL_TARGET_LAYERS] = PL_KEY_layers_to_transform,
        [PL_TARGET_WHOLE] = PL_KEY_lora_modules_to_save,
    };
    struct pl_target_choice c = {.modules = names_of(&job->lora_target_modules),
                                 .parameters = names_of(&job->lora_target_parameters),
                                 .excluded = names_of(&job->lora_exclude_modules),
                                 .lists = names_of(&job->layers_pattern),
                                 .whole = names_of(&job->lora_modules_to_save),
                                 .of_file = job->inference};
    enum pl_target_field wrong;
    struct pl_diag why = {0};
    PL_TRY(choose_layers(job, m, &c, d));
    pl_err err = pl_targets_find(m, &c, out, &wrong, &why);
    if (err == PL_ERR_OK) return err;
    pl_job_error(job, keys[wrong], err, d, "%s", why.message);
    pl_diag_hint(d, "%s", why.hint);
    return err;
}

/* True if a set has a row of the slot. */
static bool has_slot(const struct pl_model *m, pl_row_set set, enum pl_slot slot) {
    struct pl_param_row rows[PL_MODEL_MAX_ROWS];
    if (!set) return false;
    uint32_t n = pl_model_modules(m, rows);
    for (uint32_t r = 0; r < n; r++)
        if (rows[r].slot == slot && pl_row_set_has(set, r)) return true;
    return false;
}

bool pl_shape_is_whole(const struct pl_job_shape *s, const struct pl_model *m, enum pl_slot slot) {
    return has_slot(m, s->lora_targets.whole, slot);
}

bool pl_shape_adapts(const struct pl_job_shape *s, const struct pl_model *m, enum pl_slot slot) {
    return has_slot(m, s->lora_targets.once, slot);
}

static pl_err refuse_whole(const struct pl_job *job, struct pl_diag *d, const char *message,
                           const char *hint) {
    pl_job_error(job, PL_KEY_lora_modules_to_save, PL_ERR_CONFIG_CONFLICT, d, "%s", message);
    pl_diag_hint(d, "%s", hint);
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err check_whole(const struct pl_job *job, const struct pl_model *m,
                          const struct pl_job_shape *s, struct pl_diag *d) {
    if (job->freeze_layers && pl_shape_is_whole(s, m, PL_SLOT_EMBED))
        return refuse_whole(job, d,
                            "`lora_modules_to_save` trains the embedding, and `freeze_layers` "
                            "freezes it",
                            "remove `freeze_layers`: `layers_to_transform` chooses layers too");
    if (job->quantize_head && pl_shape_is_whole(s, m, PL_SLOT_HEAD))
        return refuse_whole(job, d,
                            "`lora_modules_to_save` trains the head, and `quantize_head` keeps it "
                            "in 4 bits",
                            "remove `quantize_head`");
    if (job->quantize_embedding && pl_shape_is_whole(s, m, PL_SLOT_EMBED))
        return refuse_whole(job, d,
                            "`lora_modules_to_save` trains the embedding, and `quantize_embedding` "
                            "keeps it in 4 bits",
                            "remove `quantize_embedding`");
    return PL_ERR_OK;
}

/* Masks are drawn by a sample's own positions. The head sees rows gathered from all samples, and
 * experts see theirs sorted. */
static pl_err check_dropout(const struct pl_job *job, const struct pl_model *m,
                            const struct pl_job_shape *s, struct pl_diag *d) {
    if (job->lora_dropout == 0 || job->inference) return PL_ERR_OK;
    if (has_slot(m, s->lora_targets.rows, PL_SLOT_EXPERT_GU) ||
        has_slot(m, s->lora_targets.rows, PL_SLOT_EXPERT_DOWN)) {
        pl_job_error(job, PL_KEY_lora_dropout, PL_ERR_CONFIG_CONFLICT, d,
                     "`lora_dropout` with adapters on experts is not supported");
        pl_diag_hint(d, "remove `lora_dropout`: PEFT refuses it for `target_parameters` as well");
        return PL_ERR_CONFIG_CONFLICT;
    }
    if (!pl_shape_adapts(s, m, PL_SLOT_HEAD)) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_lora_dropout, PL_ERR_CONFIG_CONFLICT, d,
                 "`lora_dropout` with an adapter on `lm_head` is not supported");
    pl_diag_hint(d, "remove `lora_dropout`, or take `lm_head` out of `lora_target_modules`");
    return PL_ERR_CONFIG_CONFLICT;
}

static pl_err check_frozen_embedding(const struct pl_job *job, const struct pl_model *m,
                                     const struct pl_job_shape *s, struct pl_diag *d) {
    if (!job->freeze_layers || job->inference || !pl_shape_adapts(s, m, PL_SLOT_EMBED))
        return PL_ERR_OK;
    pl_job_error(job, PL_KEY_freeze_layers, PL_ERR_CONFIG_CONFLICT, d,
                 "`freeze_layers` with an adapter on `embed_tokens`");
    pl_diag_hint(d, "remove `freeze_layers`: `layers_to_transform` chooses layers too");
    return PL_ERR_CONFIG_CONFLICT;
}

/* Only where `layers_to_transform` and `freeze_layers` meet. */
static pl_err check_adapted(const struct pl_job *job, const struct pl_model *m,
                            const struct pl_job_shape *s, struct pl_diag *d) {
    bool some = s->lora_targets.once != 0;
    for (uint64_t l = 0; l < m->layers && !some; l++)
        some = pl_shape_adapted_rows(s, l) != 0;
    if (some) return PL_ERR_OK;
    pl_job_error(job, PL_KEY_freeze_layers, PL_ERR_CONFIG_CONFLICT, d,
                 "`freeze_layers: %u` freezes every layer that has modules to adapt",
                 job->freeze_layers);
    pl_diag_hint(d, "remove `freeze_layers`, or choose other layers");
    return PL_ERR_CONFIG_CONFLICT;
}

/* Narrow adapters round stochastically unless a master is asked for. */
static void choose_masters(const struct pl_job *job, struct pl_job_shape *s) {
    const uint32_t asked = job->inference ? PL_TRI_FALSE : job->master_weights;
    s->master_weights = pl_dtype_is_narrow(s->dtype) && asked != PL_TRI_FALSE;
    s->adapter_masters = pl_dtype_is_narrow(s->adapter_dtype) && asked == PL_TRI_TRUE;
}

/* Under `auto` ranks hold parts of all that they can, but for weights. */
static void choose_ranks(const struct pl_job *job, struct pl_job_shape *s) {
    s->ranks = job->inference ? 1 : pl_job_ranks(job);
    s->sharding = PL_SHARDING_NONE;
    if (s->ranks > 1) s->sharding = job->sharding;
    s->rank_order = !job->inference && pl_job_orders_ranks(job);
    if (s->sharding == PL_SHARDING_AUTO)
        s->sharding = pl_shape_exchanges_once(s) ? PL_SHARDING_OPTIMIZER : PL_SHARDING_GRADIENTS;
}

pl_err pl_job_shape_init(const struct pl_job *job, const struct pl_model *m,
                         const struct pl_traits *traits, uint32_t batch_size,
                         struct pl_job_shape *out, struct pl_diag *d) {
    PL_TRY(check_codes(job, m, d));
    PL_TRY(check_head(job, m, d));
    PL_TRY(check_embedding(job, m, d));
    PL_TRY(check_freeze(job, m, d));
    PL_TRY(check_long(job, m, d));
    PL_TRY(check_samples(job, m, d));
    PL_TRY(check_base(job, m, traits, d));
    PL_TRY(check_fp16(job, m, traits, d));
    /* padding too: plans are told apart by the bytes of their shapes */
    memset(out, 0, sizeof *out);
    out->mode = job->mode;
    out->batch_size = batch_size;
    out->max_seq_length = job->max_seq_length;
    out->packing = job->packing;
    out->long_by_sample =
        job->rope_long_from == PL_LONG_FROM_SAMPLE && m->rope[0].type == PL_ROPE_LONGROPE;
    out->dtype = pl_job_dtype(job, m, traits);
    const enum pl_dtype base = pl_job_base_dtype(job, m, traits);
    out->base_dtype = base == out->dtype ? PL_DTYPE_F32 : base;
    out->adapter_dtype = job->adapter_dtype;
    out->gradient_dtype = gradient_dtype(job, out->dtype, batch_size);
    out->optimizer = job->optimizer;
    out->moment_dtype = job->moment_dtype;
    out->recompute = job->gradient_checkpointing == PL_RECOMPUTE_AUTO ? PL_RECOMPUTE_FULL
                                                                      : job->gradient_checkpointing;
    out->loss_chunk_tokens = job->loss_chunk_tokens;
    out->mlp_chunk_tokens = job->mlp_chunk_tokens == PL_AUTO ? 0 : job->mlp_chunk_tokens;
    if (job->mode == PL_MODE_QLORA && job->unpack_buffer != PL_AUTO_BYTES)
        out->unpack_bytes = job->unpack_buffer;
    out->keeps_unpacked =
        job->mode == PL_MODE_QLORA && !job->inference && job->keep_unpacked == PL_TRI_TRUE;
    out->quant = job->mode == PL_MODE_QLORA ? pl_job_quant(job, m) : PL_QUANT_NF4;
    out->double_quant = job->double_quant && pl_quant_has_absmax(out->quant);
    out->quantize_head = job->quantize_head;
    out->quantize_embedding = job->quantize_embedding;
    out->lora_r = job->lora_r;
    out->freeze_layers = job->freeze_layers;
    out->max_grad_norm = job->max_grad_norm;
    out->offload = pl_job_offload(job);
    out->embedding_on_host = job->embedding_device == PL_EMBEDDING_HOST;
    out->update_on_host = pl_job_updates_on_host(job);
    out->scored = pl_job_prefers(job);
    out->keeps_first_pass = out->scored && job->keep_first_pass == PL_TRI_TRUE;
    if (out->keeps_first_pass) out->batch_size = pl_job_whole_samples(job, batch_size);
    out->has_partners = out->scored && job->stage == PL_STAGE_KTO;
    out->weighs_rows = pl_job_weighs_rows(job);
    out->reference = pl_job_refers(job) && !pl_job_refers_to_start(job);
    out->eval = pl_job_evaluates(job) || out->scored;
    out->load = true;
    out->save = true;
    out->samples = pl_job_samples(job);
    choose_ranks(job, out);
    out->gradients = gradient_life(job, out);
    out->folds_gradients = !job->inference && pl_dtype_is_narrow(out->gradient_dtype) &&
                           adds_up_micro_batches(job, batch_size);
    if (job->inference) {
        out->inference = true;
        out->mlp_chunk_tokens = 0;
        out->eval = out->save = out->samples = out->packing = out->long_by_sample = false;
    }
    choose_masters(job, out);
    out->compute_dtype = job->compute_dtype == PL_DTYPE_AUTO ? out->dtype : job->compute_dtype;
    if (!pl_mode_adapts(job->mode) || (job->inference && !pl_job_names_adapter(job)))
        return PL_ERR_OK;
    out->lora_scale = pl_job_lora_scale(job);
    out->lora_dropout = job->lora_dropout;
    PL_TRY(find_targets(job, m, &out->lora_targets, d));
    PL_TRY(check_whole(job, m, out, d));
    PL_TRY(check_dropout(job, m, out, d));
    PL_TRY(check_frozen_embedding(job, m, out, d));
    return check_adapted(job, m, out, d);
}
