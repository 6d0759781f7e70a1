/* model.h - a decoder's config.json of Hugging Face, read, and the parameters of such a model.
 *
 * In: config.json.  Out: struct pl_model (architecture.h), and the parameter rows that its files
 * hold.
 *   M1  everything needed to train the model exactly is in the struct; a config.json that asks for
 *       anything else is refused by name, never guessed
 *   M2  sizes are checked: no product of them overflows 64 bits
 * Source of field meanings: transformers' configuration classes; see tests for each spelling. */
#ifndef PL_ESTIMATOR_MODEL_MODEL_H
#define PL_ESTIMATOR_MODEL_MODEL_H

#include "estimator/base/diag.h"
#include "estimator/model/architecture.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads a config.json file (PL_ERR_MODEL_*), the metadata of a GGUF file, or, if path is
 * "catalogue:NAME", the built-in text of that name. */
pl_err pl_model_read(const char *path, struct pl_model *out, struct pl_diag *d);
/* PL_ERR_MODEL_UNSUPPORTED if the file asks for dropout, which acts in training alone and is not
 * computed; `path` is the file. Nothing but training depends on it. */
pl_err pl_model_check_trains(const struct pl_model *m, const char *path, struct pl_diag *d);
/* pl_model_read from memory; `name` appears in messages. */
pl_err pl_model_parse(const char *name, const char *json, uint64_t bytes, struct pl_model *out,
                      struct pl_diag *d);
/* Returns the text that pl_model_read would read: malloc'd, with a NUL after its *bytes bytes. For
 * a multimodal model it is the text of its language model. */
pl_err pl_model_read_text(const char *path, char **text, uint64_t *bytes, struct pl_diag *d);
#define PL_CATALOGUE_SCHEME "catalogue:"

/* Returns the rows of the projection of queries of a layer: a head has those of its query, and then
 * those of its gate, where there are gates. */
uint64_t pl_model_query_rows(const struct pl_model *m, uint64_t layer);

/* The fused matrices and vectors that the program computes with. Sizes: C hidden, Q = heads x
 * head_dim, K = kv_heads x head_dim, F ffn, V vocab; those of a layer are its own. */
enum pl_slot {
    PL_SLOT_EMBED, /* [V,C] */
    PL_SLOT_NORM1, /* [C] */
    PL_SLOT_QKV, /* [Q+2K,C]: rows q, k, v, as far as the layer has them; with gates [2Q+2K,C], see
                       pl_model_query_rows() */
    PL_SLOT_QKV_B,  /* [Q+2K] */
    PL_SLOT_QNORM,  /* [head_dim] */
    PL_SLOT_KNORM,  /* [head_dim] */
    PL_SLOT_O,      /* [C,Q] */
    PL_SLOT_O_B,    /* [C] */
    PL_SLOT_POST1,  /* [C]; weight of the norm on attention's output */
    PL_SLOT_NORM2,  /* [C] */
    PL_SLOT_GU,     /* [2F,C]: rows gate, up */
    PL_SLOT_GU_B,   /* [2F] */
    PL_SLOT_DOWN,   /* [C,F] */
    PL_SLOT_DOWN_B, /* [C] */
    PL_SLOT_POST2,  /* [C]; weight of the norm on the MLP's output */
    PL_SLOT_NORMF,  /* [C] */
    PL_SLOT_HEAD,   /* [V,C]; absent when tied */
    PL_SLOT_SINKS,  /* [heads] */
    PL_SLOT_ROUTER, /* [E,C], of E experts */
    PL_SLOT_ROUTER_B,
    /* matrices of the experts, one after another: each as of the dense MLP, or turned, [C,2F] */
    PL_SLOT_EXPERT_GU,
    PL_SLOT_EXPERT_GU_B,
    PL_SLOT_EXPERT_DOWN,
    PL_SLOT_EXPERT_DOWN_B,
    /* of linear attention, with V heads of values */
    PL_SLOT_DELTA_DT_BIAS, /* [V] */
    PL_SLOT_DELTA_A_LOG,   /* [V] */
    PL_SLOT_DELTA_CONV,    /* [channels,taps] */
    PL_SLOT_DELTA_NORM,    /* [value_dim] */
    PL_SLOT_DELTA_OUT,     /* [C,values] */
    PL_SLOT_DELTA_IN, /* [channels+values+2V,C]: rows of q, k and v, of the gate z, of b, of a */
    PL_SLOT_SCALAR,   /* [1]: factor of what leaves a layer; a buffer, which nothing trains */
    /* P columns of input of each of L layers: their embedding [V',L*P], the matrix [L*P,C] and the
     * norm [P] of the part that comes from the embedding of the tokens; of a layer the gate [P,C],
     * the matrix [C,P] and the norm [C] of what it adds */
    PL_SLOT_INPUT_EMBED,
    PL_SLOT_INPUT_MODEL,
    PL_SLOT_INPUT_NORM,
    PL_SLOT_INPUT_GATE,
    PL_SLOT_INPUT_OUT,
    PL_SLOT_POST3,
    PL_SLOT_COUNT
};

