/* model.h - architecture facts of a decoder, read from Hugging Face config.json.
 *
 * In: config.json.  Out: struct pl_model, and the parameter rows that its files hold.
 *   M1  everything needed to train the model exactly is in the struct; a config.json that asks for
 *       anything else is refused by name, never guessed
 *   M2  sizes are checked: no product of them overflows 64 bits
 * Source of field meanings: transformers' configuration classes; see tests for each spelling. */
#ifndef PL_ESTIMATOR_MODEL_MODEL_H
#define PL_ESTIMATOR_MODEL_MODEL_H

#include "estimator/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* Enumerators and rows (families.c) that a test adds, to see what a family takes. */
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
    PL_FAMILIES_OF_A_TEST PL_FAMILY_COUNT
};

enum pl_rope_type {
    PL_ROPE_DEFAULT,
    PL_ROPE_LINEAR,
    PL_ROPE_LLAMA3,
    PL_ROPE_YARN,
    PL_ROPE_DYNAMIC,
    PL_ROPE_LONGROPE
};

/* Files of bitsandbytes hold 4-bit codes in place of a decoder's matrices. */
enum pl_weight_codes { PL_CODES_NONE, PL_CODES_NF4, PL_CODES_FP4 };

#define PL_MODEL_MAX_LAYERS 4096
#define PL_MODEL_MAX_EOS 8
#define PL_ROPE_MAX_PAIRS 256
#define PL_MODEL_MAX_ROPES  2

struct pl_rope {
    enum pl_rope_type type;
    double theta;
    uint32_t dim; /* rotated dimensions of a head, even, <= head_dim */
    double factor, low_freq_factor, high_freq_factor;
    uint32_t original_max_positions; /* dynamic, longrope: what is longer turns otherwise */
    double attention_factor; /* multiplies cos and sin; 1 but for yarn and longrope */
    double query_growth;     /* ministral3: queries at t times 1 + it * ln(1 + t / original) */
    double ramp_low, ramp_high; /* yarn: pairs up to low are kept, from high on stretched */
    /* longrope, dim/2 each */
    double short_factor[PL_ROPE_MAX_PAIRS], long_factor[PL_ROPE_MAX_PAIRS];
};

/* Sequences longer than original_max_positions have frequencies of their own. */
static inline bool pl_rope_follows_length(const struct pl_rope *r) {
    return r->type == PL_ROPE_DYNAMIC || r->type == PL_ROPE_LONGROPE;
}

/* Whether queries up to this length have a table of their own: within the original length they are
 * turned as keys are. */
static inline bool pl_rope_grows_queries(const struct pl_rope *r, uint64_t longest) {
    return r->query_growth > 0 && longest > r->original_max_positions;
}

/* A layer of the decoder, as far as layers of one model differ. */
struct pl_layer {
    uint32_t window; /* positions seen, own one included; 0 = all */
    uint8_t rope;    /* which of the model's, or PL_NO_ROPE */
};
#define PL_NO_ROPE UINT8_MAX /* no positions (smollm3) */

struct pl_model {
    enum pl_family family;
    uint64_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double rms_eps, initializer_range;
    bool tied;                          /* lm_head shares the embedding */
    bool qkv_bias, o_bias, mlp_bias;    /* biases on q,k,v / o / gate,up,down */
    bool qk_norm;                       /* RMSNorm over head_dim on q and k before RoPE (qwen3) */
    bool post_norms;                    /* RMSNorm on what attention and MLP add, too (gemma3) */
    bool unit_offset;                   /* norms multiply by 1 + w (gemma3) */
    bool gelu;                          /* of the MLP's gate; else SiLU */
    double score_scale;                 /* of queries times keys */
    double embed_scale;                 /* of what the embedding gives */
    struct pl_layer layer[PL_MODEL_MAX_LAYERS]; /* `layers` of them */
    struct pl_rope rope[PL_MODEL_MAX_ROPES];
    uint32_t n_ropes;
    int64_t bos, pad;                   /* -1 = none */
    int64_t eos[PL_MODEL_MAX_EOS];
    uint32_t n_eos;
    char torch_dtype[16];               /* as the file says; "" = silent */
    enum pl_weight_codes codes;         /* of the decoder's matrices in the files */
    bool nested_codes;                  /* their absmax are codes too: double quantisation */
};

