/* optim.c - SQUARE_SUM, CLIP_SCALE, ADAMW, SGD: from gradients to new weights.
 *
 * The update works on stretches of PL_UPDATE_STRETCH elements: widened to fp32, updated, stored. A
 * stretch never crosses a row, so windows of larger matrices work too. */
#include "runtime/kernels/cpu/simd.h"

#include "estimator/program/workspace_internal.h"
#include "runtime/kernels/rng.h"

/* ---- a matrix as one run of elements ---- */

/* Elements [i, *) of v that lie one after another, at most `limit`. */
static uint64_t stretch(const struct pl_view *v, uint64_t i, uint64_t limit) {
    uint64_t row = v->ld == v->cols ? v->rows * v->cols : v->cols;
    return pl_u64_min(limit, row - i % row);
}

static void *element(const struct pl_view *v, uint64_t i) {
    return pl_at(v, i / v->cols, i % v->cols);
}

/* ---- SQUARE_SUM ---- */

struct square_sum {
    struct pl_view g;
    double *partial; /* one per chunk */
};

static double squares(const float *x, uint64_t n) {
    double total = 0;
    for (uint64_t i = 0; i < n; i++)
        total += (double)x[i] * x[i];
    return total;
}

#define SQUARES 1024

static void sum_chunk(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct square_sum *s = arg;
    float buf[SQUARES];
    double total = 0;
    (void)worker;
    for (uint64_t i = first, n; i < end; i += n) {
        n = stretch(&s->g, i, pl_u64_min(end - i, SQUARES));
        pl_widen(buf, element(&s->g, i), s->g.dtype, n);
        total += squares(buf, n);
    }
    s->partial[first / PL_SQUARE_SUM_CHUNK] = total;
}

/* in: g[..], partials[M]f64, ws; out: partials[M]f64. */
pl_err PL_CPU(square_sum)(struct pl_device *dev, const struct pl_call *c) {
    struct square_sum s = {.g = c->in[0], .partial = c->in[2].p};
    uint64_t n = s.g.rows * s.g.cols, chunks = pl_u64_div_up(n, PL_SQUARE_SUM_CHUNK);
    double total = 0;
    if (!pl_ws_holds(&c->in[2], chunks * sizeof(double)) || c->attr->index >= c->out[0].rows)
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, n, PL_SQUARE_SUM_CHUNK, sum_chunk, &s);
    for (uint64_t i = 0; i < chunks; i++)
        total += s.partial[i];
    ((double *)c->out[0].p)[c->attr->index] = total;
    return PL_ERR_OK;
}

/* ---- CLIP_SCALE ---- */

/* in: partials[M]f64, loss[2]f64, clip[2]f64; out: clip[2]f64. As torch.nn.utils.clip_grad_norm_,
 * and NaN where the step, or one before it, must not be committed. */
pl_err PL_CPU(clip_scale)(struct pl_device *dev, const struct pl_call *c) {
    const double *partial = c->in[0].p, *loss = c->in[1].p;
    double *clip = c->out[0].p, total = 0, scale = 1.0;
    (void)dev;
    for (uint64_t i = 0; i < c->in[0].rows; i++)
        total += partial[i];
    double norm = sqrt(total);
    if (c->attr->max_norm > 0) scale = fmin(1.0, c->attr->max_norm / (norm + 1e-6));
    bool lost = !isfinite(norm) || !isfinite(loss[0]) || isnan(clip[1]);
    clip[0] = norm;
    clip[1] = lost ? (double)NAN : scale;
    return PL_ERR_OK;
}

/* ---- storing a new weight ---- */

/* Random low bits added before truncation: E[stored] = x (Gupta et al., 2015, section 3). Eight
 * elements share a block of random numbers, so element e of a tensor always gets the same bits. */
#define ELEMENTS_PER_BLOCK 8

static void random_halves(const struct pl_rng *rng, uint64_t first, uint64_t n, uint16_t *out) {
    for (uint64_t i = 0; i < n;) {
        uint32_t x[4];
        uint64_t e = first + i, lane = e % ELEMENTS_PER_BLOCK;
        pl_rng_block(rng, e / ELEMENTS_PER_BLOCK, x);
        for (; lane < ELEMENTS_PER_BLOCK && i < n; lane++, i++)
            out[i] = (uint16_t)(x[lane / 2] >> (lane % 2 * 16));
    }
}

/* Infinity and NaN have no neighbour to round to. */
static uint16_t round_stochastically(float x, uint16_t random) {
    uint32_t u = pl_f32_bits(x), finite = (u & 0x7F800000u) != 0x7F800000u;
    return finite ? (uint16_t)((u + random) >> 16) : pl_bf16_from_f32(x);
}

/* ---- ADAMW and SGD ---- */

#define UPDATE_STRETCH 1024

struct update {
    struct pl_view w, g, m, v, master;
    bool rounds_stochastically;
    struct pl_rng rng;
    float clip, decay, rate;          /* p = p * decay - ... */
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta, rounded from double */
    float step_size, inverse_root, epsilon;
};

