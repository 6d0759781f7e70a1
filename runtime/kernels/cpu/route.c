/* route.c - ROUTE: the k experts of every token with their weights; ROUTE_BWD: its gradient with
 * that of the auxiliary loss, which AUX_LOSS adds (Fedus et al., "Switch Transformers", 2021).
 *
 * The k largest of the softmax are the k largest logits, which are compared as they are stored: two
 * back-ends choose alike, and a NaN is the largest of all. */
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"
#include "runtime/kernels/cpu/simd.h"

#define MOST PL_ROUTE_MAX_EXPERTS

/* A router's row of logits, as fp32 and as probabilities over all experts. */
struct odds {
    float x[MOST], p[MOST];
};

struct route {
    struct pl_view logits, weight, expert; /* [N,E], [N,k], [N,k] */
    double *partial;                       /* [chunks,2E]: counts, sums; NULL: none */
    bool over_all;                         /* weights are of the softmax over all */
};

/* True if the weights of a router are not those of a softmax over the experts that were chosen,
 * which is what dividing them by their sum comes to. */
static bool is_over_all(const struct pl_attr *attr) {
    return attr->softmax_first && !attr->normalise;
}

static bool fits(const struct pl_view *logits, const struct pl_view *of_k) {
    return logits->cols <= MOST && of_k->rows == logits->rows && of_k->cols <= logits->cols;
}

/* A number whose order is that of the logits, above 0. */
static inline uint32_t rank_of(float x) {
    const uint32_t u = x == 0 ? 0 : pl_f32_bits(x);
    if (x != x) return UINT32_MAX;
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* experts[k]: the largest first. */
static void choose(const float *x, uint32_t n, int32_t *experts, uint64_t k) {
    uint32_t rank[MOST];
    for (uint32_t e = 0; e < n; e++)
        rank[e] = rank_of(x[e]);
    for (uint64_t j = 0; j < k; j++) {
        uint32_t best = 0;
        for (uint32_t e = 1; e < n; e++)
            best = rank[e] > rank[best] ? e : best;
        experts[j] = (int32_t)best;
        rank[best] = 0;
    }
}

/* p = softmax(x), max being the largest of x. The sum is in fp64, so that how exact it is does not
 * depend on the vectors of a level. */
static void set_odds(struct odds *o, uint32_t n, float max) {
    double sum = 0;
    for (uint32_t e = 0; e < n; e++) {
        o->p[e] = pl_expf(o->x[e] - max);
        sum += (double)o->p[e];
    }
    const float factor = (float)(1.0 / sum);
    for (uint32_t e = 0; e < n; e++)
        o->p[e] *= factor;
}

static void set_weights(const struct route *r, const struct odds *o, const int32_t *experts,
                        float *weight, uint64_t k) {
    double sum = 0;
    for (uint64_t j = 0; j < k; j++) {
        weight[j] = r->over_all ? o->p[experts[j]] : pl_expf(o->x[experts[j]] - o->x[experts[0]]);
        sum += (double)weight[j];
    }
    for (uint64_t j = 0; j < k && !r->over_all; j++)
        weight[j] = (float)((double)weight[j] / sum);
}

static void add_to_stats(double *partial, uint64_t n, const struct odds *o, const int32_t *experts,
                         uint64_t k) {
    for (uint64_t j = 0; j < k; j++)
        partial[experts[j]]++;
    for (uint64_t e = 0; e < n; e++)
        partial[n + e] += (double)o->p[e];
}

static void route_token(const struct route *r, uint64_t t, double *partial) {
    struct odds o;
    const uint64_t n = r->logits.cols, k = r->weight.cols;
    int32_t *experts = pl_at(&r->expert, t, 0);
    pl_load_row(&r->logits, t, o.x);
    choose(o.x, (uint32_t)n, experts, k);
    if (r->over_all || partial) set_odds(&o, (uint32_t)n, o.x[experts[0]]);
    set_weights(r, &o, experts, pl_at(&r->weight, t, 0), k);
    if (partial) add_to_stats(partial, n, &o, experts, k);
}

static void route_chunks(void *arg, uint64_t chunk0, uint64_t chunk1, uint32_t worker) {
    const struct route *r = arg;
    const uint64_t stats = 2 * r->logits.cols;
    (void)worker;
    for (uint64_t i = chunk0; i < chunk1; i++) {
        double *partial = r->partial ? r->partial + i * stats : NULL;
        if (partial) memset(partial, 0, stats * sizeof *partial);
        const uint64_t end = pl_u64_min((i + 1) * PL_PARTIAL_ROWS, r->logits.rows);
        for (uint64_t t = i * PL_PARTIAL_ROWS; t < end; t++)
            route_token(r, t, partial);
    }
}

/* in: logits[N,E], stats[2E]f64? ws; out: weight[N,k]f32, expert[N,k]i32, stats[2E]f64?. */
pl_err PL_CPU(route)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *stats = &c->out[PL_ROUTE_OUT_STATS], *ws = &c->in[PL_ROUTE_WS];
    struct route r = {.logits = c->in[PL_ROUTE_LOGITS],
                      .weight = c->out[PL_ROUTE_OUT_WEIGHT],
                      .expert = c->out[PL_ROUTE_OUT_EXPERT],
                      .partial = stats->p ? ws->p : NULL,
                      .over_all = is_over_all(c->attr)};
    const uint64_t chunks = pl_u64_div_up(r.logits.rows, PL_PARTIAL_ROWS), n = 2 * r.logits.cols;
    if (!fits(&r.logits, &r.weight) || !fits(&r.logits, &r.expert) ||
        r.weight.cols != r.expert.cols || r.weight.cols == 0 ||
        (stats->p && (stats->rows != n || !pl_ws_holds(ws, chunks * n * sizeof(double)))))
        return PL_ERR_PLAN_BROKEN;
    pl_cpu_rows(dev, chunks, 1, route_chunks, &r);
    double *sum = stats->p;
    if (sum && !c->in[PL_ROUTE_STATS].p) memset(sum, 0, n * sizeof *sum);
    for (uint64_t i = 0; sum && i < chunks * n; i++)
        sum[i % n] += r.partial[i];
    return PL_ERR_OK;
}

