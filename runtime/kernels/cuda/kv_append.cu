/* kv_append.cu - KV_APPEND: this run's keys and values into the rows of the cache.
 *
 * Positions lie in device memory, where the host cannot look at them without waiting. One outside
 * its sequence's rows would be a wild store, so it writes nothing; rope turned its row into NaN. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/table.h"

struct places {
    const int32_t *positions, *offsets;
    uint32_t n_seqs, context;
};

/* The sequence of a row of the run: the last that begins at or before it. Those without rows of
 * their own begin with the next one, so they are never the last. */
static __device__ __forceinline__ uint32_t sequence_of(const struct places &p, uint32_t row) {
    uint32_t low = 0, high = p.n_seqs;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if ((uint32_t)p.offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* cache[sequence * context + position] = x[rows,cols] */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    append(pl_mat<S> x, pl_mat<D> cache, struct places places, uint64_t rows, uint64_t cols) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int32_t position = places.positions[row];
    if (position < 0 || (uint32_t)position >= places.context) return;
    const uint64_t to =
        (uint64_t)sequence_of(places, (uint32_t)row) * places.context + (uint32_t)position;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(x, row, c, cols), f);
        pl_store(cache, to, c, cols, pl_packed(cache, f));
    }
}

template <typename S, typename D, int V>
static void launch_append(struct pl_rows_shape s, cudaStream_t stream, const struct pl_view *x,
                          const struct pl_view *cache, const struct places *places) {
    PL_LAUNCH((append<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*x), pl_mat_of<D>(*cache),
              *places, x->rows, x->cols);
}

typedef void (*append_launch)(struct pl_rows_shape, cudaStream_t, const struct pl_view *,
                              const struct pl_view *, const struct places *);

/* in: k[N,G*D] v[N,G*D] pos[N]i32 offsets[B+1]i32 kc[R,G*D]! vc[R,G*D]!; out: kc! vc!. */
extern "C" pl_err pl_cuda_kv_append(struct pl_device *dev, const struct pl_call *c) {
    static const append_launch launch[PL_PAIRS] = PL_PAIR_TABLE(launch_append);
    const struct pl_view *pos = &c->in[PL_KV_APPEND_POS], *offsets = &c->in[PL_KV_APPEND_OFFSETS];
    const uint64_t n_seqs = c->batch->n_seqs;
    const struct places places = {(const int32_t *)pos->p, (const int32_t *)offsets->p,
                                  (uint32_t)n_seqs, c->attr->context};
    if (pos->dtype != PL_DTYPE_I32 || offsets->dtype != PL_DTYPE_I32 || n_seqs >= offsets->rows)
        return PL_ERR_PLAN_BROKEN;
    for (int i = 0; i < 2; i++) {
        const struct pl_view *x = &c->in[i], *cache = &c->out[i];
        if (!pl_is_float(x) || !pl_is_float(cache) || x->cols != cache->cols ||
            pos->rows < x->rows || n_seqs * places.context > cache->rows || !pl_rows_fit(x->rows))
            return PL_ERR_PLAN_BROKEN;
        if (x->rows == 0 || x->cols == 0 || n_seqs == 0) continue;
        const int pair = pl_pair_of(x, NULL, cache);
        launch[pair](pl_rows_shape_of(x->rows, x->cols, pair), pl_cuda_of(dev)->stream, x, cache,
                     &places);
    }
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(kv_append) = {PL_PAIR_KERNELS(append), NULL};
