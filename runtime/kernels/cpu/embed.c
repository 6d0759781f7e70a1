/* embed.c - EMBED: rows of the table by token id; EMBED_BWD: their gradients summed by id. */
#include "runtime/kernels/cpu/chunk.h"

struct embed {
    const int32_t *ids;
    struct pl_view table, x; /* [V,C], [N,C] */
    float scale;
};

static void scale_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct embed *e = arg;
    float from[PL_CHUNK], to[PL_CHUNK];
    (void)worker;
    for (uint64_t i = row0; i < row1; i++) {
        for (uint64_t c = 0, n; c < e->x.cols; c += n) {
            n = pl_chunk_size(e->x.cols, c);
            const float *w = pl_chunk(&e->table, (uint64_t)e->ids[i], c, n, from);
            float *x = pl_chunk_out(&e->x, i, c, to);
            for (uint64_t k = 0; k < n; k++)
                x[k] = w[k] * e->scale;
            pl_chunk_store(&e->x, i, c, n, x);
        }
    }
}

static void copy_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct embed *e = arg;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++) {
        void *dst = pl_at(&e->x, i, 0);
        const void *src = pl_at(&e->table, (uint64_t)e->ids[i], 0);
        if (e->x.dtype == e->table.dtype)
            memcpy(dst, src, e->x.cols * pl_float_bytes(e->x.dtype));
        else if (e->x.dtype == PL_DTYPE_F32)
            pl_widen(dst, src, e->table.dtype, e->x.cols);
        else
            pl_narrow(dst, e->x.dtype, src, e->x.cols);
    }
}

/* in: ids[N]i32, W[V,C]; out: x[N,C]. */
pl_err PL_CPU(embed)(struct pl_device *dev, const struct pl_call *c) {
    struct embed e = {.ids = c->in[PL_EMBED_IDS].p,
                      .table = c->in[PL_EMBED_W],
                      .x = c->out[PL_EMBED_OUT_X],
                      .scale = pl_embed_scale(c->attr)};
    if (e.x.rows == 0) return PL_ERR_OK;
    if (!pl_indices_below(&c->in[PL_EMBED_IDS], e.table.rows)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, e.x.rows, pl_cpu_grain(e.x.cols), e.scale != 1.0f ? scale_rows : copy_rows,
                &e);
    return PL_ERR_OK;
}

/* ---- EMBED_BWD ----
 *
 * All tokens of one id stand together in `order`: they are summed in fp32 in token order and the
 * row is rounded once. Adding token by token to a bf16 row would lose the terms of frequent ids
 * once the sum has outgrown them. A task owns a range of columns of every row, so no two tasks
 * touch the same sum. */
#define COLUMNS_PER_TASK 64

struct embed_bwd {
    struct pl_view dx, dw; /* [N,C], [V,C] */
    const int32_t *ids, *order;
    int64_t padding_idx;
    float scale;
};

static void add_columns(void *arg, uint64_t col0, uint64_t col1, uint32_t worker) {
    const struct embed_bwd *e = arg;
    uint64_t n = col1 - col0;
    float sum[COLUMNS_PER_TASK], term[COLUMNS_PER_TASK];
    (void)worker;
    for (uint64_t i = 0; i < e->dx.rows;) {
        int32_t id = e->ids[e->order[i]];
        if (id == e->padding_idx) {
            i++;
            continue;
        }
        void *dst = pl_at(&e->dw, (uint64_t)id, col0);
        pl_widen(sum, dst, e->dw.dtype, n);
        for (; i < e->dx.rows && e->ids[e->order[i]] == id; i++) {
            pl_widen(term, pl_at(&e->dx, (uint64_t)e->order[i], col0), e->dx.dtype, n);
            for (uint64_t j = 0; j < n; j++)
                sum[j] += term[j] * e->scale;
        }
        pl_narrow(dst, e->dw.dtype, sum, n);
    }
}

static void zero_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct pl_view *v = arg;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++)
        memset(pl_at(v, i, 0), 0, v->cols * pl_float_bytes(v->dtype));
}

/* in: ids[N]i32, order[N]i32, dx[N,C], dW[V,C]; out: dW[V,C]. */
pl_err PL_CPU(embed_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct embed_bwd e = {.dx = c->in[PL_EMBED_BWD_DX],
                          .dw = c->out[PL_EMBED_BWD_OUT_DW],
                          .ids = c->in[PL_EMBED_BWD_IDS].p,
                          .order = c->in[PL_EMBED_BWD_ORDER].p,
                          .padding_idx = c->attr->padding_idx,
                          .scale = pl_embed_scale(c->attr)};
    if (c->in[PL_EMBED_BWD_ORDER].rows < e.dx.rows ||
        !pl_indices_below(&c->in[PL_EMBED_BWD_IDS], e.dw.rows) ||
        !pl_indices_below(&c->in[PL_EMBED_BWD_ORDER], c->in[PL_EMBED_BWD_IDS].rows))
        return PL_ERR_PLAN_BROKEN;
    if (!pl_call_adds(c)) pl_cpu_rows(dev, e.dw.rows, pl_cpu_grain(e.dw.cols), zero_rows, &e.dw);
    pl_cpu_rows(dev, e.dw.cols, COLUMNS_PER_TASK, add_columns, &e);
    return PL_ERR_OK;
}
