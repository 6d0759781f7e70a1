/* program.h - one training run as data: every tensor and every op, before anything exists.
 *
 * In: struct pl_model, struct pl_job_shape (the few numbers of a job that decide bytes), traits of
 * the back-end.  Out: struct pl_program, immutable once built.  Needs: base, model, config, card.
 *   R1  an op reads only what an earlier op of its phase, or a job tensor, holds: every operand
 *       carries the version of the content it expects, and versions rise with every write
 *   R2  in-place is declared: the operand stands among inputs and outputs
 *   R3  every byte the run needs on the device is a tensor here; there is no other arithmetic
 *   R4  ops that may run as one (pl_program_together) write windows of rows that no other of them
 *       touches, and their STEP tensors live as long as all of them
 *   R5  operands are those of the op's row (op_rows.h): how many, which may be absent, their types,
 *       and sizes that agree with each other
 * The executor runs ops phase by phase, in order; the planner (plan/) gives tensors their place. */
#ifndef PL_ESTIMATOR_PROGRAM_PROGRAM_H
#define PL_ESTIMATOR_PROGRAM_PROGRAM_H

#include "estimator/base/diag.h"
#include "estimator/base/text.h"
#include "estimator/card/traits.h"
#include "estimator/config/job.h"
#include "estimator/model/model.h"
#include "estimator/model/targets.h"
#include "estimator/ops/attr.h"
#include "estimator/ops/dtype.h"
#include "estimator/ops/memory.h"
#include "estimator/ops/ops.h"
#include "estimator/ops/quant_layout.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/program/optimizer_rows.h"

#include <stdbool.h>
#include <stdint.h>

#define PL_NONE UINT32_MAX

#define PL_CATEGORY_MAP(X)                                                                         \
    X(WEIGHTS, "weights") /* base model, rope tables */                                            \
    X(ADAPTER, "adapter") /* LoRA matrices */                                                      \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER, "optimizer")     /* moments, master weights */                                    \
    X(KV_CACHE, "kv_cache")       /* keys and values of every position; inference */               \
    X(ACTIVATIONS, "activations") /* kept or transient values [N,.] and their gradients */         \
    X(LOGITS, "logits")                                                                            \
    X(WORKSPACE, "workspace") /* scratch of kernels, staging */                                    \
    X(BATCH, "batch")         /* token ids, targets, offsets, scalars */

enum pl_category {
#define X(c, name) PL_CATEGORY_##c,
    PL_CATEGORY_MAP(X)
#undef X
        PL_CATEGORY_COUNT
};
const char *pl_category_name(enum pl_category c);

/* JOB lives for the whole run, in the job arena; STEP within one phase, in the batch arena. */
enum pl_scope { PL_SCOPE_JOB, PL_SCOPE_STEP };

/* The unit that dims[0] counts; the executor runs a smaller micro-batch in a prefix of the rows.
 * ROUTED: a row for each expert that a token has, sorted by expert. Their number follows from that
 * of the tokens; only how many of them an expert has is known when the step runs. */
enum pl_rows { PL_ROWS_FIXED, PL_ROWS_TOKENS, PL_ROWS_TARGETS, PL_ROWS_ROUTED };
static inline bool pl_rows_follow_tokens(enum pl_rows rows) {
    return rows == PL_ROWS_TOKENS || rows == PL_ROWS_ROUTED;
}

enum pl_phase {
    PL_PHASE_LOAD,      /* weights come in through staging */
    PL_PHASE_MICRO,     /* forward and backward of one micro-batch */
    PL_PHASE_OPTIMIZER, /* norm, clip, update */
    PL_PHASE_EVAL,      /* forward and loss */
    PL_PHASE_SCORE,     /* the same with a micro-batch's dropout, for log-probabilities alone */
    PL_PHASE_REFERENCE, /* the same without the adapters, for log-probabilities alone */
    PL_PHASE_SAVE,      /* weights and states go out through staging */
    PL_PHASE_GENERATE,  /* inference: prompt pieces or one token a sequence, up to the logits */
    PL_PHASE_COUNT
};
const char *pl_phase_name(enum pl_phase p);
/* True for phases that compute a micro-batch and no gradient. */
static inline bool pl_phase_is_forward(enum pl_phase p) {
    return p >= PL_PHASE_EVAL && p <= PL_PHASE_REFERENCE;
}

