/* experts.c - a mixture of experts in place of the MLP of a layer.
 *
 *   w, e = route(Wr x);  y[t] = sum over j of w[t,j] (Wdown_e act(Wgu_e x[t])), e = e[t,j]
 * Every token has a row for each of its experts. These rows are sorted by expert (Megablocks, arXiv
 * 2211.15841), so that the products of an expert read and write rows that lie together, and one
 * operation does those of all experts. The number of sorted rows is known before a step runs; only
 * how many of them an expert has is not, and is read from the offsets on the device.
 * The gradient of y passes through the chosen weights as well, so the router learns which expert to
 * choose although the choice itself has no gradient. */
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

/* --- the router ------------------------------------------------------------------------------ */

static uint32_t add_chosen(struct pl_builder *b, const char *name, enum pl_dtype dtype) {
    return pl_build_step(b, name, PL_ROWS_TOKENS, 0, b->m->experts.per_token, dtype,
                         PL_CATEGORY_ACTIVATIONS);
}

void pl_step_route(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t weight = add_chosen(b, t->values[s->out[0]].name, PL_DTYPE_F32);
    const uint32_t expert = add_chosen(b, t->values[s->out[1]].name, PL_DTYPE_I32);
    const bool counts = b->route_stats != PL_NONE && !b->recompute;
    const struct pl_attr attr = pl_build_route_attr(b, counts);
    const struct pl_operand stats = counts ? pl_arg_now(b, b->route_stats) : pl_arg_none;
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val),
                              counts && stats.version ? stats : pl_arg_none, /* the first writes */
                              pl_build_workspace(b, PL_OP_ROUTE, &attr, b->n, b->m->experts.n)};
    struct pl_operand out[] = {pl_arg_now(b, weight), pl_arg_now(b, expert), stats};
    (void)missing;
    PL_EMIT(b, ROUTE, attr, in, out);
    t->values[s->out[0]].val = pl_build_now(b, weight);
    t->values[s->out[1]].val = pl_build_now(b, expert);
}

pl_var_set pl_step_route_needs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->out[0]) | pl_var_bit(s->out[1]);
}

void pl_step_route_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *logits = &t->values[s->in[0]];
    const struct pl_value *weight = &t->values[s->out[0]], *expert = &t->values[s->out[1]];
    const bool counts = b->route_stats != PL_NONE;
    logits->grad = pl_build_activation(b, logits->grad_name, PL_ROWS_TOKENS, b->m->experts.n);
    struct pl_operand in[] = {pl_arg(logits->val), pl_arg(weight->val), pl_arg(expert->val),
                              pl_arg_now(b, weight->grad),
                              counts ? pl_arg_now(b, b->route_stats) : pl_arg_none};
    struct pl_operand out[] = {pl_arg_now(b, logits->grad)};
    PL_EMIT(b, ROUTE_BWD, pl_build_route_attr(b, counts), in, out);
}

/* --- rows sorted by expert ------------------------------------------------------------------- */

void pl_step_order(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t offsets =
        pl_build_step(b, t->values[s->out[0]].name, PL_ROWS_FIXED, b->m->experts.n + 1, 1,
                      PL_DTYPE_I32, PL_CATEGORY_ACTIVATIONS);
    const uint32_t order = pl_build_step(b, t->values[s->out[1]].name, PL_ROWS_ROUTED, 0, 1,
                                         PL_DTYPE_I32, PL_CATEGORY_ACTIVATIONS);
    const uint32_t place = pl_build_step(b, t->values[s->out[2]].name, PL_ROWS_ROUTED, 0, 1,
                                         PL_DTYPE_I32, PL_CATEGORY_ACTIVATIONS);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val)};
    struct pl_operand out[] = {pl_arg_now(b, offsets), pl_arg_now(b, order), pl_arg_now(b, place)};
    (void)missing;
    PL_EMIT(b, EXPERT_ORDER, ((struct pl_attr){0}), in, out);
    t->values[s->out[0]].val = pl_build_now(b, offsets);
    t->values[s->out[1]].val = pl_build_now(b, order);
    t->values[s->out[2]].val = pl_build_now(b, place);
}

void pl_step_no_gradient(struct pl_tape *t, const struct pl_step *s) {
    (void)t, (void)s;
}

void pl_step_dispatch(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t xr =
        pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_ROUTED, b->m->hidden);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val), pl_arg(t->values[s->in[1]].val)};
    struct pl_operand out[] = {pl_arg_now(b, xr)};
    (void)missing;
    PL_EMIT(b, DISPATCH, ((struct pl_attr){0}), in, out);
    t->values[s->out[0]].val = pl_build_now(b, xr);
}

pl_var_set pl_step_dispatch_needs(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].wants ? pl_var_bit(s->in[2]) : 0;
}

bool pl_step_dispatch_wants(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].wants;
}