/* ---- ROUTE_BWD ---- */

struct route_bwd {
    struct pl_view logits, weight, expert, dweight, dlogits;
    const double *counts; /* [E]; NULL: no auxiliary loss */
    double aux;           /* d loss / d p[t,e] = aux counts[e] */
    bool over_all;
};

/* d = the gradient through the weights. */
static void through_weights(const struct route_bwd *b, uint64_t t, const struct odds *o,
                            double *d) {
    const int32_t *experts = pl_at(&b->expert, t, 0);
    const float *weight = pl_at(&b->weight, t, 0), *dweight = pl_at(&b->dweight, t, 0);
    double dot = 0;
    for (uint64_t j = 0; j < b->weight.cols; j++)
        dot += (double)weight[j] * (double)dweight[j];
    for (uint64_t e = 0; e < b->logits.cols; e++)
        d[e] = b->over_all ? -dot * (double)o->p[e] : 0.0;
    for (uint64_t j = 0; j < b->weight.cols; j++)
        d[experts[j]] += (double)weight[j] * ((double)dweight[j] - (b->over_all ? 0.0 : dot));
}

static void through_aux(const struct route_bwd *b, const struct odds *o, double *d) {
    double mean = 0;
    for (uint64_t e = 0; e < b->logits.cols; e++)
        mean += (double)o->p[e] * b->counts[e];
    for (uint64_t e = 0; e < b->logits.cols; e++)
        d[e] += b->aux * (double)o->p[e] * (b->counts[e] - mean);
}

static void route_bwd_rows(void *arg, uint64_t row0, uint64_t row1, uint32_t worker) {
    const struct route_bwd *b = arg;
    struct odds o;
    double d[MOST];
    (void)worker;
    for (uint64_t t = row0; t < row1; t++) {
        const int32_t *experts = pl_at(&b->expert, t, 0);
        pl_load_row(&b->logits, t, o.x);
        if (b->over_all || b->counts) set_odds(&o, (uint32_t)b->logits.cols, o.x[experts[0]]);
        through_weights(b, t, &o, d);
        if (b->counts) through_aux(b, &o, d);
        for (uint64_t e = 0; e < b->logits.cols; e++)
            o.x[e] = (float)d[e];
        pl_store_row(&b->dlogits, t, o.x);
    }
}

/* The number of choices that counts and sums are divided by: tokens of all layers. */
static double choices(const struct pl_call *c) {
    return (double)c->attr->aux_layers * (double)c->batch->n_tokens;
}

/* in: logits[N,E], weight[N,k]f32, expert[N,k]i32, dweight[N,k]f32, stats[2E]f64?; out:
 * dlogits[N,E]. */
pl_err PL_CPU(route_bwd)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *stats = &c->in[PL_ROUTE_BWD_STATS];
    struct route_bwd b = {.logits = c->in[PL_ROUTE_BWD_LOGITS],
                          .weight = c->in[PL_ROUTE_BWD_WEIGHT],
                          .expert = c->in[PL_ROUTE_BWD_EXPERT],
                          .dweight = c->in[PL_ROUTE_BWD_DWEIGHT],
                          .dlogits = c->out[PL_ROUTE_BWD_OUT_DLOGITS],
                          .counts = stats->p,
                          .over_all = is_over_all(c->attr)};
    const uint64_t n = b.logits.cols, k = b.weight.cols;
    const double all = choices(c);
    if (!fits(&b.logits, &b.weight) || !fits(&b.logits, &b.expert) ||
        !fits(&b.logits, &b.dweight) || b.expert.cols != k || b.dweight.cols != k || k == 0 ||
        b.dlogits.rows != b.logits.rows || b.dlogits.cols != n ||
        (stats->p && stats->rows != 2 * n) || !pl_indices_below(&b.expert, n))
        return PL_ERR_PLAN_BROKEN;
    if (stats->p && all > 0)
        b.aux = (double)c->attr->aux_coef * (double)c->batch->aux_scale * (double)n / (all * all);
    pl_cpu_rows(dev, b.logits.rows, pl_cpu_grain(4 * n), route_bwd_rows, &b);
    return PL_ERR_OK;
}

/* ---- AUX_LOSS ---- */

/* in: stats[2E]f64, loss[2]f64!; out: loss[2]f64!. A step that trains no token has no loss. */
pl_err PL_CPU(aux_loss)(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *stats = &c->in[PL_AUX_LOSS_STATS];
    const double *counts = stats->p, all = choices(c);
    const uint64_t n = stats->rows / 2;
    double *loss = c->out[PL_AUX_LOSS_OUT_LOSS].p, sum = 0;
    (void)dev;
    if (stats->rows != 2 * n || c->out[PL_AUX_LOSS_OUT_LOSS].rows != 2) return PL_ERR_PLAN_BROKEN;
    if (!(all > 0) || c->batch->loss_scale == 0) return PL_ERR_OK;
    for (uint64_t e = 0; e < n; e++)
        sum += counts[e] / all * (counts[n + e] / all);
    loss[0] += (double)c->attr->aux_coef * (double)n * sum * (double)c->batch->aux_scale /
               (double)c->batch->loss_scale;
    return PL_ERR_OK;
}
