/* workspace_cuda.h - scratch layouts that the planner and the CUDA kernels share.
 *
 * A product's workspace is pl_ws_cuda_product() bytes for cuBLASLt, then the narrow copies of those
 * inputs that cannot be multiplied as they are stored. */
#ifndef PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_H
#define PL_ESTIMATOR_OPS_SCRATCH_WORKSPACE_CUDA_H

#include "estimator/ops/scratch/scratch_bytes.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_WS_CUDA_ALIGN  256 /* bytes; alignment of every part of a workspace */
#define PL_CUDA_BIAS_ROWS 128 /* rows of dy that form one partial sum of BIAS_GRAD */

/* Returns the type that a product's inputs are multiplied in: fp32 only where all of it is. */
enum pl_dtype pl_ws_cuda_product_type(const struct pl_product_matrix m[3]);
/* True if input i (0 or 1) of the product is multiplied as a narrow copy. */
bool pl_ws_cuda_narrows(const struct pl_product_matrix m[3], uint32_t i);
/* Returns the bytes of the copies of the first n inputs; with n = i, the offset of copy i. */
uint64_t pl_ws_cuda_narrowed(const struct pl_product_matrix m[3], uint32_t n);
/* Returns the workspace that cuBLASLt may use; it is the same for every product of a device. */
uint64_t pl_ws_cuda_product(const struct pl_traits *t, const struct pl_attr *attr, uint64_t rows,
                            uint64_t cols);

#ifdef __cplusplus
}
#endif

#endif
