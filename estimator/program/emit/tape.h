/* tape.h - a part of the forward pass, recorded step by step, from which its gradient follows. The
 * embedding, every layer, and the head with the loss have a tape each.
 *
 * In: calls of pl_tape_* in the order of the forward pass, each of which appends its ops at once
 * and writes a step down.  Out: pl_tape_backward(), the ops of the gradient.  Needs: emit.h.
 * A family writes its forward pass only: each kind of step knows its gradient, the values which
 * that reads, and how to compute them again.
 *   T2  a recompute level is a set of parts whose values are kept; what the gradient reads and is
 *       not kept is made again, by the ops of the forward pass on the same inputs: the same bits
 *   T3  it is made again just before a product reads it, together with what the steps between that
 *       product and the one below it read; what lies above the last product is made first
 *   T4  a gated product that is only read by the product above it is made again by the gradient of
 *       its gate, in the place of its own gradient; the gradients of that product's weights wait
 * Reverse mode over a tape: Griewank and Walther, Evaluating Derivatives (2008), chapter 3; the
 * checkpoints of chapter 12 are chosen by level. */
#ifndef PL_ESTIMATOR_PROGRAM_EMIT_TAPE_H
#define PL_ESTIMATOR_PROGRAM_EMIT_TAPE_H

#include "estimator/program/emit/emit.h"

/* Values that a recompute level keeps or drops together. */
enum pl_value_part {
    PL_PART_INPUT,     /* inputs of the tape, and values that the head keeps: kept at every level */
    PL_PART_TRUNK,     /* sums of the trunk, 1/rms of norms, rows of the adapters that write them */
    PL_PART_ROWS,      /* outputs of one pass over rows: norms, the gated product */
    PL_PART_MLP,       /* outputs of the products that begin the MLP */
    PL_PART_ATTENTION, /* queries, keys, values and the output of attention */
    PL_PART_NEVER      /* cheap for its size: computed again by every step that reads it */
};

typedef uint8_t pl_var; /* a value of a tape */
#define PL_NO_VAR UINT8_MAX
typedef uint64_t pl_var_set; /* a bit for each value */

struct pl_value {
    struct pl_val val;
    const char *name, *grad_name;
    uint64_t cols; /* columns, for the output of a product */
    uint32_t grad; /* the tensor that holds its gradient, PL_NONE before there is one */
    enum pl_value_part part : 8;
    bool there : 1;  /* the content after the last step that changes it; backward: kept or computed
                       again */
    bool wants : 1;  /* something before it is trained */
    bool remade : 1; /* backward: T4 holds */
    bool trunk : 1;  /* it is the trunk, to whose gradient everything that reads it adds */
};

enum pl_step_kind {
    PL_STEP_NORM,       /* x, r? -> n, rstd, x: x += r, n = norm(x) */
    PL_STEP_POST_NORM,  /* x -> n, rstd: n is the part that a block adds to the trunk */
    PL_STEP_LINEAR,     /* x, offsets? -> y, a: a is the rows of its adapters; the offsets are those
                          of experts */
    PL_STEP_QK_NORM,    /* q, qkv -> qk, rstd of q, rstd of k; q is qkv where it has no gates */
    PL_STEP_HEAD_NORMS, /* qkv -> normed, rstd: of queries, keys and values; or of queries alone
                           (slot QNORM), or of keys and values (KNORM) */
    PL_STEP_ROPE,       /* qk, qkv -> qk; or q -> q (slot QNORM), or kv -> kv (KNORM) */
    PL_STEP_ATTENTION,  /* qk, qkv -> o, lse; or q, kv -> o, lse in layers that share kv */
    PL_STEP_INPUT, /* z -> p, rstd: what the layers get, of the embedding of their input and z */
    PL_STEP_INPUT_GATE, /* g -> m: the layer's columns of p times gelu(g) */
    PL_STEP_ADD,        /* x, r -> x: x += r, times the layer's scalar (slot SCALAR) */
    PL_STEP_GATE,       /* gu -> m */
    PL_STEP_MLP,        /* x -> y: products and gate of a whole MLP, chunk by chunk of tokens */
    PL_STEP_ROUTE,      /* logits -> weight, expert: of every token, those it has */
    PL_STEP_ORDER,      /* expert -> offsets, order, place: of rows sorted by expert */
    PL_STEP_DISPATCH,   /* x, order, place -> xr: the sorted rows; place is for the gradient */
    PL_STEP_COMBINE,    /* yr, weight, place -> y */
    PL_STEP_EMBED,      /* -> x, a: a is the rows of the adapter */
    PL_STEP_GATHER,     /* x, r? -> xs: the supervised rows of x + r */
    PL_STEP_LAST_NORM,  /* xs -> h, rstd */
    PL_STEP_LOSS,       /* h ->: computes the gradient of h at once, in h's place */
    PL_STEP_SPLIT,      /* qkv -> q: queries without the gates among them */
    PL_STEP_HEAD_GATE,  /* o, qkv -> y: o times its gates */
    PL_STEP_CONV,       /* p -> c: convolved queries, keys and values of linear attention */
    PL_STEP_DELTA,      /* c, p -> o, states */
    PL_STEP_GATED_NORM, /* o, p -> y, rstd */
    PL_STEP_COUNT
};

