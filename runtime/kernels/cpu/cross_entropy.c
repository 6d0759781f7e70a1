/* cross_entropy.c - CROSS_ENTROPY: loss of a chunk of rows, and its gradient over the logits.
 *
 * Two passes over a row: a running maximum with the sum of exponentials relative to it (Milakov and
 * Gimelshein, 2018), then softmax minus one-hot. Rows leave their loss in the workspace; one thread
 * adds them in order, so loss[0] is the same for any chunking and any number of threads. Where rows
 * are counted the sign of a row's loss, which is above 0, says that the target is the row's first
 * largest logit: the count costs no memory. */
#include "estimator/ops/padding.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "runtime/kernels/cpu/chunk.h"
#include "runtime/kernels/cpu/exponentials.h"

#include <float.h>
#include <string.h>

#define LANES 64

struct cross_entropy {
    struct pl_view logits; /* [T,V] */
    const int32_t *targets;
    double *row_loss;     /* [T] */
    const float *weights; /* [T]; NULL: 1 */
    double *logp;         /* [T], nullable */
    float scale;
    float limit; /* the logits are capped by so much; 0: not at all */
    bool gradient;
    bool counts; /* loss[1] gets the number of rows whose target is the first largest logit */
};

/* The largest of n numbers, at least `least`; NaN is passed over (the sum will carry it). A maximum
 * for each lane makes the loop vectorise, since a compiler may not reorder comparisons of
 * floating-point numbers into a reduction. */
