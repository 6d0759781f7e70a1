/* experts.cu - EXPERT_ORDER, DISPATCH, COMBINE and the gradients of both; the CPU's experts.c says
 * what they are.
 *
 * What the tokens chose lies in device memory, so no grid depends on it. An index that leads
 * outside, which no router makes, reads NaN, which the loss shows, and writes nothing. */
#include "runtime/kernels/cuda/pairs.cuh"
#include "runtime/kernels/cuda/table.h"

namespace {

/* ---- EXPERT_ORDER ----
 *
 * A block for each expert. A warp looks at a run of assignments, and twice: it counts those of
 * earlier experts, which are those that stand before, and those of its own; then it places the
 * latter after those of the warps before it. That reads all assignments once for each expert, from
 * the second-level cache, and needs no scratch. */
enum { ORDER_THREADS = 512, ORDER_WARPS = ORDER_THREADS / PL_WARP };

struct assignments {
    const int32_t *expert; /* [N,k], ld */
    uint64_t ld;
    uint32_t k, n; /* n = N*k */
    __device__ __forceinline__ int32_t at(uint32_t i) const { return expert[i / k * ld + i % k]; }
};

__global__ void __launch_bounds__(ORDER_THREADS)
    sort_by_expert(const struct assignments a, int32_t *__restrict__ offsets,
                   int32_t *__restrict__ order, int32_t *__restrict__ place) {
    PL_SHARED(uint32_t, shared);
    uint32_t *before = shared, *same = shared + ORDER_WARPS;
    const int32_t e = (int32_t)blockIdx.x;
    const uint32_t warp = threadIdx.x / PL_WARP, lane = threadIdx.x % PL_WARP;
    const uint32_t each = (a.n + ORDER_THREADS - 1) / ORDER_THREADS * PL_WARP;
    const uint32_t begin = warp * each < a.n ? warp * each : a.n;
    const uint32_t end = a.n - begin < each ? a.n : begin + each;
    uint32_t less = 0, own = 0;
    for (uint32_t i = begin + lane; i < end; i += PL_WARP) {
        const int32_t x = a.at(i);
        less += x < e;
        own += x == e;
    }
    less = pl_warp_reduce<pl_add>(less);
    own = pl_warp_reduce<pl_add>(own);
    if (lane == 0) before[warp] = less, same[warp] = own;
    __syncthreads();
    uint32_t first = 0, to = 0, all = 0;
    for (uint32_t w = 0; w < ORDER_WARPS; w++) {
        first += before[w];
        to += w < warp ? same[w] : 0;
        all += same[w];
    }
    to += first;
    if (threadIdx.x == 0) offsets[e] = (int32_t)first;
    if (threadIdx.x == 0 && blockIdx.x + 1 == gridDim.x) offsets[e + 1] = (int32_t)(first + all);
    for (uint32_t i = begin; i < end; i += PL_WARP) {
        const bool is_own = i + lane < end && a.at(i + lane) == e;
        const uint32_t owners = __ballot_sync(PL_ALL_LANES, is_own);
        const uint32_t row = to + (uint32_t)__popc(owners & ((1u << lane) - 1));
        if (is_own) {
            place[i + lane] = (int32_t)row;
            order[row] = (int32_t)(i + lane);
        }
        to += (uint32_t)__popc(owners);
    }
}

/* ---- DISPATCH, COMBINE ---- */

/* Rows of tokens and of their experts; weight is absent in DISPATCH and its gradient. */
struct experts {
    const struct pl_view *token, *routed, *index, *weight;
    uint64_t k;
    bool adds;
};

/* xr[P,C] = x[order / k] */
template <typename S, typename D, int V>
__global__ void __launch_bounds__(PL_ROWS_BLOCK)
    dispatch(pl_mat<S> x, const int32_t *__restrict__ order, pl_mat<D> xr, uint64_t rows,
             uint64_t cols, uint32_t k) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t from = order[row];
    const bool is_real = from >= 0 && (uint64_t)from < rows;
    const uint64_t token = is_real ? (uint64_t)from / k : 0;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float f[V];
        pl_floats(pl_load<S, V>(x, token, c, cols), f);
#pragma unroll
        for (int i = 0; i < V; i++)
            f[i] = is_real ? f[i] : NAN;
        pl_store(xr, row, c, cols, pl_packed(xr, f));
    }
}