/* Reads a config.json file (PL_ERR_MODEL_*), or, when path is "catalogue:NAME", the built-in text
 * of that name. */
pl_err pl_model_read(const char *path, struct pl_model *out, struct pl_diag *d);
/* The same from memory; `name` appears in messages. */
pl_err pl_model_parse(const char *name, const char *json, uint64_t bytes, struct pl_model *out,
                      struct pl_diag *d);
/* The text that pl_model_read would read: malloc'd, a NUL behind its *bytes bytes. Of a multimodal
 * model it is that of its language model (wrapper.h). */
pl_err pl_model_read_text(const char *path, char **text, uint64_t *bytes, struct pl_diag *d);
#define PL_CATALOGUE_SCHEME "catalogue:"
const char *pl_family_name(enum pl_family f); /* "qwen2", the model_type of config.json */

/* The fused matrices and vectors the program computes with. Sizes: C hidden, Q = heads x head_dim,
 * K = kv_heads x head_dim, F ffn, V vocab. */
enum pl_slot {
    PL_SLOT_EMBED,  /* [V,C] */
    PL_SLOT_NORM1,  /* [C] */
    PL_SLOT_QKV,    /* [Q+2K,C]: rows q, k, v */
    PL_SLOT_QKV_B,  /* [Q+2K] */
    PL_SLOT_QNORM,  /* [head_dim] */
    PL_SLOT_KNORM,  /* [head_dim] */
    PL_SLOT_O,      /* [C,Q] */
    PL_SLOT_O_B,    /* [C] */
    PL_SLOT_POST1,  /* [C]; of what attention adds */
    PL_SLOT_NORM2,  /* [C] */
    PL_SLOT_GU,     /* [2F,C]: rows gate, up */
    PL_SLOT_GU_B,   /* [2F] */
    PL_SLOT_DOWN,   /* [C,F] */
    PL_SLOT_DOWN_B, /* [C] */
    PL_SLOT_POST2,  /* [C]; of what the MLP adds */
    PL_SLOT_NORMF,  /* [C] */
    PL_SLOT_HEAD,   /* [V,C]; absent when tied */
    PL_SLOT_COUNT
};

struct pl_slot_shape {
    const char *name;    /* "qkv", as in tensor names */
    bool present;        /* this model has it */
    bool per_layer;
    uint64_t rows, cols; /* vectors: rows = length, cols = 1 */
    bool vector;         /* one dimension in files: norm weights and biases */
};
void pl_model_slot(const struct pl_model *m, enum pl_slot s, struct pl_slot_shape *out);

/* One tensor of the files: rows [row0, row0+rows) of a slot. */
struct pl_param_row {
    enum pl_slot slot;
    const char *suffix; /* "self_attn.q_proj.weight" below model.layers.N., or the whole name */
    const char *module; /* "q_proj": LoRA target name; NULL where no adapter can sit */
    bool per_layer, vector;
    uint64_t row0, rows, cols;
};
#define PL_MODEL_MAX_ROWS 32 /* bits of a mask of rows */
/* The distinct rows of the family as this model has them (per-layer ones once); their count. */
uint32_t pl_model_rows(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]);
/* The same, and behind them the head of a tied model: no file holds it, but it is a module, and an
 * adapter on it leaves the embedding alone. */
uint32_t pl_model_modules(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]);
/* Full tensor name in the files: "model.layers.3.self_attn.q_proj.weight". */
void pl_model_row_name(const struct pl_param_row *row, uint64_t layer, char buf[128]);

/* Exact counts; tied matrices once. */
uint64_t pl_model_param_count(const struct pl_model *m);
uint64_t pl_model_linear_params(const struct pl_model *m); /* decoder linears, no head */

/* Of adapters of rank r on the rows of a mask, in all layers from one on. */
uint64_t pl_model_lora_params(const struct pl_model *m, uint32_t mask, uint64_t r,
                              uint64_t first_layer);

#endif