struct pl_slot_shape {
    const char *name; /* e.g. "qkv", as in tensor names */
    bool present;     /* the layer has it */
    bool per_layer;
    uint64_t rows, cols; /* vectors: rows = length, cols = 1 */
    bool vector;         /* weights of norms, and biases */
    bool buffer;         /* no parameter: nothing trains it, and no count has it */
    uint32_t experts;    /* the matrices or vectors that its rows are of, or 0 */
    bool turned;         /* each matrix is [in,out] */
};
/* A slot of a layer; the layer of a slot that the model has once does not matter. */
void pl_model_slot(const struct pl_model *m, uint64_t layer, enum pl_slot s,
                   struct pl_slot_shape *out);

/* One tensor of the files: rows [row0, row0+rows) of a slot. */
struct pl_param_row {
    enum pl_slot slot;
    uint32_t file_row;  /* number of the row in the table of all families */
    const char *suffix; /* "self_attn.q_proj.weight" under model.layers.N., or the whole name */
    const char *module; /* "q_proj": LoRA target name; NULL if it cannot have an adapter */
    bool per_layer, vector;
    bool linear;      /* one of those that `all-linear` names */
    bool module_only; /* no file of a model holds it: the head of a tied model, or the experts of a
                         layer in one where files split them */
    uint32_t experts; /* of so many experts: row0, rows and cols are of each; else 0 */
    bool split;       /* each of them is a tensor of its own, with its number in place of the `*` */
    bool of_channels; /* files have a dimension of 1 between rows and columns */
    uint64_t row0, rows, cols;
};
#define PL_MODEL_MAX_ROWS 64 /* bits of a pl_row_set */
/* A set of rows of one model, by their indices in pl_model_modules(). */
typedef uint64_t pl_row_set;
static inline bool pl_row_set_has(pl_row_set set, uint32_t row) {
    return set >> row & 1;
}
static inline pl_row_set pl_row_set_of(uint32_t row) {
    return UINT64_C(1) << row;
}
/* Lists the distinct rows of the family as this model has them (per-layer ones once, as the first
 * layer that has them does); returns their count. */
uint32_t pl_model_rows(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]);
/* pl_model_rows followed by those that are modules only. An adapter on the head of a tied model
 * leaves its embedding unchanged. */
uint32_t pl_model_modules(const struct pl_model *m, struct pl_param_row out[PL_MODEL_MAX_ROWS]);
/* Makes a listed row that of a layer; false: the layer has no such row. A row that the model has
 * once is in layer 0, or PL_NONE. */
bool pl_model_row_in(const struct pl_model *m, struct pl_param_row *row, uint64_t layer);
/* Lists the rows of one slot of a layer, with their indices in the list of modules; returns their
 * count. */
#define PL_MODEL_SLOT_ROWS 4
uint32_t pl_model_slot_rows(const struct pl_model *m, uint64_t layer, enum pl_slot slot,
                            struct pl_param_row out[PL_MODEL_SLOT_ROWS],
                            uint32_t index[PL_MODEL_SLOT_ROWS]);
/* True if a row is a parameter with all experts of a layer, which PEFT names among its
 * `target_parameters`. */
static inline bool pl_row_is_parameter(const struct pl_param_row *row) {
    return row->experts && !row->split && !row->vector;
}
/* Returns the row of a set whose adapter changes the matrix of a row of pl_model_modules(): the row
 * itself, or the parameter that its experts are a part of; `n`, the rows there are: none does. */
uint32_t pl_model_adapted_by(const struct pl_param_row *rows, uint32_t n, pl_row_set set,
                             uint32_t row);
/* Writes the full tensor name in the files, e.g. "model.layers.3.self_attn.q_proj.weight". */
void pl_model_row_name(const struct pl_param_row *row, uint64_t layer, char buf[128]);
/* The same of one of several experts whose tensors are split, of other rows their name. */
void pl_model_expert_name(const struct pl_param_row *row, uint64_t layer, uint32_t expert,
                          char buf[128]);
/* Returns the tensors of a row in one layer: one, or one for each expert. */
static inline uint32_t pl_model_row_tensors(const struct pl_param_row *row) {
    return row->split ? row->experts : 1;
}

/* Returns the dimensions of the widest heads of its layers. */
uint32_t pl_model_widest_head(const struct pl_model *m);

/* Returns the exact number of parameters; tied matrices count once. */
uint64_t pl_model_param_count(const struct pl_model *m);
uint64_t pl_model_linear_params(const struct pl_model *m); /* those of `all-linear` */
uint64_t pl_model_expert_params(const struct pl_model *m); /* matrices of the experts */

/* Returns the parameters of adapters of rank r on the rows of a set, in all layers from `first`
 * on. */
uint64_t pl_model_lora_params(const struct pl_model *m, pl_row_set set, uint64_t r,
                              uint64_t first_layer);

#endif