struct block {
    float p[UPDATE_STRETCH], g[UPDATE_STRETCH];
    uint16_t random[UPDATE_STRETCH];
};

/* Kingma and Ba, arXiv 1412.6980, with the decay of Loshchilov and Hutter, arXiv 1711.05101; bias
 * corrections folded into step_size = lr/(1-b1^t) and inverse_root = 1/sqrt(1-b2^t). */
static void adamw_block(const struct update *u, uint64_t n, struct block *b, float *restrict m,
                        float *restrict v) {
    for (uint64_t j = 0; j < n; j++) {
        float g = b->g[j] * u->clip;
        m[j] = u->beta1 * m[j] + u->rest1 * g;
        v[j] = u->beta2 * v[j] + u->rest2 * g * g;
        float root = sqrtf(v[j]) * u->inverse_root + u->epsilon;
        b->p[j] = b->p[j] * u->decay - u->step_size * m[j] / root;
    }
}

static void sgd_block(const struct update *u, uint64_t n, struct block *b) {
    for (uint64_t j = 0; j < n; j++)
        b->p[j] = b->p[j] * u->decay - u->rate * (b->g[j] * u->clip);
}

static void store_weight(const struct update *u, uint64_t i, uint64_t n, struct block *b) {
    void *w = element(&u->w, i);
    if (u->master.p) memcpy(element(&u->master, i), b->p, n * sizeof *b->p);
    if (!u->rounds_stochastically) {
        pl_narrow(w, u->w.dtype, b->p, n);
        return;
    }
    uint16_t *h = w;
    random_halves(&u->rng, i, n, b->random);
    for (uint64_t j = 0; j < n; j++)
        h[j] = round_stochastically(b->p[j], b->random[j]);
}

static uint64_t update_stretch(const struct update *u, uint64_t i, uint64_t limit) {
    uint64_t n = stretch(&u->w, i, pl_u64_min(limit, UPDATE_STRETCH));
    n = stretch(&u->g, i, n);
    if (u->m.p) n = stretch(&u->v, i, stretch(&u->m, i, n));
    return u->master.p ? stretch(&u->master, i, n) : n;
}

static void update_range(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct update *u = arg;
    const struct pl_view *p = u->master.p ? &u->master : &u->w;
    struct block b;
    (void)worker;
    for (uint64_t i = first, n; i < end; i += n) {
        n = update_stretch(u, i, end - i);
        pl_widen(b.p, element(p, i), p->dtype, n);
        pl_widen(b.g, element(&u->g, i), u->g.dtype, n);
        if (u->m.p)
            adamw_block(u, n, &b, element(&u->m, i), element(&u->v, i));
        else
            sgd_block(u, n, &b);
        store_weight(u, i, n, &b);
    }
}

static struct update begin_update(const struct pl_call *c, const struct pl_view *clip,
                                  const struct pl_view *master) {
    const struct pl_batch *batch = c->batch;
    double decay = c->attr->decay ? batch->learning_rate * batch->weight_decay : 0;
    struct update u = {.w = c->in[0],
                       .g = c->in[1],
                       .master = *master,
                       .clip = (float)((const double *)clip->p)[1],
                       .decay = (float)(1.0 - decay),
                       .rate = (float)batch->learning_rate};
    u.rounds_stochastically = !master->p && u.w.dtype == PL_DTYPE_BF16;
    u.rng = pl_rng_init(batch->seed, batch->step, c->attr->site);
    return u;
}

#define UPDATE_GRAIN UINT64_C(32768)

/* in: w, g, m f32, v f32, clip[2]f64, master? f32; out: w, m, v, master?. */
pl_err PL_CPU(adamw)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_batch *batch = c->batch;
    struct update u = begin_update(c, &c->in[4], &c->in[5]);
    if (isnan(u.clip)) return PL_ERR_OK;
    double t = (double)batch->step;
    u.m = c->in[2];
    u.v = c->in[3];
    u.beta1 = (float)batch->beta1;
    u.rest1 = (float)(1.0 - batch->beta1);
    u.beta2 = (float)batch->beta2;
    u.rest2 = (float)(1.0 - batch->beta2);
    u.step_size = (float)(batch->learning_rate / (1.0 - pow(batch->beta1, t)));
    u.inverse_root = (float)(1.0 / sqrt(1.0 - pow(batch->beta2, t)));
    u.epsilon = (float)batch->epsilon;
    pl_cpu_rows(dev, u.w.rows * u.w.cols, UPDATE_GRAIN, update_range, &u);
    return PL_ERR_OK;
}

/* in: w, g, clip[2]f64, master? f32; out: w, master?. w -= lr * (g + wd * w). */
pl_err PL_CPU(sgd)(struct pl_device *dev, const struct pl_call *c) {
    struct update u = begin_update(c, &c->in[2], &c->in[3]);
    if (isnan(u.clip)) return PL_ERR_OK;
    pl_cpu_rows(dev, u.w.rows * u.w.cols, UPDATE_GRAIN, update_range, &u);
    return PL_ERR_OK;
}
