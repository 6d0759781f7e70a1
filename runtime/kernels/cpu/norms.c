/* norms.c - RMSNORM, ADD_RMSNORM, RENORM, RMSNORM_BWD; QK_NORM and QK_NORM_BWD, the same per head.
 *
 * A row of H heads of D columns is H norms of D columns with one w[D]; a plain norm has one head.
 */
#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/partials.h"

struct norm {
    struct pl_view x, r, w, y, rstd; /* r absent = nothing is added to x first */
    uint64_t heads, dim;
    float eps;
    bool keeps_rstd;  /* rstd is given, not computed */
    bool unit_offset; /* weights are 1 + w */
};

static const float *weights(const struct pl_view *w, uint64_t col, uint64_t n, bool unit_offset,
                            float *buffer) {
    if (!w->p) {
        for (uint64_t i = 0; i < n; i++)
            buffer[i] = 1.0f;
        return buffer;
    }
    const float *x = pl_chunk_of_vector(w, col, n, buffer);
    if (!unit_offset) return x;
    for (uint64_t i = 0; i < n; i++)
        buffer[i] = 1.0f + x[i];
    return buffer;
}

/* x += r over columns [col, col+n) as stored, and the sum of squares of what was stored. */
static double square_sum(const struct norm *t, uint64_t row, uint64_t col, uint64_t n) {
    float bx[PL_CHUNK], br[PL_CHUNK];
    if (t->r.p) {
        const float *r = pl_chunk(&t->r, row, col, n, br), *old = pl_chunk(&t->x, row, col, n, bx);
        float *x = pl_chunk_out(&t->x, row, col, bx);
        for (uint64_t i = 0; i < n; i++)
            x[i] = old[i] + r[i];
        pl_chunk_store(&t->x, row, col, n, x);
    }
    const float *x = pl_chunk(&t->x, row, col, n, bx);
    return pl_dot(x, x, n);
}

static void scale_chunk(const struct norm *t, uint64_t row, uint64_t col, uint64_t wcol, uint64_t n,
                        float rstd) {
    float bx[PL_CHUNK], bw[PL_CHUNK], by[PL_CHUNK];
    const float *x = pl_chunk(&t->x, row, col, n, bx);
    const float *w = weights(&t->w, wcol, n, t->unit_offset, bw);
    float *y = pl_chunk_out(&t->y, row, col, by);
    for (uint64_t i = 0; i < n; i++)
        y[i] = PL_FENCE(x[i] * rstd) * w[i];
    pl_chunk_store(&t->y, row, col, n, y);
}

static void norm_head(const struct norm *t, uint64_t row, uint64_t head) {
    const uint64_t col = head * t->dim;
    float *rstd = pl_at(&t->rstd, row, head);
    uint64_t n;
    if (!t->keeps_rstd) {
        double sum = 0;
        for (uint64_t c = 0; c < t->dim; c += n) {
            n = pl_chunk_size(t->dim, c);
            sum += square_sum(t, row, col + c, n);
        }
        *rstd = (float)(1.0 / sqrt(sum / (double)t->dim + (double)t->eps));
    }
    for (uint64_t c = 0; c < t->dim; c += n) {
        n = pl_chunk_size(t->dim, c);
        scale_chunk(t, row, col + c, c, n, *rstd);
    }
}

static void norm_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct norm *t = arg;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++)
        for (uint64_t h = 0; h < t->heads; h++)
            norm_head(t, i, h);
}

static pl_err run_norm(struct pl_device *dev, const struct pl_attr *attr, struct norm *t,
                       uint64_t dim) {
    t->dim = dim;
    t->eps = attr->eps;
    t->unit_offset = attr->unit_offset;
    t->heads = t->x.cols / dim;
    pl_cpu_rows(dev, t->x.rows, pl_cpu_grain(t->x.cols), norm_rows, t);
    return PL_ERR_OK;
}

/* in: x[N,C] w[C]; out: y[N,C] rstd[N]f32. */
pl_err PL_CPU(rmsnorm)(struct pl_device *dev, const struct pl_call *c) {
    struct norm t = {.x = c->in[PL_RMSNORM_X],
                     .w = c->in[PL_RMSNORM_W],
                     .y = c->out[PL_RMSNORM_OUT_Y],
                     .rstd = c->out[PL_RMSNORM_OUT_RSTD]};
    return run_norm(dev, c->attr, &t, t.x.cols);
}

