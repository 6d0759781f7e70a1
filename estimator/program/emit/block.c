/* block.c - the decoder layers: forward.
 *
 * The residual trunk is updated in place: the last op of a block writes the tensor that the next
 * norm turns into the new trunk (out += trunk, then norm), so no sum needs a buffer of its own.
 * Nothing has to mark what the backward pass reads: a tensor lives until the last op that has it as
 * an operand. */
#include "estimator/program/emit/tape.h"

/* The matrices for queries, and for keys and values as far as the layer has them. */
static pl_var tape_qkv(struct pl_tape *t, pl_var n1) {
    const struct pl_builder *b = t->b;
    const uint64_t cols = b->q + pl_kind_kv_matrices(b->m->layer[b->layer].kind) * b->k;
    return pl_tape_linear(t, PL_SLOT_QKV, n1, cols, PL_PART_ATTENTION, PL_TAPE_NAME("qkv"));
}

/* qkv of a normed trunk -> what attention makes of it. */
static pl_var attention(struct pl_tape *t, pl_var n1) {
    const struct pl_builder *b = t->b;
    pl_var qkv = tape_qkv(t, n1);
    pl_var qk = b->m->qk_norm ? pl_tape_qk_norm(t, qkv, qkv) : qkv;
    pl_tape_rope(t, PL_SLOT_QKV, qk, qkv);
    return pl_tape_attention(t, qk, qkv);
}

/* x += Wo attention(norm1(x)); returns norm2(x). */
static pl_var pre_norm_attention(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    pl_var o = attention(t, n1);
    *trunk = pl_tape_linear(t, PL_SLOT_O, o, t->b->m->hidden, PL_PART_TRUNK, PL_TAPE_NAME("x2"));
    return pl_tape_norm(t, PL_SLOT_NORM2, *trunk, x, PL_TAPE_NAME("n2"));
}

/* Llama, Mistral, Qwen, Phi-3, SmolLM, Ministral:
 *   x += Wo attention(norm1(x));  x += Wdown gated(norm2(x)) */
static pl_var pre_norm_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    pl_var n2 = pre_norm_attention(t, x, below, trunk);
    return pl_tape_mlp(t, n2, PL_PART_TRUNK, PL_TAPE_NAME("x_next"));
}

/* Qwen3-MoE, GPT-OSS: the same with a mixture of experts for the MLP. */
static pl_var experts_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    pl_var n2 = pre_norm_attention(t, x, below, trunk);
    return pl_tape_experts(t, n2, "x_next");
}

/* x += Wout m;  x += Wdown gated(norm2(x)) */
static pl_var close_layer(struct pl_tape *t, enum pl_slot out, pl_var m, pl_var x, pl_var *trunk) {
    *trunk = pl_tape_linear(t, out, m, t->b->m->hidden, PL_PART_TRUNK, PL_TAPE_NAME("x2"));
    pl_var n2 = pl_tape_norm(t, PL_SLOT_NORM2, *trunk, x, PL_TAPE_NAME("n2"));
    return pl_tape_mlp(t, n2, PL_PART_TRUNK, PL_TAPE_NAME("x_next"));
}

/* Qwen3.5, where every head of attention has a gate:
 *   x += Wo (attention(norm1(x)) * sigmoid(gate));  x += Wdown gated(norm2(x)) */
static pl_var gated_attention_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    const struct pl_builder *b = t->b;
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    pl_var qkv = pl_tape_linear(t, PL_SLOT_QKV, n1, b->key_col + 2 * b->k, PL_PART_ATTENTION,
                                PL_TAPE_NAME("qkv"));
    pl_var qk = pl_tape_qk_norm(t, pl_tape_split(t, qkv), qkv);
    pl_tape_rope(t, PL_SLOT_QKV, qk, qkv);
    pl_var y = pl_tape_head_gate(t, pl_tape_attention(t, qk, qkv), qkv);
    return close_layer(t, PL_SLOT_O, y, x, trunk);
}

/* Qwen3.5, where a state takes the place of keys and values:
 *   x += Wout gated_norm(delta(conv(Win norm1(x))));  x += Wdown gated(norm2(x)) */
static pl_var gated_delta_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    return close_layer(t, PL_SLOT_DELTA_OUT, pl_tape_delta(t, n1), x, trunk);
}

/* EXAONE 4, where what a block adds is normed, and what it reads is not:
 *   x += post1(Wo attention(x));  x += post2(Wdown gated(x)) */
