/* block.c - one decoder layer, forward and backward.
 *
 * The residual trunk is updated in place: the product that ends a block writes the tensor that the
 * next norm turns into the new trunk (out += trunk, then norm), so no sum needs a buffer of its
 * own. What the backward pass reads is kept by being read: lifetimes follow from the operands. */
#include "estimator/program/build.h"

#include <math.h>

/* What the backward pass of a layer rebuilds before it reads it; nothing else is rebuilt, and what
 * is rebuilt is not kept. */
enum {
    REBUILD_NORMS = 1,     /* n1, n2, m */
    REBUILD_MLP = 2,       /* gu */
    REBUILD_ATTENTION = 4, /* qkv, o, lse */
    REBUILD_LAYER = 8
};

static unsigned rebuilt(const struct pl_builder *b) {
    static const unsigned by_level[PL_RECOMPUTE_PLAIN] = {
        [PL_RECOMPUTE_LIGHT] = REBUILD_NORMS,
        [PL_RECOMPUTE_MLP] = REBUILD_NORMS | REBUILD_MLP,
        [PL_RECOMPUTE_ATTENTION] = REBUILD_NORMS | REBUILD_ATTENTION,
        [PL_RECOMPUTE_FULL] = REBUILD_LAYER,
        [PL_RECOMPUTE_OFFLOAD] = REBUILD_LAYER,
    };
    return by_level[pl_recompute_of_layer(b->s->recompute, b->layer)];
}

static struct pl_attr norm_attr(const struct pl_builder *b) {
    return (struct pl_attr){.eps = (float)b->m->rms_eps};
}

/* n = norm(x) or, with a pending sum, x += r first. Returns n; *rstd for the backward pass. */
static struct pl_val norm(struct pl_builder *b, enum pl_slot slot, struct pl_val *x,
                          struct pl_val r, const char *name, struct pl_val *rstd) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    uint32_t y = pl_build_activation(b, name, PL_ROWS_TOKENS, b->m->hidden);
    uint32_t s =
        pl_build_step(b, "rstd", PL_ROWS_TOKENS, 0, 1, PL_DTYPE_F32, PL_CATEGORY_ACTIVATIONS);
    struct pl_operand w = pl_arg(pl_build_now(b, pl_build_weight(b, slot)));
    struct pl_operand yo = pl_arg(pl_build_now(b, y)), so = pl_arg(pl_build_now(b, s));
    if (r.id == PL_NONE) {
        struct pl_operand in[] = {pl_arg(*x), w}, out[] = {yo, so};
        PL_EMIT(b, RMSNORM, norm_attr(b), in, out);
    } else {
        struct pl_operand in[] = {pl_arg(*x), pl_arg(r), w}, out[] = {pl_arg(*x), yo, so};
        PL_EMIT(b, ADD_RMSNORM, norm_attr(b), in, out);
        *x = pl_build_now(b, x->id);
    }
    *rstd = pl_build_now(b, s);
    return pl_build_now(b, y);
}

static void rope(struct pl_builder *b, struct pl_operand x, bool inverse) {
    if (b->m->no_rope[b->layer]) return;
    struct pl_attr attr = {.inverse = inverse,
                           .heads = (uint32_t)(b->m->heads + b->m->kv_heads),
                           .head_dim = (uint32_t)b->m->head_dim,
                           .rot_dim = b->m->rope.dim,
                           .long_from = b->m->rope.original_max_positions};
    struct pl_operand in[] = {x, pl_arg(b->in.positions), pl_arg(pl_build_now(b, b->rope[0])),
                              b->rope[1] == PL_NONE ? pl_arg_none
                                                    : pl_arg(pl_build_now(b, b->rope[1]))};
    struct pl_operand out[] = {x};
    PL_EMIT(b, ROPE, attr, in, out);
}

