/* embed.c - EMBED: rows of the table by token id; EMBED_BWD: their gradients summed by id. */
#include "runtime/kernels/cpu/simd.h"

struct embed {
    const int32_t *ids;
    struct pl_view table, x; /* [V,C], [N,C] */
};

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

/* Ids come from the data room, which refused those outside the vocabulary; a kernel that trusted
 * that would turn a defect elsewhere into a wild read. */
static bool are_in_range(const struct pl_view *ids, uint64_t vocab) {
    const int32_t *id = ids->p;
    for (uint64_t i = 0; i < ids->rows; i++)
        if (id[i] < 0 || (uint64_t)id[i] >= vocab) return false;
    return true;
}

/* in: ids[N]i32, W[V,C]; out: x[N,C]. */
pl_err PL_CPU(embed)(struct pl_device *dev, const struct pl_call *c) {
    struct embed e = {.ids = c->in[0].p, .table = c->in[1], .x = c->out[0]};
    if (e.x.rows == 0) return PL_ERR_OK;
    if (!are_in_range(&c->in[0], e.table.rows)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, e.x.rows, pl_cpu_grain(e.x.cols), copy_rows, &e);
    return PL_ERR_OK;
}

/* One task owns a range of columns of every row, so that no two tasks touch the same sum and each
 * sum runs in token order. A cache line of fp32 is 16 columns: fewer would share lines. */
#define COLUMNS_PER_TASK 64

static void zero_columns(const struct pl_view *v, uint64_t col0, uint64_t cols) {
    for (uint64_t i = 0; i < v->rows; i++)
        memset(pl_at(v, i, col0), 0, cols * pl_float_bytes(v->dtype));
}

struct embed_bwd {
    const int32_t *ids;
    struct pl_view dx, dw; /* [N,C], [V,C] */
    bool adds;
};

static void add_columns(void *arg, uint64_t col0, uint64_t col1, uint32_t worker) {
    const struct embed_bwd *e = arg;
    uint64_t n = col1 - col0;
    float sum[COLUMNS_PER_TASK], term[COLUMNS_PER_TASK];
    (void)worker;
    if (!e->adds) zero_columns(&e->dw, col0, n);
    for (uint64_t i = 0; i < e->dx.rows; i++) {
        void *dst = pl_at(&e->dw, (uint64_t)e->ids[i], col0);
        pl_widen(sum, dst, e->dw.dtype, n);
        pl_widen(term, pl_at(&e->dx, i, col0), e->dx.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sum[j] += term[j];
        pl_narrow(dst, e->dw.dtype, sum, n);
    }
}

/* in: ids[N]i32, dx[N,C], dW[V,C]; out: dW[V,C]. */
pl_err PL_CPU(embed_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct embed_bwd e = {
        .ids = c->in[0].p, .dx = c->in[1], .dw = c->out[0], .adds = pl_call_adds(c)};
    if (!are_in_range(&c->in[0], e.dw.rows)) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, e.dw.cols, COLUMNS_PER_TASK, add_columns, &e);
    return PL_ERR_OK;
}
