/* optim.cu - SQUARE_SUM, CLIP_SCALE and the updates with states in fp32: from gradients to new
 * weights.
 *
 * Tensors that lie in one piece are updated as one row in packs of eight elements, for which one
 * block of random numbers serves stochastic rounding; anything else goes element by element. A
 * launch serves all tensors of a group that have one storage, up to PL_PARTS. */
#include "runtime/kernels/cuda/update.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_cuda_rows.h"
#include "runtime/kernels/squares.h"

#include <math.h>

namespace {

#define BLOCK 256

/* ---- SQUARE_SUM ----
 * A block of a tensor sums every blocks-th run of PL_CUDA_SQUARE_ELEMENTS, a second launch the
 * blocks of each tensor; their number follows from the elements, so the order is that of the shape.
 *
 * Of a run, the 1,024 squares of a warp are added in pairs in fp32, those of a thread first, then
 * those of the lanes; all the rest is fp64. Consumer GPUs have one fp64 unit for 64 of fp32 (CUDA
 * C++ Programming Guide, "Arithmetic Instructions"), and with an fp64 operation for each element
 * the kernel would wait for them rather than for memory.
 *
 * A square is rounded once and passes through ten additions of numbers that are not negative, each
 * of which errs by at most u = 2^-24 of its result: 11 u. Squares that underflow err by half of
 * 2^-149 each, together by 2^-140, which is u of SQUARES_LEAST. So a warp's sum that is at least
 * that and no infinity is right to 12 u. Any other, of gradients below 2^-63 or above 2^64 or so,
 * is done again in fp64. Nothing cancels, so 12 u, 7.2e-7, bounds the error of the whole as well.
 */

template <typename T> struct square_sum {
    pl_mat<T> g;
    uint64_t cols, n; /* n = rows * cols */
    double *sums;     /* [blocks] */
    uint32_t blocks;
};

#define SQUARES_LEAST 0x1p-116f
constexpr int SQUARES_EACH = PL_CUDA_SQUARE_ELEMENTS / BLOCK; /* elements of a run for a thread */

/* N is a power of two. */
template <int N> __device__ __forceinline__ float sum_in_pairs(float (&x)[N]) {
#pragma unroll
    for (int half = N / 2; half; half /= 2)
#pragma unroll
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

template <typename T, int V>
__device__ __forceinline__ void load_gradient(const square_sum<T> &t, uint64_t i, float (&f)[V]) {
    const uint64_t row = t.cols == t.n ? 0 : i / t.cols;
    pl_floats(pl_load<T, V>(t.g, row, i - row * t.cols, t.cols), f);
}

/* The thread's elements of the run that has `end`. */
template <typename T, int V>
__device__ __forceinline__ float thread_squares(const square_sum<T> &t, uint64_t run,
                                                uint32_t end) {
    float packs[SQUARES_EACH / V];
#pragma unroll
    for (int p = 0; p < SQUARES_EACH / V; p++) {
        const uint32_t e = (p * BLOCK + threadIdx.x) * V;
        float f[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] = 0.0f;
        if (e < end) load_gradient<T, V>(t, run + e, f);
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] *= f[k];
        packs[p] = sum_in_pairs(f);
    }
    return sum_in_pairs(packs);
}

/* The same in fp64. Most packs that are asked for here are zeros: rows of an embedding that no
 * token of the batch has. */
template <typename T, int V>
__device__ __forceinline__ double thread_squares_fp64(const square_sum<T> &t, uint64_t run,
                                                      uint32_t end) {
    double sum = 0;
#pragma unroll 1
    for (uint32_t e = threadIdx.x * V; e < end; e += BLOCK * V) {
        float f[V];
        bool any = false;
        load_gradient<T, V>(t, run + e, f);
#pragma unroll
        for (int k = 0; k < V; k++)
            any = any || f[k] != 0.0f;
        if (!any) continue;
#pragma unroll
        for (int k = 0; k < V; k++)
            sum += (double)f[k] * (double)f[k];
    }
    return sum;
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK)
    sum_squares(const __grid_constant__ pl_parts<square_sum<T>> parts) {
    PL_SHARED(double, shared);
    const uint32_t of = pl_part_of(parts, blockIdx.x), block = blockIdx.x - parts.begin[of];
    const square_sum<T> &t = parts.part[of];
    double sum = 0; /* of the warp */
    for (uint64_t run = block * PL_CUDA_SQUARE_ELEMENTS; run < t.n;
         run += t.blocks * PL_CUDA_SQUARE_ELEMENTS) {
        const uint64_t left = t.n - run;
        const uint32_t end =
            (uint32_t)(left < PL_CUDA_SQUARE_ELEMENTS ? left : PL_CUDA_SQUARE_ELEMENTS);
        const float quick = pl_warp_reduce<pl_add>(thread_squares<T, V>(t, run, end));
        if (quick >= SQUARES_LEAST && quick <= FLT_MAX)
            sum += (double)quick;
        else
            sum += pl_warp_reduce<pl_add>(thread_squares_fp64<T, V>(t, run, end));
    }
    if (threadIdx.x % PL_WARP == 0) shared[threadIdx.x / PL_WARP] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    for (int warp = 1; warp < BLOCK / PL_WARP; warp++)
        sum += shared[warp];
    t.sums[block] = sum;
}

/* Adds n numbers by one block: each thread its share, then the sums of the threads in order. */
__device__ __forceinline__ double sum_by_block(const double *x, uint32_t n, double *shared) {
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += BLOCK)
        sum += x[i];
    return pl_team_reduce<pl_add>(sum, shared);
}

