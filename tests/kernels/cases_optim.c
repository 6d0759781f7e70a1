/* cases_optim.c - SQUARE_SUM, CLIP_SCALE and the updates with states in fp32. */
#include "tests/kernels/cases.h"

#include <math.h>
#include <string.h>

struct shape {
    uint64_t rows, cols;
};

static struct shape draw_shape(struct trial *t) {
    static const struct shape edges[] = {{0, 3},   {1, 1},     {1, 1025}, {100000, 1},
                                         {7, 513}, {300, 450}, {65536, 1}};
    if (t->round < sizeof edges / sizeof *edges) return edges[t->round];
    struct shape s;
    s.rows = draw(t, 1, 200);
    s.cols = draw(t, 1, 200);
    return s;
}

/* Norm and bias gradients are vectors, the rest matrices. */
static struct operand *add_tensor(struct trial *t, uint32_t slot, struct shape s,
                                  enum pl_dtype dtype) {
    return s.cols == 1 ? add_vector_in(t, slot, s.rows, dtype)
                       : add_in(t, slot, s.rows, s.cols, dtype);
}

/* ---- norm and clip ---- */

static void build_square_sum(struct trial *t) {
    struct shape s = draw_shape(t);
    add_tensor(t, 0, s, draw_float(t));
    also_out(t, add_vector_in(t, 1, 1, PL_DTYPE_F64), 0);
    add_ws(t, 2, s.rows, s.cols);
}

/* Gradients whose squares are no numbers of fp32, or hardly any, alone and among others. */
static void build_far_squares(struct trial *t) {
    static const double sizes[] = {1e-38, 1e-23, 1e-21, 1e-12, 1, 1e15, 1e19, 1e25, 1e37};
    build_square_sum(t);
    struct operand *g = t->in[0];
    const double size = sizes[t->round % 9], other = t->round < 9 ? size : sizes[draw(t, 0, 8)];
    for (uint64_t i = 0; i < g->view.rows * g->view.cols; i++)
        set_value(g, i / g->view.cols, i % g->view.cols, g->x[i] * (i % 3000 ? size : other));
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    if (t->round % 4 == 2 && g->view.rows)
        set_value(g, draw(t, 0, g->view.rows - 1), draw(t, 0, g->view.cols - 1),
                  bad[t->round / 4 % 3]);
}

/* A GPU rounds squares to fp32 and adds 1,024 of them in pairs: a relative error of 12 half units
 * of fp32 at most, as optim.cu derives. Elsewhere the tolerance of the case, for 2^17 additions in
 * fp64, is enough. */
static void reference_square_sum(struct trial *t) {
    const struct operand *g = t->in[0];
    double sum = 0;
    for (uint64_t i = 0; i < g->view.rows * g->view.cols; i++)
        sum += g->x[i] * g->x[i];
    t->out[0]->want[0] = t->out[0]->scale[0] = sum;
    if (t->machine->runners[0].dev->traits.backend == PL_BACKEND_CUDA)
        t->out[0]->scale[0] *= 1 + 12 * 0x1p-24 / t->test->tolerance;
}

static void build_clip(struct trial *t) {
    struct operand *partials = add_vector_in(t, 0, draw(t, 0, 9), PL_DTYPE_F64);
    for (uint64_t i = 0; i < partials->view.rows; i++)
        set_value(partials, i, 0, fabs(partials->x[i]));
    t->attr.max_norm = t->round % 3 ? 0.5f * (float)draw(t, 1, 6) : 0;
    struct operand *loss = add_vector_in(t, 1, 2, PL_DTYPE_F64);
    struct operand *clip = add_vector_in(t, 2, 2, PL_DTYPE_F64);
    also_out(t, clip, 0);
    /* rounds 1 to 12: one of them is lost, with and without a limit of the norm */
    if (t->round < 1 || t->round > 12) return;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    double value = bad[t->round % 2 ? t->round / 2 % 3 : 0];
    if (t->round <= 4 && partials->view.rows) set_value(partials, 0, 0, fabs(value));
    if (t->round > 4 && t->round <= 10) set_value(loss, 0, 0, value);
    if (t->round > 10) set_value(clip, 1, 0, NAN); /* in an earlier step */
}

static void reference_clip(struct trial *t) {
    double sum = 0, *want = t->out[0]->want, before = t->in[2]->x[1];
    for (uint64_t i = 0; i < t->in[0]->view.rows; i++)
        sum += t->in[0]->x[i];
    want[0] = sqrt(sum);
    want[1] = 1;
    if (t->attr.max_norm > 0 && !(want[0] + 1e-6 < t->attr.max_norm))
        want[1] = t->attr.max_norm / (want[0] + 1e-6);
    if (!isfinite(want[0]) || !isfinite(t->in[1]->x[0]) || isnan(before)) want[1] = NAN;
}

