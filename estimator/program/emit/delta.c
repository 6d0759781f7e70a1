/* delta.c - linear attention by the gated delta rule (Yang et al., arXiv 2412.06464).
 *
 *   p = Win x, whose columns are those of q, k and v, of z, of b and of a
 *   c = silu(conv(q, k, v));  o = delta(c, b, a);  y = norm(o) * w * silu(z)
 * One product makes all of p, and the gradient of p is one tensor, too: the steps read and write
 * ranges of its columns. The delta rule leaves its state before every chunk of tokens, from which
 * its gradient walks through the chunk again; it is kept together with the output of attention, or
 * made again with it. */
#include "estimator/ops/scratch/workspace_delta.h"
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

/* --- columns of p ---------------------------------------------------------------------------- */

static uint64_t channels(const struct pl_builder *b) {
    return pl_delta_channels(&b->m->delta);
}

static uint64_t values(const struct pl_builder *b) {
    return pl_delta_values(&b->m->delta);
}

static struct pl_operand qkv_of(const struct pl_builder *b, struct pl_val p) {
    return pl_arg_cols(p, 0, channels(b));
}

static struct pl_operand z_of(const struct pl_builder *b, struct pl_val p) {
    return pl_arg_cols(p, channels(b), values(b));
}

static struct pl_operand ba_of(const struct pl_builder *b, struct pl_val p) {
    return pl_arg_cols(p, channels(b) + values(b), 2 * (uint64_t)b->m->delta.value_heads);
}

static uint64_t all_columns(const struct pl_builder *b) {
    return channels(b) + values(b) + 2 * (uint64_t)b->m->delta.value_heads;
}

/* --- convolution ----------------------------------------------------------------------------- */

static struct pl_attr conv_attr(const struct pl_builder *b) {
    return (struct pl_attr){.taps = b->m->delta.taps};
}

void pl_step_conv(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const bool caches = b->phase == PL_PHASE_GENERATE;
    const uint32_t c =
        pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, channels(b));
    const struct pl_operand cache = caches ? pl_build_last_channels(b) : pl_arg_none;
    struct pl_operand in[] = {qkv_of(b, t->values[s->in[0]].val),
                              pl_build_weight_arg(b, PL_SLOT_DELTA_CONV), pl_arg(b->in.offsets),
                              caches ? pl_arg(b->in.positions) : pl_arg_none, cache};
    struct pl_operand out[] = {pl_arg_now(b, c), cache};
    (void)missing;
    PL_EMIT(b, CONV_SILU, conv_attr(b), in, out);
    t->values[s->out[0]].val = pl_build_now(b, c);
}

void pl_step_conv_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_value *p = &t->values[s->in[0]];
    const uint32_t w = pl_build_weight(b, PL_SLOT_DELTA_CONV);
    struct pl_attr attr = conv_attr(b);
    const struct pl_weight_grad g =
        pl_build_weight_grad(b, PL_OP_CONV_SILU_BWD, w, &attr, channels(b));
    struct pl_operand in[] = {qkv_of(b, p->val),
                              pl_arg_now(b, w),
                              pl_arg(b->in.offsets),
                              pl_arg_now(b, t->values[s->out[0]].grad),
                              g.ws,
                              g.dw};
    struct pl_operand out[] = {qkv_of(b, pl_build_now(b, p->grad)), g.dw};
    PL_EMIT(b, CONV_SILU_BWD, attr, in, out);
}

/* --- the delta rule -------------------------------------------------------------------------- */

static struct pl_attr delta_attr(const struct pl_builder *b) {
    const struct pl_delta *x = &b->m->delta;
    return (struct pl_attr){.heads = x->value_heads,
                            .kv_heads = x->key_heads,
                            .key_dim = x->key_dim,
                            .head_dim = x->value_dim};
}

/* True if a gradient will read the states of this run of the step. */
static bool leaves_states(const struct pl_builder *b) {
    return b->training && b->layer >= pl_build_lowest_layer(b) &&
           (b->recompute || pl_tape_keeps(b, PL_PART_ATTENTION));
}

static struct pl_operand add_states(struct pl_builder *b, const char *name) {
    const uint64_t cols = values(b) * b->m->delta.key_dim;
    const uint32_t id = pl_build_step(b, name, PL_ROWS_FIXED, pl_delta_rows(b->n, b->seqs), cols,
                                      PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
    if (b->err == PL_ERR_OK) b->p->tensors[id].role = PL_ROLE_DELTA_STATES;
    return pl_arg_now(b, id);
}

void pl_step_delta(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *o = &t->values[s->out[0]], *states = &t->values[s->out[1]];
    const bool caches = b->phase == PL_PHASE_GENERATE;
    const struct pl_attr attr = delta_attr(b);
    const uint32_t id = pl_build_activation(b, o->name, PL_ROWS_TOKENS, values(b));
    const struct pl_operand left = leaves_states(b) ? add_states(b, states->name) : pl_arg_none;
    const struct pl_operand state = caches ? pl_build_delta_state(b) : pl_arg_none;
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              ba_of(b, t->values[s->in[1]].val),
                              pl_build_weight_arg(b, PL_SLOT_DELTA_A_LOG),
                              pl_build_weight_arg(b, PL_SLOT_DELTA_DT_BIAS),
                              pl_arg(b->in.offsets),
                              pl_build_workspace(b, PL_OP_GATED_DELTA, &attr, b->n, channels(b)),
                              caches ? pl_arg(b->in.positions) : pl_arg_none,
                              state};
    struct pl_operand out[] = {pl_arg_now(b, id), left, state};
    (void)missing;
    PL_EMIT(b, GATED_DELTA, attr, in, out);
    o->val = pl_build_now(b, id);
    states->val = left.id == PL_NONE ? PL_NO_VAL : pl_build_now(b, left.id);
}

