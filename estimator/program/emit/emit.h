/* emit.h - the program under construction; private to estimator/program.
 *
 * A builder appends tensors and ops and remembers how often each tensor was written, so that every
 * operand carries the version it means (R1). Errors are sticky: emit freely, check `err` at the
 * end.
 * `phase`, `layer`, `backward`, `recompute` are stamped on everything that is appended.
 *   B2  a struct pl_val names one content of one tensor; using it after the tensor was rewritten
 *       is a defect that pl_plan_check reports */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_EMIT_H
#define PL_ESTIMATOR_PROGRAM_EMIT_EMIT_H

#include "estimator/program/program.h"

struct pl_val {
    uint32_t id, version;
};
#define PL_NO_VAL ((struct pl_val){PL_NONE, 0})

/* The adapters of one slot of one layer: the targeted modules of the slot, in row order. */
struct pl_adapter_slot {
    uint32_t n_parts, a; /* a: stacked [n_parts*r, in] */
    uint32_t b[PL_MAX_PARTS];
    uint32_t read_a, read_b[PL_MAX_PARTS]; /* the tensors that products read: these themselves, or
                                              copies of the layer at hand in the type of its
                                              activations */
    uint32_t read_all_b;                   /* all of B as one matrix [out, n_parts*r], or PL_NONE */
    uint32_t row0[PL_MAX_PARTS], rows[PL_MAX_PARTS]; /* columns of the slot's output, for each
                                                        part */
};

/* The modules of a slot of one layer in 4 bits, in row order. */
struct pl_quant_slot {
    uint32_t n_parts;
    uint32_t codes[PL_MAX_PARTS], absmax[PL_MAX_PARTS];
    uint32_t absmax8[PL_MAX_PARTS]; /* PL_NONE without double quantisation */
    uint32_t row0[PL_MAX_PARTS], rows[PL_MAX_PARTS];
};

/* The step that follows in the backward pass when a gradient is complete. */
enum pl_settling {
    PL_SETTLE_LATER,  /* nothing: one update follows for all of them */
    PL_SETTLE_FOLD,   /* it is added to the gradient of the step */
    PL_SETTLE_NORM,   /* its squares are added to the norm */
    PL_SETTLE_UPDATE, /* its tensor is updated */
    PL_SETTLE_BOTH
};
/* The most gradients that are begun and not complete: those of one op, and of a tied embedding. */
#define PL_MAX_OPEN 8

/* Tokens of a micro-batch; n = 0 means all of them. */
struct pl_token_window {
    uint64_t row0, n;
};

struct pl_inputs { /* input tensors of a phase */
    struct pl_val ids, order, positions, offsets, samples, target_rows, targets;
    struct pl_val weights; /* of targets; PL_NO_VAL: all are 1 */
};

/* An addition that waits for data from other ranks. */
struct pl_landing {
    struct pl_operand parts, g, own;
    struct pl_attr attr;
    uint64_t elements; /* elements of gradients to be computed before it */
};
#define PL_MAX_LANDINGS 16

/* The experts whose matrices lie in the operand of a product, while products of experts are
 * appended. */
struct pl_expert_rows {
    struct pl_val offsets; /* of the rows of every expert of the layer */
    uint32_t first, n;
    bool turned; /* a matrix is [in, out] */
};

/* A whole piece of a matrix that the recomputation of a layer has unpacked, for its gradient. */
struct pl_kept_copy {
    enum pl_slot slot;
    uint64_t row0;
    struct pl_val w;
};
/* The most of them at one time. Further ones are unpacked again. */
#define PL_MAX_KEPT 16

/* Keys and values that later layers use as well, and the sum of what comes back from these. */
struct pl_lent_kv {
    struct pl_val kv; /* [N,2K]: keys, values */
    uint32_t grad;    /* PL_NONE: nothing came back yet */
};

