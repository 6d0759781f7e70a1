/* experts.c - rows on their way to their experts and back: EXPERT_ORDER sorts the assignments of
 * tokens to experts, DISPATCH copies a token to every row of its experts, COMBINE adds up what they
 * made of it; and the gradients of both.
 *
 * A sum over the experts of a token is made in the order of its list, in fp32, and rounded once. */
#include "runtime/kernels/cpu/chunk.h"

/* ---- EXPERT_ORDER: a stable sort by counting ---- */

static void count(const struct pl_view *expert, uint64_t n, int32_t *offsets) {
    memset(offsets, 0, (n + 1) * sizeof *offsets);
    for (uint64_t t = 0; t < expert->rows; t++) {
        const int32_t *row = pl_at(expert, t, 0);
        for (uint64_t j = 0; j < expert->cols; j++)
            offsets[row[j] + 1]++;
    }
    for (uint64_t e = 0; e < n; e++)
        offsets[e + 1] += offsets[e];
}

/* in: expert[N,k]i32; out: offsets[E+1]i32, order[P]i32, place[P]i32. */
pl_err PL_CPU(expert_order)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *expert = &c->in[PL_EXPERT_ORDER_EXPERT];
    const struct pl_view *ends = &c->out[PL_EXPERT_ORDER_OUT_OFFSETS];
    int32_t *offsets = ends->p, *order = c->out[PL_EXPERT_ORDER_OUT_ORDER].p;
    int32_t *place = c->out[PL_EXPERT_ORDER_OUT_PLACE].p, next[PL_ROUTE_MAX_EXPERTS];
    const uint64_t n = ends->rows - 1, k = expert->cols, assignments = expert->rows * k;
    (void)dev;
    if (ends->rows == 0 || n > PL_ROUTE_MAX_EXPERTS || assignments > INT32_MAX ||
        c->out[PL_EXPERT_ORDER_OUT_ORDER].rows != assignments ||
        c->out[PL_EXPERT_ORDER_OUT_PLACE].rows != assignments || !pl_indices_below(expert, n))
        return PL_ERR_PLAN_BROKEN;
    count(expert, n, offsets);
    memcpy(next, offsets, n * sizeof *next);
    for (uint64_t t = 0; t < expert->rows; t++) {
        const int32_t *row = pl_at(expert, t, 0);
        for (uint64_t j = 0; j < k; j++) {
            const int32_t at = next[row[j]]++;
            order[at] = (int32_t)(t * k + j);
            place[t * k + j] = at;
        }
    }
    return PL_ERR_OK;
}

/* ---- DISPATCH, COMBINE ---- */

struct experts {
    struct pl_view token, routed, weight, dweight; /* [N,C], [P,C], [N,k], [N,k] */
    const int32_t *index;                          /* [P]: order or place */
    uint64_t k;
    bool adds;
};

/* False if the shapes of a call do not fit, or an index would lead outside of them. */
static bool init(struct experts *x, const struct pl_view *token, const struct pl_view *routed,
                 const struct pl_view *index) {
    *x = (struct experts){.token = *token, .routed = *routed, .index = index->p};
    x->k = token->rows ? routed->rows / token->rows : 0;
    return index->rows == routed->rows && x->k * token->rows == routed->rows &&
           token->cols == routed->cols && pl_indices_below(index, routed->rows);
}

static void dispatch(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct experts *x = arg;
    float buf[PL_CHUNK];
    (void)worker;
    for (uint64_t r = row0; r < row1; r++) {
        const uint64_t t = (uint64_t)x->index[r] / x->k;
        for (uint64_t c = 0, n; c < x->token.cols; c += n) {
            n = pl_chunk_size(x->token.cols, c);
            const float *from = pl_chunk(&x->token, t, c, n, buf);
            pl_narrow(pl_at(&x->routed, r, c), x->routed.dtype, from, n);
        }
    }
}

static void copy(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct experts *x = arg;
    (void)worker;
    for (uint64_t r = row0; r < row1; r++)
        memcpy(pl_at(&x->routed, r, 0), pl_at(&x->token, (uint64_t)x->index[r] / x->k, 0),
               x->token.cols * pl_float_bytes(x->token.dtype));
}

/* in: x[N,C], order[P]i32; out: xr[P,C]. */
pl_err PL_CPU(dispatch)(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->in[PL_DISPATCH_X], &c->out[PL_DISPATCH_OUT_XR], &c->in[PL_DISPATCH_ORDER]))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, x.routed.rows, pl_cpu_grain(x.routed.cols),
                x.token.dtype == x.routed.dtype ? copy : dispatch, &x);
    return PL_ERR_OK;
}

/* Columns [c, c + n) of the rows of a token's experts, summed with their weights, if there are
 * any, in the order of its list. */
