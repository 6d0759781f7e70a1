/* check_derivatives.c - the reference backward functions of norms, rope, gated units, routers, the
 * loss, attention and linear attention against central differences of their forward functions.
 *
 * The loss is a random linear functional of the outputs, so its gradient by an input is the
 * backward function applied to the functional's weights. */
#include "tests/kernels/harness.h"
#include "tests/kernels/ref_attention.h"
#include "tests/kernels/ref_delta.h"
#include "tests/kernels/ref_experts.h"
#include "tests/kernels/ref_norm.h"

#include <check.h>
#include <string.h>

enum { MOST = 512 };

static void fill_normal(double *x, uint64_t n, uint64_t stream) {
    const struct pl_rng rng = pl_rng_init(11, stream, 0);
    for (uint64_t i = 0; i < n; i++) {
        float z[4];
        pl_rng_normal(&rng, i, z);
        x[i] = z[0];
    }
}

static double inner(const double *a, const double *b, uint64_t n) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- norms ---- */

struct norm_problem {
    struct ref_norm shape;
    double x[MOST], w[MOST], weights[MOST];
};

static double norm_loss(void *ctx) {
    const struct norm_problem *p = ctx;
    double y[MOST], rstd[MOST];
    ref_norm_rstd(p->shape, p->x, rstd);
    ref_norm_scale(p->shape, p->x, p->w, rstd, y);
    return inner(y, p->weights, p->shape.rows * p->shape.heads * p->shape.dim);
}

static void check_norm(const char *what, struct ref_norm shape) {
    const uint64_t n = shape.rows * shape.heads * shape.dim;
    struct norm_problem p = {.shape = shape};
    double rstd[MOST], dx[MOST] = {0}, dw[MOST] = {0};
    fill_normal(p.x, n, 1);
    fill_normal(p.w, shape.dim, 2);
    fill_normal(p.weights, n, 3);
    ref_norm_rstd(shape, p.x, rstd);
    ref_norm_bwd(shape, p.weights, p.x, p.w, rstd, dx, NULL, dw, NULL);
    check_gradient(what, norm_loss, &p, p.x, n, dx);
    check_gradient(what, norm_loss, &p, p.w, shape.dim, dw);
}

START_TEST(rmsnorm_has_its_derivative) {
    check_norm("rmsnorm", (struct ref_norm){3, 1, 17, 1e-2});
}
END_TEST

START_TEST(qk_norm_has_its_derivative) {
    check_norm("qk_norm", (struct ref_norm){3, 4, 6, 1e-2});
}
END_TEST

/* ---- rope ---- */

struct rope_problem {
    struct ref_rope shape;
    double x[MOST], pos[8], table[MOST], weights[MOST];
};

static double rope_loss(void *ctx) {
    const struct rope_problem *p = ctx;
    const uint64_t n = p->shape.rows * p->shape.heads * p->shape.dim;
    double y[MOST];
    memcpy(y, p->x, n * sizeof *y);
    ref_rope(p->shape, p->pos, p->table, y, NULL);
    return inner(y, p->weights, n);
}

/* The table is not of unit length here: the gradient is the transpose, not the inverse. */
START_TEST(turning_back_is_the_derivative_of_rope) {
    struct rope_problem p = {.shape = {4, 3, 10, 4, 1}, .pos = {0, 2, 1, 2}};
    struct ref_rope back = p.shape;
    const uint64_t n = back.rows * back.heads * back.dim;
    double dx[MOST];
    fill_normal(p.x, n, 4);
    fill_normal(p.table, 3 * back.pairs * 2, 5);
    fill_normal(p.weights, n, 6);
    memcpy(dx, p.weights, n * sizeof *dx);
    back.sign = -1;
    ref_rope(back, p.pos, p.table, dx, NULL);
    check_gradient("rope", rope_loss, &p, p.x, n, dx);
}
END_TEST

/* ---- gated units ---- */

struct rows_problem {
    uint64_t rows, cols;
    double x[MOST], weights[MOST], targets[8];
};

