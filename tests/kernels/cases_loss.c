/* cases_loss.c - SWIGLU, GEGLU, GELU_MUL, their gradients, SOFTCAP, CROSS_ENTROPY. */
#include "estimator/ops/padding.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_norm.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    uint64_t rows, cols;
};

static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{0, 3}, {1, 1}, {1, 512}, {2, 513}, {7, 5000}, {300, 2}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    return (struct shape){draw(t, 0, 60), draw(t, 1, 1500)};
}

/* Gates far out, where the sigmoid is 0 or 1 in fp32, have their place among normal ones. */
static struct operand *add_gates(struct trial *t, struct shape s) {
    struct operand *gu = add_in(t, 0, s.rows, 2 * s.cols, draw_float(t));
    for (uint64_t i = 0; i < s.rows; i++)
        for (uint64_t k = 0; k < 3; k++)
            set_value(gu, i, draw(t, 0, s.cols - 1), 60 * draw_normal(t));
    return gu;
}

static void build_glu(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_gates(t, s);
    add_out(t, 0, s.rows, s.cols, draw_float(t));
}

static void reference_glu(struct trial *t, const struct ref_act *act) {
    struct operand *m = t->out[0];
    ref_glu(act, m->view.rows, m->view.cols, t->in[0]->x, m->want, m->scale);
    for (uint64_t i = 0; i < m->view.rows * m->view.cols; i++)
        m->scale[i] = fmax(m->scale[i], 1e-30);
}
static void reference_swiglu(struct trial *t) {
    reference_glu(t, &ref_silu);
}
static void reference_geglu(struct trial *t) {
    reference_glu(t, &ref_gelu);
}

static void build_glu_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    also_out(t, add_gates(t, s), 0);
    struct operand *dm = add_in(t, 1, s.rows, s.cols, draw_float(t));
    switch (draw(t, 0, 2)) {
    case 1:
        add_out(t, 1, s.rows, s.cols, draw_float(t));
        break;
    case 2:
        t->in[2] = dm;
        also_out(t, dm, 1);
    }
}

static void reference_glu_bwd(struct trial *t, const struct ref_act *act) {
    struct operand *gu = t->out[0], *m = t->out[1];
    if (m) ref_glu(act, m->view.rows, m->view.cols, gu->x, m->want, m->scale);
    for (uint64_t i = 0; m && i < m->view.rows * m->view.cols; i++)
        m->scale[i] = fmax(m->scale[i], 1e-30);
    ref_glu_bwd(act, gu->view.rows, gu->view.cols / 2, gu->x, t->in[1]->x, gu->want, gu->scale);
    for (uint64_t i = 0; i < gu->view.rows * gu->view.cols; i++)
        gu->scale[i] = fmax(gu->scale[i], 1e-30);
}
static void reference_swiglu_bwd(struct trial *t) {
    reference_glu_bwd(t, &ref_silu);
}
static void reference_geglu_bwd(struct trial *t) {
    reference_glu_bwd(t, &ref_gelu);
}

/* The operands of the reference, which has gate and up side by side. */
static double *side_by_side(const struct operand *g, const struct operand *u) {
    const uint64_t cols = g->view.cols;
    double *gu = calloc(2 * g->view.rows * cols + 1, sizeof *gu);
    ck_assert_ptr_nonnull(gu);
    for (uint64_t i = 0; i < g->view.rows * cols; i++) {
        gu[i / cols * 2 * cols + i % cols] = g->x[i];
        gu[i / cols * 2 * cols + cols + i % cols] = u->x[i];
    }
    return gu;
}

static void build_gelu_mul(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_in(t, 0, s.rows, s.cols, draw_float(t));
    add_in(t, 1, s.rows, s.cols, draw_float(t));
    add_out(t, 0, s.rows, s.cols, draw_float(t));
}

static void reference_gelu_mul(struct trial *t) {
    struct operand *m = t->out[0];
    double *gu = side_by_side(t->in[0], t->in[1]);
    ref_glu(&ref_gelu, m->view.rows, m->view.cols, gu, m->want, m->scale);
    for (uint64_t i = 0; i < m->view.rows * m->view.cols; i++)
        m->scale[i] = fmax(m->scale[i], 1e-30);
    free(gu);
}