static void sum_experts(const struct experts *x, uint64_t t, uint64_t c, uint64_t n,
                        float *restrict sum) {
    float buf[PL_CHUNK];
    const float *weight = x->weight.p ? pl_at(&x->weight, t, 0) : NULL;
    memset(sum, 0, n * sizeof *sum);
    for (uint64_t j = 0; j < x->k; j++) {
        const uint64_t row = (uint64_t)x->index[t * x->k + j];
        const float *restrict from = pl_chunk(&x->routed, row, c, n, buf);
        const float w = weight ? weight[j] : 1.0f;
        for (uint64_t i = 0; i < n; i++)
            sum[i] += w * from[i];
    }
}

static void combine(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct experts *x = arg;
    float sum[PL_CHUNK], buf[PL_CHUNK];
    (void)worker;
    for (uint64_t t = row0; t < row1; t++) {
        for (uint64_t c = 0, n; c < x->token.cols; c += n) {
            n = pl_chunk_size(x->token.cols, c);
            sum_experts(x, t, c, n, sum);
            const float *before = x->adds ? pl_chunk(&x->token, t, c, n, buf) : NULL;
            for (uint64_t i = 0; before && i < n; i++)
                sum[i] += before[i];
            pl_narrow(pl_at(&x->token, t, c), x->token.dtype, sum, n);
        }
    }
}

/* in: dxr[P,C], place[P]i32, dx?; out: dx[N,C]. */
pl_err PL_CPU(dispatch_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->out[PL_DISPATCH_BWD_OUT_DX], &c->in[PL_DISPATCH_BWD_DXR],
              &c->in[PL_DISPATCH_BWD_PLACE]))
        return PL_ERR_PLAN_BROKEN;
    x.adds = pl_call_adds(c);
    pl_cpu_rows(dev, x.token.rows, pl_cpu_grain(x.token.cols * (x.k + 1)), combine, &x);
    return PL_ERR_OK;
}

static bool takes_weights(const struct experts *x, const struct pl_view *weight) {
    return weight->rows == x->token.rows && (weight->rows == 0 || weight->cols == x->k);
}

/* in: yr[P,C], weight[N,k]f32, place[P]i32; out: y[N,C]. */
pl_err PL_CPU(combine)(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->out[PL_COMBINE_OUT_Y], &c->in[PL_COMBINE_YR], &c->in[PL_COMBINE_PLACE]) ||
        !takes_weights(&x, &c->in[PL_COMBINE_WEIGHT]))
        return PL_ERR_PLAN_BROKEN;
    x.weight = c->in[PL_COMBINE_WEIGHT];
    pl_cpu_rows(dev, x.token.rows, pl_cpu_grain(x.token.cols * (x.k + 1)), combine, &x);
    return PL_ERR_OK;
}

/* Replaces columns [c, c + n) of a routed row by w times those of dy; returns what both had as a
 * dot product. */
static double turn(const struct experts *x, uint64_t row, uint64_t c, uint64_t n, float w,
                   const float *restrict dy) {
    float buf[PL_CHUNK];
    const float *y = pl_chunk(&x->routed, row, c, n, buf);
    const double dot = pl_dot(dy, y, n);
    float *restrict out = pl_chunk_out(&x->routed, row, c, buf);
    for (uint64_t i = 0; i < n; i++)
        out[i] = w * dy[i];
    pl_chunk_store(&x->routed, row, c, n, out);
    return dot;
}

static void combine_bwd(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct experts *x = arg;
    float buf[PL_CHUNK];
    (void)worker;
    for (uint64_t t = row0; t < row1; t++) {
        const float *weight = pl_at(&x->weight, t, 0);
        float *dweight = pl_at(&x->dweight, t, 0);
        for (uint64_t j = 0; j < x->k; j++) {
            const uint64_t row = (uint64_t)x->index[t * x->k + j];
            double dot = 0;
            for (uint64_t c = 0, n; c < x->token.cols; c += n) {
                n = pl_chunk_size(x->token.cols, c);
                dot += turn(x, row, c, n, weight[j], pl_chunk(&x->token, t, c, n, buf));
            }
            dweight[j] = (float)dot;
        }
    }
}

/* in: dy[N,C], yr[P,C]! weight[N,k]f32, place[P]i32; out: yr[P,C]! dweight[N,k]f32. A row stands
 * once in place, so tasks never meet. */
pl_err PL_CPU(combine_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->in[PL_COMBINE_BWD_DY], &c->out[PL_COMBINE_BWD_OUT_YR],
              &c->in[PL_COMBINE_BWD_PLACE]) ||
        !takes_weights(&x, &c->in[PL_COMBINE_BWD_WEIGHT]) ||
        !takes_weights(&x, &c->out[PL_COMBINE_BWD_OUT_DWEIGHT]))
        return PL_ERR_PLAN_BROKEN;
    x.weight = c->in[PL_COMBINE_BWD_WEIGHT];
    x.dweight = c->out[PL_COMBINE_BWD_OUT_DWEIGHT];
    pl_cpu_rows(dev, x.token.rows, pl_cpu_grain(2 * x.token.cols * (x.k + 1)), combine_bwd, &x);
    return PL_ERR_OK;
}
