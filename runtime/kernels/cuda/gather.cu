/* gather.cu - GATHER_ADD: the supervised rows of the last residual sum; SCATTER_ROWS: their
 * gradients in their rows, and zeros in all others.
 *
 * Row numbers come from the data room and lie in device memory, where the host cannot look at them
 * without waiting. One outside its matrix would be a wild access, so it reads NaN, which the loss
 * shows, and writes nothing. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/set_rows.h"
#include "runtime/kernels/cuda/table.h"

/* out[T,C] = a[index[t]] + b[index[t]]; of: rows of a and b. */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    gather(pl_mat<S> a, pl_mat<S> b, const int32_t *__restrict__ index, pl_mat<D> out,
           uint64_t rows, uint64_t cols, uint64_t of) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t from = index[row];
    const bool is_real = from >= 0 && (uint64_t)from < of;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V], g[V] = {0};
        pl_floats(pl_load<S, V>(a, is_real ? (uint64_t)from : 0, c, cols), f);
        if (b.p) pl_floats(pl_load<S, V>(b, is_real ? (uint64_t)from : 0, c, cols), g);
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = is_real ? b.p ? f[i] + g[i] : f[i] : NAN;
        pl_store(out, row, c, cols, pl_packed(out, f));
    }
}

/* out[index[t]] = a[T,C]; of: rows of out. */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    scatter(pl_mat<S> a, const int32_t *__restrict__ index, pl_mat<D> out, uint64_t rows,
            uint64_t cols, uint64_t of) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t to = index[row];
    if (to < 0 || (uint64_t)to >= of) return;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(a, row, c, cols), f);
        pl_store(out, (uint64_t)to, c, cols, pl_packed(out, f));
    }
}

struct gather_views {
    const struct pl_view *a, *b, *index, *out; /* b: gather only */
};

template <typename S, typename D, int V>
static void launch_gather(struct pl_rows_shape s, cudaStream_t stream,
                          const struct gather_views &g) {
    PL_LAUNCH((gather<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*g.a), pl_mat_of<S>(*g.b),
              (const int32_t *)g.index->p, pl_mat_of<D>(*g.out), g.out->rows, g.out->cols,
              g.a->rows);
}

template <typename S, typename D, int V>
static void launch_scatter(struct pl_rows_shape s, cudaStream_t stream,
                           const struct gather_views &g) {
    PL_LAUNCH((scatter<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*g.a),
              (const int32_t *)g.index->p, pl_mat_of<D>(*g.out), g.a->rows, g.a->cols, g.out->rows);
}

typedef void (*gather_launch)(struct pl_rows_shape, cudaStream_t, const struct gather_views &);

/* in: x[N,C], r?[N,C], rows[T]i32; out: xs[T,C]. */
extern "C" pl_err pl_cuda_gather_add(struct pl_device *dev, const struct pl_call *c) {
    static const gather_launch launch[PL_PAIRS] = PL_PAIR_TABLE(launch_gather);
    const struct gather_views g = {&c->in[PL_GATHER_ADD_X], &c->in[PL_GATHER_ADD_R],
                                   &c->in[PL_GATHER_ADD_ROWS], &c->out[PL_GATHER_ADD_OUT_XS]};
    if (g.out->rows == 0) return PL_ERR_OK;
    if (!pl_is_float(g.a) || (g.b->p && (!pl_is_float(g.b) || g.b->rows != g.a->rows)) ||
        !pl_is_float(g.out) || g.index->dtype != PL_DTYPE_I32 || g.index->rows < g.out->rows ||
        g.a->rows == 0 || !pl_rows_fit(g.out->rows))
        return PL_ERR_PLAN_BROKEN;
    const int pair = pl_pair_of(g.a, g.b, g.out);
    launch[pair](pl_rows_shape_of(g.out->rows, g.out->cols, pair), pl_cuda_of(dev)->stream, g);
    return pl_cuda_launched();
}

/* in: dxs[T,C], rows[T]i32; out: dx[N,C]. A row stands at most once in rows, so no two teams write
 * the same. */
extern "C" pl_err pl_cuda_scatter_rows(struct pl_device *dev, const struct pl_call *c) {
    static const gather_launch launch[PL_PAIRS] = PL_PAIR_TABLE(launch_scatter);
    const struct gather_views s = {&c->in[PL_SCATTER_ROWS_DXS], NULL, &c->in[PL_SCATTER_ROWS_ROWS],
                                   &c->out[PL_SCATTER_ROWS_OUT_DX]};
    if (!pl_is_float(s.a) || !pl_is_float(s.out) || s.index->dtype != PL_DTYPE_I32 ||
        s.index->rows < s.a->rows || !pl_rows_fit(s.a->rows))
        return PL_ERR_PLAN_BROKEN;
    PL_TRY(pl_cuda_set_rows(dev, s.out, NULL, false));
    if (s.out->rows == 0 || s.a->rows == 0) return PL_ERR_OK;
    const int pair = pl_pair_of(s.a, NULL, s.out);
    launch[pair](pl_rows_shape_of(s.a->rows, s.a->cols, pair), pl_cuda_of(dev)->stream, s);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(gather) = {PL_PAIR_KERNELS(gather), PL_PAIR_KERNELS(scatter), NULL};
