/* sink_bwd.cu - SINK_BWD; the CPU's sink_bwd.c says what it computes.
 *
 * A block has PL_PARTIAL_ROWS tokens of a head and leaves one sum; a second launch adds the sums of
 * a head in their order. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"
#include "estimator/ops/scratch/scratch_bytes.h"
#include "estimator/ops/scratch/workspace_attention.h"

namespace {

enum { WARPS = 4, THREADS = WARPS * PL_WARP, HEADS_THREADS = 128 };

template <typename T> struct sinks {
    pl_mat<T> o, go;
    pl_mat<float> lse;
    pl_mat<pl_either> sinks, dsinks; /* [H] as a row */
    double *partial;                 /* [chunks,H] */
    uint64_t rows;
    uint32_t heads, dim;
};

template <typename T, int V>
__device__ __forceinline__ float dot_of_head(const sinks<T> &s, uint64_t row, uint32_t head) {
    const uint64_t first = (uint64_t)head * s.dim, end = first + s.dim;
    float sum = 0.0f;
    for (uint64_t c = first + threadIdx.x % PL_WARP * V; c < end; c += PL_WARP * V) {
        float x[V], y[V];
        pl_floats(pl_load<T, V>(s.o, row, c, end), x);
        pl_floats(pl_load<T, V>(s.go, row, c, end), y);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum = fmaf(x[i], y[i], sum);
    }
    return pl_warp_reduce<pl_add>(sum);
}

template <typename T, int V>
__global__ void __launch_bounds__(THREADS) sink_partials(const sinks<T> s) {
    PL_SHARED(float, shared);
    const uint32_t head = blockIdx.x % s.heads, warp = threadIdx.x / PL_WARP;
    const uint64_t chunk = blockIdx.x / s.heads, begin = chunk * PL_PARTIAL_ROWS;
    const uint64_t end = s.rows - begin < PL_PARTIAL_ROWS ? s.rows : begin + PL_PARTIAL_ROWS;
    const float sink = s.sinks.get(0, head);
    float sum = 0.0f;
    for (uint64_t row = begin + warp; row < end; row += WARPS)
        sum += expf(sink - s.lse.get(row, head)) * dot_of_head<T, V>(s, row, head);
    if (threadIdx.x % PL_WARP == 0) shared[warp] = sum;
    __syncthreads();
    if (threadIdx.x) return;
    double all = 0;
    for (uint32_t w = 0; w < WARPS; w++)
        all += shared[w];
    s.partial[chunk * s.heads + head] = all;
}

__global__ void __launch_bounds__(HEADS_THREADS)
    add_partials(const double *__restrict__ partial, pl_mat<pl_either> dsinks, uint64_t chunks,
                 uint32_t heads, bool adds) {
    const uint32_t head = blockIdx.x * HEADS_THREADS + threadIdx.x;
    if (head >= heads) return;
    double sum = adds ? dsinks.get(0, head) : 0.0f;
    for (uint64_t c = 0; c < chunks; c++)
        sum -= partial[c * heads + head];
    dsinks.put(0, head, (float)sum);
}

template <typename T, int V>
void launch_partials(struct pl_device *dev, const struct pl_call *c, uint64_t chunks) {
    sinks<T> s;
    s.o = pl_mat_of<T>(c->in[PL_SINK_BWD_O]);
    s.go = pl_mat_of<T>(c->in[PL_SINK_BWD_DO]);
    s.lse = pl_mat_of<float>(c->in[PL_SINK_BWD_LSE]);
    s.sinks = pl_mat_of<pl_either>(c->in[PL_SINK_BWD_SINKS]);
    s.dsinks = pl_mat_of<pl_either>(c->out[PL_SINK_BWD_OUT_DSINKS]);
    s.partial = (double *)c->in[PL_SINK_BWD_WS].p;
    s.rows = c->in[PL_SINK_BWD_O].rows;
    s.heads = c->attr->heads;
    s.dim = c->attr->head_dim;
    PL_LAUNCH((sink_partials<T, V>), dim3((unsigned)(chunks * s.heads)), dim3(THREADS),
              WARPS * sizeof(float), pl_cuda_of(dev)->stream, s);
}

/* The form of o and do; a head must begin on a pack, too. */
int form_of(const struct pl_call *c) {
    const struct pl_view *const views[] = {&c->in[PL_SINK_BWD_O], &c->in[PL_SINK_BWD_DO]};
    const int form = pl_form_of(views, 2);
    return c->attr->head_dim % pl_form_lanes(form) ? (int)PL_FORM_EITHER : form;
}

bool fits(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *o = &c->in[PL_SINK_BWD_O], *go = &c->in[PL_SINK_BWD_DO];
    const struct pl_view *lse = &c->in[PL_SINK_BWD_LSE], *sinks = &c->in[PL_SINK_BWD_SINKS];
    const struct pl_view *dsinks = &c->out[PL_SINK_BWD_OUT_DSINKS];
    const uint64_t heads = c->attr->heads;
    const uint64_t need =
        pl_op_workspace_bytes(&dev->traits, PL_OP_SINK_BWD, c->attr, o->rows, o->cols);
    return pl_is_float(o) && pl_is_float(go) && pl_is_float(sinks) && pl_is_float(dsinks) &&
           lse->dtype == PL_DTYPE_F32 && heads && o->cols == heads * c->attr->head_dim &&
           go->rows == o->rows && go->cols == o->cols && lse->rows == o->rows &&
           lse->cols == heads && sinks->rows == heads && dsinks->rows == heads &&
           need / sizeof(double) <= PL_GRID_MAX && pl_ws_holds(&c->in[PL_SINK_BWD_WS], need);
}

} // namespace

/* in: o[N,H*D] do[N,H*D] lse[N,H]f32 sinks[H] ws dsinks[H]!; out: dsinks[H]!. */
extern "C" pl_err pl_cuda_sink_bwd(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(struct pl_device *, const struct pl_call *, uint64_t) =
        PL_FORM_TABLE(launch_partials);
    const uint64_t chunks = pl_u64_div_up(c->in[PL_SINK_BWD_O].rows, PL_PARTIAL_ROWS);
    const uint32_t heads = c->attr->heads;
    if (!fits(dev, c)) return PL_ERR_PLAN_BROKEN;
    if (chunks) launch[form_of(c)](dev, c, chunks);
    PL_LAUNCH(add_partials, dim3((heads + HEADS_THREADS - 1) / HEADS_THREADS), dim3(HEADS_THREADS),
              0, pl_cuda_of(dev)->stream, (const double *)c->in[PL_SINK_BWD_WS].p,
              pl_mat_of<pl_either>(c->out[PL_SINK_BWD_OUT_DSINKS]), chunks, heads, pl_call_adds(c));
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(sink_bwd) = {PL_FORM_KERNELS(sink_partials), PL_CUDA_KERNEL(add_partials), NULL};
