/* steps.c - the kinds of steps of a layer's tape: their ops, and the ops of their gradients; and
 * the table of all kinds. */
#include "estimator/ops/scratch/workspace_cuda_attention.h"
#include "estimator/program/emit/exchange.h"
#include "estimator/program/emit/tape.h"

static const struct pl_layer *layer_of(const struct pl_builder *b) {
    return &b->m->layer[b->layer];
}

static uint32_t add_rstd(struct pl_builder *b, const char *name, uint64_t cols) {
    return pl_build_step(b, name, PL_ROWS_TOKENS, 0, cols, PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
}

struct pl_operand pl_build_weight_arg(const struct pl_builder *b, enum pl_slot slot) {
    const uint32_t w = pl_build_weight(b, slot);
    return w == PL_NONE ? pl_arg_none : pl_arg_now(b, w);
}

struct pl_weight_grad pl_build_weight_grad(struct pl_builder *b, enum pl_op_kind kind, uint32_t w,
                                           struct pl_attr *attr, uint64_t cols) {
    struct pl_weight_grad g = {pl_arg_none, pl_arg_none};
    if (!pl_build_trains(b, w)) return g;
    g.dw = pl_build_grad(b, w, attr);
    g.ws = pl_build_workspace(b, kind, attr, b->n, cols);
    return g;
}

/* --- norms ----------------------------------------------------------------------------------- */

/* Returns the attributes of an op that reads 1/rms as it was kept. */
static struct pl_attr scale_attr(const struct pl_builder *b) {
    return (struct pl_attr){.unit_offset = b->m->unit_offset};
}

struct pl_attr pl_build_norm_attr(const struct pl_builder *b) {
    struct pl_attr attr = scale_attr(b);
    attr.eps = (float)b->m->rms_eps;
    return attr;
}

void pl_build_norm_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy,
                       struct pl_val x, struct pl_val rstd, struct pl_operand dx, bool add) {
    if (b->err != PL_ERR_OK) return;
    const uint32_t w = pl_build_weight(b, slot);
    struct pl_attr attr = scale_attr(b);
    attr.add_dx = add;
    const struct pl_weight_grad g =
        pl_build_weight_grad(b, PL_OP_RMSNORM_BWD, w, &attr, b->m->hidden);
    const struct pl_operand before = add || dx.id == dy.id ? dx : pl_arg_none;
    struct pl_operand in[] = {dy, pl_arg(x), pl_arg_now(b, w), pl_arg(rstd), g.ws, before, g.dw};
    struct pl_operand out[] = {dx, g.dw};
    PL_EMIT(b, RMSNORM_BWD, attr, in, out);
}

/* Makes a norm's output again from what the forward pass kept. */
static void renorm(struct pl_builder *b, struct pl_operand w, const struct pl_value *x,
                   const struct pl_value *rstd, uint32_t y) {
    struct pl_operand in[] = {pl_arg(x->val), w, pl_arg(rstd->val)}, out[] = {pl_arg_now(b, y)};
    PL_EMIT(b, RENORM, scale_attr(b), in, out);
}

/* With r and an x that is not summed yet, the norm computes x += r first. */
static void run_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]], *n = &t->values[s->out[0]];
    struct pl_value *rstd = &t->values[s->out[1]];
    const uint32_t y = pl_build_activation(b, n->name, PL_ROWS_TOKENS, b->m->hidden);
    const struct pl_operand w = pl_arg_now(b, pl_build_weight(b, s->slot));
    (void)missing;
    if (x->there && rstd->there) {
        renorm(b, w, x, rstd, y);
        n->val = pl_build_now(b, y);
        return;
    }
    const uint32_t r = add_rstd(b, rstd->name, 1);
    if (s->in[1] == PL_NO_VAR || x->there) {
        struct pl_operand in[] = {pl_arg(x->val), w}, out[] = {pl_arg_now(b, y), pl_arg_now(b, r)};
        PL_EMIT(b, RMSNORM, pl_build_norm_attr(b), in, out);
    } else {
        struct pl_operand in[] = {pl_arg(x->val), pl_arg(t->values[s->in[1]].val), w};
        struct pl_operand out[] = {pl_arg(x->val), pl_arg_now(b, y), pl_arg_now(b, r)};
        PL_EMIT(b, ADD_RMSNORM, pl_build_norm_attr(b), in, out);
        x->val = pl_build_now(b, x->val.id);
    }
    rstd->val = pl_build_now(b, r);
    n->val = pl_build_now(b, y);
}

