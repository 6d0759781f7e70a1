/* glu.cu - SWIGLU, GEGLU and GELU_MUL: m = act(gate) * up, and their gradients over the operands.
 * The CPU's glu.c says what z and s are. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

#define BLOCK 256

template <typename T> struct glu {
    pl_mat<T> gate, up, m;     /* [N,F]; m is its gradient on the way back */
    pl_mat<T> du;              /* the gradient of up, over it or apart; may be absent */
    pl_mat<T> again;           /* m once more, on the way back, over its gradient or apart; too */
    uint32_t cols, row_blocks; /* blocks side by side in a row */
};

__device__ __forceinline__ float sigmoid(float z) {
    return 1.0f / (1.0f + expf(-z));
}

/* An activation: z, and d act / d g of s and gs = g s. */
struct silu {
    static __device__ __forceinline__ float z(float g) { return g; }
    static __device__ __forceinline__ float slope(float, float s, float gs) {
        return s + gs - gs * s;
    }
};

#define GELU_2K 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_C  0.044715f

struct gelu {
    static __device__ __forceinline__ float z(float g) {
        return GELU_2K * (g + GELU_C * g * g * g);
    }
    static __device__ __forceinline__ float slope(float g, float s, float gs) {
        return s + (gs - gs * s) * (GELU_2K * (1.0f + 3.0f * GELU_C * g * g));
    }
};

/* A thread's pack; false past the row's end. */
template <typename T, int V>
__device__ __forceinline__ bool find_pack(const glu<T> &t, uint64_t &row, uint32_t &c) {
    row = blockIdx.x / t.row_blocks;
    c = (blockIdx.x % t.row_blocks * BLOCK + threadIdx.x) * V;
    return c < t.cols;
}

template <typename A, typename T, int V> __device__ __forceinline__ void forward(const glu<T> &t) {
    uint64_t row;
    uint32_t c;
    float g[V], u[V];
    if (!find_pack<T, V>(t, row, c)) return;
    pl_floats(pl_load<T, V>(t.gate, row, c, t.cols), g);
    pl_floats(pl_load<T, V>(t.up, row, c, t.cols), u);
#pragma unroll
    for (int i = 0; i < V; i++)
        g[i] = g[i] * sigmoid(A::z(g[i])) * u[i];
    pl_store(t.m, row, c, t.cols, pl_packed(t.m, g));
}

/* d up = dm act, d gate = dm up d act. m has the bits of the forward pass. */
template <typename A, typename T, int V> __device__ __forceinline__ void backward(const glu<T> &t) {
    uint64_t row;
    uint32_t c;
    float g[V], u[V], dm[V], m[V];
    if (!find_pack<T, V>(t, row, c)) return;
    pl_floats(pl_load<T, V>(t.gate, row, c, t.cols), g);
    pl_floats(pl_load<T, V>(t.up, row, c, t.cols), u);
    pl_floats(pl_load<T, V>(t.m, row, c, t.cols), dm);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float s = sigmoid(A::z(g[i])), gs = g[i] * s;
        m[i] = gs * u[i];
        g[i] = dm[i] * u[i] * A::slope(g[i], s, gs);
        u[i] = dm[i] * gs;
    }
    if (t.again.p) pl_store(t.again, row, c, t.cols, pl_packed(t.again, m));
    pl_store(t.gate, row, c, t.cols, pl_packed(t.gate, g));
    if (t.du.p) pl_store(t.du, row, c, t.cols, pl_packed(t.du, u));
}

struct glu_call {
    struct pl_view gate, up, m, du, again;
};

template <typename T> glu<T> arguments_of(const struct glu_call *s, uint32_t row_blocks) {
    return {pl_mat_of<T>(s->gate),  pl_mat_of<T>(s->up), pl_mat_of<T>(s->m), pl_mat_of<T>(s->du),
            pl_mat_of<T>(s->again), (uint32_t)s->m.cols, row_blocks};
}

/* A kernel for each op, and what launches it. */
#define KERNEL(op, pass, activation)                                                               \
    template <typename T, int V> __global__ void __launch_bounds__(BLOCK) op(const glu<T> t) {     \
        pass<activation, T, V>(t);                                                                 \
    }                                                                                              \
    template <typename T, int V>                                                                   \
    void launch_##op(const struct glu_call *s, uint32_t row_blocks, cudaStream_t stream) {         \
        PL_LAUNCH((op<T, V>), dim3((unsigned)(s->m.rows * row_blocks)), dim3(BLOCK), 0, stream,    \
                  arguments_of<T>(s, row_blocks));                                                 \
    }

