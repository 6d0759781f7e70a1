/* emit.h - the program under construction; private to estimator/program.
 *
 * A builder appends tensors and ops and remembers how often each tensor was written, so that every
 * operand carries the version it means (R1). Errors are sticky: emit freely, check `err` at the
 * end.
 *   B1  `phase`, `layer`, `backward`, `recompute` are stamped on everything that is appended
 *   B2  a struct pl_val names one content of one tensor; using it after the tensor was rewritten
 *       is a defect that pl_plan_check reports */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_EMIT_H
#define PL_ESTIMATOR_PROGRAM_EMIT_EMIT_H

#include "estimator/program/program.h"

struct pl_val {
    uint32_t id, version;
};
#define PL_NO_VAL ((struct pl_val){PL_NONE, 0})

/* Adapters of one slot of one layer: the modules of the slot that are targeted, in row order. */
struct pl_adapter_slot {
    uint32_t n_parts, a; /* a: stacked [n_parts*r, in] */
    uint32_t b[PL_MAX_PARTS];
    uint32_t row0[PL_MAX_PARTS], rows[PL_MAX_PARTS]; /* columns of the slot's output */
};

/* The modules of a slot of one layer in 4 bits, in row order. */
struct pl_quant_slot {
    uint32_t n_parts;
    uint32_t codes[PL_MAX_PARTS], absmax[PL_MAX_PARTS];
    uint32_t absmax8[PL_MAX_PARTS]; /* PL_NONE without double quantisation */
    uint32_t row0[PL_MAX_PARTS], rows[PL_MAX_PARTS];
};

/* What becomes of a gradient in the backward pass once it is whole. */
enum pl_settling {
    PL_SETTLE_LATER,  /* nothing: there is an update of all of them */
    PL_SETTLE_FOLD,   /* it is added to that of the step */
    PL_SETTLE_NORM,   /* its squares are added to the norm */
    PL_SETTLE_UPDATE, /* its tensor is updated */
    PL_SETTLE_BOTH
};
/* Gradients that are begun and not whole, at most: of one op, and of a tied embedding. */
#define PL_MAX_OPEN 8

/* Tokens of a micro-batch; n 0: all of them. */
struct pl_token_window {
    uint64_t row0, n;
};

struct pl_inputs { /* of a phase */
    struct pl_val ids, order, positions, offsets, samples, target_rows, targets;
};

/* An addition that waits for what other ranks send. */
struct pl_landing {
    struct pl_operand parts, g, own;
    struct pl_attr attr;
    uint64_t elements; /* of gradients that are to be made first */
};
#define PL_MAX_LANDINGS 16

struct pl_builder {
    struct pl_program *p;
    const struct pl_model *m;
    const struct pl_job_shape *s;
    struct pl_diag *d;
    pl_err err;
    uint32_t cap_tensors, cap_ops, cap_operands;
    uint32_t *version; /* per tensor: writes so far */
    uint32_t *grad;    /* per tensor: its gradient, PL_NONE */
    uint32_t
        *micro_grad; /* per tensor: its gradient of one micro-batch, PL_NONE; or NULL: exchange.c */
    uint32_t whole[PL_MAX_OPEN], n_whole;        /* tensors with one that has not been sent */
    struct pl_landing landings[PL_MAX_LANDINGS]; /* of those that were sent last */
    uint32_t n_landings;
    bool *grad_begun;        /* per tensor: a gradient of this micro-batch was written */
    uint32_t n_job_tensors;  /* they stand before those of steps */
    uint32_t loss, loss_row; /* where the loss of the phase is summed: exchange.h */
    enum pl_phase phase;
    uint32_t layer;
    bool backward, recompute, training;
    enum pl_settling settling;
    bool again;                   /* a second backward pass over what the first one has left */
    struct pl_token_window chunk; /* that is being computed: mlp.c */
    uint32_t open[PL_MAX_OPEN], n_open; /* tensors whose gradient was begun and not settled */
    uint32_t loss_again; /* where that pass adds up the loss, which nobody reads; PL_NONE */
    uint32_t left_out;   /* stamped on ops as well */
    uint16_t panels_left_out;
    uint32_t loop, piece;    /* that tensors are of; 0: none */
    uint32_t panels, panel;  /* loop and piece of a matrix that is unpacked, also in another loop */
    uint32_t n_loops;        /* with their pieces, each of which has a number */
    bool host;               /* ops run on the host */
    struct pl_inputs in;
    uint32_t *weight;                /* [layers * PL_SLOT_COUNT], global slots in layer 0 */
    struct pl_adapter_slot *adapter; /* [layers * PL_SLOT_COUNT]; NULL without LoRA */
    struct pl_quant_slot *quant;     /* [layers * PL_SLOT_COUNT]; NULL but for QLoRA */
    uint64_t largest_module;         /* elements, of the modules of layers that are in 4 bits */
    uint32_t rope[2];                /* tables; [1] only of longrope and dynamic */
    uint32_t query_rope;             /* PL_NONE: queries turn by the table of keys */
    uint32_t second_rope;            /* table of the model's second rope; PL_NONE */
    uint32_t *kv;                    /* [layers * 2] keys, values; NULL but in inference */
    uint32_t partials;
    struct pl_parts_kept *updates; /* [n_job_tensors], states.c; NULL outside of updates */
    uint64_t q, k, n;              /* Q, K columns; N tokens */
    uint64_t n_targets;            /* capacity of target rows: N, or the sequences of inference */
};