/* y[N,C] (=|+=) sum over j of weight[t,j] * yr[place[t*k+j]], in the order of j */
template <typename S, typename D, int V>
__global__ void __launch_bounds__(PL_ROWS_BLOCK)
    combine(pl_mat<S> yr, const int32_t *__restrict__ place, pl_mat<float> weight, pl_mat<D> y,
            uint64_t rows, uint64_t cols, uint32_t k, bool adds) {
    const uint64_t row = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    for (uint64_t c = (uint64_t)threadIdx.x * V; c < cols; c += (uint64_t)blockDim.x * V) {
        float sum[V] = {}, f[V];
        for (uint32_t j = 0; j < k; j++) {
            const int64_t from = place[row * k + j];
            const bool is_real = from >= 0 && (uint64_t)from < rows * k;
            const float w = !is_real ? NAN : weight.p ? weight.get(row, j) : 1.0f;
            pl_floats(pl_load<S, V>(yr, is_real ? (uint64_t)from : 0, c, cols), f);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += w * f[i];
        }
        if (adds) {
            pl_floats(pl_load<D, V>(y, row, c, cols), f);
#pragma unroll
            for (int i = 0; i < V; i++)
                sum[i] += f[i];
        }
        pl_store(y, row, c, cols, pl_packed(y, sum));
    }
}

template <typename S, typename D, int V>
void launch_dispatch(struct pl_rows_shape s, cudaStream_t stream, const struct experts &x) {
    PL_LAUNCH((dispatch<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*x.token),
              (const int32_t *)x.index->p, pl_mat_of<D>(*x.routed), x.routed->rows, x.routed->cols,
              (uint32_t)x.k);
}

template <typename S, typename D, int V>
void launch_combine(struct pl_rows_shape s, cudaStream_t stream, const struct experts &x) {
    const pl_mat<float> weight = x.weight ? pl_mat_of<float>(*x.weight) : pl_mat<float>{NULL, 0};
    PL_LAUNCH((combine<S, D, V>), s.grid, s.block, 0, stream, pl_mat_of<S>(*x.routed),
              (const int32_t *)x.index->p, weight, pl_mat_of<D>(*x.token), x.token->rows,
              x.token->cols, (uint32_t)x.k, x.adds);
}

/* A team of threads for each assignment: its row of yr becomes weight * dy, and what both had as a
 * dot product is its dweight. */
template <typename T, int V>
__global__ void __launch_bounds__(PL_ROWS_BLOCK)
    combine_bwd(pl_mat<T> dy, pl_mat<T> yr, const int32_t *__restrict__ place, pl_mat<float> weight,
                pl_mat<float> dweight, uint64_t rows, uint64_t cols, uint32_t k) {
    PL_SHARED(float, shared);
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y, token = i / k;
    const int64_t row = i < rows ? place[i] : -1;
    const bool is_real = row >= 0 && (uint64_t)row < rows;
    const float w = is_real ? weight.get(token, i % k) : 0.0f;
    float sum = 0.0f;
    for (uint64_t c = (uint64_t)threadIdx.x * V; is_real && c < cols;
         c += (uint64_t)blockDim.x * V) {
        float f[V], g[V];
        pl_floats(pl_load<T, V>(dy, token, c, cols), f);
        pl_floats(pl_load<T, V>(yr, (uint64_t)row, c, cols), g);
#pragma unroll
        for (int e = 0; e < V; e++) {
            sum = fmaf(f[e], g[e], sum);
            g[e] = w * f[e];
        }
        pl_store(yr, (uint64_t)row, c, cols, pl_packed(yr, g));
    }
    sum = pl_team_reduce<pl_add>(sum, shared);
    if (i < rows && threadIdx.x == 0) dweight.put(token, i % k, is_real ? sum : NAN);
}

