/* families.c - the table of families, and the facts that only one of them has.
 * Defaults are those of transformers' configuration classes (LlamaConfig, Qwen2Config, ...).
 * Source of exceeds_fp16: activations of Gemma 3 27B reach 696,320 (arXiv 2605.15572). */
#include "estimator/model/families.h"
#include "estimator/base/text.h"

#include <math.h>
#include <string.h>

static void give_window(struct pl_model *m, uint64_t first, uint64_t window) {
    for (uint64_t i = first; i < m->layers; i++)
        m->layer[i].window = (uint32_t)window;
}

/* Never clamped to max_position_embeddings: sequences may be longer than that. */
static pl_err read_window(const struct pl_hf *h, uint64_t when_absent, uint64_t *window) {
    *window = pl_hf_absent(h, "sliding_window") ? when_absent : 0;
    if (pl_hf_given(h, "sliding_window"))
        PL_TRY(pl_hf_uint(h, "sliding_window", 1, PL_MODEL_MAX_POSITIONS, window));
    return PL_ERR_OK;
}

/* qwen2, qwen3 and smollm3 have windows only when use_sliding_window is true. */
static pl_err read_used_window(const struct pl_hf *h, uint64_t when_absent, uint64_t *window) {
    bool use = false;
    *window = 0;
    PL_TRY(pl_hf_bool_or(h, "use_sliding_window", &use));
    return use ? read_window(h, when_absent, window) : PL_ERR_OK;
}

/* One window for all layers. */
static pl_err read_common_window(const struct pl_hf *h, uint64_t when_absent, struct pl_model *m) {
    uint64_t window;
    bool given;
    PL_TRY(pl_model_read_layer_types(h, 0, m, &given));
    PL_TRY(read_window(h, when_absent, &window));
    if (!given) give_window(m, 0, window);
    return PL_ERR_OK;
}

/* The layers from max_window_layers on have the window, unless layer_types says otherwise. */
static pl_err read_qwen_windows(const struct pl_hf *h, struct pl_model *m) {
    uint64_t first = 28, window;
    bool given;
    PL_TRY(read_used_window(h, 4096, &window));
    if (window) PL_TRY(pl_hf_uint_or(h, "max_window_layers", 0, PL_MODEL_MAX_WIDTH, &first));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    if (!given) give_window(m, first, window);
    return PL_ERR_OK;
}

/* Classes that have no windows, or one for all layers, ignore the list: it must say the same. */
static pl_err llama_facts(const struct pl_hf *h, struct pl_model *m) {
    bool given;
    return pl_model_read_layer_types(h, 0, m, &given);
}

static pl_err qwen2_facts(const struct pl_hf *h, struct pl_model *m) {
    m->qkv_bias = true; /* Qwen2Attention has it whatever the file says; o_proj never */
    return read_qwen_windows(h, m);
}

static pl_err qwen3_facts(const struct pl_hf *h, struct pl_model *m) {
    m->qk_norm = true;
    return read_qwen_windows(h, m);
}

static pl_err mistral_facts(const struct pl_hf *h, struct pl_model *m) {
    return read_common_window(h, 4096, m);
}

static pl_err phi3_facts(const struct pl_hf *h, struct pl_model *m) {
    return read_common_window(h, 0, m);
}

/* no_rope_layers[i]: 1 = positions, 0 = none; else every no_rope_layer_interval-th has none. */
static pl_err smollm3_no_rope(const struct pl_hf *h, struct pl_model *m) {
    uint64_t interval = 4;
    PL_TRY(pl_hf_uint_or(h, "no_rope_layer_interval", 1, PL_MODEL_MAX_LAYERS, &interval));
    if (!pl_hf_given(h, "no_rope_layers")) {
        for (uint64_t i = 0; i < m->layers; i++)
            if ((i + 1) % interval == 0) m->layer[i].rope = PL_NO_ROPE;
        return PL_ERR_OK;
    }
    const json_t *list = json_object_get(h->object, "no_rope_layers"), *item;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) != m->layers)
        return pl_hf_refuse(h, "no_rope_layers", PL_ERR_MODEL_FIELD,
                            "expected a list of %llu entries, one per layer, got %llu",
                            (unsigned long long)m->layers,
                            (unsigned long long)json_array_size(list));
    json_array_foreach(list, i, item) {
        json_int_t v = json_is_boolean(item) ? json_is_true(item) : json_integer_value(item);
        if (!(json_is_integer(item) || json_is_boolean(item)) || v < 0 || v > 1)
            return pl_hf_refuse(h, "no_rope_layers", PL_ERR_MODEL_FIELD, "entry %zu is not 0 or 1",
                                i);
        if (!v) m->layer[i].rope = PL_NO_ROPE;
    }
    return PL_ERR_OK;
}

