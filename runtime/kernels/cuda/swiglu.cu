/* swiglu.cu - SWIGLU: m = silu(gate) * up, and its gradient over the operands (Shazeer, "GLU
 * variants improve transformer", 2020). silu(g) = g s with s = 1/(1 + e^-g). */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

#define BLOCK 256

template <typename T> struct swiglu {
    pl_mat<T> gate, up, m;     /* [N,F]; m is its gradient on the way back */
    uint32_t cols, row_blocks; /* blocks side by side in a row */
};

__device__ __forceinline__ float sigmoid(float g) {
    return 1.0f / (1.0f + expf(-g));
}

/* A thread's pack; false past the row's end. */
template <typename T, int V>
__device__ __forceinline__ bool find_pack(const swiglu<T> &t, uint64_t &row, uint32_t &c) {
    row = blockIdx.x / t.row_blocks;
    c = (blockIdx.x % t.row_blocks * BLOCK + threadIdx.x) * V;
    return c < t.cols;
}

template <typename T, int V> __global__ void __launch_bounds__(BLOCK) forward(const swiglu<T> t) {
    uint64_t row;
    uint32_t c;
    float g[V], u[V];
    if (!find_pack<T, V>(t, row, c)) return;
    pl_floats(pl_load<T, V>(t.gate, row, c, t.cols), g);
    pl_floats(pl_load<T, V>(t.up, row, c, t.cols), u);
#pragma unroll
    for (int i = 0; i < V; i++)
        g[i] = g[i] * sigmoid(g[i]) * u[i];
    pl_store(t.m, row, c, t.cols, pl_packed(t.m, g));
}

/* With s = sigmoid(g): d up = dm g s, d gate = dm up s (1 + g (1 - s)). */
template <typename T, int V> __global__ void __launch_bounds__(BLOCK) backward(const swiglu<T> t) {
    uint64_t row;
    uint32_t c;
    float g[V], u[V], dm[V];
    if (!find_pack<T, V>(t, row, c)) return;
    pl_floats(pl_load<T, V>(t.gate, row, c, t.cols), g);
    pl_floats(pl_load<T, V>(t.up, row, c, t.cols), u);
    pl_floats(pl_load<T, V>(t.m, row, c, t.cols), dm);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float s = sigmoid(g[i]), gs = g[i] * s;
        g[i] = dm[i] * u[i] * (s + gs - gs * s);
        u[i] = dm[i] * gs;
    }
    pl_store(t.gate, row, c, t.cols, pl_packed(t.gate, g));
    pl_store(t.up, row, c, t.cols, pl_packed(t.up, u));
}

struct swiglu_call {
    struct pl_view gate, up, m;
};

template <typename T> swiglu<T> arguments_of(const struct swiglu_call *s, uint32_t row_blocks) {
    return {pl_mat_of<T>(s->gate), pl_mat_of<T>(s->up), pl_mat_of<T>(s->m), (uint32_t)s->m.cols,
            row_blocks};
}

template <typename T, int V>
void launch_forward(const struct swiglu_call *s, uint32_t row_blocks, cudaStream_t stream) {
    PL_LAUNCH((forward<T, V>), dim3((unsigned)(s->m.rows * row_blocks)), dim3(BLOCK), 0, stream,
              arguments_of<T>(s, row_blocks));
}

template <typename T, int V>
void launch_backward(const struct swiglu_call *s, uint32_t row_blocks, cudaStream_t stream) {
    PL_LAUNCH((backward<T, V>), dim3((unsigned)(s->m.rows * row_blocks)), dim3(BLOCK), 0, stream,
              arguments_of<T>(s, row_blocks));
}

typedef void (*launch_fn)(const struct swiglu_call *s, uint32_t row_blocks, cudaStream_t stream);

pl_err run(struct pl_device *dev, const struct pl_view *gu, const struct pl_view *m,
           const launch_fn by_form[PL_FORMS]) {
    struct swiglu_call s = {*gu, *gu, *m};
    uint64_t blocks;
    s.up.p = (char *)gu->p + m->cols * pl_dtype_bytes(gu->dtype);
    const struct pl_view *const views[] = {&s.gate, &s.up, &s.m};
    const int form = pl_form_of(views, 3);
    const uint64_t row_blocks = pl_u64_div_up(m->cols, BLOCK * pl_form_lanes(form));
    if (gu->cols != 2 * m->cols || m->cols > PL_GRID_MAX ||
        !pl_u64_mul(m->rows, row_blocks, &blocks) || blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (blocks) by_form[form](&s, (uint32_t)row_blocks, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

} // namespace

/* in: gu[N,2F]; out: m[N,F]. */
extern "C" pl_err pl_cuda_swiglu(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_forward);
    return run(dev, &c->in[PL_SWIGLU_GU], &c->out[PL_SWIGLU_OUT_M], by_form);
}

/* in: gu[N,2F]! dm[N,F]; out: gu[N,2F]!. */
extern "C" pl_err pl_cuda_swiglu_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_backward);
    return run(dev, &c->out[PL_SWIGLU_BWD_OUT_GU], &c->in[PL_SWIGLU_BWD_DM], by_form);
}

PL_CUDA_PRELOAD(swiglu) = {PL_FORM_KERNELS(forward), PL_FORM_KERNELS(backward), NULL};