template <typename T, int V>
void launch_combine_bwd(struct pl_rows_shape s, cudaStream_t stream, const struct experts &x,
                        const struct pl_view *dweight) {
    PL_LAUNCH((combine_bwd<T, V>), s.grid, s.block, PL_ROWS_BLOCK / PL_WARP * sizeof(float), stream,
              pl_mat_of<T>(*x.token), pl_mat_of<T>(*x.routed), (const int32_t *)x.index->p,
              pl_mat_of<float>(*x.weight), pl_mat_of<float>(*dweight), x.routed->rows,
              x.routed->cols, (uint32_t)x.k);
}

/* False if the shapes of a call do not fit. */
bool init(struct experts *x, const struct pl_view *token, const struct pl_view *routed,
          const struct pl_view *index, const struct pl_view *weight) {
    *x = {token, routed, index, weight, token->rows ? routed->rows / token->rows : 0, false};
    return pl_is_float(token) && pl_is_float(routed) && index->dtype == PL_DTYPE_I32 &&
           index->rows == routed->rows && x->k * token->rows == routed->rows &&
           token->cols == routed->cols && routed->rows <= INT32_MAX &&
           (!weight || (weight->dtype == PL_DTYPE_F32 && weight->rows == token->rows &&
                        (token->rows == 0 || weight->cols == x->k)));
}

typedef void (*experts_launch)(struct pl_rows_shape, cudaStream_t, const struct experts &);

pl_err run_combine(struct pl_device *dev, const struct experts &x) {
    static const experts_launch launch[PL_PAIRS] = PL_PAIR_TABLE(launch_combine);
    if (x.token->rows == 0 || x.token->cols == 0) return PL_ERR_OK;
    const int pair = pl_pair_of(x.routed, NULL, x.token);
    launch[pair](pl_rows_shape_of(x.token->rows, x.token->cols, pair), pl_cuda_of(dev)->stream, x);
    return pl_cuda_launched();
}

} // namespace

/* in: expert[N,k]i32; out: offsets[E+1]i32, order[P]i32, place[P]i32. */
extern "C" pl_err pl_cuda_expert_order(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *expert = &c->in[PL_EXPERT_ORDER_EXPERT];
    const struct pl_view *offsets = &c->out[PL_EXPERT_ORDER_OUT_OFFSETS];
    const struct pl_view *order = &c->out[PL_EXPERT_ORDER_OUT_ORDER];
    const struct pl_view *place = &c->out[PL_EXPERT_ORDER_OUT_PLACE];
    const uint64_t n = expert->rows * expert->cols;
    if (offsets->rows < 2 || offsets->rows > PL_ROUTE_MAX_EXPERTS + 1 || expert->cols == 0 ||
        expert->rows > INT32_MAX / expert->cols || order->rows != n || place->rows != n ||
        expert->dtype != PL_DTYPE_I32)
        return PL_ERR_PLAN_BROKEN;
    const struct assignments a = {(const int32_t *)expert->p, expert->ld, (uint32_t)expert->cols,
                                  (uint32_t)n};
    PL_LAUNCH(sort_by_expert, dim3((unsigned)offsets->rows - 1), dim3(ORDER_THREADS),
              2 * ORDER_WARPS * sizeof(uint32_t), pl_cuda_of(dev)->stream, a, (int32_t *)offsets->p,
              (int32_t *)order->p, (int32_t *)place->p);
    return pl_cuda_launched();
}