struct pl_builder {
    struct pl_program *p;
    const struct pl_model *m;
    const struct pl_job_shape *s;
    struct pl_diag *d;
    pl_err err;
    uint32_t cap_tensors, cap_ops, cap_operands;
    uint32_t *version; /* per tensor: writes so far */
    uint32_t *grad;    /* per tensor: its gradient, or PL_NONE */
    uint32_t
        *micro_grad; /* per tensor: its gradient of one micro-batch, or PL_NONE; NULL: there are
                        none (exchange.c) */
    uint32_t whole[PL_MAX_OPEN], n_whole;        /* tensors with a complete gradient that was not
                                                    sent yet */
    struct pl_landing landings[PL_MAX_LANDINGS]; /* additions for the gradients that were sent
                                                    last */
    uint32_t n_landings;
    bool *grad_begun;        /* per tensor: a gradient of this micro-batch was written */
    uint32_t n_job_tensors;  /* job tensors come before those of steps */
    uint32_t loss, loss_row; /* tensor and row in which the loss of the phase is summed
                                (exchange.h) */
    enum pl_phase phase;
    uint32_t layer;
    bool backward, recompute, training;
    bool drops; /* inputs of adapters have dropout */
    bool bare;  /* adapters are left out */
    enum pl_settling settling;
    bool again;                   /* a second backward pass over what the first one has left */
    struct pl_token_window chunk; /* tokens that are being computed (mlp.c) */
    uint32_t route_stats; /* of the routers of this micro-batch; PL_NONE: no auxiliary loss */
    const struct pl_expert_rows *experts; /* NULL: products are of all rows with one matrix */
    uint32_t open[PL_MAX_OPEN], n_open;   /* tensors whose gradient was begun and not settled */
    uint32_t loss_again; /* tensor in which that pass sums the loss, which nothing reads; or
                            PL_NONE */
    uint32_t left_out;   /* number of equal ops that this one stands for; stamped on ops as well */
    uint16_t panels_left_out;
    uint32_t loop, piece;   /* loop and piece that tensors belong to; 0 = none */
    uint32_t panels, panel; /* loop and piece of a matrix that is being unpacked, possibly inside
                                another loop */
    uint32_t n_loops;       /* number of loops and of their pieces so far */
    struct pl_kept_copy kept[PL_MAX_KEPT]; /* of the current layer; those of a chunk last */
    uint32_t n_kept;
    bool host; /* ops run on the host */
    struct pl_inputs in;
    struct pl_val logp; /* log-probabilities of the targets; PL_NO_VAL: the loss that is appended
                           gives none, and in a micro-batch its gradient instead */
    uint32_t logits;    /* all of them, which a loss without gradient has left; PL_NONE: none */
    struct pl_operand logits_a;      /* the rows of an adapter that belong to them */
    uint32_t *weight;                /* [layers * PL_SLOT_COUNT], global slots in layer 0 */
    struct pl_adapter_slot *adapter; /* [layers * PL_SLOT_COUNT]; NULL without LoRA */
    struct pl_quant_slot *quant;     /* [layers * PL_SLOT_COUNT]; NULL but for QLoRA */
    uint64_t largest_module;         /* elements of the largest module of layers that are in 4
                                        bits */
    uint32_t rope[2];                /* tables; [1] only for longrope and dynamic */
    uint32_t query_rope;             /* PL_NONE: queries use the table of keys */
    uint32_t second_rope;            /* table of the model's second rope, or PL_NONE */
    uint32_t *kv;                    /* [layers * 2] keys, values; NULL but in inference */
    struct pl_lent_kv *lent;         /* [layers] */
    struct pl_val layer_input;       /* [N, layers*P], of the phase; PL_NO_VAL: layers have none */
    uint32_t layer_input_grad;       /* its gradient in the backward pass, or PL_NONE */
    uint32_t sample_kv[2];           /* keys, values of samples: of all layers */
    uint32_t sample_delta[2];        /* of linear attention: last channels, states */
    uint32_t partials;
    struct pl_parts_kept *updates; /* [n_job_tensors], states.c; NULL outside of updates */
    uint64_t q, k;                 /* Q, K columns of the current layer */
    uint64_t key_col;   /* of its keys in qkv: more than Q where gates are among queries */
    uint64_t n;         /* N tokens */
    uint64_t n_targets; /* capacity of target rows: N, or the sequences of GENERATE */
    uint64_t seqs;      /* capacity of sequences */
};

