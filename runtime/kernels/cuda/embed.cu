/* embed.cu - EMBED: rows of the table by token id; EMBED_BWD: their gradients summed by id.
 *
 * Ids lie in device memory, where the host cannot check them without waiting. One outside the
 * vocabulary, which the data room refuses, embeds as NaN and has no gradient: no wild access, and
 * the loss shows it. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/products.h"
#include "runtime/kernels/cuda/table.h"

/* x[N,C] = table[ids[N]] */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    embed(pl_mat<S> table, const int32_t *__restrict__ ids, pl_mat<D> x, uint64_t rows,
          uint64_t cols, uint64_t vocab) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t id = ids[row];
    const bool is_real = id >= 0 && (uint64_t)id < vocab;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(table, is_real ? (uint64_t)id : 0, c, cols), f);
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = is_real ? f[i] : NAN;
        pl_store(x, row, c, cols, pl_packed(x, f));
    }
}

struct embed_views {
    const struct pl_view *ids, *table, *x;
};

template <typename S, typename D, int V>
static void launch_embed(struct pl_rows_shape s, cudaStream_t stream, const struct embed_views &e) {
    PL_LAUNCH((embed<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*e.table),
              (const int32_t *)e.ids->p, pl_mat_of<D>(*e.x), e.x->rows, e.x->cols, e.table->rows);
}

/* in: ids[N]i32, W[V,C]; out: x[N,C]. */
extern "C" pl_err pl_cuda_embed(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_PAIRS])(struct pl_rows_shape, cudaStream_t,
                                          const struct embed_views &) = PL_PAIR_TABLE(launch_embed);
    const struct embed_views e = {&c->in[0], &c->in[1], &c->out[0]};
    if (e.x->rows == 0) return PL_ERR_OK;
    if (!pl_is_float(e.table) || !pl_is_float(e.x) || e.ids->dtype != PL_DTYPE_I32 ||
        e.ids->rows < e.x->rows || e.table->rows == 0 || !pl_rows_fit(e.x->rows))
        return PL_ERR_PLAN_BROKEN;
    const int pair = pl_pair_of(e.table, NULL, e.x);
    launch[pair](pl_rows_shape_of(e.x->rows, e.x->cols, pair), pl_cuda_of(dev)->stream, e);
    return pl_cuda_launched();
}

/* ---- EMBED_BWD ----
 *
 * Every token has a block; the block of the first token with an id adds up all tokens with that id,
 * in token order, in fp32 registers, and rounds the row once. Blocks of later tokens find an
 * earlier one and leave. Nothing is sorted and no scratch is needed: the price is that N blocks
 * look at N ids, which stay in the second-level cache. At 16 k tokens that is 1 GB of cache reads,
 * less than writing the zeros of a 150 k row gradient; at 64 k it is a few milliseconds in a step
 * of seconds, since the step grows with N too. */
#define BWD_BLOCK  256
#define BWD_WARPS  (BWD_BLOCK / PL_WARP)
#define PER_THREAD 4 /* ids a thread looks at between barriers */
#define BWD_CHUNK  (BWD_BLOCK * PER_THREAD)
#define PACKS      4 /* packs of a row that a thread sums in registers */

/* Shared memory of a block. */
struct bwd_shared {
    uint32_t counts[PER_THREAD * BWD_WARPS]; /* of matches, by (pass over the block, warp) */
    uint32_t tokens[BWD_CHUNK];              /* matches in token order */
};

/* Whether ids[0, end) has id. Warps look at their own stripes and stop at a hit. */
static __device__ bool is_before(const int32_t *__restrict__ ids, uint32_t end, int32_t id) {
    bool hit = false;
    for (uint32_t i = threadIdx.x; i - threadIdx.x < end; i += BWD_CHUNK) {
#pragma unroll
        for (uint32_t k = 0; k < PER_THREAD; k++) {
            const uint32_t at = i + k * BWD_BLOCK;
            hit |= at < end && ids[at] == id;
        }
        if (__any_sync(PL_ALL_LANES, hit)) break;
    }
    return __syncthreads_or(hit) != 0;
}

/* Writes the tokens of ids[begin, begin + BWD_CHUNK) that have id to s->tokens, in order; returns
 * how many. The last list has been read when all threads meet between counts and tokens. */
