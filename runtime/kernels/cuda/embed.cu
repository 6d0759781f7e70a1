/* embed.cu - EMBED: rows of the table by token id; EMBED_BWD: their gradients summed by id.
 *
 * Ids lie in device memory, where the host cannot check them without waiting. One outside the
 * vocabulary, which the data room refuses, embeds as NaN and has no gradient: no wild access, and
 * the loss shows it. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/set_rows.h"
#include "runtime/kernels/cuda/table.h"

/* x[N,C] = table[ids[N]] * scale */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(PL_ROWS_BLOCK)
    embed(pl_mat<S> table, const int32_t *__restrict__ ids, pl_mat<D> x, uint64_t rows,
          uint64_t cols, uint64_t vocab, float scale) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t id = ids[row];
    const bool is_real = id >= 0 && (uint64_t)id < vocab;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(table, is_real ? (uint64_t)id : 0, c, cols), f);
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = is_real ? f[i] * scale : NAN;
        pl_store(x, row, c, cols, pl_packed(x, f));
    }
}

struct embed_views {
    const struct pl_view *ids, *table, *x;
    float scale;
};

template <typename S, typename D, int V>
static void launch_embed(struct pl_rows_shape s, cudaStream_t stream, const struct embed_views &e) {
    PL_LAUNCH((embed<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*e.table),
              (const int32_t *)e.ids->p, pl_mat_of<D>(*e.x), e.x->rows, e.x->cols, e.table->rows,
              e.scale);
}

/* in: ids[N]i32, W[V,C]; out: x[N,C]. */
extern "C" pl_err pl_cuda_embed(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_PAIRS])(struct pl_rows_shape, cudaStream_t,
                                          const struct embed_views &) = PL_PAIR_TABLE(launch_embed);
    const struct embed_views e = {&c->in[PL_EMBED_IDS], &c->in[PL_EMBED_W], &c->out[PL_EMBED_OUT_X],
                                  pl_embed_scale(c->attr)};
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
 * The host has sorted the tokens by id. Every place of that order has blocks, one for each slab of
 * columns; those of the first token with an id add up all tokens with it, in token order, in fp32
 * registers, and round the row once; the others leave. A thread owns its columns, so a frequent id
 * is spread over the threads of a row and never over its tokens: their order is that of the sum.
 * Such a sum is fast as long as loads are in flight: a warp looks at the next 32 tokens while it
 * adds the last ones, and has the rows of eight under way. */
#define BWD_BLOCK 128
#define DEPTH     8

/* A lane's token from place `at` on, and whether it has this id. */
struct next_token {
    uint32_t token;
    bool has_id;
};

static __device__ __forceinline__ struct next_token look_at(const int32_t *__restrict__ ids,
                                                            const int32_t *__restrict__ order,
                                                            uint32_t at, uint32_t n, int32_t id) {
    struct next_token t = {n, false};
    if (at < n) t.token = (uint32_t)order[at];
    t.has_id = t.token < n && ids[t.token] == id;
    return t;
}

/* sum += the rows of the first `count` lanes' tokens, in their order. Every lane comes here; those
 * past the last column load and add nothing. */
template <typename S, int V>
static __device__ __forceinline__ void add_tokens(const pl_mat<S> &dx, uint32_t token,
                                                  uint32_t count, uint64_t c, uint64_t cols,
                                                  float scale, float (&sum)[V]) {
    for (uint32_t k = 0; k < count; k += DEPTH) {
        pl_pack<S, V> row[DEPTH];
#pragma unroll
        for (uint32_t j = 0; j < DEPTH; j++) {
            const uint32_t t = __shfl_sync(PL_ALL_LANES, token, (k + j) % PL_WARP);
            if (k + j < count && c < cols) row[j] = pl_load<S, V>(dx, t, c, cols);
        }
#pragma unroll
        for (uint32_t j = 0; j < DEPTH; j++) {
            float f[V];
            if (k + j >= count || c >= cols) continue;
            pl_floats(row[j], f);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += f[i] * scale;
        }
    }
}

/* dw[id] += rows of dx with that id. For single elements the compiler would spill registers to have
 * more blocks on a multiprocessor, so one is asked for; 0 leaves the number to it. */