/* --- create.c: sizes that follow from a shape --- */
/* Computes the capacity of a micro-batch. Errors: too many tokens, or too many chunks of the
 * loss. */
pl_err pl_program_count_tokens(const struct pl_job_shape *s, uint64_t *tokens, struct pl_diag *d);
uint64_t pl_program_seqs(const struct pl_job_shape *s);
/* Returns the tokens of a chunk of the MLP. */
uint64_t pl_program_mlp_chunk_tokens(const struct pl_job_shape *s, uint64_t n);

/* --- emit.c --- */
bool pl_build_tensor_bytes(struct pl_tensor *t); /* from its dimensions; false: more than 64 bits */
uint32_t pl_build_tensor(struct pl_builder *b, struct pl_tensor t);
/* Appends a STEP tensor of the current phase and layer: [rows of kind, cols] in the activation
 * dtype. */
uint32_t pl_build_activation(struct pl_builder *b, const char *name, enum pl_rows rows,
                             uint64_t cols);
/* pl_build_activation with dtype and category; rows at capacity N unless FIXED with `n`. While a
 * chunk of tokens is computed, a tensor of tokens has the rows of one chunk. */
uint32_t pl_build_step(struct pl_builder *b, const char *name, enum pl_rows rows, uint64_t n,
                       uint64_t cols, enum pl_dtype dtype, enum pl_category category);
struct pl_val pl_build_now(const struct pl_builder *b, uint32_t id); /* current content */

struct pl_operand pl_arg(struct pl_val v);
struct pl_operand pl_arg_now(const struct pl_builder *b, uint32_t id); /* pl_build_now(), whole */
struct pl_operand pl_arg_cols(struct pl_val v, uint64_t col, uint64_t cols);
struct pl_operand pl_arg_rows(struct pl_val v, uint64_t row0, uint64_t nrows);
/* Returns the window of a tensor of tokens that is being computed: all rows, or a chunk, which is
 * at the top of a tensor that was made for one chunk; and columns of these rows. */
struct pl_operand pl_build_tokens(const struct pl_builder *b, struct pl_val v);
struct pl_operand pl_build_token_cols(const struct pl_builder *b, struct pl_val v, uint64_t col,
                                      uint64_t cols);
extern const struct pl_operand pl_arg_none;

/* Appends an op; version numbers of the outputs are filled in (operands given by id and window). */
void pl_build_op(struct pl_builder *b, enum pl_op_kind kind, struct pl_attr attr,
                 const struct pl_operand *in, uint32_t n_in, const struct pl_operand *out,
                 uint32_t n_out);