KERNEL(swiglu, forward, silu)
KERNEL(geglu, forward, gelu)
KERNEL(swiglu_bwd, backward, silu)
KERNEL(geglu_bwd, backward, gelu)

typedef void (*launch_fn)(const struct glu_call *s, uint32_t row_blocks, cudaStream_t stream);

pl_err launch(struct pl_device *dev, const struct glu_call *s, const launch_fn by_form[PL_FORMS]) {
    uint64_t blocks;
    const struct pl_view *const views[] = {&s->gate, &s->up, &s->m, &s->du, &s->again};
    const int form = pl_form_of(views, 5);
    const uint64_t row_blocks = pl_u64_div_up(s->m.cols, BLOCK * pl_form_lanes(form));
    if (s->m.cols > PL_GRID_MAX || !pl_u64_mul(s->m.rows, row_blocks, &blocks) ||
        blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (blocks) by_form[form](s, (uint32_t)row_blocks, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

pl_err run(struct pl_device *dev, const struct pl_view *gu, const struct pl_view *m,
           const struct pl_view &again, const launch_fn by_form[PL_FORMS]) {
    struct glu_call s = {*gu, *gu, *m, {}, again};
    s.up.p = (char *)gu->p + m->cols * pl_dtype_bytes(gu->dtype);
    s.du = s.up;
    return gu->cols == 2 * m->cols ? launch(dev, &s, by_form) : PL_ERR_PLAN_BROKEN;
}

} // namespace

/* in: gu[N,2F]; out: m[N,F]. */
extern "C" pl_err pl_cuda_swiglu(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_swiglu);
    return run(dev, &c->in[PL_SWIGLU_GU], &c->out[PL_SWIGLU_OUT_M], {}, by_form);
}

/* in: gu[N,2F]; out: m[N,F]. */
extern "C" pl_err pl_cuda_geglu(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_geglu);
    return run(dev, &c->in[PL_GEGLU_GU], &c->out[PL_GEGLU_OUT_M], {}, by_form);
}

/* in: gu[N,2F]! dm[N,F] m?[N,F]!; out: gu[N,2F]! m?[N,F]. */
extern "C" pl_err pl_cuda_swiglu_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_swiglu_bwd);
    return run(dev, &c->out[PL_SWIGLU_BWD_OUT_GU], &c->in[PL_SWIGLU_BWD_DM],
               c->out[PL_SWIGLU_BWD_OUT_M], by_form);
}

/* in: gu[N,2F]! dm[N,F] m?[N,F]!; out: gu[N,2F]! m?[N,F]. */
extern "C" pl_err pl_cuda_geglu_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_geglu_bwd);
    return run(dev, &c->out[PL_GEGLU_BWD_OUT_GU], &c->in[PL_GEGLU_BWD_DM],
               c->out[PL_GEGLU_BWD_OUT_M], by_form);
}

/* in: g[N,F] u[N,F]; out: m[N,F]. */
extern "C" pl_err pl_cuda_gelu_mul(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_geglu);
    const struct glu_call s = {
        c->in[PL_GELU_MUL_G], c->in[PL_GELU_MUL_U], c->out[PL_GELU_MUL_OUT_M], {}, {}};
    return launch(dev, &s, by_form);
}

/* in: g[N,F]! u[N,F] dm[N,F]; out: g[N,F]! du?[N,F]. */
extern "C" pl_err pl_cuda_gelu_mul_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_geglu_bwd);
    const struct glu_call s = {c->out[PL_GELU_MUL_BWD_OUT_G],
                               c->in[PL_GELU_MUL_BWD_U],
                               c->in[PL_GELU_MUL_BWD_DM],
                               c->out[PL_GELU_MUL_BWD_OUT_DU],
                               {}};
    return launch(dev, &s, by_form);
}

PL_CUDA_PRELOAD(glu) = {PL_FORM_KERNELS(swiglu), PL_FORM_KERNELS(geglu),
                        PL_FORM_KERNELS(swiglu_bwd), PL_FORM_KERNELS(geglu_bwd), NULL};