/* in: x[N,C]! r[N,C] w[C]; out: x[N,C]! y[N,C] rstd[N]f32. */
pl_err PL_CPU(add_rmsnorm)(struct pl_device *dev, const struct pl_call *c) {
    struct norm t = {.x = c->out[PL_ADD_RMSNORM_OUT_X],
                     .r = c->in[PL_ADD_RMSNORM_R],
                     .w = c->in[PL_ADD_RMSNORM_W],
                     .y = c->out[PL_ADD_RMSNORM_OUT_Y],
                     .rstd = c->out[PL_ADD_RMSNORM_OUT_RSTD]};
    return run_norm(dev, c->attr, &t, t.x.cols);
}

/* in: x[N,C] w[C] rstd[N]f32; out: y[N,C]. */
pl_err PL_CPU(renorm)(struct pl_device *dev, const struct pl_call *c) {
    struct norm t = {.x = c->in[PL_RENORM_X],
                     .w = c->in[PL_RENORM_W],
                     .rstd = c->in[PL_RENORM_RSTD],
                     .y = c->out[PL_RENORM_OUT_Y],
                     .keeps_rstd = true};
    return run_norm(dev, c->attr, &t, t.x.cols);
}

/* in: x[N,H*D] w?[D]; out: y[N,H*D] rstd[N,H]f32. */
pl_err PL_CPU(qk_norm)(struct pl_device *dev, const struct pl_call *c) {
    struct norm t = {.x = c->in[PL_QK_NORM_X],
                     .w = c->in[PL_QK_NORM_W],
                     .y = c->out[PL_QK_NORM_OUT_Y],
                     .rstd = c->out[PL_QK_NORM_OUT_RSTD]};
    return run_norm(dev, c->attr, &t, c->attr->head_dim);
}

/* ---- backward ----
 * With xh = x*rstd and g = dy*w: dx = rstd*(g - xh*mean(g*xh)), dw = sum of dy*xh. Rows are summed
 * in fp32 over PL_PARTIAL_ROWS, partial sums in double, both in order: threads do not matter. */

struct norm_bwd {
    struct pl_view dy, x, w, rstd, dx, dw;
    uint64_t heads, dim;
    float *partial; /* [chunks of rows][D]; NULL = no dw */
    bool add_dx, unit_offset;
};

struct place { /* a chunk of a head */
    uint64_t row, col, wcol, n;
};

static double dot_chunk(const struct norm_bwd *t, const struct place *at) {
    float by[PL_CHUNK], bx[PL_CHUNK], bw[PL_CHUNK], g[PL_CHUNK];
    const float *dy = pl_chunk(&t->dy, at->row, at->col, at->n, by);
    const float *x = pl_chunk(&t->x, at->row, at->col, at->n, bx);
    const float *w = weights(&t->w, at->wcol, at->n, t->unit_offset, bw);
    for (uint64_t i = 0; i < at->n; i++)
        g[i] = dy[i] * w[i];
    return pl_dot(g, x, at->n);
}

/* mean = rstd * mean(g*x). dw reads dy before dx, which may lie over it, is written. */
static void gradient_chunk(const struct norm_bwd *t, const struct place *at, float rstd, float mean,
                           float *partial) {
    float by[PL_CHUNK], bx[PL_CHUNK], bw[PL_CHUNK], bd[PL_CHUNK], bo[PL_CHUNK];
    const float *dy = pl_chunk(&t->dy, at->row, at->col, at->n, by);
    const float *x = pl_chunk(&t->x, at->row, at->col, at->n, bx);
    const float *w = weights(&t->w, at->wcol, at->n, t->unit_offset, bw);
    if (partial)
        for (uint64_t i = 0; i < at->n; i++)
            partial[at->wcol + i] += dy[i] * PL_FENCE(x[i] * rstd);
    if (!t->dx.p) return;
    const float *old = t->add_dx ? pl_chunk(&t->dx, at->row, at->col, at->n, bo) : NULL;
    float *dx = pl_chunk_out(&t->dx, at->row, at->col, bd);
    if (old)
        for (uint64_t i = 0; i < at->n; i++)
            dx[i] = old[i] + rstd * (dy[i] * w[i] - PL_FENCE(x[i] * rstd) * mean);
    else
        for (uint64_t i = 0; i < at->n; i++)
            dx[i] = rstd * (dy[i] * w[i] - PL_FENCE(x[i] * rstd) * mean);
    pl_chunk_store(&t->dx, at->row, at->col, at->n, dx);
}

