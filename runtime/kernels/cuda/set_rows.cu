/* set_rows.cu - rows that are set to a bias, or to which it is added. */
#include "runtime/kernels/cuda/set_rows.h"

#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/table.h"

/* c[rows,cols] = (adds ? c : 0) + bias[cols]; bias.p NULL = none. S is the type of bias. */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    set_rows(pl_mat<S> bias, pl_mat<D> y, uint64_t rows, uint64_t cols, bool adds) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V], b[V];
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = b[i] = 0.0f;
        if (adds) pl_floats(pl_load<D, V>(y, row, c, cols), f);
        if (bias.p) pl_floats(pl_load<S, V>(bias, 0, c, cols), b);
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] += b[i];
        pl_store(y, row, c, cols, pl_packed(y, f));
    }
}

template <typename S, typename D, int V>
static void launch_set_rows(struct pl_rows_shape s, cudaStream_t stream, const struct pl_view *bias,
                            const struct pl_view *y, bool adds) {
    PL_LAUNCH((set_rows<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*bias),
              pl_mat_of<D>(*y), y->rows, y->cols, adds);
}

extern "C" pl_err pl_cuda_set_rows(struct pl_device *dev, const struct pl_view *c,
                                   const struct pl_view *bias, bool adds) {
    static void (*const launch[PL_PAIRS])(struct pl_rows_shape, cudaStream_t,
                                          const struct pl_view *, const struct pl_view *, bool) =
        PL_PAIR_TABLE(launch_set_rows);
    const bool has_bias = bias && bias->p;
    if (c->rows == 0 || c->cols == 0 || (adds && !has_bias)) return PL_ERR_OK;
    struct pl_view b = {};
    b.dtype = c->dtype; /* none: an aligned NULL */
    if (has_bias) b = pl_as_row(bias);
    if (!pl_is_float(c) || !pl_is_float(&b) || !pl_rows_fit(c->rows)) return PL_ERR_PLAN_BROKEN;
    const int pair = pl_pair_of(&b, NULL, c);
    launch[pair](pl_rows_shape_of(c->rows, c->cols, pair), pl_cuda_of(dev)->stream, &b, c, adds);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(set_rows) = {PL_PAIR_KERNELS(set_rows), NULL};
