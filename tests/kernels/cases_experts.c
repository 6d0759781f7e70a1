/* cases_experts.c - ROUTE, AUX_LOSS, EXPERT_ORDER, DISPATCH, COMBINE, SWIGLU_CLAMPED and their
 * gradients. */
#include "tests/kernels/cases.h"
#include "tests/kernels/ref_experts.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    uint64_t tokens, cols, experts, k;
};

/* No token, one, chunks of 64 and one more; one expert, whole warps of them and the most there may
 * be; every expert of a token. Every shape has two rounds, one of them in one storage. */
static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{0, 16, 8, 2},    {1, 1, 1, 1},     {64, 24, 32, 4},
                                         {65, 513, 33, 8}, {130, 8, 5, 5},   {3, 40, 128, 8},
                                         {9, 64, 1024, 3}, {200, 30, 60, 1}, {17, 1030, 64, 40}};
    if (t->round / 2 < sizeof edges / sizeof *edges) return edges[t->round / 2];
    struct shape s = {.tokens = draw(t, 0, 300), .cols = draw(t, 1, 200)};
    s.experts = draw(t, 1, 160);
    s.k = draw(t, 1, s.experts < 8 ? s.experts : 8);
    return s;
}

static double *doubles(uint64_t n) {
    double *x = calloc(n ? n : 1, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

/* ---- ROUTE, AUX_LOSS ---- */

static void start_router(struct trial *t, const struct shape *s) {
    t->attr.softmax_first = draw(t, 0, 1);
    t->attr.normalise = draw(t, 0, 1);
    t->attr.aux_layers = (uint32_t)draw(t, 1, 4);
    t->attr.aux_coef = draw(t, 0, 1) ? 0.0625f : 0.0f;
    t->batch.n_tokens = s->tokens + draw(t, 0, 1) * 50;
    t->batch.loss_scale = 0.0625f;
    t->batch.aux_scale = 0.25f;
}

/* In half of the rounds there are few different logits, so that many are equal. */
static void add_logits(struct trial *t, const struct shape *s) {
    struct operand *x = add_in(t, 0, s->tokens, s->experts, draw_float(t));
    const bool has_ties = draw(t, 0, 1);
    for (uint64_t i = 0; has_ties && i < s->tokens; i++)
        for (uint64_t e = 0; e < s->experts; e++)
            set_value(x, i, e, (double)draw(t, 0, 6) / 2 - 1.5);
}

static struct ref_router router_of(const struct trial *t, uint64_t k) {
    return (struct ref_router){.n = t->in[0]->view.rows,
                               .experts = t->in[0]->view.cols,
                               .k = k,
                               .softmax_first = t->attr.softmax_first,
                               .normalise = t->attr.normalise,
                               .logits = t->in[0]->x};
}

static void build_route(struct trial *t) {
    const struct shape s = draw_shape(t);
    start_router(t, &s);
    add_logits(t, &s);
    if (t->attr.aux_coef > 0 && draw(t, 0, 1))
        also_out(t, add_vector_in(t, PL_ROUTE_STATS, 2 * s.experts, PL_DTYPE_F64),
                 PL_ROUTE_OUT_STATS);
    else if (t->attr.aux_coef > 0)
        add_vector_out(t, PL_ROUTE_OUT_STATS, 2 * s.experts, PL_DTYPE_F64);
    add_ws(t, PL_ROUTE_WS, s.tokens, s.experts);
    add_out(t, PL_ROUTE_OUT_WEIGHT, s.tokens, s.k, PL_DTYPE_F32);
    add_out(t, PL_ROUTE_OUT_EXPERT, s.tokens, s.k, PL_DTYPE_I32);
}

static void reference_route(struct trial *t) {
    struct operand *weight = t->out[PL_ROUTE_OUT_WEIGHT], *expert = t->out[PL_ROUTE_OUT_EXPERT];
    struct operand *stats = t->out[PL_ROUTE_OUT_STATS];
    const struct ref_router r = router_of(t, weight->view.cols);
    double *p = doubles(r.n * r.experts);
    ref_route(&r, weight->want, expert->want, p);
    for (uint64_t i = 0; stats && i < 2 * r.experts; i++) {
        if (!t->in[PL_ROUTE_STATS]) stats->want[i] = 0;
        stats->scale[i] = fabs(stats->want[i]);
    }
    for (uint64_t i = 0; stats && i < r.n * r.k; i++)
        stats->want[(uint64_t)expert->want[i]]++;
    for (uint64_t i = 0; stats && i < r.n * r.experts; i++) {
        stats->want[r.experts + i % r.experts] += p[i];
        stats->scale[r.experts + i % r.experts] += p[i];
    }
    free(p);
}

static void build_route_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    start_router(t, &s);
    add_logits(t, &s);
    struct operand *weight = add_in(t, PL_ROUTE_BWD_WEIGHT, s.tokens, s.k, PL_DTYPE_F32);
    struct operand *expert = add_in(t, PL_ROUTE_BWD_EXPERT, s.tokens, s.k, PL_DTYPE_I32);
    add_in(t, PL_ROUTE_BWD_DWEIGHT, s.tokens, s.k, PL_DTYPE_F32);
    if (t->attr.aux_coef > 0) {
        struct operand *stats = add_vector_in(t, PL_ROUTE_BWD_STATS, 2 * s.experts, PL_DTYPE_F64);
        for (uint64_t e = 0; e < s.experts; e++)
            set_value(stats, e, 0, (double)draw(t, 0, 50));
    }
    add_out(t, 0, s.tokens, s.experts, draw_float(t));
    const struct ref_router r = router_of(t, s.k);
    double *p = doubles(s.tokens * s.experts);
    ref_route(&r, weight->want, expert->want, p);
    for (uint64_t i = 0; i < s.tokens * s.k; i++) {
        set_value(weight, i / s.k, i % s.k, weight->want[i]);
        set_value(expert, i / s.k, i % s.k, expert->want[i]);
    }
    free(p);
}

static void reference_route_bwd(struct trial *t) {
    const struct operand *weight = t->in[PL_ROUTE_BWD_WEIGHT], *stats = t->in[PL_ROUTE_BWD_STATS];
    const struct ref_router r = router_of(t, weight->view.cols);
    const double all = (double)t->attr.aux_layers * (double)t->batch.n_tokens;
    const double factor = (double)t->attr.aux_coef * (double)t->batch.aux_scale * (double)r.experts;
    double *dp = doubles(r.experts);
    for (uint64_t e = 0; stats && e < r.experts; e++)
        dp[e] = factor * stats->x[e] / all / all;
    ref_route_bwd(&r, weight->x, t->in[PL_ROUTE_BWD_EXPERT]->x, t->in[PL_ROUTE_BWD_DWEIGHT]->x,
                  stats ? dp : NULL, t->out[0]->want, t->out[0]->scale);
    free(dp);
}

static void build_aux_loss(struct trial *t) {
    const struct shape s = draw_shape(t);
    start_router(t, &s);
    if (t->round == 3) t->batch.loss_scale = 0;
    struct operand *stats = add_vector_in(t, 0, 2 * s.experts, PL_DTYPE_F64);
    for (uint64_t i = 0; i < 2 * s.experts; i++)
        set_value(stats, i, 0, (double)draw(t, 0, 1000) / 16);
    also_out(t, add_vector_in(t, 1, 2, PL_DTYPE_F64), 0);
}

static void reference_aux_loss(struct trial *t) {
    const uint64_t n = t->in[0]->view.rows / 2;
    const double *stats = t->in[0]->x, all = (double)t->attr.aux_layers * (double)t->batch.n_tokens;
    double sum = 0;
    if (all <= 0 || t->batch.loss_scale == 0) return;
    for (uint64_t e = 0; e < n; e++)
        sum += stats[e] * stats[n + e];
    sum *= (double)t->attr.aux_coef * (double)n / all / all * (double)t->batch.aux_scale /
           (double)t->batch.loss_scale;
    t->out[0]->scale[0] = fabs(t->out[0]->want[0]) + sum;
    t->out[0]->want[0] += sum;
}

/* ---- EXPERT_ORDER ---- */

/* Experts that differ within a token, of which some get no token. */
static void build_order(struct trial *t) {
    const struct shape s = draw_shape(t);
    struct operand *expert = add_in(t, 0, s.tokens, s.k, PL_DTYPE_I32);
    const uint64_t used = draw(t, s.k, s.experts);
    for (uint64_t i = 0; i < s.tokens; i++) {
        const uint64_t first = draw(t, 0, used - 1);
        for (uint64_t j = 0; j < s.k; j++)
            set_value(expert, i, j, (double)((first + j) % used));
    }
    add_vector_out(t, 0, s.experts + 1, PL_DTYPE_I32);
    add_vector_out(t, 1, s.tokens * s.k, PL_DTYPE_I32);
    add_vector_out(t, 2, s.tokens * s.k, PL_DTYPE_I32);
}

static void reference_order(struct trial *t) {
    const struct operand *expert = t->in[0];
    const uint64_t n = expert->view.rows * expert->view.cols, experts = t->out[0]->view.rows - 1;
    uint64_t at = 0;
    for (uint64_t e = 0; e < experts; e++) {
        t->out[0]->want[e] = (double)at;
        for (uint64_t i = 0; i < n; i++) {
            if ((uint64_t)expert->x[i] != e) continue;
            t->out[1]->want[at] = (double)i;
            t->out[2]->want[i] = (double)at++;
        }
    }
    t->out[0]->want[experts] = (double)at;
}

/* ---- DISPATCH, COMBINE ---- */

/* The assignments in any order, as EXPERT_ORDER may leave them. */
static void add_permutation(struct trial *t, uint32_t slot, uint64_t n) {
    struct operand *o = add_vector_in(t, slot, n, PL_DTYPE_I32);
    for (uint64_t i = 0; i < n; i++)
        set_value(o, i, 0, (double)i);
    for (uint64_t i = 1; i < n; i++) {
        const uint64_t other = draw(t, 0, i);
        const double x = o->x[i];
        set_value(o, i, 0, o->x[other]);
        set_value(o, other, 0, x);
    }
}

static void build_dispatch(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_in(t, 0, s.tokens, s.cols, draw_float(t));
    add_permutation(t, 1, s.tokens * s.k);
    add_out(t, 0, s.tokens * s.k, s.cols, draw_float(t));
}

static void reference_dispatch(struct trial *t) {
    struct operand *xr = t->out[0];
    const uint64_t cols = xr->view.cols, k = xr->view.rows / (t->in[0]->view.rows + !xr->view.rows);
    for (uint64_t i = 0; i < xr->view.rows * cols; i++)
        xr->want[i] = t->in[0]->x[(uint64_t)t->in[1]->x[i / cols] / k * cols + i % cols];
}

static void build_dispatch_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    t->attr.accumulate = (enum pl_accumulate)draw(t, 0, 2);
    t->batch.first = draw(t, 0, 1);
    const bool adds = t->attr.accumulate == PL_ACC_ADD ||
                      (t->attr.accumulate == PL_ACC_FIRST_WRITES && !t->batch.first);
    add_in(t, 0, s.tokens * s.k, s.cols, draw_float(t));
    add_permutation(t, 1, s.tokens * s.k);
    if (adds)
        also_out(t, add_in(t, 2, s.tokens, s.cols, draw_float(t)), 0);
    else
        add_out(t, 0, s.tokens, s.cols, draw_float(t));
}

