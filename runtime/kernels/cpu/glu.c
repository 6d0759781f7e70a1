/* glu.c - SWIGLU, GEGLU and GELU_MUL: m = act(gate) * up, and their gradients over the operands
 * (Shazeer, "GLU variants improve transformer", 2020). All are act(g) = g s with s = 1/(1 + e^-z):
 * z = g of SiLU, and z = 2 k (g + c g^3) of GELU as tanh approximates it, because (1 + tanh(z/2))/2
 * is s (Hendrycks and Gimpel, "Gaussian error linear units", 2016). */
#include "runtime/kernels/cpu/chunk.h"
#include "runtime/kernels/cpu/exponentials.h"

struct glu {
    struct pl_view gate, up, m; /* [N,F]; m is its gradient on the way back */
    struct pl_view du;          /* the gradient of up, over it or apart; may be absent */
    struct pl_view again;       /* m once more, on the way back, over its gradient or apart; too */
};

#define GELU_2K 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_C  0.044715f

static inline float silu_z(float g) {
    return g;
}
static inline float gelu_z(float g) {
    return GELU_2K * (g + GELU_C * g * g * g);
}

/* d act / d g, of s and gs = g s: s + g s (1 - s) dz/dg. */
static inline float silu_slope(float g, float s, float gs) {
    (void)g;
    return s + gs - gs * s;
}
static inline float gelu_slope(float g, float s, float gs) {
    return s + (gs - gs * s) * (GELU_2K * (1.0f + 3.0f * GELU_C * g * g));
}

/* The passes are inlined where z and slope are known, so that each loop is vectorised for one
 * activation. */
#define INLINED static inline __attribute__((always_inline))

/* Asks for what follows columns [c, c + n), in the row or at the start of the next one. A chunk is
 * too short for a processor to read ahead, and the exponentials are so much arithmetic that it
 * would begin the next chunk no earlier than this one ends. */
static inline void ask_beyond(const struct glu *t, uint64_t row, uint64_t c, uint64_t n) {
    const struct pl_view *read[] = {&t->gate, &t->up, &t->m};
    for (size_t k = 0; k < sizeof read / sizeof *read; k++) {
        const struct pl_view *v = read[k];
        const uint64_t next = c + n == v->cols ? v->ld : c + n, size = pl_float_bytes(v->dtype);
        pl_ask_for((uintptr_t)pl_at(v, row, 0) + next * size, n * size);
    }
}

/* e[i] = e^-z(g[i]), n <= PL_CHUNK. */
INLINED void exponentials(const float *restrict g, float *restrict e, uint64_t n,
                          float (*z)(float)) {
    for (uint64_t i = 0; i < n; i++)
        e[i] = -z(g[i]);
    pl_exp_all(e, n);
}

INLINED void forward_rows(const struct glu *t, uint64_t row0, uint64_t row1, float (*z)(float)) {
    float bg[PL_CHUNK], bu[PL_CHUNK], bm[PL_CHUNK], e[PL_CHUNK];
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pl_chunk_size(t->m.cols, c);
            const float *restrict g = pl_chunk(&t->gate, row, c, n, bg);
            const float *restrict u = pl_chunk(&t->up, row, c, n, bu);
            float *restrict m = pl_chunk_out(&t->m, row, c, bm);
            ask_beyond(t, row, c, n);
            exponentials(g, e, n, z);
            for (uint64_t i = 0; i < n; i++)
                m[i] = g[i] * (1.0f / (1.0f + e[i])) * u[i];
            pl_chunk_store(&t->m, row, c, n, m);
        }
    }
}

