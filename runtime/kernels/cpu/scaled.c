/* scaled.c - ADD_SCALE and SOFTCAP: one pass over rows in place. */
#include "runtime/kernels/cpu/chunk.h"

struct sum {
    struct pl_view x, r; /* [N,C]; r absent = nothing is added */
    float factor;
};

static void add_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct sum *t = arg;
    float bx[PL_CHUNK], br[PL_CHUNK], by[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++)
        for (uint64_t c = 0, n; c < t->x.cols; c += n) {
            n = pl_chunk_size(t->x.cols, c);
            const float *x = pl_chunk(&t->x, row, c, n, bx);
            const float *r = t->r.p ? pl_chunk(&t->r, row, c, n, br) : NULL;
            float *y = pl_chunk_out(&t->x, row, c, by);
            for (uint64_t i = 0; i < n; i++)
                y[i] = (r ? PL_FENCE(x[i] + r[i]) : x[i]) * t->factor;
            pl_chunk_store(&t->x, row, c, n, y);
        }
}

/* in: x[N,C]! r?[N,C] s?[1]; out: x[N,C]!. */
pl_err PL_CPU(add_scale)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *s = &c->in[PL_ADD_SCALE_S];
    struct sum t = {.x = c->out[PL_ADD_SCALE_OUT_X], .r = c->in[PL_ADD_SCALE_R], .factor = 1};
    if (s->p) pl_widen(&t.factor, s->p, s->dtype, 1);
    t.factor *= c->attr->alpha;
    pl_cpu_rows(dev, t.x.rows, pl_cpu_grain(t.x.cols), add_rows, &t);
    return PL_ERR_OK;
}

struct cap {
    struct pl_view z; /* [T,V] */
    float limit;
};

/* tanh(y) = (1 - t) / (1 + t), t = e^(-2 |y|), with the sign of y. */
static void cap_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct cap *t = arg;
    const float scale = -2.0f / t->limit;
    float bz[PL_CHUNK], by[PL_CHUNK];
    (void)worker;
    for (uint64_t row = row0; row < row1; row++)
        for (uint64_t c = 0, n; c < t->z.cols; c += n) {
            n = pl_chunk_size(t->z.cols, c);
            const float *z = pl_chunk(&t->z, row, c, n, bz);
            float *y = pl_chunk_out(&t->z, row, c, by);
            for (uint64_t i = 0; i < n; i++) {
                const float e = pl_expf(scale * fabsf(z[i]));
                y[i] = copysignf(t->limit * ((1.0f - e) / (1.0f + e)), z[i]);
            }
            pl_chunk_store(&t->z, row, c, n, y);
        }
}

/* in: z[T,V]!; out: z[T,V]!. */
pl_err PL_CPU(softcap)(struct pl_device *dev, const struct pl_call *c) {
    struct cap t = {.z = c->out[PL_SOFTCAP_OUT_Z], .limit = c->attr->limit};
    pl_cpu_rows(dev, t.z.rows, pl_cpu_grain(t.z.cols), cap_rows, &t);
    return PL_ERR_OK;
}
