/* mlp.c - the MLP of a layer: as three steps of the tape, or as one that works chunk by chunk.
 *
 *   y = Wdown m, m = act(g) * u, [g u] = Wgu x
 * A layer whose gradient makes g and u again holds them, m, and the gradients of all three for
 * every token at its peak, unless mlp_chunk_tokens says how many tokens these are held for at a
 * time. A chunk is finished before the next one begins: forward, y has its rows; backward, what the
 * chunk needs is made again, its share is added to the gradients of the weights, and the gradient
 * of x has its rows, in the place of those of x unless x is the trunk. So only x and y, or their
 * gradients, have a row for each token. */
#include "estimator/program/emit/brief.h"
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"

static struct pl_operand tokens_now(const struct pl_builder *b, uint32_t id) {
    return pl_build_tokens(b, pl_build_now(b, id));
}

/* --- the gate -------------------------------------------------------------------------------- */

/* All of these ops have the same operands, and so have the ops of their gradients. */
static const enum pl_op_kind gates[] = {
#define ROW(id, name, glu) PL_OP_##glu,
    PL_ACTIVATIONS(ROW)
#undef ROW
};
_Static_assert(PL_SWIGLU_CLAMPED_N_IN == 1 && PL_SWIGLU_CLAMPED_N_OUT == 1 &&
                   PL_SWIGLU_CLAMPED_BWD_DM == PL_SWIGLU_BWD_DM &&
                   PL_SWIGLU_CLAMPED_BWD_M == PL_SWIGLU_BWD_M && PL_SWIGLU_CLAMPED_BWD_N_IN == 3 &&
                   PL_SWIGLU_CLAMPED_BWD_N_OUT == 2,
               "swiglu_clamped");
#define ROW(id, name, glu)                                                                         \
    _Static_assert(PL_##glu##_GU == PL_SWIGLU_GU && PL_##glu##_N_IN == 1 &&                        \
                       PL_##glu##_N_OUT == 1 && PL_##glu##_BWD_GU == PL_SWIGLU_BWD_GU &&           \
                       PL_##glu##_BWD_DM == PL_SWIGLU_BWD_DM &&                                    \
                       PL_##glu##_BWD_M == PL_SWIGLU_BWD_M && PL_##glu##_BWD_N_IN == 3 &&          \
                       PL_##glu##_BWD_N_OUT == 2,                                                  \
                   name);
PL_ACTIVATIONS(ROW)
#undef ROW

static bool is_of_experts(enum pl_slot slot) {
    return slot == PL_SLOT_EXPERT_GU;
}

static enum pl_op_kind gate_of(const struct pl_builder *b, enum pl_slot slot,
                               struct pl_attr *attr) {
    const bool clamps = is_of_experts(slot) && b->m->experts.limit > 0;
    *attr = (struct pl_attr){0};
    if (!clamps) return gates[b->m->activation];
    attr->limit = (float)b->m->experts.limit;
    attr->alpha = (float)b->m->experts.alpha;
    return PL_OP_SWIGLU_CLAMPED;
}

/* The slot is that of the product that made gu. */
static struct pl_val gate(struct pl_builder *b, enum pl_slot slot, struct pl_val gu) {
    const enum pl_rows rows = is_of_experts(slot) ? PL_ROWS_ROUTED : PL_ROWS_TOKENS;
    const uint32_t m = pl_build_activation(b, "m", rows, b->m->layer[b->layer].ffn);
    struct pl_attr attr;
    const enum pl_op_kind kind = gate_of(b, slot, &attr);
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    struct pl_operand in[] = {pl_build_tokens(b, gu)}, out[] = {tokens_now(b, m)};
    pl_build_op(b, kind, attr, in, 1, out, 1);
    return pl_build_now(b, m);
}

/* gu becomes its own gradient, and dm, where that is asked for, m. */
static void gate_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_val gu, uint32_t dm,
                     bool remakes) {
    struct pl_attr attr;
    const enum pl_op_kind kind = gate_of(b, slot, &attr);
    if (b->err != PL_ERR_OK) return;
    const struct pl_operand m = remakes ? tokens_now(b, dm) : pl_arg_none;
    struct pl_operand in[] = {pl_build_tokens(b, gu), tokens_now(b, dm), m};
    struct pl_operand out[] = {pl_build_tokens(b, gu), m};
    pl_build_op(b, pl_op_gradient(kind), attr, in, 3, out, 2);
}

void pl_step_gate(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    (void)missing;
    t->values[s->out[0]].val = gate(t->b, s->slot, t->values[s->in[0]].val);
}

void pl_step_gate_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_value *gu = &t->values[s->in[0]], *m = &t->values[s->out[0]];
    gate_bwd(t->b, s->slot, gu->val, m->grad, m->remade);
    if (m->remade) m->val = pl_build_now(t->b, m->grad);
    gu->grad = gu->val.id;
}

/* --- chunk by chunk -------------------------------------------------------------------------- */

typedef void (*chunk_fn)(struct pl_tape *t, const struct pl_step *s);

