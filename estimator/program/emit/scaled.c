/* scaled.c - steps that only layers of Gemma 4 have: norms of queries, keys and values before
 * attention, keys and values of an earlier layer, and sums that are scaled.
 *
 * Of a layer whose values are its keys, k0 = Wk n is normed twice: to k = Nk(k0) and to v =
 * unit(k0), so that what comes back through the two adds up. */
#include "estimator/program/emit/tape.h"

#include "estimator/base/checked.h"

/* --- norms of heads -------------------------------------------------------------------------- */

struct part {            /* queries, keys, or values */
    enum pl_slot weight; /* PL_SLOT_COUNT = none */
    uint64_t from;       /* column in the output of the product */
    uint64_t to;         /* column in the normed tensor */
    uint64_t grad;       /* column in the gradient of all three */
    uint64_t cols;
};

/* The parts that a step is of; returns their number. */
static uint32_t parts_of(const struct pl_builder *b, enum pl_slot slot, struct part out[3]) {
    const bool keys = pl_kind_kv_matrices(b->m->layer[b->layer].kind) == 1;
    const uint64_t first = slot == PL_SLOT_KNORM ? b->q : 0, k = b->q, v = b->q + b->k;
    uint32_t n = 0;
    if (slot != PL_SLOT_KNORM) out[n++] = (struct part){PL_SLOT_QNORM, 0, 0, 0, b->q};
    if (slot == PL_SLOT_QNORM) return n;
    out[n++] = (struct part){PL_SLOT_KNORM, k, k - first, k, b->k};
    out[n++] = (struct part){PL_SLOT_COUNT, keys ? k : v, v - first, v, b->k};
    return n;
}

static struct pl_operand weight_of(const struct pl_builder *b, const struct part *x) {
    return x->weight == PL_SLOT_COUNT ? pl_arg_none : pl_build_weight_arg(b, x->weight);
}

static uint64_t columns_of(const struct part *parts, uint32_t n) {
    uint64_t cols = 0;
    for (uint32_t i = 0; i < n; i++)
        cols += parts[i].cols;
    return cols;
}

/* Columns of 1/rms that every part has in one tensor; whole packs of 16 bytes, as kernels read. */
static uint64_t rstd_columns(const struct pl_builder *b) {
    return pl_u64_round_up(b->m->heads, 4);
}

static struct pl_operand rstd_of(const struct pl_builder *b, struct pl_val rstd, uint32_t i,
                                 const struct part *x) {
    return pl_arg_cols(rstd, i * rstd_columns(b), x->cols / b->m->layer[b->layer].head_dim);
}

/* Into a tensor of its own, so that the product's output keeps what the gradient reads. */
void pl_step_head_norms(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *y = &t->values[s->out[0]], *rstd = &t->values[s->out[1]];
    const struct pl_val x = t->values[s->in[0]].val;
    const uint32_t head_dim = b->m->layer[b->layer].head_dim;
    struct part parts[3];
    (void)missing;
    const uint32_t n = parts_of(b, s->slot, parts);
    const uint64_t cols = columns_of(parts, n);
    const uint32_t id = pl_build_activation(b, y->name, PL_ROWS_TOKENS, cols);
    const uint32_t r = pl_build_step(b, rstd->name, PL_ROWS_TOKENS, 0, n * rstd_columns(b),
                                     PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
    struct pl_attr attr = pl_build_norm_attr(b);
    attr.head_dim = head_dim;
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++) {
        const struct part *p = &parts[i];
        struct pl_operand in[] = {pl_arg_cols(x, p->from, p->cols), weight_of(b, p)};
        struct pl_operand out[] = {pl_arg_cols(pl_build_now(b, id), p->to, p->cols),
                                   rstd_of(b, pl_build_now(b, r), i, p)};
        PL_EMIT(b, QK_NORM, attr, in, out);
    }
    y->val = pl_build_now(b, id);
    rstd->val = pl_build_now(b, r);
}