struct block_sums { /* of one tensor */
    const double *sums;
    double *out;
    uint32_t n;
};

__global__ void __launch_bounds__(BLOCK)
    sum_blocks(const __grid_constant__ pl_parts<block_sums> parts) {
    PL_SHARED(double, shared);
    const block_sums &t = parts.part[blockIdx.x];
    const double sum = sum_by_block(t.sums, t.n, shared);
    if (threadIdx.x == 0) *t.out = sum;
}

struct square_call {
    struct pl_view g; /* in one piece where it can be */
    int form;
    struct block_sums blocks;
};

/* false: the operands contradict each other. */
bool square_call_of(struct pl_device *dev, const struct pl_call *c, struct square_call *s) {
    const struct pl_view g = pl_flat(&c->in[0]), *const views[] = {&g};
    const uint64_t need = pl_op_workspace_bytes(&dev->traits, PL_OP_SQUARE_SUM, c->attr,
                                                c->in[0].rows, c->in[0].cols);
    s->g = g;
    s->form = g.rows <= 1 ? pl_form_of(views, 1) : PL_FORM_EITHER;
    s->blocks.sums = (const double *)c->in[2].p;
    s->blocks.out = (double *)c->out[0].p;
    s->blocks.n = (uint32_t)(need / sizeof(double));
    return pl_is_float(&g) && pl_ws_holds(&c->in[2], need) && c->out[0].rows == 1;
}

/* The calls among n that have this form. */
template <typename T, int V>
pl_err launch_squares(struct pl_device *dev, const struct square_call *calls, uint32_t n,
                      int form) {
    pl_parts<square_sum<T>> parts;
    pl_parts_clear(&parts);
    for (uint32_t i = 0; i < n; i++) {
        const struct square_call *s = &calls[i];
        const square_sum<T> t = {pl_mat_of<T>(s->g), s->g.cols, s->g.rows * s->g.cols,
                                 (double *)s->blocks.sums, s->blocks.n};
        if (s->form == form && !pl_parts_add(&parts, t, s->blocks.n)) return PL_ERR_PLAN_BROKEN;
    }
    if (pl_parts_units(&parts))
        PL_LAUNCH((sum_squares<T, V>), dim3(pl_parts_units(&parts)), dim3(BLOCK),
                  BLOCK / PL_WARP * sizeof(double), pl_cuda_of(dev)->stream, parts);
    return pl_cuda_launched();
}

