/* linear.c - LINEAR, LINEAR_DX, LINEAR_DW: which operand of a product is which. */
#include "runtime/kernels/cpu/gemm.h"

/* in: x[N,K], W[O,K], bias?[O], ws?, y?[N,O]; out: y[N,O]. */
pl_err PL_CPU(linear)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_gemm g = {.trans_b = true,
                              .adds = pl_call_adds(c),
                              .alpha = c->attr->alpha,
                              .a = c->in[PL_LINEAR_X],
                              .b = c->in[PL_LINEAR_W],
                              .bias = c->in[PL_LINEAR_BIAS],
                              .ws = c->in[PL_LINEAR_WS],
                              .c = c->out[PL_LINEAR_OUT_Y]};
    return PL_LEVEL_NAME(pl_cpu_gemm)(dev, &g);
}

/* in: dy[N,O], W[O,K], ws?, dx?[N,K]; out: dx[N,K]. */
pl_err PL_CPU(linear_dx)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_gemm g = {.adds = pl_call_adds(c),
                              .alpha = c->attr->alpha,
                              .a = c->in[PL_LINEAR_DX_DY],
                              .b = c->in[PL_LINEAR_DX_W],
                              .ws = c->in[PL_LINEAR_DX_WS],
                              .c = c->out[PL_LINEAR_DX_OUT_DX]};
    return PL_LEVEL_NAME(pl_cpu_gemm)(dev, &g);
}

/* in: dy[N,O], x[N,K], ws?, dW[O,K]; out: dW[O,K]. No rows give a zero gradient. */
pl_err PL_CPU(linear_dw)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_gemm g = {.trans_a = true,
                              .adds = pl_call_adds(c),
                              .alpha = c->attr->alpha,
                              .a = c->in[PL_LINEAR_DW_DY],
                              .b = c->in[PL_LINEAR_DW_X],
                              .ws = c->in[PL_LINEAR_DW_WS],
                              .c = c->out[PL_LINEAR_DW_OUT_DW]};
    return PL_LEVEL_NAME(pl_cpu_gemm)(dev, &g);
}
