/* optim.c - SQUARE_SUM, CLIP_SCALE and the updates with states in fp32 or bf16: from gradients to
 * new weights.
 *
 * The update works on stretches of PL_UPDATE_STRETCH elements: widened to fp32, updated, stored. A
 * stretch never crosses a row, so windows of larger matrices work too. */
#include "runtime/kernels/cpu/update.h"

#include "estimator/ops/scratch/workspace_internal.h"
#include "runtime/kernels/squares.h"

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

/* A loop that reads one stretch after the other has too few cache lines in flight to be as fast as
 * memory is, so the stretch after the next is prefetched. */
static void ask_beyond(const void *at, uint64_t bytes) {
    pl_ask_for((uintptr_t)at + 2 * bytes, bytes);
}

static void sum_chunk(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct square_sum *s = arg;
    float buf[SQUARES];
    double total = 0;
    (void)worker;
    for (uint64_t i = first, n; i < end; i += n) {
        const void *g = pl_element(&s->g, i);
        n = pl_stretch(&s->g, i, pl_u64_min(end - i, SQUARES));
        ask_beyond(g, n * pl_float_bytes(s->g.dtype));
        if (s->g.dtype != PL_DTYPE_F32) pl_widen(buf, g, s->g.dtype, n);
        total += squares(s->g.dtype == PL_DTYPE_F32 ? g : buf, n);
    }
    s->partial[first / PL_SQUARE_SUM_CHUNK] = total;
}

static void sum_block(struct pl_device *dev, const struct pl_call *c) {
    struct square_sum s = {.g = c->in[PL_SQUARE_SUM_G], .partial = c->in[PL_SQUARE_SUM_WS].p};
    const uint64_t n = s.g.rows * s.g.cols;
    double total = 0;
    pl_cpu_rows(dev, n, PL_SQUARE_SUM_CHUNK, sum_chunk, &s);
    for (uint64_t i = 0; i < pl_u64_div_up(n, PL_SQUARE_SUM_CHUNK); i++)
        total += s.partial[i];
    *(double *)c->out[PL_SQUARE_SUM_OUT_PARTIAL].p = total;
}

/* in: g[..], partial[blocks]f64, ws; out: partial[blocks]f64. */
pl_err PL_CPU(square_sum)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *ws = &c->in[PL_SQUARE_SUM_WS];
    const struct pl_attr one = {0};
    const uint64_t blocks = pl_square_blocks(c);
    const uint64_t bytes =
        pl_ws_square_sum(&dev->traits, &one, pl_square_block_rows(c), c->in[PL_SQUARE_SUM_G].cols);
    if (!pl_ws_holds(ws, blocks * bytes) || c->out[PL_SQUARE_SUM_OUT_PARTIAL].rows != blocks)
        return PL_ERR_PLAN_BROKEN;
    for (uint64_t i = 0; i < blocks; i++) {
        const struct pl_call block = pl_square_block(c, i, bytes, &one);
        sum_block(dev, &block);
    }
    return PL_ERR_OK;
}

/* ---- CLIP_SCALE ---- */

/* in: partials[M]f64, loss[2]f64, clip[2]f64; out: clip[2]f64. As torch.nn.utils.clip_grad_norm_,
 * and NaN where the step, or one before it, must not be committed. */
pl_err PL_CPU(clip_scale)(struct pl_device *dev, const struct pl_call *c) {
    const double *partial = c->in[0].p, *loss = c->in[1].p;
    double *clip = c->out[0].p, total = 0, scale = 1.0;
    const double unscale = ldexp(1.0, -c->batch->loss_exponent);
    (void)dev;
    for (uint64_t i = 0; i < c->in[0].rows; i++)
        total += partial[i];
    const double norm = sqrt(total) * unscale;
    if (c->attr->max_norm > 0) scale = fmin(1.0, c->attr->max_norm / (norm + 1e-6));
    bool lost = !isfinite(norm) || !isfinite(loss[0]) || isnan(clip[1]);
    clip[0] = norm;
    clip[1] = lost ? (double)NAN : scale * unscale;
    return PL_ERR_OK;
}

/* ---- updates ---- */

struct block {
    float p[PL_UPDATE_STRETCH], g[PL_UPDATE_STRETCH];
    float *state[PL_STATES_MAX]; /* where it lies, or in `wide` */
    float wide[PL_STATES_MAX][PL_UPDATE_STRETCH];
};

struct update {
    struct pl_weight_store store;
    struct pl_view g, state[PL_STATES_MAX];
    struct pl_rng state_rng[PL_STATES_MAX]; /* of states in bf16 */
    uint32_t n_states;
    void (*rule)(const struct update *u, uint64_t n, struct block *b);
    float clip, decay, rate; /* p = p * decay - ... */
    struct pl_moment_rates rates;
    float step_size, inverse_root, epsilon;
};

/* Kingma and Ba, arXiv 1412.6980, with the decay of Loshchilov and Hutter, arXiv 1711.05101; bias
 * corrections folded into step_size = lr/(1-b1^t) and inverse_root = 1/sqrt(1-b2^t). */