static double glu_loss(const struct rows_problem *p, const struct ref_act *act) {
    double m[MOST];
    ref_glu(act, p->rows, p->cols, p->x, m, NULL);
    return inner(m, p->weights, p->rows * p->cols);
}
static double swiglu_loss(void *ctx) {
    return glu_loss(ctx, &ref_silu);
}
static double geglu_loss(void *ctx) {
    return glu_loss(ctx, &ref_gelu);
}

static void check_glu(const char *name, const struct ref_act *act, double (*loss)(void *ctx)) {
    struct rows_problem p = {.rows = 3, .cols = 7};
    double dgu[MOST];
    fill_normal(p.x, 2 * p.rows * p.cols, 7);
    fill_normal(p.weights, p.rows * p.cols, 8);
    ref_glu_bwd(act, p.rows, p.cols, p.x, p.weights, dgu, NULL);
    check_gradient(name, loss, &p, p.x, 2 * p.rows * p.cols, dgu);
}

START_TEST(gated_units_have_their_derivatives) {
    check_glu("swiglu", &ref_silu, swiglu_loss);
    check_glu("geglu", &ref_gelu, geglu_loss);
}
END_TEST

static double clamped_loss(void *ctx) {
    const struct rows_problem *p = ctx;
    double m[MOST];
    ref_clamped(p->rows, p->cols, 0.75, 1.7, p->x, m);
    return inner(m, p->weights, p->rows * p->cols);
}

START_TEST(the_clamped_unit_has_its_derivative) {
    struct rows_problem p = {.rows = 3, .cols = 11};
    double dgu[MOST];
    fill_normal(p.x, 2 * p.rows * p.cols, 14);
    fill_normal(p.weights, p.rows * p.cols, 15);
    ref_clamped_bwd(p.rows, p.cols, 0.75, 1.7, p.x, p.weights, dgu);
    check_gradient("swiglu_clamped", clamped_loss, &p, p.x, 2 * p.rows * p.cols, dgu);
}
END_TEST

/* ---- routers ---- */

struct router_problem {
    struct ref_router r;
    double x[MOST], dweight[MOST], dp[MOST];
};

static double router_loss(void *ctx) {
    const struct router_problem *p = ctx;
    double weight[MOST], choice[MOST], odds[MOST], sum;
    ref_route(&p->r, weight, choice, odds);
    sum = inner(weight, p->dweight, p->r.n * p->r.k);
    for (uint64_t t = 0; t < p->r.n; t++)
        sum += inner(odds + t * p->r.experts, p->dp, p->r.experts);
    return sum;
}

/* softmax_first and normalise are the bits of the loop's number. */
START_TEST(a_router_has_its_derivative) {
    struct router_problem p = {
        .r = {.n = 5, .experts = 9, .k = 3, .softmax_first = _i & 1, .normalise = _i & 2}};
    double weight[MOST], choice[MOST], odds[MOST], dx[MOST];
    p.r.logits = p.x;
    fill_normal(p.x, p.r.n * p.r.experts, 16);
    fill_normal(p.dweight, p.r.n * p.r.k, 17);
    fill_normal(p.dp, p.r.experts, 18);
    ref_route(&p.r, weight, choice, odds);
    ref_route_bwd(&p.r, weight, choice, p.dweight, p.dp, dx, NULL);
    check_gradient("route", router_loss, &p, p.x, p.r.n * p.r.experts, dx);
}
END_TEST

/* ---- cross entropy ---- */

static double cross_entropy_loss(void *ctx) {
    const struct rows_problem *p = ctx;
    return ref_cross_entropy(p->rows, p->cols, p->x, p->targets) / 16;
}

START_TEST(cross_entropy_has_its_derivative) {
    struct rows_problem p = {.rows = 4, .cols = 9, .targets = {0, 8, 3, 3}};
    double gradient[MOST];
    fill_normal(p.x, p.rows * p.cols, 9);
    ref_cross_entropy_bwd(p.rows, p.cols, 1.0 / 16, p.x, p.targets, gradient, NULL);
    check_gradient("cross_entropy", cross_entropy_loss, &p, p.x, p.rows * p.cols, gradient);
}
END_TEST

/* ---- attention ---- */

struct attention_problem {
    struct ref_attention a;
    double offsets[4], q[MOST], k[MOST], v[MOST], weights[MOST], sinks[4];
    uint64_t rows;
};

