/* gated_attention.c - attention whose output has gates, which come with its queries.
 *
 *   [q g] = every head of Wq x;  y = attention(q, k, v) * sigmoid(g)
 * Gates stay where the product of queries left them, and so do their gradients: these are the first
 * part of the gradient of that product, and queries, keys and values add the rest. */
#include "estimator/program/emit/tape.h"

static struct pl_attr attr_of(const struct pl_builder *b) {
    return (struct pl_attr){.heads = (uint32_t)b->m->heads,
                            .head_dim = b->m->layer[b->layer].head_dim};
}

/* Queries and their gates, head by head. */
static struct pl_operand with_gates(const struct pl_builder *b, struct pl_val qkv) {
    return pl_arg_cols(qkv, 0, b->key_col);
}

void pl_step_split(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t q = pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, b->q);
    struct pl_operand in[] = {with_gates(b, t->values[s->in[0]].val)}, out[] = {pl_arg_now(b, q)};
    (void)missing;
    PL_EMIT(b, SPLIT_HEADS, attr_of(b), in, out);
    t->values[s->out[0]].val = pl_build_now(b, q);
}

void pl_step_split_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_operand d = with_gates(b, pl_build_now(b, t->values[s->in[0]].grad));
    struct pl_operand in[] = {pl_arg_now(b, t->values[s->out[0]].grad), d}, out[] = {d};
    PL_EMIT(b, SPLIT_HEADS_BWD, attr_of(b), in, out);
}

void pl_step_head_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t y = pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, b->q);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              with_gates(b, t->values[s->in[1]].val)};
    struct pl_operand out[] = {pl_arg_now(b, y)};
    (void)missing;
    PL_EMIT(b, SIGMOID_GATE, attr_of(b), in, out);
    t->values[s->out[0]].val = pl_build_now(b, y);
}

void pl_step_head_gate_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *o = &t->values[s->in[0]], *qkv = &t->values[s->in[1]];
    o->grad = pl_build_activation(b, o->grad_name, PL_ROWS_TOKENS, b->q);
    qkv->grad = pl_build_activation(b, qkv->grad_name, PL_ROWS_TOKENS, b->key_col + 2 * b->k);
    struct pl_operand in[] = {pl_arg_now(b, t->values[s->out[0]].grad), pl_arg(o->val),
                              with_gates(b, qkv->val)};
    struct pl_operand out[] = {pl_arg_now(b, o->grad), with_gates(b, pl_build_now(b, qkv->grad))};
    PL_EMIT(b, SIGMOID_GATE_BWD, attr_of(b), in, out);
}

pl_var pl_tape_split(struct pl_tape *t, pl_var qkv) {
    const pl_var q = pl_tape_add_value(t, PL_PART_NEVER, "q", NULL);
    pl_tape_record(t, (struct pl_step){
                          PL_STEP_SPLIT, PL_SLOT_QKV, {qkv, PL_NO_VAR}, {q, PL_NO_VAR, PL_NO_VAR}});
    return q;
}

pl_var pl_tape_head_gate(struct pl_tape *t, pl_var o, pl_var qkv) {
    const pl_var y = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("gated"));
    pl_tape_record(
        t, (struct pl_step){PL_STEP_HEAD_GATE, PL_SLOT_QKV, {o, qkv}, {y, PL_NO_VAR, PL_NO_VAR}});
    return y;
}