/* want += the sum over the experts of a token of its routed rows, times weight[N,k] if there is
 * one. */
static void add_routed(struct trial *t, const struct operand *routed, const double *weight,
                       const double *place, struct operand *to) {
    const uint64_t cols = to->view.cols, tokens = to->view.rows;
    const uint64_t k = tokens ? routed->view.rows / tokens : 0;
    for (uint64_t i = 0; i < tokens * cols; i++) {
        to->want[i] = t->in[2] == to ? to->x[i] : 0;
        to->scale[i] = fabs(to->want[i]);
    }
    for (uint64_t i = 0; i < tokens * k * cols; i++) {
        const uint64_t row = i / cols, at = row / k * cols + i % cols;
        const double x = routed->x[(uint64_t)place[row] * cols + i % cols];
        const double term = weight ? weight[row] * x : x;
        to->want[at] += term;
        to->scale[at] += fabs(term);
    }
}

static void reference_dispatch_bwd(struct trial *t) {
    add_routed(t, t->in[0], NULL, t->in[1]->x, t->out[0]);
}

static void build_combine(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_in(t, 0, s.tokens * s.k, s.cols, draw_float(t));
    add_in(t, 1, s.tokens, s.k, PL_DTYPE_F32);
    add_permutation(t, 2, s.tokens * s.k);
    add_out(t, 0, s.tokens, s.cols, draw_float(t));
}