/* --- create.c: sizes that follow from a shape --- */
/* Capacity of a micro-batch; an error: too many tokens, or chunks of the loss. */
pl_err pl_program_count_tokens(const struct pl_job_shape *s, uint64_t *tokens, struct pl_diag *d);
uint64_t pl_program_seqs(const struct pl_job_shape *s);
/* Of the loss, where a micro-batch has n tokens. */
uint64_t pl_program_chunk_tokens(const struct pl_job_shape *s, const struct pl_model *m,
                                 uint64_t n);
/* Of the MLP. */
uint64_t pl_program_mlp_chunk_tokens(const struct pl_job_shape *s, uint64_t n);

/* --- emit.c --- */
bool pl_build_tensor_bytes(struct pl_tensor *t); /* from its dimensions; false: above 64 bits */
uint32_t pl_build_tensor(struct pl_builder *b, struct pl_tensor t);
/* A STEP tensor of the current phase and layer: [rows of kind, cols] in the activation dtype. */
uint32_t pl_build_activation(struct pl_builder *b, const char *name, enum pl_rows rows,
                             uint64_t cols);
/* The same with dtype and category chosen, rows at capacity N unless FIXED with `n`. While a chunk
 * of tokens is computed, a tensor of tokens has the rows of one chunk. */
uint32_t pl_build_step(struct pl_builder *b, const char *name, enum pl_rows rows, uint64_t n,
                       uint64_t cols, enum pl_dtype dtype, enum pl_category category);
struct pl_val pl_build_now(const struct pl_builder *b, uint32_t id); /* current content */

struct pl_operand pl_arg(struct pl_val v);
struct pl_operand pl_arg_cols(struct pl_val v, uint64_t col, uint64_t cols);
struct pl_operand pl_arg_rows(struct pl_val v, uint64_t row0, uint64_t nrows);
/* Of a tensor of tokens, those that are being computed: all, or a chunk, which is at the top of a
 * tensor that was made for one; and columns of these rows. */
struct pl_operand pl_build_tokens(const struct pl_builder *b, struct pl_val v);
struct pl_operand pl_build_token_cols(const struct pl_builder *b, struct pl_val v, uint64_t col,
                                      uint64_t cols);
extern const struct pl_operand pl_arg_none;

/* Appends an op; version numbers of the outputs are filled in (operands given by id and window). */
void pl_build_op(struct pl_builder *b, enum pl_op_kind kind, struct pl_attr attr,
                 const struct pl_operand *in, uint32_t n_in, const struct pl_operand *out,
                 uint32_t n_out);