struct pl_step {
    enum pl_step_kind kind : 8;
    enum pl_slot slot : 8;
    pl_var in[3], out[3]; /* in[2] of kinds with three alone */
};

/* The most values and steps of a tape: both are bits of a word. A tape with more is
 * PL_ERR_PLAN_BROKEN. */
enum { PL_TAPE_VALUES = 48, PL_TAPE_STEPS = 24 };

struct pl_tape {
    struct pl_builder *b;
    struct pl_value values[PL_TAPE_VALUES];
    struct pl_step steps[PL_TAPE_STEPS];
    uint8_t n_values, n_steps;
    uint32_t trunk_grad;          /* backward: the tensor with the gradient of the trunk */
    struct pl_linear_bwd waiting; /* the product of T4, whose weights wait */
};

/* Begins the tape of a layer whose input is pending + trunk, not yet added; pending may be
 * PL_NO_VAL. *below gets the trunk, or PL_NO_VAR if there is nothing to add. need_dx: something
 * below the tape is trained. */
pl_var pl_tape_begin(struct pl_tape *t, struct pl_builder *b, struct pl_val trunk,
                     struct pl_val pending, bool need_dx, pl_var *below);
/* Steps of the forward pass. A name is that of the tensor; with a "d" it is that of its
 * gradient. */
#define PL_TAPE_NAME(name) (name), "d" name
pl_var pl_tape_norm(struct pl_tape *t, enum pl_slot slot, pl_var x, pl_var r, const char *name,
                    const char *grad_name);
pl_var pl_tape_post_norm(struct pl_tape *t, enum pl_slot slot, pl_var x, const char *name);
pl_var pl_tape_linear(struct pl_tape *t, enum pl_slot slot, pl_var x, uint64_t cols,
                      enum pl_value_part part, const char *name, const char *grad_name);
pl_var pl_tape_qk_norm(struct pl_tape *t, pl_var q, pl_var qkv);
/* Turns queries and keys (slot QKV), or the queries (QNORM), or the keys (KNORM); does nothing in
 * layers without rotation. qkv: the value whose gradient has that of the keys. */
void pl_tape_rope(struct pl_tape *t, enum pl_slot slot, pl_var qk, pl_var qkv);
pl_var pl_tape_attention(struct pl_tape *t, pl_var qk, pl_var qkv);
/* --- scaled.c: what layers that are scaled have besides --- */
/* Normed queries, keys and values -> the output of attention. */
pl_var pl_tape_normed_attention(struct pl_tape *t, pl_var qkv);
/* The same where keys and values are lent to later layers, or are those of an earlier one. */
pl_var pl_tape_shared_attention(struct pl_tape *t, pl_var qkv);
/* x += r; with PL_SLOT_SCALAR times the layer's scalar. */
void pl_tape_add(struct pl_tape *t, enum pl_slot slot, pl_var x, pl_var r);
/* Gives the gradients of attention's queries, keys and values their columns; and adds those of keys
 * and values up, after they were written, where layers share them. */
void pl_build_begin_kv_grad(struct pl_tape *t, struct pl_value *qk, struct pl_value *qkv,
                            struct pl_operand out[3]);
void pl_build_end_kv_grad(struct pl_tape *t, const struct pl_operand d[3]);
/* --- layer_input.c: the columns of input that every layer has --- */
/* On the tape of the embedding, whose rows are x; the layers find the columns in the builder. */
void pl_tape_layer_inputs(struct pl_tape *t, pl_var x);
/* The layer's columns, gated by its trunk -> what is added to the trunk. */
pl_var pl_tape_gated_input(struct pl_tape *t, pl_var x);
/* --- mlp.c: products and gate; y, of a part --- */
pl_var pl_tape_mlp(struct pl_tape *t, pl_var x, enum pl_value_part part, const char *name,
                   const char *grad_name);