static pl_var_set norm_reads(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].there ? 0 : pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]);
}

static pl_var_set norm_needs(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->out[0]].wants ? pl_var_bit(s->in[0]) | pl_var_bit(s->out[1]) : 0;
}

/* Whatever lies below a product gets its gradient. Below the first product of a tape that is the
 * tape's input, whose caller knows whether a gradient is wanted, or only the weight of the norm. */
bool pl_step_norm_wants(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].wants || pl_build_trains(t->b, pl_build_weight(t->b, s->slot));
}

/* Into the gradient of the trunk, to which it adds. */
static void norm_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]];
    const struct pl_value *n = &t->values[s->out[0]];
    x->grad = t->trunk_grad;
    if (n->wants)
        pl_build_norm_bwd(b, s->slot, pl_arg_now(b, n->grad), x->val, t->values[s->out[1]].val,
                          x->wants ? pl_arg_now(b, x->grad) : pl_arg_none, true);
}

static pl_var_set post_norm_needs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->out[1]);
}

/* Computes the gradient of the output of a block, from the gradient of the trunk, which stays, into
 * a tensor of its own. */
static void post_norm_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]];
    x->grad = pl_build_activation(b, x->grad_name, PL_ROWS_TOKENS, b->m->hidden);
    pl_build_norm_bwd(b, s->slot, pl_arg_now(b, t->values[s->out[0]].grad), x->val,
                      t->values[s->out[1]].val, pl_arg_now(b, x->grad), false);
}

/* --- products -------------------------------------------------------------------------------- */

/* The experts that a product is for: all of the layer, by the offsets that the step reads. */
static struct pl_expert_rows experts_of(const struct pl_tape *t, const struct pl_step *s) {
    if (s->in[1] == PL_NO_VAR) return (struct pl_expert_rows){0};
    return (struct pl_expert_rows){.offsets = t->values[s->in[1]].val, .n = t->b->m->experts.n};
}

static void run_linear(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *y = &t->values[s->out[0]], *a = &t->values[s->out[1]];
    const struct pl_val x = t->values[s->in[0]].val;
    const struct pl_expert_rows experts = experts_of(t, s);
    const enum pl_rows rows = experts.n ? PL_ROWS_ROUTED : PL_ROWS_TOKENS;
    b->experts = experts.n ? &experts : NULL;
    if (missing & pl_var_bit(s->out[0])) {
        const uint32_t id = pl_build_activation(b, y->name, rows, y->cols);
        a->val = pl_build_linear(b, s->slot, x, id);
        y->val = pl_build_now(b, id);
    } else {
        a->val = pl_build_adapter_a(b, s->slot, x);
    }
    b->experts = NULL;
}

static pl_var_set first_input(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]);
}

static pl_var_set both_inputs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]);
}

static pl_var_set linear_needs(const struct pl_tape *t, const struct pl_step *s) {
    const bool remade = t->values[s->in[0]].remade;
    if (remade || !pl_build_linear_needs_x(t->b, s->slot)) return pl_var_bit(s->in[1]);
    return pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]) | pl_var_bit(s->out[1]);
}

/* The gradient of a product's output: the first columns of a tensor that may have more, where the
 * values of a layer are its keys. */
static struct pl_operand gradient_of(const struct pl_builder *b, const struct pl_value *y) {
    const struct pl_val d = pl_build_now(b, y->grad);
    return b->err == PL_ERR_OK && y->cols < b->p->tensors[d.id].dims[1] ? pl_arg_cols(d, 0, y->cols)
                                                                        : pl_arg(d);
}

static void linear_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]];
    const struct pl_expert_rows experts = experts_of(t, s);
    const enum pl_rows rows = experts.n ? PL_ROWS_ROUTED : PL_ROWS_TOKENS;
    const bool adds = s->slot == PL_SLOT_ROUTER || x->trunk; /* to what came another way */
    if (!adds) x->grad = PL_NONE;
    if (x->trunk) x->grad = t->trunk_grad;
    if (!adds && x->wants)
        x->grad = pl_build_activation(b, x->grad_name, rows, b->p->tensors[x->val.id].dims[1]);
    struct pl_linear_bwd g = {s->slot,
                              gradient_of(b, &t->values[s->out[0]]),
                              x->val,
                              t->values[s->out[1]].val,
                              x->wants ? x->grad : PL_NONE,
                              adds,
                              PL_NO_VAL};
    b->experts = experts.n ? &experts : NULL;
    if (x->remade) {
        pl_build_linear_dx(b, &g);
        t->waiting = g;
    } else {
        pl_build_linear_bwd(b, &g);
    }
    b->experts = NULL;
}