/* The role of a job tensor, so that the runtime can load, initialise and save it. */
enum pl_role {
    PL_ROLE_NONE,
    PL_ROLE_WEIGHT,  /* base weight: slot, layer */
    PL_ROLE_LORA_A,  /* stacked [parts*r, in] of a slot: slot, layer; of the embedding [V,r] */
    PL_ROLE_LORA_B,  /* [out,r] of one module: slot, layer, row (index into pl_model_modules) */
    PL_ROLE_CODES,   /* 4-bit codes of one module of a base weight: slot, layer, row */
    PL_ROLE_ABSMAX8, /* 8-bit absmax of CODES `of` */
    PL_ROLE_ABSMAX,  /* absmax of CODES `of`, or exponents; with 8-bit ones: theirs, then the
                      * offset */
    PL_ROLE_GRAD,    /* of tensor `of` */
    PL_ROLE_STATE,   /* `state` of the optimizer's, of tensor `of`; in blocks of a part: row */
    PL_ROLE_STATE_ABSMAX, /* fp32 scales of a state in blocks: state, of, row */
    PL_ROLE_MASTER,
    PL_ROLE_ROPE,  /* cos and sin; layer 1 = of micro-batches with a sequence above long_from;
                      * of 2 * max_seq_length rows: the second half is of such sequences; layer
                      * PL_ROPE_OF_QUERIES = of queries alone; PL_ROPE_SECOND = of the layers that
                      * turn by the model's second rope */
    PL_ROLE_LOSS,  /* loss[2]: sum over targets; in an evaluation, how many are right */
    PL_ROLE_NORM,  /* clip[2] */
    PL_ROLE_FACTS, /* [PL_FACTS_WORDS]: what changes between micro-batches of one shape */
    PL_ROLE_IDS,   /* batch inputs, filled by the trainer before each micro-batch */
    PL_ROLE_ORDER, /* tokens by ascending id, those of one id in token order */
    PL_ROLE_POSITIONS,
    PL_ROLE_OFFSETS,
    PL_ROLE_SAMPLES, /* sample numbers, for counter-based dropout */
    PL_ROLE_TARGET_ROWS,
    PL_ROLE_TARGETS,
    PL_ROLE_WEIGHTS_OF_TARGETS, /* the last input; without it all are 1 */
    PL_ROLE_LOGP,               /* log-probabilities of the targets, for the host */
    PL_ROLE_STAGING,
    PL_ROLE_MERGE_RAW,    /* merge_program.h: what was read or will be written, of any type */
    PL_ROLE_MERGE_VALUES, /* its values in fp32 */
    PL_ROLE_MERGE_A,      /* [r,in] */
    PL_ROLE_MERGE_B,      /* [rows of a stretch, r] */
    PL_ROLE_KEYS,         /* KV cache of a layer: [batch_size * max_seq_length, K]; of samples that
                           * of all layers, one after the other */
    PL_ROLE_VALUES,
    PL_ROLE_DELTA_STATES, /* of linear attention, for its gradient: a row for each chunk of a
                           * sequence */
    PL_ROLE_LOGITS,       /* of GENERATE: a row per sequence that asks for a token */
    PL_ROLE_COPY,         /* of tensor `of`, in another memory: offload.c */
    PL_ROLE_MICRO_GRAD,   /* of tensor `of`, of one micro-batch; its first op overwrites it */
};

/* True for what the trainer uploads before a phase runs. */
static inline bool pl_role_is_input(enum pl_role r) {
    return r >= PL_ROLE_IDS && r <= PL_ROLE_WEIGHTS_OF_TARGETS;
}
#define PL_ROLE_INPUTS (PL_ROLE_WEIGHTS_OF_TARGETS - PL_ROLE_IDS + 1)

#define PL_ROPE_OF_QUERIES 2
#define PL_ROPE_SECOND     3

