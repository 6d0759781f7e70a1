/* linear.c - a fused matrix: product, bias, adapters; forward and backward.
 *
 * With adapters (Hu et al., LoRA, arXiv 2106.09685): y = W x + b + s B (A d(x)), d = dropout. The A
 * matrices of one fused weight read the same input, so they are stacked into one skinny product. */
#include "estimator/program/emit/emit.h"
#include "estimator/program/emit/exchange.h"

/* The content of a tensor of tokens, as far as it is being computed. */
static struct pl_operand now(const struct pl_builder *b, uint32_t id) {
    return pl_build_tokens(b, pl_build_now(b, id));
}

/* One mask per fused matrix and layer. These numbers never change: a run that resumes draws the
 * masks that it would have drawn. */
static uint32_t dropout_site(const struct pl_builder *b, enum pl_slot slot) {
    enum { SITES = 15 };
    static const uint8_t sites[PL_SLOT_COUNT] = {
        [PL_SLOT_QKV] = 2,         [PL_SLOT_O] = 6,          [PL_SLOT_GU] = 9,
        [PL_SLOT_DOWN] = 11,       [PL_SLOT_DELTA_IN] = 3,   [PL_SLOT_DELTA_OUT] = 7,
        [PL_SLOT_INPUT_GATE] = 12, [PL_SLOT_INPUT_OUT] = 13, [PL_SLOT_INPUT_MODEL] = 14};
    return b->layer * SITES + sites[slot];
}

static struct pl_attr dropout_attr(const struct pl_builder *b, enum pl_slot slot, uint32_t x) {
    return (struct pl_attr){.dropout = (float)b->s->lora_dropout,
                            .site = dropout_site(b, slot),
                            .first_element = b->chunk.row0 * b->p->tensors[x].dims[1]};
}

static struct pl_val dropped_input(struct pl_builder *b, enum pl_slot slot, struct pl_val x) {
    if (!b->drops || b->err != PL_ERR_OK) return x;
    uint32_t y = pl_build_activation(b, "dropped", PL_ROWS_TOKENS, b->p->tensors[x.id].dims[1]);
    const struct pl_attr attr = dropout_attr(b, slot, x.id);
    struct pl_operand in[] = {pl_build_tokens(b, x), pl_arg(b->in.offsets), pl_arg(b->in.samples)};
    struct pl_operand out[] = {now(b, y)};
    PL_EMIT(b, DROPOUT, attr, in, out);
    return pl_build_now(b, y);
}

void pl_build_product(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                      struct pl_operand bias, struct pl_operand y, float alpha, bool add) {
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = {.alpha = alpha, .accumulate = add ? PL_ACC_ADD : PL_ACC_WRITE};
    if (b->experts) {
        pl_build_grouped(b, x, w, bias, y, alpha, add);
        return;
    }
    struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR, &attr, x, w, y);
    struct pl_operand in[] = {x, w, bias, ws, add ? y : pl_arg_none};
    struct pl_operand out[] = {y};
    PL_EMIT(b, LINEAR, attr, in, out);
}

/* The columns of a matrix of an adapter as products read it; its rows may be longer. */
static struct pl_operand adapter_arg(const struct pl_builder *b, uint32_t id, uint64_t cols) {
    const struct pl_val v = pl_build_now(b, id);
    const bool all = b->err != PL_ERR_OK || b->p->tensors[id].dims[1] == cols;
    return all ? pl_arg(v) : pl_arg_cols(v, 0, cols);
}

static struct pl_operand a_arg(const struct pl_builder *b, const struct pl_adapter_slot *ad) {
    if (b->err != PL_ERR_OK) return pl_arg_none;
    return adapter_arg(b, ad->read_a, b->p->tensors[ad->a].dims[1]);
}

uint32_t pl_build_adapter_rows(struct pl_builder *b, const char *name,
                               const struct pl_adapter_slot *ad) {
    const enum pl_rows rows = b->experts ? PL_ROWS_ROUTED : PL_ROWS_TOKENS;
    if (b->err != PL_ERR_OK) return PL_NONE;
    return pl_build_step(b, name, rows, 0, ad->n_parts * b->s->lora_r,
                         b->p->tensors[ad->read_a].dtype, PL_CATEGORY_ACTIVATIONS);
}

