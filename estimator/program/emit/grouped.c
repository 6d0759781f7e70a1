/* grouped.c - products of a mixture of experts, and what their routers have in common.
 *
 * Every expert multiplies the rows that are its own, of rows that are sorted by expert. Files hold
 * the matrix of an expert as [out, in], or turned, as [in, out]; the product of one is the
 * gradient's product of the other, so both are computed from the matrices as they are. */
#include "estimator/program/emit/exchange.h"

static struct pl_attr grouped_attr(const struct pl_builder *b, uint64_t rows, float alpha,
                                   bool add) {
    return (struct pl_attr){.alpha = alpha,
                            .accumulate = add ? PL_ACC_ADD : PL_ACC_WRITE,
                            .first_expert = b->experts->first,
                            .expert_rows = (uint32_t)(rows / b->experts->n)};
}

static uint64_t rows_of(const struct pl_builder *b, const struct pl_operand *o) {
    return o->nrows ? o->nrows : b->p->tensors[o->id].dims[0];
}

/* y (=|+=) alpha x W_e^T + bias_e */
static void straight(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                     struct pl_operand bias, struct pl_operand y, float alpha, bool add) {
    struct pl_attr attr = grouped_attr(b, rows_of(b, &w), alpha, add);
    struct pl_operand ws = pl_build_product_workspace(b, PL_OP_GROUPED_LINEAR, &attr, x, w, y);
    struct pl_operand in[] = {x, w, pl_arg(b->experts->offsets), bias, ws, add ? y : pl_arg_none};
    struct pl_operand out[] = {y};
    PL_EMIT(b, GROUPED_LINEAR, attr, in, out);
}

/* y (=|+=) alpha x W_e + bias_e */
static void turned(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                   struct pl_operand bias, struct pl_operand y, float alpha, bool add) {
    struct pl_attr attr = grouped_attr(b, rows_of(b, &w), alpha, add);
    struct pl_operand ws = pl_build_product_workspace(b, PL_OP_GROUPED_LINEAR_DX, &attr, x, w, y);
    struct pl_operand in[] = {x, w, pl_arg(b->experts->offsets), bias, ws, add ? y : pl_arg_none};
    struct pl_operand out[] = {y};
    PL_EMIT(b, GROUPED_LINEAR_DX, attr, in, out);
}

void pl_build_grouped(struct pl_builder *b, struct pl_operand x, struct pl_operand w,
                      struct pl_operand bias, struct pl_operand y, float alpha, bool add) {
    (b->experts->turned ? turned : straight)(b, x, w, bias, y, alpha, add);
}

void pl_build_grouped_dx(struct pl_builder *b, struct pl_operand dy, struct pl_operand w,
                         struct pl_operand dx, float alpha, bool add) {
    (b->experts->turned ? straight : turned)(b, dy, w, pl_arg_none, dx, alpha, add);
}

void pl_build_grouped_dw(struct pl_builder *b, struct pl_operand dy, struct pl_operand x,
                         uint32_t w, float alpha) {
    struct pl_attr attr = grouped_attr(b, b->p->tensors[w].dims[0], alpha, false);
    struct pl_operand g = pl_build_grad(b, w, &attr);
    const bool swaps = b->experts->turned;
    const struct pl_operand left = swaps ? x : dy, right = swaps ? dy : x;
    struct pl_operand ws =
        pl_build_product_workspace(b, PL_OP_GROUPED_LINEAR_DW, &attr, left, right, g);
    struct pl_operand in[] = {left, right, pl_arg(b->experts->offsets), ws, g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, GROUPED_LINEAR_DW, attr, in, out);
}

void pl_build_grouped_bias_grad(struct pl_builder *b, struct pl_operand dy, uint32_t bias) {
    struct pl_attr attr = grouped_attr(b, b->p->tensors[bias].dims[0], 0, false);
    struct pl_operand g = pl_build_grad(b, bias, &attr);
    struct pl_operand in[] = {dy, pl_arg(b->experts->offsets), g};
    struct pl_operand out[] = {g};
    PL_EMIT(b, GROUPED_BIAS_GRAD, attr, in, out);
}

/* --- routers --------------------------------------------------------------------------------- */

/* Attributes of a router, and where its stats count those of the auxiliary loss, too. */
struct pl_attr pl_build_route_attr(const struct pl_builder *b, bool counts) {
    struct pl_attr attr = {.softmax_first = b->m->experts.softmax_first,
                           .normalise = b->m->experts.normalise};
    if (!counts) return attr;
    attr.aux_coef = (float)b->m->experts.aux_coefficient;
    for (uint64_t i = 0; i < b->m->layers; i++)
        attr.aux_layers += b->m->layer[i].kind == PL_LAYER_EXPERTS;
    return attr;
}

/* The auxiliary loss is that of all routers of a micro-batch (Switch Transformers, arXiv
 * 2101.03961, equation 4), so its gradient can begin once the last of them has counted. */
void pl_build_begin_routing(struct pl_builder *b) {
    if (!(b->m->kinds >> PL_LAYER_EXPERTS & 1) || b->m->experts.aux_coefficient == 0) return;
    b->route_stats = pl_build_step(b, "router_stats", PL_ROWS_FIXED, 2 * b->m->experts.n, 1,
                                   PL_DTYPE_F64, PL_CATEGORY_ACTIVATIONS);
}

void pl_build_end_routing(struct pl_builder *b) {
    if (b->route_stats == PL_NONE || b->err != PL_ERR_OK) return;
    const struct pl_operand loss = pl_build_loss(b);
    struct pl_operand in[] = {pl_arg(pl_build_now(b, b->route_stats)), loss}, out[] = {loss};
    PL_EMIT(b, AUX_LOSS, pl_build_route_attr(b, true), in, out);
}