struct pl_tensor {
    const char *name; /* "qkv"; the full name comes from pl_tensor_name() */
    uint64_t dims[3]; /* unused = 1; dims[0] at capacity */
    uint64_t bytes;
    uint32_t layer;        /* PL_NONE = not of a layer */
    uint32_t row;          /* LORA_B, CODES, MERGE_*; STATE* in blocks */
    uint32_t loop;         /* over pieces of work that are alike (brief.h); 0: none */
    uint32_t piece;        /* of the loop, each has a number of its own */
    uint32_t of;           /* ABSMAX*, GRAD, STATE*, MASTER, COPY; PL_NONE otherwise */
    enum pl_rows rows : 8; /* packed: programs of large models have 10^4 of these */
    enum pl_dtype dtype : 8;
    enum pl_category category : 8;
    enum pl_scope scope : 8;
    enum pl_phase phase : 8; /* STEP tensors: the phase they live in */
    enum pl_role role : 8;
    enum pl_slot slot : 8;
    enum pl_tensor_place place : 8;
    bool trainable : 1; /* WEIGHT, LORA_*: an optimizer op updates it */
    bool decay : 1;     /* weight decay applies: two dimensions */
    uint8_t state;      /* STATE*: which of the optimizer's */
};

/* A window of a tensor: columns [col, col+cols) of the last dimension, rows [row0, row0+nrows) of
 * dims[0] at capacity; nrows = 0 means all. version: content expected (inputs) or made (outputs).
 * batch_row: which token or target row of the micro-batch the window's first row holds; it is row0
 * but for buffers that hold one chunk: the logits, and values within an MLP. */
struct pl_operand {
    uint32_t id; /* PL_NONE = absent */
    uint32_t version;
    uint32_t col, cols;
    uint32_t row0, nrows, batch_row;
};

/* The least buffer that files pass through, in bytes: less might hold no whole group of elements
 * (runtime/checkpoint/tensor_io.h). */
#define PL_STAGING_MIN 4096

struct pl_op {
    uint32_t layer; /* PL_NONE = none */
    enum pl_op_kind kind : 8;
    enum pl_phase phase : 8;
    bool backward : 1, recompute : 1; /* for reports */
    bool host : 1;                    /* runs on the host's processor, on operands in host memory */
    uint8_t n_in, n_out;
    uint16_t panels_left_out;          /* of a matrix, as left_out for each of its pieces */
    const struct pl_operand *in, *out; /* in the program's operand list */
    struct pl_attr attr;
    float flops;       /* at capacity */
    uint32_t left_out; /* equal ops of its layer that a brief program leaves out after it */
};

struct pl_phase_range {
    uint32_t first_op, n_ops;
};

/* How long the gradients of a step live. */
enum pl_gradient_life {
    PL_GRADIENTS_OF_JOB,    /* as long as the run, in the job arena */
    PL_GRADIENTS_OF_STEP,   /* from the first micro-batch to the update, in the batch arena */
    PL_GRADIENTS_OF_UPDATE, /* from the op that begins one to its update, in the backward pass */
};

/* The numbers that decide bytes; everything else of a job only decides time or values. */
struct pl_job_shape {
    uint32_t mode; /* PL_MODE_* */
    uint64_t batch_size, max_seq_length;
    bool packing;             /* a sample's room may hold several short ones */
    bool long_by_sample;      /* longrope: each sequence turns by the factors of its own length */
    enum pl_dtype dtype;      /* weights and activations */
    enum pl_dtype base_dtype; /* of frozen weights where it is narrower than `dtype`, else F32 */
    enum pl_dtype adapter_dtype, gradient_dtype;
    bool master_weights;        /* of narrow weights that are trained */
    bool adapter_masters;       /* of narrow adapters */
    uint32_t optimizer;         /* PL_OPTIMIZER_* */
    uint32_t recompute;         /* PL_RECOMPUTE_* */
    uint64_t loss_chunk_tokens; /* 0 = all at once, PL_AUTO = chosen from the vocabulary */
    uint64_t mlp_chunk_tokens;  /* 0 = all at once; of layers that rebuild their MLP */
    enum pl_quant quant;        /* PL_MODE_QLORA */
    bool double_quant;
    bool quantize_head, quantize_embedding;
    uint64_t unpack_bytes;       /* of a copy of codes, at most; 0 = any: emit.h */
    bool keeps_unpacked;         /* copies of codes live from a layer's recomputation to the
                                  * gradient that reads them */
    enum pl_dtype moment_dtype;  /* of states that are no codes */
    enum pl_dtype compute_dtype; /* of dequantised weights */
    uint64_t lora_r;
    double lora_scale, lora_dropout;
    struct pl_targets lora_targets;
    uint64_t freeze_layers;
    double max_grad_norm;
    enum pl_gradient_life gradients;
    uint32_t offload;       /* PL_OFFLOAD_* */
    bool embedding_on_host; /* and its rows are looked up there */
    bool update_on_host;
    bool eval;             /* an evaluation phase exists */
    bool scored;           /* forward phases give log-probabilities, from which the host makes
                           * weights of the targets of a step */
    bool keeps_first_pass; /* a micro-batch scores its samples itself, and learns from what that
                            * forward pass has kept once the host has made the weights */
    bool has_partners;     /* half of the samples of a step are scored alone */
    bool weighs_rows;      /* targets have the weights of their rows */
    bool reference;        /* a reference phase exists */
    bool load, save;       /* staging phases exist */
    bool samples;          /* GENERATE as well, for one sequence of max_seq_length tokens */
    bool inference;        /* nothing is trained: KV cache and GENERATE in place of a step;
                                 * batch_size sequences of up to max_seq_length tokens */
    uint64_t stretch;      /* merge_program.h: elements of a matrix at a time */
    uint32_t ranks, rank;  /* that train together (0 is 1), and which of them this is for */
    uint32_t sharding;     /* PL_SHARDING_*, decided; NONE with one rank */
    bool rank_order;       /* gradients of micro-batches are added one by one: exchange.c;
                                 * false: a rank adds up its own, and they are exchanged at the
                                 * update */
    bool folds_gradients;  /* narrow ones, of several micro-batches a step, too */
};
/* Fills a shape from a job; batch_size as given (auto already decided). `accumulation` decides
 * gradient_dtype auto; master_weights auto is true. The rank is 0. */