static void build_gelu_mul_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    also_out(t, add_in(t, 0, s.rows, s.cols, draw_float(t)), 0);
    add_in(t, 1, s.rows, s.cols, draw_float(t));
    add_in(t, 2, s.rows, s.cols, draw_float(t));
    if (draw(t, 0, 2)) add_out(t, 1, s.rows, s.cols, draw_float(t));
}

static void reference_gelu_mul_bwd(struct trial *t) {
    struct operand *g = t->out[0], *du = t->out[1];
    const uint64_t cols = g->view.cols, n = g->view.rows * cols;
    double *gu = side_by_side(g, t->in[1]), *want = calloc(4 * n + 1, sizeof *want);
    ck_assert_ptr_nonnull(want);
    ref_glu_bwd(&ref_gelu, g->view.rows, cols, gu, t->in[2]->x, want, want + 2 * n);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t at = i / cols * 2 * cols + i % cols;
        g->want[i] = want[at];
        g->scale[i] = fmax(want[2 * n + at], 1e-30);
        if (du) du->want[i] = want[at + cols];
        if (du) du->scale[i] = fmax(want[2 * n + at + cols], 1e-30);
    }
    free(gu);
    free(want);
}

static uint64_t first_largest(const struct operand *logits, uint64_t row) {
    const double *x = logits->x + row * logits->view.cols;
    uint64_t best = 0;
    for (uint64_t j = 1; j < logits->view.cols; j++)
        if (x[j] > x[best]) best = j;
    return best;
}

/* A target that is the largest logit of its row, alone, or with another one as large. */
static void draw_target(struct trial *t, struct operand *logits, struct operand *targets,
                        uint64_t row) {
    const uint64_t cols = logits->view.cols, best = first_largest(logits, row);
    const uint64_t other = (uint64_t)draw(t, 0, cols - 1);
    const int kind = (int)draw(t, 0, 3);
    if (kind == 1) set_value(logits, row, other, logits->x[row * cols + best]);
    set_value(targets, row, 0, (double)(kind < 2 ? best : other));
}

/* Numbers near 0, near the bound and far above it. */
static void build_softcap(struct trial *t) {
    const struct shape s = draw_shape(t);
    t->attr.limit = draw(t, 0, 1) ? 30.0f : 8.0f;
    struct operand *z = add_in(t, 0, s.rows, s.cols, draw_float(t));
    for (uint64_t i = 0; i < s.rows; i++)
        for (uint64_t j = 0; j < s.cols; j++)
            set_value(z, i, j, draw_normal(t) * (j % 3 ? 20 : j % 2 ? 0.01 : 300));
    also_out(t, z, 0);
}

static void reference_softcap(struct trial *t) {
    struct operand *z = t->out[0];
    const double limit = (double)t->attr.limit;
    for (uint64_t i = 0; i < z->view.rows * z->view.cols; i++) {
        z->want[i] = limit * tanh(z->want[i] / limit);
        z->scale[i] = limit;
    }
}

/* Logits wander down the row, so that the running maximum changes and much underflows; the first
 * rows have one that stands above all by more than fp32 can add. Rounds take turns between no
 * weights, weights with log-probabilities, and these alone. */
static void build_cross_entropy(struct trial *t) {
    const struct shape s = draw_shape(t);
    t->attr.gradient = draw(t, 0, 1);
    t->attr.limit = t->round % 4 == 3 ? 160.0f : 0.0f; /* above all logits, as those of softcap */
    t->batch.loss_scale = 1.0f / 64;
    struct operand *logits = add_in(t, 0, s.rows, s.cols, draw_float(t));
    struct operand *targets = add_vector_in(t, 1, s.rows, PL_DTYPE_I32);
    for (uint64_t i = 0; i < s.rows; i++) {
        const double slope = 30 * draw_normal(t) / (double)s.cols;
        for (uint64_t j = 0; j < s.cols; j++)
            set_value(logits, i, j, 2 * draw_normal(t) + slope * (double)j);
        if (i < 2) set_value(logits, i, draw(t, 0, s.cols - 1), 120);
        draw_target(t, logits, targets, i);
        if (i % 7 == 3) set_value(targets, i, 0, PL_TARGET_NONE);
    }
    also_out(t, logits, 0);
    also_out(t, add_vector_in(t, 2, 2, PL_DTYPE_F64), 1);
    add_ws(t, 3, s.rows, s.cols);
    if (t->round % 3 == 1) {
        struct operand *weights = add_vector_in(t, 4, s.rows, PL_DTYPE_F32);
        for (uint64_t i = 0; i < s.rows; i++)
            set_value(weights, i, 0, i % 5 ? draw_normal(t) : 0);
    }
    if (t->round % 3) add_vector_out(t, 2, s.rows, PL_DTYPE_F64);
}

