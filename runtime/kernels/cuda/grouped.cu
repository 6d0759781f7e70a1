/* grouped.cu - GROUPED_LINEAR, GROUPED_LINEAR_DX, GROUPED_LINEAR_DW: one launch for all experts;
 * GROUPED_BIAS_GRAD.
 *
 * Operands of one 16-bit type go to tensor cores. A plain kernel takes any mixture of storage and
 * any window, and multiplies in fp32: parity runs and odd shapes go there. */
#include "runtime/kernels/cuda/grouped_tensor.cuh"
#include "runtime/kernels/cuda/narrow.h"
#include "runtime/kernels/cuda/table.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_cuda.h"
#include "runtime/kernels/grouped_call.h"

namespace {

/* ---- the plain kernel ---- */

enum {
    SIDE = 64,  /* rows and columns of a tile */
    DEPTH = 16, /* of a step */
    OWN = 4,    /* rows and columns of a thread */
    THREADS = (SIDE / OWN) * (SIDE / OWN),
    PITCH = SIDE + 4, /* floats from one k to the next: whole vectors, in other banks */
    SIDES_BYTES = 2 * DEPTH * PITCH * sizeof(float)
};

/* to[k][side] = what is there of SIDE x DEPTH elements from (row, col) on, zeros elsewhere. */
template <bool K_FIRST, typename T>
__device__ __forceinline__ void load_side(const pl_mat<T> &m, uint64_t row, uint64_t col,
                                          uint64_t sides, uint64_t depth, float *to) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < SIDE * DEPTH; i += THREADS) {
        const uint32_t k = K_FIRST ? i / SIDE : i % DEPTH, side = K_FIRST ? i % SIDE : i / DEPTH;
        float x = 0.0f;
        if (side < sides && k < depth)
            x = K_FIRST ? m.get(row + k, col + side) : m.get(row + side, col + k);
        to[k * PITCH + side] = x;
    }
}

__device__ __forceinline__ void add_step(float (&sum)[OWN][OWN], const float *a, const float *b) {
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        const float4 x = *(const float4 *)(a + k * PITCH), y = *(const float4 *)(b + k * PITCH);
        const float rows[OWN] = {x.x, x.y, x.z, x.w}, cols[OWN] = {y.x, y.y, y.z, y.w};
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++)
                sum[i][j] += rows[i] * cols[j];
    }
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST>
__global__ void __launch_bounds__(THREADS, 2)
    plain(const pl_grouped g, const pl_mat<T> a, const pl_mat<T> b, uint64_t tiles) {
    PL_SHARED(float, sides); /* of A, of B, then the offsets */
    int32_t *offsets = (int32_t *)(sides + 2 * DEPTH * PITCH);
    const uint32_t row0 = threadIdx.x / (SIDE / OWN) * OWN, col0 = threadIdx.x % (SIDE / OWN) * OWN;
    pl_share_offsets(g, offsets);
    for (uint64_t number = blockIdx.x; number < tiles; number += gridDim.x) {
        struct pl_part p;
        float sum[OWN][OWN] = {};
        if (!pl_part_find<A_K_FIRST, B_K_FIRST, SIDE, SIDE>(g, offsets, number, &p)) continue;
        for (uint64_t k = 0; k < p.depth; k += DEPTH) {
            load_side<A_K_FIRST>(a, p.a_row + (A_K_FIRST ? k : 0), p.a_col + (A_K_FIRST ? 0 : k),
                                 p.rows, p.depth - k, sides);
            load_side<B_K_FIRST>(b, p.b_row + (B_K_FIRST ? k : 0), p.b_col + (B_K_FIRST ? 0 : k),
                                 p.cols, p.depth - k, sides + DEPTH * PITCH);
            __syncthreads();
            add_step(sum, sides + row0, sides + DEPTH * PITCH + col0);
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < OWN; i++)
#pragma unroll
            for (int j = 0; j < OWN; j++) {
                const uint64_t row = p.c_row + row0 + i, col = p.c_col + col0 + j;
                if (row0 + i >= p.rows || col0 + j >= p.cols) continue;
                const float old = g.adds ? g.c.get(row, col) : 0.0f;
                g.c.put(row, col, pl_finished(g, p, col0 + j, sum[i][j], old));
            }
    }
}

/* ---- the sums of biases ---- */

enum { BIAS_ROWS = 8 }; /* rows that a block adds at a time: one a warp */

/* db[expert, cols] (=|+=) sum of the rows of the expert. Block: 32 packs of columns of one expert
 * by BIAS_ROWS; a thread adds every BIAS_ROWS-th row. */