static __device__ uint32_t list_matches(struct bwd_shared *s, const int32_t *__restrict__ ids,
                                        uint32_t begin, uint32_t n, int32_t id) {
    const uint32_t warp = threadIdx.x / PL_WARP, lane = threadIdx.x % PL_WARP;
    uint32_t votes[PER_THREAD], total = 0;
#pragma unroll
    for (uint32_t k = 0; k < PER_THREAD; k++) {
        const uint32_t at = begin + k * BWD_BLOCK + threadIdx.x;
        votes[k] = __ballot_sync(PL_ALL_LANES, at < n && ids[at] == id);
        if (lane == 0) s->counts[k * BWD_WARPS + warp] = __popc(votes[k]);
    }
    __syncthreads();
#pragma unroll
    for (uint32_t k = 0; k < PER_THREAD; k++)
        for (uint32_t w = 0; w < BWD_WARPS; w++) {
            if (w == warp && (votes[k] >> lane & 1))
                s->tokens[total + __popc(votes[k] & ((1u << lane) - 1))] =
                    begin + k * BWD_BLOCK + threadIdx.x;
            total += s->counts[k * BWD_WARPS + w];
        }
    __syncthreads();
    return total;
}

/* dw[id] += rows of dx with that id */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(BWD_BLOCK)
    embed_bwd(const int32_t *__restrict__ ids, pl_mat<S> dx, pl_mat<D> dw, uint32_t n,
              uint64_t cols, uint64_t vocab) {
    PL_SHARED(struct bwd_shared, s);
    const uint32_t token = blockIdx.x;
    const int32_t id = ids[token];
    if (id < 0 || (uint64_t)id >= vocab || is_before(ids, token, id)) return;
    const uint64_t stride = BWD_BLOCK * V;
    for (uint64_t c0 = (uint64_t)threadIdx.x * V; c0 - threadIdx.x * V < cols;
         c0 += PACKS * stride) {
        float sum[PACKS][V];
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (c0 + k * stride < cols)
                pl_floats(pl_load<D, V>(dw, (uint64_t)id, c0 + k * stride, cols), sum[k]);
        for (uint32_t begin = token; begin < n; begin += BWD_CHUNK) {
            const uint32_t matches = list_matches(s, ids, begin, n, id);
#pragma unroll 2
            for (uint32_t m = 0; m < matches; m++)
#pragma unroll
                for (int k = 0; k < PACKS; k++) {
                    if (c0 + k * stride >= cols) continue;
                    float f[V];
                    pl_floats(pl_load<S, V>(dx, s->tokens[m], c0 + k * stride, cols), f);
#pragma unroll
                    for (int i = 0; i < V; i++)
                        sum[k][i] += f[i];
                }
        }
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            if (c0 + k * stride < cols)
                pl_store(dw, (uint64_t)id, c0 + k * stride, cols, pl_packed(dw, sum[k]));
    }
}

struct embed_bwd_views {
    const struct pl_view *ids, *dx, *dw;
};

template <typename S, typename D, int V>
static void launch_embed_bwd(cudaStream_t stream, const struct embed_bwd_views &e) {
    PL_LAUNCH((embed_bwd<S, D, V>), dim3((unsigned)e.dx->rows), dim3(BWD_BLOCK),
              sizeof(struct bwd_shared), stream, (const int32_t *)e.ids->p, pl_mat_of<S>(*e.dx),
              pl_mat_of<D>(*e.dw), (uint32_t)e.dx->rows, e.dx->cols, e.dw->rows);
}

/* in: ids[N]i32, dx[N,C], dW[V,C]; out: dW[V,C]. */
extern "C" pl_err pl_cuda_embed_bwd(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_PAIRS])(cudaStream_t, const struct embed_bwd_views &) =
        PL_PAIR_TABLE(launch_embed_bwd);
    const struct embed_bwd_views e = {&c->in[0], &c->in[1], &c->out[0]};
    if (!pl_is_float(e.dx) || !pl_is_float(e.dw) || e.ids->dtype != PL_DTYPE_I32 ||
        e.ids->rows < e.dx->rows || !pl_rows_fit(e.dx->rows))
        return PL_ERR_PLAN_BROKEN;
    if (!pl_call_adds(c)) PL_TRY(pl_cuda_set_rows(dev, e.dw, NULL, false));
    if (e.dx->rows == 0) return PL_ERR_OK;
    launch[pl_pair_of(e.dx, NULL, e.dw)](pl_cuda_of(dev)->stream, e);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(embed) = {PL_PAIR_KERNELS(embed), PL_PAIR_KERNELS(embed_bwd), NULL};
