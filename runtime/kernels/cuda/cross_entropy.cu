/* cross_entropy.cu - CROSS_ENTROPY: loss of a chunk of rows, and its gradient over the logits.
 *
 * A block owns a row and passes over it twice: a running maximum with the sum of exponentials
 * relative to it (Milakov and Gimelshein, 2018), then softmax minus one-hot, which mostly finds the
 * row in the L2 cache. Rows leave their loss in the workspace; a second launch adds them in a fixed
 * order. Where rows are counted the sign of a row's loss, which is above 0, says that the target is
 * the row's first largest logit: the count costs no memory. Targets are known on the device only:
 * one outside the vocabulary makes the loss NaN. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/padding.h"
#include "estimator/ops/scratch/scratch_bytes.h"

namespace {

#define MOST   512 /* threads of a row */
#define BLOCKS 2   /* of a multiprocessor at least: one reads while the other waits at a barrier */
#define BATCH  4   /* packs of a thread in flight */

template <typename T> struct loss {
    pl_mat<T> logits; /* [T,V] */
    const int32_t *targets;
    double *row_loss;     /* [T] */
    const float *weights; /* [T]; NULL: 1 */
    double *logp;         /* [T], nullable */
    const struct pl_facts *facts;
    float limit; /* the logits are capped by so much; 0: not at all */
    uint32_t vocab;
    bool gradient;
    bool counts; /* of rows whose target is the first largest logit */
};

/* Elements e with col + e >= cols do not count. */
template <int V>
__device__ __forceinline__ void add_exponentials(float (&x)[V], uint32_t left, float &max,
                                                 float &sum) {
    float top = max, added = 0;
#pragma unroll
    for (int i = 0; i < V; i++) {
        if ((uint32_t)i >= left) x[i] = -INFINITY;
        top = fmaxf(top, x[i]);
    }
    if (top > max) sum *= expf(max - top);
    max = top;
#pragma unroll
    for (int i = 0; i < V; i++)
        added += expf(x[i] - top);
    sum += added;
}

/* The thread's part of a row: its maximum, and the sum of exponentials relative to that. A NaN is
 * passed over by the maximum and carried by the sum. */
template <typename T, int V>
__device__ __forceinline__ void sum_row(const loss<T> &t, uint64_t row, float &max, float &sum) {
    const uint32_t step = blockDim.x * V;
    max = -FLT_MAX;
    sum = 0;
    for (uint32_t begin = threadIdx.x * V; begin < t.vocab; begin += BATCH * step) {
        pl_pack<T, V> x[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (begin + k * step < t.vocab)
                x[k] = pl_load<T, V>(t.logits, row, begin + k * step, t.vocab);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float f[V];
            if (begin + k * step >= t.vocab) break;
            pl_floats(x[k], f);
            add_exponentials(f, t.vocab - (begin + k * step), max, sum);
        }
    }
}

template <typename T, int V>
__device__ __forceinline__ void write_pack(const loss<T> &t, uint64_t row, uint32_t c,
                                           const pl_pack<T, V> &x, uint32_t target, float max,
                                           float scale, float factor) {
    float f[V];
    pl_floats(x, f);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float of_limit = t.limit > 0 ? f[i] / t.limit : 0.0f;
        f[i] = expf(f[i] - max) * factor;
        if (c + i == target) f[i] -= scale;
        f[i] *= 1.0f - of_limit * of_limit; /* d capped / d logit */
    }
    pl_store(t.logits, row, c, t.vocab, pl_packed(t.logits, f));
}

