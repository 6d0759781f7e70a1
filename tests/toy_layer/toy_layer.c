/* toy_layer.c - the facts and the forward pass of the toy: a layer of Llama in its own words, so
 * that runs compare. Its gate is applied to products that stand alone, where Llama's MLP is one
 * step of the tape. */
#include "tests/toy_layer/toy_layer.h"

pl_err toy_facts(const struct pl_hf *h, struct pl_model *m) {
    (void)h;
    for (uint64_t i = 1; i < m->layers; i += 2)
        m->layer[i].kind = PL_LAYER_TOY;
    return PL_ERR_OK;
}

/* x += Wo attention(norm1(x));  x += Wdown gated(Wgate norm2(x), Wup norm2(x)) */
pl_var toy_layer(struct pl_tape *t, pl_var x, pl_var below, pl_var *trunk) {
    const struct pl_builder *b = t->b;
    const uint64_t hidden = b->m->hidden, ffn = b->m->layer[b->layer].ffn;
    pl_var n1 = pl_tape_norm(t, PL_SLOT_NORM1, x, below, PL_TAPE_NAME("toy_n1"));
    pl_var qkv = pl_tape_linear(t, PL_SLOT_QKV, n1, b->q + 2 * b->k, PL_PART_ATTENTION,
                                PL_TAPE_NAME("toy_qkv"));
    pl_tape_rope(t, PL_SLOT_QKV, qkv, qkv);
    pl_var o = pl_tape_attention(t, qkv, qkv);
    *trunk = pl_tape_linear(t, PL_SLOT_O, o, hidden, PL_PART_TRUNK, PL_TAPE_NAME("toy_x"));
    pl_var n2 = pl_tape_norm(t, PL_SLOT_NORM2, *trunk, x, PL_TAPE_NAME("toy_n2"));
    pl_var gu = pl_tape_linear(t, PL_SLOT_GU, n2, 2 * ffn, PL_PART_MLP, PL_TAPE_NAME("toy_gu"));
    pl_var m = pl_tape_gate(t, PL_SLOT_GU, gu);
    return pl_tape_linear(t, PL_SLOT_DOWN, m, hidden, PL_PART_TRUNK, PL_TAPE_NAME("toy_next"));
}
