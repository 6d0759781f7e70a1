/* bias.c - BIAS_GRAD: the sum of dy over its rows. */
#include "runtime/kernels/cpu/simd.h"

/* A task owns columns; it sums fp32 over blocks of rows and double across them, so long batches
 * lose nothing and no scratch is needed. */
#define COLUMNS_PER_TASK 64
#define ROWS_PER_BLOCK   64

struct bias_grad {
    struct pl_view dy, db; /* [N,O], [O] */
    bool adds;
};

static void add_block(const struct bias_grad *g, uint64_t row0, uint64_t row1, uint64_t col0,
                      uint64_t n, double *total) {
    float sum[COLUMNS_PER_TASK] = {0}, row[COLUMNS_PER_TASK];
    for (uint64_t i = row0; i < row1; i++) {
        pl_widen(row, pl_at(&g->dy, i, col0), g->dy.dtype, n);
        for (uint64_t j = 0; j < n; j++)
            sum[j] += row[j];
    }
    for (uint64_t j = 0; j < n; j++)
        total[j] += sum[j];
}

static void sum_columns(void *arg, uint64_t col0, uint64_t col1, uint32_t worker) {
    const struct bias_grad *g = arg;
    double total[COLUMNS_PER_TASK] = {0};
    float db[COLUMNS_PER_TASK] = {0};
    uint64_t n = col1 - col0;
    (void)worker;
    for (uint64_t i = 0; i < g->dy.rows; i += ROWS_PER_BLOCK) {
        uint64_t end = i + ROWS_PER_BLOCK < g->dy.rows ? i + ROWS_PER_BLOCK : g->dy.rows;
        add_block(g, i, end, col0, n, total);
    }
    void *dst = pl_vector_at(&g->db, col0);
    if (g->adds) pl_widen(db, dst, g->db.dtype, n);
    for (uint64_t j = 0; j < n; j++)
        db[j] = (float)(db[j] + total[j]);
    pl_narrow(dst, g->db.dtype, db, n);
}

/* in: dy[N,O], ws (none), db[O]; out: db[O]. */
pl_err PL_CPU(bias_grad)(struct pl_device *dev, const struct pl_call *c) {
    struct bias_grad g = {
        .dy = c->in[PL_BIAS_GRAD_DY], .db = c->out[PL_BIAS_GRAD_OUT_DB], .adds = pl_call_adds(c)};
    pl_cpu_rows(dev, g.db.rows, COLUMNS_PER_TASK, sum_columns, &g);
    return PL_ERR_OK;
}