struct pl_val pl_build_adapter_a(struct pl_builder *b, enum pl_slot slot, struct pl_val x) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, slot);
    if (!ad || b->err != PL_ERR_OK) return PL_NO_VAL;
    struct pl_val xd = dropped_input(b, slot, x);
    uint32_t a = pl_build_adapter_rows(b, "lora_a_out", ad);
    pl_build_product(b, pl_build_tokens(b, xd), a_arg(b, ad), pl_arg_none, now(b, a), 1.0f, false);
    return pl_build_now(b, a);
}

static enum pl_slot bias_slot(enum pl_slot slot) {
    switch (slot) {
    case PL_SLOT_QKV:
        return PL_SLOT_QKV_B;
    case PL_SLOT_O:
        return PL_SLOT_O_B;
    case PL_SLOT_GU:
        return PL_SLOT_GU_B;
    case PL_SLOT_DOWN:
        return PL_SLOT_DOWN_B;
    case PL_SLOT_ROUTER:
        return PL_SLOT_ROUTER_B;
    case PL_SLOT_EXPERT_GU:
        return PL_SLOT_EXPERT_GU_B;
    case PL_SLOT_EXPERT_DOWN:
        return PL_SLOT_EXPERT_DOWN_B;
    default:
        return PL_SLOT_COUNT;
    }
}

static uint32_t bias_of(const struct pl_builder *b, enum pl_slot slot) {
    enum pl_slot s = bias_slot(slot);
    return s == PL_SLOT_COUNT ? PL_NONE : pl_build_weight(b, s);
}

/* Columns of y, x or their gradients: those of a piece of the matrix, unless it has them all. */
static struct pl_operand columns_of(const struct pl_builder *b, struct pl_operand y, uint64_t col,
                                    uint64_t cols) {
    if (b->err != PL_ERR_OK || b->experts || cols == b->p->tensors[y.id].dims[1]) return y;
    y.col = (uint32_t)col;
    y.cols = (uint32_t)cols;
    return y;
}

static struct pl_operand bias_of_piece(const struct pl_builder *b, enum pl_slot slot,
                                       const struct pl_piece *piece) {
    const uint32_t bias = bias_of(b, slot);
    if (bias == PL_NONE) return pl_arg_none;
    const struct pl_val v = pl_build_now(b, bias);
    if (b->experts) {
        const uint64_t own = b->p->tensors[bias].dims[0] / b->m->experts.n;
        return pl_arg_rows(v, b->experts->first * own, b->experts->n * own);
    }
    const bool all = piece->rows == b->p->tensors[bias].dims[0];
    return all ? pl_arg(v) : pl_arg_rows(v, piece->row0, piece->rows);
}

/* The experts of a piece of the matrices of a slot; none where it is no slot of experts. The
 * adapters of experts have the whole layer in one matrix, rows and columns as in any other. */
static struct pl_expert_rows experts_of(const struct pl_builder *b, enum pl_slot slot,
                                        const struct pl_piece *piece) {
    struct pl_slot_shape shape;
    if (!b->experts) return (struct pl_expert_rows){0};
    pl_model_slot(b->m, b->layer, slot, &shape);
    const uint64_t own = shape.rows / shape.experts;
    return (struct pl_expert_rows){.offsets = b->experts->offsets,
                                   .first = (uint32_t)(piece->row0 / own),
                                   .n = (uint32_t)(piece->rows / own),
                                   .turned = shape.turned};
}

/* y (=|+=) x W^T + bias */
static void base_y(struct pl_builder *b, enum pl_slot slot, struct pl_val x, uint32_t y,
                   bool adds) {
    struct pl_piece piece = {0};
    const struct pl_expert_rows *all = b->experts;
    while (pl_build_next_piece(b, slot, PL_PANEL_ROWS, &piece)) {
        const struct pl_expert_rows some = experts_of(b, slot, &piece);
        b->experts = all ? &some : NULL;
        pl_build_product(b, pl_build_tokens(b, x), pl_arg(piece.w), bias_of_piece(b, slot, &piece),
                         columns_of(b, now(b, y), piece.row0, piece.rows), 1.0f, adds);
        b->experts = all;
    }
}