static void qk_norm_half(struct pl_builder *b, struct pl_val qkv, uint32_t qk, enum pl_slot slot,
                         uint64_t col, uint64_t cols, struct pl_val *rstd) {
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = norm_attr(b);
    attr.head_dim = (uint32_t)b->m->head_dim;
    uint32_t s = pl_build_step(b, "qk_rstd", PL_ROWS_TOKENS, 0, cols / b->m->head_dim, PL_DTYPE_F32,
                               PL_CATEGORY_ACTIVATIONS);
    struct pl_operand in[] = {pl_arg_cols(qkv, col, cols),
                              pl_arg(pl_build_now(b, pl_build_weight(b, slot)))};
    struct pl_operand out[] = {pl_arg_cols(pl_build_now(b, qk), col, cols),
                               pl_arg(pl_build_now(b, s))};
    PL_EMIT(b, QK_NORM, attr, in, out);
    *rstd = pl_build_now(b, s);
}

/* q and k as attention wants them. Without QK-norm that is qkv, turned in place; with it a tensor
 * of its own, so that qkv keeps what the norm's gradient needs. rstd: [0] of q, [1] of k. */
static struct pl_val rotated_qk(struct pl_builder *b, struct pl_val *qkv, struct pl_val rstd[2]) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    if (!b->m->qk_norm) {
        rope(b, pl_arg_cols(*qkv, 0, b->q + b->k), false);
        *qkv = pl_build_now(b, qkv->id);
        return *qkv;
    }
    uint32_t qk = pl_build_activation(b, "qk", PL_ROWS_TOKENS, b->q + b->k);
    qk_norm_half(b, *qkv, qk, PL_SLOT_QNORM, 0, b->q, &rstd[0]);
    qk_norm_half(b, *qkv, qk, PL_SLOT_KNORM, b->q, b->k, &rstd[1]);
    rope(b, pl_arg_cols(pl_build_now(b, qk), 0, b->q + b->k), false);
    return pl_build_now(b, qk);
}

static struct pl_attr attention_attr(const struct pl_builder *b) {
    uint64_t window = b->m->no_window[b->layer] ? 0 : b->m->sliding_window;
    return (struct pl_attr){.heads = (uint32_t)b->m->heads,
                            .kv_heads = (uint32_t)b->m->kv_heads,
                            .head_dim = (uint32_t)b->m->head_dim,
                            .window = window < b->s->max_seq_length ? (uint32_t)window : 0,
                            .scale = (float)(1.0 / sqrt((double)b->m->head_dim))};
}

static void attention(struct pl_builder *b, struct pl_val qk, struct pl_val qkv,
                      struct pl_block *f) {
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = attention_attr(b);
    if (b->kv) {
        f->o = pl_build_cached_attention(b, attr, qk, qkv);
        return;
    }
    uint32_t o = pl_build_activation(b, "o", PL_ROWS_TOKENS, b->q);
    uint32_t lse = pl_build_step(b, "lse", PL_ROWS_TOKENS, 0, b->m->heads, PL_DTYPE_F32,
                                 PL_CATEGORY_ACTIVATIONS);
    struct pl_operand ws = pl_build_workspace(b, PL_OP_ATTENTION, &attr, b->n, b->q);
    struct pl_operand in[] = {pl_arg_cols(qk, 0, b->q), pl_arg_cols(qk, b->q, b->k),
                              pl_arg_cols(qkv, b->q + b->k, b->k), pl_arg(b->in.offsets), ws};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, o)), pl_arg(pl_build_now(b, lse))};
    PL_EMIT(b, ATTENTION, attr, in, out);
    f->o = pl_build_now(b, o);
    f->lse = pl_build_now(b, lse);
}

static struct pl_val swiglu(struct pl_builder *b, struct pl_val gu) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    uint32_t m = pl_build_activation(b, "m", PL_ROWS_TOKENS, b->m->ffn);
    struct pl_operand in[] = {pl_arg(gu)}, out[] = {pl_arg(pl_build_now(b, m))};
    PL_EMIT(b, SWIGLU, (struct pl_attr){0}, in, out);
    return pl_build_now(b, m);
}