/* One row; returns its loss. */
static double reference_loss_of_row(struct trial *t, uint64_t row, double weight) {
    struct operand *l = t->out[0], *logp = t->out[2];
    const uint64_t at = row * l->view.cols;
    const double *target = t->in[1]->x + row;
    if (*target == PL_TARGET_NONE) {
        if (logp) logp->scale[row] = 1e-30;
        for (uint64_t j = at; t->attr.gradient && j < at + l->view.cols; j++)
            l->want[j] = 0, l->scale[j] = 1e-30;
        return 0;
    }
    const double loss = ref_cross_entropy(1, l->view.cols, l->x + at, target);
    if (logp) {
        logp->want[row] = -loss;
        logp->scale[row] = 1 + loss;
    }
    if (t->attr.gradient)
        ref_cross_entropy_bwd(1, l->view.cols, (double)t->batch.loss_scale * weight, l->x + at,
                              target, l->want + at, l->scale + at);
    for (uint64_t j = at; t->attr.gradient && t->attr.limit > 0 && j < at + l->view.cols; j++)
        l->want[j] *= 1 - pow(l->x[j] / (double)t->attr.limit, 2);
    return weight * loss;
}

static void reference_cross_entropy(struct trial *t) {
    struct operand *l = t->out[0], *loss = t->out[1];
    const struct operand *weights = t->in[4];
    double magnitude = 0;
    for (uint64_t i = 0; i < l->view.rows; i++) {
        const double added = reference_loss_of_row(t, i, weights ? weights->x[i] : 1);
        loss->want[0] += added;
        magnitude += fabs(added);
    }
    loss->scale[0] = 1 + magnitude + fabs(loss->x[0]) + (double)l->view.rows;
    loss->scale[1] = 1e-6; /* whole numbers */
    const bool counts = !t->attr.gradient && !weights && !t->out[2];
    for (uint64_t i = 0; counts && i < l->view.rows; i++)
        loss->want[1] += (double)first_largest(l, i) == t->in[1]->x[i];
    for (uint64_t i = 0; t->attr.gradient && i < l->view.rows * l->view.cols; i++)
        l->scale[i] = fmax(fabs(l->scale[i]), 1e-30);
}

/* exp(x - max) carries the rounding of the difference, half a unit of up to 2^7: 8e-6 for logits
 * that differ by a hundred, where the result is negligible; 1e-6 within ten of the maximum. */
const struct kernel_case cases_loss[] = {
    {"swiglu", PL_OP_SWIGLU, 16, 1e-6, build_glu, reference_swiglu},
    {"swiglu_bwd", PL_OP_SWIGLU_BWD, 16, 1e-6, build_glu_bwd, reference_swiglu_bwd},
    {"geglu", PL_OP_GEGLU, 16, 1e-6, build_glu, reference_geglu},
    {"geglu_bwd", PL_OP_GEGLU_BWD, 16, 1e-6, build_glu_bwd, reference_geglu_bwd},
    {"gelu_mul", PL_OP_GELU_MUL, 16, 1e-6, build_gelu_mul, reference_gelu_mul},
    {"gelu_mul_bwd", PL_OP_GELU_MUL_BWD, 16, 1e-6, build_gelu_mul_bwd, reference_gelu_mul_bwd},
    {"softcap", PL_OP_SOFTCAP, 20, 3e-7, build_softcap, reference_softcap},
    {"cross_entropy", PL_OP_CROSS_ENTROPY, 24, 4e-6, build_cross_entropy, reference_cross_entropy},
    {0},
};