/* Points every op at its operands once the list has stopped moving. */
void pl_build_link_operands(struct pl_program *p);
/* The same of a kind of op_rows.h: the numbers of operands are those of its row. */
#define PL_EMIT(b, KIND, attr, in, out)                                                            \
    do {                                                                                           \
        _Static_assert(sizeof(in) / sizeof *(in) == PL_##KIND##_N_IN, #KIND ": inputs");           \
        _Static_assert(sizeof(out) / sizeof *(out) == PL_##KIND##_N_OUT, #KIND ": outputs");       \
        pl_build_op((b), PL_OP_##KIND, (attr), (in), PL_##KIND##_N_IN, (out), PL_##KIND##_N_OUT);  \
    } while (0)

/* Workspace operand of an op about to be appended; absent when the back-end needs none. */
struct pl_operand pl_build_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                     const struct pl_attr *attr, uint64_t rows, uint64_t cols);
/* The same of a product: its inputs and its output. */
struct pl_operand pl_build_product_workspace(struct pl_builder *b, enum pl_op_kind kind,
                                             const struct pl_attr *attr, struct pl_operand x,
                                             struct pl_operand w, struct pl_operand y);

bool pl_build_trains(const struct pl_builder *b, uint32_t tensor);       /* PL_NONE: false */
uint32_t pl_build_weight(const struct pl_builder *b, enum pl_slot slot); /* of the current layer */
const struct pl_adapter_slot *pl_build_adapter(const struct pl_builder *b, enum pl_slot slot);
/* Index of a slot in the builder's lists: one that the model has once (PL_NONE) is in layer 0. */
size_t pl_build_slot_index(uint32_t layer, enum pl_slot slot);

/* --- job_tensors.c: weights, adapters, gradients, states, tables --- */
void pl_build_job_tensors(struct pl_builder *b);
bool pl_build_embedding_trains(const struct pl_builder *b); /* itself, or an adapter on it */
/* Lowest decoder layer that has anything to train; = layers when none has. */
uint64_t pl_build_lowest_layer(const struct pl_builder *b);

/* --- quantised.c: base weights in 4 bits --- */
bool pl_build_is_quantised(const struct pl_builder *b, enum pl_slot slot);
void pl_build_quantised_weight(struct pl_builder *b, enum pl_slot slot, uint64_t layer);
/* The matrix of a slot as products want it: the weight itself, whole; or, of a slot in 4 bits,
 * transient copies of pieces of it. A matrix that is larger than the largest module of a layer
 * comes module by module, the head in so many rows; and these in panels of rows or of columns,
 * where unpack_bytes is less than they are. */
enum pl_cut { PL_CUT_ROWS, PL_CUT_COLS };
struct pl_piece {
    struct pl_val w;
    uint64_t row0, rows, col0, cols;
    uint64_t first, together; /* rows that are cut into panels */
    uint64_t size;            /* rows or columns of all of them but the last */
    uint64_t panel, panels;
};
/* Appends the ops that write the piece after *p, the first one after {0}; false after the last. */
bool pl_build_next_piece(struct pl_builder *b, enum pl_slot slot, enum pl_cut cut,
                         struct pl_piece *p);
/* x[N,C] = the rows of an embedding in 4 bits, times scale unless that is 0. */
void pl_build_look_up_codes(struct pl_builder *b, uint32_t x, float scale);

/* --- states.c: what an optimizer keeps for each trainable tensor, and the ops that use it --- */
void pl_build_states(struct pl_builder *b);
/* Of the gradient of a trainable tensor. */
enum pl_dtype pl_build_gradient_dtype(const struct pl_builder *b, uint32_t tensor);
/* partial: a row for each block of so many rows; block 0: one for all of g. */
void pl_build_square_sum(struct pl_builder *b, struct pl_operand g, uint64_t block,
                         struct pl_operand partial);
/* From *i on, the next tensor that is trained, whose layer is that of the ops that follow; false,
 * and of no layer, where there is none:
 * for (uint32_t i = 0; pl_build_trained(b, &i); i++) ... */
bool pl_build_trained(struct pl_builder *b, uint32_t *i);
/* Norm, clip and update of everything that is trained. */
void pl_build_updates(struct pl_builder *b);
/* The ops of it one by one, between the first two; the norm and the update of each tensor. */
void pl_build_begin_updates(struct pl_builder *b);
void pl_build_end_updates(struct pl_builder *b);
void pl_build_norm_of(struct pl_builder *b, uint32_t tensor);
void pl_build_clip(struct pl_builder *b);
void pl_build_update(struct pl_builder *b, uint32_t tensor);

/* --- in_backward.c: gradients that are tensors of the step --- */
/* New ones, of what is trained, none of them begun. */
void pl_build_step_gradients(struct pl_builder *b);
/* Notes that the gradient of a tensor is begun. */
void pl_build_open_gradient(struct pl_builder *b, uint32_t tensor);
/* After the gradient of a step of a tape: settles what is whole by now. embedding: it was that of
 * the embedding, which is the last to add to the gradient of a tied head. */
void pl_build_settle(struct pl_builder *b, bool embedding);

/* --- steps.c --- */
struct pl_attr pl_build_norm_attr(const struct pl_builder *b);
/* The gradient of a norm. dx: where that of x goes, absent if nothing reads it; may be dy itself.
 * add: to what dx holds. */
void pl_build_norm_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy,
                       struct pl_val x, struct pl_val rstd, struct pl_operand dx, bool add);

/* --- linear.c: a fused matrix with its bias and adapters --- */
/* Of the tokens that are being computed.
 * y = x W^T + bias + adapters. Returns the adapters' a[N,parts*r], PL_NO_VAL without adapters. */
struct pl_val pl_build_linear(struct pl_builder *b, enum pl_slot slot, struct pl_val x, uint32_t y);
/* A STEP tensor [tokens, n_parts * r] in the type of adapters: what A makes, or its gradient. */
uint32_t pl_build_adapter_rows(struct pl_builder *b, const char *name, uint32_t n_parts);
/* Only a = x A^T, for a recomputation that does not need y. */
struct pl_val pl_build_adapter_a(struct pl_builder *b, enum pl_slot slot, struct pl_val x);
/* Gradients of weight, bias and adapters, and dx = dy W (+ adapters) when dx is not PL_NONE; dx is
 * written after the last op that reads x, and may be its tensor.
 * x and a may be PL_NO_VAL when pl_build_linear_needs_x says so. */
void pl_build_linear_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy,
                         struct pl_val x, struct pl_val a, uint32_t dx);