static double attention_loss(void *ctx) {
    const struct attention_problem *p = ctx;
    double o[MOST], lse[MOST];
    ref_attention(&p->a, o, NULL, lse);
    return inner(o, p->weights, p->rows * p->a.heads * p->a.dim);
}

/* Each window without sinks and with them. */
START_TEST(attention_has_its_derivative) {
    static const uint64_t windows[] = {0, 1, 3, 50};
    struct attention_problem p = {.offsets = {0, 5, 5, 12},
                                  .rows = 12,
                                  .a = {.n_seqs = 3,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .dim = 5,
                                        .scale = 0.4,
                                        .window = windows[_i / 2]}};
    const uint64_t nq = p.rows * p.a.heads * p.a.dim, nk = p.rows * p.a.kv_heads * p.a.dim;
    double o[MOST], lse[MOST], dq[MOST], dk[MOST], dv[MOST];
    p.a.offsets = p.offsets, p.a.q = p.q, p.a.k = p.k, p.a.v = p.v;
    fill_normal(p.q, nq, 10);
    fill_normal(p.k, nk, 11);
    fill_normal(p.v, nk, 12);
    fill_normal(p.weights, nq, 13);
    if (_i % 2) p.a.sinks = p.sinks;
    fill_normal(p.sinks, p.a.heads, 19);
    ref_attention(&p.a, o, NULL, lse);
    const struct ref_attention_bwd g = {
        .o = o, .lse = lse, .go = p.weights, .dq = dq, .dk = dk, .dv = dv};
    ref_attention_bwd(&p.a, &g);
    check_gradient("attention dq", attention_loss, &p, p.q, nq, dq);
    check_gradient("attention dk", attention_loss, &p, p.k, nk, dk);
    check_gradient("attention dv", attention_loss, &p, p.v, nk, dv);
    if (!p.a.sinks) return;
    double dsinks[4] = {0};
    ref_sink_bwd(&p.a, &g, dsinks, NULL);
    check_gradient("attention dsinks", attention_loss, &p, p.sinks, p.a.heads, dsinks);
}
END_TEST

/* ---- linear attention ---- */

struct conv_problem {
    struct ref_conv c;
    double offsets[4], y[MOST], w[MOST], weights[MOST];
};

static double conv_loss(void *ctx) {
    const struct conv_problem *p = ctx;
    double u[MOST];
    const uint64_t n = (uint64_t)p->offsets[3] * p->c.channels;
    ref_conv(&p->c, u, NULL);
    for (uint64_t i = 0; i < n; i++)
        u[i] *= ref_sigmoid(u[i]);
    return inner(u, p->weights, n);
}

START_TEST(a_convolution_has_its_derivative) {
    struct conv_problem p = {.offsets = {0, 5, 5, 12},
                             .c = {.n_seqs = 3, .channels = 4, .taps = (uint64_t)_i + 1}};
    double dy[MOST] = {0}, dw[MOST] = {0};
    const uint64_t n = 12 * p.c.channels;
    p.c.offsets = p.offsets, p.c.y = p.y, p.c.w = p.w;
    fill_normal(p.y, n, 20);
    fill_normal(p.w, p.c.channels * p.c.taps, 21);
    fill_normal(p.weights, n, 22);
    ref_conv_silu_bwd(&p.c, p.weights, dy, NULL, dw, NULL);
    check_gradient("conv_silu dy", conv_loss, &p, p.y, n, dy);
    check_gradient("conv_silu dw", conv_loss, &p, p.w, p.c.channels * p.c.taps, dw);
}
END_TEST

struct gated_problem {
    struct ref_gated shape;
    double o[MOST], z[MOST], w[MOST], weights[MOST];
};

static double gated_loss(void *ctx) {
    const struct gated_problem *p = ctx;
    double y[MOST], rstd[MOST];
    ref_gated_norm(p->shape, p->o, p->z, p->w, y, rstd);
    return inner(y, p->weights, p->shape.norms * p->shape.dim);
}

