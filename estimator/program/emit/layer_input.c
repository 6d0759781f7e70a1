/* layer_input.c - the columns of input that every layer of a small Gemma 4 has, P of each of L.
 *
 *   p = (norm(Wm x0 C^-1/2) + E[id] sqrt(P)) / sqrt(2),   [N, L*P], one norm of P for all layers
 *   x += post(Wo (gelu(Wg x) * p_l)) in layer l
 * A norm of z C^-1/2 is that of z with C times the eps. What the layers get is kept for the
 * gradient, and so is z; each layer writes its own columns of d p. */
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"

#include <math.h>

#define SQRT_HALF 0.70710678118654752440f

static uint64_t columns(const struct pl_builder *b) {
    return b->m->layers * b->m->layer_input;
}

/* The 1/rms of every layer's columns, in rows of whole packs of 16 bytes, as kernels read them. */
static uint32_t add_rstd(struct pl_builder *b, const char *name) {
    return pl_build_step(b, name, PL_ROWS_TOKENS, 0, pl_u64_round_up(b->m->layers, 4), PL_DTYPE_F32,
                         PL_CATEGORY_ACTIVATIONS);
}

static struct pl_operand rstd_arg(const struct pl_builder *b, struct pl_val rstd) {
    return pl_arg_cols(rstd, 0, b->m->layers);
}

static float embed_scale(const struct pl_builder *b) {
    return pl_dtype_round(b->s->dtype, sqrtf((float)b->m->layer_input));
}

static struct pl_attr norm_attr(const struct pl_builder *b) {
    return (struct pl_attr){.head_dim = (uint32_t)b->m->layer_input,
                            .eps = (float)(b->m->rms_eps * (double)b->m->hidden)};
}

/* --- the columns of all layers --------------------------------------------------------------- */

static struct pl_operand look_up(struct pl_builder *b) {
    const uint32_t e = pl_build_activation(b, "input_rows", PL_ROWS_TOKENS, columns(b));
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_build_weight_arg(b, PL_SLOT_INPUT_EMBED)};
    struct pl_operand out[] = {pl_arg_now(b, e)};
    PL_EMIT(b, EMBED, ((struct pl_attr){.scale = embed_scale(b)}), in, out);
    return pl_arg_now(b, e);
}

/* x = (x + r) / sqrt(2); r may be absent. */
static void add_half(struct pl_builder *b, uint32_t x, struct pl_operand r) {
    struct pl_operand in[] = {pl_arg_now(b, x), r, pl_arg_none}, out[] = {pl_arg_now(b, x)};
    PL_EMIT(b, ADD_SCALE, ((struct pl_attr){.alpha = SQRT_HALF}), in, out);
}

void pl_step_input(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *p = &t->values[s->out[0]], *rstd = &t->values[s->out[1]];
    (void)missing;
    const uint32_t id = pl_build_activation(b, p->name, PL_ROWS_TOKENS, columns(b));
    const uint32_t r = add_rstd(b, rstd->name);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              pl_build_weight_arg(b, PL_SLOT_INPUT_NORM)};
    struct pl_operand out[] = {pl_arg_now(b, id), rstd_arg(b, pl_build_now(b, r))};
    PL_EMIT(b, QK_NORM, norm_attr(b), in, out);
    add_half(b, id, look_up(b));
    p->val = pl_build_now(b, id);
    rstd->val = pl_build_now(b, r);
}

static void table_gradient(struct pl_builder *b, struct pl_operand dp) {
    const uint32_t table = pl_build_weight(b, PL_SLOT_INPUT_EMBED);
    if (!pl_build_trains(b, table)) return;
    struct pl_attr attr = {.padding_idx = b->m->pad, .scale = embed_scale(b)};
    struct pl_operand g = pl_build_grad(b, table, &attr);
    struct pl_operand in[] = {pl_arg(b->in.ids), pl_arg(b->in.order), dp, g}, out[] = {g};
    PL_EMIT(b, EMBED_BWD, attr, in, out);
}

