/* bias.cu - BIAS_GRAD: the sum of dy over its rows, in two stages of a fixed order.
 *
 * First a block sums a chunk of rows for a tile of columns into one partial sum, then a thread adds
 * the partial sums of a column. Chunks depend on the rows alone. */
#include "runtime/kernels/cuda/common.cuh"
#include "runtime/kernels/cuda/table.h"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/workspace_cuda.h"

#define GROUPS       8 /* of rows, in a chunk: each is a line of threads in a block */
#define GROUP_ROWS   (PL_CUDA_BIAS_ROWS / GROUPS)
#define FINISH_BLOCK 128

/* partials[chunk, cols] = sum of the chunk's rows of dy. Block: 32 packs of columns x GROUPS. */
template <typename T, int V>
static __global__ void __launch_bounds__(PL_WARP *GROUPS)
    sum_chunks(pl_mat<T> dy, float *__restrict__ partials, uint64_t rows, uint64_t cols) {
    PL_SHARED(float, sums); /* [GROUPS][V][PL_WARP] */
    const uint64_t col = ((uint64_t)blockIdx.y * PL_WARP + threadIdx.x) * V;
    const uint64_t row0 = (uint64_t)blockIdx.x * PL_CUDA_BIAS_ROWS + threadIdx.y * GROUP_ROWS;
    float sum[V];
#pragma unroll
    for (int i = 0; i < V; i++)
        sum[i] = 0.0f;
#pragma unroll 8
    for (uint64_t row = row0; row < row0 + GROUP_ROWS; row++) {
        if (row >= rows || col >= cols) continue;
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
        for (int g = 1; g < GROUPS; g++)
            sum[i] += sums[(g * V + i) * PL_WARP + threadIdx.x];
        if (col + i < cols) partials[blockIdx.x * cols + col + i] = sum[i];
    }
}

/* db[cols] = (adds ? db : 0) + sum of partials[chunks, cols] */
static __global__ void __launch_bounds__(FINISH_BLOCK)
    sum_partials(const float *__restrict__ partials, pl_mat<pl_either> db, uint64_t chunks,
                 uint64_t cols, bool adds) {
    const uint64_t col = (uint64_t)blockIdx.x * FINISH_BLOCK + threadIdx.x;
    if (col >= cols) return;
    double sum = adds ? db.get(0, col) : 0.0;
#pragma unroll 8
    for (uint64_t i = 0; i < chunks; i++)
        sum += partials[i * cols + col];
    db.put(0, col, (float)sum);
}

template <typename T, int V>
static void launch_chunks(cudaStream_t stream, const struct pl_view *dy, float *partials,
                          uint64_t chunks) {
    const uint64_t tiles = pl_u64_div_up(dy->cols, (uint64_t)PL_WARP * V);
    PL_LAUNCH((sum_chunks<T, V>), dim3((unsigned)chunks, (unsigned)tiles), dim3(PL_WARP, GROUPS),
              GROUPS * V * PL_WARP * sizeof(float), stream, pl_mat_of<T>(*dy), partials, dy->rows,
              dy->cols);
}

#define GRID_Y_MAX 65535 /* tiles of columns */

/* in: dy[N,O], ws, db[O]; out: db[O]. */
extern "C" pl_err pl_cuda_bias_grad(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(cudaStream_t, const struct pl_view *, float *, uint64_t) =
        PL_FORM_TABLE(launch_chunks);
    const struct pl_view *dy = &c->in[PL_BIAS_GRAD_DY],
                         *db = &c->out[PL_BIAS_GRAD_OUT_DB], *const views[] = {dy};
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_BIAS_GRAD, c->attr, dy->rows, dy->cols);
    const uint64_t chunks = pl_u64_div_up(dy->rows, PL_CUDA_BIAS_ROWS), cols = db->rows;
    float *partials = (float *)c->in[PL_BIAS_GRAD_WS].p;
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (!pl_is_float(dy) || !pl_is_float(db) || dy->cols != cols || chunks > PL_GRID_MAX ||
        pl_u64_div_up(cols, PL_WARP) > GRID_Y_MAX || !pl_ws_holds(&c->in[PL_BIAS_GRAD_WS], need))
        return PL_ERR_PLAN_BROKEN;
    if (cols == 0) return PL_ERR_OK;
    if (chunks) launch[pl_form_of(views, 1)](stream, dy, partials, chunks);
    PL_LAUNCH(sum_partials, dim3((unsigned)pl_u64_div_up(cols, FINISH_BLOCK)), dim3(FINISH_BLOCK),
              0, stream, partials, pl_mat_of<pl_either>(pl_as_row(db)), chunks, cols,
              pl_call_adds(c));
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(bias) = {PL_FORM_KERNELS(sum_chunks), PL_CUDA_KERNEL(sum_partials), NULL};