/* From n1 to o. */
static void block_attention(struct pl_builder *b, struct pl_block *f) {
    uint32_t qkv = pl_build_activation(b, "qkv", PL_ROWS_TOKENS, b->q + 2 * b->k);
    f->a_qkv = pl_build_linear(b, PL_SLOT_QKV, f->n1, qkv);
    f->qkv = pl_build_now(b, qkv);
    struct pl_val unused[2];
    struct pl_val qk = rotated_qk(b, &f->qkv, unused);
    attention(b, qk, f->qkv, f);
}

/* From n2 to gu. */
static void block_gate_up(struct pl_builder *b, struct pl_block *f) {
    uint32_t gu = pl_build_activation(b, "gu", PL_ROWS_TOKENS, 2 * b->m->ffn);
    f->a_gu = pl_build_linear(b, PL_SLOT_GU, f->n2, gu);
    f->gu = pl_build_now(b, gu);
}

/* From n1 to gu: the part that rebuilding a whole layer repeats. */
static void block_inner(struct pl_builder *b, struct pl_block *f) {
    block_attention(b, f);
    uint32_t x2 = pl_build_activation(b, "x2", PL_ROWS_TOKENS, b->m->hidden);
    f->a_o = pl_build_linear(b, PL_SLOT_O, f->o, x2);
    f->x2 = pl_build_now(b, x2);
    f->n2 = norm(b, PL_SLOT_NORM2, &f->x2, f->x, "n2", &f->rstd2);
    block_gate_up(b, f);
}

struct pl_val pl_build_block(struct pl_builder *b, struct pl_val *trunk, struct pl_val pending,
                             struct pl_block *f) {
    f->x = pending.id == PL_NONE ? *trunk : pending;
    f->n1 =
        norm(b, PL_SLOT_NORM1, &f->x, pending.id == PL_NONE ? PL_NO_VAL : *trunk, "n1", &f->rstd1);
    block_inner(b, f);
    f->m = swiglu(b, f->gu);
    uint32_t y = pl_build_activation(b, "x_next", PL_ROWS_TOKENS, b->m->hidden);
    f->a_down = pl_build_linear(b, PL_SLOT_DOWN, f->m, y);
    *trunk = f->x2;
    return pl_build_now(b, y);
}

/* The output of a norm again, from its input and what the forward pass kept of it. */
static struct pl_val renorm(struct pl_builder *b, enum pl_slot slot, struct pl_val x,
                            struct pl_val rstd, const char *name) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    uint32_t y = pl_build_activation(b, name, PL_ROWS_TOKENS, b->m->hidden);
    struct pl_operand in[] = {pl_arg(x), pl_arg(pl_build_now(b, pl_build_weight(b, slot))),
                              pl_arg(rstd)};
    struct pl_operand out[] = {pl_arg(pl_build_now(b, y))};
    PL_EMIT(b, RENORM, (struct pl_attr){0}, in, out);
    return pl_build_now(b, y);
}

/* What follows repeats operations of the forward pass on the same inputs, so it makes the same
 * bits. Each part stands where the backward pass is about to read it. */

static void rebuild_layer(struct pl_builder *b, struct pl_block *f, unsigned what) {
    if (!(what & REBUILD_LAYER)) return;
    f->n1 = norm(b, PL_SLOT_NORM1, &f->x, PL_NO_VAL, "n1", &f->rstd1);
    block_inner(b, f);
    if (!pl_build_linear_needs_x(b, PL_SLOT_DOWN)) return;
    f->m = swiglu(b, f->gu);
    f->a_down = pl_build_adapter_a(b, PL_SLOT_DOWN, f->m);
}

/* Before the gradient of SwiGLU overwrites gu. */
static void rebuild_mlp(struct pl_builder *b, struct pl_block *f, unsigned what) {
    if (what & REBUILD_MLP) {
        f->n2 = renorm(b, PL_SLOT_NORM2, f->x2, f->rstd2, "n2");
        block_gate_up(b, f);
    }
    if ((what & REBUILD_NORMS) && pl_build_linear_needs_x(b, PL_SLOT_DOWN)) f->m = swiglu(b, f->gu);
}