/* y (=|+=) s B a */
static void adapter_y(struct pl_builder *b, const struct pl_adapter_slot *ad, struct pl_val a,
                      uint32_t y, bool adds) {
    const float scale = (float)b->s->lora_scale;
    const uint64_t r = b->s->lora_r;
    if (ad->read_all_b != PL_NONE) {
        pl_build_product(b, pl_build_tokens(b, a), adapter_arg(b, ad->read_all_b, ad->n_parts * r),
                         pl_arg_none, now(b, y), scale, adds);
        return;
    }
    for (uint32_t p = 0; p < ad->n_parts; p++)
        pl_build_product(
            b, pl_build_token_cols(b, a, p * r, r), adapter_arg(b, ad->read_b[p], r), pl_arg_none,
            pl_build_token_cols(b, pl_build_now(b, y), ad->row0[p], ad->rows[p]), scale, adds);
}

/* A product that adds reads y while it computes, which costs nothing where the matrix is large; so
 * the small ones come first where they write all of y. */
struct pl_val pl_build_linear(struct pl_builder *b, enum pl_slot slot, struct pl_val x,
                              uint32_t y) {
    if (b->err != PL_ERR_OK) return PL_NO_VAL;
    const struct pl_adapter_slot *ad = pl_build_adapter(b, slot);
    const bool first = pl_build_adapts_all(b, slot);
    struct pl_val a = PL_NO_VAL;
    if (!first) base_y(b, slot, x, y, false);
    if (ad) a = pl_build_adapter_a(b, slot, x);
    if (ad && b->err == PL_ERR_OK) adapter_y(b, ad, a, y, !first);
    if (first) base_y(b, slot, x, y, true);
    return a;
}

bool pl_build_linear_needs_x(const struct pl_builder *b, enum pl_slot slot) {
    return pl_build_trains(b, pl_build_weight(b, slot)) || pl_build_adapter(b, slot);
}

/* Appends dw (+)= alpha dy^T x with scratch of its own, which goes to *ws; or, if it joins the
 * product before it, with that one's scratch, which *ws is. */
static void product_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x, uint32_t w,
                       float alpha, bool joins, struct pl_operand *ws) {
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = {.alpha = alpha, .joins = joins};
    struct pl_operand g = pl_build_grad(b, w, &attr);
    if (!joins) *ws = pl_build_product_workspace(b, PL_OP_LINEAR_DW, &attr, dy, x, g);
    struct pl_operand in[] = {dy, x, *ws, g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, LINEAR_DW, attr, in, out);
}

void pl_build_product_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x,
                         uint32_t w, float alpha) {
    struct pl_operand ws = pl_arg_none;
    if (b->err == PL_ERR_OK && b->experts)
        pl_build_grouped_dw(b, dy, x, w, alpha);
    else
        product_dw(b, dy, x, w, alpha, false, &ws);
}

void pl_build_product_dx(struct pl_builder *b, struct pl_operand dy, struct pl_operand w,
                         struct pl_operand dx, float alpha, bool add) {
    if (b->err != PL_ERR_OK) return;
    struct pl_attr attr = {.alpha = alpha, .accumulate = add ? PL_ACC_ADD : PL_ACC_WRITE};
    if (b->experts) {
        pl_build_grouped_dx(b, dy, w, dx, alpha, add);
        return;
    }
    struct pl_operand ws = pl_build_product_workspace(b, PL_OP_LINEAR_DX, &attr, dy, w, dx);
    struct pl_operand in[] = {dy, w, ws, add ? dx : pl_arg_none};
    struct pl_operand out[] = {dx};
    PL_EMIT(b, LINEAR_DX, attr, in, out);
}

