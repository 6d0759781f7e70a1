/* narrow.cu - NARROW: matrices in another type, in some of the columns of wider ones. The adapters
 * of a layer are many small ones, so one launch takes many. */
#include "runtime/kernels/cuda/table.h"
#include "runtime/kernels/cuda/update.cuh"

#include "estimator/base/checked.h"

namespace {

#define BLOCK 256
#define PACK  8

/* The rows of y lie one after another; x begins at its column `from`. */
template <typename S, typename D> struct copy {
    pl_mat<S> x;
    pl_mat<D> y;
    uint64_t rows;
    uint32_t cols, from, width; /* of x; of y */
};

/* Elements [c, c + V) of a row of y. x may begin and end within them, at any element. */
template <typename S, typename D, int V>
__device__ __forceinline__ void values_of(const copy<S, D> &t, uint64_t row, uint32_t c,
                                          float (&f)[V]) {
    const bool is_inside = c >= t.from && c + V <= t.from + t.cols;
    if (is_inside && (row * t.x.ld + c - t.from) % pl_lanes<S>::N == 0) {
        pl_floats(pl_load<S, V>(t.x, row, c - t.from, t.cols), f);
        return;
    }
#pragma unroll
    for (uint32_t i = 0; i < V; i++)
        f[i] = c + i >= t.from && c + i - t.from < t.cols ? t.x.get(row, c + i - t.from) : 0.0f;
}

template <typename S, typename D, int V>
__global__ void __launch_bounds__(BLOCK) narrow(pl_parts<copy<S, D>> parts) {
    const uint32_t part = pl_part_of(parts, blockIdx.x);
    const copy<S, D> &t = parts.part[part];
    const uint64_t e = ((uint64_t)(blockIdx.x - parts.begin[part]) * BLOCK + threadIdx.x) * V;
    const uint64_t row = e / t.width;
    const uint32_t c = (uint32_t)(e - row * t.width);
    float f[V];
    if (row >= t.rows) return;
    values_of(t, row, c, f);
    pl_store(t.y, row, c, t.width, pl_packed(t.y, f));
}

/* ---- launches ---- */

enum { /* of an fp32 matrix by the narrow type, and of any */
#define FORM(T) FORM_##T,
       PL_NARROW_MAP(FORM) FORM_EITHER,
       FORMS
};

/* A row of y is whole packs. */
bool goes_in_packs(const struct pl_call *c) {
    const struct pl_view *x = &c->in[PL_NARROW_X], *y = &c->out[PL_NARROW_OUT_Y];
    return x->dtype == PL_DTYPE_F32 && (uintptr_t)x->p % 16 == 0 && pl_is_aligned(y) &&
           y->cols % PACK == 0;
}

int form_of(const struct pl_call *c) {
    if (!goes_in_packs(c)) return FORM_EITHER;
#define IS(T)                                                                                      \
    if (c->out[PL_NARROW_OUT_Y].dtype == PL_DTYPE_##T) return FORM_##T;
    PL_NARROW_MAP(IS)
    return FORM_EITHER;
}

/* The calls among n that have this form. */
template <typename S, typename D, int V>
pl_err launch(struct pl_device *dev, const struct pl_call *calls, uint32_t n, int form) {
    pl_parts<copy<S, D>> parts;
    pl_parts_clear(&parts);
    for (uint32_t i = 0; i < n; i++) {
        const struct pl_view *x = &calls[i].in[PL_NARROW_X], *y = &calls[i].out[PL_NARROW_OUT_Y];
        const copy<S, D> t = {pl_mat_of<S>(*x),
                              pl_mat_of<D>(*y),
                              x->rows,
                              (uint32_t)x->cols,
                              (uint32_t)calls[i].attr->first_element,
                              (uint32_t)y->cols};
        if (form_of(&calls[i]) != form || y->rows * y->cols == 0) continue;
        if (!pl_parts_add(&parts, t, pl_u64_div_up(y->rows * y->cols, BLOCK * V)))
            return PL_ERR_PLAN_BROKEN;
    }
    if (pl_parts_units(&parts))
        PL_LAUNCH((narrow<S, D, V>), dim3(pl_parts_units(&parts)), dim3(BLOCK), 0,
                  pl_cuda_of(dev)->stream, parts);
    return pl_cuda_launched();
}

bool is_sound(const struct pl_call *c) {
    const struct pl_view *x = &c->in[PL_NARROW_X], *y = &c->out[PL_NARROW_OUT_Y];
    const uint64_t from = c->attr->first_element;
    return pl_is_float(x) && pl_is_float(y) && x->rows == y->rows && y->cols <= UINT32_MAX &&
           from <= y->cols && x->cols <= y->cols - from;
}

/* Takes at most PL_PARTS calls. */
pl_err run(struct pl_device *dev, const struct pl_call *calls, uint32_t n) {
    static pl_err (*const by_form[FORMS])(struct pl_device *, const struct pl_call *, uint32_t,
                                          int) = {
#define LAUNCH(T) launch<float, pl_stored_##T, PACK>,
        PL_NARROW_MAP(LAUNCH) launch<pl_either, pl_either, 1>};
    for (uint32_t i = 0; i < n; i++)
        if (!is_sound(&calls[i])) return PL_ERR_PLAN_BROKEN;
    for (int form = 0; form < FORMS; form++)
        PL_TRY(by_form[form](dev, calls, n, form));
    return PL_ERR_OK;
}

} // namespace

/* in: x[O,K]; out: y[O,C]. */
extern "C" pl_err pl_cuda_narrow_group(struct pl_device *dev, const struct pl_call *calls,
                                       uint32_t n) {
    return pl_in_parts(run, dev, calls, n);
}

extern "C" pl_err pl_cuda_narrow(struct pl_device *dev, const struct pl_call *c) {
    return run(dev, c, 1);
}

#define KERNEL(T) PL_CUDA_KERNEL(narrow<float, pl_stored_##T, PACK>),
PL_CUDA_PRELOAD(narrow) = {PL_NARROW_MAP(KERNEL) PL_CUDA_KERNEL(narrow<pl_either, pl_either, 1>),
                           NULL};
