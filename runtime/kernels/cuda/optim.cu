/* optim.cu - SQUARE_SUM, CLIP_SCALE, ADAMW, SGD: from gradients to new weights.
 *
 * Tensors that lie in one piece are updated as one row in packs of eight elements, for which one
 * block of random numbers serves stochastic rounding; anything else goes element by element. */
#include "runtime/kernels/cuda/update.cuh"

#include "estimator/base/checked.h"
#include "estimator/program/workspace_cuda_rows.h"

#include <math.h>

namespace {

#define BLOCK 256

/* ---- SQUARE_SUM ----
 * A block sums every gridDim.x-th run of PL_CUDA_SQUARE_ELEMENTS in fp64, a second launch the
 * blocks; the number of blocks follows from the elements, so the order is that of the shape. */

template <typename T> struct square_sum {
    pl_mat<T> g;
    uint64_t cols, n; /* n = rows * cols */
    double *sums;     /* [gridDim.x] */
};

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) sum_squares(const square_sum<T> t) {
    PL_SHARED(double, shared);
    double sum = 0;
    for (uint64_t run = blockIdx.x * PL_CUDA_SQUARE_ELEMENTS; run < t.n;
         run += gridDim.x * PL_CUDA_SQUARE_ELEMENTS) {
        const uint64_t left = t.n - run;
        const uint32_t end =
            (uint32_t)(left < PL_CUDA_SQUARE_ELEMENTS ? left : PL_CUDA_SQUARE_ELEMENTS);
#pragma unroll 4
        for (uint32_t e = threadIdx.x * V; e < end; e += BLOCK * V) {
            const uint64_t i = run + e, row = t.cols == t.n ? 0 : i / t.cols;
            float f[V];
            pl_floats(pl_load<T, V>(t.g, row, i - row * t.cols, t.cols), f);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum += (double)f[k] * (double)f[k];
        }
    }
    sum = pl_team_reduce<pl_add>(sum, shared);
    if (threadIdx.x == 0) t.sums[blockIdx.x] = sum;
}

/* The n numbers by one block, each thread its share, then the threads in order. */
__device__ __forceinline__ double sum_by_block(const double *x, uint32_t n, double *shared) {
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += BLOCK)
        sum += x[i];
    return pl_team_reduce<pl_add>(sum, shared);
}

__global__ void __launch_bounds__(BLOCK) sum_blocks(const double *sums, uint32_t n, double *out) {
    PL_SHARED(double, shared);
    const double sum = sum_by_block(sums, n, shared);
    if (threadIdx.x == 0) *out = sum;
}

struct square_call {
    struct pl_view g;
    uint32_t blocks;
    double *sums;
};

template <typename T, int V> void launch_square(const struct square_call *s, cudaStream_t stream) {
    const square_sum<T> t = {pl_mat_of<T>(s->g), s->g.cols, s->g.rows * s->g.cols, s->sums};
    PL_LAUNCH((sum_squares<T, V>), dim3(s->blocks), dim3(BLOCK), BLOCK / PL_WARP * sizeof(double),
              stream, t);
}

/* As torch.nn.utils.clip_grad_norm_, and NaN where the step, or one before it, must not be
 * committed. */
__global__ void __launch_bounds__(BLOCK)
    scale_of_norm(const double *partials, uint32_t n, float max_norm, const double *loss,
                  double *clip) {
    PL_SHARED(double, shared);
    const double norm = sqrt(sum_by_block(partials, n, shared));
    if (threadIdx.x) return;
    const double scale = max_norm > 0 ? fmin(1.0, (double)max_norm / (norm + 1e-6)) : 1.0;
    const bool lost = !isfinite(norm) || !isfinite(loss[0]) || isnan(clip[1]);
    clip[0] = norm;
    clip[1] = lost ? (double)NAN : scale;
}

/* ---- ADAMW and SGD ---- */

struct rule {
    float decay, rate;                /* p = p * decay - ... */
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta, rounded from double */
    float step_size, inverse_root, epsilon;
    bool rounds_stochastically;
    struct pl_rng rng;
    uint64_t first; /* element of the tensor where w begins */
};

template <typename W, typename G, typename S> struct update {
    pl_mat<W> w;
    pl_mat<G> g;
    pl_mat<S> m, v, master; /* m absent = SGD */
    const double *clip;
    uint64_t cols;
    uint32_t row_blocks; /* blocks side by side in a row */
    struct rule rule;
};

/* Kingma and Ba, arXiv 1412.6980, with the decay of Loshchilov and Hutter, arXiv 1711.05101; bias
 * corrections folded into step_size = lr/(1-b1^t) and inverse_root = 1/sqrt(1-b2^t). */
