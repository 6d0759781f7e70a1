/* copy.c - COPY_IN, COPY_OUT: between pinned host memory and the device, in order with the kernels
 * or on the copy stream.
 *
 * Both sides are known to the runtime (unified addressing), so the direction follows from them. */
#include "runtime/kernels/cuda/table.h"

#include "runtime/device/cuda/cuda.h"

static bool is_whole(const struct pl_view *v) {
    return v->ld == v->cols;
}

/* in: src[..]; out: dst[..]. */
static pl_err copy(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *from = &c->in[PL_COPY_IN_SRC], *to = &c->out[PL_COPY_IN_OUT_DST];
    const uint64_t bytes = pl_dtype_bytes(to->dtype), width = to->cols * bytes;
    cudaStream_t stream = pl_cuda_of(dev)->stream;
    if (c->attr->not_first && c->batch->first) return PL_ERR_OK;
    if (from->rows != to->rows || from->cols != to->cols || from->dtype != to->dtype)
        return PL_ERR_PLAN_BROKEN;
    if (to->rows == 0 || width == 0) return PL_ERR_OK;
    if (is_whole(from) && is_whole(to))
        return pl_cuda_error(
            cudaMemcpyAsync(to->p, from->p, to->rows * width, cudaMemcpyDefault, stream));
    return pl_cuda_error(cudaMemcpy2DAsync(to->p, to->ld * bytes, from->p, from->ld * bytes, width,
                                           to->rows, cudaMemcpyDefault, stream));
}

pl_err pl_cuda_copy_in(struct pl_device *dev, const struct pl_call *c) {
    return copy(dev, c);
}

pl_err pl_cuda_copy_out(struct pl_device *dev, const struct pl_call *c) {
    return copy(dev, c);
}
