/* gather.c - GATHER_ADD: the supervised rows of the last residual sum; SCATTER_ROWS: their
 * gradients in their rows, and zeros in all others. */
#include "runtime/kernels/cpu/simd.h"

/* Columns of a row worked on at once, so that the sum fits the stack whatever the width. */
#define COLUMNS 512

struct rows {
    const int32_t *index;
    struct pl_view a, b, out; /* gather: a[N,C] b[N,C] out[T,C]; scatter: a[T,C] out[N,C] */
};

static void gather_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct rows *g = arg;
    float x[COLUMNS], r[COLUMNS];
    (void)worker;
    for (uint64_t t = row0; t < row1; t++) {
        uint64_t from = (uint64_t)g->index[t];
        for (uint64_t c0 = 0; c0 < g->out.cols; c0 += COLUMNS) {
            uint64_t n = g->out.cols - c0 < COLUMNS ? g->out.cols - c0 : COLUMNS;
            pl_widen(x, pl_at(&g->a, from, c0), g->a.dtype, n);
            if (g->b.p) pl_widen(r, pl_at(&g->b, from, c0), g->b.dtype, n);
            for (uint64_t j = 0; g->b.p && j < n; j++)
                x[j] += r[j];
            pl_narrow(pl_at(&g->out, t, c0), g->out.dtype, x, n);
        }
    }
}

/* in: x[N,C], r?[N,C], rows[T]i32; out: xs[T,C]. */
pl_err PL_CPU(gather_add)(struct pl_device *dev, const struct pl_call *c) {
    struct rows g = {.a = c->in[PL_GATHER_ADD_X],
                     .b = c->in[PL_GATHER_ADD_R],
                     .index = c->in[PL_GATHER_ADD_ROWS].p,
                     .out = c->out[PL_GATHER_ADD_OUT_XS]};
    if (g.out.rows == 0) return PL_ERR_OK;
    if (c->in[PL_GATHER_ADD_ROWS].rows < g.out.rows ||
        !pl_indices_below(&c->in[PL_GATHER_ADD_ROWS], g.a.rows))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, g.out.rows, pl_cpu_grain(g.out.cols), gather_rows, &g);
    return PL_ERR_OK;
}

static void zero_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct rows *s = arg;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++)
        memset(pl_at(&s->out, i, 0), 0, s->out.cols * pl_float_bytes(s->out.dtype));
}

static void scatter_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct rows *s = arg;
    float x[COLUMNS];
    (void)worker;
    for (uint64_t t = row0; t < row1; t++) {
        uint64_t to = (uint64_t)s->index[t];
        for (uint64_t c0 = 0; c0 < s->out.cols; c0 += COLUMNS) {
            uint64_t n = s->out.cols - c0 < COLUMNS ? s->out.cols - c0 : COLUMNS;
            pl_widen(x, pl_at(&s->a, t, c0), s->a.dtype, n);
            pl_narrow(pl_at(&s->out, to, c0), s->out.dtype, x, n);
        }
    }
}

/* in: dxs[T,C], rows[T]i32; out: dx[N,C]. A row stands at most once in rows, so tasks never meet.
 */
pl_err PL_CPU(scatter_rows)(struct pl_device *dev, const struct pl_call *c) {
    struct rows s = {.a = c->in[PL_SCATTER_ROWS_DXS],
                     .index = c->in[PL_SCATTER_ROWS_ROWS].p,
                     .out = c->out[PL_SCATTER_ROWS_OUT_DX]};
    if (c->in[PL_SCATTER_ROWS_ROWS].rows < s.a.rows ||
        !pl_indices_below(&c->in[PL_SCATTER_ROWS_ROWS], s.out.rows))
        return PL_ERR_PLAN_BROKEN;
    if (s.out.rows == 0) return PL_ERR_OK;
    uint64_t grain = pl_cpu_grain(s.out.cols);
    pl_cpu_rows(dev, s.out.rows, grain, zero_rows, &s);
    pl_cpu_rows(dev, s.a.rows, grain, scatter_rows, &s);
    return PL_ERR_OK;
}
