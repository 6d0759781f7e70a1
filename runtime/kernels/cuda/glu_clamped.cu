/* glu_clamped.cu - SWIGLU_CLAMPED and its gradient over the operand. The CPU's glu_clamped.c says
 * what they compute. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

#define BLOCK 256

template <typename T> struct clamped {
    pl_mat<T> gu, m;           /* [P,2F], [P,F]; m is its gradient on the way back */
    pl_mat<T> again;           /* m once more, then, over its gradient or apart; may be absent */
    uint32_t cols, row_blocks; /* blocks side by side in a row of m */
    float limit, alpha;
};

/* A thread has V columns of a row of m, and reads the pairs of gu that they are made of. */
template <typename T, int V>
__device__ __forceinline__ void load_pairs(const clamped<T> &t, uint64_t row, uint32_t c,
                                           float (&gu)[2 * V]) {
    pl_floats(pl_load<T, 2 * V>(t.gu, row, 2 * c, 2 * t.cols), gu);
}
template <>
__device__ __forceinline__ void load_pairs<pl_either, 1>(const clamped<pl_either> &t, uint64_t row,
                                                         uint32_t c, float (&gu)[2]) {
    gu[0] = t.gu.get(row, 2 * c);
    gu[1] = t.gu.get(row, 2 * c + 1);
}

template <typename T, int V>
__device__ __forceinline__ void store_pairs(const clamped<T> &t, uint64_t row, uint32_t c,
                                            const float (&gu)[2 * V]) {
    pl_store(t.gu, row, 2 * c, 2 * t.cols, pl_packed(t.gu, gu));
}
template <>
__device__ __forceinline__ void store_pairs<pl_either, 1>(const clamped<pl_either> &t, uint64_t row,
                                                          uint32_t c, const float (&gu)[2]) {
    t.gu.put(row, 2 * c, gu[0]);
    t.gu.put(row, 2 * c + 1, gu[1]);
}

/* Gate, up and sigmoid of a pair; a NaN stays one. */
struct unit {
    float g, u, s;
    __device__ __forceinline__ unit(float gate, float up, float limit, float alpha) {
        g = gate > limit ? limit : gate;
        u = up > limit ? limit : up < -limit ? -limit : up;
        s = 1.0f / (1.0f + expf(-alpha * g));
    }
};

/* A thread's columns; false past the row's end. */
template <typename T, int V>
__device__ __forceinline__ bool find_pack(const clamped<T> &t, uint64_t &row, uint32_t &c) {
    row = blockIdx.x / t.row_blocks;
    c = (blockIdx.x % t.row_blocks * BLOCK + threadIdx.x) * V;
    return c < t.cols;
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) swiglu_clamped(const clamped<T> t) {
    uint64_t row;
    uint32_t c;
    float gu[2 * V], m[V];
    if (!find_pack<T, V>(t, row, c)) return;
    load_pairs<T, V>(t, row, c, gu);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const unit x(gu[2 * i], gu[2 * i + 1], t.limit, t.alpha);
        m[i] = (x.u + 1.0f) * x.g * x.s;
    }
    pl_store(t.m, row, c, t.cols, pl_packed(t.m, m));
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) swiglu_clamped_bwd(const clamped<T> t) {
    uint64_t row;
    uint32_t c;
    float gu[2 * V], dm[V], m[V];
    if (!find_pack<T, V>(t, row, c)) return;
    load_pairs<T, V>(t, row, c, gu);
    pl_floats(pl_load<T, V>(t.m, row, c, t.cols), dm);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const unit x(gu[2 * i], gu[2 * i + 1], t.limit, t.alpha);
        m[i] = (x.u + 1.0f) * x.g * x.s;
        const float gs = x.g * x.s, slope = x.s + t.alpha * (gs - gs * x.s);
        gu[2 * i] = gu[2 * i] > t.limit ? 0.0f : dm[i] * (x.u + 1.0f) * slope;
        gu[2 * i + 1] = fabsf(gu[2 * i + 1]) > t.limit ? 0.0f : dm[i] * gs;
    }
    if (t.again.p) pl_store(t.again, row, c, t.cols, pl_packed(t.again, m));
    store_pairs<T, V>(t, row, c, gu);
}

struct clamped_call {
    const struct pl_view *gu, *m;
    struct pl_view again;
    const struct pl_attr *attr;
};

#define LAUNCH(op)                                                                                 \
    template <typename T, int V>                                                                   \
    void launch_##op(const struct clamped_call &s, uint32_t row_blocks, cudaStream_t stream) {     \
        const clamped<T> t = {pl_mat_of<T>(*s.gu), pl_mat_of<T>(*s.m), pl_mat_of<T>(s.again),      \
                              (uint32_t)s.m->cols, row_blocks,         s.attr->limit,              \
                              s.attr->alpha};                                                      \
        PL_LAUNCH((op<T, V>), dim3((unsigned)(s.m->rows * row_blocks)), dim3(BLOCK), 0, stream,    \
                  t);                                                                              \
    }
LAUNCH(swiglu_clamped)
LAUNCH(swiglu_clamped_bwd)

typedef void (*launch_fn)(const struct clamped_call &s, uint32_t row_blocks, cudaStream_t stream);

pl_err run(struct pl_device *dev, const struct clamped_call &s, const launch_fn by_form[PL_FORMS]) {
    const struct pl_view *const views[] = {s.gu, s.m, &s.again};
    const int form = pl_form_of(views, 3);
    const uint64_t row_blocks = pl_u64_div_up(s.m->cols, BLOCK * pl_form_lanes(form));
    uint64_t blocks;
    if (s.gu->cols != 2 * s.m->cols || s.gu->rows != s.m->rows || s.m->cols > PL_GRID_MAX / 2 ||
        !pl_is_float(s.gu) || !pl_is_float(s.m) || !pl_u64_mul(s.m->rows, row_blocks, &blocks) ||
        blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (blocks) by_form[form](s, (uint32_t)row_blocks, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

} // namespace

/* in: gu[P,2F]; out: m[P,F]. */
extern "C" pl_err pl_cuda_swiglu_clamped(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_swiglu_clamped);
    return run(dev, {&c->in[PL_SWIGLU_CLAMPED_GU], &c->out[PL_SWIGLU_CLAMPED_OUT_M], {}, c->attr},
               by_form);
}

/* in: gu[P,2F]! dm[P,F] m?[P,F]!; out: gu[P,2F]! m?[P,F]. */
extern "C" pl_err pl_cuda_swiglu_clamped_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_swiglu_clamped_bwd);
    return run(dev,
               {&c->out[PL_SWIGLU_CLAMPED_BWD_OUT_GU], &c->in[PL_SWIGLU_CLAMPED_BWD_DM],
                c->out[PL_SWIGLU_CLAMPED_BWD_OUT_M], c->attr},
               by_form);
}

PL_CUDA_PRELOAD(glu_clamped) = {PL_FORM_KERNELS(swiglu_clamped),
                                PL_FORM_KERNELS(swiglu_clamped_bwd), NULL};