/* Takes at most PL_PARTS calls. */
pl_err sum_squares_of(struct pl_device *dev, const struct pl_call *calls, uint32_t n) {
    static pl_err (*const by_form[PL_FORMS])(struct pl_device *, const struct square_call *,
                                             uint32_t, int) = PL_FORM_TABLE(launch_squares);
    struct square_call s[PL_PARTS];
    pl_parts<block_sums> parts;
    pl_parts_clear(&parts);
    for (uint32_t i = 0; i < n; i++)
        if (!square_call_of(dev, &calls[i], &s[i]) || !pl_parts_add(&parts, s[i].blocks, 1))
            return PL_ERR_PLAN_BROKEN;
    for (int form = 0; form < PL_FORMS; form++)
        PL_TRY(by_form[form](dev, s, n, form));
    PL_LAUNCH(sum_blocks, dim3(n), dim3(BLOCK), BLOCK / PL_WARP * sizeof(double),
              pl_cuda_of(dev)->stream, parts);
    return pl_cuda_launched();
}

/* The scale of torch.nn.utils.clip_grad_norm_, and NaN where the step, or one before it, must not
 * be committed. */
__global__ void __launch_bounds__(BLOCK)
    scale_of_norm(const double *partials, uint32_t n, float max_norm, const double *loss,
                  const struct pl_facts *facts, double *clip) {
    PL_SHARED(double, shared);
    const double sum = sum_by_block(partials, n, shared);
    if (threadIdx.x) return;
    const double unscale = facts->unscale, norm = sqrt(sum) * unscale;
    const double scale = max_norm > 0 ? fmin(1.0, (double)max_norm / (norm + 1e-6)) : 1.0;
    const bool lost = !isfinite(norm) || !isfinite(loss[0]) || isnan(clip[1]);
    clip[0] = norm;
    clip[1] = lost ? (double)NAN : scale * unscale;
}

/* ---- updates ---- */

#define STATES_MOST 2 /* more would not leave room for PL_PARTS tensors among the arguments */

struct settings {
    const struct pl_facts *facts;
    struct pl_moment_rates rates;
    float epsilon;
};

/* The type that a master is read as where states have type S. */
template <typename S> struct master_type { typedef float master; };
template <> struct master_type<pl_either> { typedef pl_either master; };

template <typename W, typename G, typename S> struct update {
    pl_mat<W> w;
    pl_mat<G> g;
    pl_mat<S> state[STATES_MOST];
    pl_mat<typename master_type<S>::master> master;
    const double *clip;
    uint64_t cols;
    uint64_t first;      /* element of the tensor where w begins */
    uint32_t row_blocks; /* blocks side by side in a row */
    bool decays;
    struct pl_rounding rounding;
    bool rounds_states; /* in bf16 */
};

/* A rule: how many states it has, and the new weight; s[k] is state k of the element. The operands
 * are those of SGD with the states between g and clip (estimator/ops/optimizers.c). */
#define STATES_OF(OP) (PL_##OP##_CLIP - PL_SGD_CLIP)

/* Kingma and Ba, arXiv 1412.6980, with the decay of Loshchilov and Hutter, arXiv 1711.05101; bias
 * corrections folded into adam_step = lr/(1-b1^t) and adam_root = 1/sqrt(1-b2^t). */
struct adamw {
    enum { STATES = STATES_OF(ADAMW) };
    static __device__ __forceinline__ float apply(const struct settings &u,
                                                  const struct pl_facts &now, float kept, float p,
                                                  float g, float (&s)[STATES_MOST]) {
        float &m = s[0], &v = s[1];
        m = u.rates.beta1 * m + u.rates.rest1 * g;
        v = u.rates.beta2 * v + u.rates.rest2 * g * g;
        const float root = sqrtf(v) * now.adam_root + u.epsilon;
        return p * kept - now.adam_step * m / root;
    }
};

struct sgd {
    enum { STATES = STATES_OF(SGD) };
    static __device__ __forceinline__ float apply(const struct settings &,
                                                  const struct pl_facts &now, float kept, float p,
                                                  float g, float (&)[STATES_MOST]) {
        return p * kept - now.rate * g;
    }
};

/* Chen et al., arXiv 2302.06675, program 1. */
struct lion {
    enum { STATES = STATES_OF(LION) };
    static __device__ __forceinline__ float apply(const struct settings &u,
                                                  const struct pl_facts &now, float kept, float p,
                                                  float g, float (&s)[STATES_MOST]) {
        const float c = u.rates.beta1 * s[0] + u.rates.rest1 * g;
        s[0] = u.rates.beta2 * s[0] + u.rates.rest2 * g;
        return p * kept - now.rate * (float)((c > 0) - (c < 0));
    }
};