/* ---- updates ---- */

static void build_update_with(struct trial *t, uint32_t moments, enum pl_dtype w, bool master,
                              enum pl_dtype state) {
    struct shape s = draw_shape(t);
    uint32_t clip_slot = 2 + moments;
    t->attr.decay = draw(t, 0, 1);
    t->attr.site = (uint32_t)draw(t, 0, 1000);
    t->batch.step = draw(t, 1, 5);
    t->batch.learning_rate = 1e-3 * (double)draw(t, 0, 20);
    t->batch.weight_decay = 0.1;
    t->batch.beta1 = 0.9;
    t->batch.beta2 = 0.999;
    t->batch.epsilon = 1e-8;
    also_out(t, add_tensor(t, 0, s, w), 0);
    add_tensor(t, 1, s, draw_float(t));
    if (moments) also_out(t, add_tensor(t, 2, s, state), 1);
    if (moments == 2) {
        struct operand *v = add_tensor(t, 3, s, state);
        for (uint64_t i = 0; i < s.rows * s.cols; i++)
            set_value(v, i / s.cols, i % s.cols, v->x[i] * v->x[i]);
        also_out(t, v, 2);
    }
    struct operand *clip = add_vector_in(t, clip_slot, 2, PL_DTYPE_F64);
    set_value(clip, 1, 0, t->round % 5 == 3 ? NAN : (double)draw(t, 1, 4) / 4);
    if (master) also_out(t, add_tensor(t, clip_slot + 1, s, PL_DTYPE_F32), 1 + moments);
}

static void build_update(struct trial *t, uint32_t moments, enum pl_dtype w, bool master) {
    build_update_with(t, moments, w, master, PL_DTYPE_F32);
}

/* There is a master in every other round. */
static void build_adamw_bf16_moments(struct trial *t) {
    build_update_with(t, 2, t->round % 2 ? PL_DTYPE_BF16 : PL_DTYPE_F32, t->round % 2,
                      PL_DTYPE_BF16);
}
static void build_lion_bf16_moments(struct trial *t) {
    build_update_with(t, 1, t->round % 2 ? PL_DTYPE_BF16 : PL_DTYPE_F32, t->round % 2,
                      PL_DTYPE_BF16);
}
static void build_adamw_fp32(struct trial *t) {
    build_update(t, 2, PL_DTYPE_F32, false);
}
static void build_adamw_master(struct trial *t) {
    build_update(t, 2, narrow_type(t), true);
}
static void build_sgd_fp32(struct trial *t) {
    build_update(t, 0, PL_DTYPE_F32, false);
}
static void build_sgd_master(struct trial *t) {
    build_update(t, 0, narrow_type(t), true);
}
static void build_lion_fp32(struct trial *t) {
    build_update(t, 1, PL_DTYPE_F32, false);
}
static void build_lion_master(struct trial *t) {
    build_update(t, 1, narrow_type(t), true);
}

/* Expects the new p in the master, and w rounded from it. */
static void expect_weight(struct trial *t, uint32_t master_out, uint64_t i, double p,
                          double scale) {
    for (uint32_t k = 0; k <= master_out; k += master_out) {
        if (!t->out[k]) continue;
        t->out[k]->want[i] = p;
        t->out[k]->scale[i] = scale;
    }
}

/* torch.optim.AdamW as documented, decay first. */
static void reference_adamw(struct trial *t) {
    const struct pl_batch *b = &t->batch;
    const struct operand *p = t->in[5] ? t->in[5] : t->in[0], *g = t->in[1];
    double lr = b->learning_rate, step = (double)b->step, clip = t->in[4]->x[1];
    double *m = t->out[1]->want, *v = t->out[2]->want;
    if (isnan(clip)) return; /* untouched: what stood there is what is wanted */
    for (uint64_t i = 0; i < p->view.rows * p->view.cols; i++) {
        double grad = clip * g->x[i], decayed = p->x[i];
        if (t->attr.decay) decayed *= 1 - lr * b->weight_decay;
        t->out[1]->scale[i] = fabs(m[i]) + fabs(grad);
        m[i] = b->beta1 * m[i] + (1 - b->beta1) * grad;
        v[i] = b->beta2 * v[i] + (1 - b->beta2) * grad * grad;
        double mh = m[i] / (1 - pow(b->beta1, step)), vh = v[i] / (1 - pow(b->beta2, step));
        double change = lr * mh / (sqrt(vh) + b->epsilon);
        double room = lr * t->out[1]->scale[i] / (sqrt(vh) + b->epsilon) / (1 - b->beta1);
        expect_weight(t, 3, i, decayed - change, fabs(p->x[i]) + room);
    }
}

