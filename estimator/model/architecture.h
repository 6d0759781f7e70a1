/* architecture.h - the facts of a decoder that decide its arithmetic and its sizes.
 *
 * Out: struct pl_model.  Needs: activations.h. model.h reads it from a config.json. */
#ifndef PL_ESTIMATOR_MODEL_ARCHITECTURE_H
#define PL_ESTIMATOR_MODEL_ARCHITECTURE_H

#include "estimator/model/activations.h"
#include "estimator/ops/attr.h"

#include <stdbool.h>
#include <stdint.h>

/* A test adds enumerators, and rows in families.c, to show what a family needs. */
#ifndef PL_FAMILIES_OF_A_TEST
#define PL_FAMILIES_OF_A_TEST
#define PL_FAMILY_ROWS_OF_A_TEST
#endif

enum pl_family {
    PL_FAMILY_LLAMA,
    PL_FAMILY_QWEN2,
    PL_FAMILY_QWEN3,
    PL_FAMILY_MISTRAL,
    PL_FAMILY_PHI3,
    PL_FAMILY_SMOLLM3,
    PL_FAMILY_MINISTRAL3,
    PL_FAMILY_GEMMA3,
    PL_FAMILY_QWEN3_MOE,
    PL_FAMILY_GPT_OSS,
    PL_FAMILY_QWEN3_5,
    PL_FAMILY_GEMMA4,
    PL_FAMILY_EXAONE4,
    PL_FAMILIES_OF_A_TEST PL_FAMILY_COUNT
};
const char *pl_family_name(enum pl_family f); /* e.g. "qwen2", the model_type of config.json */

enum pl_rope_type {
    PL_ROPE_DEFAULT,
    PL_ROPE_LINEAR,
    PL_ROPE_LLAMA3,
    PL_ROPE_YARN,
    PL_ROPE_DYNAMIC,
    PL_ROPE_LONGROPE,
    PL_ROPE_PROPORTIONAL
};

/* Files of bitsandbytes hold 4-bit codes instead of a decoder's matrices, and those of published
 * gpt_oss models hold MXFP4 codes instead of the matrices of experts. */
enum pl_weight_codes { PL_CODES_NONE, PL_CODES_NF4, PL_CODES_FP4, PL_CODES_MXFP4 };
/* True if such files can be read as values of 16 bits, none of which is rounded. */
static inline bool pl_codes_are_values(enum pl_weight_codes c) {
    return c == PL_CODES_NONE || c == PL_CODES_MXFP4;
}

#define PL_MODEL_MAX_LAYERS 4096
#define PL_MODEL_MAX_EOS    32
#define PL_MODEL_MAX_ROPES  2

struct pl_rope {
    enum pl_rope_type type;
    double theta;
    uint32_t dim;    /* rotated dimensions of a head, even, <= head_dim */
    uint32_t turned; /* proportional: only so many of the first pairs turn */
    double factor, low_freq_factor, high_freq_factor;
    uint32_t original_max_positions; /* dynamic, longrope: longer sequences use other frequencies */
    double attention_factor;         /* multiplies cos and sin; 1 except for yarn and longrope */
    double query_growth;        /* ministral3: queries at t times 1 + it * ln(1 + t / original) */
    double ramp_low, ramp_high; /* yarn: pairs up to low keep their frequency, pairs from high on
                                   are stretched */
    /* longrope: dim/2 values each */
    double short_factor[PL_ROPE_MAX_PAIRS], long_factor[PL_ROPE_MAX_PAIRS];
};

/* True if sequences longer than original_max_positions have frequencies of their own. */
static inline bool pl_rope_follows_length(const struct pl_rope *r) {
    return r->type == PL_ROPE_DYNAMIC || r->type == PL_ROPE_LONGROPE;
}

/* True if queries up to this length have a table of their own: within the original length they are
 * turned as keys are. */
static inline bool pl_rope_grows_queries(const struct pl_rope *r, uint64_t longest) {
    return r->query_growth > 0 && longest > r->original_max_positions;
}

/* The kinds of decoder layers: each has its slots (rows.c) and its forward pass
 * (program/emit/block.c). A test adds one to show what a kind needs. */
#ifndef PL_LAYERS_OF_A_TEST
#define PL_LAYERS_OF_A_TEST
#define PL_LAYER_ROWS_OF_A_TEST
#define PL_LAYER_FORWARDS_OF_A_TEST
#endif
enum pl_layer_kind {
    PL_LAYER_PRE_NORM,        /* attention and a dense MLP, each after a norm */
    PL_LAYER_POST_NORM,       /* attention and a dense MLP, each before a norm (exaone4) */
    PL_LAYER_FOUR_NORM,       /* the same with a norm before and after each (gemma3) */
    PL_LAYER_EXPERTS,         /* attention and a mixture of experts, each after a norm */
    PL_LAYER_GATED_ATTENTION, /* as PRE_NORM; queries bring a gate of attention's output */
    PL_LAYER_GATED_DELTA,     /* linear attention and a dense MLP, each after a norm */
    /* gemma4: four norms, values are normed as well, and the sum is scaled by a number of files */
    PL_LAYER_SCALED,
    PL_LAYER_SCALED_KEYS,    /* the same; values are the keys before their norm */
    PL_LAYER_SCALED_QUERIES, /* the same; keys and values are those of an earlier layer */
    PL_LAYERS_OF_A_TEST PL_LAYER_KIND_COUNT
};
#define PL_LAYER_MAX_KINDS 32 /* kinds are bits of a word */