template <typename Rule, typename W, typename G, typename S, int V>
__device__ __forceinline__ void apply_rule(const update<W, G, S> &t, const struct settings &u,
                                           uint64_t row, uint64_t col, float (&p)[V]) {
    const struct pl_facts now = *u.facts;
    const float clip = (float)t.clip[1], kept = t.decays ? now.kept : 1.0f;
    float g[V], state[STATES_MOST][V];
    pl_floats(pl_load<G, V>(t.g, row, col, t.cols), g);
#pragma unroll
    for (int k = 0; k < Rule::STATES; k++)
        pl_floats(pl_load<S, V>(t.state[k], row, col, t.cols), state[k]);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float s[STATES_MOST];
#pragma unroll
        for (int k = 0; k < Rule::STATES; k++)
            s[k] = state[k][i];
        p[i] = Rule::apply(u, now, kept, p[i], g[i] * clip, s);
#pragma unroll
        for (int k = 0; k < Rule::STATES; k++)
            state[k][i] = s[k];
    }
#pragma unroll
    for (int k = 0; k < Rule::STATES; k++) {
        struct pl_rounding own = t.rounding;
        own.site = pl_rng_state_site(own.site, k);
        if (t.rounds_states)
            pl_round_elements(own, now.step, t.first + row * t.cols + col, state[k]);
        pl_store(t.state[k], row, col, t.cols, pl_packed(t.state[k], state[k]));
    }
}

/* V elements a thread. */
template <typename Rule, typename W, typename G, typename S, int V>
__global__ void __launch_bounds__(BLOCK)
    update_elements(const __grid_constant__ pl_parts<update<W, G, S>> parts,
                    const __grid_constant__ struct settings u) {
    const uint32_t of = pl_part_of(parts, blockIdx.x), block = blockIdx.x - parts.begin[of];
    const update<W, G, S> &t = parts.part[of];
    const uint64_t row = block / t.row_blocks;
    const uint64_t col = ((uint64_t)(block % t.row_blocks) * BLOCK + threadIdx.x) * V;
    if (col >= t.cols || isnan(t.clip[1])) return;
    float p[V];
    if (t.master.p)
        pl_floats(pl_load<typename master_type<S>::master, V>(t.master, row, col, t.cols), p);
    else
        pl_floats(pl_load<W, V>(t.w, row, col, t.cols), p);
    apply_rule<Rule, W, G, S, V>(t, u, row, col, p);
    if (t.master.p) pl_store(t.master, row, col, t.cols, pl_packed(t.master, p));
    if (t.rounding.is_on)
        pl_round_elements(t.rounding, u.facts->step, t.first + row * t.cols + col, p);
    pl_store(t.w, row, col, t.cols, pl_packed(t.w, p));
}

/* The instances of updates in packs, by the types of weights, gradients and states: X(W, G, S, arg)
 */
#define INSTANCE_LIST(X, arg) PL_UPDATE_LIST(X##_IN_F32, arg) PL_UPDATE_LIST(X##_IN_BF16, arg)
enum {
#define FORM_IN_F32(W, G, arg)  FORM_##W##_##G##_F32,
#define FORM_IN_BF16(W, G, arg) FORM_##W##_##G##_BF16,
    INSTANCE_LIST(FORM, ) FORM_EITHER,
    FORMS
};

struct update_call {
    const struct pl_call *call;
    struct pl_view w, g, state[STATES_MOST], master; /* flat where all lie in one piece */
    const double *clip;
    int form;
};

bool has_narrow_states(const struct update_call *u) {
    return u->state[0].p && pl_dtype_is_narrow(u->state[0].dtype);
}

