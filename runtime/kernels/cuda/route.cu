/* route.cu - ROUTE, ROUTE_BWD and AUX_LOSS; the CPU's route.c says what they compute, and chooses
 * the same experts.
 *
 * A warp has a token: a lane looks after every 32nd expert, whose logits lie in shared memory.
 * Where there are stats a block leaves the counts and sums of PL_PARTIAL_ROWS tokens in the
 * workspace, and a second launch adds these in their order. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"

namespace {

enum { WARPS = 4, THREADS = WARPS * PL_WARP, STATS_THREADS = 128 };
static_assert(PL_ROUTE_MAX_EXPERTS <= 32 * PL_WARP, "a lane has a bit for each of its experts");

struct odds { /* of a token, in shared memory */
    float *x; /* [E]: logits */
    uint32_t n;
    float max, factor; /* p[e] = exp(x[e] - max) * factor, over all experts */
    __device__ __forceinline__ float p(uint32_t e) const { return expf(x[e] - max) * factor; }
};

__device__ __forceinline__ uint32_t lane_of(void) {
    return threadIdx.x % PL_WARP;
}

/* A number whose order is that of the logits, above 0; a NaN is the largest. */
__device__ __forceinline__ uint32_t rank_of(float x) {
    const uint32_t u = x == 0.0f ? 0 : pl_bits_of_f32(x);
    if (x != x) return UINT32_MAX;
    return u >> 31 ? ~u : u | 0x80000000u;
}

struct larger {
    __device__ __forceinline__ unsigned long long operator()(unsigned long long a,
                                                             unsigned long long b) const {
        return a > b ? a : b;
    }
};

/* Returns the expert with the largest logit, the lowest of several, that is not among `taken`, the
 * bits of the lane's experts; and takes it. */
__device__ __forceinline__ uint32_t take_best(const struct odds &o, uint32_t *taken) {
    unsigned long long best = 0;
    uint32_t bit = 0;
    for (uint32_t e = lane_of(); e < o.n; e += PL_WARP, bit++)
        if (!(*taken >> bit & 1)) {
            const unsigned long long rank = (unsigned long long)rank_of(o.x[e]) << 32 | ~e;
            best = best > rank ? best : rank;
        }
    const uint32_t e = ~(uint32_t)pl_warp_reduce<larger>(best);
    if (e % PL_WARP == lane_of()) *taken |= 1u << e / PL_WARP;
    return e;
}

/* Loads a token's logits; its warp may read them afterwards. */
template <typename T>
__device__ __forceinline__ void load_odds(struct odds *o, const pl_mat<T> &logits, uint64_t t) {
    __syncwarp(); /* those of the token before are used */
    for (uint32_t e = lane_of(); e < o->n; e += PL_WARP)
        o->x[e] = logits.get(t, e);
    __syncwarp();
}

/* Needs max. */
__device__ __forceinline__ void set_factor(struct odds *o) {
    float sum = 0.0f;
    for (uint32_t e = lane_of(); e < o->n; e += PL_WARP)
        sum += expf(o->x[e] - o->max);
    o->factor = 1.0f / pl_warp_reduce<pl_add>(sum);
}

template <typename T> struct route {
    pl_mat<T> logits;
    pl_mat<float> weight;
    int32_t *expert;
    uint64_t expert_ld, rows;
    double *partial; /* [blocks,2E]; NULL: none */
    uint32_t n, k;
    bool over_all; /* weights are of the softmax over all */
};

/* Returns the bits of the lane's experts that the token takes. */
template <typename T>
__device__ __forceinline__ uint32_t route_token(const route<T> &r, struct odds *o, uint64_t t) {
    uint32_t taken = 0;
    int32_t *expert = r.expert + t * r.expert_ld;
    float sum = 0.0f;
    load_odds(o, r.logits, t);
    for (uint32_t j = 0; j < r.k; j++) {
        const uint32_t e = take_best(*o, &taken);
        if (j == 0) o->max = o->x[e];
        sum += expf(o->x[e] - o->max);
        if (j % PL_WARP == lane_of()) expert[j] = (int32_t)e;
    }
    if (r.over_all || r.partial) set_factor(o);
    const float factor = r.over_all ? o->factor : 1.0f / sum;
    for (uint32_t j = lane_of(); j < r.k; j += PL_WARP) /* what the lane has written itself */
        r.weight.put(t, j, expf(o->x[expert[j]] - o->max) * factor);
    return taken;
}