static void each_chunk(struct pl_tape *t, const struct pl_step *s, chunk_fn run) {
    struct pl_builder *b = t->b;
    const uint64_t chunk = b->p->mlp_chunk_tokens, chunks = pl_u64_div_up(b->n, chunk);
    const uint32_t kept = b->n_kept;
    pl_brief_begin_loop(b);
    for (uint64_t i = 0; i < chunks && b->err == PL_ERR_OK; i = pl_brief_next(b->p, i, chunks, 1)) {
        const uint64_t row0 = i * chunk;
        pl_brief_begin_piece(b, i, chunks);
        b->chunk = (struct pl_token_window){row0, pl_u64_min(chunk, b->n - row0)};
        run(t, s);
        b->n_kept = kept; /* copies that one chunk has unpacked are given back with it */
    }
    pl_brief_end_loop(b);
    b->chunk = (struct pl_token_window){0};
}

static uint32_t add_gu(struct pl_builder *b) {
    return pl_build_activation(b, "gu", PL_ROWS_TOKENS, 2 * (uint64_t)b->m->layer[b->layer].ffn);
}

static void forward_chunk(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const uint32_t gu = add_gu(b);
    pl_build_linear(b, PL_SLOT_GU, t->values[s->in[0]].val, gu);
    pl_build_linear(b, PL_SLOT_DOWN, gate(b, PL_SLOT_GU, pl_build_now(b, gu)),
                    t->values[s->out[0]].val.id);
}

void pl_step_mlp(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_value *y = &t->values[s->out[0]];
    (void)missing;
    y->val.id = pl_build_activation(t->b, y->name, PL_ROWS_TOKENS, t->b->m->hidden);
    each_chunk(t, s, forward_chunk);
    y->val = pl_build_now(t->b, y->val.id);
}

static void backward_chunk(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_value *x = &t->values[s->in[0]];
    const struct pl_val rows = pl_build_now(b, x->val.id);
    const bool reads_m = pl_build_linear_needs_x(b, PL_SLOT_DOWN);
    b->recompute = true;
    const uint32_t gu = add_gu(b);
    const struct pl_val a_gu = pl_build_linear(b, PL_SLOT_GU, rows, gu);
    b->recompute = false;
    const uint32_t dm = pl_build_activation(b, "dm", PL_ROWS_TOKENS, b->m->layer[b->layer].ffn);
    if (b->err != PL_ERR_OK) return;
    struct pl_linear_bwd down = {
        PL_SLOT_DOWN, tokens_now(b, t->values[s->out[0]].grad), PL_NO_VAL, PL_NO_VAL, dm, false,
        PL_NO_VAL};
    pl_build_linear_dx(b, &down);
    gate_bwd(b, PL_SLOT_GU, pl_build_now(b, gu), dm, reads_m);
    if (reads_m) {
        down.x = pl_build_now(b, dm);
        b->recompute = true;
        down.a = pl_build_adapter_a(b, PL_SLOT_DOWN, down.x);
        b->recompute = false;
        pl_build_linear_dw(b, &down);
    }
    struct pl_linear_bwd both = {
        PL_SLOT_GU, tokens_now(b, gu), rows, a_gu, x->wants ? x->grad : PL_NONE,
        x->trunk,   PL_NO_VAL};
    pl_build_linear_bwd(b, &both);
}

void pl_step_mlp_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_value *x = &t->values[s->in[0]];
    x->grad = x->trunk ? t->trunk_grad : x->wants ? x->val.id : PL_NONE;
    each_chunk(t, s, backward_chunk);
}

/* --- the tape -------------------------------------------------------------------------------- */

/* True if the MLP is computed in chunks. Values that are kept for the gradient are there for all
 * tokens, which rules it out; what GENERATE computes at once is few tokens. */
static bool in_chunks(const struct pl_builder *b) {
    return b->p->mlp_chunk_tokens < b->n && b->phase != PL_PHASE_GENERATE &&
           !pl_tape_keeps(b, PL_PART_MLP);
}

pl_var pl_tape_gate(struct pl_tape *t, enum pl_slot slot, pl_var gu) {
    const pl_var m = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("m"));
    pl_tape_record(
        t, (struct pl_step){PL_STEP_GATE, slot, {gu, PL_NO_VAR}, {m, PL_NO_VAR, PL_NO_VAR}});
    return m;
}

pl_var pl_tape_mlp(struct pl_tape *t, pl_var x, enum pl_value_part part, const char *name,
                   const char *grad_name) {
    const struct pl_model *model = t->b->m;
    if (in_chunks(t->b)) {
        const pl_var y = pl_tape_add_value(t, part, name, grad_name);
        pl_tape_record(
            t,
            (struct pl_step){PL_STEP_MLP, PL_SLOT_DOWN, {x, PL_NO_VAR}, {y, PL_NO_VAR, PL_NO_VAR}});
        return y;
    }
    const pl_var gu =
        pl_tape_linear(t, PL_SLOT_GU, x, 2 * (uint64_t)t->b->m->layer[t->b->layer].ffn, PL_PART_MLP,
                       PL_TAPE_NAME("gu"));
    const pl_var m = pl_tape_gate(t, PL_SLOT_GU, gu);
    return pl_tape_linear(t, PL_SLOT_DOWN, m, model->hidden, part, name, grad_name);
}
