/* sigmoid_gate.cu - SPLIT_HEADS and SIGMOID_GATE with their gradients; the CPU's sigmoid_gate.c
 * says what they compute. A thread has V columns of a head. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

enum { BLOCK = 256 };

template <typename T> struct gate {
    pl_mat<T> o, qg, y, go, gqg;    /* y is its gradient on the way back */
    uint32_t cols, dim, row_blocks; /* blocks side by side in a row of y */
};

/* A thread's place: its columns of a head alone, and those of the query in qg. */
struct place {
    uint64_t row, col, wide;
    bool is_real;
};

template <typename T, int V> __device__ __forceinline__ struct place find(const gate<T> &t) {
    struct place at;
    at.row = blockIdx.x / t.row_blocks;
    at.col = (uint64_t)(blockIdx.x % t.row_blocks * BLOCK + threadIdx.x) * V;
    at.wide = at.col + at.col / t.dim * t.dim;
    at.is_real = at.col < t.cols;
    return at;
}

template <typename T, int V>
__device__ __forceinline__ void load(const pl_mat<T> &m, uint64_t row, uint64_t col,
                                     float (&x)[V]) {
    pl_floats(pl_load<T, V>(m, row, col, col + V), x);
}

template <typename T, int V>
__device__ __forceinline__ void store(const pl_mat<T> &m, uint64_t row, uint64_t col,
                                      const float (&x)[V]) {
    pl_store(m, row, col, col + V, pl_packed(m, x));
}

template <typename T, int V> __global__ void __launch_bounds__(BLOCK) split_heads(const gate<T> t) {
    const struct place at = find<T, V>(t);
    float x[V];
    if (!at.is_real) return;
    load<T, V>(t.qg, at.row, at.wide, x);
    store<T, V>(t.y, at.row, at.col, x);
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) split_heads_bwd(const gate<T> t) {
    const struct place at = find<T, V>(t);
    float x[V];
    if (!at.is_real) return;
    load<T, V>(t.y, at.row, at.col, x);
    store<T, V>(t.gqg, at.row, at.wide, x);
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) sigmoid_gate(const gate<T> t) {
    const struct place at = find<T, V>(t);
    float o[V], z[V];
    if (!at.is_real) return;
    load<T, V>(t.o, at.row, at.col, o);
    load<T, V>(t.qg, at.row, at.wide + t.dim, z);
#pragma unroll
    for (int i = 0; i < V; i++)
        o[i] = o[i] / (1.0f + expf(-z[i]));
    store<T, V>(t.y, at.row, at.col, o);
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK) sigmoid_gate_bwd(const gate<T> t) {
    const struct place at = find<T, V>(t);
    float o[V], z[V], dy[V];
    if (!at.is_real) return;
    load<T, V>(t.o, at.row, at.col, o);
    load<T, V>(t.qg, at.row, at.wide + t.dim, z);
    load<T, V>(t.y, at.row, at.col, dy);
#pragma unroll
    for (int i = 0; i < V; i++) {
        const float s = 1.0f / (1.0f + expf(-z[i]));
        z[i] = dy[i] * o[i] * (s * (1.0f - s));
        o[i] = dy[i] * s;
    }
    store<T, V>(t.go, at.row, at.col, o);
    store<T, V>(t.gqg, at.row, at.wide + t.dim, z);
}

/* ---- launching ---- */

struct gate_call {
    struct pl_view o, qg, y, go, gqg;
    uint32_t dim, row_blocks;
};

#define LAUNCH(op)                                                                                 \
    template <typename T, int V>                                                                   \
    void launch_##op(const struct gate_call &s, cudaStream_t stream) {                             \
        const gate<T> t = {pl_mat_of<T>(s.o),                                                      \
                           pl_mat_of<T>(s.qg),                                                     \
                           pl_mat_of<T>(s.y),                                                      \
                           pl_mat_of<T>(s.go),                                                     \
                           pl_mat_of<T>(s.gqg),                                                    \
                           (uint32_t)s.y.cols,                                                     \
                           s.dim,                                                                  \
                           s.row_blocks};                                                          \
        PL_LAUNCH((op<T, V>), dim3((unsigned)(s.y.rows * s.row_blocks)), dim3(BLOCK), 0, stream,   \
                  t);                                                                              \
    }
