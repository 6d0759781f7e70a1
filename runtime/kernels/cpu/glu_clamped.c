/* glu_clamped.c - SWIGLU_CLAMPED: m = (up + 1) gate s with s = sigmoid(alpha gate), gate and up
 * being every second column and bounded (gpt-oss, arXiv 2508.10925), and its gradient over the
 * operand. A value at its bound still has a gradient, as in torch.clamp. */
#include "runtime/kernels/cpu/chunk.h"

#define PAIRS (PL_CHUNK / 2) /* of a chunk of gu */

struct clamped {
    struct pl_view gu, m; /* [P,2F], [P,F]; m is its gradient on the way back */
    struct pl_view again; /* m once more, then, over its gradient or apart; may be absent */
    float limit, alpha;
};

static inline float sigmoid(float z) {
    return 1.0f / (1.0f + pl_expf(-z));
}

/* Both keep a NaN. */
static inline float at_most(float x, float limit) {
    return x > limit ? limit : x;
}
static inline float at_least(float x, float limit) {
    return x < limit ? limit : x;
}

static inline uint64_t pairs_from(const struct clamped *t, uint64_t col) {
    return t->m.cols - col < PAIRS ? t->m.cols - col : PAIRS;
}

static void forward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct clamped *t = arg;
    float bg[PL_CHUNK], bm[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pairs_from(t, c);
            const float *restrict gu = pl_chunk(&t->gu, row, 2 * c, 2 * n, bg);
            float *restrict m = pl_chunk_out(&t->m, row, c, bm);
            for (uint64_t i = 0; i < n; i++) {
                const float g = at_most(gu[2 * i], t->limit);
                const float u = at_least(at_most(gu[2 * i + 1], t->limit), -t->limit);
                m[i] = (u + 1.0f) * g * sigmoid(t->alpha * g);
            }
            pl_chunk_store(&t->m, row, c, n, m);
        }
    }
}

static void backward(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct clamped *t = arg;
    float bg[PL_CHUNK], bm[PL_CHUNK], d[PL_CHUNK], m[PAIRS];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++) {
        for (uint64_t c = 0, n; c < t->m.cols; c += n) {
            n = pairs_from(t, c);
            const float *restrict gu = pl_chunk(&t->gu, row, 2 * c, 2 * n, bg);
            const float *restrict dm = pl_chunk(&t->m, row, c, n, bm);
            for (uint64_t i = 0; i < n; i++) {
                const float g = at_most(gu[2 * i], t->limit);
                const float u = at_least(at_most(gu[2 * i + 1], t->limit), -t->limit);
                const float s = sigmoid(t->alpha * g), gs = g * s;
                m[i] = (u + 1.0f) * g * s;
                const float slope = s + t->alpha * (gs - gs * s);
                d[2 * i] = gu[2 * i] > t->limit ? 0.0f : dm[i] * (u + 1.0f) * slope;
                d[2 * i + 1] = fabsf(gu[2 * i + 1]) > t->limit ? 0.0f : dm[i] * gs;
            }
            if (t->again.p) pl_narrow(pl_at(&t->again, row, c), t->again.dtype, m, n);
            pl_narrow(pl_at(&t->gu, row, 2 * c), t->gu.dtype, d, 2 * n);
        }
    }
}

static pl_err run(struct pl_device *dev, const struct pl_attr *attr, const struct pl_view *gu,
                  const struct pl_view *m, struct pl_view again, pl_rows_fn fn) {
    struct clamped t = {
        .gu = *gu, .m = *m, .again = again, .limit = attr->limit, .alpha = attr->alpha};
    pl_cpu_rows(dev, m->rows, pl_cpu_grain(m->cols), fn, &t);
    return PL_ERR_OK;
}

/* in: gu[P,2F]; out: m[P,F]. */
pl_err PL_CPU(swiglu_clamped)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, c->attr, &c->in[PL_SWIGLU_CLAMPED_GU], &c->out[PL_SWIGLU_CLAMPED_OUT_M],
               (struct pl_view){0}, forward);
}

/* in: gu[P,2F]! dm[P,F] m?[P,F]!; out: gu[P,2F]! m?[P,F]. */
pl_err PL_CPU(swiglu_clamped_bwd)(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, c->attr, &c->out[PL_SWIGLU_CLAMPED_BWD_OUT_GU],
               &c->in[PL_SWIGLU_CLAMPED_BWD_DM], c->out[PL_SWIGLU_CLAMPED_BWD_OUT_M], backward);
}
