/* grouped.c - GROUPED_LINEAR, GROUPED_LINEAR_DX, GROUPED_LINEAR_DW: a product for the rows of
 * every expert with the matrix of that expert. */
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/grouped_call.h"

struct grouped {
    struct pl_gemm all; /* a, c: the rows of all experts; b, bias: of the experts of the call */
    struct pl_experts experts;
    const int32_t *offsets; /* of the experts of the call, n + 1 of them */
};

static struct pl_view rows_of(const struct pl_view *v, uint64_t row0, uint64_t rows) {
    return pl_window(v, row0, rows, 0, v->cols);
}

/* The product of expert e of the call. With A transposed the rows are summed over. */
static struct pl_gemm of_expert(const struct grouped *g, uint64_t e) {
    const uint64_t row0 = (uint64_t)g->offsets[e], rows = (uint64_t)g->offsets[e + 1] - row0;
    const uint64_t own = g->experts.rows, n = g->all.c.cols;
    struct pl_gemm one = g->all;
    one.a = rows_of(&g->all.a, row0, rows);
    one.b = g->all.trans_a ? rows_of(&g->all.b, row0, rows) : rows_of(&g->all.b, e * own, own);
    one.c = g->all.trans_a ? rows_of(&g->all.c, e * own, own) : rows_of(&g->all.c, row0, rows);
    if (one.bias.p) {
        one.bias.p = pl_vector_at(&g->all.bias, e * n);
        one.bias.rows = n;
    }
    return one;
}

static pl_err run(struct pl_device *dev, const struct pl_call *c, const struct pl_view *offsets,
                  struct grouped *g) {
    g->all.adds = pl_call_adds(c);
    g->all.alpha = c->attr->alpha;
    g->offsets = (const int32_t *)offsets->p + g->experts.first;
    if (!pl_ends_are_ordered(g->offsets, g->experts.n, g->all.a.rows)) return PL_ERR_PLAN_BROKEN;
    for (uint64_t e = 0; e < g->experts.n; e++) {
        const struct pl_gemm one = of_expert(g, e);
        PL_TRY(PL_LEVEL_NAME(pl_cpu_gemm)(dev, &one));
    }
    return PL_ERR_OK;
}

/* in: x[P,K], W[E*O,K], offsets[E+1]i32, bias?[E*O], ws, y?[P,O]; out: y[P,O]. */
pl_err PL_CPU(grouped_linear)(struct pl_device *dev, const struct pl_call *c) {
    struct grouped g = {.all = {.trans_b = true,
                                .a = c->in[PL_GROUPED_LINEAR_X],
                                .b = c->in[PL_GROUPED_LINEAR_W],
                                .bias = c->in[PL_GROUPED_LINEAR_BIAS],
                                .ws = c->in[PL_GROUPED_LINEAR_WS],
                                .c = c->out[PL_GROUPED_LINEAR_OUT_Y]},
                        .experts = pl_experts_of(c, &c->in[PL_GROUPED_LINEAR_W])};
    if (!pl_grouped_linear_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_OFFSETS], &g);
}

/* in: dy[P,O], W[E*O,K], offsets[E+1]i32, bias?[E*K], ws, dx?[P,K]; out: dx[P,K]. */
pl_err PL_CPU(grouped_linear_dx)(struct pl_device *dev, const struct pl_call *c) {
    struct grouped g = {.all = {.a = c->in[PL_GROUPED_LINEAR_DX_DY],
                                .b = c->in[PL_GROUPED_LINEAR_DX_W],
                                .bias = c->in[PL_GROUPED_LINEAR_DX_BIAS],
                                .ws = c->in[PL_GROUPED_LINEAR_DX_WS],
                                .c = c->out[PL_GROUPED_LINEAR_DX_OUT_DX]},
                        .experts = pl_experts_of(c, &c->in[PL_GROUPED_LINEAR_DX_W])};
    if (!pl_grouped_linear_dx_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_DX_OFFSETS], &g);
}

/* in: dy[P,O], x[P,K], offsets[E+1]i32, ws, dW[E*O,K]; out: dW[E*O,K]. */
pl_err PL_CPU(grouped_linear_dw)(struct pl_device *dev, const struct pl_call *c) {
    struct grouped g = {.all = {.trans_a = true,
                                .a = c->in[PL_GROUPED_LINEAR_DW_DY],
                                .b = c->in[PL_GROUPED_LINEAR_DW_X],
                                .ws = c->in[PL_GROUPED_LINEAR_DW_WS],
                                .c = c->out[PL_GROUPED_LINEAR_DW_OUT_DW]},
                        .experts = pl_experts_of(c, &c->out[PL_GROUPED_LINEAR_DW_OUT_DW])};
    if (!pl_grouped_linear_dw_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return run(dev, c, &c->in[PL_GROUPED_LINEAR_DW_OFFSETS], &g);
}
