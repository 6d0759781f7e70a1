/* swiglu.c - SWIGLU: m = silu(gate) * up, and its gradient over the operands (Shazeer, "GLU
 * variants improve transformer", 2020). silu(g) = g s with s = 1/(1 + e^-g). */
#include "runtime/kernels/cpu/chunk.h"

struct swiglu {
    struct pl_view gate, up, m; /* [N,F]; m is its gradient on the way back */
};

static float sigmoid(float g) {
    return 1.0f / (1.0f + pl_expf(-g));
}

static void forward_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct swiglu *t = arg;
    float bg[PL_CHUNK], bu[PL_CHUNK], bm[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pl_chunk_size(t->m.cols, c);
            const float *restrict g = pl_chunk(&t->gate, row, c, n, bg);
            const float *restrict u = pl_chunk(&t->up, row, c, n, bu);
            float *restrict m = pl_chunk_out(&t->m, row, c, bm);
            for (uint64_t i = 0; i < n; i++)
                m[i] = g[i] * sigmoid(g[i]) * u[i];
            pl_chunk_store(&t->m, row, c, n, m);
        }
    }
}

/* With s = sigmoid(g): d up = dm g s, d gate = dm up s (1 + g (1 - s)). */
static void backward_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct swiglu *t = arg;
    float bg[PL_CHUNK], bu[PL_CHUNK], bm[PL_CHUNK], dg[PL_CHUNK], du[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pl_chunk_size(t->m.cols, c);
            const float *restrict g = pl_chunk(&t->gate, row, c, n, bg);
            const float *restrict u = pl_chunk(&t->up, row, c, n, bu);
            const float *restrict dm = pl_chunk(&t->m, row, c, n, bm);
            for (uint64_t i = 0; i < n; i++) {
                const float s = sigmoid(g[i]), gs = g[i] * s;
                dg[i] = dm[i] * u[i] * (s + gs - gs * s);
                du[i] = dm[i] * gs;
            }
            pl_narrow(pl_at(&t->gate, row, c), t->gate.dtype, dg, n);
            pl_narrow(pl_at(&t->up, row, c), t->up.dtype, du, n);
        }
    }
}

static pl_err run(struct pl_device *dev, const struct pl_view *gu, const struct pl_view *m,
                  pl_rows_fn fn) {
    struct swiglu t = {.gate = pl_window(gu, 0, gu->rows, 0, m->cols),
                       .up = pl_window(gu, 0, gu->rows, m->cols, m->cols),
                       .m = *m};
    pl_cpu_rows(dev, m->rows, pl_cpu_grain(m->cols), fn, &t);
    return PL_ERR_OK;
}

/* in: gu[N,2F]; out: m[N,F]. */
pl_err PL_CPU(swiglu)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->in[PL_SWIGLU_GU], &c->out[PL_SWIGLU_OUT_M], forward_rows);
}

/* in: gu[N,2F]! dm[N,F]; out: gu[N,2F]!. */
pl_err PL_CPU(swiglu_bwd)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->out[PL_SWIGLU_BWD_OUT_GU], &c->in[PL_SWIGLU_BWD_DM], backward_rows);
}
