/* bias.c - BIAS_GRAD: the sum of dy over its rows; GROUPED_BIAS_GRAD: over those of an expert. */
#include "runtime/kernels/cpu/simd.h"
#include "runtime/kernels/grouped_call.h"

/* A task owns columns; it sums fp32 over blocks of rows and double across them, so long batches
 * lose nothing and no scratch is needed. */
#define COLUMNS_PER_TASK 64
#define ROWS_PER_BLOCK   64

struct bias_grad {
    struct pl_view dy, db;  /* [N,O], [O]; or [P,O], [E*O] */
    const int32_t *offsets; /* of the experts, NULL = one that has all rows */
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

static void sum_columns(const struct bias_grad *g, uint64_t expert, uint64_t col0, uint64_t n) {
    const uint64_t row0 = g->offsets ? (uint64_t)g->offsets[expert] : 0;
    const uint64_t row1 = g->offsets ? (uint64_t)g->offsets[expert + 1] : g->dy.rows;
    double total[COLUMNS_PER_TASK] = {0};
    float db[COLUMNS_PER_TASK] = {0};
    for (uint64_t i = row0; i < row1; i += ROWS_PER_BLOCK)
        add_block(g, i, pl_u64_min(i + ROWS_PER_BLOCK, row1), col0, n, total);
    void *dst = pl_vector_at(&g->db, expert * g->dy.cols + col0);
    if (g->adds) pl_widen(db, dst, g->db.dtype, n);
    for (uint64_t j = 0; j < n; j++)
        db[j] = (float)(db[j] + total[j]);
    pl_narrow(dst, g->db.dtype, db, n);
}

/* A task: number t of all, which are tasks of the first expert, then of the next. */
static void run_tasks(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct bias_grad *g = arg;
    const uint64_t of_expert = pl_u64_div_up(g->dy.cols, COLUMNS_PER_TASK);
    (void)worker;
    for (uint64_t t = first; t < end; t++) {
        const uint64_t col0 = t % of_expert * COLUMNS_PER_TASK;
        sum_columns(g, t / of_expert, col0, pl_u64_min(COLUMNS_PER_TASK, g->dy.cols - col0));
    }
}

/* in: dy[N,O], ws (none), db[O]; out: db[O]. */
pl_err PL_CPU(bias_grad)(struct pl_device *dev, const struct pl_call *c) {
    struct bias_grad g = {
        .dy = c->in[PL_BIAS_GRAD_DY], .db = c->out[PL_BIAS_GRAD_OUT_DB], .adds = pl_call_adds(c)};
    if (g.dy.cols != g.db.rows) return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, pl_u64_div_up(g.dy.cols, COLUMNS_PER_TASK), 1, run_tasks, &g);
    return PL_ERR_OK;
}

/* in: dy[P,O], offsets[E+1]i32, db[E*O]; out: db[E*O]. */
pl_err PL_CPU(grouped_bias_grad)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_experts e = pl_experts_of(c, &c->out[PL_GROUPED_BIAS_GRAD_OUT_DB]);
    struct bias_grad g = {.dy = c->in[PL_GROUPED_BIAS_GRAD_DY],
                          .db = c->out[PL_GROUPED_BIAS_GRAD_OUT_DB],
                          .adds = pl_call_adds(c),
                          .offsets =
                              (const int32_t *)c->in[PL_GROUPED_BIAS_GRAD_OFFSETS].p + e.first};
    if (!pl_grouped_bias_grad_is_sound(c) || !pl_ends_are_ordered(g.offsets, e.n, g.dy.rows))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, e.n * pl_u64_div_up(g.dy.cols, COLUMNS_PER_TASK), 1, run_tasks, &g);
    return PL_ERR_OK;
}
