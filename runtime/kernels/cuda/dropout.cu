/* dropout.cu - DROPOUT and DROPOUT_BWD: the mask of cpu/dropout.c, bit for bit.
 *
 * Element (position, column) of a sample is kept when its counter-based number, of the stream
 * (seed, step, sample, site), is at least p. A stream costs as much as eight elements, so a block
 * makes those of its rows once and shares them. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/table.h"

#include "estimator/base/checked.h"
#include "runtime/kernels/rng.h"

#define MOST_ROWS     16 /* of a block */
#define BLOCKS_PER_SM 8  /* wanted before blocks get more than a row for each team */

struct mask {
    const int32_t *offsets;         /* [seqs+1] */
    const uint64_t *samples;        /* [seqs] */
    const struct pl_facts *facts;
    uint64_t seed, threshold; /* threshold = p * 2^32 */
    uint64_t first;           /* token of the micro-batch that row 0 is */
    uint32_t seqs, site, rows_per_block;
    float scale; /* 1 / (1 - p) */
};

/* The source that a row draws its numbers from. */
struct row_stream {
    struct pl_rng stream;
    uint64_t position; /* in its sequence */
};

/* The sequence that holds this token: the last that begins at or before it, since those that begin
 * there too but come earlier are empty. */
static __device__ uint32_t sequence_of(const struct mask &m, uint64_t token) {
    uint32_t low = 0, high = m.seqs; /* offsets[low] <= token < offsets[high] */
    while (high - low > 1) {
        const uint32_t mid = (low + high) / 2;
        if ((uint64_t)m.offsets[mid] <= token)
            low = mid;
        else
            high = mid;
    }
    return low;
}

static __device__ struct row_stream stream_of(const struct mask &m, uint64_t token) {
    const uint32_t s = sequence_of(m, token);
    struct row_stream r;
    r.stream = pl_rng_fork(pl_rng_init(m.seed, m.facts->step, m.samples[s]), m.site);
    r.position = token - (uint64_t)m.offsets[s];
    return r;
}

/* Numbers of columns [col, col + V): four columns share a block, and the position is the upper half
 * of the block's index. */
template <int V>
static __device__ __forceinline__ void draw(const struct row_stream &r, uint64_t col,
                                            uint32_t (&numbers)[V]) {
    const uint64_t base = r.position << 32 | col / 4;
#pragma unroll
    for (int b = 0; b < (V + 3) / 4; b++) {
        uint32_t x[4];
        pl_rng_block(&r.stream, base + b, x);
#pragma unroll
        for (int i = 0; i < 4 && 4 * b + i < V; i++)
            numbers[4 * b + i] = V >= 4 ? x[i] : x[col % 4];
    }
}

/* y[rows,cols] = (ADDS ? y : 0) + x * kept / (1 - p) */
template <typename S, typename D, int V, bool ADDS>
static __device__ __forceinline__ void drop(const pl_mat<S> &x, const pl_mat<D> &y, uint64_t rows,
                                            uint64_t cols, const struct mask &m) {
    PL_SHARED(struct row_stream, streams); /* [rows_per_block] */
    const uint64_t row0 = (uint64_t)blockIdx.x * m.rows_per_block;
    const uint32_t thread = threadIdx.y * blockDim.x + threadIdx.x;
    for (uint32_t i = thread; i < m.rows_per_block && row0 + i < rows; i += blockDim.x * blockDim.y)
        streams[i] = stream_of(m, m.first + row0 + i);
    __syncthreads();
    for (uint32_t i = threadIdx.y; i < m.rows_per_block && row0 + i < rows; i += blockDim.y) {
        const struct row_stream r = streams[i];
        for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
            float f[V], old[V];
            uint32_t numbers[V];
            pl_floats(pl_load<S, V>(x, row0 + i, c, cols), f);
            if (ADDS) pl_floats(pl_load<D, V>(y, row0 + i, c, cols), old);
            draw<V>(r, c, numbers);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float kept = numbers[k] >= m.threshold ? f[k] * m.scale : 0.0f;
                f[k] = ADDS ? old[k] + kept : kept;
            }
            pl_store(y, row0 + i, c, cols, pl_packed(y, f));
        }
    }
}

template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    drop_to(pl_mat<S> x, pl_mat<D> y, uint64_t rows, uint64_t cols, struct mask m) {
    drop<S, D, V, false>(x, y, rows, cols, m);
}

template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    drop_onto(pl_mat<S> x, pl_mat<D> y, uint64_t rows, uint64_t cols, struct mask m) {
    drop<S, D, V, true>(x, y, rows, cols, m);
}