/* Points every op at its operands when the list no longer moves. */
void pl_build_link_operands(struct pl_program *p);
/* pl_build_op for a kind of op_rows.h, with the numbers of operands of its row. */
#define PL_EMIT(b, KIND, attr, in, out)                                                            \
    do {                                                                                           \
        _Static_assert(sizeof(in) / sizeof *(in) == PL_##KIND##_N_IN, #KIND ": inputs");           \
        _Static_assert(sizeof(out) / sizeof *(out) == PL_##KIND##_N_OUT, #KIND ": outputs");       \
        pl_build_op((b), PL_OP_##KIND, (attr), (in), PL_##KIND##_N_IN, (out), PL_##KIND##_N_OUT);  \
    } while (0)

/* Returns the workspace operand of an op about to be appended; absent if the back-end needs
 * none. */
struct pl_operand pl_build_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                     const struct pl_attr *attr, uint64_t rows, uint64_t cols);
/* pl_build_workspace for a product: its inputs and its output. */
struct pl_operand pl_build_product_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                             const struct pl_attr *attr, struct pl_operand x,
                                             struct pl_operand w, struct pl_operand y);

/* Makes a layer that of the ops that follow. */
void pl_build_enter_layer(struct pl_builder *b, uint64_t layer);
bool pl_build_trains(const struct pl_builder *b, uint32_t tensor);       /* false for PL_NONE */
uint32_t pl_build_weight(const struct pl_builder *b, enum pl_slot slot); /* weight of the current
                                                                            layer */
const struct pl_adapter_slot *pl_build_adapter(const struct pl_builder *b, enum pl_slot slot);
/* Returns the index of a slot in the builder's lists: a slot that the model has once (layer
 * PL_NONE) is in layer 0. */
size_t pl_build_slot_index(uint32_t layer, enum pl_slot slot);

/* --- job_tensors.c: weights, adapters, gradients, states, tables --- */
void pl_build_job_tensors(struct pl_builder *b);
bool pl_build_embedding_trains(const struct pl_builder *b); /* the embedding itself, or an adapter
                                                               on it */
/* Returns the lowest decoder layer that has anything to train; the number of layers if none has. */
uint64_t pl_build_lowest_layer(const struct pl_builder *b);

/* --- quantised.c: base weights in 4 bits --- */
/* True if a slot of a layer is held in 4 bits; PL_NONE is any layer, for a slot of the model. */
bool pl_build_is_quantised(const struct pl_builder *b, uint64_t layer, enum pl_slot slot);
void pl_build_quantised_weight(struct pl_builder *b, enum pl_slot slot, uint64_t layer);
/* The matrix of a slot in the form that products need: the weight itself, whole; or, for a slot in
 * 4 bits, transient copies of pieces of it. A matrix larger than the largest module of a layer is
 * copied module by module, the head in as many rows; and these in panels of rows or of columns, if
 * unpack_bytes is less than their size. The matrices of experts are copied some whole experts at a
 * time, whatever the axis. */
enum pl_panel_axis { PL_PANEL_ROWS, PL_PANEL_COLS };
struct pl_piece {
    struct pl_val w;
    uint64_t row0, rows, col0, cols;
    uint64_t first, together; /* rows that are split into panels */
    uint64_t size;            /* rows or columns of every panel but the last */
    uint64_t panel, panels;
};
/* Appends the ops that write the piece after *p, the first one after {0}; false after the last. In
 * the backward pass a piece that was kept is there already (shape.keeps_unpacked). */
bool pl_build_next_piece(struct pl_builder *b, enum pl_slot slot, enum pl_panel_axis axis,
                         struct pl_piece *p);
/* Appends x[N,C] = the rows of an embedding in 4 bits, times scale unless that is 0. */
void pl_build_look_up_codes(struct pl_builder *b, uint32_t x, float scale);

/* --- states.c: what an optimizer keeps for each trainable tensor, and the ops that use it --- */
void pl_build_states(struct pl_builder *b);
/* Returns the type of the gradient of a trainable tensor. */
enum pl_dtype pl_build_gradient_dtype(const struct pl_builder *b, uint32_t tensor);
/* `partial` has a row for each block of so many rows; block 0: one row for all of g. */
void pl_build_square_sum(struct pl_builder *b, struct pl_operand g, uint64_t block,
                         struct pl_operand partial);
/* Finds, from *i on, the next tensor that is trained, and makes its layer that of the ops that
 * follow; false, and no layer, after the last: for (uint32_t i = 0; pl_build_trained(b, &i); i++)
 * ... */
bool pl_build_trained(struct pl_builder *b, uint32_t *i);
/* Appends norm, clip and update of everything that is trained. */
void pl_build_updates(struct pl_builder *b);
/* The parts of pl_build_updates: between begin and end come the norm and the update of each
 * tensor. */
void pl_build_begin_updates(struct pl_builder *b);
void pl_build_end_updates(struct pl_builder *b);
void pl_build_norm_of(struct pl_builder *b, uint32_t tensor);
void pl_build_clip(struct pl_builder *b);
void pl_build_update(struct pl_builder *b, uint32_t tensor);

/* --- in_backward.c: gradients that are tensors of the step --- */
/* Appends new gradients of everything that is trained, none of them begun. */
void pl_build_step_gradients(struct pl_builder *b);
/* Records that the gradient of a tensor is begun. */
void pl_build_open_gradient(struct pl_builder *b, uint32_t tensor);
/* Called after the gradient of a step of a tape: settles the gradients that are complete.
 * `embedding`: the step was the embedding's, which is the last to add to the gradient of a tied
 * head. */
void pl_build_settle(struct pl_builder *b, bool embedding);

/* --- steps.c --- */
struct pl_attr pl_build_norm_attr(const struct pl_builder *b);
/* Appends the gradient of a norm. dx: the gradient of x, absent if nothing reads it; it may be dy
 * itself. add: adds to dx. */
void pl_build_norm_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy,
                       struct pl_val x, struct pl_val rstd, struct pl_operand dx, bool add);