LAUNCH(split_heads)
LAUNCH(split_heads_bwd)
LAUNCH(sigmoid_gate)
LAUNCH(sigmoid_gate_bwd)

typedef void (*launch_fn)(const struct gate_call &, cudaStream_t);

bool has_shape(const struct pl_view *v, uint64_t rows, uint64_t cols) {
    return !v->p || (pl_is_float(v) && v->rows == rows && v->cols == cols);
}

/* Heads must begin on whole packs. */
pl_err run(struct pl_device *dev, const struct pl_call *c, struct gate_call *s,
           const launch_fn launch[PL_FORMS]) {
    const struct pl_view *const views[] = {&s->o, &s->qg, &s->y, &s->go, &s->gqg};
    const uint64_t rows = s->y.rows, cols = s->y.cols;
    uint64_t blocks;
    s->dim = c->attr->head_dim;
    if (s->dim == 0 || cols % s->dim || cols > PL_GRID_MAX / 2 || !pl_is_float(&s->y) ||
        !has_shape(&s->o, rows, cols) || !has_shape(&s->go, rows, cols) ||
        !has_shape(&s->qg, rows, 2 * cols) || !has_shape(&s->gqg, rows, 2 * cols))
        return PL_ERR_PLAN_BROKEN;
    int form = pl_form_of(views, 5);
    if (s->dim % pl_form_lanes(form)) form = PL_FORM_EITHER;
    s->row_blocks = (uint32_t)pl_u64_div_up(cols, BLOCK * pl_form_lanes(form));
    if (!pl_u64_mul(rows, s->row_blocks, &blocks) || blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    if (blocks) launch[form](*s, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

} // namespace

/* in: qg[N,2*H*D]; out: q[N,H*D]. */
extern "C" pl_err pl_cuda_split_heads(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_split_heads);
    struct gate_call s = {};
    s.qg = c->in[PL_SPLIT_HEADS_QG], s.y = c->out[PL_SPLIT_HEADS_OUT_Q];
    return run(dev, c, &s, launch);
}

/* in: dq[N,H*D] dqg[N,2*H*D]!; out: dqg[N,2*H*D]!. */
extern "C" pl_err pl_cuda_split_heads_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_split_heads_bwd);
    struct gate_call s = {};
    s.y = c->in[PL_SPLIT_HEADS_BWD_DQ], s.gqg = c->out[PL_SPLIT_HEADS_BWD_OUT_DQG];
    return run(dev, c, &s, launch);
}

/* in: o[N,H*D] qg[N,2*H*D]; out: y[N,H*D]. */
extern "C" pl_err pl_cuda_sigmoid_gate(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_sigmoid_gate);
    struct gate_call s = {};
    s.o = c->in[PL_SIGMOID_GATE_O], s.qg = c->in[PL_SIGMOID_GATE_QG];
    s.y = c->out[PL_SIGMOID_GATE_OUT_Y];
    return run(dev, c, &s, launch);
}

/* in: dy[N,H*D] o[N,H*D] qg[N,2*H*D]; out: do[N,H*D] dqg[N,2*H*D]. */
extern "C" pl_err pl_cuda_sigmoid_gate_bwd(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn launch[PL_FORMS] = PL_FORM_TABLE(launch_sigmoid_gate_bwd);
    struct gate_call s = {};
    s.y = c->in[PL_SIGMOID_GATE_BWD_DY], s.o = c->in[PL_SIGMOID_GATE_BWD_O];
    s.qg = c->in[PL_SIGMOID_GATE_BWD_QG];
    s.go = c->out[PL_SIGMOID_GATE_BWD_OUT_DO], s.gqg = c->out[PL_SIGMOID_GATE_BWD_OUT_DQG];
    return run(dev, c, &s, launch);
}

PL_CUDA_PRELOAD(sigmoid_gate) = {PL_FORM_KERNELS(split_heads), PL_FORM_KERNELS(split_heads_bwd),
                                 PL_FORM_KERNELS(sigmoid_gate), PL_FORM_KERNELS(sigmoid_gate_bwd),
                                 NULL};