template <typename T, int V>
__device__ __forceinline__ void write_gradient(const loss<T> &t, uint64_t row, uint32_t target,
                                               float max, float sum) {
    const float weight = t.weights ? t.weights[row] : 1.0f;
    const float scale = t.facts->loss_scale * weight, factor = scale / sum;
    const uint32_t step = blockDim.x * V;
    for (uint32_t begin = threadIdx.x * V; begin < t.vocab; begin += BATCH * step) {
        pl_pack<T, V> x[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (begin + k * step < t.vocab)
                x[k] = pl_load<T, V>(t.logits, row, begin + k * step, t.vocab);
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (begin + k * step < t.vocab)
                write_pack<T, V>(t, row, begin + k * step, x[k], target, max, scale, factor);
    }
}

/* True in all threads if the target's logit is the row's largest, and none before it equals it. */
template <typename T>
__device__ __forceinline__ bool is_first_largest(const loss<T> &t, uint64_t row, uint32_t target,
                                                 float top, float *shared) {
    float before = -INFINITY;
    if (target >= t.vocab || !(t.logits.get(row, target) >= top)) return false;
    for (uint32_t c = threadIdx.x; c < target; c += blockDim.x)
        before = fmaxf(before, t.logits.get(row, c));
    return pl_team_reduce<pl_max>(before, shared) < top;
}

/* The sum of a term of each thread in double, known to the first warp alone. That warp adds all of
 * them, because many GPUs compute two fp64 additions at a time. */
__device__ __forceinline__ double add_by_first_warp(float term, float *shared) {
    double sum = 0;
    shared[threadIdx.x] = term;
    __syncthreads();
    if (threadIdx.x >= PL_WARP) return 0;
    for (unsigned i = threadIdx.x; i < blockDim.x; i += PL_WARP)
        sum += (double)shared[i];
    return pl_warp_reduce<pl_add>(sum);
}

/* The row of PL_TARGET_NONE. */
template <typename T, int V>
__device__ __forceinline__ void clear_row(const loss<T> &t, uint64_t row) {
    const float zeros[V] = {};
    if (threadIdx.x == 0) {
        t.row_loss[row] = 0;
        if (t.logp) t.logp[row] = 0;
    }
    for (uint32_t c = threadIdx.x * V; t.gradient && c < t.vocab; c += blockDim.x * V)
        pl_store(t.logits, row, c, t.vocab, pl_packed(t.logits, zeros));
}

template <typename T, int V>
__global__ void __launch_bounds__(MOST, BLOCKS) loss_rows(const loss<T> t) {
    PL_SHARED(float, terms); /* one a thread, then one a warp */
    float *const of_warps = terms + blockDim.x;
    const uint64_t row = blockIdx.x;
    const uint32_t target = (uint32_t)t.targets[row];
    float max, sum, at_target = NAN;
    if (target == (uint32_t)PL_TARGET_NONE) return clear_row<T, V>(t, row);
    sum_row<T, V>(t, row, max, sum);
    if (threadIdx.x == 0 && target < t.vocab) at_target = t.logits.get(row, target);
    const float top = pl_team_reduce<pl_max>(max, of_warps);
    const double total = add_by_first_warp(sum * expf(max - top), terms);
    const bool right = t.counts && is_first_largest(t, row, target, top, of_warps);
    if (threadIdx.x == 0) {
        const double of_row = log(total) + ((double)top - (double)at_target);
        if (t.logp) t.logp[row] = -of_row;
        t.row_loss[row] = right       ? -(of_row < DBL_MIN ? DBL_MIN : of_row)
                          : t.weights ? of_row * (double)t.weights[row]
                                      : of_row;
    }
    if (!t.gradient) return;
    if (threadIdx.x == 0) *of_warps = (float)total;
    __syncthreads(); /* the target's logit was read as well */
    write_gradient<T, V>(t, row, target, top, *of_warps);
}

#define ADDERS 256

__global__ void __launch_bounds__(ADDERS)
    add_losses(const double *row_loss, uint32_t rows, bool counts, double *total) {
    PL_SHARED(double, shared);
    double sum = 0, right = 0;
    for (uint32_t i = threadIdx.x; i < rows; i += ADDERS) {
        sum += counts ? fabs(row_loss[i]) : row_loss[i];
        right += row_loss[i] < 0;
    }
    sum = pl_team_reduce<pl_add>(sum, shared);
    if (counts) right = pl_team_reduce<pl_add>(right, shared);
    if (threadIdx.x != 0) return;
    total[0] += sum;
    if (counts) total[1] += right;
}

struct loss_call {
    struct pl_view logits;
    const int32_t *targets;
    double *row_loss;
    const float *weights;
    double *logp;
    const struct pl_facts *facts;
    float limit;
    bool gradient, counts;
};

template <typename T, int V> void launch(const struct loss_call *l, cudaStream_t stream) {
    const uint32_t vocab = (uint32_t)l->logits.cols;
    const loss<T> t = {pl_mat_of<T>(l->logits),
                       l->targets,
                       l->row_loss,
                       l->weights,
                       l->logp,
                       l->facts,
                       l->limit,
                       vocab,
                       l->gradient,
                       l->counts};
    const uint64_t warps = pl_u64_div_up(vocab, V * PL_WARP);
    const unsigned threads = (unsigned)pl_u64_min(warps * PL_WARP, MOST);
    PL_LAUNCH((loss_rows<T, V>), dim3((unsigned)l->logits.rows), dim3(threads),
              (threads + threads / PL_WARP) * sizeof(float), stream, t);
}

} // namespace

/* in: logits[T,V]! targets[T]i32 loss[2]f64! ws weights?[T]f32;
 * out: logits[T,V]! loss[2]f64! logp?[T]f64. */
extern "C" pl_err pl_cuda_cross_entropy(struct pl_device *dev, const struct pl_call *c) {
    static void (*const by_form[PL_FORMS])(const struct loss_call *, cudaStream_t) =
        PL_FORM_TABLE(launch);
    struct loss_call l = {c->out[PL_CROSS_ENTROPY_OUT_LOGITS],
                          (const int32_t *)c->in[PL_CROSS_ENTROPY_TARGETS].p,
                          (double *)c->in[PL_CROSS_ENTROPY_WS].p,
                          (const float *)c->in[PL_CROSS_ENTROPY_WEIGHTS].p,
                          (double *)c->out[PL_CROSS_ENTROPY_OUT_LOGP].p,
                          c->batch->facts,
                          c->attr->limit,
                          c->attr->gradient,
                          false};
    l.counts = !l.gradient && !l.weights && !l.logp;
    const uint64_t rows = l.logits.rows;
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_CROSS_ENTROPY, c->attr, rows, l.logits.cols);
    const struct pl_view *const views[] = {&l.logits};
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (!l.facts || !pl_ws_holds(&c->in[PL_CROSS_ENTROPY_WS], need) || rows > PL_GRID_MAX ||
        l.logits.cols > INT32_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (rows == 0 || l.logits.cols == 0) return PL_ERR_OK;
    by_form[pl_form_of(views, 1)](&l, stream);
    PL_LAUNCH(add_losses, dim3(1), dim3(ADDERS), ADDERS / PL_WARP * sizeof(double), stream,
              l.row_loss, (uint32_t)rows, l.counts, (double *)c->out[PL_CROSS_ENTROPY_OUT_LOSS].p);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(cross_entropy) = {PL_FORM_KERNELS(loss_rows), PL_CUDA_KERNEL(add_losses), NULL};