static void adamw(const struct update *u, uint64_t n, struct block *b) {
    float *restrict m = b->state[0], *restrict v = b->state[1];
    for (uint64_t j = 0; j < n; j++) {
        float g = b->g[j] * u->clip;
        m[j] = u->rates.beta1 * m[j] + u->rates.rest1 * g;
        v[j] = u->rates.beta2 * v[j] + u->rates.rest2 * g * g;
        float root = sqrtf(v[j]) * u->inverse_root + u->epsilon;
        b->p[j] = b->p[j] * u->decay - u->step_size * m[j] / root;
    }
}

static void sgd(const struct update *u, uint64_t n, struct block *b) {
    for (uint64_t j = 0; j < n; j++)
        b->p[j] = b->p[j] * u->decay - u->rate * (b->g[j] * u->clip);
}

/* Chen et al., arXiv 2302.06675, program 1. */
static void lion(const struct update *u, uint64_t n, struct block *b) {
    float *restrict m = b->state[0];
    for (uint64_t j = 0; j < n; j++) {
        const float g = b->g[j] * u->clip, c = u->rates.beta1 * m[j] + u->rates.rest1 * g;
        const float sign = (float)((c > 0) - (c < 0));
        b->p[j] = b->p[j] * u->decay - u->rate * sign;
        m[j] = u->rates.beta2 * m[j] + u->rates.rest2 * g;
    }
}

static uint64_t update_stretch(const struct update *u, uint64_t i, uint64_t limit) {
    uint64_t n = pl_stretch(&u->store.w, i, pl_u64_min(limit, PL_UPDATE_STRETCH));
    n = pl_stretch(&u->g, i, n);
    for (uint32_t k = 0; k < u->n_states; k++)
        n = pl_stretch(&u->state[k], i, n);
    return u->store.master.p ? pl_stretch(&u->store.master, i, n) : n;
}

static void read_states(const struct update *u, uint64_t i, uint64_t n, struct block *b) {
    for (uint32_t k = 0; k < u->n_states; k++) {
        b->state[k] = pl_element(&u->state[k], i);
        if (u->state[k].dtype == PL_DTYPE_F32) continue;
        pl_widen(b->wide[k], b->state[k], u->state[k].dtype, n);
        b->state[k] = b->wide[k];
    }
}

/* States in fp32 were changed in place. */
static void store_states(const struct update *u, uint64_t i, uint64_t n, const struct block *b) {
    for (uint32_t k = 0; k < u->n_states; k++)
        if (u->state[k].dtype != PL_DTYPE_F32)
            pl_store_rounded(pl_element(&u->state[k], i), &u->state_rng[k], u->store.first + i, n,
                             b->wide[k]);
}

static void update_range(void *arg, uint64_t first, uint64_t end, uint32_t worker) {
    const struct update *u = arg;
    const struct pl_view *p = pl_weight_source(&u->store);
    struct block b;
    (void)worker;
    for (uint64_t i = first, n; i < end; i += n) {
        n = update_stretch(u, i, end - i);
        pl_widen(b.p, pl_element(p, i), p->dtype, n);
        pl_widen(b.g, pl_element(&u->g, i), u->g.dtype, n);
        read_states(u, i, n, &b);
        u->rule(u, n, &b);
        store_states(u, i, n, &b);
        pl_store_weight(&u->store, i, n, b.p);
    }
}

#define UPDATE_GRAIN UINT64_C(32768)

/* The operands of an update are those of SGD with its states between g and clip (optimizers.c). */
#define STATES_OF(OP) (PL_##OP##_CLIP - PL_SGD_CLIP)

static pl_err run_update(struct pl_device *dev, const struct pl_call *c, uint32_t n_states,
                         void (*rule)(const struct update *u, uint64_t n, struct block *b)) {
    const struct pl_view *states = &c->in[PL_SGD_CLIP], *after = &c->in[n_states];
    const struct pl_view *clip = &after[PL_SGD_CLIP], *master = &after[PL_SGD_MASTER];
    struct pl_facts now;
    pl_facts_fill(c->batch, &now);
    struct update u = {.store = pl_weight_store_of(c, master),
                       .g = c->in[PL_SGD_G],
                       .n_states = n_states,
                       .rule = rule,
                       .clip = (float)((const double *)clip->p)[1],
                       .decay = c->attr->decay ? now.kept : 1.0f,
                       .rate = now.rate,
                       .rates = pl_moment_rates_of(c->batch),
                       .step_size = now.adam_step,
                       .inverse_root = now.adam_root,
                       .epsilon = (float)c->batch->epsilon};
    if (isnan(u.clip)) return PL_ERR_OK;
    for (uint32_t k = 0; k < n_states; k++) {
        u.state[k] = states[k];
        u.state_rng[k] =
            pl_rng_init(c->batch->seed, c->batch->step, pl_rng_state_site(c->attr->site, k));
    }
    pl_cpu_rows(dev, u.store.w.rows * u.store.w.cols, UPDATE_GRAIN, update_range, &u);
    return PL_ERR_OK;
}

pl_err PL_CPU(adamw)(struct pl_device *dev, const struct pl_call *c) {
    return run_update(dev, c, STATES_OF(ADAMW), adamw);
}

/* w -= lr * (g + wd * w). */
pl_err PL_CPU(sgd)(struct pl_device *dev, const struct pl_call *c) {
    return run_update(dev, c, STATES_OF(SGD), sgd);
}

pl_err PL_CPU(lion)(struct pl_device *dev, const struct pl_call *c) {
    return run_update(dev, c, STATES_OF(LION), lion);
}