static float largest(const float *x, uint64_t n, float least) {
    float lane[LANES];
    uint64_t i = 0;
    for (uint32_t l = 0; l < LANES; l++)
        lane[l] = least;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (; i < n; i++)
        lane[0] = x[i] > lane[0] ? x[i] : lane[0];
    for (uint32_t l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

/* e[i] = exp(x[i] - max); e may be x. */
static void exponentials(const float *x, uint64_t n, float max, float *e) {
    for (uint64_t i = 0; i < n; i++)
        e[i] = x[i] - max;
    pl_exp_all(e, n);
}

static float exp_sum(const float *x, uint64_t n, float max) {
    float e[PL_CHUNK], sum = 0;
    exponentials(x, n, max, e);
    for (uint64_t i = 0; i < n; i++)
        sum += e[i];
    return sum;
}

/* exp(x - *max) summed over the row. */
static double softmax_sum(const struct pl_view *v, uint64_t row, float *max) {
    float buf[PL_CHUNK];
    double sum = 0;
    *max = -FLT_MAX;
    for (uint64_t c = 0, n; c < v->cols; c += n) {
        n = pl_chunk_size(v->cols, c);
        const float *x = pl_chunk(v, row, c, n, buf);
        const float m = largest(x, n, *max);
        if (m > *max) sum *= exp((double)*max - (double)m);
        *max = m;
        sum += (double)exp_sum(x, n, m);
    }
    return sum;
}

/* d z / d y of capped logits z = limit tanh(y / limit), into out; NULL: they are not capped. */
static const float *slopes(const float *z, uint64_t n, float limit, float *out) {
    if (limit == 0) return NULL;
    const float inverse = 1.0f / limit;
    for (uint64_t i = 0; i < n; i++)
        out[i] = 1.0f - (z[i] * inverse) * (z[i] * inverse);
    return out;
}

static void write_gradient(const struct cross_entropy *t, uint64_t row, float max, double sum) {
    float buf[PL_CHUNK], out[PL_CHUNK], slope[PL_CHUNK];
    const uint64_t target = (uint64_t)t->targets[row];
    const float scale = t->weights ? t->scale * t->weights[row] : t->scale;
    const float factor = (float)((double)scale / sum);
    for (uint64_t c = 0, n; c < t->logits.cols; c += n) {
        n = pl_chunk_size(t->logits.cols, c);
        const float *x = pl_chunk(&t->logits, row, c, n, buf);
        const float *by = slopes(x, n, t->limit, slope);
        float *g = pl_chunk_out(&t->logits, row, c, out);
        exponentials(x, n, max, g);
        for (uint64_t i = 0; i < n; i++)
            g[i] *= factor;
        if (target >= c && target < c + n) g[target - c] -= scale;
        for (uint64_t i = 0; by && i < n; i++)
            g[i] *= by[i];
        pl_chunk_store(&t->logits, row, c, n, g);
    }
}

/* True if the target's logit is the row's largest, and none before it equals it. */
static bool is_first_largest(const struct cross_entropy *t, uint64_t row, float max, float at) {
    float buf[PL_CHUNK];
    const uint64_t target = (uint64_t)t->targets[row];
    if (!(at >= max)) return false;
    for (uint64_t c = 0, n; c < target; c += n) {
        n = pl_chunk_size(target, c);
        if (largest(pl_chunk(&t->logits, row, c, n, buf), n, -FLT_MAX) >= max) return false;
    }
    return true;
}

/* The row of PL_TARGET_NONE. */
static void clear_row(const struct cross_entropy *t, uint64_t row) {
    t->row_loss[row] = 0;
    if (t->logp) t->logp[row] = 0;
    if (t->gradient)
        memset(pl_at(&t->logits, row, 0), 0, t->logits.cols * pl_float_bytes(t->logits.dtype));
}

static void loss_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct cross_entropy *t = arg;
    (void)worker;
    for (uint64_t i = row0; i < row1; i++) {
        float max, target = 0;
        if (t->targets[i] == PL_TARGET_NONE) {
            clear_row(t, i);
            continue;
        }
        const double sum = softmax_sum(&t->logits, i, &max);
        pl_widen(&target, pl_at(&t->logits, i, (uint64_t)t->targets[i]), t->logits.dtype, 1);
        t->row_loss[i] = log(sum) + ((double)max - (double)target);
        if (t->logp) t->logp[i] = -t->row_loss[i];
        if (t->weights) t->row_loss[i] *= (double)t->weights[i];
        if (t->gradient) write_gradient(t, i, max, sum);
        if (t->counts && is_first_largest(t, i, max, target))
            t->row_loss[i] = -(t->row_loss[i] < DBL_MIN ? DBL_MIN : t->row_loss[i]);
    }
}

static void add_rows(const struct cross_entropy *t, double loss[2]) {
    for (uint64_t i = 0; i < t->logits.rows; i++)
        loss[0] += t->counts ? fabs(t->row_loss[i]) : t->row_loss[i];
    for (uint64_t i = 0; t->counts && i < t->logits.rows; i++)
        loss[1] += t->row_loss[i] < 0;
}

static bool are_in_range(const int32_t *targets, uint64_t n, uint64_t vocab) {
    for (uint64_t i = 0; i < n; i++)
        if (targets[i] != PL_TARGET_NONE && (targets[i] < 0 || (uint64_t)targets[i] >= vocab))
            return false;
    return true;
}

/* in: logits[T,V]! targets[T]i32 loss[2]f64! ws weights?[T]f32;
 * out: logits[T,V]! loss[2]f64! logp?[T]f64. */
pl_err PL_CPU(cross_entropy)(struct pl_device *dev, const struct pl_call *c) {
    struct cross_entropy t = {.logits = c->out[PL_CROSS_ENTROPY_OUT_LOGITS],
                              .targets = c->in[PL_CROSS_ENTROPY_TARGETS].p,
                              .row_loss = c->in[PL_CROSS_ENTROPY_WS].p,
                              .weights = c->in[PL_CROSS_ENTROPY_WEIGHTS].p,
                              .logp = c->out[PL_CROSS_ENTROPY_OUT_LOGP].p,
                              .scale = c->batch->loss_scale,
                              .limit = c->attr->limit,
                              .gradient = c->attr->gradient};
    t.counts = !t.gradient && !t.weights && !t.logp;
    const uint64_t need = pl_op_workspace_bytes(&dev->traits, PL_OP_CROSS_ENTROPY, c->attr,
                                                t.logits.rows, t.logits.cols);
    if (!pl_ws_holds(&c->in[PL_CROSS_ENTROPY_WS], need) ||
        !are_in_range(t.targets, t.logits.rows, t.logits.cols))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, t.logits.rows, pl_cpu_grain(t.logits.cols), loss_rows, &t);
    add_rows(&t, c->out[PL_CROSS_ENTROPY_OUT_LOSS].p);
    return PL_ERR_OK;
}