/* n2, unless the products of the MLP were rebuilt from it already. */
static void rebuild_norm2(struct pl_builder *b, struct pl_block *f, unsigned what) {
    if ((what & REBUILD_NORMS) && !(what & REBUILD_MLP) && pl_build_linear_needs_x(b, PL_SLOT_GU))
        f->n2 = renorm(b, PL_SLOT_NORM2, f->x2, f->rstd2, "n2");
}

static void rebuild_attention(struct pl_builder *b, struct pl_block *f, unsigned what) {
    if (!(what & REBUILD_ATTENTION)) return;
    f->n1 = renorm(b, PL_SLOT_NORM1, f->x, f->rstd1, "n1");
    block_attention(b, f);
}

static void rebuild_norm1(struct pl_builder *b, struct pl_block *f, unsigned what) {
    if ((what & REBUILD_NORMS) && !(what & REBUILD_ATTENTION) &&
        pl_build_linear_needs_x(b, PL_SLOT_QKV))
        f->n1 = renorm(b, PL_SLOT_NORM1, f->x, f->rstd1, "n1");
}

/* Runs one of them with its operations marked as repeated. */
static void rebuild(struct pl_builder *b, struct pl_block *f, unsigned what,
                    void (*part)(struct pl_builder *, struct pl_block *, unsigned)) {
    b->recompute = true;
    part(b, f, what);
    b->recompute = false;
}

static void norm_bwd(struct pl_builder *b, enum pl_slot slot, uint32_t dn, struct pl_val x,
                     struct pl_val rstd, uint32_t dx) {
    if (b->err != PL_ERR_OK) return;
    uint32_t w = pl_build_weight(b, slot);
    struct pl_attr attr = {.add_dx = true};
    struct pl_operand dw = pl_arg_none;
    if (pl_build_trains(b, w)) dw = pl_build_grad(b, w, &attr);
    struct pl_operand d = dx == PL_NONE ? pl_arg_none : pl_arg(pl_build_now(b, dx));
    struct pl_operand ws =
        dw.id == PL_NONE ? pl_arg_none
                         : pl_build_workspace(b, PL_OP_RMSNORM_BWD, &attr, b->n, b->m->hidden);
    struct pl_operand in[] = {pl_arg(pl_build_now(b, dn)),
                              pl_arg(x),
                              pl_arg(pl_build_now(b, w)),
                              pl_arg(rstd),
                              ws,
                              d,
                              dw};
    struct pl_operand out[] = {d, dw};
    PL_EMIT(b, RMSNORM_BWD, attr, in, out);
}

static void mlp_bwd(struct pl_builder *b, struct pl_block *f, unsigned what, uint32_t dx) {
    rebuild(b, f, what, rebuild_mlp);
    uint32_t dm = pl_build_activation(b, "dm", PL_ROWS_TOKENS, b->m->ffn);
    pl_build_linear_bwd(b, PL_SLOT_DOWN, pl_arg(pl_build_now(b, dx)), f->m, f->a_down, dm);
    struct pl_operand in[] = {pl_arg(f->gu), pl_arg(pl_build_now(b, dm))}, out[] = {pl_arg(f->gu)};
    PL_EMIT(b, SWIGLU_BWD, (struct pl_attr){0}, in, out);
    struct pl_val dgu = pl_build_now(b, f->gu.id);
    rebuild(b, f, what, rebuild_norm2);
    uint32_t dn2 = pl_build_activation(b, "dn2", PL_ROWS_TOKENS, b->m->hidden);
    pl_build_linear_bwd(b, PL_SLOT_GU, pl_arg(dgu), f->n2, f->a_gu, dn2);
    norm_bwd(b, PL_SLOT_NORM2, dn2, f->x2, f->rstd2, dx);
}