/* d of a part becomes that of the product's output in place. */
static void part_gradient(struct pl_tape *t, const struct pl_step *s, uint32_t i,
                          const struct part *p, uint32_t grad) {
    struct pl_builder *b = t->b;
    const uint32_t head_dim = b->m->layer[b->layer].head_dim;
    const uint32_t w = p->weight == PL_SLOT_COUNT ? PL_NONE : pl_build_weight(b, p->weight);
    struct pl_attr attr = {.head_dim = head_dim};
    const struct pl_weight_grad g = pl_build_weight_grad(b, PL_OP_QK_NORM_BWD, w, &attr, p->cols);
    const struct pl_operand d = pl_arg_cols(pl_build_now(b, grad), p->grad, p->cols);
    struct pl_operand in[] = {d,
                              pl_arg_cols(t->values[s->in[0]].val, p->from, p->cols),
                              weight_of(b, p),
                              rstd_of(b, t->values[s->out[1]].val, i, p),
                              g.ws,
                              g.dw};
    struct pl_operand out[] = {d, g.dw};
    PL_EMIT(b, QK_NORM_BWD, attr, in, out);
}

static void add_columns(struct pl_builder *b, struct pl_operand x, struct pl_operand r) {
    struct pl_operand in[] = {x, r, pl_arg_none}, out[] = {x};
    PL_EMIT(b, ADD_SCALE, (struct pl_attr){.alpha = 1}, in, out);
}

void pl_step_head_norms_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const uint32_t grad = t->values[s->out[0]].grad;
    struct part parts[3];
    const uint32_t n = parts_of(b, s->slot, parts);
    for (uint32_t i = 0; i < n && b->err == PL_ERR_OK; i++)
        part_gradient(t, s, i, &parts[i], grad);
    t->values[s->in[0]].grad = grad;
    if (n < 2 || parts[n - 2].from != parts[n - 1].from || b->err != PL_ERR_OK) return;
    const struct pl_val d = pl_build_now(b, grad);
    add_columns(b, pl_arg_cols(d, b->q, b->k), pl_arg_cols(d, b->q + b->k, b->k));
}

static pl_var head_norms(struct pl_tape *t, enum pl_slot slot, pl_var qkv, enum pl_value_part part,
                         const char *name, const char *grad_name) {
    const pl_var y = pl_tape_add_value(t, part, name, grad_name);
    const pl_var rstd = pl_tape_add_value(t, part, "qkv_rstd", NULL);
    pl_tape_record(
        t, (struct pl_step){PL_STEP_HEAD_NORMS, slot, {qkv, PL_NO_VAR}, {y, rstd, PL_NO_VAR}});
    pl_tape_rope(t, slot, y, y);
    return y;
}

pl_var pl_tape_normed_attention(struct pl_tape *t, pl_var qkv) {
    const pl_var y = head_norms(t, PL_SLOT_QKV, qkv, PL_PART_NEVER, PL_TAPE_NAME("qkv_normed"));
    return pl_tape_attention(t, y, y);
}

/* --- keys and values of an earlier layer ----------------------------------------------------- */

pl_var pl_tape_shared_attention(struct pl_tape *t, pl_var qkv) {
    struct pl_builder *b = t->b;
    const struct pl_layer *layer = &b->m->layer[b->layer];
    struct pl_lent_kv *lent = &b->lent[layer->kv_layer - 1];
    const pl_var q = head_norms(t, PL_SLOT_QNORM, qkv, PL_PART_NEVER, PL_TAPE_NAME("q_normed"));
    pl_var kv;
    if (pl_layer_lends_kv(layer)) {
        kv = head_norms(t, PL_SLOT_KNORM, qkv, PL_PART_INPUT, PL_TAPE_NAME("kv"));
        lent->kv = pl_tape_value(t, kv);
    } else {
        kv = pl_tape_add_value(t, PL_PART_INPUT, PL_TAPE_NAME("kv"));
        t->values[kv].val = lent->kv;
    }
    return pl_tape_attention(t, q, kv);
}

/* The gradient of one user of lent keys and values: the first one's is where the others are added
 * up. Nothing reads it where the layer that lends them is below all that is trained. */