pl_err pl_job_shape_init(const struct pl_job *job, const struct pl_model *m,
                         const struct pl_traits *traits, uint32_t batch_size,
                         struct pl_job_shape *out, struct pl_diag *d);
/* Returns the phase that scores the samples of a step as it computes them. */
static inline enum pl_phase pl_shape_scoring_phase(const struct pl_job_shape *s) {
    return s->lora_dropout > 0 ? PL_PHASE_SCORE : PL_PHASE_EVAL;
}
/* Returns the type of frozen weights. */
static inline enum pl_dtype pl_shape_base_dtype(const struct pl_job_shape *s) {
    return pl_dtype_is_narrow(s->base_dtype) ? s->base_dtype : s->dtype;
}
/* `dtype` decided: bf16 under `auto`, but on a GPU that does not compute in it fp16, or fp32 where
 * activations of the family exceed fp16. */
enum pl_dtype pl_job_dtype(const struct pl_job *job, const struct pl_model *m,
                           const struct pl_traits *traits);
/* Returns the key whose value the back-end has no kernels for: one that asks for bf16 on a GPU
 * before PL_CARD_OLDEST_BF16_SM (cards.h), PL_KEY_device on one before PL_CARD_OLDEST_SM;
 * PL_KEY_model: its heads are too wide for it (cards.h); PL_KEY_COUNT: it has them all. */
enum pl_key_id pl_job_without_kernels(const struct pl_job *job, const struct pl_model *m,
                                      const struct pl_traits *traits);
/* quant_type decided: what the files hold under `auto`. */
enum pl_quant pl_job_quant(const struct pl_job *job, const struct pl_model *m);
/* base_dtype decided: the type of frozen weights of such a job. Under `auto` it is narrower than
 * `dtype` only where no bit of the run changes: the checkpoint is bf16, and the products of the
 * back-end widen one type to the other. */
enum pl_dtype pl_job_base_dtype(const struct pl_job *job, const struct pl_model *m,
                                const struct pl_traits *traits);
/* True if all of the model's own weights are frozen, but for those trained whole with an adapter,
 * and products take two types. */
bool pl_job_base_may_be_narrow(const struct pl_job *job, const struct pl_traits *traits);
bool pl_job_trains_embedding(const struct pl_job *job);

/* The rows that carry an adapter in a layer, or (PL_NONE) outside of layers. */
static inline pl_row_set pl_shape_adapted_rows(const struct pl_job_shape *s, uint64_t layer) {
    if (layer == PL_NONE) return s->lora_targets.once;
    return layer < s->freeze_layers ? 0 : pl_targets_of_layer(&s->lora_targets, layer);
}

static inline uint32_t pl_shape_ranks(const struct pl_job_shape *s) {
    return s->ranks ? s->ranks : 1;
}