/* Packs need every tensor in one piece and aligned. */
int form_of(struct update_call *u) {
    struct pl_view *const views[] = {&u->w, &u->g, &u->state[0], &u->state[1], &u->master};
    bool packs = true;
    for (const struct pl_view *v : views)
        packs = packs && pl_is_whole(v);
    for (struct pl_view *v : views)
        if (packs) *v = pl_flat(v);
    for (const struct pl_view *v : views)
        packs = packs && pl_is_aligned(v);
    if (!packs) return FORM_EITHER;
    const enum pl_dtype w = u->w.dtype, g = u->g.dtype;
    const enum pl_dtype s = u->state[0].p ? u->state[0].dtype : PL_DTYPE_F32;
#define IS(W, G, S)                                                                                \
    if (w == PL_DTYPE_##W && g == PL_DTYPE_##G && s == PL_DTYPE_##S) return FORM_##W##_##G##_##S;
#define IS_IN_F32(W, G, arg)  IS(W, G, F32)
#define IS_IN_BF16(W, G, arg) IS(W, G, BF16)
    INSTANCE_LIST(IS, )
    return FORM_EITHER;
}

template <typename Rule> bool update_call_of(const struct pl_call *c, struct update_call *u) {
    const struct pl_view none = {}, *const after = &c->in[Rule::STATES];
    u->call = c;
    u->w = c->in[PL_SGD_W];
    u->g = c->in[PL_SGD_G];
    for (int k = 0; k < STATES_MOST; k++)
        u->state[k] = k < Rule::STATES ? c->in[PL_SGD_CLIP + k] : none;
    u->master = after[PL_SGD_MASTER];
    u->clip = (const double *)after[PL_SGD_CLIP].p;
    u->form = form_of(u);
    return c->batch->facts && pl_is_float(&u->w) && pl_is_float(&u->g);
}

template <typename W, typename G, typename S, int V>
update<W, G, S> update_of(const struct update_call *u) {
    update<W, G, S> t;
    t.w = pl_mat_of<W>(u->w);
    t.g = pl_mat_of<G>(u->g);
    for (int k = 0; k < STATES_MOST; k++)
        t.state[k] = pl_mat_of<S>(u->state[k]);
    t.master = pl_mat_of<typename master_type<S>::master>(u->master);
    t.clip = u->clip;
    t.cols = u->w.cols;
    t.first = u->call->attr->first_element;
    t.row_blocks = (uint32_t)pl_u64_div_up(u->w.cols, (uint64_t)BLOCK * V);
    t.decays = u->call->attr->decay;
    t.rounding = pl_rounding_of(u->call, &u->master);
    t.rounds_states = has_narrow_states(u);
    return t;
}

struct settings settings_of(const struct pl_batch *b) {
    struct settings r = {};
    r.facts = b->facts;
    r.rates = pl_moment_rates_of(b);
    r.epsilon = (float)b->epsilon;
    return r;
}

/* The calls among n that have this form. */
template <typename Rule, typename W, typename G, typename S, int V>
pl_err launch_updates(struct pl_device *dev, const struct update_call *calls, uint32_t n,
                      int form) {
    pl_parts<update<W, G, S>> parts;
    pl_parts_clear(&parts);
    for (uint32_t i = 0; i < n; i++) {
        const struct update_call *u = &calls[i];
        uint64_t blocks;
        if (u->form != form) continue;
        const update<W, G, S> t = update_of<W, G, S, V>(u);
        if (!pl_u64_mul(u->w.rows, t.row_blocks, &blocks) || !pl_parts_add(&parts, t, blocks))
            return PL_ERR_PLAN_BROKEN;
    }
    if (pl_parts_units(&parts))
        PL_LAUNCH((update_elements<Rule, W, G, S, V>), dim3(pl_parts_units(&parts)), dim3(BLOCK), 0,
                  pl_cuda_of(dev)->stream, parts, settings_of(calls[0].call->batch));
    return pl_cuda_launched();
}

/* Takes at most PL_PARTS calls. */
template <typename Rule>
pl_err run_updates(struct pl_device *dev, const struct pl_call *calls, uint32_t n) {
    static pl_err (*const by_form[FORMS])(struct pl_device *, const struct update_call *, uint32_t,
                                          int) = {
#define LAUNCH(W, G, S)                                                                            \
    launch_updates<Rule, pl_stored_##W, pl_stored_##G, pl_stored_##S, PL_UPDATE_PACK>,
#define LAUNCH_IN_F32(W, G, arg)  LAUNCH(W, G, F32)
#define LAUNCH_IN_BF16(W, G, arg) LAUNCH(W, G, BF16)
        INSTANCE_LIST(LAUNCH, ) launch_updates<Rule, pl_either, pl_either, pl_either, 1>};
    struct update_call u[PL_PARTS];
    for (uint32_t i = 0; i < n; i++)
        if (!update_call_of<Rule>(&calls[i], &u[i])) return PL_ERR_PLAN_BROKEN;
    for (int form = 0; form < FORMS; form++)
        PL_TRY(by_form[form](dev, u, n, form));
    return PL_ERR_OK;
}

} // namespace

