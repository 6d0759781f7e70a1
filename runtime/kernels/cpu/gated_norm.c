/* gated_norm.c - GATED_NORM and GATED_NORM_BWD: a norm of each head, times silu of a gate.
 *
 * With oh = o*rstd, s = sigmoid(z), a = z*s and g = dy*a*w: do = rstd*(g - oh*mean(g*oh)),
 * dz = dy*oh*w * (s + a - a*s), dw = sum of dy*a*oh, which is summed as that of other norms. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/partials.h"

struct gated {
    struct pl_view o, z, w, rstd, y; /* y is its gradient on the way back */
    struct pl_view go, gz, gw;
    uint64_t heads, dim;
    float eps;
    float *partial; /* [chunks of rows][D]; NULL = no dw */
};

/* A chunk of a head. */
struct place {
    uint64_t row, col, wcol, n;
};
struct buffers {
    float o[PL_CHUNK], z[PL_CHUNK], w[PL_CHUNK], y[PL_CHUNK];
};
struct chunk {
    const float *o, *z, *w;
};

static bool next_place(const struct gated *t, uint64_t head, struct place *at) {
    at->wcol += at->n;
    if (at->wcol >= t->dim) return false;
    at->n = pl_chunk_size(t->dim, at->wcol);
    at->col = head * t->dim + at->wcol;
    return true;
}

static struct chunk chunk_at(const struct gated *t, const struct place *at, struct buffers *b) {
    return (struct chunk){pl_chunk(&t->o, at->row, at->col, at->n, b->o),
                          pl_chunk(&t->z, at->row, at->col, at->n, b->z),
                          pl_chunk_of_vector(&t->w, at->wcol, at->n, b->w)};
}

static inline float sigmoid(float z) {
    return 1.0f / (1.0f + pl_expf(-z));
}

static void norm_head(const struct gated *t, uint64_t row, uint64_t head) {
    struct buffers b;
    double sum = 0;
    for (struct place at = {.row = row}; next_place(t, head, &at);) {
        const float *o = pl_chunk(&t->o, row, at.col, at.n, b.o);
        sum += pl_dot(o, o, at.n);
    }
    const float rstd = (float)(1.0 / sqrt(sum / (double)t->dim + (double)t->eps));
    *(float *)pl_at(&t->rstd, row, head) = rstd;
    for (struct place at = {.row = row}; next_place(t, head, &at);) {
        const struct chunk x = chunk_at(t, &at, &b);
        float *y = pl_chunk_out(&t->y, row, at.col, b.y);
        for (uint64_t i = 0; i < at.n; i++)
            y[i] = PL_FENCE(x.o[i] * rstd) * x.w[i] * (x.z[i] * sigmoid(x.z[i]));
        pl_chunk_store(&t->y, row, at.col, at.n, y);
    }
}

static void norm_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct gated *t = arg;
    (void)worker;
    for (uint64_t row = row0; row < row1; row++)
        for (uint64_t h = 0; h < t->heads; h++)
            norm_head(t, row, h);
}

static bool fits(const struct gated *t) {
    const struct pl_view *o = &t->o, *const same[] = {&t->z, &t->y};
    for (int i = 0; i < 2; i++)
        if (same[i]->rows != o->rows || same[i]->cols != o->cols) return false;
    return t->dim && o->cols == t->heads * t->dim && t->w.rows == t->dim &&
           t->rstd.rows == o->rows && t->rstd.cols == t->heads;
}

/* in: o[N,H*D] z[N,H*D] w[D]; out: y[N,H*D] rstd[N,H]f32. */
pl_err PL_CPU(gated_norm)(struct pl_device *dev, const struct pl_call *c) {
    struct gated t = {.o = c->in[PL_GATED_NORM_O],
                      .z = c->in[PL_GATED_NORM_Z],
                      .w = c->in[PL_GATED_NORM_W],
                      .y = c->out[PL_GATED_NORM_OUT_Y],
                      .rstd = c->out[PL_GATED_NORM_OUT_RSTD],
                      .heads = c->out[PL_GATED_NORM_OUT_RSTD].cols,
                      .dim = c->attr->head_dim,
                      .eps = c->attr->eps};
    if (!fits(&t)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t.o.rows, pl_cpu_grain(t.o.cols), norm_rows, &t);
    return PL_ERR_OK;
}

/* ---- backward ---- */