pl_var pl_tape_gate(struct pl_tape *t, enum pl_slot slot, pl_var gu);
/* --- experts.c: router, products and gate of a mixture of experts --- */
pl_var pl_tape_experts(struct pl_tape *t, pl_var x, const char *name);
/* --- gated_attention.c: queries without their gates, and attention's output times them --- */
pl_var pl_tape_split(struct pl_tape *t, pl_var qkv);
pl_var pl_tape_head_gate(struct pl_tape *t, pl_var o, pl_var qkv);
/* --- delta.c: linear attention of a normed trunk, without its last product --- */
pl_var pl_tape_delta(struct pl_tape *t, pl_var x);
/* --- embed.c: the whole tape of the embedding; returns what the layers get --- */
pl_var pl_tape_embed(struct pl_tape *t, struct pl_builder *b);
struct pl_val pl_tape_value(const struct pl_tape *t, pl_var v);

/* Appends the gradient of the whole tape. dx: the tensor with the gradient of the trunk, which is
 * that of the output, if there is one; it becomes that of the input if something below is
 * trained. */
void pl_tape_backward(struct pl_tape *t, uint32_t dx);

/* --- what the steps are made of --- */
struct pl_step_row {
    /* Appends the step's ops; of its outputs only those in `missing`, as bits, are needed. */
    void (*run)(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
    /* Returns the values that running it again reads. */
    pl_var_set (*reads)(const struct pl_tape *t, const struct pl_step *s);
    /* Returns the values of the forward pass that its gradient reads. */
    pl_var_set (*needs)(const struct pl_tape *t, const struct pl_step *s);
    void (*gradient)(struct pl_tape *t, const struct pl_step *s);
    /* True if its first output needs a gradient; NULL: it always does. */
    bool (*wants)(const struct pl_tape *t, const struct pl_step *s);
};
extern const struct pl_step_row pl_step_rows[PL_STEP_COUNT];

static inline pl_var_set pl_var_bit(pl_var v) {
    return v == PL_NO_VAR ? 0 : UINT64_C(1) << v;
}
/* True if a norm passes on a gradient: to what is below it, or to its own weight. */
bool pl_step_norm_wants(const struct pl_tape *t, const struct pl_step *s);
pl_var_set pl_step_no_values(const struct pl_tape *t, const struct pl_step *s);
pl_var_set pl_step_all_inputs(const struct pl_tape *t, const struct pl_step *s);
/* Returns the operand of a weight of the current layer, absent where it has none. */
struct pl_operand pl_build_weight_arg(const struct pl_builder *b, enum pl_slot slot);
/* The steps of scaled.c, mlp.c, experts.c, gated_attention.c, delta.c, embed.c and head.c. */
void pl_step_head_norms(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_head_norms_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_input(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_input_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_input_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_input_gate_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_add(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_add_reads(const struct pl_tape *t, const struct pl_step *s);
void pl_step_add_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_gate_gradient(struct pl_tape *t, const struct pl_step *s);
/* T4: the gradients of the weights that waited for the input of a product, which is there now. */
void pl_step_linear_weights(struct pl_tape *t, const struct pl_step *s);
void pl_step_mlp(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_mlp_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_route(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_route_needs(const struct pl_tape *t, const struct pl_step *s);
void pl_step_route_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_order(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_no_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_dispatch(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_dispatch_needs(const struct pl_tape *t, const struct pl_step *s);
bool pl_step_dispatch_wants(const struct pl_tape *t, const struct pl_step *s);
void pl_step_dispatch_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_combine(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_combine_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_split(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_split_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_head_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_head_gate_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_conv(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_conv_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_delta(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_delta_needs(const struct pl_tape *t, const struct pl_step *s);
void pl_step_delta_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_gated_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_gated_norm_needs(const struct pl_tape *t, const struct pl_step *s);
void pl_step_gated_norm_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_embed(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_embed_needs(const struct pl_tape *t, const struct pl_step *s);
void pl_step_embed_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_gather(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_gather_gradient(struct pl_tape *t, const struct pl_step *s);
bool pl_step_gather_wants(const struct pl_tape *t, const struct pl_step *s);
void pl_step_last_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
pl_var_set pl_step_last_norm_needs(const struct pl_tape *t, const struct pl_step *s);
void pl_step_last_norm_gradient(struct pl_tape *t, const struct pl_step *s);
void pl_step_loss(struct pl_tape *t, const struct pl_step *s, pl_var_set missing);
void pl_step_loss_gradient(struct pl_tape *t, const struct pl_step *s);

/* --- tape.c --- */
pl_var pl_tape_add_value(struct pl_tape *t, enum pl_value_part part, const char *name,
                         const char *grad_name);
void pl_tape_record(struct pl_tape *t, struct pl_step s);
/* Computes the values in `wanted`, as bits, that are not there. */
void pl_tape_rebuild(struct pl_tape *t, pl_var_set wanted);
/* True if the level of the current layer keeps values of a part for the gradient. */
bool pl_tape_keeps(const struct pl_builder *b, enum pl_value_part part);

#endif