__device__ __forceinline__ float adamw(const struct rule &u, float p, float g, float &m, float &v) {
    m = u.beta1 * m + u.rest1 * g;
    v = u.beta2 * v + u.rest2 * g * g;
    const float root = sqrtf(v) * u.inverse_root + u.epsilon;
    return p * u.decay - u.step_size * m / root;
}

template <typename W, typename G, typename S, int V>
__device__ __forceinline__ void apply_rule(const update<W, G, S> &t, uint64_t row, uint64_t col,
                                           float (&p)[V]) {
    const float clip = (float)t.clip[1];
    float g[V];
    pl_floats(pl_load<G, V>(t.g, row, col, t.cols), g);
    if (!t.m.p) {
#pragma unroll
        for (int i = 0; i < V; i++)
            p[i] = p[i] * t.rule.decay - t.rule.rate * (g[i] * clip);
        return;
    }
    float m[V], v[V];
    pl_floats(pl_load<S, V>(t.m, row, col, t.cols), m);
    pl_floats(pl_load<S, V>(t.v, row, col, t.cols), v);
#pragma unroll
    for (int i = 0; i < V; i++)
        p[i] = adamw(t.rule, p[i], g[i] * clip, m[i], v[i]);
    pl_store(t.m, row, col, t.cols, pl_packed(t.m, m));
    pl_store(t.v, row, col, t.cols, pl_packed(t.v, v));
}

/* V elements a thread. */
template <typename W, typename G, typename S, int V>
__global__ void __launch_bounds__(BLOCK) update_elements(const update<W, G, S> t) {
    const uint64_t row = blockIdx.x / t.row_blocks;
    const uint64_t col = ((uint64_t)(blockIdx.x % t.row_blocks) * BLOCK + threadIdx.x) * V;
    if (col >= t.cols || isnan(t.clip[1])) return;
    float p[V];
    if (t.master.p)
        pl_floats(pl_load<S, V>(t.master, row, col, t.cols), p);
    else
        pl_floats(pl_load<W, V>(t.w, row, col, t.cols), p);
    apply_rule<W, G, S, V>(t, row, col, p);
    if (t.master.p) pl_store(t.master, row, col, t.cols, pl_packed(t.master, p));
    if (t.rule.rounds_stochastically)
        pl_round_elements(t.rule.rng, t.rule.first + row * t.cols + col, p);
    pl_store(t.w, row, col, t.cols, pl_packed(t.w, p));
}

struct update_call {
    struct pl_view w, g, m, v, master;
    const double *clip;
    struct rule rule;
};

template <typename W, typename G, typename S, int V>
pl_err launch_update(const struct update_call *u, cudaStream_t stream) {
    const uint64_t row_blocks = pl_u64_div_up(u->w.cols, (uint64_t)BLOCK * V);
    uint64_t blocks;
    if (!pl_u64_mul(u->w.rows, row_blocks, &blocks) || blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    const update<W, G, S> t = {pl_mat_of<W>(u->w), pl_mat_of<G>(u->g),      pl_mat_of<S>(u->m),
                               pl_mat_of<S>(u->v), pl_mat_of<S>(u->master), u->clip,
                               u->w.cols,          (uint32_t)row_blocks,    u->rule};
    if (blocks)
        PL_LAUNCH((update_elements<W, G, S, V>), dim3((unsigned)blocks), dim3(BLOCK), 0, stream, t);
    return pl_cuda_launched();
}

typedef pl_err (*update_fn)(const struct update_call *u, cudaStream_t stream);

/* By the forms of w and g, each fp32 or bf16. */
const update_fn updates[2][2] = {
    {launch_update<float, float, float, PL_UPDATE_PACK>,
     launch_update<float, __nv_bfloat16, float, PL_UPDATE_PACK>},
    {launch_update<__nv_bfloat16, float, float, PL_UPDATE_PACK>,
     launch_update<__nv_bfloat16, __nv_bfloat16, float, PL_UPDATE_PACK>},
};

/* Packs need every tensor in one piece and aligned. */
pl_err run_update(struct pl_device *dev, struct update_call *u) {
    struct pl_view *const views[] = {&u->w, &u->g, &u->m, &u->v, &u->master};
    bool packs = true;
    for (const struct pl_view *v : views)
        packs = packs && pl_is_whole(v);
    for (struct pl_view *v : views)
        if (packs) *v = pl_flat(v);
    for (const struct pl_view *v : views)
        packs = packs && pl_is_aligned(v);
    if (!pl_is_float(&u->w) || !pl_is_float(&u->g)) return PL_ERR_PLAN_BROKEN;
    const update_fn fn = packs ? updates[u->w.dtype == PL_DTYPE_BF16][u->g.dtype == PL_DTYPE_BF16]
                               : launch_update<pl_either, pl_either, pl_either, 1>;
    return fn(u, pl_cuda_of(dev)->stream);
}

struct rule rule_of(const struct pl_call *c, bool has_master) {
    const struct pl_batch *b = c->batch;
    const double t = (double)b->step;
    struct rule r = {};
    r.decay = (float)(1.0 - (c->attr->decay ? b->learning_rate * b->weight_decay : 0.0));
    r.rate = (float)b->learning_rate;
    r.beta1 = (float)b->beta1;
    r.rest1 = (float)(1.0 - b->beta1);
    r.beta2 = (float)b->beta2;
    r.rest2 = (float)(1.0 - b->beta2);
    r.step_size = (float)(b->learning_rate / (1.0 - pow(b->beta1, t)));
    r.inverse_root = (float)(1.0 / sqrt(1.0 - pow(b->beta2, t)));
    r.epsilon = (float)b->epsilon;
    r.rounds_stochastically = !has_master && c->in[0].dtype == PL_DTYPE_BF16;
    r.rng = pl_rng_init(b->seed, b->step, c->attr->site);
    r.first = c->attr->first_element;
    return r;
}

} // namespace