static void reference_combine(struct trial *t) {
    add_routed(t, t->in[0], t->in[1]->x, t->in[2]->x, t->out[0]);
}

static void build_combine_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_in(t, 0, s.tokens, s.cols, draw_float(t));
    also_out(t, add_in(t, 1, s.tokens * s.k, s.cols, draw_float(t)), 0);
    add_in(t, 2, s.tokens, s.k, PL_DTYPE_F32);
    add_permutation(t, 3, s.tokens * s.k);
    add_out(t, 1, s.tokens, s.k, PL_DTYPE_F32);
}

static void reference_combine_bwd(struct trial *t) {
    struct operand *yr = t->out[0], *dweight = t->out[1];
    const uint64_t cols = yr->view.cols, k = dweight->view.cols;
    for (uint64_t i = 0; i < yr->view.rows; i++) {
        const uint64_t row = (uint64_t)t->in[3]->x[i];
        double sum = 0, scale = 0;
        for (uint64_t c = 0; c < cols; c++) {
            const double dy = t->in[0]->x[i / k * cols + c], y = yr->x[row * cols + c];
            sum += dy * y;
            scale += fabs(dy * y);
            yr->want[row * cols + c] = t->in[2]->x[i] * dy;
        }
        dweight->want[i] = sum;
        dweight->scale[i] = scale;
    }
}