/* The gradient of a weight, as one of several outputs of an op, with the scratch that it takes;
 * both absent if the weight is not trained. */
struct pl_weight_grad {
    struct pl_operand dw, ws;
};
struct pl_weight_grad pl_build_weight_grad(struct pl_builder *b, enum pl_op_kind kind, uint32_t w,
                                           struct pl_attr *attr, uint64_t cols);

/* --- linear.c: a fused matrix with its bias and adapters --- */
/* Appends y = x W^T + bias + adapters for the tokens that are being computed, or, while
 * b->experts is set, for the rows of every expert. Returns the adapters'
 * a[N,parts*r], PL_NO_VAL without adapters. */
struct pl_val pl_build_linear(struct pl_builder *b, enum pl_slot slot, struct pl_val x, uint32_t y);
/* Appends a STEP tensor [rows, n_parts * r] in the type in which A is read: the output of A, or its
 * gradient. */
uint32_t pl_build_adapter_rows(struct pl_builder *b, const char *name,
                               const struct pl_adapter_slot *ad);
/* Appends only a = x A^T, for a recomputation that does not need y. */
struct pl_val pl_build_adapter_a(struct pl_builder *b, enum pl_slot slot, struct pl_val x);
/* The operands of the gradient of a fused matrix. */
struct pl_linear_bwd {
    enum pl_slot slot;
    struct pl_operand dy;
    struct pl_val x, a; /* may be PL_NO_VAL if pl_build_linear_needs_x says so */
    uint32_t dx;        /* PL_NONE: not wanted; may be the tensor of x */
    bool adds;          /* dx is added to */
    struct pl_val da;   /* of the adapters' rows; PL_NO_VAL before it is computed */
};
/* Appends the gradients of weight, bias and adapters, and dx = dy W (+ adapters), which is written
 * after the last op that reads x. */
void pl_build_linear_bwd(struct pl_builder *b, struct pl_linear_bwd *g);
/* The same in two parts, for an x that is made again between them: dx, and then the rest. */
void pl_build_linear_dx(struct pl_builder *b, struct pl_linear_bwd *g);
void pl_build_linear_dw(struct pl_builder *b, const struct pl_linear_bwd *g);
bool pl_build_linear_needs_x(const struct pl_builder *b, enum pl_slot slot);

/* Append the products alone, with their workspace: y (=|+=) alpha x w^T + bias, dw (+)= alpha dy^T
 * x into the gradient of w, dx (=|+=) alpha dy w. */
void pl_build_product(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                      struct pl_operand bias, struct pl_operand y, float alpha, bool add);
void pl_build_product_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x,
                         uint32_t w, float alpha);
void pl_build_product_dx(struct pl_builder *b, struct pl_operand dy, struct pl_operand w,
                         struct pl_operand dx, float alpha, bool add);

/* --- adapters.c --- */
/* Appends the copies of the current layer's adapters that its products read. */
void pl_build_copy_adapters(struct pl_builder *b);
/* True if every row of a matrix of the current layer has an adapter. */
bool pl_build_adapts_all(const struct pl_builder *b, enum pl_slot slot);

/* --- grouped.c: the same with the matrix of every expert for its rows; b->experts is set --- */
void pl_build_grouped(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                      struct pl_operand bias, struct pl_operand y, float alpha, bool add);
void pl_build_grouped_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x,
                         uint32_t w, float alpha);
void pl_build_grouped_dx(struct pl_builder *b, struct pl_operand dy, struct pl_operand w,
                         struct pl_operand dx, float alpha, bool add);
