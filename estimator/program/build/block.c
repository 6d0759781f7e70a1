/* block.c - the decoder layer of Llama, Mistral, Qwen, Phi-3 and SmolLM: forward.
 *
 * The residual trunk is updated in place: the product that ends a block writes the tensor that the
 * next norm turns into the new trunk (out += trunk, then norm), so no sum needs a buffer of its
 * own. What the backward pass reads is kept by being read: lifetimes follow from the operands. */
#include "estimator/program/build/tape.h"

struct pl_val pl_build_block(struct pl_builder *b, struct pl_val *trunk, struct pl_val pending,
                             struct pl_tape *t) {
    const uint64_t hidden = b->m->hidden;
    pl_var below;
    pl_var x = pl_tape_begin(t, b, *trunk, pending, &below);
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("n1"));
    pl_var qkv =
        pl_tape_linear(t, PL_SLOT_QKV, n1, b->q + 2 * b->k, PL_PART_ATTENTION, PL_TAPE_NAME("qkv"));
    pl_var qk = b->m->qk_norm ? pl_tape_qk_norm(t, qkv) : qkv;
    pl_tape_rope(t, qk);
    pl_var o = pl_tape_attention(t, qk, qkv);
    pl_var x2 = pl_tape_linear(t, PL_SLOT_O, o, hidden, PL_PART_TRUNK, PL_TAPE_NAME("x2"));
    pl_var n2 = pl_tape_norm(t, PL_SLOT_NORM2, x2, x, PL_TAPE_NAME("n2"));
    pl_var gu = pl_tape_linear(t, PL_SLOT_GU, n2, 2 * b->m->ffn, PL_PART_MLP, PL_TAPE_NAME("gu"));
    pl_var m = pl_tape_gate(t, gu);
    pl_var y = pl_tape_linear(t, PL_SLOT_DOWN, m, hidden, PL_PART_TRUNK, PL_TAPE_NAME("x_next"));
    *trunk = pl_tape_value(t, x2);
    return pl_tape_value(t, y);
}