template <typename T> __global__ void __launch_bounds__(THREADS) route_tokens(const route<T> r) {
    PL_SHARED(float, shared);
    const uint32_t warp = threadIdx.x / PL_WARP;
    float *sums = shared + WARPS * r.n, *counts = sums + WARPS * r.n; /* [WARPS][E] */
    struct odds o = {shared + warp * r.n, r.n, 0.0f, 0.0f};
    const uint64_t begin = (uint64_t)blockIdx.x * PL_PARTIAL_ROWS;
    const uint64_t end = r.rows - begin < PL_PARTIAL_ROWS ? r.rows : begin + PL_PARTIAL_ROWS;
    for (uint32_t e = lane_of(); r.partial && e < r.n; e += PL_WARP)
        sums[warp * r.n + e] = counts[warp * r.n + e] = 0.0f;
    for (uint64_t t = begin + warp; t < end; t += WARPS) {
        const uint32_t taken = route_token(r, &o, t);
        uint32_t bit = 0;
        for (uint32_t e = lane_of(); r.partial && e < r.n; e += PL_WARP, bit++) {
            sums[warp * r.n + e] += o.p(e);
            counts[warp * r.n + e] += (float)(taken >> bit & 1);
        }
    }
    if (!r.partial) return; /* all threads of the grid alike */
    __syncthreads();
    double *partial = r.partial + (uint64_t)blockIdx.x * 2 * r.n;
    for (uint32_t e = threadIdx.x; e < r.n; e += THREADS) {
        double count = 0, sum = 0;
        for (uint32_t w = 0; w < WARPS; w++) {
            count += counts[w * r.n + e];
            sum += sums[w * r.n + e];
        }
        partial[e] = count;
        partial[r.n + e] = sum;
    }
}

/* stats[n] (=|+=) partial[chunks,n], in their order */
__global__ void __launch_bounds__(STATS_THREADS)
    add_stats(const double *__restrict__ partial, double *__restrict__ stats, uint64_t chunks,
              uint32_t n, bool adds) {
    const uint32_t i = blockIdx.x * STATS_THREADS + threadIdx.x;
    if (i >= n) return;
    double sum = adds ? stats[i] : 0.0;
    for (uint64_t c = 0; c < chunks; c++)
        sum += partial[c * n + i];
    stats[i] = sum;
}

template <typename T> void launch_route(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *logits = &c->in[PL_ROUTE_LOGITS], *stats = &c->out[PL_ROUTE_OUT_STATS];
    const struct pl_view *expert = &c->out[PL_ROUTE_OUT_EXPERT];
    const uint64_t chunks = pl_u64_div_up(logits->rows, PL_PARTIAL_ROWS);
    const cudaStream_t stream = pl_cuda_of(dev)->stream;
    const uint32_t n = (uint32_t)logits->cols;
    route<T> r;
    r.logits = pl_mat_of<T>(*logits);
    r.weight = pl_mat_of<float>(c->out[PL_ROUTE_OUT_WEIGHT]);
    r.expert = (int32_t *)expert->p;
    r.expert_ld = expert->ld;
    r.rows = logits->rows;
    r.partial = stats->p ? (double *)c->in[PL_ROUTE_WS].p : NULL;
    r.n = n;
    r.k = (uint32_t)expert->cols;
    r.over_all = c->attr->softmax_first && !c->attr->normalise;
    const size_t shared = (r.partial ? 3 : 1) * WARPS * n * sizeof(float);
    if (chunks)
        PL_LAUNCH(route_tokens<T>, dim3((unsigned)chunks), dim3(THREADS), shared, stream, r);
    if (stats->p)
        PL_LAUNCH(add_stats, dim3((2 * n + STATS_THREADS - 1) / STATS_THREADS), dim3(STATS_THREADS),
                  0, stream, (const double *)r.partial, (double *)stats->p, chunks, 2 * n,
                  c->in[PL_ROUTE_STATS].p != NULL);
}

/* True if a matrix [N,k] of a router fits its logits. */
bool fits(const struct pl_view *logits, const struct pl_view *of_k, enum pl_dtype t) {
    return of_k->dtype == t && of_k->rows == logits->rows && of_k->cols <= logits->cols &&
           of_k->cols > 0;
}

bool are_logits(const struct pl_view *v) {
    return pl_is_float(v) && v->cols <= PL_ROUTE_MAX_EXPERTS &&
           v->rows <= PL_GRID_MAX * PL_PARTIAL_ROWS;
}

/* ---- ROUTE_BWD ---- */

template <typename T> struct route_bwd {
    pl_mat<T> logits, dlogits;
    pl_mat<float> weight, dweight;
    const int32_t *expert;
    const double *counts; /* [E]; NULL: no auxiliary loss */
    const struct pl_facts *facts;
    uint64_t expert_ld, rows;
    double choices; /* tokens of all layers */
    float coef;     /* attr.aux_coef * E / choices */
    uint32_t n, k;
    bool over_all;
};