/* in: x[N,C], order[P]i32; out: xr[P,C]. */
extern "C" pl_err pl_cuda_dispatch(struct pl_device *dev, const struct pl_call *c) {
    static const experts_launch launch[PL_PAIRS] = PL_PAIR_TABLE(launch_dispatch);
    struct experts x;
    if (!init(&x, &c->in[PL_DISPATCH_X], &c->out[PL_DISPATCH_OUT_XR], &c->in[PL_DISPATCH_ORDER],
              NULL))
        return PL_ERR_PLAN_BROKEN;
    if (x.routed->rows == 0 || x.routed->cols == 0) return PL_ERR_OK;
    const int pair = pl_pair_of(x.token, NULL, x.routed);
    launch[pair](pl_rows_shape_of(x.routed->rows, x.routed->cols, pair), pl_cuda_of(dev)->stream,
                 x);
    return pl_cuda_launched();
}

/* in: dxr[P,C], place[P]i32, dx?; out: dx[N,C]. */
extern "C" pl_err pl_cuda_dispatch_bwd(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->out[PL_DISPATCH_BWD_OUT_DX], &c->in[PL_DISPATCH_BWD_DXR],
              &c->in[PL_DISPATCH_BWD_PLACE], NULL))
        return PL_ERR_PLAN_BROKEN;
    x.adds = pl_call_adds(c);
    return run_combine(dev, x);
}

/* in: yr[P,C], weight[N,k]f32, place[P]i32; out: y[N,C]. */
extern "C" pl_err pl_cuda_combine(struct pl_device *dev, const struct pl_call *c) {
    struct experts x;
    if (!init(&x, &c->out[PL_COMBINE_OUT_Y], &c->in[PL_COMBINE_YR], &c->in[PL_COMBINE_PLACE],
              &c->in[PL_COMBINE_WEIGHT]))
        return PL_ERR_PLAN_BROKEN;
    return run_combine(dev, x);
}

/* in: dy[N,C], yr[P,C]! weight[N,k]f32, place[P]i32; out: yr[P,C]! dweight[N,k]f32. */
extern "C" pl_err pl_cuda_combine_bwd(struct pl_device *dev, const struct pl_call *c) {
    static void (*const launch[PL_FORMS])(struct pl_rows_shape, cudaStream_t,
                                          const struct experts &, const struct pl_view *) =
        PL_FORM_TABLE(launch_combine_bwd);
    const struct pl_view *dweight = &c->out[PL_COMBINE_BWD_OUT_DWEIGHT];
    struct experts x;
    if (!init(&x, &c->in[PL_COMBINE_BWD_DY], &c->out[PL_COMBINE_BWD_OUT_YR],
              &c->in[PL_COMBINE_BWD_PLACE], &c->in[PL_COMBINE_BWD_WEIGHT]) ||
        dweight->dtype != PL_DTYPE_F32 || dweight->rows != x.token->rows ||
        (dweight->rows && dweight->cols != x.k))
        return PL_ERR_PLAN_BROKEN;
    if (x.routed->rows == 0) return PL_ERR_OK;
    const struct pl_view *const views[] = {x.token, x.routed};
    const int form = pl_form_of(views, 2);
    const uint64_t packs = (x.token->cols + pl_form_lanes(form) - 1) / pl_form_lanes(form);
    const unsigned team = pl_team_threads(packs, 1, PL_ROWS_BLOCK);
    const unsigned teams = pl_teams_of_block(team, PL_ROWS_BLOCK);
    struct pl_rows_shape s;
    s.grid = dim3((unsigned)((x.routed->rows + teams - 1) / teams));
    s.block = dim3(team, teams);
    launch[form](s, pl_cuda_of(dev)->stream, x, dweight);
    return pl_cuda_launched();
}

PL_CUDA_PRELOAD(experts) = {PL_CUDA_KERNEL(sort_by_expert), PL_PAIR_KERNELS(dispatch),
                            PL_PAIR_KERNELS(combine), PL_FORM_KERNELS(combine_bwd), NULL};