template <typename T, int V>
__global__ void __launch_bounds__(PL_WARP *BIAS_ROWS)
    sum_rows(pl_mat<T> dy, pl_mat<pl_either> db, const int32_t *offsets, uint64_t cols, bool adds) {
    PL_SHARED(float, sums); /* [BIAS_ROWS][V][PL_WARP] */
    const uint32_t expert = blockIdx.x;
    const uint64_t col = ((uint64_t)blockIdx.y * PL_WARP + threadIdx.x) * V;
    const uint64_t end = (uint64_t)offsets[expert + 1];
    float sum[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = 0.0f;
#pragma unroll 4
    for (uint64_t row = (uint64_t)offsets[expert] + threadIdx.y; row < end; row += BIAS_ROWS) {
        if (col >= cols) continue;
        float f[V];
        pl_floats(pl_load<T, V>(dy, row, col, cols), f);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] += f[i];
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        sums[(threadIdx.y * V + i) * PL_WARP + threadIdx.x] = sum[i];
    __syncthreads();
    if (threadIdx.y != 0) return;
#pragma unroll
    for (int i = 0; i < V; i++) {
        for (int r = 1; r < BIAS_ROWS; r++)
            sum[i] += sums[(r * V + i) * PL_WARP + threadIdx.x];
        const uint64_t at = expert * cols + col + i;
        if (col + i < cols) db.put(0, at, (adds ? db.get(0, at) : 0.0f) + sum[i]);
    }
}

template <typename T, int V>
void launch_sums(cudaStream_t stream, const struct pl_view *dy, const struct pl_view *db,
                 const struct pl_experts *e, const int32_t *offsets, bool adds) {
    const uint64_t packs = pl_u64_div_up(dy->cols, (uint64_t)PL_WARP * V);
    PL_LAUNCH((sum_rows<T, V>), dim3((unsigned)e->n, (unsigned)packs), dim3(PL_WARP, BIAS_ROWS),
              BIAS_ROWS * V * PL_WARP * sizeof(float), stream, pl_mat_of<T>(*dy),
              pl_mat_of<pl_either>(pl_as_row(db)), offsets, dy->cols, adds);
}

/* ---- a call ---- */

/* The operands of a product, whichever it is. */
struct product {
    struct pl_view a, b, c, bias;
    const struct pl_view *ws;
    const int32_t *offsets;
    struct pl_experts experts;
    uint64_t depth; /* of A and B, where it is not the rows of an expert */
};

/* The number of tiles of `rows` by `cols` that any split of the rows has; false: too many. */
bool count_tiles(struct pl_grouped *g, bool a_k_first, uint64_t all_rows, uint32_t rows,
                 uint32_t cols, uint64_t *tiles) {
    g->row_tiles = a_k_first ? pl_u64_div_up(g->rows, rows) : all_rows / rows + g->n;
    g->col_tiles = pl_u64_div_up(g->cols, cols);
    return pl_u64_mul(g->row_tiles, g->col_tiles, tiles) &&
           (!a_k_first || pl_u64_mul(*tiles, g->n, tiles));
}

/* Blocks that a multiprocessor is given: at least as many as it has room for. */
enum { PLAIN_BLOCKS = 4, TENSOR_BLOCKS = 4 };

unsigned grid_of(const struct pl_cuda *cuda, uint64_t tiles, unsigned each) {
    return (unsigned)pl_u64_min(tiles, (uint64_t)cuda->sm_count * each);
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST>
pl_err launch_plain(struct pl_device *dev, const struct product *p, struct pl_grouped *g) {
    const struct pl_cuda *cuda = pl_cuda_of(dev);
    const uint64_t shared = SIDES_BYTES + (p->experts.n + 1) * sizeof(int32_t);
    uint64_t tiles;
    if (!count_tiles(g, A_K_FIRST, p->a.rows, SIDE, SIDE, &tiles) || shared > cuda->shared_max)
        return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((plain<T, A_K_FIRST, B_K_FIRST>), dim3(grid_of(cuda, tiles, PLAIN_BLOCKS)),
              dim3(THREADS), shared, cuda->stream, *g, pl_mat_of<T>(p->a), pl_mat_of<T>(p->b),
              tiles);
    return pl_cuda_launched();
}

template <typename T, bool A_K_FIRST, bool B_K_FIRST, int M>
pl_err launch_tensor(struct pl_device *dev, const struct product *p, struct pl_grouped *g) {
    const struct pl_cuda *cuda = pl_cuda_of(dev);
    const uint64_t shared =
        pl_grouped_shared<A_K_FIRST, B_K_FIRST, M>::BYTES + (p->experts.n + 1) * sizeof(int32_t);
    uint64_t tiles;
    if (!count_tiles(g, A_K_FIRST, p->a.rows, M * 32, PL_GROUPED_COLS, &tiles) ||
        shared > cuda->shared_max)
        return PL_ERR_PLAN_BROKEN;
    PL_LAUNCH((pl_grouped_tensor<T, A_K_FIRST, B_K_FIRST, M>),
              dim3(grid_of(cuda, tiles, TENSOR_BLOCKS)), dim3(PL_GROUPED_THREADS), shared,
              cuda->stream, *g, tiles);
    return pl_cuda_launched();
}

/* Half as many rows where experts have few of them: tiles of 128 would be half empty. */
template <typename T, bool A_K_FIRST, bool B_K_FIRST>
pl_err launch_tensor_of(struct pl_device *dev, const struct product *p, struct pl_grouped *g) {
    const uint64_t rows = A_K_FIRST ? p->experts.rows : p->a.rows / p->experts.n;
    if (rows <= 96) return launch_tensor<T, A_K_FIRST, B_K_FIRST, 2>(dev, p, g);
    return launch_tensor<T, A_K_FIRST, B_K_FIRST, 4>(dev, p, g);
}

/* True if tensor cores multiply them. Turing has no bf16. */
bool goes_to_tensor_cores(const struct pl_cuda *cuda, const struct product *p) {
    const enum pl_dtype t = p->a.dtype;
    return pl_dtype_is_narrow(t) && p->b.dtype == t &&
           (t != PL_DTYPE_BF16 || cuda->sm >= PL_CARD_OLDEST_BF16_SM) && pl_is_aligned(&p->a) &&
           pl_is_aligned(&p->b) && pl_is_aligned(&p->c) && p->a.cols % 8 == 0 &&
           p->b.cols % 8 == 0 && p->c.cols % 8 == 0;
}

template <bool A_K_FIRST, bool B_K_FIRST>
pl_err multiply(struct pl_device *dev, const struct pl_call *c, enum pl_op_kind kind,
                struct product *p) {
    const struct pl_product_matrix m[3] = {pl_cuda_matrix_of(&p->a), pl_cuda_matrix_of(&p->b),
                                           pl_cuda_matrix_of(&p->c)};
    struct pl_grouped g = {};
    if (p->experts.n == 0 || p->c.cols == 0 || (A_K_FIRST ? p->experts.rows : p->c.rows) == 0)
        return PL_ERR_OK;
    if (p->experts.n > UINT32_MAX || p->a.rows > INT32_MAX ||
        !pl_ws_holds(p->ws, pl_product_workspace_bytes(&dev->traits, kind, c->attr, m)))
        return PL_ERR_PLAN_BROKEN;
    PL_TRY(pl_cuda_narrow_inputs(dev, &p->a, &p->b, m, p->ws->p));
    g.a = pl_mat_of<pl_either>(p->a);
    g.b = pl_mat_of<pl_either>(p->b);
    g.c = pl_mat_of<pl_either>(p->c);
    g.bias = pl_mat_of<pl_either>(pl_as_row(&p->bias));
    g.offsets = p->offsets + p->experts.first;
    g.n = (uint32_t)p->experts.n;
    g.own = p->experts.rows;
    g.rows = p->experts.rows;
    g.cols = p->c.cols;
    g.depth = p->depth;
    g.alpha = c->attr->alpha;
    g.adds = pl_call_adds(c);
    if (goes_to_tensor_cores(pl_cuda_of(dev), p))
        return p->a.dtype == PL_DTYPE_BF16
                   ? launch_tensor_of<pl_stored_BF16, A_K_FIRST, B_K_FIRST>(dev, p, &g)
                   : launch_tensor_of<pl_stored_F16, A_K_FIRST, B_K_FIRST>(dev, p, &g);
    if (p->a.dtype == PL_DTYPE_F32 && p->b.dtype == PL_DTYPE_F32)
        return launch_plain<float, A_K_FIRST, B_K_FIRST>(dev, p, &g);
    return launch_plain<pl_either, A_K_FIRST, B_K_FIRST>(dev, p, &g);
}

} // namespace

/* in: x[P,K], W[E*O,K], offsets[E+1]i32, bias?[E*O], ws, y?[P,O]; out: y[P,O]. */
extern "C" pl_err pl_cuda_grouped_linear(struct pl_device *dev, const struct pl_call *c) {
    struct product p = {};
    p.a = c->in[PL_GROUPED_LINEAR_X];
    p.b = c->in[PL_GROUPED_LINEAR_W];
    p.bias = c->in[PL_GROUPED_LINEAR_BIAS];
    p.ws = &c->in[PL_GROUPED_LINEAR_WS];
    p.c = c->out[PL_GROUPED_LINEAR_OUT_Y];
    p.offsets = (const int32_t *)c->in[PL_GROUPED_LINEAR_OFFSETS].p;
    p.experts = pl_experts_of(c, &p.b);
    p.depth = p.a.cols;
    if (!pl_grouped_linear_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return multiply<false, false>(dev, c, PL_OP_GROUPED_LINEAR, &p);
}

/* in: dy[P,O], W[E*O,K], offsets[E+1]i32, bias?[E*K], ws, dx?[P,K]; out: dx[P,K]. */
extern "C" pl_err pl_cuda_grouped_linear_dx(struct pl_device *dev, const struct pl_call *c) {
    struct product p = {};
    p.a = c->in[PL_GROUPED_LINEAR_DX_DY];
    p.b = c->in[PL_GROUPED_LINEAR_DX_W];
    p.bias = c->in[PL_GROUPED_LINEAR_DX_BIAS];
    p.ws = &c->in[PL_GROUPED_LINEAR_DX_WS];
    p.c = c->out[PL_GROUPED_LINEAR_DX_OUT_DX];
    p.offsets = (const int32_t *)c->in[PL_GROUPED_LINEAR_DX_OFFSETS].p;
    p.experts = pl_experts_of(c, &p.b);
    p.depth = p.a.cols;
    if (!pl_grouped_linear_dx_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return multiply<false, true>(dev, c, PL_OP_GROUPED_LINEAR_DX, &p);
}

/* in: dy[P,O], x[P,K], offsets[E+1]i32, ws, dW[E*O,K]; out: dW[E*O,K]. */
extern "C" pl_err pl_cuda_grouped_linear_dw(struct pl_device *dev, const struct pl_call *c) {
    struct product p = {};
    p.a = c->in[PL_GROUPED_LINEAR_DW_DY];
    p.b = c->in[PL_GROUPED_LINEAR_DW_X];
    p.ws = &c->in[PL_GROUPED_LINEAR_DW_WS];
    p.c = c->out[PL_GROUPED_LINEAR_DW_OUT_DW];
    p.offsets = (const int32_t *)c->in[PL_GROUPED_LINEAR_DW_OFFSETS].p;
    p.experts = pl_experts_of(c, &p.c);
    if (!pl_grouped_linear_dw_is_sound(c)) return PL_ERR_PLAN_BROKEN;
    return multiply<true, true>(dev, c, PL_OP_GROUPED_LINEAR_DW, &p);
}

#define GRID_Y_MAX 65535 /* packs of columns */

/* in: dy[P,O], offsets[E+1]i32, db[E*O]; out: db[E*O]. */
extern "C" pl_err pl_cuda_grouped_bias_grad(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(cudaStream_t, const struct pl_view *,
                                          const struct pl_view *, const struct pl_experts *,
                                          const int32_t *, bool) = PL_FORM_TABLE(launch_sums);
    const struct pl_view *dy = &c->in[PL_GROUPED_BIAS_GRAD_DY],
                         *db = &c->out[PL_GROUPED_BIAS_GRAD_OUT_DB], *const views[] = {dy};
    const struct pl_experts e = pl_experts_of(c, db);
    if (!pl_grouped_bias_grad_is_sound(c) || e.n > PL_GRID_MAX ||
        pl_u64_div_up(dy->cols, PL_WARP) > GRID_Y_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (e.n == 0 || dy->cols == 0) return PL_ERR_OK;
    launch[pl_form_of(views, 1)](pl_cuda_of(dev)->stream, dy, db, &e,
                                 (const int32_t *)c->in[PL_GROUPED_BIAS_GRAD_OFFSETS].p + e.first,
                                 pl_call_adds(c));
    return pl_cuda_launched();
}

#define PLAIN_KERNELS(T)                                                                           \
    PL_CUDA_KERNEL(plain<T, false, false>), PL_CUDA_KERNEL(plain<T, false, true>),                 \
        PL_CUDA_KERNEL(plain<T, true, true>)
#define TENSOR_KERNELS(T, M)                                                                       \
    PL_CUDA_KERNEL(pl_grouped_tensor<T, false, false, M>),                                         \
        PL_CUDA_KERNEL(pl_grouped_tensor<T, false, true, M>),                                      \
        PL_CUDA_KERNEL(pl_grouped_tensor<T, true, true, M>)
#define TENSOR_KERNELS_OF(T) TENSOR_KERNELS(pl_stored_##T, 2), TENSOR_KERNELS(pl_stored_##T, 4),
PL_CUDA_PRELOAD(grouped) = {PL_NARROW_MAP(TENSOR_KERNELS_OF) PLAIN_KERNELS(float),
                            PLAIN_KERNELS(pl_either), PL_FORM_KERNELS(sum_rows), NULL};
