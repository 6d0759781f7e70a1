/* gated_norm.cu - GATED_NORM and GATED_NORM_BWD; the CPU's gated_norm.c says what they compute.
 *
 * A warp has a norm, which it reads twice: the second time from the cache. */
#include "runtime/kernels/cuda/strips.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_cuda_rows.h"

namespace {

enum { WARPS = 4, THREADS = WARPS * PL_WARP, MOST_DIM = 3072 };

template <typename T> struct gated {
    pl_mat<T> o, z, w, y, go, gz; /* w as a row; y is its gradient on the way back */
    pl_mat<float> rstd;
    float *partial;         /* [blocks,D]; NULL = no dw */
    uint32_t n, heads, dim; /* n = rows * heads */
    uint32_t strip;         /* norms of a block */
    float eps;
};

/* V columns of a norm. */
template <typename T, int V> struct columns {
    float o[V], z[V], w[V], y[V];
    uint64_t row, col, end;
    uint32_t c;
    __device__ __forceinline__ columns(const gated<T> &t, uint32_t norm, uint32_t column)
        : row(norm / t.heads), col((uint64_t)(norm % t.heads) * t.dim + column),
          end(col + t.dim - column), c(column) {
        pl_floats(pl_load<T, V>(t.o, row, col, end), o);
        pl_floats(pl_load<T, V>(t.z, row, col, end), z);
        pl_floats(pl_load<T, V>(t.w, 0, column, t.dim), w);
    }
    __device__ __forceinline__ void load_y(const gated<T> &t) {
        pl_floats(pl_load<T, V>(t.y, row, col, end), y);
    }
    __device__ __forceinline__ void store(const pl_mat<T> &m, const float (&x)[V]) const {
        pl_store(m, row, col, end, pl_packed(m, x));
    }
};

__device__ __forceinline__ float sigmoid(float z) {
    return 1.0f / (1.0f + expf(-z));
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) gated_norms(const gated<T> t) {
    const uint32_t i = blockIdx.x * WARPS + threadIdx.x / PL_WARP, lane = threadIdx.x % PL_WARP;
    if (i >= t.n) return;
    float sum = 0.0f;
    for (uint32_t c = lane * V; c < t.dim; c += PL_WARP * V) {
        const columns<T, V> x(t, i, c);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum = fmaf(x.o[k], x.o[k], sum);
    }
    const float rstd = 1.0f / sqrtf(pl_warp_reduce<pl_add>(sum) / (float)t.dim + t.eps);
    if (lane == 0) t.rstd.put(i / t.heads, i % t.heads, rstd);
    for (uint32_t c = lane * V; c < t.dim; c += PL_WARP * V) {
        columns<T, V> x(t, i, c);
#pragma unroll
        for (int k = 0; k < V; k++)
            x.y[k] = x.o[k] * rstd * x.w[k] * (x.z[k] * sigmoid(x.z[k]));
        x.store(t.y, x.y);
    }
}

/* A block has a strip of norms; its warps keep their sums of dw in rows of shared memory. One block
 * of a multiprocessor is asked for, and eight are there: the compiler would spill for a ninth. */
template <typename T, int V>
__global__ void __launch_bounds__(THREADS, 1) gated_norms_bwd(const gated<T> t) {
    PL_SHARED(float, shared); /* [WARPS,D] where there is a dw */
    const uint32_t warp = threadIdx.x / PL_WARP, lane = threadIdx.x % PL_WARP;
    const uint32_t begin = blockIdx.x * t.strip;
    const uint32_t stop = t.n - begin < t.strip ? t.n : begin + t.strip;
    float *dw = shared + warp * t.dim;
    for (uint32_t c = lane; t.partial && c < t.dim; c += PL_WARP)
        dw[c] = 0.0f;
    __syncwarp();
    for (uint32_t i = begin + warp; i < stop; i += WARPS) {
        const float rstd = t.rstd.get(i / t.heads, i % t.heads);
        float sum = 0.0f;
        for (uint32_t c = lane * V; c < t.dim; c += PL_WARP * V) {
            columns<T, V> x(t, i, c);
            x.load_y(t);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum += x.y[k] * (x.z[k] * sigmoid(x.z[k])) * x.w[k] * x.o[k];
        }
        const float mean = pl_warp_reduce<pl_add>(sum) * rstd / (float)t.dim;
        for (uint32_t c = lane * V; c < t.dim; c += PL_WARP * V) {
            columns<T, V> x(t, i, c);
            float go[V], gz[V];
            x.load_y(t);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float s = sigmoid(x.z[k]), a = x.z[k] * s, oh = x.o[k] * rstd;
                go[k] = rstd * (x.y[k] * a * x.w[k] - oh * mean);
                gz[k] = x.y[k] * oh * x.w[k] * (s + a - a * s);
                if (t.partial && c + k < t.dim) dw[c + k] += x.y[k] * a * oh;
            }
            x.store(t.go, go);
            x.store(t.gz, gz);
        }
    }
    if (!t.partial) return;
    __syncthreads();
    for (uint32_t c = threadIdx.x; c < t.dim; c += THREADS) {
        float sum = 0.0f;
        for (uint32_t w = 0; w < WARPS; w++)
            sum += shared[w * t.dim + c];
        t.partial[(uint64_t)blockIdx.x * t.dim + c] = sum;
    }
}

/* ---- launching ---- */

struct gated_call {
    struct pl_view o, z, w, y, rstd, go, gz; /* w as a row */
    float *partial;
    uint32_t n, heads, dim, strip, strips;
    float eps;
};