/* ---- SWIGLU_CLAMPED ---- */

/* Some values pass the bounds, and some stand on them. */
static struct operand *add_pairs(struct trial *t, const struct shape *s) {
    t->attr.limit = 1.5f;
    t->attr.alpha = 1.75f;
    struct operand *gu = add_in(t, 0, s->tokens, 2 * s->cols, draw_float(t));
    if (s->tokens) set_value(gu, 0, 0, 1.5);
    if (s->tokens) set_value(gu, 0, 1, -1.5);
    return gu;
}

static void build_clamped(struct trial *t) {
    const struct shape s = draw_shape(t);
    add_pairs(t, &s);
    add_out(t, 0, s.tokens, s.cols, draw_float(t));
}

static void reference_clamped(struct trial *t) {
    const struct operand *m = t->out[0];
    ref_clamped(m->view.rows, m->view.cols, (double)t->attr.limit, (double)t->attr.alpha,
                t->in[0]->x, m->want);
    for (uint64_t i = 0; i < m->view.rows * m->view.cols; i++)
        m->scale[i] = fabs(m->want[i]) + fabs(t->in[0]->x[2 * i]);
}

static void build_clamped_bwd(struct trial *t) {
    const struct shape s = draw_shape(t);
    also_out(t, add_pairs(t, &s), 0);
    struct operand *dm = add_in(t, 1, s.tokens, s.cols, draw_float(t));
    if (draw(t, 0, 1)) return;
    t->in[2] = dm;
    also_out(t, dm, 1);
}

/* A slope is a sum of terms that may cancel: of the size of dm times up + 1, at most 2.5. */
static void reference_clamped_bwd(struct trial *t) {
    const struct operand *gu = t->out[0], *dm = t->in[1], *m = t->out[1];
    for (uint64_t i = 0; m && i < m->view.rows * m->view.cols; i++) {
        ref_clamped(1, 1, (double)t->attr.limit, (double)t->attr.alpha, gu->x + 2 * i, m->want + i);
        m->scale[i] = fabs(m->want[i]) + fabs(gu->x[2 * i]);
    }
    ref_clamped_bwd(dm->view.rows, dm->view.cols, (double)t->attr.limit, (double)t->attr.alpha,
                    gu->x, dm->x, gu->want);
    for (uint64_t i = 0; i < dm->view.rows * dm->view.cols; i++)
        gu->scale[2 * i] = gu->scale[2 * i + 1] = 3 * fabs(dm->x[i]);
}

/* Sums of at most 1,030 terms in fp32, in blocks or spread over lanes; a probability has the
 * relative error of its exponential. */
const struct kernel_case cases_experts[] = {
    {"route", PL_OP_ROUTE, 40, 1e-6, build_route, reference_route},
    {"route_bwd", PL_OP_ROUTE_BWD, 40, 2e-6, build_route_bwd, reference_route_bwd},
    {"aux_loss", PL_OP_AUX_LOSS, 20, 1e-12, build_aux_loss, reference_aux_loss},
    {"expert_order", PL_OP_EXPERT_ORDER, 30, 0, build_order, reference_order},
    {"dispatch", PL_OP_DISPATCH, 30, 0, build_dispatch, reference_dispatch},
    {"dispatch_bwd", PL_OP_DISPATCH_BWD, 30, 1e-6, build_dispatch_bwd, reference_dispatch_bwd},
    {"combine", PL_OP_COMBINE, 30, 1e-6, build_combine, reference_combine},
    {"combine_bwd", PL_OP_COMBINE_BWD, 30, 1e-6, build_combine_bwd, reference_combine_bwd},
    {"swiglu_clamped", PL_OP_SWIGLU_CLAMPED, 30, 1e-6, build_clamped, reference_clamped},
    {"swiglu_clamped_bwd", PL_OP_SWIGLU_CLAMPED_BWD, 30, 1e-6, build_clamped_bwd,
     reference_clamped_bwd},
    {0},
};