static double dot_chunk(const struct gated *t, const struct place *at) {
    struct buffers b;
    float g[PL_CHUNK];
    const struct chunk x = chunk_at(t, at, &b);
    const float *dy = pl_chunk(&t->y, at->row, at->col, at->n, b.y);
    for (uint64_t i = 0; i < at->n; i++)
        g[i] = dy[i] * (x.z[i] * sigmoid(x.z[i])) * x.w[i];
    return pl_dot(g, x.o, at->n);
}

/* mean = rstd * mean(g*o). */
static void gradient_chunk(const struct gated *t, const struct place *at, float rstd, float mean,
                           float *partial) {
    struct buffers b;
    float go[PL_CHUNK], gz[PL_CHUNK], gw[PL_CHUNK];
    const struct chunk x = chunk_at(t, at, &b);
    const float *dy = pl_chunk(&t->y, at->row, at->col, at->n, b.y);
    for (uint64_t i = 0; i < at->n; i++) {
        const float s = sigmoid(x.z[i]), a = x.z[i] * s, oh = PL_FENCE(x.o[i] * rstd);
        go[i] = rstd * (dy[i] * a * x.w[i] - oh * mean);
        gz[i] = dy[i] * oh * x.w[i] * (s + a - a * s);
        gw[i] = dy[i] * a * oh;
    }
    for (uint64_t i = 0; partial && i < at->n; i++)
        partial[at->wcol + i] += gw[i];
    pl_narrow(pl_at(&t->go, at->row, at->col), t->go.dtype, go, at->n);
    pl_narrow(pl_at(&t->gz, at->row, at->col), t->gz.dtype, gz, at->n);
}

static void gradient_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct gated *t = arg;
    float *partial = t->partial ? t->partial + row0 / PL_PARTIAL_ROWS * t->dim : NULL;
    (void)worker;
    if (partial) memset(partial, 0, t->dim * sizeof *partial);
    for (uint64_t row = row0; row < row1; row++)
        for (uint64_t h = 0; h < t->heads; h++) {
            const float rstd = *(const float *)pl_at(&t->rstd, row, h);
            double dot = 0;
            for (struct place at = {.row = row}; next_place(t, h, &at);)
                dot += dot_chunk(t, &at);
            const float mean = (float)(dot * (double)rstd / (double)t->dim);
            for (struct place at = {.row = row}; next_place(t, h, &at);)
                gradient_chunk(t, &at, rstd, mean, partial);
        }
}

/* in: dy[N,H*D] o[N,H*D] z[N,H*D] w[D] rstd[N,H]f32 ws? dw?[D]!; out: do[N,H*D] dz[N,H*D]
 * dw?[D]!. */
pl_err PL_CPU(gated_norm_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_GATED_NORM_BWD_WS];
    struct gated t = {.y = c->in[PL_GATED_NORM_BWD_DY],
                      .o = c->in[PL_GATED_NORM_BWD_O],
                      .z = c->in[PL_GATED_NORM_BWD_Z],
                      .w = c->in[PL_GATED_NORM_BWD_W],
                      .rstd = c->in[PL_GATED_NORM_BWD_RSTD],
                      .go = c->out[PL_GATED_NORM_BWD_OUT_DO],
                      .gz = c->out[PL_GATED_NORM_BWD_OUT_DZ],
                      .gw = c->out[PL_GATED_NORM_BWD_OUT_DW],
                      .heads = c->in[PL_GATED_NORM_BWD_RSTD].cols,
                      .dim = c->attr->head_dim};
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_GATED_NORM_BWD, c->attr, t.o.rows, t.o.cols);
    if (!fits(&t) || t.go.rows != t.o.rows || t.gz.rows != t.o.rows || t.go.cols != t.o.cols ||
        t.gz.cols != t.o.cols || (t.gw.p && (t.gw.rows != t.dim || !pl_ws_holds(ws, need))))
        return PL_ERR_PLAN_BROKEN;
    if (t.gw.p) t.partial = ws->p;
    pl_cpu_rows(dev, t.o.rows, t.gw.p ? PL_PARTIAL_ROWS : pl_cpu_grain(t.o.cols), gradient_rows,
                &t);
    struct pl_partials sums = {t.partial, pl_u64_div_up(t.o.rows, PL_PARTIAL_ROWS), t.dim, t.gw,
                               pl_call_adds(c)};
    if (t.gw.p) pl_cpu_rows(dev, t.dim, PL_CHUNK, pl_sum_partials, &sums);
    return PL_ERR_OK;
}
