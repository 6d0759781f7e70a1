/* sigmoid_gate.c - SPLIT_HEADS and SIGMOID_GATE with their gradients: the columns of qg[N,2*H*D]
 * are D of a head of queries, then D of its gate, head by head. */
#include "runtime/kernels/cpu/chunk.h"

struct gate {
    struct pl_view o, qg, y; /* y is its gradient on the way back */
    struct pl_view go, gqg;  /* [N,H*D], [N,2*H*D] */
    uint64_t dim;
};

/* Calls fn for the chunks of all heads of a row: col is that of a head alone, and wide that of the
 * same place in qg, of the query or of the gate. */
typedef void (*chunk_fn)(const struct gate *t, uint64_t row, uint64_t col, uint64_t wide,
                         uint64_t n);

static inline void for_chunks(const struct gate *t, uint64_t row, bool of_gate, chunk_fn fn) {
    for (uint64_t head = 0; head * 2 * t->dim < t->qg.cols; head++)
        for (uint64_t c = 0, n; c < t->dim; c += n) {
            n = pl_chunk_size(t->dim, c);
            fn(t, row, head * t->dim + c, (2 * head + of_gate) * t->dim + c, n);
        }
}

static void copy_between(const struct pl_view *from, uint64_t row, uint64_t col,
                         const struct pl_view *to, uint64_t to_col, uint64_t n) {
    float buf[PL_CHUNK];
    pl_narrow(pl_at(to, row, to_col), to->dtype, pl_chunk(from, row, col, n, buf), n);
}

static void split_chunk(const struct gate *t, uint64_t row, uint64_t col, uint64_t wide,
                        uint64_t n) {
    copy_between(&t->qg, row, wide, &t->y, col, n);
}

static void join_chunk(const struct gate *t, uint64_t row, uint64_t col, uint64_t wide,
                       uint64_t n) {
    copy_between(&t->y, row, col, &t->gqg, wide, n);
}

static inline float sigmoid(float z) {
    return 1.0f / (1.0f + pl_expf(-z));
}

static void gate_chunk(const struct gate *t, uint64_t row, uint64_t col, uint64_t wide,
                       uint64_t n) {
    float bo[PL_CHUNK], bz[PL_CHUNK], by[PL_CHUNK];
    const float *o = pl_chunk(&t->o, row, col, n, bo), *z = pl_chunk(&t->qg, row, wide, n, bz);
    float *y = pl_chunk_out(&t->y, row, col, by);
    for (uint64_t i = 0; i < n; i++)
        y[i] = o[i] * sigmoid(z[i]);
    pl_chunk_store(&t->y, row, col, n, y);
}

static void gradient_chunk(const struct gate *t, uint64_t row, uint64_t col, uint64_t wide,
                           uint64_t n) {
    float bo[PL_CHUNK], bz[PL_CHUNK], by[PL_CHUNK], go[PL_CHUNK], gz[PL_CHUNK];
    const float *o = pl_chunk(&t->o, row, col, n, bo), *z = pl_chunk(&t->qg, row, wide, n, bz);
    const float *dy = pl_chunk(&t->y, row, col, n, by);
    for (uint64_t i = 0; i < n; i++) {
        const float s = sigmoid(z[i]);
        go[i] = dy[i] * s;
        gz[i] = dy[i] * o[i] * (s * (1.0f - s));
    }
    pl_narrow(pl_at(&t->go, row, col), t->go.dtype, go, n);
    pl_narrow(pl_at(&t->gqg, row, wide), t->gqg.dtype, gz, n);
}

#define ROWS(name, of_gate, fn)                                                                    \
    static void name(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {                   \
        (void)worker;                                                                              \
        for (uint64_t row = row0; row < row1; row++)                                               \
            for_chunks(arg, row, of_gate, fn);                                                     \
    }
ROWS(split_rows, false, split_chunk)
ROWS(join_rows, false, join_chunk)
ROWS(gate_rows, true, gate_chunk)
ROWS(gradient_rows, true, gradient_chunk)

static bool is_narrow(const struct gate *t, const struct pl_view *v) {
    return !v->p || (v->rows == t->y.rows && v->cols == t->y.cols);
}

static bool is_wide(const struct gate *t, const struct pl_view *v) {
    return !v->p || (v->rows == t->y.rows && v->cols == 2 * t->y.cols);
}

static pl_err run(struct pl_device *dev, const struct pl_call *c, struct gate *t, pl_rows_fn fn) {
    t->dim = c->attr->head_dim;
    if (t->dim == 0 || t->y.cols % t->dim || !is_narrow(t, &t->o) || !is_narrow(t, &t->go) ||
        !is_wide(t, &t->qg) || !is_wide(t, &t->gqg))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t->y.rows, pl_cpu_grain(t->y.cols), fn, t);
    return PL_ERR_OK;
}

/* in: qg[N,2*H*D]; out: q[N,H*D]. */
pl_err PL_CPU(split_heads)(struct pl_device *dev, const struct pl_call *c) {
    struct gate t = {.qg = c->in[PL_SPLIT_HEADS_QG], .y = c->out[PL_SPLIT_HEADS_OUT_Q]};
    return run(dev, c, &t, split_rows);
}

/* in: dq[N,H*D] dqg[N,2*H*D]!; out: dqg[N,2*H*D]!. */
pl_err PL_CPU(split_heads_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct gate t = {.y = c->in[PL_SPLIT_HEADS_BWD_DQ],
                     .qg = c->out[PL_SPLIT_HEADS_BWD_OUT_DQG],
                     .gqg = c->out[PL_SPLIT_HEADS_BWD_OUT_DQG]};
    return run(dev, c, &t, join_rows);
}

/* in: o[N,H*D] qg[N,2*H*D]; out: y[N,H*D]. */
pl_err PL_CPU(sigmoid_gate)(struct pl_device *dev, const struct pl_call *c) {
    struct gate t = {.o = c->in[PL_SIGMOID_GATE_O],
                     .qg = c->in[PL_SIGMOID_GATE_QG],
                     .y = c->out[PL_SIGMOID_GATE_OUT_Y]};
    return run(dev, c, &t, gate_rows);
}

/* in: dy[N,H*D] o[N,H*D] qg[N,2*H*D]; out: do[N,H*D] dqg[N,2*H*D]. */
pl_err PL_CPU(sigmoid_gate_bwd)(struct pl_device *dev, const struct pl_call *c) {
    struct gate t = {.y = c->in[PL_SIGMOID_GATE_BWD_DY],
                     .o = c->in[PL_SIGMOID_GATE_BWD_O],
                     .qg = c->in[PL_SIGMOID_GATE_BWD_QG],
                     .go = c->out[PL_SIGMOID_GATE_BWD_OUT_DO],
                     .gqg = c->out[PL_SIGMOID_GATE_BWD_OUT_DQG]};
    return run(dev, c, &t, gradient_rows);
}