struct drop_views {
    const struct pl_view *x, *y, *offsets, *samples;
    bool adds;
};

template <typename S, typename D, int V>
static void launch_drop(struct pl_rows_shape s, cudaStream_t stream, const struct drop_views &t,
                        const struct mask &m) {
    const size_t shared = m.rows_per_block * sizeof(struct row_stream);
    if (t.adds)
        PL_LAUNCH((drop_onto<S, D, V>), s.grid, s.block, shared, stream, pl_mat_of<S>(*t.x),
                  pl_mat_of<D>(*t.y), t.y->rows, t.y->cols, m);
    else
        PL_LAUNCH((drop_to<S, D, V>), s.grid, s.block, shared, stream, pl_mat_of<S>(*t.x),
                  pl_mat_of<D>(*t.y), t.y->rows, t.y->cols, m);
}

static struct mask mask_of(const struct pl_call *c, const struct drop_views &t) {
    const double p = (double)c->attr->dropout;
    struct mask m = {};
    m.offsets = (const int32_t *)t.offsets->p;
    m.samples = (const uint64_t *)t.samples->p;
    m.seed = c->batch->seed;
    m.facts = c->batch->facts;
    m.seqs = (uint32_t)c->batch->n_seqs;
    m.site = c->attr->site;
    m.first = c->attr->first_element / pl_u64_max(t.y->cols, 1);
    m.threshold = (uint64_t)(p * 4294967296.0);
    m.scale = (float)(1.0 / (1.0 - p));
    return m;
}

/* More rows for a block spread the cost of its start, as long as there are blocks for all. */
static uint32_t rows_per_block(const struct pl_cuda *cuda, uint64_t rows, uint32_t teams) {
    const uint64_t wanted = rows / ((uint64_t)cuda->sm_count * BLOCKS_PER_SM + 1);
    return (uint32_t)pl_u64_max(teams, pl_u64_min(wanted, MOST_ROWS));
}

static pl_err run(struct pl_device *dev, const struct pl_call *c, const struct drop_views &t) {
    static void (*const launch[PL_PAIRS])(struct pl_rows_shape, cudaStream_t,
                                          const struct drop_views &, const struct mask &) =
        PL_PAIR_TABLE(launch_drop);
    struct pl_cuda *cuda = pl_cuda_of(dev);
    if (t.y->rows == 0) return PL_ERR_OK;
    if (!c->batch->facts || !pl_is_float(t.x) || !pl_is_float(t.y) ||
        t.offsets->dtype != PL_DTYPE_I32 || t.samples->dtype != PL_DTYPE_U64 ||
        c->batch->n_seqs == 0 || c->batch->n_seqs > INT32_MAX ||
        t.offsets->rows <= c->batch->n_seqs || !pl_rows_fit(t.y->rows))
        return PL_ERR_PLAN_BROKEN;
    struct mask m = mask_of(c, t);
    const int pair = pl_pair_of(t.x, NULL, t.y);
    struct pl_rows_shape s = pl_rows_shape_of(t.y->rows, t.y->cols, pair);
    m.rows_per_block = rows_per_block(cuda, t.y->rows, s.block.y);
    s.grid = dim3((unsigned)pl_u64_div_up(t.y->rows, m.rows_per_block));
    launch[pair](s, cuda->stream, t, m);
    return pl_cuda_launched();
}

/* in: x[N,K] offsets[B+1]i32 sample[B]u64; out: y[N,K]. */
extern "C" pl_err pl_cuda_dropout(struct pl_device *dev, const struct pl_call *c) {
    const struct drop_views t = {&c->in[PL_DROPOUT_X], &c->out[PL_DROPOUT_OUT_Y],
                                 &c->in[PL_DROPOUT_OFFSETS], &c->in[PL_DROPOUT_SAMPLE], false};
    return run(dev, c, t);
}

/* in: dx[N,K]! d[N,K] offsets[B+1]i32 sample[B]u64; out: dx[N,K]!. */
extern "C" pl_err pl_cuda_dropout_bwd(struct pl_device *dev, const struct pl_call *c) {
    const struct drop_views t = {&c->in[PL_DROPOUT_BWD_D], &c->out[PL_DROPOUT_BWD_OUT_DX],
                                 &c->in[PL_DROPOUT_BWD_OFFSETS], &c->in[PL_DROPOUT_BWD_SAMPLE],
                                 true};
    return run(dev, c, t);
}

PL_CUDA_PRELOAD(dropout) = {PL_PAIR_KERNELS(drop_to), PL_PAIR_KERNELS(drop_onto), NULL};