void pl_step_linear_weights(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_expert_rows experts = experts_of(t, s);
    const struct pl_value *a = &t->values[s->out[1]];
    if (b->err != PL_ERR_OK) return;
    b->experts = experts.n ? &experts : NULL;
    t->waiting.x = t->values[s->in[0]].val;
    t->waiting.a = a->val;
    if (!a->there) {
        b->recompute = true;
        t->waiting.a = pl_build_adapter_a(b, s->slot, t->waiting.x);
        b->recompute = false;
    }
    pl_build_linear_dw(b, &t->waiting);
    b->experts = NULL;
}

/* --- norms of queries and keys --------------------------------------------------------------- */

struct half { /* columns of qk, and where they come from: an input of the step */
    enum pl_slot slot;
    uint64_t to, cols, from;
};

static void halves_of(const struct pl_builder *b, struct half out[2]) {
    out[0] = (struct half){PL_SLOT_QNORM, 0, b->q, 0};
    out[1] = (struct half){PL_SLOT_KNORM, b->q, b->k, b->key_col};
}

/* Into a tensor of its own, so that qkv keeps what the gradient of the norm reads. */
static void run_qk_norm(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct half halves[2];
    (void)missing;
    halves_of(b, halves);
    const uint32_t qk =
        pl_build_activation(b, t->values[s->out[0]].name, PL_ROWS_TOKENS, b->q + b->k);
    for (int i = 0; i < 2 && b->err == PL_ERR_OK; i++) {
        const struct half *h = &halves[i];
        struct pl_value *rstd = &t->values[s->out[1 + i]];
        struct pl_attr attr = pl_build_norm_attr(b);
        attr.head_dim = layer_of(b)->head_dim;
        const uint32_t r = add_rstd(b, rstd->name, h->cols / layer_of(b)->head_dim);
        struct pl_operand in[] = {pl_arg_cols(t->values[s->in[i]].val, h->from, h->cols),
                                  pl_arg_now(b, pl_build_weight(b, h->slot))};
        struct pl_operand out[] = {pl_arg_cols(pl_build_now(b, qk), h->to, h->cols),
                                   pl_arg_now(b, r)};
        PL_EMIT(b, QK_NORM, attr, in, out);
        rstd->val = pl_build_now(b, r);
    }
    t->values[s->out[0]].val = pl_build_now(b, qk);
}

/* 1/rms is there since attention asked for qk, and so are queries that were split from gates. */
static pl_var_set qk_norm_needs(const struct pl_tape *t, const struct pl_step *s) {
    (void)t;
    return pl_var_bit(s->in[1]);
}

static void qk_norm_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct half halves[2];
    halves_of(b, halves);
    t->values[s->in[0]].grad = t->values[s->out[0]].grad;
    for (int i = 0; i < 2 && b->err == PL_ERR_OK; i++) {
        const struct half *h = &halves[i];
        const uint32_t w = pl_build_weight(b, h->slot);
        struct pl_attr attr = scale_attr(b);
        attr.head_dim = layer_of(b)->head_dim;
        const struct pl_weight_grad g =
            pl_build_weight_grad(b, PL_OP_QK_NORM_BWD, w, &attr, h->cols);
        const struct pl_value *x = &t->values[s->in[i]];
        const struct pl_operand d = pl_arg_cols(pl_build_now(b, x->grad), h->from, h->cols);
        struct pl_operand in[] = {d,
                                  pl_arg_cols(x->val, h->from, h->cols),
                                  pl_arg_now(b, w),
                                  pl_arg(t->values[s->out[1 + i]].val),
                                  g.ws,
                                  g.dw};
        struct pl_operand out[] = {d, g.dw};
        PL_EMIT(b, QK_NORM_BWD, attr, in, out);
    }
}