static void reference_sgd(struct trial *t) {
    const struct operand *p = t->in[3] ? t->in[3] : t->in[0];
    double lr = t->batch.learning_rate, clip = t->in[2]->x[1];
    double wd = t->attr.decay ? t->batch.weight_decay : 0;
    if (isnan(clip)) return;
    for (uint64_t i = 0; i < p->view.rows * p->view.cols; i++) {
        double g = clip * t->in[1]->x[i];
        expect_weight(t, 1, i, p->x[i] - lr * (g + wd * p->x[i]), fabs(p->x[i]) + lr * fabs(g));
    }
}

/* lion_pytorch's update_fn, which is program 1 of arXiv 2302.06675:
 *     p.mul_(1 - lr * wd)
 *     update = exp_avg.clone().mul_(beta1).add(grad, alpha = 1 - beta1).sign_()
 *     p.add_(update, alpha = -lr)
 *     exp_avg.mul_(beta2).add_(grad, alpha = 1 - beta2) */
static void reference_lion(struct trial *t) {
    const struct pl_batch *b = &t->batch;
    const struct operand *p = t->in[4] ? t->in[4] : t->in[0];
    double lr = b->learning_rate, clip = t->in[3]->x[1], *m = t->out[1]->want;
    if (isnan(clip)) return;
    for (uint64_t i = 0; i < p->view.rows * p->view.cols; i++) {
        double grad = clip * t->in[1]->x[i], c = b->beta1 * m[i] + (1 - b->beta1) * grad;
        double decayed = t->attr.decay ? p->x[i] * (1 - lr * b->weight_decay) : p->x[i];
        t->out[1]->scale[i] = fabs(m[i]) + fabs(grad);
        /* of a sum that is nothing but rounding either sign will do */
        const double either = fabs(c) < 1e-7 * fabs(grad) ? 2 * lr / t->test->tolerance : 0;
        m[i] = b->beta2 * m[i] + (1 - b->beta2) * grad;
        expect_weight(t, 2, i, decayed - lr * ((c > 0) - (c < 0)), fabs(p->x[i]) + lr + either);
    }
}

/* Rounding to either neighbour in bf16 is off by at most a unit of its eight bits. */
static void allow_rounding(struct trial *t, uint32_t state_out) {
    const struct operand *s = t->out[state_out];
    for (uint64_t i = 0; i < s->view.rows * s->view.cols; i++)
        s->scale[i] += fabs(s->want[i]) * 0x1p-7 / t->test->tolerance;
}

static void reference_adamw_bf16_moments(struct trial *t) {
    reference_adamw(t);
    allow_rounding(t, 1);
    allow_rounding(t, 2);
}

static void reference_lion_bf16_moments(struct trial *t) {
    reference_lion(t);
    allow_rounding(t, 1);
}

const struct kernel_case cases_optim[] = {
    {"square_sum", PL_OP_SQUARE_SUM, 16, 1e-12, build_square_sum, reference_square_sum},
    {"square_sum, far out", PL_OP_SQUARE_SUM, 36, 1e-12, build_far_squares, reference_square_sum},
    {"clip_scale", PL_OP_CLIP_SCALE, 30, 1e-14, build_clip, reference_clip},
    {"adamw, fp32", PL_OP_ADAMW, 16, 5e-7, build_adamw_fp32, reference_adamw},
    {"adamw, bf16 and master", PL_OP_ADAMW, 16, 5e-7, build_adamw_master, reference_adamw},
    {"adamw, moments in bf16", PL_OP_ADAMW, 24, 5e-7, build_adamw_bf16_moments,
     reference_adamw_bf16_moments},
    {"sgd, fp32", PL_OP_SGD, 16, 5e-7, build_sgd_fp32, reference_sgd},
    {"sgd, bf16 and master", PL_OP_SGD, 16, 5e-7, build_sgd_master, reference_sgd},
    {"lion, fp32", PL_OP_LION, 16, 5e-7, build_lion_fp32, reference_lion},
    {"lion, bf16 and master", PL_OP_LION, 16, 5e-7, build_lion_master, reference_lion},
    {"lion, moments in bf16", PL_OP_LION, 24, 5e-7, build_lion_bf16_moments,
     reference_lion_bf16_moments},
    {0},
};