static pl_err smollm3_facts(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window;
    bool given;
    PL_TRY(smollm3_no_rope(h, m));
    PL_TRY(read_used_window(h, 0, &window));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    for (uint64_t i = 0; !given && i < m->layers; i++)
        if (m->layer[i].rope == PL_NO_ROPE) m->layer[i].window = (uint32_t)window;
    return PL_ERR_OK;
}

/* The class reads its settings from rope_parameters alone, and has none without them. */
static pl_err ministral3_facts(const struct pl_hf *h, struct pl_model *m) {
    struct pl_hf r = *h;
    PL_TRY(read_common_window(h, 0, m));
    r.object = json_object_get(h->object, "rope_parameters");
    r.prefix = "rope_parameters.";
    if (!json_is_object(r.object))
        return pl_hf_refuse(h, "rope_parameters", PL_ERR_MODEL_FIELD, "expected an object");
    return pl_hf_real(&r, "llama_4_scaling_beta", 0, 100, &m->rope[0].query_growth);
}

/* Layer i sees all positions if (i + 1) is a multiple of the pattern, unless layer_types says
 * otherwise; the others see those of the window, and turn by a rope of their own. */
static pl_err read_gemma3_layers(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window = 4096, pattern = 6;
    bool given;
    PL_TRY(pl_hf_uint_or(h, "sliding_window", 1, PL_MODEL_MAX_POSITIONS, &window));
    PL_TRY(pl_hf_uint_or(h, "sliding_window_pattern", 1, PL_MODEL_MAX_LAYERS, &pattern));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    for (uint64_t i = 0; i < m->layers; i++) {
        if (!given) m->layer[i].window = (i + 1) % pattern ? (uint32_t)window : 0;
        m->layer[i].rope = m->layer[i].window != 0;
    }
    return PL_ERR_OK;
}

static pl_err gemma3_facts(const struct pl_hf *h, struct pl_model *m) {
    double scalar = 256;
    m->qk_norm = m->unit_offset = true;
    for (uint64_t i = 0; i < m->layers; i++)
        m->layer[i].kind = PL_LAYER_FOUR_NORM;
    m->embed_scale = sqrt((double)m->hidden);
    PL_TRY(pl_hf_real_or(h, "query_pre_attn_scalar", 1e-6, 1e6, &scalar));
    m->score_scale = 1 / sqrt(scalar);
    PL_TRY(
        pl_hf_refuse_setting(h, "final_logit_softcapping", "capped logits are not computed here"));
    PL_TRY(
        pl_hf_refuse_setting(h, "use_bidirectional_attention", "only decoders are trained here"));
    return read_gemma3_layers(h, m);
}