static pl_var post_norm_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    (void)below;
    pl_var o = attention(t, x);
    pl_var a =
        pl_tape_linear(t, PL_SLOT_O, o, t->b->m->hidden, PL_PART_ATTENTION, PL_TAPE_NAME("a"));
    pl_var x2 = pl_tape_post_norm(t, PL_SLOT_POST1, a, "x2");
    pl_tape_add(t, PL_SLOT_COUNT, x2, x);
    pl_var y = pl_tape_mlp(t, x2, PL_PART_MLP, PL_TAPE_NAME("y"));
    *trunk = pl_tape_post_norm(t, PL_SLOT_POST2, y, "x_next");
    pl_tape_add(t, PL_SLOT_COUNT, *trunk, x2);
    return PL_NO_VAR;
}

/* Gemma 3, where what a block adds is normed, too:
 *   x += post1(Wo attention(norm1(x)));  x += post2(Wdown gated(norm2(x))) */
static pl_var four_norm_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    const uint64_t hidden = t->b->m->hidden;
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    pl_var o = attention(t, n1);
    pl_var a = pl_tape_linear(t, PL_SLOT_O, o, hidden, PL_PART_ATTENTION, PL_TAPE_NAME("a"));
    pl_var x2 = pl_tape_post_norm(t, PL_SLOT_POST1, a, "x2");
    pl_var n2 = pl_tape_norm(t, PL_SLOT_NORM2, x2, x, PL_TAPE_NAME("n2"));
    pl_var y = pl_tape_mlp(t, n2, PL_PART_MLP, PL_TAPE_NAME("y"));
    *trunk = x2;
    return pl_tape_post_norm(t, PL_SLOT_POST2, y, "x_next");
}

/* Gemma 4, where values are normed, too, and a number of the files scales what leaves the layer:
 *   x += post1(Wo attention(norm1(x)));  x += post2(Wdown gated(norm2(x)));
 *   x += post3(Wo (gelu(Wg x) * p)), where layers have an input p of their own;  x *= s */
static pl_var scaled_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    const uint64_t hidden = t->b->m->hidden;
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    pl_var qkv = tape_qkv(t, n1);
    pl_var o = t->b->m->layer[t->b->layer].kv_layer ? pl_tape_shared_attention(t, qkv)
                                                    : pl_tape_normed_attention(t, qkv);
    pl_var a = pl_tape_linear(t, PL_SLOT_O, o, hidden, PL_PART_ATTENTION, PL_TAPE_NAME("a"));
    pl_var x2 = pl_tape_post_norm(t, PL_SLOT_POST1, a, "x2");
    pl_var n2 = pl_tape_norm(t, PL_SLOT_NORM2, x2, x, PL_TAPE_NAME("n2"));
    pl_var y = pl_tape_mlp(t, n2, PL_PART_MLP, PL_TAPE_NAME("y"));
    *trunk = pl_tape_post_norm(t, PL_SLOT_POST2, y, "x_next");
    if (t->b->m->layer_input) {
        pl_tape_add(t, PL_SLOT_COUNT, *trunk, x2);
        x2 = *trunk;
        *trunk = pl_tape_post_norm(t, PL_SLOT_POST3, pl_tape_gated_input(t, x2), "x_next");
    }
    pl_tape_add(t, PL_SLOT_SCALAR, *trunk, x2);
    return PL_NO_VAR;
}

/* Returns what the layer adds to its trunk, in *trunk; PL_NO_VAR: nothing is left to be added. */
typedef pl_var (*forward_fn)(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk);

static const forward_fn forwards[PL_LAYER_KIND_COUNT] = {[PL_LAYER_PRE_NORM] = pre_norm_layer,
                                                         [PL_LAYER_POST_NORM] = post_norm_layer,
                                                         [PL_LAYER_FOUR_NORM] = four_norm_layer,
                                                         [PL_LAYER_EXPERTS] = experts_layer,
                                                         [PL_LAYER_GATED_ATTENTION] =
                                                             gated_attention_layer,
                                                         [PL_LAYER_GATED_DELTA] = gated_delta_layer,
                                                         [PL_LAYER_SCALED] = scaled_layer,
                                                         [PL_LAYER_SCALED_KEYS] = scaled_layer,
                                                         [PL_LAYER_SCALED_QUERIES] = scaled_layer,
                                                         PL_LAYER_FORWARDS_OF_A_TEST};

struct pl_val pl_build_layer(struct pl_builder *b, struct pl_val *trunk, struct pl_val pending,
                             bool need_dx, struct pl_tape *t) {
    pl_var below, x2;
    const pl_var x = pl_tape_begin(t, b, *trunk, pending, need_dx, &below);
    const pl_var next = forwards[b->m->layer[b->layer].kind](t, x, below, &x2);
    *trunk = pl_tape_value(t, x2);
    return next == PL_NO_VAR ? PL_NO_VAL : pl_tape_value(t, next);
}