template <typename S, typename D, int V>
static __global__ void __launch_bounds__(BWD_BLOCK, V == 1 ? 1 : 0)
    embed_bwd(const int32_t *__restrict__ ids, const int32_t *__restrict__ order, pl_mat<S> dx,
              pl_mat<D> dw, uint32_t n, uint64_t cols, uint64_t vocab, int64_t padding_idx,
              float scale, uint32_t slabs) {
    const uint32_t first = blockIdx.x / slabs, lane = threadIdx.x % PL_WARP;
    const uint64_t c = ((uint64_t)(blockIdx.x % slabs) * blockDim.x + threadIdx.x) * V;
    if ((uint32_t)order[first] >= n) return;
    const int32_t id = ids[order[first]];
    if (id < 0 || (uint64_t)id >= vocab || id == padding_idx) return;
    if (first && look_at(ids, order, first - 1, n, id).has_id) return;
    float sum[V] = {};
    if (c < cols) pl_floats(pl_load<D, V>(dw, (uint64_t)id, c, cols), sum);
    struct next_token next = look_at(ids, order, first + lane, n, id);
    for (uint32_t at = first + PL_WARP, count = PL_WARP; count == PL_WARP; at += PL_WARP) {
        const uint32_t token = next.token;
        count = __popc(__ballot_sync(PL_ALL_LANES, next.has_id)); /* sorted: the first lanes */
        if (count == PL_WARP) next = look_at(ids, order, at + lane, n, id);
        add_tokens<S, V>(dx, token, count, c, cols, scale, sum);
    }
    if (c < cols) pl_store(dw, (uint64_t)id, c, cols, pl_packed(dw, sum));
}

struct embed_bwd_views {
    const struct pl_view *ids, *order, *dx, *dw;
    int64_t padding_idx;
    float scale;
};

template <typename S, typename D, int V>
static pl_err launch_embed_bwd(cudaStream_t stream, const struct embed_bwd_views &e) {
    const uint64_t warps = (e.dx->cols + V * PL_WARP - 1) / (V * PL_WARP);
    const unsigned threads =
        warps * PL_WARP < BWD_BLOCK ? (unsigned)(warps * PL_WARP) : (unsigned)BWD_BLOCK;
    const uint64_t slabs = (e.dx->cols + V * threads - 1) / (V * threads);
    if (slabs > PL_GRID_MAX / e.dx->rows) return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((embed_bwd<S, D, V>), dim3((unsigned)(e.dx->rows * slabs)), dim3(threads), 0, stream,
              (const int32_t *)e.ids->p, (const int32_t *)e.order->p, pl_mat_of<S>(*e.dx),
              pl_mat_of<D>(*e.dw), (uint32_t)e.dx->rows, e.dx->cols, e.dw->rows, e.padding_idx,
              e.scale, (uint32_t)slabs);
    return pl_cuda_launched();
}

/* in: ids[N]i32, order[N]i32, dx[N,C], dW[V,C]; out: dW[V,C]. */
extern "C" pl_err pl_cuda_embed_bwd(struct pl_device *dev, const struct pl_call *c) {
    static pl_err (*const launch[PL_PAIRS])(cudaStream_t, const struct embed_bwd_views &) =
        PL_PAIR_TABLE(launch_embed_bwd);
    const struct embed_bwd_views e = {&c->in[PL_EMBED_BWD_IDS], &c->in[PL_EMBED_BWD_ORDER],
                                      &c->in[PL_EMBED_BWD_DX],  &c->out[PL_EMBED_BWD_OUT_DW],
                                      c->attr->padding_idx,     pl_embed_scale(c->attr)};
    if (!pl_is_float(e.dx) || !pl_is_float(e.dw) || e.ids->dtype != PL_DTYPE_I32 ||
        e.order->dtype != PL_DTYPE_I32 || e.ids->rows < e.dx->rows || e.order->rows < e.dx->rows ||
        e.dx->rows > INT32_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (!pl_call_adds(c)) PL_TRY(pl_cuda_set_rows(dev, e.dw, NULL, false));
    if (e.dx->rows == 0 || e.dx->cols == 0) return PL_ERR_OK;
    return launch[pl_pair_of(e.dx, NULL, e.dw)](pl_cuda_of(dev)->stream, e);
}

PL_CUDA_PRELOAD(embed) = {PL_PAIR_KERNELS(embed), PL_PAIR_KERNELS(embed_bwd), NULL};