static uint32_t lent_grad(struct pl_builder *b, struct pl_lent_kv *lent, bool wanted) {
    const uint32_t id = pl_build_activation(b, "dkv", PL_ROWS_TOKENS, 2 * b->k);
    if (wanted && lent->grad == PL_NONE) lent->grad = id;
    return id;
}

void pl_build_begin_kv_grad(struct pl_tape *t, struct pl_value *qk, struct pl_value *qkv,
                            struct pl_operand out[3]) {
    struct pl_builder *b = t->b;
    const struct pl_layer *layer = &b->m->layer[b->layer];
    const bool own = pl_kind_kv_matrices(layer->kind) > 0;
    const uint64_t from = layer->kv_layer ? layer->kv_layer - 1u : 0;
    qk->grad = pl_build_activation(b, own ? qkv->grad_name : qk->grad_name, PL_ROWS_TOKENS,
                                   b->q + (own ? 2 * b->k : 0));
    qkv->grad = own ? qk->grad : lent_grad(b, &b->lent[from], from >= pl_build_lowest_layer(b));
    const struct pl_val kv = pl_build_now(b, qkv->grad);
    out[0] = pl_arg_cols(pl_build_now(b, qk->grad), 0, b->q);
    out[1] = pl_arg_cols(kv, own ? b->q : 0, b->k);
    out[2] = pl_arg_cols(kv, own ? b->q + b->k : b->k, b->k);
}

void pl_build_end_kv_grad(struct pl_tape *t, const struct pl_operand d[3]) {
    struct pl_builder *b = t->b;
    const struct pl_layer *layer = &b->m->layer[b->layer];
    if (!layer->kv_layer || b->err != PL_ERR_OK) return;
    const struct pl_lent_kv *lent = &b->lent[layer->kv_layer - 1];
    if (lent->grad == PL_NONE || lent->grad == d[1].id) return;
    const struct pl_val sum = pl_build_now(b, lent->grad), part = pl_build_now(b, d[1].id);
    if (pl_layer_lends_kv(layer))
        add_columns(b, pl_arg_cols(part, b->q, 2 * b->k), pl_arg(sum));
    else
        add_columns(b, pl_arg(sum), pl_arg(part));
}

/* --- sums of the trunk ----------------------------------------------------------------------- */

static struct pl_operand scalar_of(const struct pl_builder *b, enum pl_slot slot) {
    return slot == PL_SLOT_SCALAR ? pl_build_weight_arg(b, slot) : pl_arg_none;
}

void pl_step_add(struct pl_tape *t, const struct pl_step *s, pl_var_set missing) {
    struct pl_builder *b = t->b;
    struct pl_value *x = &t->values[s->in[0]];
    struct pl_operand in[] = {pl_arg(x->val), pl_arg(t->values[s->in[1]].val),
                              scalar_of(b, s->slot)};
    struct pl_operand out[] = {pl_arg(x->val)};
    (void)missing;
    PL_EMIT(b, ADD_SCALE, (struct pl_attr){.alpha = 1}, in, out);
    x->val = pl_build_now(b, x->val.id);
}

pl_var_set pl_step_add_reads(const struct pl_tape *t, const struct pl_step *s) {
    return t->values[s->in[0]].there ? 0 : pl_var_bit(s->in[0]) | pl_var_bit(s->in[1]);
}

/* The gradient of the trunk is that of both, after it was scaled. */
void pl_step_add_gradient(struct pl_tape *t, const struct pl_step *s) {
    struct pl_builder *b = t->b;
    const struct pl_operand d = pl_arg_now(b, t->trunk_grad);
    struct pl_operand in[] = {d, pl_arg_none, scalar_of(b, s->slot)}, out[] = {d};
    if (s->slot == PL_SLOT_SCALAR) PL_EMIT(b, ADD_SCALE, (struct pl_attr){.alpha = 1}, in, out);
    t->values[s->in[0]].grad = t->values[s->in[1]].grad = t->trunk_grad;
}

void pl_tape_add(struct pl_tape *t, enum pl_slot slot, pl_var x, pl_var r) {
    t->values[x].trunk = true;
    pl_tape_record(t, (struct pl_step){PL_STEP_ADD, slot, {x, r}, {x, PL_NO_VAR, PL_NO_VAR}});
}