/* The experts of published gpt_oss models are held in 4 bits (OCP Microscaling Formats, 5.3). */
static bool is_mxfp4(const struct pl_hf *h) {
    const json_t *q = json_object_get(h->object, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return method && strcmp(method, "mxfp4") == 0;
}

/* The numbers of experts, under any of their names. */
static pl_err read_expert_counts(const struct pl_hf *h, uint64_t n, uint64_t per_token,
                                 struct pl_model *m) {
    static const char *const names[] = {"num_experts", "num_local_experts"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        PL_TRY(pl_hf_uint_or(h, names[i], 1, PL_ROUTE_MAX_EXPERTS, &n));
    PL_TRY(pl_hf_uint_or(h, "experts_per_token", 1, n, &per_token));
    PL_TRY(pl_hf_uint_or(h, "num_experts_per_tok", 1, n, &per_token));
    m->experts.n = (uint32_t)n;
    m->experts.per_token = (uint32_t)per_token;
    return PL_ERR_OK;
}

/* The auxiliary loss counts only where the class returns the router's logits. */
static pl_err read_aux_loss(const struct pl_hf *h, double when_absent, struct pl_model *m) {
    bool adds = false;
    double coefficient = when_absent;
    PL_TRY(pl_hf_bool_or(h, "output_router_logits", &adds));
    PL_TRY(pl_hf_real_or(h, "router_aux_loss_coef", 0, 1e6, &coefficient));
    m->experts.aux_coefficient = adds ? coefficient : 0;
    return PL_ERR_OK;
}

static void give_experts(struct pl_model *m, uint64_t layer, uint64_t ffn) {
    m->layer[layer].kind = PL_LAYER_EXPERTS;
    m->layer[layer].ffn = (uint32_t)ffn;
}

/* Layer i has experts if (i + 1) is a multiple of the step and it is not among the dense ones. */
static pl_err read_sparse_layers(const struct pl_hf *h, struct pl_model *m) {
    uint64_t step = 1, ffn = 768;
    const json_t *dense = json_object_get(h->object, "mlp_only_layers"), *item;
    size_t k;
    PL_TRY(pl_hf_uint_or(h, "decoder_sparse_step", 1, PL_MODEL_MAX_LAYERS, &step));
    PL_TRY(pl_hf_uint_or(h, "moe_intermediate_size", 1, PL_MODEL_MAX_WIDTH, &ffn));
    for (uint64_t i = 0; i < m->layers; i++)
        if ((i + 1) % step == 0) give_experts(m, i, ffn);
    if (!pl_hf_given(h, "mlp_only_layers")) return PL_ERR_OK;
    if (!json_is_array(dense))
        return pl_hf_refuse(h, "mlp_only_layers", PL_ERR_MODEL_FIELD, "expected a list of layers");
    json_array_foreach(dense, k, item) {
        const json_int_t i = json_integer_value(item);
        if (!json_is_integer(item) || i < 0)
            return pl_hf_refuse(h, "mlp_only_layers", PL_ERR_MODEL_FIELD,
                                "entry %zu is no number of a layer", k);
        if ((uint64_t)i >= m->layers) continue;
        m->layer[i].kind = PL_LAYER_PRE_NORM;
        m->layer[i].ffn = (uint32_t)m->ffn;
    }
    return PL_ERR_OK;
}

static pl_err qwen3_moe_facts(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window;
    bool given;
    m->qk_norm = true;
    m->experts.softmax_first = true;
    PL_TRY(read_expert_counts(h, 128, 8, m));
    PL_TRY(pl_hf_bool_or(h, "norm_topk_prob", &m->experts.normalise));
    PL_TRY(read_aux_loss(h, 0.001, m));
    PL_TRY(read_sparse_layers(h, m));
    PL_TRY(pl_model_read_layer_types(h, 0, m, &given));
    PL_TRY(read_used_window(h, 4096, &window));
    if (!given) give_window(m, 0, window);
    return PL_ERR_OK;
}

/* Layers alternate, the first one with the window, unless layer_types says otherwise. */
static pl_err gpt_oss_facts(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window = 128;
    bool given;
    m->sinks = m->experts.biases = m->experts.fused = true;
    if (pl_hf_absent(h, "attention_bias")) m->qkv_bias = m->o_bias = true;
    m->experts.limit = 7;
    m->experts.alpha = 1.702;
    PL_TRY(read_expert_counts(h, 128, 4, m));
    PL_TRY(read_aux_loss(h, 0.001, m));
    PL_TRY(pl_hf_real_or(h, "swiglu_limit", 1e-6, 1e6, &m->experts.limit));
    PL_TRY(pl_hf_real_or(h, "swiglu_alpha", 1e-6, 1e6, &m->experts.alpha));
    PL_TRY(pl_hf_uint_or(h, "sliding_window", 1, PL_MODEL_MAX_POSITIONS, &window));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    for (uint64_t i = 0; i < m->layers; i++) {
        if (!given) m->layer[i].window = i % 2 ? 0 : (uint32_t)window;
        give_experts(m, i, m->ffn);
    }
    if (!pl_hf_given(h, "rope_parameters") && !pl_hf_given(h, "rope_scaling"))
        return pl_hf_refuse(h, "rope_scaling", PL_ERR_MODEL_FIELD, "expected an object");
    return PL_ERR_OK;
}

/* Layer i sees all positions if (i + 1) is a multiple of the pattern, unless layer_types says
 * otherwise. In a model with windows the layers without one have no positions. */
static pl_err exaone4_facts(const struct pl_hf *h, struct pl_model *m) {
    uint64_t window, pattern = 4;
    bool given;
    m->qk_norm = true;
    PL_TRY(read_window(h, 4096, &window));
    PL_TRY(pl_model_read_layer_types(h, window, m, &given));
    if (!given && window)
        PL_TRY(pl_hf_uint_or(h, "sliding_window_pattern", 1, PL_MODEL_MAX_LAYERS, &pattern));
    for (uint64_t i = 0; i < m->layers; i++) {
        m->layer[i].kind = PL_LAYER_POST_NORM;
        if (!given && (i + 1) % pattern != 0) m->layer[i].window = (uint32_t)window;
        if (window && !m->layer[i].window) m->layer[i].rope = PL_NO_ROPE;
    }
    return PL_ERR_OK;
}

#define ROPE_COMMON                                                                                \
    (PL_ROPE_BIT_DEFAULT | PL_ROPE_BIT_LINEAR | PL_ROPE_BIT_LLAMA3 | PL_ROPE_BIT_YARN |            \
     PL_ROPE_BIT_DYNAMIC)
#define ROPE_PHI3 (PL_ROPE_BIT_DEFAULT | PL_ROPE_BIT_LONGROPE)

static const struct pl_family_row families[PL_FAMILY_COUNT] = {
    [PL_FAMILY_LLAMA] = {.name = "llama",
                         .class = "LlamaForCausalLM",
                         .gguf = "llama",
                         .gguf_interleaves = true,
                         .max_positions = 2048,
                         .rms_eps = 1e-6,
                         .theta = 1e4,
                         .bos = 1,
                         .eos = 2,
                         .pad = -1,
                         .reads_attention_bias = true,
                         .reads_mlp_bias = true,
                         .rope_types = ROPE_COMMON,
                         .facts = llama_facts},
    [PL_FAMILY_QWEN2] = {.name = "qwen2",
                         .class = "Qwen2ForCausalLM",
                         .gguf = "qwen2",
                         .kv_heads = 32,
                         .max_positions = 32768,
                         .rms_eps = 1e-6,
                         .theta = 1e4,
                         .bos = -1,
                         .eos = -1,
                         .pad = -1,
                         .rope_types = ROPE_COMMON,
                         .facts = qwen2_facts},
    [PL_FAMILY_QWEN3] = {.name = "qwen3",
                         .class = "Qwen3ForCausalLM",
                         .gguf = "qwen3",
                         .kv_heads = 32,
                         .head_dim = 128,
                         .max_positions = 32768,
                         .rms_eps = 1e-6,
                         .theta = 1e4,
                         .bos = -1,
                         .eos = -1,
                         .pad = -1,
                         .reads_attention_bias = true,
                         .rope_types = ROPE_COMMON,
                         .facts = qwen3_facts},
    [PL_FAMILY_MISTRAL] = {.name = "mistral",
                           .class = "MistralForCausalLM",
                           .gguf = "llama",
                           .gguf_interleaves = true,
                           .kv_heads = 8,
                           .max_positions = 131072,
                           .rms_eps = 1e-6,
                           .theta = 1e4,
                           .bos = 1,
                           .eos = 2,
                           .pad = -1,
                           .rope_types = ROPE_COMMON,
                           .facts = mistral_facts},
    [PL_FAMILY_PHI3] = {.name = "phi3",
                        .class = "Phi3ForCausalLM",
                        .gguf = "phi3",
                        .max_positions = 4096,
                        .rms_eps = 1e-5,
                        .theta = 1e4,
                        .bos = 1,
                        .eos = 32000,
                        .pad = 32000,
                        .partial_rotary = true,
                        .rope_types = ROPE_PHI3,
                        .facts = phi3_facts},
    [PL_FAMILY_SMOLLM3] = {.name = "smollm3",
                           .class = "SmolLM3ForCausalLM",
                           .gguf = "smollm3",
                           .gguf_interleaves = true,
                           .kv_heads = 4,
                           .max_positions = 32768,
                           .rms_eps = 1e-6,
                           .theta = 2e6,
                           .tied = true,
                           .bos = 128000,
                           .eos = 128001,
                           .pad = 128004,
                           .reads_attention_bias = true,
                           .reads_mlp_bias = true,
                           .rope_types = ROPE_COMMON,
                           .facts = smollm3_facts},
    [PL_FAMILY_MINISTRAL3] = {.name = "ministral3",
                              .class = "Ministral3ForCausalLM",
                              .gguf = "mistral3",
                              .gguf_interleaves = true,
                              .kv_heads = 8,
                              .head_dim = 128,
                              .max_positions = 262144,
                              .rms_eps = 1e-5,
                              .theta = 1e6,
                              .bos = 1,
                              .eos = 2,
                              .pad = 11,
                              .rope_types = PL_ROPE_BIT_YARN,
                              .facts = ministral3_facts},
    [PL_FAMILY_GEMMA3] = {.name = "gemma3_text",
                          .class = "Gemma3ForCausalLM",
                          .gguf = "gemma3",
                          .heads = 8,
                          .vocab = 262208,
                          .kv_heads = 4,
                          .head_dim = 256,
                          .max_positions = 131072,
                          .rms_eps = 1e-6,
                          .theta = 1e6,
                          .local_theta = 1e4,
                          .tied = true,
                          .bos = 2,
                          .eos = 1,
                          .pad = 0,
                          .reads_attention_bias = true,
                          .activation = PL_ACTIVATION_GELU_TANH,
                          .activation_key = "hidden_activation",
                          .rope_types = ROPE_COMMON,
                          .exceeds_fp16 = true,
                          .facts = gemma3_facts},
    [PL_FAMILY_QWEN3_MOE] = {.name = "qwen3_moe",
                             .class = "Qwen3MoeForCausalLM",
                             .kv_heads = 4,
                             .max_positions = 32768,
                             .rms_eps = 1e-6,
                             .theta = 1e4,
                             .bos = -1,
                             .eos = -1,
                             .pad = -1,
                             .reads_attention_bias = true,
                             .rope_types = ROPE_COMMON,
                             .facts = qwen3_moe_facts},
    [PL_FAMILY_GPT_OSS] = {.name = "gpt_oss",
                           .class = "GptOssForCausalLM",
                           .kv_heads = 8,
                           .head_dim = 64,
                           .max_positions = 131072,
                           .rms_eps = 1e-5,
                           .theta = 150000,
                           .bos = -1,
                           .eos = 200002,
                           .pad = 199999,
                           .reads_attention_bias = true,
                           .rope_types = ROPE_COMMON,
                           .exceeds_fp16 = true,
                           .facts = gpt_oss_facts},
    [PL_FAMILY_QWEN3_5] = {.name = "qwen3_5_text",
                           .class = "Qwen3_5ForCausalLM",
                           .heads = 16,
                           .kv_heads = 4,
                           .head_dim = 256,
                           .max_positions = 32768,
                           .rms_eps = 1e-6,
                           .theta = 1e4,
                           .bos = -1,
                           .eos = -1,
                           .pad = -1,
                           .reads_attention_bias = true,
                           .partial_rotary = true,
                           .rotary_share = 0.25,
                           .rope_types = ROPE_COMMON,
                           .facts = pl_qwen3_5_facts},
    [PL_FAMILY_GEMMA4] = {.name = "gemma4_text",
                          .class = "Gemma4ForCausalLM",
                          .heads = 8,
                          .vocab = 262144,
                          .kv_heads = 4,
                          .head_dim = 256,
                          .max_positions = 131072,
                          .rms_eps = 1e-6,
                          .theta = 1e6,
                          .local_theta = 1e4,
                          .tied = true,
                          .bos = 2,
                          .eos = 1,
                          .pad = 0,
                          .activation = PL_ACTIVATION_GELU_TANH,
                          .activation_key = "hidden_activation",
                          .rope_types = PL_ROPE_BIT_DEFAULT | PL_ROPE_BIT_PROPORTIONAL,
                          .exceeds_fp16 = true,
                          .facts = pl_gemma4_facts},
    [PL_FAMILY_EXAONE4] = {.name = "exaone4",
                           .class = "Exaone4ForCausalLM",
                           .kv_heads = 32,
                           .max_positions = 2048,
                           .rms_eps = 1e-5,
                           .theta = 1e4,
                           .bos = 0,
                           .eos = 2,
                           .pad = -1,
                           .rope_types = ROPE_COMMON,
                           .facts = exaone4_facts},
    PL_FAMILY_ROWS_OF_A_TEST};

const struct pl_family_row *pl_family_get(enum pl_family f) {
    return &families[f];
}

const struct pl_family_row *pl_family_of_gguf(const char *architecture) {
    for (int f = 0; f < PL_FAMILY_COUNT; f++)
        if (families[f].gguf && strcmp(families[f].gguf, architecture) == 0) return &families[f];
    return NULL;
}

const char *pl_family_name(enum pl_family f) {
    return (unsigned)f < PL_FAMILY_COUNT ? families[f].name : "?";
}

#define EXPERTS  "mixture of experts is not computed here"
#define PARALLEL "LayerNorm and the parallel residual are not computed here"
#define STATES   "state-space layers are not computed here"
#define LINEAR   "linear attention is not computed here"
#define ENCODER  "only decoders of text are trained here"
#define WRAPPED  "models of images or sound are not trained here, only models of text"
/* Architectures people will try, and why a Llama-like program does not compute them. Without this
 * table the spelling hint would call `mixtral` a typo of `mistral`. A `*` ends a prefix. */
static const struct {
    const char *type, *why;
} known_others[] = {
    {"gemma", "of the Gemma models only the third and fourth generation are computed here"},
    {"gemma2*", "capped scores and logits are not computed here"},
    {"gemma3n*", "its per-layer embeddings and shared keys are not computed here"},
    {"gemma4*", "of Gemma 4 only `gemma4_text` is computed here"},
    {"recurrent_gemma", "recurrent layers are not computed here"},
    {"mixtral", EXPERTS},
    {"qwen", "its fused attention has names of its own; Qwen2 and Qwen3 are read"},
    {"qwen2_moe", EXPERTS},
    {"qwen3_next*", LINEAR},
    {"qwen3_5_moe*", "linear attention with a mixture of experts is not computed here"},
    {"qwen2_vl*", WRAPPED},
    {"qwen2_5_vl*", WRAPPED},
    {"qwen3_vl*", WRAPPED},
    {"qwen2_audio*", WRAPPED},
    {"qwen2_5_omni*", WRAPPED},
    {"mllama*", "cross-attention to images is not computed here"},
    {"llava*", WRAPPED},
    {"idefics*", WRAPPED},
    {"smolvlm*", WRAPPED},
    {"internvl*", WRAPPED},
    {"phi4_multimodal", WRAPPED},
    {"olmo", "LayerNorm without weights is not computed here"},
    {"olmo2", "its norms stand after attention and MLP, and over whole queries and keys"},
    {"olmo3", "its norms stand after attention and MLP, and over whole queries and keys"},
    {"olmoe", EXPERTS},
    {"granite", "multipliers of embeddings, residuals and logits are not computed here"},
    {"granitemoe*", EXPERTS},
    {"gpt2", "learned positions, LayerNorm and transposed weights are not computed here"},
    {"gpt_neo", "learned positions and LayerNorm are not computed here"},
    {"gpt_neox*", PARALLEL},
    {"gptj", PARALLEL},
    {"gpt_bigcode", "learned positions and LayerNorm are not computed here"},
    {"starcoder2", "LayerNorm and an MLP without a gate are not computed here"},
    {"codegen", PARALLEL},
    {"falcon", PARALLEL},
    {"falcon_mamba", STATES},
    {"falcon_h1", STATES},
    {"bloom", "ALiBi positions and LayerNorm are not computed here"},
    {"mpt", "ALiBi positions and LayerNorm are not computed here"},
    {"opt", "learned positions and LayerNorm are not computed here"},
    {"phi", PARALLEL},
    {"phi-msft", PARALLEL},
    {"phi3_v", WRAPPED},
    {"phi3small", "block-sparse attention is not computed here"},
    {"phimoe", EXPERTS},
    {"persimmon", "LayerNorm and an MLP without a gate are not computed here"},
    {"stablelm*", "LayerNorm and partial rotation are not computed here"},
    {"cohere*", "LayerNorm and the parallel residual are not computed here"},
    {"nemotron*", "LayerNorm with an offset and squared ReLU are not computed here"},
    {"glm*", "partial, interleaved rotation is not computed here"},
    {"chatglm*", "partial, interleaved rotation is not computed here"},
    {"baichuan*", "its fused attention has names of its own; a copy converted to `llama` is read"},
    {"internlm*", "its attention has names of its own; a copy converted to `llama` is read"},
    {"yi", "a copy whose `model_type` is `llama` is read"},
    {"xverse", "a copy converted to `llama` is read"},
    {"minicpm*", "multipliers of embeddings, residuals and logits are not computed here"},
    {"exaone*", "its layers have names of their own; a copy converted to `llama` is read"},
    {"dbrx", EXPERTS},
    {"arctic", EXPERTS},
    {"jamba", STATES},
    {"bamba", STATES},
    {"zamba*", STATES},
    {"mamba*", STATES},
    {"rwkv*", "recurrent layers are not computed here"},
    {"lfm2*", "convolutions between layers of attention are not computed here"},
    {"kimi*", "latent attention and mixture of experts are not computed here"},
    {"minimax*", "mixture of experts and linear attention are not computed here"},
    {"llama4*", "mixture of experts and chunked attention are not computed here"},
    {"deepseek*", "latent attention and mixture of experts are not computed here"},
    {"t5*", ENCODER},
    {"mt5", ENCODER},
    {"umt5", ENCODER},
    {"bart", ENCODER},
    {"mbart", ENCODER},
    {"whisper", ENCODER},
    {"bert*", ENCODER},
    {"roberta", ENCODER},
    {"xlm-roberta", ENCODER},
    {"distilbert", ENCODER},
    {"deberta*", ENCODER},
    {"electra", ENCODER},
    {"modernbert*", ENCODER},
    {"nomic_bert", ENCODER},
    {"clip", ENCODER},
    {"vit", ENCODER},
};

static pl_err refuse_type(const struct pl_hf *h, const char *type) {
    const char *names[PL_FAMILY_COUNT];
    for (size_t i = 0; i < sizeof known_others / sizeof *known_others; i++) {
        const char *pattern = known_others[i].type;
        const size_t n = strlen(pattern);
        const bool begins = pattern[n - 1] == '*' && strncmp(pattern, type, n - 1) == 0;
        if (begins || strcmp(pattern, type) == 0)
            return pl_hf_refuse(h, "model_type", PL_ERR_MODEL_UNSUPPORTED, "%s",
                                known_others[i].why);
    }
    for (int f = 0; f < PL_FAMILY_COUNT; f++)
        names[f] = families[f].name;
    const char *near = pl_text_nearest(type, names, PL_FAMILY_COUNT);
    if (near)
        return pl_hf_refuse(h, "model_type", PL_ERR_MODEL_UNSUPPORTED,
                            "not a family known here; the nearest is `%s`", near);
    return pl_hf_refuse(h, "model_type", PL_ERR_MODEL_UNSUPPORTED, "not a family known here");
}

/* A multimodal file keeps the language model one level down; its own sizes, if any, are not it. */
static pl_err refuse_wrapper(const struct pl_hf *h) {
    static const char *const inner[] = {"text_config", "llm_config", "language_config"};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        if (!json_is_object(json_object_get(h->object, inner[i]))) continue;
        return pl_hf_refuse(h, "model_type", PL_ERR_MODEL_UNSUPPORTED,
                            "a wrapper whose language model is inside `%s`; wrappers are not "
                            "trained here",
                            inner[i]);
    }
    return PL_ERR_OK;
}

/* The one quantised form whose codes a 4-bit base of training is made of. */
static bool is_four_bit(const json_t *q) {
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    return method && strcmp(method, "bitsandbytes") == 0 &&
           json_is_true(json_object_get(q, "load_in_4bit"));
}

static pl_err refuse_quantised(const struct pl_hf *h, enum pl_family family) {
    if (!pl_hf_given(h, "quantization_config")) return PL_ERR_OK;
    const json_t *q = json_object_get(h->object, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    if (is_four_bit(q) || (family == PL_FAMILY_GPT_OSS && is_mxfp4(h))) return PL_ERR_OK;
    pl_err err = pl_diag_at(h->d, PL_ERR_MODEL_UNSUPPORTED, h->file, 0, 0,
                            "`quantization_config`: the weights are already quantised (%.60s)",
                            method ? method : "method not named");
    pl_diag_hint(h->d, "use the unquantised model of the same name");
    return err;
}

/* Absent keys are those of transformers' BitsAndBytesConfig: fp4, without double quantisation. */
pl_err pl_model_read_codes(const struct pl_hf *h, struct pl_model *m) {
    const json_t *q = json_object_get(h->object, "quantization_config");
    if (m->family == PL_FAMILY_GPT_OSS && is_mxfp4(h)) m->codes = PL_CODES_MXFP4;
    if (!is_four_bit(q)) return PL_ERR_OK;
    const char *type = json_string_value(json_object_get(q, "bnb_4bit_quant_type"));
    const char *storage = json_string_value(json_object_get(q, "bnb_4bit_quant_storage"));
    if (storage && strcmp(storage, "uint8") != 0)
        return pl_hf_refuse(h, "quantization_config", PL_ERR_MODEL_UNSUPPORTED,
                            "bnb_4bit_quant_storage must be uint8");
    m->codes = type && strcmp(type, "nf4") == 0 ? PL_CODES_NF4 : PL_CODES_FP4;
    m->nested_codes = json_is_true(json_object_get(q, "bnb_4bit_use_double_quant"));
    return PL_ERR_OK;
}

static pl_err missing_type(const struct pl_hf *h) {
    const json_t *list = json_object_get(h->object, "architectures");
    const char *first = json_string_value(json_array_get(list, 0));
    pl_err err = pl_hf_refuse(h, "model_type", PL_ERR_MODEL_FIELD,
                              "expected the name of a family, such as \"llama\"");
    if (first) pl_diag_hint(h->d, "`architectures` says %.80s", first);
    return err;
}

pl_err pl_family_find(const struct pl_hf *h, enum pl_family *out) {
    const char *type = json_string_value(json_object_get(h->object, "model_type"));
    if (!type) return missing_type(h);
    PL_TRY(refuse_wrapper(h));
    for (int f = 0; f < PL_FAMILY_COUNT; f++) {
        if (strcmp(families[f].name, type) != 0) continue;
        *out = (enum pl_family)f;
        return refuse_quantised(h, *out);
    }
    return refuse_type(h, type);
}