static void bias_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy) {
    uint32_t bias = bias_of(b, slot);
    if (!pl_build_trains(b, bias)) return;
    if (b->experts) {
        pl_build_grouped_bias_grad(b, dy, bias);
        return;
    }
    struct pl_attr attr = {0};
    struct pl_operand g = pl_build_grad(b, bias, &attr);
    const struct pl_tensor *t = &b->p->tensors[dy.id];
    struct pl_operand ws =
        pl_build_workspace(b, PL_OP_BIAS_GRAD, &attr, dy.nrows ? dy.nrows : t->dims[0], t->dims[1]);
    struct pl_operand in[] = {dy, ws, g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, BIAS_GRAD, attr, in, out);
}

/* The columns of dy that part p of an adapter has. */
static struct pl_operand dy_of_part(const struct pl_linear_bwd *g, const struct pl_adapter_slot *ad,
                                    uint32_t p) {
    struct pl_operand dy = g->dy;
    dy.col = ad->row0[p];
    dy.cols = ad->rows[p];
    return dy;
}

/* The gradient of A's rows, da[N,parts*r]. */
static void rows_bwd(struct pl_builder *b, struct pl_linear_bwd *g) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, g->slot);
    const float scale = (float)b->s->lora_scale;
    const uint64_t r = b->s->lora_r;
    if (!ad || b->err != PL_ERR_OK) return;
    const uint32_t da = pl_build_adapter_rows(b, "d_lora_a_out", ad);
    if (ad->read_all_b != PL_NONE)
        pl_build_product_dx(b, g->dy, adapter_arg(b, ad->read_all_b, ad->n_parts * r), now(b, da),
                            scale, false);
    for (uint32_t p = 0; ad->read_all_b == PL_NONE && p < ad->n_parts; p++)
        pl_build_product_dx(b, dy_of_part(g, ad, p), adapter_arg(b, ad->read_b[p], r),
                            pl_build_token_cols(b, pl_build_now(b, da), p * r, r), scale, false);
    g->da = pl_build_now(b, da);
}

/* True if the gradient of B of a part has the shape of the one before it, and no copy of an input
 * is multiplied: a GPU computes both as one. */
static bool joins_part_before(const struct pl_builder *b, const struct pl_linear_bwd *g,
                              const struct pl_adapter_slot *ad, uint32_t p) {
    return p > 0 && ad->rows[p] == ad->rows[p - 1] && b->p->traits.backend == PL_BACKEND_CUDA &&
           b->err == PL_ERR_OK && b->p->tensors[g->dy.id].dtype == b->p->tensors[g->a.id].dtype;
}

/* The gradients of the B of all parts. */
static void all_b_bwd(struct pl_builder *b, const struct pl_linear_bwd *g,
                      const struct pl_adapter_slot *ad) {
    const float scale = (float)b->s->lora_scale;
    const uint64_t r = b->s->lora_r;
    struct pl_operand ws = pl_arg_none;
    for (uint32_t p = 0; p < ad->n_parts; p++) {
        const struct pl_operand dy = dy_of_part(g, ad, p),
                                a = pl_build_token_cols(b, g->a, p * r, r);
        if (b->experts)
            pl_build_grouped_dw(b, dy, a, ad->b[p], scale);
        else
            product_dw(b, dy, a, ad->b[p], scale, joins_part_before(b, g, ad, p), &ws);
    }
}

/* The gradients of A and B. */
static void matrices_bwd(struct pl_builder *b, const struct pl_linear_bwd *g) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, g->slot);
    if (!ad || b->err != PL_ERR_OK) return;
    all_b_bwd(b, g, ad);
    const struct pl_val x = dropped_input(b, g->slot, g->x);
    pl_build_product_dw(b, pl_build_tokens(b, g->da), pl_build_tokens(b, x), ad->a, 1.0f);
}

/* dx (=|+=) da A */
static void adapter_dx(struct pl_builder *b, enum pl_slot slot, struct pl_val da, uint32_t dx,
                       bool adds) {
    const struct pl_adapter_slot *ad = pl_build_adapter(b, slot);
    pl_build_product_dx(b, pl_build_tokens(b, da), a_arg(b, ad), now(b, dx), 1.0f, adds);
}

