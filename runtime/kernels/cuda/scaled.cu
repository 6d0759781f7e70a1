/* scaled.cu - ADD_SCALE and SOFTCAP: one pass over rows in place. */
#include "runtime/kernels/cuda/common.cuh"

#include "estimator/base/checked.h"

namespace {

#define BLOCK 256

struct pass {
    struct pl_view x, r, s; /* r and s may be absent */
    float number;           /* the factor besides s; the limit */
    uint32_t row_blocks;    /* blocks side by side in a row */
};

/* A thread's pack; false past the row's end. */
template <int V>
__device__ __forceinline__ bool find_pack(uint32_t cols, uint32_t row_blocks, uint64_t &row,
                                          uint32_t &c) {
    row = blockIdx.x / row_blocks;
    c = (blockIdx.x % row_blocks * BLOCK + threadIdx.x) * V;
    return c < cols;
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK)
    add_scale(pl_mat<T> x, pl_mat<T> r, pl_mat<pl_either> s, float alpha, uint32_t cols,
              uint32_t row_blocks) {
    const float factor = s.p ? s.get(0, 0) * alpha : alpha;
    uint64_t row;
    uint32_t c;
    float f[V], g[V] = {0};
    if (!find_pack<V>(cols, row_blocks, row, c)) return;
    pl_floats(pl_load<T, V>(x, row, c, cols), f);
    if (r.p) pl_floats(pl_load<T, V>(r, row, c, cols), g);
#pragma unroll
    for (int i = 0; i < V; i++)
        f[i] = (r.p ? f[i] + g[i] : f[i]) * factor;
    pl_store(x, row, c, cols, pl_packed(x, f));
}

template <typename T, int V>
__global__ void __launch_bounds__(BLOCK)
    softcap(pl_mat<T> z, float limit, uint32_t cols, uint32_t row_blocks) {
    uint64_t row;
    uint32_t c;
    float f[V];
    if (!find_pack<V>(cols, row_blocks, row, c)) return;
    pl_floats(pl_load<T, V>(z, row, c, cols), f);
#pragma unroll
    for (int i = 0; i < V; i++)
        f[i] = limit * tanhf(f[i] / limit);
    pl_store(z, row, c, cols, pl_packed(z, f));
}

template <typename T, int V> void launch_add_scale(const struct pass *p, cudaStream_t stream) {
    PL_LAUNCH((add_scale<T, V>), dim3((unsigned)(p->x.rows * p->row_blocks)), dim3(BLOCK), 0,
              stream, pl_mat_of<T>(p->x), pl_mat_of<T>(p->r), pl_mat_of<pl_either>(p->s), p->number,
              (uint32_t)p->x.cols, p->row_blocks);
}

template <typename T, int V> void launch_softcap(const struct pass *p, cudaStream_t stream) {
    PL_LAUNCH((softcap<T, V>), dim3((unsigned)(p->x.rows * p->row_blocks)), dim3(BLOCK), 0, stream,
              pl_mat_of<T>(p->x), p->number, (uint32_t)p->x.cols, p->row_blocks);
}

typedef void (*launch_fn)(const struct pass *p, cudaStream_t stream);

pl_err run(struct pl_device *dev, struct pass *p, const launch_fn by_form[PL_FORMS]) {
    const struct pl_view *const views[] = {&p->x, &p->r};
    const int form = pl_form_of(views, 2);
    const uint64_t row_blocks = pl_u64_div_up(p->x.cols, BLOCK * pl_form_lanes(form));
    uint64_t blocks;
    if (p->x.cols > PL_GRID_MAX || !pl_u64_mul(p->x.rows, row_blocks, &blocks) ||
        blocks > PL_GRID_MAX)
        return PL_ERR_PLAN_BROKEN;
    p->row_blocks = (uint32_t)row_blocks;
    if (blocks) by_form[form](p, pl_cuda_of(dev)->stream);
    return pl_cuda_launched();
}

} // namespace

/* in: x[N,C]! r?[N,C] s?[1]; out: x[N,C]!. */
extern "C" pl_err pl_cuda_add_scale(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_add_scale);
    struct pass p = {c->out[PL_ADD_SCALE_OUT_X], c->in[PL_ADD_SCALE_R], c->in[PL_ADD_SCALE_S],
                     c->attr->alpha, 0};
    return run(dev, &p, by_form);
}

/* in: z[T,V]!; out: z[T,V]!. */
extern "C" pl_err pl_cuda_softcap(struct pl_device *dev, const struct pl_call *c) {
    static const launch_fn by_form[PL_FORMS] = PL_FORM_TABLE(launch_softcap);
    struct pass p = {c->out[PL_SOFTCAP_OUT_Z], {}, {}, c->attr->limit, 0};
    return run(dev, &p, by_form);
}

PL_CUDA_PRELOAD(scaled) = {PL_FORM_KERNELS(add_scale), PL_FORM_KERNELS(softcap), NULL};