pl_var_set pl_step_delta_needs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]) | pl_var_bit(s->out[1]);
}

/* A_log and dt_bias are trained together, so one attribute says how both accumulate. */
void pl_step_delta_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *c = &t->values[s->in[0]];
    const struct pl_value *p = &t->values[s->in[1]], *o = &t->values[s->out[0]];
    const uint32_t a_log = pl_build_weight(b, PL_SLOT_DELTA_A_LOG);
    const uint32_t dt_bias = pl_build_weight(b, PL_SLOT_DELTA_DT_BIAS);
    struct pl_attr attr = delta_attr(b);
    const struct pl_operand ws =
        pl_build_workspace(b, PL_OP_GATED_DELTA_BWD, &attr, b->n, channels(b));
    const bool trains = pl_build_trains(b, a_log);
    const struct pl_operand da_log = trains ? pl_build_grad(b, a_log, &attr) : pl_arg_none;
    const struct pl_operand ddt_bias = trains ? pl_build_grad(b, dt_bias, &attr) : pl_arg_none;
    c->grad = pl_build_activation(b, c->grad_name, PL_ROWS_TOKENS, channels(b));
    struct pl_operand in[] = {pl_arg(c->val),
                              ba_of(b, p->val),
                              pl_arg_now(b, a_log),
                              pl_arg_now(b, dt_bias),
                              pl_arg(b->in.offsets),
                              pl_arg(t->values[s->out[1]].val),
                              pl_arg_now(b, o->grad),
                              ws,
                              da_log,
                              ddt_bias};
    struct pl_operand out[] = {pl_arg_now(b, c->grad), ba_of(b, pl_build_now(b, p->grad)), da_log,
                               ddt_bias};
    PL_EMIT(b, GATED_DELTA_BWD, attr, in, out);
}

/* --- the norm -------------------------------------------------------------------------------- */

static struct pl_attr norm_attr(const struct pl_builder *b) {
    return (struct pl_attr){.eps = (float)b->m->rms_eps, .head_dim = b->m->delta.value_dim};
}

void pl_step_gated_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t y = pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, values(b));
    const uint32_t rstd =
        pl_build_step(b, t->values[s->out[1]].name, PL_ROWS_TOKENS, 0, b->m->delta.value_heads,
                      PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val), z_of(b, t->values[s->in[1]].val),
                              pl_build_weight_arg(b, PL_SLOT_DELTA_NORM)};
    struct pl_operand out[] = {pl_arg_now(b, y), pl_arg_now(b, rstd)};
    (void)missing;
    PL_EMIT(b, GATED_NORM, norm_attr(b), in, out);
    t->values[s->out[0]].val = pl_build_now(b, y);
    t->values[s->out[1]].val = pl_build_now(b, rstd);
}

pl_var_set pl_step_gated_norm_needs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]) | pl_var_bit(s->out[1]);
}

void pl_step_gated_norm_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *o = &t->values[s->in[0]], *p = &t->values[s->in[1]];
    const uint32_t w = pl_build_weight(b, PL_SLOT_DELTA_NORM);
    struct pl_attr attr = norm_attr(b);
    const struct pl_weight_grad g =
        pl_build_weight_grad(b, PL_OP_GATED_NORM_BWD, w, &attr, values(b));
    o->grad = pl_build_activation(b, o->grad_name, PL_ROWS_TOKENS, values(b));
    p->grad = pl_build_activation(b, p->grad_name, PL_ROWS_TOKENS, all_columns(b));
    struct pl_operand in[] = {pl_arg_now(b, t->values[s->out[0]].grad),
                              pl_arg(o->val),
                              z_of(b, p->val),
                              pl_arg_now(b, w),
                              pl_arg(t->values[s->out[1]].val),
                              g.ws,
                              g.dw};
    struct pl_operand out[] = {pl_arg_now(b, o->grad), z_of(b, pl_build_now(b, p->grad)), g.dw};
    PL_EMIT(b, GATED_NORM_BWD, attr, in, out);
}

/* --- the tape -------------------------------------------------------------------------------- */

pl_var pl_tape_delta(struct pl_tape *t, pl_var x) {
    const pl_var p = pl_tape_linear(t, PL_SLOT_DELTA_IN, x, all_columns(t->b), PL_PART_ATTENTION,
                                    PL_TAPE_NAME("p"));
    const pl_var c = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("c"));
    const pl_var o = pl_tape_add_value(t, PL_PART_ATTENTION, PL_TAPE_NAME("o"));
    const pl_var states = pl_tape_add_value(t, PL_PART_ATTENTION, "delta_states", NULL);
    const pl_var y = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("gated"));
    const pl_var rstd = pl_tape_add_value(t, PL_PART_ROWS, "o_rstd", NULL);
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_CONV, PL_SLOT_DELTA_CONV, {p, PL_NO_VAR}, {c, PL_NO_VAR, PL_NO_VAR}});
    pl_tape_record(
        t, (struct pl_step){PL_STEP_DELTA, PL_SLOT_DELTA_A_LOG, {c, p}, {o, states, PL_NO_VAR}});
    pl_tape_record(
        t, (struct pl_step){PL_STEP_GATED_NORM, PL_SLOT_DELTA_NORM, {o, p}, {y, rstd, PL_NO_VAR}});
    return y;
}