/* --- rotation -------------------------------------------------------------------------------- */

/* Whole heads from a column on. */
static void rotate_heads(struct pl_builder *b, struct pl_val x, uint64_t col, uint64_t heads,
                         uint32_t table, bool inverse) {
    const struct pl_rope *rope = &b->m->rope[layer_of(b)->rope];
    struct pl_attr attr = {.inverse = inverse,
                           .heads = (uint32_t)heads,
                           .head_dim = layer_of(b)->head_dim,
                           .rot_dim = rope->dim,
                           .long_from = rope->original_max_positions};
    struct pl_operand qk = pl_arg_cols(x, col, heads * layer_of(b)->head_dim);
    struct pl_operand in[] = {
        qk, pl_arg(b->in.positions), pl_arg_now(b, table),
        table != b->rope[0] || b->rope[1] == PL_NONE ? pl_arg_none : pl_arg_now(b, b->rope[1])};
    struct pl_operand out[] = {qk};
    PL_EMIT(b, ROPE, attr, in, out);
}

static uint32_t table_of(const struct pl_builder *b) {
    return layer_of(b)->rope ? b->second_rope : b->rope[0];
}

/* Queries, and keys from a column of `keys` on. One op turns both where they lie side by side,
 * unless queries have a table of their own, whose cos and sin carry what they grow by. Turning back
 * by it is the gradient of both. */
static void rotate(struct pl_builder *b, struct pl_val queries, uint32_t keys, uint64_t key_col,
                   bool inverse) {
    const uint32_t table = table_of(b);
    if (b->query_rope == PL_NONE && keys == queries.id) {
        rotate_heads(b, queries, 0, b->m->heads + layer_of(b)->kv_heads, table, inverse);
        return;
    }
    const uint32_t own = b->query_rope == PL_NONE ? table : b->query_rope;
    rotate_heads(b, queries, 0, b->m->heads, own, inverse);
    rotate_heads(b, pl_build_now(b, keys), key_col, layer_of(b)->kv_heads, table, inverse);
}

/* Turns what the slot of a step is of. */
static void rotate_slot(struct pl_builder *b, enum pl_slot slot, struct pl_val x, uint32_t keys,
                        uint64_t key_col, bool inverse) {
    if (slot == PL_SLOT_QNORM)
        rotate_heads(b, x, 0, b->m->heads, table_of(b), inverse);
    else if (slot == PL_SLOT_KNORM)
        rotate_heads(b, x, key_col, layer_of(b)->kv_heads, table_of(b), inverse);
    else
        rotate(b, x, keys, key_col, inverse);
}

static void run_rope(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_value *qk = &t->values[s->in[0]];
    (void)missing;
    const uint64_t keys = s->slot == PL_SLOT_KNORM ? 0 : t->b->q;
    rotate_slot(t->b, s->slot, qk->val, qk->val.id, keys, false);
    qk->val = pl_build_now(t->b, qk->val.id);
}

pl_var_set pl_step_no_values(const struct pl_tape *t, const struct pl_step *s) {
    (void)t, (void)s;
    return 0;
}

static void rope_gradient(struct pl_tape *t, const struct pl_step *s) {
    const uint32_t keys = t->values[s->in[1]].grad;
    rotate_slot(t->b, s->slot, pl_build_now(t->b, t->values[s->in[0]].grad), keys, t->b->key_col,
                true);
}

/* --- attention ------------------------------------------------------------------------------- */

static struct pl_attr attention_attr(const struct pl_builder *b) {
    const uint32_t window = layer_of(b)->window;
    return (struct pl_attr){.heads = (uint32_t)b->m->heads,
                            .kv_heads = layer_of(b)->kv_heads,
                            .head_dim = layer_of(b)->head_dim,
                            .window = window < b->s->max_seq_length ? window : 0,
                            .scale = (float)b->m->score_scale};
}

static struct pl_operand sinks_of(const struct pl_builder *b) {
    return b->m->sinks ? pl_arg_now(b, pl_build_weight(b, PL_SLOT_SINKS)) : pl_arg_none;
}

/* Queries, keys and values. Layers that share keys and values have these two in a tensor of their
 * own. */