/* d[E]: the gradient through the weights. */
template <typename T>
__device__ __forceinline__ void through_weights(const route_bwd<T> &b, const struct odds &o,
                                                uint64_t t, float *d) {
    const int32_t *expert = b.expert + t * b.expert_ld;
    float dot = 0.0f;
    for (uint32_t j = lane_of(); j < b.k; j += PL_WARP)
        dot += b.weight.get(t, j) * b.dweight.get(t, j);
    dot = pl_warp_reduce<pl_add>(dot);
    for (uint32_t e = lane_of(); e < b.n; e += PL_WARP)
        d[e] = b.over_all ? -dot * o.p(e) : 0.0f;
    __syncwarp();
    for (uint32_t j = lane_of(); j < b.k; j += PL_WARP) { /* no expert stands twice in a list */
        const uint32_t e = (uint32_t)expert[j];
        if (e < b.n) d[e] += b.weight.get(t, j) * (b.dweight.get(t, j) - (b.over_all ? 0.0f : dot));
    }
    __syncwarp();
}

template <typename T>
__device__ __forceinline__ void through_aux(const route_bwd<T> &b, const struct odds &o, float *d) {
    const float scale = b.coef * b.facts->aux_scale;
    float mean = 0.0f;
    for (uint32_t e = lane_of(); e < b.n; e += PL_WARP)
        mean += o.p(e) * (float)(b.counts[e] / b.choices);
    mean = pl_warp_reduce<pl_add>(mean);
    for (uint32_t e = lane_of(); e < b.n; e += PL_WARP)
        d[e] += scale * o.p(e) * ((float)(b.counts[e] / b.choices) - mean);
}

template <typename T>
__global__ void __launch_bounds__(THREADS) route_backward(const route_bwd<T> b) {
    PL_SHARED(float, shared);
    const uint32_t warp = threadIdx.x / PL_WARP;
    const uint64_t t = (uint64_t)blockIdx.x * WARPS + warp;
    struct odds o = {shared + warp * b.n, b.n, 0.0f, 0.0f};
    float *d = shared + (WARPS + warp) * b.n;
    if (t >= b.rows) return; /* a whole warp */
    load_odds(&o, b.logits, t);
    const uint32_t first = (uint32_t)b.expert[t * b.expert_ld];
    o.max = first < b.n ? o.x[first] : NAN;
    if (b.over_all || b.counts) set_factor(&o);
    through_weights(b, o, t, d);
    if (b.counts) through_aux(b, o, d);
    for (uint32_t e = lane_of(); e < b.n; e += PL_WARP)
        b.dlogits.put(t, e, d[e]);
}

/* The number of choices that counts and sums are divided by. */
double choices_of(const struct pl_call *c) {
    return (double)c->attr->aux_layers * (double)c->batch->n_tokens;
}

template <typename T> void launch_route_bwd(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *logits = &c->in[PL_ROUTE_BWD_LOGITS];
    const struct pl_view *expert = &c->in[PL_ROUTE_BWD_EXPERT];
    route_bwd<T> b;
    b.logits = pl_mat_of<T>(*logits);
    b.dlogits = pl_mat_of<T>(c->out[PL_ROUTE_BWD_OUT_DLOGITS]);
    b.weight = pl_mat_of<float>(c->in[PL_ROUTE_BWD_WEIGHT]);
    b.dweight = pl_mat_of<float>(c->in[PL_ROUTE_BWD_DWEIGHT]);
    b.expert = (const int32_t *)expert->p;
    b.choices = choices_of(c);
    b.counts = b.choices > 0 ? (const double *)c->in[PL_ROUTE_BWD_STATS].p : NULL;
    b.facts = c->batch->facts;
    b.expert_ld = expert->ld;
    b.rows = logits->rows;
    b.n = (uint32_t)logits->cols;
    b.k = (uint32_t)expert->cols;
    b.coef = (float)((double)c->attr->aux_coef * b.n / (b.counts ? b.choices : 1.0));
    b.over_all = c->attr->softmax_first && !c->attr->normalise;
    PL_LAUNCH(route_backward<T>, dim3((unsigned)pl_u64_div_up(b.rows, WARPS)), dim3(THREADS),
              2 * WARPS * b.n * sizeof(float), pl_cuda_of(dev)->stream, b);
}

/* ---- AUX_LOSS ---- */

