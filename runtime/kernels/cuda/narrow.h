/* narrow.h - narrow copies of those inputs of a product that are not multiplied as they are stored;
 * linear.cu has them. */
#ifndef PL_RUNTIME_KERNELS_CUDA_NARROW_H
#define PL_RUNTIME_KERNELS_CUDA_NARROW_H

#include "estimator/ops/scratch/workspace_cuda.h"
#include "runtime/device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline struct pl_product_matrix pl_cuda_matrix_of(const struct pl_view *v) {
    struct pl_product_matrix m;
    m.rows = v->rows;
    m.cols = v->cols;
    m.dtype = v->dtype;
    return m;
}

/* Copies a and b, where pl_ws_cuda_narrows() says so, to their places from `copies` on, and makes
 * them views of their copies. m: what a, b and the output are. */
pl_err pl_cuda_narrow_inputs(struct pl_device *dev, struct pl_view *a, struct pl_view *b,
                             const struct pl_product_matrix m[3], void *copies);

#ifdef __cplusplus
}
#endif

#endif