/* d up = dm act, d gate = dm up slope. m has the bits of the forward pass. */
INLINED void backward_rows(const struct glu *t, uint64_t row0, uint64_t row1, float (*z)(float),
                           float (*slope)(float, float, float)) {
    float bg[PL_CHUNK], bu[PL_CHUNK], bm[PL_CHUNK], dg[PL_CHUNK], du[PL_CHUNK], m[PL_CHUNK];
    float e[PL_CHUNK];
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pl_chunk_size(t->m.cols, c);
            const float *restrict g = pl_chunk(&t->gate, row, c, n, bg);
            const float *restrict u = pl_chunk(&t->up, row, c, n, bu);
            const float *restrict dm = pl_chunk(&t->m, row, c, n, bm);
            ask_beyond(t, row, c, n);
            exponentials(g, e, n, z);
            for (uint64_t i = 0; i < n; i++) {
                const float s = 1.0f / (1.0f + e[i]), gs = g[i] * s;
                m[i] = gs * u[i];
                dg[i] = dm[i] * u[i] * slope(g[i], s, gs);
                du[i] = dm[i] * gs;
            }
            if (t->again.p) pl_narrow(pl_at(&t->again, row, c), t->again.dtype, m, n);
            pl_narrow(pl_at(&t->gate, row, c), t->gate.dtype, dg, n);
            if (t->du.p) pl_narrow(pl_at(&t->du, row, c), t->du.dtype, du, n);
        }
    }
}

static void silu_forward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    (void)worker;
    forward_rows(arg, row0, row1, silu_z);
}
static void gelu_forward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    (void)worker;
    forward_rows(arg, row0, row1, gelu_z);
}
static void silu_backward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    (void)worker;
    backward_rows(arg, row0, row1, silu_z, silu_slope);
}
static void gelu_backward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    (void)worker;
    backward_rows(arg, row0, row1, gelu_z, gelu_slope);
}

static pl_err run(struct pl_device *dev, const struct pl_view *gu, const struct pl_view *m,
                  struct pl_view again, pl_rows_fn fn) {
    struct glu t = {.gate = pl_window(gu, 0, gu->rows, 0, m->cols),
                    .up = pl_window(gu, 0, gu->rows, m->cols, m->cols),
                    .m = *m,
                    .again = again};
    t.du = t.up;
    pl_cpu_rows(dev, m->rows, pl_cpu_grain(m->cols), fn, &t);
    return PL_ERR_OK;
}

/* in: gu[N,2F]; out: m[N,F]. */
pl_err PL_CPU(swiglu)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->in[PL_SWIGLU_GU], &c->out[PL_SWIGLU_OUT_M], (struct pl_view){0},
               silu_forward);
}

/* in: gu[N,2F]; out: m[N,F]. */
pl_err PL_CPU(geglu)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->in[PL_GEGLU_GU], &c->out[PL_GEGLU_OUT_M], (struct pl_view){0},
               gelu_forward);
}

/* in: gu[N,2F]! dm[N,F] m?[N,F]!; out: gu[N,2F]! m?[N,F]. */
pl_err PL_CPU(swiglu_bwd)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->out[PL_SWIGLU_BWD_OUT_GU], &c->in[PL_SWIGLU_BWD_DM],
               c->out[PL_SWIGLU_BWD_OUT_M], silu_backward);
}

/* in: gu[N,2F]! dm[N,F] m?[N,F]!; out: gu[N,2F]! m?[N,F]. */
pl_err PL_CPU(geglu_bwd)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, &c->out[PL_GEGLU_BWD_OUT_GU], &c->in[PL_GEGLU_BWD_DM],
               c->out[PL_GEGLU_BWD_OUT_M], gelu_backward);
}

/* in: g[N,F] u[N,F]; out: m[N,F]. */
pl_err PL_CPU(gelu_mul)(struct pl_device *dev, const struct pl_call *c) {
    struct glu t = {
        .gate = c->in[PL_GELU_MUL_G], .up = c->in[PL_GELU_MUL_U], .m = c->out[PL_GELU_MUL_OUT_M]};
    pl_cpu_rows(dev, t.m.rows, pl_cpu_grain(t.m.cols), gelu_forward, &t);
    return PL_ERR_OK;
}

/* in: g[N,F]! u[N,F] dm[N,F]; out: g[N,F]! du?[N,F]. */
pl_err PL_CPU(gelu_mul_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct glu t = {.gate = c->out[PL_GELU_MUL_BWD_OUT_G],
                    .up = c->in[PL_GELU_MUL_BWD_U],
                    .m = c->in[PL_GELU_MUL_BWD_DM],
                    .du = c->out[PL_GELU_MUL_BWD_OUT_DU]};
    pl_cpu_rows(dev, t.m.rows, pl_cpu_grain(t.m.cols), gelu_backward, &t);
    return PL_ERR_OK;
}