template <typename T> gated<T> gated_of(const struct gated_call &s) {
    gated<T> t;
    t.o = pl_mat_of<T>(s.o), t.z = pl_mat_of<T>(s.z), t.w = pl_mat_of<T>(s.w);
    t.y = pl_mat_of<T>(s.y), t.go = pl_mat_of<T>(s.go), t.gz = pl_mat_of<T>(s.gz);
    t.rstd = pl_mat_of<float>(s.rstd);
    t.partial = s.partial;
    t.n = s.n, t.heads = s.heads, t.dim = s.dim, t.strip = s.strip, t.eps = s.eps;
    return t;
}

template <typename T, int V> void launch_forward(const struct gated_call &s, cudaStream_t stream) {
    PL_LAUNCH((gated_norms<T, V>), dim3((s.n + WARPS - 1) / WARPS), dim3(THREADS), 0, stream,
              gated_of<T>(s));
}

template <typename T, int V> void launch_backward(const struct gated_call &s, cudaStream_t stream) {
    PL_LAUNCH((gated_norms_bwd<T, V>), dim3(s.strips), dim3(THREADS),
              s.partial ? WARPS * s.dim * sizeof(float) : 0, stream, gated_of<T>(s));
}

bool same_shape(const struct pl_view *a, const struct pl_view *b) {
    return a->rows == b->rows && a->cols == b->cols && pl_is_float(a) && pl_is_float(b);
}

bool init(struct gated_call *s, const struct pl_call *c) {
    uint64_t n;
    s->dim = c->attr->head_dim, s->heads = (uint32_t)s->rstd.cols, s->eps = c->attr->eps;
    if (s->dim == 0 || s->rstd.cols == 0 || s->rstd.cols > PL_GRID_MAX / s->dim ||
        s->o.cols != s->rstd.cols * s->dim || s->rstd.rows != s->o.rows ||
        s->rstd.dtype != PL_DTYPE_F32 || s->w.cols != s->dim || !pl_is_float(&s->w) ||
        !same_shape(&s->o, &s->z) || !same_shape(&s->o, &s->y) ||
        !pl_u64_mul(s->o.rows, s->heads, &n) || n > PL_GRID_MAX)
        return false;
    s->n = (uint32_t)n;
    return true;
}

/* Heads must begin on whole packs. */
int form_of(const struct gated_call &s) {
    const struct pl_view *const views[] = {&s.o, &s.z, &s.w, &s.y, &s.go, &s.gz};
    const int form = pl_form_of(views, 6);
    return s.dim % pl_form_lanes(form) ? (int)PL_FORM_EITHER : form;
}

typedef void (*launch_fn)(const struct gated_call &, cudaStream_t);

} // namespace

/* in: o[N,H*D] z[N,H*D] w[D]; out: y[N,H*D] rstd[N,H]f32. */
extern "C" pl_err pl_cuda_gated_norm(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_forward);
    struct gated_call s = {};
    s.o = c->in[PL_GATED_NORM_O], s.z = c->in[PL_GATED_NORM_Z];
    s.w = pl_as_row(&c->in[PL_GATED_NORM_W]);
    s.y = c->out[PL_GATED_NORM_OUT_Y], s.rstd = c->out[PL_GATED_NORM_OUT_RSTD];
    if (!init(&s, c)) return PL_ERR_PLAN_BROKEN;
    if (s.n) launch[form_of(s)](s, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

/* in: dy[N,H*D] o[N,H*D] z[N,H*D] w[D] rstd[N,H]f32 ws? dw?[D]!; out: do[N,H*D] dz[N,H*D]
 * dw?[D]!. */
extern "C" pl_err pl_cuda_gated_norm_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_backward);
    const struct pl_view *dw = &c->out[PL_GATED_NORM_BWD_OUT_DW];
    struct gated_call s = {};
    s.y = c->in[PL_GATED_NORM_BWD_DY], s.o = c->in[PL_GATED_NORM_BWD_O];
    s.z = c->in[PL_GATED_NORM_BWD_Z], s.w = pl_as_row(&c->in[PL_GATED_NORM_BWD_W]);
    s.rstd = c->in[PL_GATED_NORM_BWD_RSTD];
    s.go = c->out[PL_GATED_NORM_BWD_OUT_DO], s.gz = c->out[PL_GATED_NORM_BWD_OUT_DZ];
    if (!init(&s, c) || !same_shape(&s.o, &s.go) || !same_shape(&s.o, &s.gz))
        return PL_ERR_PLAN_BROKEN;
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_GATED_NORM_BWD, c->attr, s.o.rows, s.o.cols);
    if (dw->p && (dw->rows != s.dim || !pl_is_float(dw) || s.dim > MOST_DIM ||
                  !pl_ws_holds(&c->in[PL_GATED_NORM_BWD_WS], need)))
        return PL_ERR_PLAN_BROKEN;
    if (dw->p) s.partial = (float *)c->in[PL_GATED_NORM_BWD_WS].p;
    s.strip = WARPS;
    if (s.partial) s.strip = (uint32_t)pl_u64_max(pl_u64_div_up(s.n, PL_CUDA_NORM_BLOCKS), WARPS);
    s.strips = (uint32_t)pl_u64_div_up(s.n, s.strip);
    const cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (s.n) launch[form_of(s)](s, stream);
    if (dw->p)
        pl_launch_sum_strips(stream, s.partial, s.strips, s.dim,
                             pl_mat_of<pl_either>(pl_as_row(dw)), pl_call_adds(c));
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(gated_norm) = {PL_FORM_KERNELS(gated_norms), PL_FORM_KERNELS(gated_norms_bwd),
                               PL_CUDA_KERNEL(pl_sum_strips), NULL};
