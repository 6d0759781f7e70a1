/* cases_gates.c - GATED_NORM, SPLIT_HEADS, SIGMOID_GATE and their gradients. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_delta.h"

#include <math.h>

struct shape {
    uint64_t rows, heads, dim;
};

/* No row, chunks of 64 and one more, heads wider than a chunk of columns; every shape has two
 * rounds, one of them in one storage. */
static struct shape start(struct trial *t) {
    static const struct shape edges[] = {{0, 3, 16},   {1, 1, 128}, {64, 2, 24},
                                         {65, 3, 128}, {3, 2, 600}, {130, 1, 7}};
    static const uint64_t dims[] = {8, 16, 24, 64, 128, 256};
    struct shape s = {draw(t, 0, 150), draw(t, 1, 5), dims[draw(t, 0, 5)]};
    if (t->round / 2 < sizeof edges / sizeof *edges) s = edges[t->round / 2];
    t->attr.head_dim = (uint32_t)s.dim;
    t->attr.eps = 1e-6f;
    return s;
}

static struct ref_gated norm_of(const struct trial *t, const struct operand *o) {
    return (struct ref_gated){o->view.rows * o->view.cols / t->attr.head_dim, t->attr.head_dim,
                              (double)t->attr.eps};
}

static void build_norm(struct trial *t) {
    const struct shape s = start(t);
    add_in(t, PL_GATED_NORM_O, s.rows, s.heads * s.dim, draw_float(t));
    add_in(t, PL_GATED_NORM_Z, s.rows, s.heads * s.dim, draw_float(t));
    add_vector_in(t, PL_GATED_NORM_W, s.dim, draw_float(t));
    add_out(t, PL_GATED_NORM_OUT_Y, s.rows, s.heads * s.dim, draw_float(t));
    add_out(t, PL_GATED_NORM_OUT_RSTD, s.rows, s.heads, PL_DTYPE_F32);
}

static void reference_norm(struct trial *t) {
    ref_gated_norm(norm_of(t, t->in[0]), t->in[PL_GATED_NORM_O]->x, t->in[PL_GATED_NORM_Z]->x,
                   t->in[PL_GATED_NORM_W]->x, t->out[PL_GATED_NORM_OUT_Y]->want,
                   t->out[PL_GATED_NORM_OUT_RSTD]->want);
}

static void build_norm_bwd(struct trial *t) {
    const struct shape s = start(t);
    const uint64_t cols = s.heads * s.dim;
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    add_in(t, PL_GATED_NORM_BWD_DY, s.rows, cols, draw_float(t));
    struct operand *o = add_in(t, PL_GATED_NORM_BWD_O, s.rows, cols, draw_float(t));
    add_in(t, PL_GATED_NORM_BWD_Z, s.rows, cols, draw_float(t));
    add_vector_in(t, PL_GATED_NORM_BWD_W, s.dim, draw_float(t));
    struct operand *rstd = add_in(t, PL_GATED_NORM_BWD_RSTD, s.rows, s.heads, PL_DTYPE_F32);
    for (uint64_t i = 0; i < s.rows * s.heads; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < s.dim; k++)
            sum += o->x[i * s.dim + k] * o->x[i * s.dim + k];
        set_value(rstd, i / s.heads, i % s.heads, 1 / sqrt(sum / (double)s.dim + 1e-6));
    }
    add_out(t, PL_GATED_NORM_BWD_OUT_DO, s.rows, cols, draw_float(t));
    add_out(t, PL_GATED_NORM_BWD_OUT_DZ, s.rows, cols, draw_float(t));
    if (draw(t, 0, 3) == 0) return;
    add_ws(t, PL_GATED_NORM_BWD_WS, s.rows, cols);
    if (pl_call_adds(&c))
        also_out(t, add_vector_in(t, PL_GATED_NORM_BWD_DW, s.dim, draw_float(t)), 2);
    else
        also_in(t, add_vector_out(t, 2, s.dim, draw_float(t)), PL_GATED_NORM_BWD_DW);
}

static void reference_norm_bwd(struct trial *t) {
    const struct pl_call c = {.attr = &t->attr, .batch = &t->batch};
    struct operand *go = t->out[0], *gz = t->out[1], *dw = t->out[2];
    for (uint64_t i = 0; dw && i < dw->view.rows; i++) {
        if (!pl_call_adds(&c)) dw->want[i] = 0;
        dw->scale[i] = fabs(dw->want[i]);
    }
    const struct ref_gated_bwd g = {.dy = t->in[PL_GATED_NORM_BWD_DY]->x,
                                    .rstd = t->in[PL_GATED_NORM_BWD_RSTD]->x,
                                    .go = go->want,
                                    .gz = gz->want,
                                    .dw = dw ? dw->want : NULL,
                                    .go_magnitude = go->scale,
                                    .gz_magnitude = gz->scale,
                                    .dw_magnitude = dw ? dw->scale : NULL};
    ref_gated_norm_bwd(norm_of(t, t->in[0]), t->in[PL_GATED_NORM_BWD_O]->x,
                       t->in[PL_GATED_NORM_BWD_Z]->x, t->in[PL_GATED_NORM_BWD_W]->x, &g);
}