/* in: g[..], partial[blocks]f64, ws; out: partial[blocks]f64. Blocks of all calls are launched
 * together. */
extern "C" pl_err pl_cuda_square_sum_group(struct pl_device *dev, const struct pl_call *calls,
                                           uint32_t n) {
    const struct pl_attr one = {};
    struct pl_call blocks[PL_PARTS];
    uint32_t held = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_call *c = &calls[i];
        const uint64_t bytes =
            pl_op_workspace_bytes(&dev->traits, PL_OP_SQUARE_SUM, &one, pl_square_block_rows(c),
                                  c->in[PL_SQUARE_SUM_G].cols);
        const uint64_t count = pl_square_blocks(c);
        if (c->out[PL_SQUARE_SUM_OUT_PARTIAL].rows != count ||
            !pl_ws_holds(&c->in[PL_SQUARE_SUM_WS], count * bytes))
            return PL_ERR_PLAN_BROKEN;
        for (uint64_t k = 0; k < count; k++) {
            blocks[held++] = pl_square_block(c, k, bytes, &one);
            if (held < PL_PARTS) continue;
            PL_TRY(sum_squares_of(dev, blocks, held));
            held = 0;
        }
    }
    return held ? sum_squares_of(dev, blocks, held) : PL_ERR_OK;
}

extern "C" pl_err pl_cuda_square_sum(struct pl_device *dev, const struct pl_call *c) {
    return pl_cuda_square_sum_group(dev, c, 1);
}

/* in: partials[M]f64, loss[2]f64, clip[2]f64; out: clip[2]f64. */
extern "C" pl_err pl_cuda_clip_scale(struct pl_device *dev, const struct pl_call *c) {
    if (!c->batch->facts) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH(scale_of_norm, dim3(1), dim3(BLOCK), BLOCK / PL_WARP * sizeof(double),
              pl_cuda_of(dev)->stream, (const double *)c->in[0].p, (uint32_t)c->in[0].rows,
              c->attr->max_norm, (const double *)c->in[1].p, c->batch->facts,
              (double *)c->out[0].p);
    return pl_cuda_launched();
}

/* The updates, and the kernels that one may launch. */
#define UPDATE(op)                                                                                 \
    extern "C" pl_err pl_cuda_##op##_group(struct pl_device *dev, const struct pl_call *calls,     \
                                           uint32_t n) {                                           \
        return pl_in_parts(run_updates<struct op>, dev, calls, n);                                 \
    }                                                                                              \
    extern "C" pl_err pl_cuda_##op(struct pl_device *dev, const struct pl_call *c) {               \
        return run_updates<struct op>(dev, c, 1);                                                  \
    }
#define KERNEL(W, G, S, op)                                                                        \
    PL_CUDA_KERNEL(                                                                                \
        update_elements<struct op, pl_stored_##W, pl_stored_##G, pl_stored_##S, PL_UPDATE_PACK>),
#define KERNEL_IN_F32(W, G, op)  KERNEL(W, G, F32, op)
#define KERNEL_IN_BF16(W, G, op) KERNEL(W, G, BF16, op)
#define UPDATE_KERNELS(op)                                                                         \
    INSTANCE_LIST(KERNEL, op)                                                                      \
    PL_CUDA_KERNEL(update_elements<struct op, pl_either, pl_either, pl_either, 1>)

UPDATE(adamw)
UPDATE(sgd)
UPDATE(lion)

PL_CUDA_PRELOAD(optim) = {PL_FORM_KERNELS(sum_squares),
                          PL_CUDA_KERNEL(sum_blocks),
                          PL_CUDA_KERNEL(scale_of_norm),
                          UPDATE_KERNELS(adamw),
                          UPDATE_KERNELS(sgd),
                          UPDATE_KERNELS(lion),
                          NULL};