static void gradient_head(const struct norm_bwd *t, uint64_t row, uint64_t head, float *partial) {
    const float rstd = *(const float *)pl_at(&t->rstd, row, head);
    struct place at = {.row = row};
    double dot = 0;
    for (uint64_t c = 0; t->dx.p && c < t->dim; c += at.n) {
        at.n = pl_chunk_size(t->dim, c);
        at.wcol = c;
        at.col = head * t->dim + c;
        dot += dot_chunk(t, &at);
    }
    const float mean = (float)(dot * (double)rstd / (double)t->dim);
    for (uint64_t c = 0; c < t->dim; c += at.n) {
        at.n = pl_chunk_size(t->dim, c);
        at.wcol = c;
        at.col = head * t->dim + c;
        gradient_chunk(t, &at, rstd, mean, partial);
    }
}

static void gradient_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct norm_bwd *t = arg;
    float *partial = t->partial ? t->partial + row0 / PL_PARTIAL_ROWS * t->dim : NULL;
    (void)worker;
    if (partial) memset(partial, 0, t->dim * sizeof *partial);
    for (uint64_t i = row0; i < row1; i++)
        for (uint64_t h = 0; h < t->heads; h++)
            gradient_head(t, i, h, partial);
}

static pl_err run_norm_bwd(struct pl_device *dev, const struct pl_call *c, enum pl_op_kind kind,
                           struct norm_bwd *t) {
    const struct pl_view *ws = &c->in[PL_RMSNORM_BWD_WS];
    t->dy = c->in[PL_RMSNORM_BWD_DY], t->x = c->in[PL_RMSNORM_BWD_X],
    t->w = c->in[PL_RMSNORM_BWD_W], t->rstd = c->in[PL_RMSNORM_BWD_RSTD];
    t->heads = t->dy.cols / t->dim;
    t->unit_offset = c->attr->unit_offset;
    if (t->dw.p) {
        const uint64_t need =
            pl_op_workspace_bytes(&dev->traits, kind, c->attr, t->dy.rows, t->dy.cols);
        if (!pl_ws_holds(ws, need)) return PL_ERR_PLAN_BROKEN;
        t->partial = ws->p;
    }
    pl_cpu_rows(dev, t->dy.rows, t->dw.p ? PL_PARTIAL_ROWS : pl_cpu_grain(t->dy.cols),
                gradient_rows, t);
    struct pl_partials sums = {t->partial, pl_u64_div_up(t->dy.rows, PL_PARTIAL_ROWS), t->dim,
                               t->dw, pl_call_adds(c)};
    if (t->dw.p) pl_cpu_rows(dev, t->dim, PL_CHUNK, pl_sum_partials, &sums);
    return PL_ERR_OK;
}

/* in: dy[N,C] x[N,C] w[C] rstd[N]f32 ws? dx?[N,C]! dw?[C]!; out: dx?[N,C]! dw?[C]!. */
pl_err PL_CPU(rmsnorm_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct norm_bwd t = {.dim = c->in[PL_RMSNORM_BWD_DY].cols,
                         .dx = c->out[PL_RMSNORM_BWD_OUT_DX],
                         .dw = c->out[PL_RMSNORM_BWD_OUT_DW],
                         .add_dx = c->attr->add_dx};
    return run_norm_bwd(dev, c, PL_OP_RMSNORM_BWD, &t);
}

/* in: dy[N,H*D]! x[N,H*D] w?[D] rstd[N,H]f32 ws? dw?[D]!; out: dy[N,H*D]! dw?[D]!. */
pl_err PL_CPU(qk_norm_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct norm_bwd t = {.dim = c->attr->head_dim,
                         .dx = c->out[PL_QK_NORM_BWD_OUT_DY],
                         .dw = c->out[PL_QK_NORM_BWD_OUT_DW]};
    return run_norm_bwd(dev, c, PL_OP_QK_NORM_BWD, &t);
}