/* ---- heads of queries and their gates ---- */

/* The element of qg that belongs to element i of q; the gate's is dim later. */
static uint64_t wide_of(const struct trial *t, uint64_t i) {
    const uint64_t dim = t->attr.head_dim;
    return i / dim * 2 * dim + i % dim;
}

static void build_split(struct trial *t) {
    const struct shape s = start(t);
    add_in(t, PL_SPLIT_HEADS_QG, s.rows, 2 * s.heads * s.dim, draw_float(t));
    add_out(t, PL_SPLIT_HEADS_OUT_Q, s.rows, s.heads * s.dim, draw_float(t));
}

static void reference_split(struct trial *t) {
    struct operand *q = t->out[0];
    for (uint64_t i = 0; i < q->view.rows * q->view.cols; i++)
        q->want[i] = t->in[0]->x[wide_of(t, i)];
}

static void build_split_bwd(struct trial *t) {
    const struct shape s = start(t);
    add_in(t, PL_SPLIT_HEADS_BWD_DQ, s.rows, s.heads * s.dim, draw_float(t));
    also_out(t, add_in(t, PL_SPLIT_HEADS_BWD_DQG, s.rows, 2 * s.heads * s.dim, draw_float(t)), 0);
}

static void reference_split_bwd(struct trial *t) {
    const struct operand *dq = t->in[0];
    for (uint64_t i = 0; i < dq->view.rows * dq->view.cols; i++)
        t->out[0]->want[wide_of(t, i)] = dq->x[i];
}

static void build_gate(struct trial *t) {
    const struct shape s = start(t);
    add_in(t, PL_SIGMOID_GATE_O, s.rows, s.heads * s.dim, draw_float(t));
    add_in(t, PL_SIGMOID_GATE_QG, s.rows, 2 * s.heads * s.dim, draw_float(t));
    add_out(t, PL_SIGMOID_GATE_OUT_Y, s.rows, s.heads * s.dim, draw_float(t));
}

static void reference_gate(struct trial *t) {
    struct operand *y = t->out[0];
    for (uint64_t i = 0; i < y->view.rows * y->view.cols; i++)
        y->want[i] = t->in[0]->x[i] * ref_sigmoid(t->in[1]->x[wide_of(t, i) + t->attr.head_dim]);
}

static void build_gate_bwd(struct trial *t) {
    const struct shape s = start(t);
    add_in(t, PL_SIGMOID_GATE_BWD_DY, s.rows, s.heads * s.dim, draw_float(t));
    add_in(t, PL_SIGMOID_GATE_BWD_O, s.rows, s.heads * s.dim, draw_float(t));
    add_in(t, PL_SIGMOID_GATE_BWD_QG, s.rows, 2 * s.heads * s.dim, draw_float(t));
    add_out(t, PL_SIGMOID_GATE_BWD_OUT_DO, s.rows, s.heads * s.dim, draw_float(t));
    add_out(t, PL_SIGMOID_GATE_BWD_OUT_DQG, s.rows, 2 * s.heads * s.dim, draw_float(t));
}

/* The columns of queries are not written: they keep the NaN that outputs start with. */
static void reference_gate_bwd(struct trial *t) {
    struct operand *go = t->out[0], *gqg = t->out[1];
    for (uint64_t i = 0; i < go->view.rows * go->view.cols; i++) {
        const uint64_t query = wide_of(t, i), gate = query + t->attr.head_dim;
        const double dy = t->in[0]->x[i], s = ref_sigmoid(t->in[2]->x[gate]);
        go->want[i] = dy * s;
        gqg->want[query] = NAN;
        gqg->want[gate] = dy * t->in[1]->x[i] * s * (1 - s);
        gqg->scale[gate] = fabs(dy * t->in[1]->x[i] * s);
    }
}

/* Sums of a head in fp32, and the relative error of an exponential. */
const struct kernel_case cases_gates[] = {
    {"gated_norm", PL_OP_GATED_NORM, 30, 1e-6, build_norm, reference_norm},
    {"gated_norm_bwd", PL_OP_GATED_NORM_BWD, 40, 1e-6, build_norm_bwd, reference_norm_bwd},
    {"split_heads", PL_OP_SPLIT_HEADS, 20, 0, build_split, reference_split},
    {"split_heads_bwd", PL_OP_SPLIT_HEADS_BWD, 20, 0, build_split_bwd, reference_split_bwd},
    {"sigmoid_gate", PL_OP_SIGMOID_GATE, 20, 1e-6, build_gate, reference_gate},
    {"sigmoid_gate_bwd", PL_OP_SIGMOID_GATE_BWD, 20, 1e-6, build_gate_bwd, reference_gate_bwd},
    {0},
};