void pl_build_grouped_bias_grad(struct pl_builder *b, struct pl_operand dy, uint32_t bias);
/* Returns the attributes of a router; counts: its stats are there, and so is the auxiliary loss. */
struct pl_attr pl_build_route_attr(const struct pl_builder *b, bool counts);
/* Append, before and after the layers of a micro-batch, the tensor in which routers count, and the
 * auxiliary loss. */
void pl_build_begin_routing(struct pl_builder *b);
void pl_build_end_routing(struct pl_builder *b);

/* --- block.c: one decoder layer --- */
struct pl_tape; /* tape.h */
/* Appends a layer. trunk: residual; pending: output of the layer below, not yet added, or
 * PL_NO_VAL. Returns the layer's output, not yet added to the returned trunk; the tape holds its
 * gradient. need_dx: something below is trained. */
struct pl_val pl_build_layer(struct pl_builder *b, struct pl_val *trunk, struct pl_val pending,
                             bool need_dx, struct pl_tape *tape);

/* --- head.c: gather, norm, chunked logits and loss --- */
/* Appends logits[.,V] = h W^T, in pieces of the vocabulary if W is in 4 bits, and an adapter's
 * part. Returns the adapter's a[.,r], absent without one. */
struct pl_operand pl_build_logits(struct pl_builder *b, struct pl_operand h,
                                  struct pl_operand logits);
/* Records the tape of the head: h = norm(xs), xs = (pending + trunk)[target_rows]; returns h. The
 * second function also appends the loss. need_dx: something below is trained. */
uint8_t pl_build_head_rows(struct pl_builder *b, struct pl_val trunk, struct pl_val pending,
                           bool need_dx, struct pl_tape *tape);
void pl_build_head(struct pl_builder *b, struct pl_val trunk, struct pl_val pending, bool need_dx,
                   struct pl_tape *tape);
/* Appends the loss again with its gradients, after one that gave log-probabilities alone. */
void pl_build_loss_again(struct pl_builder *b, struct pl_tape *tape);
/* Appends the loss and its gradients again, for a second backward pass over such a tape. */
void pl_build_head_again(struct pl_builder *b, struct pl_tape *tape);

/* --- phases.c --- */
void pl_build_phases(struct pl_builder *b);
void pl_build_begin_phase(struct pl_builder *b, enum pl_phase phase);
void pl_build_end_phase(struct pl_builder *b);
/* Fills b->in with the tensors that the trainer uploads before a micro-batch; no targets for
 * GENERATE. */
void pl_build_inputs(struct pl_builder *b);
/* Appends the embedding and all layers; tapes (nullable) gets one tape for the embedding and one
 * for each layer. Returns the last output, not yet added to *trunk. */
struct pl_val pl_build_forward(struct pl_builder *b, struct pl_val *trunk, struct pl_tape *tapes);

/* --- inference.c --- */
/* Returns the most tokens that one run of GENERATE computes for so many sequences. */
uint64_t pl_build_generate_tokens(const struct pl_job_shape *s, uint64_t seqs);
void pl_build_kv_cache(struct pl_builder *b); /* job tensors */
/* Appends keys and values of this run to the cache, then attention over it. Returns o. */
struct pl_val pl_build_cached_attention(struct pl_builder *b, struct pl_attr attr,
                                        const struct pl_operand qkv[3], struct pl_operand sinks);
/* Returns what linear attention of the current layer keeps of every sequence: the last channels of
 * its convolution, or its states. */
struct pl_operand pl_build_last_channels(const struct pl_builder *b);
struct pl_operand pl_build_delta_state(const struct pl_builder *b);
/* Appends the phase: of an inference job, or of the samples of a job that trains. */
void pl_build_generate_phase(struct pl_builder *b);

/* --- merge_program.c --- */
void pl_build_merge(struct pl_builder *b);
void pl_build_adapter_export(struct pl_builder *b);

/* --- offload.c: host memory --- */
/* Decides which job tensors live in host memory; called before the first op. */
void pl_build_place_tensors(struct pl_builder *b);
/* Rewrites the current phase, which must be complete, so that every op finds its operands in the
 * memory that it can reach. */
void pl_build_offload(struct pl_builder *b);

#endif