__global__ void __launch_bounds__(PL_WARP)
    aux_loss(const double *__restrict__ stats, double *__restrict__ loss, uint32_t n,
             double choices, double coef, const struct pl_facts *facts) {
    double sum = 0;
    for (uint32_t e = threadIdx.x; e < n; e += PL_WARP)
        sum += stats[e] / choices * (stats[n + e] / choices);
    sum = pl_warp_reduce<pl_add>(sum);
    if (threadIdx.x == 0 && facts->loss_scale != 0.0f)
        loss[0] += coef * sum * (double)facts->aux_scale / (double)facts->loss_scale;
}

typedef void (*route_launch)(struct pl_device *, const struct pl_call *);

} // namespace

/* in: logits[N,E], stats[2E]f64? ws; out: weight[N,k]f32, expert[N,k]i32, stats[2E]f64?. */
extern "C" pl_err pl_cuda_route(struct pl_device *dev, const struct pl_call *c) {
    static const route_launch launch[PL_FORMS] = PL_TYPE_TABLE(launch_route);
    const struct pl_view *logits = &c->in[PL_ROUTE_LOGITS], *stats = &c->out[PL_ROUTE_OUT_STATS];
    const struct pl_view *weight = &c->out[PL_ROUTE_OUT_WEIGHT];
    const struct pl_view *expert = &c->out[PL_ROUTE_OUT_EXPERT];
    if (!are_logits(logits) || !fits(logits, weight, PL_DTYPE_F32) ||
        !fits(logits, expert, PL_DTYPE_I32) || weight->cols != expert->cols ||
        (stats->p && (stats->rows != 2 * logits->cols ||
                      !pl_ws_holds(&c->in[PL_ROUTE_WS],
                                   pl_op_workspace_bytes(&dev->traits, PL_OP_ROUTE, c->attr,
                                                         logits->rows, logits->cols)))))
        return PL_ERR_PLAN_BROKEN;
    launch[pl_form_of_type(logits->dtype)](dev, c);
    return pl_cuda_launched();
}

/* in: logits[N,E], weight[N,k]f32, expert[N,k]i32, dweight[N,k]f32, stats[2E]f64?; out:
 * dlogits[N,E]. */
extern "C" pl_err pl_cuda_route_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const route_launch launch[PL_FORMS] = PL_TYPE_TABLE(launch_route_bwd);
    const struct pl_view *logits = &c->in[PL_ROUTE_BWD_LOGITS];
    const struct pl_view *weight = &c->in[PL_ROUTE_BWD_WEIGHT];
    const struct pl_view *expert = &c->in[PL_ROUTE_BWD_EXPERT];
    const struct pl_view *dweight = &c->in[PL_ROUTE_BWD_DWEIGHT];
    const struct pl_view *stats = &c->in[PL_ROUTE_BWD_STATS];
    const struct pl_view *dlogits = &c->out[PL_ROUTE_BWD_OUT_DLOGITS];
    if (!are_logits(logits) || !fits(logits, weight, PL_DTYPE_F32) ||
        !fits(logits, expert, PL_DTYPE_I32) || !fits(logits, dweight, PL_DTYPE_F32) ||
        weight->cols != expert->cols || weight->cols != dweight->cols ||
        dlogits->rows != logits->rows || dlogits->cols != logits->cols || !pl_is_float(dlogits) ||
        (stats->p && (stats->rows != 2 * logits->cols || !c->batch->facts)))
        return PL_ERR_PLAN_BROKEN;
    const int form =
        dlogits->dtype == logits->dtype ? pl_form_of_type(logits->dtype) : (int)PL_FORM_EITHER;
    if (logits->rows) launch[form](dev, c);
    return pl_cuda_launched();
}

/* in: stats[2E]f64, loss[2]f64!; out: loss[2]f64!. */
extern "C" pl_err pl_cuda_aux_loss(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *stats = &c->in[PL_AUX_LOSS_STATS];
    const struct pl_view *loss = &c->out[PL_AUX_LOSS_OUT_LOSS];
    const uint64_t n = stats->rows / 2;
    const double choices = choices_of(c);
    if (stats->rows != 2 * n || n > PL_ROUTE_MAX_EXPERTS || loss->rows != 2 || !c->batch->facts)
        return PL_ERR_PLAN_BROKEN;
    if (choices > 0)
        PL_LAUNCH(aux_loss, dim3(1), dim3(PL_WARP), 0, pl_cuda_of(dev)->stream,
                  (const double *)stats->p, (double *)loss->p, (uint32_t)n, choices,
                  (double)c->attr->aux_coef * (double)n, c->batch->facts);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(route) = {PL_TYPE_KERNELS(route_tokens), PL_TYPE_KERNELS(route_backward),
                          PL_CUDA_KERNEL(add_stats), PL_CUDA_KERNEL(aux_loss), NULL};
