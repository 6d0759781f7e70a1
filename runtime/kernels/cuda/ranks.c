/* ranks.c - ZERO, SPREAD, FETCH, SHARE: what ranks send each other, in order with the kernels. */
#include "runtime/device/cuda/cuda.h"
#include "runtime/kernels/between.h"
#include "runtime/kernels/cuda/table.h"

/* out: x[..]. */
pl_err pl_cuda_zero(struct pl_device *dev, const struct pl_call *c) {
    const struct pl_view *x = &c->out[PL_ZERO_OUT_X];
    if (x->ld != x->cols) return PL_ERR_PLAN_BROKEN;
    const size_t bytes = x->rows * x->cols * pl_dtype_bytes(x->dtype);
    return pl_cuda_error(cudaMemsetAsync(x->p, 0, bytes, pl_cuda_of(dev)->stream));
}

/* in: g[O,K]; out: parts[(ranks-1)*own,K]. */
pl_err pl_cuda_spread(struct pl_device *dev, const struct pl_call *c) {
    return pl_ranks_spread(dev, c, pl_cuda_of(dev)->stream);
}

/* in: part[own,K]; out: x[O,K]. */
pl_err pl_cuda_fetch(struct pl_device *dev, const struct pl_call *c) {
    struct pl_own_copy own;
    PL_TRY(pl_ranks_fetch(dev, c, pl_cuda_of(dev)->stream, &own));
    if (own.bytes == 0) return PL_ERR_OK;
    return pl_cuda_error(
        cudaMemcpyAsync(own.to, own.from, own.bytes, cudaMemcpyDefault, pl_cuda_of(dev)->stream));
}

/* in, out: x[O,K]. */
pl_err pl_cuda_share(struct pl_device *dev, const struct pl_call *c) {
    return pl_ranks_share(dev, c, pl_cuda_of(dev)->stream);
}