/* in: g[..], partials[M]f64, ws; out: partials[M]f64. */
extern "C" pl_err pl_cuda_square_sum(struct pl_device *dev, const struct pl_call *c) {
    static void (*const by_form[PL_FORMS])(const struct square_call *, cudaStream_t) =
        PL_FORM_TABLE(launch_square);
    const struct pl_view g = pl_flat(&c->in[0]), *const views[] = {&g};
    const int form = g.rows <= 1 ? pl_form_of(views, 1) : PL_FORM_EITHER;
    const uint64_t need = pl_op_workspace_bytes(&dev->traits, PL_OP_SQUARE_SUM, c->attr,
                                                c->in[0].rows, c->in[0].cols, false);
    const struct square_call s = {g, (uint32_t)(need / sizeof(double)), (double *)c->in[2].p};
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (!pl_ws_holds(&c->in[2], need) || c->attr->index >= c->out[0].rows)
        return PL_ERR_PLAN_BROKEN;
    if (s.blocks) by_form[form](&s, stream);
    PL_LAUNCH(sum_blocks, dim3(1), dim3(BLOCK), BLOCK / PL_WARP * sizeof(double), stream, s.sums,
              s.blocks, (double *)c->out[0].p + c->attr->index);
    return pl_cuda_launched();
}

/* in: partials[M]f64, loss[2]f64, clip[2]f64; out: clip[2]f64. */
extern "C" pl_err pl_cuda_clip_scale(struct pl_device *dev, const struct pl_call *c) {
    PL_LAUNCH(scale_of_norm, dim3(1), dim3(BLOCK), BLOCK / PL_WARP * sizeof(double),
              pl_cuda_of(dev)->stream, (const double *)c->in[0].p, (uint32_t)c->in[0].rows,
              c->attr->max_norm, (const double *)c->in[1].p, (double *)c->out[0].p);
    return pl_cuda_launched();
}

/* in: w, g, m f32, v f32, clip[2]f64, master? f32; out: w, m, v, master?. */
extern "C" pl_err pl_cuda_adamw(struct pl_device *dev, const struct pl_call *c) {
    struct update_call u = {c->in[0],
                            c->in[1],
                            c->in[2],
                            c->in[3],
                            c->in[5],
                            (const double *)c->in[4].p,
                            rule_of(c, c->in[5].p != NULL)};
    return run_update(dev, &u);
}

/* in: w, g, clip[2]f64, master? f32; out: w, master?. w -= lr * (g + wd * w). */
extern "C" pl_err pl_cuda_sgd(struct pl_device *dev, const struct pl_call *c) {
    struct update_call u = {c->in[0],
                            c->in[1],
                            {},
                            {},
                            c->in[3],
                            (const double *)c->in[2].p,
                            rule_of(c, c->in[3].p != NULL)};
    return run_update(dev, &u);
}

PL_CUDA_PRELOAD(optim) = {
    PL_FORM_KERNELS(sum_squares),
    PL_CUDA_KERNEL(sum_blocks),
    PL_CUDA_KERNEL(scale_of_norm),
    PL_CUDA_KERNEL(update_elements<float, float, float, PL_UPDATE_PACK>),
    PL_CUDA_KERNEL(update_elements<float, __nv_bfloat16, float, PL_UPDATE_PACK>),
    PL_CUDA_KERNEL(update_elements<__nv_bfloat16, float, float, PL_UPDATE_PACK>),
    PL_CUDA_KERNEL(update_elements<__nv_bfloat16, __nv_bfloat16, float, PL_UPDATE_PACK>),
    PL_CUDA_KERNEL(update_elements<pl_either, pl_either, pl_either, 1>),
    NULL};