static void qk_norm_bwd(struct pl_builder *b, struct pl_val dqkv, struct pl_val qkv,
                        enum pl_slot slot, uint64_t col, uint64_t cols, struct pl_val rstd) {
    if (b->err != PL_ERR_OK) return;
    uint32_t w = pl_build_weight(b, slot);
    struct pl_attr attr = {.head_dim = (uint32_t)b->m->head_dim};
    struct pl_operand dw = pl_arg_none;
    if (pl_build_trains(b, w)) dw = pl_build_grad(b, w, &attr);
    struct pl_operand ws = dw.id == PL_NONE
                               ? pl_arg_none
                               : pl_build_workspace(b, PL_OP_QK_NORM_BWD, &attr, b->n, cols);
    struct pl_operand in[] = {pl_arg_cols(dqkv, col, cols),
                              pl_arg_cols(qkv, col, cols),
                              pl_arg(pl_build_now(b, w)),
                              pl_arg(rstd),
                              ws,
                              dw};
    struct pl_operand out[] = {pl_arg_cols(dqkv, col, cols), dw};
    PL_EMIT(b, QK_NORM_BWD, attr, in, out);
}

/* d qkv from d o, back through attention, rotation and QK-norm. */
static uint32_t attention_bwd(struct pl_builder *b, struct pl_block *f, uint32_t d_o) {
    struct pl_val qk = f->qkv, rstd[2] = {PL_NO_VAL, PL_NO_VAL};
    if (b->m->qk_norm) {
        b->recompute = true;
        qk = rotated_qk(b, &f->qkv, rstd);
        b->recompute = false;
    }
    struct pl_attr attr = attention_attr(b);
    uint32_t dqkv = pl_build_activation(b, "dqkv", PL_ROWS_TOKENS, b->q + 2 * b->k);
    struct pl_operand ws = pl_build_workspace(b, PL_OP_ATTENTION_BWD, &attr, b->n, b->q);
    struct pl_operand in[] = {pl_arg_cols(qk, 0, b->q),
                              pl_arg_cols(qk, b->q, b->k),
                              pl_arg_cols(f->qkv, b->q + b->k, b->k),
                              pl_arg(f->o),
                              pl_arg(f->lse),
                              pl_arg(pl_build_now(b, d_o)),
                              pl_arg(b->in.offsets),
                              ws};
    struct pl_val d = pl_build_now(b, dqkv);
    struct pl_operand out[] = {pl_arg_cols(d, 0, b->q), pl_arg_cols(d, b->q, b->k),
                               pl_arg_cols(d, b->q + b->k, b->k)};
    PL_EMIT(b, ATTENTION_BWD, attr, in, out);
    rope(b, pl_arg_cols(pl_build_now(b, dqkv), 0, b->q + b->k), true);
    if (b->m->qk_norm) {
        qk_norm_bwd(b, pl_build_now(b, dqkv), f->qkv, PL_SLOT_QNORM, 0, b->q, rstd[0]);
        qk_norm_bwd(b, pl_build_now(b, dqkv), f->qkv, PL_SLOT_KNORM, b->q, b->k, rstd[1]);
    }
    return dqkv;
}

void pl_build_block_bwd(struct pl_builder *b, const struct pl_block *kept, uint32_t dx,
                        bool need_dx) {
    if (b->err != PL_ERR_OK) return;
    struct pl_block f = *kept;
    const unsigned what = rebuilt(b);
    rebuild(b, &f, what, rebuild_layer);
    mlp_bwd(b, &f, what, dx);
    rebuild(b, &f, what, rebuild_attention);
    uint32_t d_o = pl_build_activation(b, "do", PL_ROWS_TOKENS, b->q);
    pl_build_linear_bwd(b, PL_SLOT_O, pl_arg(pl_build_now(b, dx)), f.o, f.a_o, d_o);
    uint32_t dqkv = attention_bwd(b, &f, d_o);
    rebuild(b, &f, what, rebuild_norm1);
    bool norm_trains = pl_build_trains(b, pl_build_weight(b, PL_SLOT_NORM1));
    uint32_t dn1 = PL_NONE;
    if (need_dx || norm_trains) dn1 = pl_build_activation(b, "dn1", PL_ROWS_TOKENS, b->m->hidden);
    pl_build_linear_bwd(b, PL_SLOT_QKV, pl_arg(pl_build_now(b, dqkv)), f.n1, f.a_qkv, dn1);
    if (dn1 != PL_NONE) norm_bwd(b, PL_SLOT_NORM1, dn1, f.x, f.rstd1, need_dx ? dx : PL_NONE);
}
