/* sink_bwd.c - SINK_BWD: the gradient of the sinks of attention.
 *
 * A sink takes p = exp(sink - lse) of a query, and its value is zero: of the softmax's Jacobian
 * ds = p (dp - sum p dp) only -p sum p dp is left, and that sum is do . o. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/chunk.h"

struct sinks {
    struct pl_view o, go, lse, sinks, dsinks; /* [N,H*D], [N,H*D], [N,H], [H], [H] */
    double *partial;                          /* [chunks,H] */
    uint64_t heads, dim;
};

static float number(const struct pl_view *v, uint64_t i) {
    float x = 0;
    pl_widen(&x, pl_vector_at(v, i), v->dtype, 1);
    return x;
}

static double dot_of_head(const struct sinks *s, uint64_t row, uint64_t head) {
    float bx[PL_CHUNK], by[PL_CHUNK];
    double dot = 0;
    for (uint64_t c = 0, n; c < s->dim; c += n) {
        n = pl_chunk_size(s->dim, c);
        dot += pl_dot(pl_chunk(&s->o, row, head * s->dim + c, n, bx),
                      pl_chunk(&s->go, row, head * s->dim + c, n, by), n);
    }
    return dot;
}

static void add_chunks(void *arg, uint64_t chunk0, uint64_t chunk1, uint32_t worker) {
    const struct sinks *s = arg;
    (void)worker;
    for (uint64_t i = chunk0; i < chunk1; i++) {
        const uint64_t end = pl_u64_min((i + 1) * PL_PARTIAL_ROWS, s->o.rows);
        for (uint64_t h = 0; h < s->heads; h++) {
            const float sink = number(&s->sinks, h);
            double sum = 0;
            for (uint64_t row = i * PL_PARTIAL_ROWS; row < end; row++) {
                const float lse = *(const float *)pl_at(&s->lse, row, h);
                sum += (double)pl_expf(sink - lse) * dot_of_head(s, row, h);
            }
            s->partial[i * s->heads + h] = sum;
        }
    }
}

/* in: o[N,H*D] do[N,H*D] lse[N,H]f32 sinks[H] ws dsinks[H]!; out: dsinks[H]!. */
pl_err PL_CPU(sink_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_SINK_BWD_WS];
    struct sinks s = {.o = c->in[PL_SINK_BWD_O],
                      .go = c->in[PL_SINK_BWD_DO],
                      .lse = c->in[PL_SINK_BWD_LSE],
                      .sinks = c->in[PL_SINK_BWD_SINKS],
                      .dsinks = c->out[PL_SINK_BWD_OUT_DSINKS],
                      .partial = ws->p,
                      .heads = c->attr->heads,
                      .dim = c->attr->head_dim};
    const uint64_t chunks = pl_u64_div_up(s.o.rows, PL_PARTIAL_ROWS);
    if (!pl_ws_holds(
            ws, pl_op_workspace_bytes(&dev->traits, PL_OP_SINK_BWD, c->attr, s.o.rows, s.o.cols)) ||
        s.o.cols != s.heads * s.dim || s.go.rows != s.o.rows || s.go.cols != s.o.cols ||
        s.lse.rows != s.o.rows || s.lse.cols != s.heads || s.sinks.rows != s.heads ||
        s.dsinks.rows != s.heads)
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, chunks, 1, add_chunks, &s);
    for (uint64_t h = 0; h < s.heads; h++) {
        double sum = pl_call_adds(c) ? (double)number(&s.dsinks, h) : 0.0;
        for (uint64_t i = 0; i < chunks; i++)
            sum -= s.partial[i * s.heads + h];
        const float rounded = (float)sum;
        pl_narrow(pl_vector_at(&s.dsinks, h), s.dsinks.dtype, &rounded, 1);
    }
    return PL_ERR_OK;
}