bool pl_build_linear_needs_x(const struct pl_builder *b, enum pl_slot slot);

/* The products alone, with their workspace: y (=|+=) alpha x w^T + bias, dw (+)= alpha dy^T x into
 * the gradient of w, dx (=|+=) alpha dy w. */
void pl_build_product(struct pl_builder *b, struct pl_operand x, struct pl_val w,
                      struct pl_operand bias, struct pl_operand y, float alpha, bool add);
void pl_build_product_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x,
                         uint32_t w, float alpha);
void pl_build_product_dx(struct pl_builder *b, struct pl_operand dy, struct pl_val w,
                         struct pl_operand dx, float alpha, bool add);

/* --- block.c: one decoder layer --- */
struct pl_tape; /* tape.h */
/* trunk: residual; pending: output of the layer below, not yet added, or PL_NO_VAL. Returns the
 * layer's output, not yet added to the returned trunk; the tape knows its gradient. need_dx:
 * something below is trained. */
struct pl_val pl_build_layer(struct pl_builder *b, struct pl_val *trunk, struct pl_val pending,
                             bool need_dx, struct pl_tape *tape);

/* --- head.c: gather, norm, chunked logits and loss --- */
/* logits[.,V] = h W^T, in pieces of the vocabulary where W is in 4 bits, and an adapter's part.
 * Returns the adapter's a[.,r], absent without one. */
struct pl_operand pl_build_logits(struct pl_builder *b, struct pl_operand h,
                                  struct pl_operand logits);
/* The tape of the head: h = norm(xs), xs = (pending + trunk)[target_rows], of which it returns h;
 * and the same with the loss. need_dx: something below is trained. */
uint8_t pl_build_head_rows(struct pl_builder *b, struct pl_val trunk, struct pl_val pending,
                           bool need_dx, struct pl_tape *tape);
void pl_build_head(struct pl_builder *b, struct pl_val trunk, struct pl_val pending, bool need_dx,
                   struct pl_tape *tape);
/* The loss and its gradients once more, for a second backward pass over such a tape. */
void pl_build_head_again(struct pl_builder *b, struct pl_tape *tape);

/* --- phases.c --- */
void pl_build_phases(struct pl_builder *b);
void pl_build_begin_phase(struct pl_builder *b, enum pl_phase phase);
void pl_build_end_phase(struct pl_builder *b);
/* Fills b->in with what the trainer uploads before a micro-batch; no targets for GENERATE. */
void pl_build_inputs(struct pl_builder *b);
/* From the embedding through all layers; tapes (nullable) gets one of the embedding and one a
 * layer. Returns the last output, not yet added to *trunk. */
struct pl_val pl_build_forward(struct pl_builder *b, struct pl_val *trunk, struct pl_tape *tapes);

/* --- inference.c --- */
/* Tokens that one run of GENERATE computes at most. */
uint64_t pl_build_generate_tokens(const struct pl_job_shape *s);
void pl_build_kv_cache(struct pl_builder *b); /* job tensors */
/* Keys and values of this run into the cache, then attention over it. Returns o. */
struct pl_val pl_build_cached_attention(struct pl_builder *b, struct pl_attr attr, struct pl_val qk,
                                        struct pl_val qkv);
void pl_build_generate_phase(struct pl_builder *b);

/* --- merge_program.c --- */
void pl_build_merge(struct pl_builder *b);
void pl_build_adapter_export(struct pl_builder *b);

/* --- offload.c: host memory --- */
/* Which job tensors live there; before the first op. */
void pl_build_place_tensors(struct pl_builder *b);
/* Rewrites the phase at hand, complete, so that every op finds its operands in the memory that it
 * can reach. */
void pl_build_offload(struct pl_builder *b);

#endif