/* The facts of a decoder layer, each of which may differ between layers of one model. */
struct pl_layer {
    uint32_t window;                  /* number of positions seen, its own included; 0 = all */
    uint32_t kv_heads, head_dim, ffn; /* as the model's of these names */
    enum pl_layer_kind kind : 8;
    uint8_t rope;      /* index of the model's rope, or PL_NO_ROPE */
    uint16_t kv_layer; /* 1 + the layer whose keys and values it shares, which may be itself; 0 = it
                          shares none */
};
#define PL_NO_ROPE UINT8_MAX /* no positions (smollm3) */
/* Columns of the keys of a layer, and of its values. */
static inline uint64_t pl_layer_kv_columns(const struct pl_layer *x) {
    return (uint64_t)x->kv_heads * x->head_dim;
}
/* Returns the matrices for keys and values of a kind: one for each, one for both, or none. */
static inline uint32_t pl_kind_kv_matrices(enum pl_layer_kind kind) {
    return kind == PL_LAYER_SCALED_QUERIES ? 0 : kind == PL_LAYER_SCALED_KEYS ? 1 : 2;
}
/* True if layers after it use its keys and values. */
static inline bool pl_layer_lends_kv(const struct pl_layer *x) {
    return x->kv_layer && x->kind != PL_LAYER_SCALED_QUERIES;
}
static inline bool pl_layers_are_alike(const struct pl_layer *x, const struct pl_layer *y) {
    return x->kind == y->kind && x->window == y->window && x->rope == y->rope &&
           x->kv_heads == y->kv_heads && x->head_dim == y->head_dim && x->ffn == y->ffn &&
           x->kv_layer == y->kv_layer;
}

/* How a router chooses experts, and what they compute. */
struct pl_experts {
    uint32_t n,
        per_token;      /* of a layer; chosen for each token. The size of one is its layer's ffn */
    bool softmax_first; /* weights are parts of the softmax over all; else of that over those
                             * that were chosen */
    bool normalise;     /* and divided by their sum */
    bool biases;        /* on the router and on the experts */
    bool fused;         /* files hold those of a layer as one tensor, [n, in, out] */
    double aux_coefficient; /* of the auxiliary loss; 0 = none */
    double limit, alpha;    /* of the clamped gate (gpt_oss); limit 0 = that of a dense MLP */
};

/* Linear attention by the gated delta rule (arXiv 2412.06464). Heads of values share a head of
 * queries and keys as those of attention share keys. */
struct pl_delta {
    uint32_t key_heads, value_heads;
    uint32_t key_dim, value_dim; /* of a head */
    uint32_t taps;               /* of the convolution of queries, keys and values */
};
/* Columns of its queries, keys and values together, and of its values. */
static inline uint64_t pl_delta_channels(const struct pl_delta *x) {
    return 2 * (uint64_t)x->key_heads * x->key_dim + (uint64_t)x->value_heads * x->value_dim;
}
static inline uint64_t pl_delta_values(const struct pl_delta *x) {
    return (uint64_t)x->value_heads * x->value_dim;
}

struct pl_model {
    enum pl_family family;
    uint64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double rms_eps, initializer_range;
    bool tied;                       /* lm_head shares the embedding */
    bool qkv_bias, o_bias, mlp_bias; /* biases on q,k,v / o / gate,up,down */
    bool qk_norm;                    /* RMSNorm over head_dim on q and k before RoPE (qwen3) */
    bool unit_offset;                /* norms multiply by 1 + w (gemma3) */
    enum pl_activation activation;   /* activation of the MLP's gate */
    double score_scale;              /* factor of queries times keys */
    double embed_scale;              /* factor of the embedding's output */
    double softcap;                  /* bound of the logits, c tanh(z / c); 0 = none */
    uint64_t layer_input;            /* columns of the embedding that each layer has, or 0 */
    uint64_t layer_input_vocab;      /* and its rows */
    bool sinks;                      /* one logit a head in every softmax of attention (gpt_oss) */
    struct pl_experts experts;       /* of layers of that kind */
    struct pl_delta delta;           /* of layers of that kind */
    struct pl_layer layer[PL_MODEL_MAX_LAYERS]; /* the first `layers` are set */
    uint32_t kinds; /* bits of enum pl_layer_kind: those of its layers */
    uint32_t first_of_kind[PL_LAYER_MAX_KINDS]; /* the first layer of each of them */
    struct pl_rope rope[PL_MODEL_MAX_ROPES];
    uint32_t n_ropes;
    int64_t bos, pad; /* -1 = none */
    int64_t eos[PL_MODEL_MAX_EOS];
    uint32_t n_eos;
    char torch_dtype[16];       /* as the file says; "" = it says nothing */
    enum pl_weight_codes codes; /* the form of the decoder's matrices in the files */
    bool nested_codes;          /* absmax values are codes too: double quantisation */
    const char *dropout_key;    /* key of config.json with a dropout, which acts in training alone;
                                NULL = none */
    double dropout;             /* probability of that dropout */
};

#endif