static void find_parts(const struct pl_builder *b, struct pl_val qk, struct pl_val qkv,
                       struct pl_operand out[3]) {
    const bool shares = layer_of(b)->kv_layer != 0;
    out[0] = pl_arg_cols(qk, 0, b->q);
    out[1] = shares ? pl_arg_cols(qkv, 0, b->k) : pl_arg_cols(qk, b->q, b->k);
    out[2] = pl_arg_cols(qkv, shares ? b->k : b->key_col + b->k, b->k);
}

static void run_attention(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    const struct pl_val qk = t->values[s->in[0]].val, qkv = t->values[s->in[1]].val;
    struct pl_value *o = &t->values[s->out[0]], *lse = &t->values[s->out[1]];
    struct pl_attr attr = attention_attr(b);
    struct pl_operand parts[3];
    (void)missing;
    find_parts(b, qk, qkv, parts);
    if (b->phase == PL_PHASE_GENERATE) {
        o->val = pl_build_cached_attention(b, attr, parts, sinks_of(b));
        return;
    }
    const uint32_t id = pl_build_activation(b, o->name, PL_ROWS_TOKENS, b->q);
    const uint32_t sums = add_rstd(b, lse->name, b->m->heads);
    struct pl_operand ws = pl_build_workspace(b, PL_OP_ATTENTION, &attr, b->n, b->q);
    struct pl_operand in[] = {parts[0], parts[1], parts[2], pl_arg(b->in.offsets), ws, sinks_of(b)};
    struct pl_operand out[] = {pl_arg_now(b, id), pl_arg_now(b, sums)};
    PL_EMIT(b, ATTENTION, attr, in, out);
    o->val = pl_build_now(b, id);
    lse->val = pl_build_now(b, sums);
}

/* Queries and keys that are made again where they are read are not among them: see the gradient. */
static pl_var_set attention_needs(const struct pl_tape *t, const struct pl_step *s) {
    const pl_var_set kv = s->in[1] == s->in[0] ? 0 : pl_var_bit(s->in[1]);
    const pl_var_set own = kv | pl_var_bit(s->out[0]) | pl_var_bit(s->out[1]);
    return t->values[s->in[0]].part == PL_PART_NEVER ? own : own | pl_var_bit(s->in[0]);
}

static void sinks_gradient(struct pl_builder *b, const struct pl_value *o,
                           const struct pl_value *lse) {
    if (!b->m->sinks || !pl_build_trains(b, pl_build_weight(b, PL_SLOT_SINKS))) return;
    const uint32_t sinks = pl_build_weight(b, PL_SLOT_SINKS);
    struct pl_attr attr = attention_attr(b);
    const struct pl_weight_grad g = pl_build_weight_grad(b, PL_OP_SINK_BWD, sinks, &attr, b->q);
    struct pl_operand in[] = {
        pl_arg(o->val), pl_arg_now(b, o->grad), pl_arg(lse->val), pl_arg_now(b, sinks), g.ws, g.dw};
    struct pl_operand out[] = {g.dw};
    PL_EMIT(b, SINK_BWD, attr, in, out);
}

/* The gradient of the product has that of the gates already; queries have one of their own. */
static void begin_gated_grad(struct pl_builder *b, struct pl_value *qk, const struct pl_value *qkv,
                             struct pl_operand out[3]) {
    const struct pl_val d = pl_build_now(b, qkv->grad);
    qk->grad = pl_build_activation(b, "dq", PL_ROWS_TOKENS, b->q);
    out[0] = pl_arg_cols(pl_build_now(b, qk->grad), 0, b->q);
    out[1] = pl_arg_cols(d, b->key_col, b->k);
    out[2] = pl_arg_cols(d, b->key_col + b->k, b->k);
}

static void attention_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    struct pl_value *qk = &t->values[s->in[0]], *qkv = &t->values[s->in[1]];
    const struct pl_value *o = &t->values[s->out[0]], *lse = &t->values[s->out[1]];
    struct pl_operand x[3], d[3];
    pl_tape_rebuild(t, pl_var_bit(s->in[0]));
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = attention_attr(b);
    attr.key_parts = pl_attention_key_parts(&b->p->traits, &attr, b->n);
    if (b->key_col != b->q)
        begin_gated_grad(b, qk, qkv, d);
    else
        pl_build_begin_kv_grad(t, qk, qkv, d);
    find_parts(b, qk->val, qkv->val, x);
    struct pl_operand ws = pl_build_workspace(b, PL_OP_ATTENTION_BWD, &attr, b->n, b->q);
    struct pl_operand in[] = {x[0],
                              x[1],
                              x[2],
                              pl_arg(o->val),
                              pl_arg(lse->val),
                              pl_arg_now(b, o->grad),
                              pl_arg(b->in.offsets),
                              ws};
    PL_EMIT(b, ATTENTION_BWD, attr, in, d);
    pl_build_end_kv_grad(t, d);
    sinks_gradient(b, o, lse);
}