/* The first part of the gradient of x, to which the router adds. */
void pl_step_dispatch_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]];
    if (!x->wants) return;
    x->grad = pl_build_activation(b, x->grad_name, PL_ROWS_TOKENS, b->m->hidden);
    struct pl_operand in[] = {pl_arg_now(b, t->values[s->out[0]].grad),
                              pl_arg(t->values[s->in[2]].val), pl_arg_none};
    struct pl_operand out[] = {pl_arg_now(b, x->grad)};
    PL_EMIT(b, DISPATCH_BWD, ((struct pl_attr){0}), in, out);
}

void pl_step_combine(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const uint32_t y =
        pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, b->m->hidden);
    struct pl_operand in[] = {pl_arg(t->values[s->in[0]].val), pl_arg(t->values[s->in[1]].val),
                              pl_arg(t->values[s->in[2]].val)};
    struct pl_operand out[] = {pl_arg_now(b, y)};
    (void)missing;
    PL_EMIT(b, COMBINE, ((struct pl_attr){0}), in, out);
    t->values[s->out[0]].val = pl_build_now(b, y);
}

pl_var_set pl_step_all_inputs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]) | pl_var_bit(s->in[2]);
}

/* The outputs of the experts become their gradient. */
void pl_step_combine_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *yr = &t->values[s->in[0]], *weight = &t->values[s->in[1]];
    weight->grad = add_chosen(b, weight->grad_name, PL_DTYPE_F32);
    yr->grad = yr->val.id;
    struct pl_operand in[] = {pl_arg_now(b, t->values[s->out[0]].grad), pl_arg(yr->val),
                              pl_arg(weight->val), pl_arg(t->values[s->in[2]].val)};
    struct pl_operand out[] = {pl_arg(yr->val), pl_arg_now(b, weight->grad)};
    PL_EMIT(b, COMBINE_BWD, ((struct pl_attr){0}), in, out);
}

/* --- the tape -------------------------------------------------------------------------------- */

/* The product of every expert with its rows. */
static pl_var experts_linear(struct pl_tape *t, enum pl_slot slot, pl_var x, pl_var offsets,
                             uint64_t cols, const char *name, const char *grad_name) {
    const pl_var y = pl_tape_add_value(t, PL_PART_MLP, name, grad_name);
    const pl_var a = pl_tape_add_value(t, PL_PART_MLP, NULL, NULL);
    t->values[y].cols = cols;
    pl_tape_record(t, (struct pl_step){PL_STEP_LINEAR, slot, {x, offsets}, {y, a, PL_NO_VAR}});
    return y;
}

pl_var pl_tape_experts(struct pl_tape *t, pl_var x, const char *name) {
    const struct pl_builder *b = t->b;
    const pl_var logits = pl_tape_linear(t, PL_SLOT_ROUTER, x, b->m->experts.n, PL_PART_TRUNK,
                                         PL_TAPE_NAME("router_logits"));
    const pl_var weight = pl_tape_add_value(t, PL_PART_TRUNK, PL_TAPE_NAME("expert_weight"));
    const pl_var expert = pl_tape_add_value(t, PL_PART_TRUNK, "expert", NULL);
    const pl_var offsets = pl_tape_add_value(t, PL_PART_TRUNK, "expert_offsets", NULL);
    const pl_var order = pl_tape_add_value(t, PL_PART_TRUNK, "expert_order", NULL);
    const pl_var place = pl_tape_add_value(t, PL_PART_TRUNK, "expert_place", NULL);
    const pl_var xr = pl_tape_add_value(t, PL_PART_ROWS, PL_TAPE_NAME("xr"));
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_ROUTE, PL_SLOT_ROUTER, {logits, PL_NO_VAR}, {weight, expert, PL_NO_VAR}});
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_ORDER, PL_SLOT_ROUTER, {expert, PL_NO_VAR}, {offsets, order, place}});
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_DISPATCH, PL_SLOT_ROUTER, {x, order, place}, {xr, PL_NO_VAR, PL_NO_VAR}});
    const pl_var gu = experts_linear(t, PL_SLOT_EXPERT_GU, xr, offsets,
                                     2 * (uint64_t)b->m->layer[b->layer].ffn, PL_TAPE_NAME("gu"));
    const pl_var m = pl_tape_gate(t, PL_SLOT_EXPERT_GU, gu);
    const pl_var yr =
        experts_linear(t, PL_SLOT_EXPERT_DOWN, m, offsets, b->m->hidden, PL_TAPE_NAME("yr"));
    const pl_var y = pl_tape_add_value(t, PL_PART_TRUNK, name, NULL);
    pl_tape_record(
        t, (struct pl_step){
               PL_STEP_COMBINE, PL_SLOT_ROUTER, {yr, weight, place}, {y, PL_NO_VAR, PL_NO_VAR}});
    return y;
}