/* d p becomes d z in place. */
void pl_step_input_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const uint32_t id = b->layer_input_grad, w = pl_build_weight(b, PL_SLOT_INPUT_NORM);
    add_half(b, id, pl_arg_none);
    table_gradient(b, pl_arg_now(b, id));
    struct pl_attr attr = norm_attr(b);
    const struct pl_weight_grad g =
        pl_build_weight_grad(b, PL_OP_QK_NORM_BWD, w, &attr, columns(b));
    struct pl_operand in[] = {pl_arg_now(b, id),
                              pl_arg(t->values[s->in[0]].val),
                              pl_build_weight_arg(b, PL_SLOT_INPUT_NORM),
                              rstd_arg(b, t->values[s->out[1]].val),
                              g.ws,
                              g.dw};
    struct pl_operand out[] = {pl_arg_now(b, id), g.dw};
    PL_EMIT(b, QK_NORM_BWD, attr, in, out);
    t->values[s->in[0]].grad = id;
}

void pl_tape_layer_inputs(struct pl_tape *t, pl_var x) {
    struct pl_builder *b = t->b;
    b->layer_input = PL_NO_VAL;
    if (!b->m->layer_input) return;
    const pl_var z = pl_tape_linear(t, PL_SLOT_INPUT_MODEL, x, columns(b), PL_PART_INPUT,
                                    PL_TAPE_NAME("input_z"));
    const pl_var p = pl_tape_add_value(t, PL_PART_INPUT, "input", NULL);
    const pl_var rstd = pl_tape_add_value(t, PL_PART_INPUT, "input_rstd", NULL);
    pl_tape_record(t, (struct pl_step){
                          PL_STEP_INPUT, PL_SLOT_INPUT_NORM, {z, PL_NO_VAR}, {p, rstd, PL_NO_VAR}});
    b->layer_input = pl_tape_value(t, p);
}

/* --- of a layer ------------------------------------------------------------------------------ */

static struct pl_operand columns_of_layer(const struct pl_builder *b, struct pl_val v) {
    return pl_arg_cols(v, b->layer * b->m->layer_input, b->m->layer_input);
}

void pl_step_input_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *m = &t->values[s->out[0]];
    (void)missing;
    const uint32_t id = pl_build_activation(b, m->name, PL_ROWS_TOKENS, b->m->layer_input);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val), columns_of_layer(b, b->layer_input)};
    struct pl_operand out[] = {pl_arg_now(b, id)};
    PL_EMIT(b, GELU_MUL, (struct pl_attr){0}, in, out);
    m->val = pl_build_now(b, id);
}

/* g becomes its own gradient. */
void pl_step_input_gate_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *g = &t->values[s->in[0]];
    const uint32_t dp = b->layer_input_grad;
    struct pl_operand in[] = {pl_arg(g->val), columns_of_layer(b, b->layer_input),
                              pl_arg_now(b, t->values[s->out[0]].grad)};
    struct pl_operand out[] = {
        pl_arg(g->val), dp == PL_NONE ? pl_arg_none : columns_of_layer(b, pl_build_now(b, dp))};
    PL_EMIT(b, GELU_MUL_BWD, (struct pl_attr){0}, in, out);
    g->grad = g->val.id;
}

pl_var pl_tape_gated_input(struct pl_tape *t, pl_var x) {
    const struct pl_model *model = t->b->m;
    const pl_var g = pl_tape_linear(t, PL_SLOT_INPUT_GATE, x, model->layer_input, PL_PART_MLP,
                                    PL_TAPE_NAME("input_gate"));
    const pl_var m = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("input_m"));
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_INPUT_GATE, PL_SLOT_INPUT_GATE, {g, PL_NO_VAR}, {m, PL_NO_VAR, PL_NO_VAR}});
    return pl_tape_linear(t, PL_SLOT_INPUT_OUT, m, model->hidden, PL_PART_MLP,
                          PL_TAPE_NAME("input_out"));
}
