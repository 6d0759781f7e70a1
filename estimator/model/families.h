/* families.h - the defaults of each model_type's transformers class, and the facts that only its
 * code holds.
 *
 * In: a config.json object.  Out: the family's row; struct pl_model filled by its functions.
 *   F1  a value not in the file is the default of the class, not of another family
 *   F2  a key that would change the arithmetic and that the family's class does not read is refused
 * Adding a family: a row in families.c, its facts function, a golden case. */
#ifndef PL_ESTIMATOR_MODEL_FAMILIES_H
#define PL_ESTIMATOR_MODEL_FAMILIES_H

#include "estimator/model/architecture.h"
#include "estimator/model/hf_json.h"

/* These limits keep every product of sizes below 2^63 (M2), and bound the length of programs that
 * work through a matrix in windows of its rows: widths 2^20, layers 2^12, vocab 2^24. */
#define PL_MODEL_MAX_WIDTH     1048576
#define PL_MODEL_MAX_VOCAB     16777216
#define PL_MODEL_MAX_POSITIONS 2147483647

enum {
    PL_ROPE_BIT_DEFAULT = 1,
    PL_ROPE_BIT_LINEAR = 2,
    PL_ROPE_BIT_LLAMA3 = 4,
    PL_ROPE_BIT_LONGROPE = 8,
    PL_ROPE_BIT_YARN = 16,
    PL_ROPE_BIT_DYNAMIC = 32,
    PL_ROPE_BIT_PROPORTIONAL = 64
};

struct pl_family_row {
    const char *name;      /* model_type */
    const char *class;     /* transformers' class, as `architectures` names it */
    const char *gguf;      /* name of the architecture in llama.cpp; NULL = not read from GGUF */
    bool gguf_interleaves; /* llama.cpp's converter interleaves the halves of rows of q and k */
    /* The values of absent keys; a null of kv_heads or head_dim is not an absent key. */
    uint64_t heads, vocab; /* 0: required, a file without them is not a model's */
    uint64_t kv_heads;     /* 0: as many as heads */
    uint64_t head_dim;     /* 0: hidden / heads */
    uint64_t max_positions;
    double rms_eps, theta;
    bool tied;
    int64_t bos, eos, pad; /* -1 = none */
    bool reads_attention_bias, reads_mlp_bias;
    bool partial_rotary; /* rotates only the first part of a head if the file says so */
    double rotary_share; /* that part where the file does not say; 0: all of it */
    double local_theta;  /* layers with a window have a rope with this base; 0 = one rope for all
                            layers */
    enum pl_activation activation;
    const char *activation_key; /* key of the activation; NULL = `hidden_act` */
    unsigned rope_types;        /* PL_ROPE_BIT_* */
    bool exceeds_fp16;          /* activations of published models are greater than 65,504 */
    pl_err (*facts)(const struct pl_hf *h, struct pl_model *m);
};

/* Finds the row of the file's model_type; refuses wrappers, quantised files and unknown types by
 * name. */
pl_err pl_family_find(const struct pl_hf *h, enum pl_family *out);
const struct pl_family_row *pl_family_get(enum pl_family f);
/* Returns the first row whose architecture llama.cpp calls so; NULL: there is none. */
const struct pl_family_row *pl_family_of_gguf(const char *architecture);

/* Facts of families that have a file of their own. */
pl_err pl_qwen3_5_facts(const struct pl_hf *h, struct pl_model *m);
pl_err pl_gemma4_facts(const struct pl_hf *h, struct pl_model *m);

/* Reads quantization_config, of bitsandbytes in 4 bits or of MXFP4, into m->codes and
 * m->nested_codes. */
pl_err pl_model_read_codes(const struct pl_hf *h, struct pl_model *m);

/* Finds layer_types, a name for every layer; *list is NULL where it is not there. */
pl_err pl_model_layer_names(const struct pl_hf *h, const struct pl_model *m, const json_t **list);
/* Reads layer_types, which says of every layer whether it sees all positions or those of the
 * window. *given is false where it is not there. */
pl_err pl_model_read_layer_types(const struct pl_hf *h, uint64_t window, struct pl_model *m,
                                 bool *given);

/* Reads rope_theta, rope_scaling or rope_parameters into m->rope (rope.c). Needs head_dim and
 * max_positions. */
pl_err pl_model_read_rope(const struct pl_hf *h, const struct pl_family_row *f, struct pl_model *m);

#endif