/* Ranks exchange gradients after every micro-batch, or once a step. */
static inline bool pl_shape_exchanges_each_micro(const struct pl_job_shape *s) {
    return s->rank_order;
}
static inline bool pl_shape_exchanges_once(const struct pl_job_shape *s) {
    return pl_shape_ranks(s) > 1 && !s->rank_order;
}
/* True if a step is one of ranks: of several, or of one that adds as several do. */
static inline bool pl_shape_is_of_ranks(const struct pl_job_shape *s) {
    return pl_shape_ranks(s) > 1 || s->rank_order;
}
/* True if a rank holds the gradient of a step in its own rows alone. What waits for the update is
 * whole. */
static inline bool pl_shape_cuts_gradients(const struct pl_job_shape *s) {
    return s->sharding >= PL_SHARDING_OPTIMIZER && pl_shape_exchanges_each_micro(s);
}

/* Gradients that die in the backward pass are made twice where the update waits for their norm. */
static inline bool pl_shape_sweeps_twice(const struct pl_job_shape *s) {
    return s->gradients == PL_GRADIENTS_OF_UPDATE &&
           (s->max_grad_norm > 0 || s->dtype == PL_DTYPE_F16);
}

/* True if a slot that stands once has an adapter. */
bool pl_shape_adapts(const struct pl_job_shape *s, const struct pl_model *m, enum pl_slot slot);
/* True if a slot is a module that is trained whole with an adapter. */
bool pl_shape_is_whole(const struct pl_job_shape *s, const struct pl_model *m, enum pl_slot slot);
/* The head of a tied model is a tensor of its own, which starts as the embedding, once one of the
 * two is trained whole: so PEFT copies one of them. */
static inline bool pl_shape_unties(const struct pl_job_shape *s, const struct pl_model *m) {
    return m->tied && s->lora_targets.whole;
}

struct pl_program {
    struct pl_job_shape shape;
    struct pl_traits traits;
    const struct pl_model *model; /* borrowed: must outlive the program */
    struct pl_tensor *tensors;
    struct pl_op *ops;
    struct pl_operand *operands; /* of all ops, inputs before outputs */
    uint32_t n_tensors, n_ops, n_operands;
    uint64_t tokens;       /* capacity N of a micro-batch: batch_size x max_seq_length; inference:
                           * the prompt tokens that are computed at once */
    uint64_t seqs;         /* sequences of a micro-batch, at most */
    uint64_t chunk_tokens; /* of the loss */
    uint64_t mlp_chunk_tokens; /* at most; tokens: the MLP of a layer computes all at once */
    struct pl_phase_range phases[PL_PHASE_COUNT];
    uint32_t loss, clip;   /* tensor ids; PL_NONE in inference */
    uint32_t facts;        /* PL_NONE where kernels read the facts in host memory */
    bool brief;            /* for figures alone: where many pieces of work are equal, only the first
                           * and the last are there; its plan has the bytes of the whole program */
    bool shortened;        /* brief, and something was left out */
    uint32_t second_sweep; /* its first op where the backward pass is made twice; else n_ops */
    uint32_t *layers_equal; /* [model->layers], owned: equal ones that this one can stand for, or
                                * PL_LAYER_LEFT_OUT; NULL: none */
    uint32_t periods_kept;  /* of equal layers, at either end of those that are left out */
    const uint32_t *layers_left_out; /* the same of a brief program; NULL: all layers are there */
};
#define PL_LAYER_LEFT_OUT UINT32_MAX

static inline bool pl_program_skips(const struct pl_program *p, uint64_t layer) {
    return p->layers_left_out && p->layers_left_out[layer] == PL_LAYER_LEFT_OUT;
}
/* Passes over the layers of a micro-batch. */
enum pl_pass { PL_PASS_UP, PL_PASS_DOWN, PL_PASS_DOWN_AGAIN, PL_PASS_COUNT };
static inline enum pl_pass pl_program_pass(const struct pl_program *p, uint32_t op) {
    if (!p->ops[op].backward) return PL_PASS_UP;
    return op < p->second_sweep ? PL_PASS_DOWN : PL_PASS_DOWN_AGAIN;
}
/* Tensors of layers that a brief program leaves out, and that are equal to this one of a layer. */
static inline uint32_t pl_tensor_left_out(const struct pl_program *p, const struct pl_tensor *t) {
    const bool of_layer = p->layers_left_out && t->layer != PL_NONE && t->role != PL_ROLE_ROPE;
    return of_layer ? p->layers_left_out[t->layer] : 0;
}
/* How many equal ops this one stands for, itself included. */
static inline double pl_op_copies(const struct pl_program *p, const struct pl_op *op) {
    const bool of_layer = p->layers_left_out && op->layer != PL_NONE;
    return (1.0 + op->left_out) * (1.0 + op->panels_left_out) *
           (of_layer ? 1.0 + p->layers_left_out[op->layer] : 1.0);
}