START_TEST(a_gated_norm_has_its_derivative) {
    struct gated_problem p = {.shape = {6, 7, 1e-3}};
    const uint64_t n = p.shape.norms * p.shape.dim;
    double y[MOST], rstd[MOST], go[MOST] = {0}, gz[MOST] = {0}, dw[MOST] = {0};
    fill_normal(p.o, n, 23);
    fill_normal(p.z, n, 24);
    fill_normal(p.w, p.shape.dim, 25);
    fill_normal(p.weights, n, 26);
    ref_gated_norm(p.shape, p.o, p.z, p.w, y, rstd);
    const struct ref_gated_bwd g = {.dy = p.weights, .rstd = rstd, .go = go, .gz = gz, .dw = dw};
    ref_gated_norm_bwd(p.shape, p.o, p.z, p.w, &g);
    check_gradient("gated_norm do", gated_loss, &p, p.o, n, go);
    check_gradient("gated_norm dz", gated_loss, &p, p.z, n, gz);
    check_gradient("gated_norm dw", gated_loss, &p, p.w, p.shape.dim, dw);
}
END_TEST

struct delta_problem {
    struct ref_delta d;
    double offsets[4], qkv[MOST], ba[MOST], a_log[4], dt_bias[4], weights[MOST];
};

static double delta_loss(void *ctx) {
    const struct delta_problem *p = ctx;
    double o[MOST];
    ref_gated_delta(&p->d, o, NULL, NULL);
    return inner(o, p->weights, (uint64_t)p->offsets[3] * p->d.heads * p->d.dim);
}

/* A head of keys for one head of values, and for two. */
START_TEST(the_delta_rule_has_its_derivative) {
    struct delta_problem p = {
        .offsets = {0, 4, 4, 7},
        .d = {.n_seqs = 3, .heads = 2, .key_heads = 2, .key_dim = 3, .dim = 2}};
    double dqkv[MOST] = {0}, dba[MOST] = {0}, da_log[4] = {0}, ddt_bias[4] = {0};
    p.d.key_heads -= (uint64_t)_i;
    const uint64_t n = 7 * (2 * p.d.key_heads * 3 + 4);
    p.d.offsets = p.offsets, p.d.qkv = p.qkv, p.d.ba = p.ba, p.d.a_log = p.a_log;
    p.d.dt_bias = p.dt_bias;
    fill_normal(p.qkv, n, 27);
    fill_normal(p.ba, 28, 28);
    fill_normal(p.a_log, 2, 29);
    fill_normal(p.dt_bias, 2, 30);
    fill_normal(p.weights, 28, 31);
    ref_gated_delta_bwd(
        &p.d, p.weights,
        &(struct ref_delta_bwd){.dqkv = dqkv, .dba = dba, .da_log = da_log, .ddt_bias = ddt_bias});
    check_gradient("gated_delta dqkv", delta_loss, &p, p.qkv, n, dqkv);
    check_gradient("gated_delta dba", delta_loss, &p, p.ba, 28, dba);
    check_gradient("gated_delta dA_log", delta_loss, &p, p.a_log, 2, da_log);
    check_gradient("gated_delta ddt_bias", delta_loss, &p, p.dt_bias, 2, ddt_bias);
}
END_TEST

int main(void) {
    Suite *s = suite_create("derivatives");
    TCase *tc = tcase_create("references");
    tcase_add_test(tc, rmsnorm_has_its_derivative);
    tcase_add_test(tc, qk_norm_has_its_derivative);
    tcase_add_test(tc, turning_back_is_the_derivative_of_rope);
    tcase_add_test(tc, gated_units_have_their_derivatives);
    tcase_add_test(tc, the_clamped_unit_has_its_derivative);
    tcase_add_loop_test(tc, a_router_has_its_derivative, 0, 4);
    tcase_add_test(tc, cross_entropy_has_its_derivative);
    tcase_add_loop_test(tc, attention_has_its_derivative, 0, 8);
    tcase_add_loop_test(tc, a_convolution_has_its_derivative, 0, 4);
    tcase_add_test(tc, a_gated_norm_has_its_derivative);
    tcase_add_loop_test(tc, the_delta_rule_has_its_derivative, 0, 2);
    suite_add_tcase(s, tc);
    SRunner *sr = srunner_create(s);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed != 0;
}