/* dx (=|+=) d(da A), d = the dropout mask of the forward pass */
static void dropped_dx(struct pl_builder *b, enum pl_slot slot, struct pl_val da, uint32_t dx,
                       bool adds) {
    uint32_t dropped =
        pl_build_activation(b, "d_dropped", PL_ROWS_TOKENS, b->p->tensors[dx].dims[1]);
    adapter_dx(b, slot, da, dropped, false);
    const struct pl_attr attr = dropout_attr(b, slot, dx);
    const struct pl_operand d = now(b, dropped), of = pl_arg(b->in.offsets),
                            samples = pl_arg(b->in.samples);
    struct pl_operand out[] = {now(b, dx)};
    if (adds) {
        struct pl_operand in[] = {now(b, dx), d, of, samples};
        PL_EMIT(b, DROPOUT_BWD, attr, in, out);
    } else {
        struct pl_operand in[] = {d, of, samples};
        PL_EMIT(b, DROPOUT, attr, in, out);
    }
}

/* Gradients of the matrix itself and of its bias. */
static void weight_bwd(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy,
                       struct pl_val x) {
    const uint32_t w = pl_build_weight(b, slot);
    struct pl_slot_shape shape;
    pl_model_slot(b->m, b->layer, slot, &shape);
    const struct pl_expert_rows *all = b->experts;
    const struct pl_piece whole = {.rows = shape.rows};
    const struct pl_expert_rows each = experts_of(b, slot, &whole);
    b->experts = all ? &each : NULL;
    if (pl_build_trains(b, w)) pl_build_product_dw(b, dy, pl_build_tokens(b, x), w, 1.0f);
    bias_bwd(b, slot, dy);
    b->experts = all;
}

/* dx (=|+=) dy W */
static void base_dx(struct pl_builder *b, enum pl_slot slot, struct pl_operand dy, uint32_t dx,
                    bool adds) {
    struct pl_piece piece = {0};
    const struct pl_expert_rows *all = b->experts;
    while (pl_build_next_piece(b, slot, PL_PANEL_COLS, &piece)) {
        const struct pl_expert_rows some = experts_of(b, slot, &piece);
        b->experts = all ? &some : NULL;
        pl_build_product_dx(b, columns_of(b, dy, piece.row0, piece.rows), pl_arg(piece.w),
                            columns_of(b, now(b, dx), piece.col0, piece.cols), 1.0f,
                            adds || (!all && piece.row0 > 0));
        b->experts = all;
    }
}

static void input_bwd(struct pl_builder *b, const struct pl_linear_bwd *g) {
    if (g->dx == PL_NONE || b->err != PL_ERR_OK) return;
    const bool adapts = g->da.id != PL_NONE;
    const bool first = adapts && !b->experts; /* as in pl_build_linear() */
    if (!first) base_dx(b, g->slot, g->dy, g->dx, g->adds);
    if (adapts && b->drops)
        dropped_dx(b, g->slot, g->da, g->dx, g->adds || !first);
    else if (adapts)
        adapter_dx(b, g->slot, g->da, g->dx, g->adds || !first);
    if (first) base_dx(b, g->slot, g->dy, g->dx, true);
}

static void weights_bwd(struct pl_builder *b, const struct pl_linear_bwd *g) {
    weight_bwd(b, g->slot, g->dy, g->x);
    matrices_bwd(b, g);
}

void pl_build_linear_bwd(struct pl_builder *b, struct pl_linear_bwd *g) {
    if (b->err != PL_ERR_OK) return;
    rows_bwd(b, g);
    weights_bwd(b, g);
    input_bwd(b, g);
}

void pl_build_linear_dx(struct pl_builder *b, struct pl_linear_bwd *g) {
    if (b->err != PL_ERR_OK) return;
    rows_bwd(b, g);
    input_bwd(b, g);
}

void pl_build_linear_dw(struct pl_builder *b, const struct pl_linear_bwd *g) {
    if (b->err == PL_ERR_OK) weights_bwd(b, g);
}