pl_err pl_program_create(const struct pl_model *m, const struct pl_job_shape *shape,
                         const struct pl_traits *traits, struct pl_program **out,
                         struct pl_diag *d);
pl_err pl_program_create_brief(const struct pl_model *m, const struct pl_job_shape *shape,
                               const struct pl_traits *traits, struct pl_program **out,
                               struct pl_diag *d);
void pl_program_destroy(struct pl_program **p); /* NULL-safe; sets *p to NULL */

/* Chunks of the loss that a program may have. */
#define PL_CHUNKS_MAX 65536
/* The most chunks of the MLP, whose operations every layer has. */
#define PL_MLP_CHUNKS_MAX 1024
/* Panels of a matrix of codes, whatever unpack_bytes is. */
#define PL_PANELS_MAX 256
/* Returns the tokens of a chunk of the loss, for micro-batches of n tokens. `auto` follows from the
 * model and the job alone: bits depend on it, so no budget and no level decides it. */
uint64_t pl_program_chunk_tokens(const struct pl_job_shape *s, const struct pl_model *m,
                                 uint64_t n);
/* Returns the value of loss_chunk_tokens with which micro-batches of any size have the chunks that
 * they have under `auto`. It may be more than the tokens of this one. */
uint64_t pl_program_chunk_of_any(const struct pl_program *p);

/* "layers.3.mlp.gu", "layers.3.qkv.grad", "rope". */
void pl_tensor_name(const struct pl_program *p, uint32_t id, char buf[96]);
/* How many ops from `first` on, itself included and all before `end`, may run as one: neighbours of
 * one kind and phase, on one side, of which all but the first join. At least 1. */
uint32_t pl_program_together(const struct pl_program *p, uint32_t first, uint32_t end);
/* True for the KV cache of samples, which keeps what a run of GENERATE left in it for the next one,
 * and so lives as long as the phase. */
static inline bool pl_tensor_spans_phase(const struct pl_tensor *t) {
    return t->scope == PL_SCOPE_STEP && t->category == PL_CATEGORY_KV_CACHE;
}
/* True if a tensor of a step keeps what a micro-batch, or a run of its phase, left in it for the
 * next one. */
static inline bool pl_tensor_is_held(const struct pl_program *p, const struct pl_tensor *t) {
    const bool adds_up = t->scope == PL_SCOPE_STEP && t->role == PL_ROLE_GRAD &&
                         p->shape.gradients == PL_GRADIENTS_OF_STEP;
    return adds_up || pl_tensor_spans_phase(t);
}

/* The ops of a step by when they run: for each micro-batch; once, after the last of them; and once
 * nothing can fail any more that could be tried again, since they change what is trained. The
 * first two change gradients, the norm and the clip alone. */
struct pl_step_ops {
    struct pl_phase_range micro, norm, commit;
    /* The two parts of a `micro` that scores its samples itself: the ops before the first that
     * needs the weights of their targets, and those from it on. */
    struct pl_phase_range score, learn;
};
struct pl_step_ops pl_program_step_ops(const struct pl_program *p);
/* First tensor with this role (and slot, layer), PL_NONE if there is none. */
uint32_t pl_program_find(const struct pl_program *p, enum pl_role role, enum pl_slot slot,
                         uint32_t layer);

/* Rows of a trainable tensor that are one tensor in files: an optimizer with states in blocks keeps
 * states of their own for each, so that blocks begin and end where the files' tensors do. */
struct pl_part {
    uint32_t row; /* index into pl_model_modules() */
    uint64_t row0, rows;
};
#define PL_MAX_PARTS 4
/* Parts of a WEIGHT, LORA_A, LORA_B or CODES tensor in order; their count. */
uint32_t pl_tensor_parts(const struct pl_program *p, uint32_t id, struct pl_part out[PL_MAX_PARTS]);

/* True if a state is of one such part rather than of its whole tensor. */
static inline bool pl_state_is_of_part(const struct pl_job_shape *s, enum pl_role role) {
    return (role == PL_ROLE_STATE || role == PL_ROLE_STATE_ABSMAX) &&
           pl_optimizer_is_in_blocks(s->optimizer);
}

#endif