/* --- the table ------------------------------------------------------------------------------- */

const struct pl_step_row pl_step_rows[PL_STEP_COUNT] = {
    [PL_STEP_NORM] = {run_norm, norm_reads, norm_needs, norm_gradient, pl_step_norm_wants},
    [PL_STEP_POST_NORM] = {run_norm, first_input, post_norm_needs, post_norm_gradient, NULL},
    [PL_STEP_LINEAR] = {run_linear, both_inputs, linear_needs, linear_gradient, NULL},
    [PL_STEP_QK_NORM] = {run_qk_norm, both_inputs, qk_norm_needs, qk_norm_gradient, NULL},
    [PL_STEP_HEAD_NORMS] = {pl_step_head_norms, first_input, first_input,
                            pl_step_head_norms_gradient, NULL},
    [PL_STEP_INPUT] = {pl_step_input, first_input, first_input, pl_step_input_gradient, NULL},
    [PL_STEP_INPUT_GATE] = {pl_step_input_gate, first_input, first_input,
                            pl_step_input_gate_gradient, NULL},
    [PL_STEP_ADD] = {pl_step_add, pl_step_add_reads, pl_step_no_values, pl_step_add_gradient, NULL},
    [PL_STEP_ROPE] = {run_rope, first_input, pl_step_no_values, rope_gradient, NULL},
    [PL_STEP_ATTENTION] = {run_attention, both_inputs, attention_needs, attention_gradient, NULL},
    [PL_STEP_GATE] = {pl_step_gate, first_input, first_input, pl_step_gate_gradient, NULL},
    [PL_STEP_MLP] = {pl_step_mlp, first_input, first_input, pl_step_mlp_gradient, NULL},
    [PL_STEP_ROUTE] = {pl_step_route, first_input, pl_step_route_needs, pl_step_route_gradient,
                       NULL},
    [PL_STEP_ORDER] = {pl_step_order, first_input, pl_step_no_values, pl_step_no_gradient, NULL},
    [PL_STEP_DISPATCH] = {pl_step_dispatch, both_inputs, pl_step_dispatch_needs,
                          pl_step_dispatch_gradient, pl_step_dispatch_wants},
    [PL_STEP_COMBINE] = {pl_step_combine, pl_step_all_inputs, pl_step_all_inputs,
                         pl_step_combine_gradient, NULL},
    [PL_STEP_EMBED] = {pl_step_embed, pl_step_no_values, pl_step_embed_needs,
                       pl_step_embed_gradient, NULL},
    [PL_STEP_GATHER] = {pl_step_gather, pl_step_no_values, pl_step_no_values,
                        pl_step_gather_gradient, pl_step_gather_wants},
    [PL_STEP_LAST_NORM] = {pl_step_last_norm, pl_step_no_values, pl_step_last_norm_needs,
                           pl_step_last_norm_gradient, pl_step_norm_wants},
    [PL_STEP_LOSS] = {pl_step_loss, pl_step_no_values, pl_step_no_values, pl_step_loss_gradient,
                      NULL},
    [PL_STEP_SPLIT] = {pl_step_split, first_input, pl_step_no_values, pl_step_split_gradient, NULL},
    [PL_STEP_HEAD_GATE] = {pl_step_head_gate, both_inputs, both_inputs, pl_step_head_gate_gradient,
                           NULL},
    [PL_STEP_CONV] = {pl_step_conv, first_input, first_input, pl_step_conv_gradient, NULL},
    [PL_STEP_DELTA] = {pl_step_delta, both_inputs, pl_step_delta_needs, pl_step_delta_gradient,
                       NULL},
    [PL_STEP_GATED_NORM] = {pl_step_gated_norm, both_inputs, pl_step_gated_norm_needs,
                            pl_step_gated_norm_gradient, NULL},
};
